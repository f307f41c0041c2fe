// bodies WAY TIMES: runs every pair of bodies of the instruction comparison that often, for a tool that counts instructions.
#include "../../tests/codegen/bodies.cpp"

#include <cstdlib>
#include <string_view>

namespace {

template <int K> struct place {
  st::layer<Model::block<K>> phases;
  st::slot<Model, K, st::null_tensors> forward{}, backward{};
  st::boundary<st::null_tensors::tensor> next{};
};

template <int K> void run(void (*body)(context&), place<K>& at, int times) {
  st::null_tensors tensors;
  us::lanes all;
  us::lanes::event events[8] = {}, ports[4] = {};
  // As many releases as a step has after each op: none here.
  st::detail::give_back<st::null_tensors::tensor> const* const releases[64] = {};
  for (int i = 0; i < times; ++i) {
    context c{tensors, all, nullptr, events, releases, {}, {}};
    c.f = {{&at.phases, &at.forward, &at.next, 1, 2}, &ports[0], &ports[1], nullptr, 0};
    c.b = {{&at.phases, &at.backward, &at.next, 1, 1}, &ports[2], &ports[3], nullptr, 0};
    body(c);
  }
}

} // namespace

int main(int count, char** argument) {
  if (count != 3) return 2;
  bool const by_hand = argument[1] == std::string_view("hand");
  int const times = std::atoi(argument[2]);
  place<moe> of_experts{st::layer<Moe>(Attention(), Dispatch(), Experts(), Combine())};
  place<dense> of_dense{st::layer<Dense>(DenseAttention(), DenseMlp())};
  run(by_hand ? hand_moe_pair : stretto_moe_pair, of_experts, times);
  run(by_hand ? hand_moe_forward : stretto_moe_forward, of_experts, times);
  run(by_hand ? hand_moe_input : stretto_moe_input, of_experts, times);
  run(by_hand ? hand_moe_weight : stretto_moe_weight, of_experts, times);
  run(by_hand ? hand_dense_pair : stretto_dense_pair, of_dense, times);
  run(by_hand ? hand_dense_backward : stretto_dense_backward, of_dense, times);
}
