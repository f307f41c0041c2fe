#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/torch/node_context.hpp>
#include <stretto/adapters/torch/parameter.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace torch {

/// `at::Tensor` with torch's autograd engine, as an `autograd_tensor_adapter`.
///
/// Gradients are asked for (`autograd::grad`), never accumulated by the engine: what comes back are the leaves'
/// gradients, and parameter gradients go into `parameter::main_grad` in one order. Functions of this adapter that own
/// a weight (`linear`, `expert_linear`, `rms_norm`, `embedding`, anything by `apply_weighted`) make it when backward
/// visits them or put it off to `backward_weight`; parameters that ordinary operations use (`parameter::value`) cost
/// `backward_weight` a second run over the graph. Stateless: every thread may use one object.
class unchecked_tensors {
public:
  using tensor = at::Tensor;
  using context = node_context;

  /// A leaf that asks for a gradient if its type can have one, whether or not the root has one to give: between ranks
  /// the root's history is not there to look at.
  at::Tensor detach(at::Tensor const& root) const {
    auto leaf = root.detach();
    if (at::isFloatingType(leaf.scalar_type()) || at::isComplexType(leaf.scalar_type()))
      leaf.set_requires_grad(true);
    return leaf;
  }

  void forget_graph(at::Tensor& root) const {
    if (root.defined()) root = root.detach();
  }

  /// Before the backward of its writer a root is asked for its place in the graph, so only its storage goes: unless
  /// something else than the root and the leaf of one reader holds it, such as a view or an operation that hands its
  /// input on. Whoever computes with it afterwards, because a phase saves more than it says, gets an error.
  void release(at::Tensor& root) const {
    if (!root.defined()) return;
    if (!root.grad_fn()) {
      root.reset();
      return;
    }
    constexpr std::size_t root_and_leaf = 2;
    auto storage = root.storage();
    if (storage.use_count() > root_and_leaf + 1) return; // one is `storage` itself
    storage.set_data_ptr_noswap(at::DataPtr(nullptr, root.device()));
    storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
        "a backward needs a value whose storage went back after its last forward reader: the phase that "
        "wrote it or "
        "one that reads it must name it in its `saves`");
  }

  void add(at::Tensor& sum, at::Tensor const& term) const {
    if (!term.defined()) return;
    at::NoGradGuard const no_graph;
    sum = sum.defined() ? at::add(sum, term) : term;
  }

  node_scope forward_scope(context& node) const { return {node, node_stage::forward}; }

  template <class... Phases>
  void backward(context& node, gradient_request<at::Tensor> const& request, Phases&...) const {
    auto const in = flow_into(request);
    auto const weights = run(node, node_stage::backward, in, request, node.noted(), false);
    accumulate(node, weights);
    node = {};
  }

  template <class... Phases>
  void backward_input(context& node, gradient_request<at::Tensor> const& request, Phases&...) const {
    auto in = flow_into(request);
    auto const keep = !node.noted().empty();
    run(node, node_stage::backward_input, in, request, {}, keep);
    if (!keep) return;
    node.kept_roots = std::move(in.roots);
    node.kept_gradients = std::move(in.gradients);
  }

  template <class... Phases> void backward_weight(context& node, Phases&...) const {
    {
      at::NoGradGuard const no_graph;
      for (auto& work : node.take_queue()) {
        work.run(work);
        work = {};
      }
    }
    if (!node.kept_roots.empty()) {
      flow kept{std::move(node.kept_roots), std::move(node.kept_gradients)};
      accumulate(node, run(node, node_stage::ordinary_weights, kept, {}, node.noted(), false));
    }
    node = {};
  }

private:
  struct flow {
    ::torch::autograd::variable_list roots;
    ::torch::autograd::variable_list gradients;
  };

  /// The roots through which a gradient flows: those that have one and depend on anything.
  static flow flow_into(gradient_request<at::Tensor> const& request) {
    flow in;
    for (int i = 0; i < request.root_count; ++i) {
      auto const& root = request.roots[i];
      if (!root.defined() || !root.requires_grad()) continue;
      if (request.root_is_objective && request.root_is_objective[i]) {
        in.gradients.push_back(at::ones_like(root, root.options().requires_grad(false)));
      } else if (request.root_gradients[i].defined()) {
        in.gradients.push_back(request.root_gradients[i]);
      } else {
        continue;
      }
      in.roots.push_back(root);
    }
    return in;
  }

  /// One run of the engine: fills the leaf gradients of the request, returns those of `weights`.
  static ::torch::autograd::variable_list run(context& node, node_stage stage, flow const& in,
                                              gradient_request<at::Tensor> const& request,
                                              std::vector<parameter*> const& weights, bool keep_graph) {
    for (int i = 0; i < request.leaf_count; ++i) request.leaf_gradients[i].reset();
    ::torch::autograd::variable_list wanted;
    for (int i = 0; i < request.leaf_count; ++i) {
      if (request.leaves[i].defined() && request.leaves[i].requires_grad())
        wanted.push_back(request.leaves[i]);
    }
    for (auto const* weight : weights) wanted.push_back(weight->leaf());
    auto const with_anchor = node.anchored() && stage != node_stage::ordinary_weights;
    if (with_anchor) wanted.push_back(node.anchor());
    if (in.roots.empty() || wanted.empty()) return {};

    node_scope const scope{node, stage};
    auto found = ::torch::autograd::grad(in.roots, wanted, in.gradients, keep_graph, /*create_graph=*/false,
                                         /*allow_unused=*/true);
    std::size_t next = 0;
    for (int i = 0; i < request.leaf_count; ++i) {
      if (request.leaves[i].defined() && request.leaves[i].requires_grad()) {
        request.leaf_gradients[i] = std::move(found[next++]);
      }
    }
    ::torch::autograd::variable_list of_weights;
    for (std::size_t i = 0; i < weights.size(); ++i) of_weights.push_back(std::move(found[next++]));
    return of_weights;
  }

  static void accumulate(context& node, ::torch::autograd::variable_list const& gradients) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) node.noted()[i]->accumulate(gradients[i]);
    }
  }
};

static_assert(autograd_tensor_adapter<unchecked_tensors>);

} // namespace torch
} // namespace v0
} // namespace stretto
