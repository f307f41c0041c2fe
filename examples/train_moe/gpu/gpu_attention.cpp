#include "gpu_attention.hpp"

#include "../model/attend.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>

#include <array>
#include <cstdint>

namespace train_moe {
namespace {

/// Forward by cuDNN, whose bits repeat. Those of its backward do not, so that the repeatable one is torch's
/// FlashAttention: both keep the same logarithms between the passes.
class gpu_kernels_of_attention : public attention_kernels {
public:
  explicit gpu_kernels_of_attention(attention_sums how) : how_(how) {}

  /// cuDNN takes a second to plan for each shape; shorter sequences would not get it back.
  bool serves(at::Tensor const& q) const override {
    return q.scalar_type() == at::kBFloat16 && q.size(2) >= 1024 && q.size(3) % 8 == 0 && q.size(3) <= 128 &&
           at::Context::hasCuDNN() && at::cuda::getCurrentDeviceProperties()->major >= 9;
  }
  result forward(at::Tensor const& q, at::Tensor const& k, at::Tensor const& v) const override {
    auto const made =
        at::_scaled_dot_product_cudnn_attention(q, k, v, {}, /*compute_log_sumexp=*/true, 0.0,
                                                /*is_causal=*/true, /*return_debug_mask=*/false);
    return {std::get<0>(made), std::get<1>(made).view({q.size(0), q.size(1), q.size(2)})};
  }
  std::array<at::Tensor, 3> backward(at::Tensor const& dy, at::Tensor const& q, at::Tensor const& k,
                                     at::Tensor const& v, result const& of) const override {
    auto const length = q.size(2);
    if (how_ == attention_sums::repeatable) {
      // Without dropout nothing reads these.
      auto const seed = at::empty({2}, q.options().dtype(at::kUInt64)),
                 offset = at::empty({}, seed.options());
      auto made = at::_scaled_dot_product_flash_attention_backward(dy, q, k, v, of.output, of.sums, {}, {},
                                                                   length, length, 0.0, true, seed, offset);
      return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
    }
    auto const seed = at::empty({1}, q.options().dtype(at::kLong)), offset = at::empty({1}, seed.options());
    auto made = at::_scaled_dot_product_cudnn_attention_backward(
        dy, q, k, v, of.output, of.sums.unsqueeze(-1), seed, offset, {}, {}, {}, length, length, 0.0, true);
    return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
  }

private:
  attention_sums how_;
};

} // namespace

void use_gpu_attention(attention_sums how) {
  static gpu_kernels_of_attention const repeatable{attention_sums::repeatable},
      any_order{attention_sums::any_order};
  gpu_attention() = how == attention_sums::repeatable ? &repeatable : &any_order;
}

} // namespace train_moe
