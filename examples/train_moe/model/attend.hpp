#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

namespace train_moe {

/// Attention by other kernels of a device than those that torch takes by itself.
class attention_kernels {
public:
  virtual ~attention_kernels() = default;
  virtual bool serves(at::Tensor const& q) const = 0;

  struct result {
    at::Tensor output;
    at::Tensor sums; ///< logarithms of the sums of the scores' exponentials, [batch, heads, sequence]
  };
  /// Causal, of three times [batch, heads, sequence, head].
  virtual result forward(at::Tensor const& q, at::Tensor const& k, at::Tensor const& v) const = 0;
  virtual std::array<at::Tensor, 3> backward(at::Tensor const& dy, at::Tensor const& q, at::Tensor const& k,
                                             at::Tensor const& v, result const& of) const = 0;
};

/// Those of the GPU; null in programs that are not linked with CUDA, which set it before the first run.
inline attention_kernels const*& gpu_attention() {
  static attention_kernels const* kernels = nullptr;
  return kernels;
}

namespace detail {

struct attend_function : torch::autograd::Function<attend_function> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& q, at::Tensor const& k,
                            at::Tensor const& v) {
    auto const made = gpu_attention()->forward(q, k, v);
    saved->save_for_backward({q, k, v, made.output, made.sums});
    return made.output;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const of = saved->get_saved_variables();
    auto const made = gpu_attention()->backward(gradients[0], of[0], of[1], of[2], {of[3], of[4]});
    return {made[0], made[1], made[2]};
  }
};

} // namespace detail

/// Causal attention of queries, keys and values, each [batch, heads, sequence, head].
inline at::Tensor attend(at::Tensor const& q, at::Tensor const& k, at::Tensor const& v) {
  if (q.is_cuda() && gpu_attention() && gpu_attention()->serves(q))
    return detail::attend_function::apply(q, k, v);
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
}

} // namespace train_moe
