#pragma once

#include <stretto/adapters/torch/tensors.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace stretto {
inline namespace v0 {
namespace torch {

/// `Tensors` for lanes that are streams of a device.
///
/// A device's memory goes back to the stream that was current when it was made, and may be used there at once. So every
/// value and gradient must own its memory on the lane that writes it: the program then knows when that lane has seen the
/// last reader. Gradients that backward hands through unchanged are therefore copied here. A phase that writes what it
/// read, without a new tensor, must be on the lane of the value's first writer.
///
/// Nothing calls `record_stream`. Operations that run beside the schedule, on a stream that is no lane, must have ended
/// before the lane goes on, or begun behind it.
template <class Tensors> class tensors_of_streams : public Tensors {
public:
  template <class... Phases>
  void backward(node_context& node, gradient_request<at::Tensor> const& request, Phases&... phases) const {
    Tensors::backward(node, request, phases...);
    own_gradients(request);
  }
  template <class... Phases>
  void backward_input(node_context& node, gradient_request<at::Tensor> const& request,
                      Phases&... phases) const {
    Tensors::backward_input(node, request, phases...);
    own_gradients(request);
  }

private:
  static bool is_given(gradient_request<at::Tensor> const& request, at::Tensor const& gradient) {
    // Not `is_alias_of`, which looks at the memory of a value whose storage may have gone back.
    auto const* const storage = gradient.storage().unsafeGetStorageImpl();
    auto const shares = [storage](at::Tensor const& other) {
      return other.defined() && other.storage().unsafeGetStorageImpl() == storage;
    };
    for (int i = 0; i < request.root_count; ++i)
      if (shares(request.root_gradients[i]) || shares(request.roots[i])) return true;
    for (int i = 0; i < request.leaf_count; ++i)
      if (shares(request.leaves[i])) return true;
    return false;
  }

  static void own_gradients(gradient_request<at::Tensor> const& request) {
    at::NoGradGuard const no_graph;
    for (int i = 0; i < request.leaf_count; ++i) {
      auto& gradient = request.leaf_gradients[i];
      if (gradient.defined() && is_given(request, gradient)) gradient = gradient.clone();
    }
  }
};

using stream_tensors = tensors_of_streams<tensors>;

static_assert(autograd_tensor_adapter<stream_tensors>);

} // namespace torch
} // namespace v0
} // namespace stretto
