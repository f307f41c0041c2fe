#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

class parameter;

/// One weight gradient put off: what `backward_weight` needs to make it.
struct pending_weight {
  void (*run)(pending_weight const&);
  c10::intrusive_ptr<c10::intrusive_ptr_target> op;
  at::Tensor input;
  at::Tensor output_gradient;
};

/// What one node keeps between its forward and its last backward op.
class node_context {
public:
  /// Every function with a weight of its own hangs on this leaf instead of on the weight: asking the engine for the
  /// gradient of the anchor makes it visit all of them, even where no input of the node needs a gradient.
  at::Tensor const& anchor() {
    if (!anchor_.defined()) anchor_ = at::empty({0}).set_requires_grad(true);
    return anchor_;
  }
  bool anchored() const { return anchor_.defined(); }

  /// Parameters that ordinary operations used, each once, in the order of first use.
  std::vector<parameter*> const& noted() const { return noted_; }
  void note(parameter& used) {
    if (std::find(noted_.begin(), noted_.end(), &used) == noted_.end()) noted_.push_back(&used);
  }

  void defer(pending_weight work) { queue_.push_back(std::move(work)); }
  std::vector<pending_weight> take_queue() { return std::exchange(queue_, {}); }

  /// Roots and their gradients, kept for `backward_weight` where ordinary operations used parameters.
  ::torch::autograd::variable_list kept_roots;
  ::torch::autograd::variable_list kept_gradients;

private:
  at::Tensor anchor_;
  std::vector<parameter*> noted_;
  std::vector<pending_weight> queue_;
};

/// Which part of a node this thread is in the middle of.
enum class node_stage : unsigned char { none, forward, backward, backward_input, ordinary_weights };

struct node_progress {
  node_context* context = nullptr;
  node_stage stage = node_stage::none;
};
inline node_progress& node_in_progress() {
  thread_local node_progress current;
  return current;
}

/// Says on this thread, as long as it lives, which node runs and how; puts back what was there before. Backward runs
/// entirely on the calling thread, so that nodes see this and launch order is the program's.
class node_scope {
public:
  node_scope(node_context& context, node_stage stage)
      : before_(std::exchange(node_in_progress(), {&context, stage})),
        multithreading_(c10::AutogradState::get_tls_state().get_multithreading_enabled()), grad_mode_(true) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~node_scope() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(multithreading_);
    node_in_progress() = before_;
  }
  node_scope(node_scope const&) = delete;
  node_scope& operator=(node_scope const&) = delete;

private:
  node_progress before_;
  bool multithreading_;
  c10::AutoGradMode grad_mode_;
};

} // namespace torch
} // namespace v0
} // namespace stretto
