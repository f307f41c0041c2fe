#pragma once

#include <stretto/adapters/torch/node_context.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace torch {

/// A trainable tensor with its own gradient accumulator, so that nothing depends on `Tensor::grad()`, which the
/// engine fills behind the caller's back and in the compute type.
///
/// The accumulator is float (double for a double parameter) whatever the compute type; `accumulate` adds in call
/// order. Graphs and weight queues point at the object: it must stay where it is from the first forward to the last
/// backward of a step. One thread uses a parameter at a time.
class parameter {
public:
  parameter() = default;

  /// Takes the data of `initial` (not a copy). A frozen parameter (`trainable` false) has no accumulator.
  parameter(std::string name, at::Tensor const& initial, bool trainable = true)
      : name_(std::move(name)), value_(initial.detach()) {
    if (!trainable) return;
    value_.set_requires_grad(true);
    auto const accumulator_type = initial.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    main_grad_ = at::zeros(initial.sizes(), initial.options().dtype(accumulator_type).requires_grad(false));
  }

  std::string const& name() const { return name_; }
  bool trainable() const { return main_grad_.defined(); }

  /// The tensor for use by any differentiable operation of a phase. Inside a forward scope the use is noted, so that
  /// the node's backward asks for this gradient. Call it in every forward; a copy kept from elsewhere is not noted.
  at::Tensor const& value() {
    if (auto* context = node_in_progress().context; context && trainable()) context->note(*this);
    return value_;
  }

  /// The same storage outside of any graph: for optimizers, checkpoints and functions that differentiate themselves.
  at::Tensor data() const { return value_.detach(); }

  /// The leaf itself, for functions that register their own weight gradient. Phases use `value()`.
  at::Tensor const& leaf() const { return value_; }

  /// Sum of the gradients of this step; undefined for a frozen parameter.
  at::Tensor const& main_grad() const { return main_grad_; }

  void accumulate(at::Tensor const& gradient) {
    if (!trainable()) throw std::logic_error("gradient for the frozen parameter '" + name_ + "'");
    at::NoGradGuard const no_graph;
    main_grad_.add_(gradient);
  }

  void zero_grad() {
    if (trainable()) main_grad_.zero_();
  }

private:
  std::string name_;
  at::Tensor value_;
  at::Tensor main_grad_;
};

} // namespace torch
} // namespace v0
} // namespace stretto
