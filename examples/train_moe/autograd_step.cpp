#include "step_runner.hpp"

#include "model/walk_model.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <cstddef>

namespace train_moe {
namespace {

class autograd_step : public step_runner {
public:
  explicit autograd_step(language_model& model) : model_(model) {}

  void run() override {
    torch::autograd::variable_list wanted;
    for (auto const& each : model_.parameters())
      if (each.weight->trainable()) wanted.push_back(each.weight->leaf());
    auto const microbatches = static_cast<int>(model_.step().batches.size());
    for (int m = 0; m < microbatches; ++m) {
      walk_state<language_model::types> state;
      auto const loss = walk_model(model_, state, m);
      auto const gradients = torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/{}, /*create_graph=*/false,
                                                   /*allow_unused=*/true);
      std::size_t next = 0;
      for (auto const& each : model_.parameters()) {
        if (!each.weight->trainable()) continue;
        if (auto const& gradient = gradients[next++]; gradient.defined()) each.weight->accumulate(gradient);
      }
    }
  }
  char const* pipeline() const override { return "serial"; }

private:
  language_model& model_;
};

}  // namespace

std::unique_ptr<step_runner> make_autograd_step(language_model& model) {
  return std::make_unique<autograd_step>(model);
}

}  // namespace train_moe
