#pragma once

#include <stretto/adapters/cublas/error.hpp>

#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cublas {
namespace detail {

/// A product of matrices by columns, c = a b or c += a b, as far as its kernel is chosen by it. `c` has no gaps.
struct product_shape {
  cudaDataType_t type, made; ///< of a and b, and of c
  cublasOperation_t a_op, b_op;
  std::int64_t rows, columns, inner, a_leading, b_leading;
  std::uint32_t a_aligned, b_aligned, c_aligned; ///< bytes
  int multiprocessors; ///< 0: all

  auto operator<=>(product_shape const&) const = default;
};

/// What stands for so many rows where kernels are chosen: few numbers for a run whose counts differ from call to call. `least`
/// apart, or one of so many parts of a power of two if that is more.
inline std::int64_t rounded_rows(std::int64_t count, std::int64_t least, std::int64_t parts) {
  constexpr std::int64_t most = (std::numeric_limits<int>::max)();
  auto const power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count)));
  auto const step = (std::max)(least, power / parts);
  return (std::min)((count + step - 1) / step * step, most);
}
/// Of rows that are made. Kernels make tiles whose sides are multiples of 8, so most need as many for the rounded number.
inline std::int64_t rounded_columns(std::int64_t count) { return rounded_rows(count, 8, 256); }
/// Of rows that are summed up, which hardly matter to the choice.
inline std::int64_t rounded_inner(std::int64_t count) { return rounded_rows(count, 64, 32); }

/// The same wherever a matrix of an array begins whose rows of `row_bytes` lie without gaps.
inline std::uint32_t alignment_of(void const* data, std::size_t row_bytes) {
  // No kernel asks for more.
  constexpr std::uintptr_t most = 16;
  auto const bits = reinterpret_cast<std::uintptr_t>(data) | row_bytes | most;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// What cublasLt is told of a product. Nothing to be given back.
struct product_description {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c;

  explicit product_description(product_shape const& of) {
    bool const wide = of.type == CUDA_R_64F;
    check(cublasLtMatmulDescInit(&product, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.a_op);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.b_op);
    if (of.multiprocessors > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, of.multiprocessors);
    lay_out(a, of.type, of.a_op, of.rows, of.inner, of.a_leading);
    lay_out(b, of.type, of.b_op, of.inner, of.columns, of.b_leading);
    lay_out(c, of.made, CUBLAS_OP_N, of.rows, of.columns, of.rows);
  }

private:
  template <class Value> void set(cublasLtMatmulDescAttributes_t which, Value const& value) {
    check(cublasLtMatmulDescSetAttribute(&product, which, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  static void lay_out(cublasLtMatrixLayoutOpaque_t& of, cudaDataType_t type, cublasOperation_t op,
                      std::int64_t rows, std::int64_t columns, std::int64_t leading) {
    if (op != CUBLAS_OP_N) std::swap(rows, columns);
    check(cublasLtMatrixLayoutInit(&of, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), leading),
          "cublasLtMatrixLayoutInit");
  }
};

/// Whether cublasLt does not do what it is asked for. Nothing was launched then.
inline bool is_refused(cublasStatus_t result) {
  return result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_INVALID_VALUE ||
         result == CUBLAS_STATUS_ARCH_MISMATCH;
}

/// The kernels of products, each looked for once. A search takes cuBLAS longer than a launch, and it looks anew for every shape:
/// so this asks for rounded shapes. What is found depends on the shape that is asked for alone, not on what was asked
/// before: equal products have equal bits whatever order they come in.
class kernel_choices {
public:
  explicit kernel_choices(std::size_t workspace_bytes) : workspace_bytes_(workspace_bytes) {}

  /// Null where cublasLt has none.
  cublasLtMatmulAlgo_t const* of(cublasLtHandle_t with, product_shape const& shape) {
    auto place = found_.find(shape);
    if (place == found_.end()) place = found_.emplace(shape, search(with, shape)).first;
    return place->second ? &*place->second : nullptr;
  }
  std::size_t size() const noexcept { return found_.size(); }

private:
  /// Of the host alone, so that a capture does not mind.
  std::optional<cublasLtMatmulAlgo_t> search(cublasLtHandle_t with, product_shape const& shape) const {
    product_description of(shape);
    cublasLtMatmulPreferenceOpaque_t wanted;
    check(cublasLtMatmulPreferenceInit(&wanted), "cublasLtMatmulPreferenceInit");
    auto const set = [&](cublasLtMatmulPreferenceAttributes_t which, auto const& value) {
      check(cublasLtMatmulPreferenceSetAttribute(&wanted, which, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes_));
    // Sums of bf16 products stay float until the end.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.a_aligned);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.b_aligned);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.c_aligned);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.c_aligned);
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    auto const result = cublasLtMatmulAlgoGetHeuristic(with, &of.product, &of.a, &of.b, &of.c, &of.c, &wanted,
                                                       1, &best, &count);
    if (is_refused(result)) return std::nullopt;
    check(result, "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0 || best.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return best.algo;
  }

  std::size_t workspace_bytes_;
  std::map<product_shape, std::optional<cublasLtMatmulAlgo_t>> found_;
};

} // namespace detail
} // namespace cublas
} // namespace v0
} // namespace stretto
