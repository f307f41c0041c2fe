#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDADataType.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

/// The experts' products by a library with a handle for every stream: an operation for `torch::expert_linear` that adds
/// weight gradients straight to the parameter's accumulator. All tensors are on the current device.
///
/// `Handles` is `cublas::stream_handles`, or anything whose `on(stream)` gives what an `expert_forward`,
/// `expert_input_gradient` and `expert_weight_gradient` beside it take. It belongs to the thread that runs forward and
/// backward, and outlives both.
template <class Handles> struct expert_products_op {
  std::vector<std::int64_t> rows;
  Handles* handles;

  at::Tensor output(at::Tensor const& x, at::Tensor const& w) const {
    auto y = at::empty({x.size(0), w.size(2)}, x.options());
    check_type(x, w);
    expert_forward(handle(), {type_of(x), w.size(1), w.size(2)}, rows, data(x.contiguous()),
                   data(w.contiguous()), y.mutable_data_ptr());
    return y;
  }
  at::Tensor input_gradient(at::Tensor const& dy, at::Tensor const& w) const {
    auto dx = at::empty({dy.size(0), w.size(1)}, dy.options());
    check_type(dy, w);
    expert_input_gradient(handle(), {type_of(dy), w.size(1), w.size(2)}, rows, data(dy.contiguous()),
                          data(w.contiguous()), dx.mutable_data_ptr());
    return dx;
  }
  void add_weight_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const& sum) const {
    check_type(x, dy);
    expert_weight_gradient(handle(), {type_of(x), sum.size(1), sum.size(2)}, rows, data(x.contiguous()),
                           data(dy.contiguous()), sum.mutable_data_ptr());
  }

private:
  auto& handle() const { return handles->on(c10::cuda::getCurrentCUDAStream().stream()); }
  static auto type_of(at::Tensor const& t) { return at::cuda::ScalarTypeToCudaDataType(t.scalar_type()); }
  static void const* data(at::Tensor const& t) { return t.const_data_ptr(); }
  static void check_type(at::Tensor const& a, at::Tensor const& b) {
    if (a.scalar_type() == b.scalar_type() && a.is_cuda() && b.is_cuda()) return;
    throw std::invalid_argument("expert_linear: " + text_of(a) + " and " + text_of(b) +
                                " do not multiply; both must be of one type and on the GPU");
  }
  static std::string text_of(at::Tensor const& t) {
    return std::string(at::toString(t.scalar_type())) + " on " + t.device().str();
  }
};

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
