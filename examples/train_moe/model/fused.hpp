#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace train_moe {

/// Choices of experts, grouped by expert: 64-bit integers on the device. Choice c of token t has number t * k + c.
struct grouped_choices {
  at::Tensor order; ///< the number of each row's choice
  at::Tensor inverse; ///< the row of each choice
  at::Tensor rows; ///< [experts]
};

/// The gradient of what `swiglu` read, and what it made.
struct swiglu_results {
  at::Tensor d_both, y;
  at::Tensor along; ///< [rows, 1], in float or wider: the sums over a row of dy * y, if they are asked for
};

/// What a device does in one pass over memory where torch's operations take several. Results agree up to rounding.
class fused_operations {
public:
  virtual ~fused_operations() = default;

  /// Whether there are kernels for rows of `width` numbers of a type.
  virtual bool serves(at::ScalarType type, std::int64_t width) const = 0;

  /// See `swiglu`.
  virtual at::Tensor swiglu(at::Tensor const& both) const = 0;
  /// The results take the memory of `both`, where that is no leaf, and of `dy`: these are gone, and a later backward through
  /// `both` is refused.
  virtual swiglu_results swiglu_backward(at::Tensor const& both, at::Tensor const& dy, bool along) const = 0;
  /// [batch, sequence, 3, heads, head] of three times [batch, sequence, heads, head], the first two turned; see `rotate`.
  virtual at::Tensor turn(at::Tensor const& q, at::Tensor const& k, at::Tensor const& v,
                          at::Tensor const& cosine, at::Tensor const& sine, double direction) const = 0;

  /// `x` + the sum over the choices of each token of `weights` times its row, see `weigh_rows`.
  virtual at::Tensor weigh(at::Tensor const& x, at::Tensor const& rows, at::Tensor const& weights,
                           at::Tensor const& place) const = 0;
  /// The gradient of the rows. Every row is that of one choice.
  virtual at::Tensor weigh_backward(at::Tensor const& dy, at::Tensor const& weights,
                                    at::Tensor const& place) const = 0;
  /// [tokens, width]: the sum of the rows of the `choices` of each token.
  virtual at::Tensor sum(at::Tensor const& rows, at::Tensor const& place, std::int64_t choices) const = 0;
  virtual grouped_choices group(at::Tensor const& ids, int experts) const = 0;
};

/// Those of the GPU; null in programs that are not linked with any, which set it before the first run.
inline fused_operations const*& gpu_operations() {
  static fused_operations const* operations = nullptr;
  return operations;
}
/// What serves rows like these, or null.
inline fused_operations const* fused_for(at::Tensor const& rows, std::int64_t width) {
  auto const* const operations = rows.is_cuda() ? gpu_operations() : nullptr;
  return operations && operations->serves(rows.scalar_type(), width) ? operations : nullptr;
}

} // namespace train_moe
