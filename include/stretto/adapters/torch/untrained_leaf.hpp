#pragma once

#include <stretto/adapters/torch/node_context.hpp>
#include <stretto/adapters/torch/parameter.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <unordered_set>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {
namespace detail {

/// In the graph of what was `written`: a leaf that asks for a gradient and is none of those for which the node's backward asks,
/// which are what was `read`, the anchor of functions that own a weight, and parameters that `parameter::value` noted.
/// Backward asks for the gradients it was told of and lets the engine accumulate none, so that one would never be made.
/// Undefined where there is none. What made the tensors that were read is not looked at.
inline at::Tensor find_untrained_leaf(std::vector<at::Tensor const*> const& written,
                                      std::vector<at::Tensor const*> const& read, node_context& node) {
  namespace autograd = ::torch::autograd;
  std::unordered_set<autograd::Node const*> seen;
  std::vector<autograd::Node const*> ahead;
  for (at::Tensor const* each : read)
    if (each->defined()) seen.insert(each->grad_fn().get());
  auto visit = [&](autograd::Node const* function) {
    if (function && seen.insert(function).second) ahead.push_back(function);
  };
  for (at::Tensor const* each : written)
    if (each->defined()) visit(each->grad_fn().get());

  auto is_asked_for = [&](at::Tensor const& leaf) {
    for (at::Tensor const* each : read)
      if (leaf.is_same(*each)) return true;
    for (parameter const* noted : node.noted())
      if (leaf.is_same(noted->leaf())) return true;
    return node.anchored() && leaf.is_same(node.anchor());
  };
  while (!ahead.empty()) {
    autograd::Node const* const function = ahead.back();
    ahead.pop_back();
    if (auto const* end = dynamic_cast<autograd::AccumulateGrad const*>(function))
      if (!is_asked_for(end->variable)) return end->variable;
    for (autograd::Edge const& edge : function->next_edges()) visit(edge.function.get());
  }
  return {};
}

} // namespace detail
} // namespace torch
} // namespace v0
} // namespace stretto
