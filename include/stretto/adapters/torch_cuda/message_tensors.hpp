#pragma once

#include <stretto/message_tensors.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

/// What messages between pipeline ranks need to know of tensors: for `cuda::peers` and `nccl::peers`.
struct message_tensors {
  using tensor = at::Tensor;

  bool is_empty(at::Tensor const& t) const { return !t.defined(); }
  at::Tensor contiguous(at::Tensor const& t) const { return t.detach().contiguous(); }
  void* data(at::Tensor const& t) const { return t.data_ptr(); }
  void describe(at::Tensor const& t, tensor_head& head) const {
    if (!t.is_cuda()) throw std::invalid_argument("a message of a tensor that is not in device memory");
    if (t.dim() > static_cast<std::int64_t>(head.sizes.size()))
      throw std::invalid_argument("a message of a tensor with " + std::to_string(t.dim()) +
                                  " dimensions; the most is " + std::to_string(head.sizes.size()));
    head.type = static_cast<std::int64_t>(t.scalar_type());
    head.dimensions = t.dim();
    for (std::int64_t d = 0; d < t.dim(); ++d) head.sizes[static_cast<std::size_t>(d)] = t.size(d);
    head.bytes = t.nbytes();
  }
  at::Tensor make(tensor_head const& head) const {
    return at::empty(at::IntArrayRef(head.sizes.data(), static_cast<std::size_t>(head.dimensions)),
                     at::TensorOptions(at::kCUDA).dtype(static_cast<at::ScalarType>(head.type)));
  }
  /// Views and what a graph has saved hold the storage too.
  at::Tensor lend(at::Tensor const& base, std::function<void()> gone) const {
    return at::for_blob(base.data_ptr(), base.sizes())
        .deleter([base, gone = std::move(gone)](void*) { gone(); })
        .target_device(base.device())
        .options(base.options())
        .make_tensor();
  }
};

static_assert(stretto::message_tensors<message_tensors>);

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
