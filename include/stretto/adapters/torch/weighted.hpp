#pragma once

#include <stretto/adapters/torch/node_context.hpp>
#include <stretto/adapters/torch/parameter.hpp>

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <concepts>
#include <optional>
#include <stdexcept>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace torch {

/// An operation that is linear in its one weight, with the gradients of input and weight apart:
/// - `output(x, w)`
/// - `input_gradient(dy, w)`, or `input_gradient(x, dy, w)` if it is not linear in its input; only called where the input
///   needs one
/// - `weight_gradient(x, dy, w)`, of the shape of `w`; `w` is there for its sizes only. Or else
/// - `add_weight_gradient(x, dy, sum)`, which adds to the parameter's accumulator by itself. It does so wherever the weight's
///   gradient is asked for, in ordinary use too (as Megatron-LM's fused accumulation does): the engine then gets none, and
///   what is summed does not depend on who asks.
/// An object of the type holds what else it needs, such as rows per expert, or what `output` keeps for the gradients. If it has
/// - `input()`, which makes `x` again to the bit, then `x` is not kept for the gradient of the weight, whose `x` this is.
/// - `beside_gradient()`, it has a second input, which `output` does not read, and this is its gradient; called behind
///   `input_gradient`.
template <class Op>
concept accumulating_op = requires(Op const& op, at::Tensor const& t) {
  op.add_weight_gradient(t, t, t);
};
template <class Op>
concept remaking_op = requires(Op const& op) {
  { op.input() } -> std::same_as<at::Tensor>;
};
template <class Op>
concept beside_op = requires(Op const& op) {
  { op.beside_gradient() } -> std::same_as<at::Tensor>;
};
template <class Op>
concept input_reading_op = requires(Op const& op, at::Tensor const& t) {
  { op.input_gradient(t, t, t) } -> std::same_as<at::Tensor>;
};
template <class Op>
concept weighted_op = requires(Op const& op, at::Tensor const& t) {
  { op.output(t, t) } -> std::same_as<at::Tensor>;
}
&&(input_reading_op<Op> ||
   requires(Op const& op, at::Tensor const& t) {
     { op.input_gradient(t, t) } -> std::same_as<at::Tensor>;
   }) &&
    (accumulating_op<Op> || requires(Op const& op, at::Tensor const& t) {
      { op.weight_gradient(t, t, t) } -> std::same_as<at::Tensor>;
    });

namespace detail {

/// `kept` itself, or what `op` makes in its place.
template <weighted_op Op> at::Tensor input_of(Op const& op, at::Tensor const& kept) {
  if constexpr (remaking_op<Op>) {
    at::NoGradGuard const no_graph;
    return op.input();
  } else {
    return kept;
  }
}

template <weighted_op Op>
void add_weight_gradient(Op const& op, parameter& weight, at::Tensor const& kept, at::Tensor const& dy) {
  auto const x = input_of(op, kept);
  if constexpr (accumulating_op<Op>) {
    at::NoGradGuard const no_graph;
    op.add_weight_gradient(x, dy, weight.main_grad());
  } else {
    weight.accumulate(op.weight_gradient(x, dy, weight.data()));
  }
}

template <weighted_op Op> struct weighted_state : ::torch::CustomClassHolder {
  weighted_state(Op o, parameter& p) : op(std::move(o)), weight(&p) {}
  Op op;
  parameter* weight;
};

template <weighted_op Op> void run_pending(pending_weight const& work) {
  auto const& state = static_cast<weighted_state<Op> const&>(*work.op);
  add_weight_gradient(state.op, *state.weight, work.input, work.output_gradient);
}

/// `link` ties the node into the graph: the weight itself in ordinary use, the context's anchor inside a scope.
template <weighted_op Op> struct weighted_function : ::torch::autograd::Function<weighted_function<Op>> {
  using state_type = weighted_state<Op>;

  static at::Tensor forward(::torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            at::Tensor const& link, std::optional<at::Tensor> const& /*beside*/,
                            c10::intrusive_ptr<state_type> const& state) {
    auto& weight = *state->weight;
    saved->saved_data["state"] = c10::IValue::make_capsule(state);
    saved->saved_data["deferred"] = !link.is_same(weight.leaf());
    bool const keeps = input_reading_op<Op> || (weight.trainable() && !remaking_op<Op>);
    saved->save_for_backward({keeps ? x : at::Tensor(), weight.leaf()});
    return state->op.output(x, weight.data());
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* saved,
                                                   ::torch::autograd::variable_list output_gradients) {
    auto const variables = saved->get_saved_variables();
    auto const state = c10::static_intrusive_pointer_cast<state_type>(saved->saved_data["state"].toCapsule());
    auto const& op = state->op;
    auto const& x = variables[0];
    auto const weight = variables[1].detach();
    auto const& dy = output_gradients[0];

    ::torch::autograd::variable_list gradients(4);
    bool of_inputs = saved->needs_input_grad(0);
    if constexpr (beside_op<Op>) of_inputs |= saved->needs_input_grad(2);
    if (of_inputs) {
      if constexpr (input_reading_op<Op>)
        gradients[0] = op.input_gradient(x, dy, weight);
      else
        gradients[0] = op.input_gradient(dy, weight);
      if constexpr (beside_op<Op>) gradients[2] = op.beside_gradient();
    }
    if (!state->weight->trainable()) return gradients;
    if (!saved->saved_data["deferred"].toBool()) {
      if (!saved->needs_input_grad(1)) return gradients;
      if constexpr (accumulating_op<Op>)
        add_weight_gradient(op, *state->weight, x, dy);
      else
        gradients[1] = op.weight_gradient(input_of(op, x), dy, weight);
      return gradients;
    }
    auto const [context, stage] = node_in_progress();
    switch (stage) {
    case node_stage::backward:
      add_weight_gradient(op, *state->weight, x, dy);
      break;
    case node_stage::backward_input:
      context->defer({&run_pending<Op>, state, x, dy});
      break;
    case node_stage::ordinary_weights:
      break;
    default:
      throw std::logic_error(
          "backward of '" + state->weight->name() +
          "' outside of its adapter: its forward ran in a forward scope, so its gradient is due "
          "in tensors::backward");
    }
    return gradients;
  }
};

template <weighted_op Op>
at::Tensor apply_weighted(Op op, at::Tensor const& x, std::optional<at::Tensor> const& beside,
                          parameter& weight) {
  auto state = c10::make_intrusive<weighted_state<Op>>(std::move(op), weight);
  auto const [context, stage] = node_in_progress();
  auto const deferred = stage == node_stage::forward && weight.trainable();
  return weighted_function<Op>::apply(x, deferred ? context->anchor() : weight.leaf(), beside, state);
}

} // namespace detail

/// `op.output(x, w)`, differentiable. Inside a forward scope the weight gradient goes straight into the parameter's
/// accumulator, when backward visits the operation or, with split passes, in `backward_weight`. Elsewhere it is an
/// ordinary function of the graph, unless the operation accumulates by itself. All three run the same operations and give
/// the same bits.
template <weighted_op Op>
requires(!beside_op<Op>) at::Tensor apply_weighted(Op op, at::Tensor const& x, parameter& weight) {
  return detail::apply_weighted(std::move(op), x, std::nullopt, weight);
}
/// The same of an operation with a second input.
template <weighted_op Op>
requires beside_op<Op> at::Tensor apply_weighted(Op op, at::Tensor const& x, at::Tensor const& beside,
                                                 parameter& weight) {
  return detail::apply_weighted(std::move(op), x, beside, weight);
}

} // namespace torch
} // namespace v0
} // namespace stretto
