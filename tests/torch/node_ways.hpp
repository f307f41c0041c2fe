#pragma once

#include <stretto/adapters/torch.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <vector>

/// Runs one node forward and backward in each of the ways that a schedule can: all must give the same bits.
struct node_under_test {
  using parameters = std::vector<stretto::torch::parameter>;

  parameters (*make)(at::ScalarType type);
  std::vector<at::Tensor> (*inputs)(at::ScalarType type, int microbatch);
  std::vector<at::Tensor> (*forward)(parameters& weights, std::vector<at::Tensor> const& inputs);
};

struct node_gradients {
  std::vector<at::Tensor> of_inputs; ///< microbatch by microbatch
  std::vector<at::Tensor> of_weights; ///< summed over the microbatches
};

enum class way { ordinary, whole, split, split_late };

inline std::vector<at::Tensor> root_gradients_for(std::vector<at::Tensor> const& roots, int microbatch) {
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    auto generator = at::detail::createCPUGenerator(977 + 31 * i + static_cast<std::size_t>(microbatch));
    gradients.push_back(
        at::randn(roots[i].sizes(), generator, at::kDouble).to(roots[i].device(), roots[i].scalar_type()));
  }
  return gradients;
}

/// `split_late` runs every forward first, then every input half, then every weight half.
inline node_gradients gradients_of(node_under_test const& node, at::ScalarType type, way how,
                                   int microbatches = 3) {
  namespace ag = ::torch::autograd;
  stretto::torch::tensors adapter;
  auto weights = node.make(type);
  node_gradients result;

  struct in_flight {
    std::vector<at::Tensor> leaves, roots, root_gradients, leaf_gradients;
    stretto::torch::tensors::context context;
  };
  std::vector<in_flight> flights(static_cast<std::size_t>(microbatches));

  auto const request_of = [](in_flight& f) {
    return stretto::gradient_request<at::Tensor>{f.roots.data(),
                                                 f.root_gradients.data(),
                                                 nullptr,
                                                 static_cast<int>(f.roots.size()),
                                                 f.leaves.data(),
                                                 f.leaf_gradients.data(),
                                                 static_cast<int>(f.leaves.size())};
  };
  auto const forward = [&](int m) {
    auto& f = flights[static_cast<std::size_t>(m)];
    for (auto const& x : node.inputs(type, m)) f.leaves.push_back(adapter.detach(x));
    f.leaf_gradients.resize(f.leaves.size());
    if (how == way::ordinary) {
      f.roots = node.forward(weights, f.leaves);
    } else {
      auto const scope = adapter.forward_scope(f.context);
      f.roots = node.forward(weights, f.leaves);
    }
    f.root_gradients = root_gradients_for(f.roots, m);
  };
  auto const backward = [&](int m) {
    auto& f = flights[static_cast<std::size_t>(m)];
    if (how == way::whole) return adapter.backward(f.context, request_of(f));
    if (how != way::ordinary) return adapter.backward_input(f.context, request_of(f));
    ag::variable_list wanted;
    for (auto const& leaf : f.leaves)
      if (leaf.requires_grad()) wanted.push_back(leaf);
    for (auto& weight : weights)
      if (weight.trainable()) wanted.push_back(weight.leaf());
    auto const found = ag::grad(f.roots, wanted, f.root_gradients, {}, false, true);
    std::size_t next = 0;
    for (std::size_t i = 0; i < f.leaves.size(); ++i)
      if (f.leaves[i].requires_grad()) f.leaf_gradients[i] = found[next++];
    for (auto& weight : weights)
      if (weight.trainable()) {
        if (found[next].defined()) weight.accumulate(found[next]);
        ++next;
      }
  };
  auto const finish = [&](int m) {
    if (how == way::split || how == way::split_late)
      adapter.backward_weight(flights[static_cast<std::size_t>(m)].context);
  };

  if (how == way::split_late) {
    for (int m = 0; m < microbatches; ++m) forward(m);
    for (int m = 0; m < microbatches; ++m) backward(m);
    for (int m = 0; m < microbatches; ++m) finish(m);
  } else {
    for (int m = 0; m < microbatches; ++m) forward(m), backward(m), finish(m);
  }
  for (auto& f : flights)
    for (auto const& gradient : f.leaf_gradients) result.of_inputs.push_back(gradient);
  for (auto& weight : weights) result.of_weights.push_back(weight.main_grad());
  return result;
}
