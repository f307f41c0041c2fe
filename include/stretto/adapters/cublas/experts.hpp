#pragma once

#include <stretto/adapters/cublas/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cublas {

/// The weights of one layer of experts: [in, out] for each, row-major, one behind the other. `type` is that of rows and
/// weights: CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F or CUDA_R_64F.
struct expert_shape {
  cudaDataType_t type;
  std::int64_t in, out;
};

/// Whether a weight gradient is added to what lies there, or takes its place.
enum class gradient_sum : unsigned char { add, write };

/// What weight gradients are summed in, whatever the type of the rows: float, or double for double.
inline cudaDataType_t gradient_type(cudaDataType_t type) {
  return type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F;
}

inline std::size_t bytes_of(cudaDataType_t type) {
  switch (type) {
  case CUDA_R_16BF:
  case CUDA_R_16F:
    return 2;
  case CUDA_R_32F:
    return 4;
  case CUDA_R_64F:
    return 8;
  default:
    throw std::invalid_argument("cublas: experts compute in bf16, half, float or double, not in type " +
                                std::to_string(static_cast<int>(type)) + " of cudaDataType_t");
  }
}

namespace detail {

/// A matrix as cuBLAS sees it: by columns, so that row-major ones are their transposes.
struct matrix {
  void const* data;
  cublasOperation_t op;
  std::int64_t leading;
};

struct expert_rows {
  std::int64_t expert, first, count;

  std::string text(expert_shape const& shape) const {
    return std::to_string(count) + " rows of expert " + std::to_string(expert) + ", " +
           std::to_string(shape.in) + " wide, to " + std::to_string(shape.out);
  }
};

/// Calls with the rows of every expert, also those without any.
template <class Call>
void for_each_expert(expert_shape const& shape, std::span<std::int64_t const> rows, Call const& call) {
  constexpr auto most = std::int64_t{(std::numeric_limits<int>::max)()};
  if (shape.in <= 0 || shape.out <= 0 || shape.in > most || shape.out > most)
    throw std::invalid_argument("cublas: experts of " + std::to_string(shape.in) + " by " +
                                std::to_string(shape.out) + "; both must be from 1 to " +
                                std::to_string(most));
  expert_rows now{0, 0, 0};
  for (auto const count : rows) {
    now.count = count;
    if (count < 0 || count > most)
      throw std::invalid_argument("cublas: " + now.text(shape) + "; the number of rows must be from 0 to " +
                                  std::to_string(most));
    call(now);
    now.first += count;
    ++now.expert;
  }
}

/// What a product makes, [rows, columns] by columns without gaps, of sums over `inner` terms. The number of rows of the expert is
/// that of columns, or, if they are `summed`, of terms.
struct product {
  std::int64_t rows, columns, inner;
  bool summed;
  void* to;
  cudaDataType_t type;
  bool adds = false;
};

inline void multiply(handle& with, expert_shape const& shape, char const* name, expert_rows const& of,
                     matrix const& a, matrix const& b, product const& c) {
  auto const aligned = [](void const* data, std::int64_t leading, cudaDataType_t type) {
    return alignment_of(data, static_cast<std::size_t>(leading) * bytes_of(type));
  };
  product_shape const exact{shape.type,
                            c.type,
                            a.op,
                            b.op,
                            c.rows,
                            c.columns,
                            c.inner,
                            a.leading,
                            b.leading,
                            aligned(a.data, a.leading, shape.type),
                            aligned(b.data, b.leading, shape.type),
                            aligned(c.to, c.rows, c.type),
                            with.multiprocessors()};
  auto rounded = exact;
  auto& counted = c.summed ? rounded.inner : rounded.columns;
  counted = c.summed ? rounded_inner(of.count) : rounded_columns(of.count);
  bool const wide = shape.type == CUDA_R_64F;
  float const scale[] = {1, c.adds ? 1.0f : 0.0f};
  double const wide_scale[] = {1, c.adds ? 1.0 : 0.0};
  auto const factor = [&](int i) { return wide ? static_cast<void const*>(wide_scale + i) : scale + i; };
  // A handle of cuBLAS serves as one of cublasLt.
  auto const lt = reinterpret_cast<cublasLtHandle_t>(with.get());
  try {
    auto result = CUBLAS_STATUS_NOT_SUPPORTED;
    if (auto const* const kernel = with.kernels().of(lt, rounded)) {
      product_description told(exact);
      result = cublasLtMatmul(lt, &told.product, factor(0), a.data, &told.a, b.data, &told.b, factor(1), c.to,
                              &told.c, c.to, &told.c, kernel, with.workspace(), with.workspace_bytes(),
                              with.stream());
    }
    // The kernel for the most rows of a range need not take the fewest: on an H200 that for 8 rows of floats does not take one.
    if (is_refused(result)) {
      auto const size = [](std::int64_t number) { return static_cast<int>(number); };
      result = cublasGemmEx(with.get(), a.op, b.op, size(c.rows), size(c.columns), size(c.inner), factor(0),
                            a.data, shape.type, size(a.leading), b.data, shape.type, size(b.leading),
                            factor(1), c.to, c.type, size(c.rows),
                            wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    }
    check(result, "a product");
  } catch (error const& problem) {
    throw error(problem.code, std::string("cublas: ") + name + " of " + of.text(shape));
  }
}

inline std::byte const* at(void const* base, std::int64_t element, std::size_t bytes) {
  return static_cast<std::byte const*>(base) + static_cast<std::size_t>(element) * bytes;
}
inline std::byte* at(void* base, std::int64_t element, std::size_t bytes) {
  return static_cast<std::byte*>(base) + static_cast<std::size_t>(element) * bytes;
}

} // namespace detail

// Rows lie by expert, `rows[e]` of expert e, row-major without gaps. `rows` is in host memory, all else in that of the GPU.
// A call issues one product per expert on the handle's stream; an expert without rows costs none.

/// y = x W: x [n, in], y [n, out], of the type of the weights.
inline void expert_forward(handle& with, expert_shape const& shape, std::span<std::int64_t const> rows,
                           void const* x, void const* w, void* y) {
  auto const bytes = bytes_of(shape.type);
  detail::for_each_expert(shape, rows, [&](detail::expert_rows const& of) {
    if (of.count == 0) return;
    detail::matrix const weight{detail::at(w, of.expert * shape.in * shape.out, bytes), CUBLAS_OP_N,
                                shape.out};
    detail::matrix const given{detail::at(x, of.first * shape.in, bytes), CUBLAS_OP_N, shape.in};
    detail::multiply(
        with, shape, "forward", of, weight, given,
        {shape.out, of.count, shape.in, false, detail::at(y, of.first * shape.out, bytes), shape.type});
  });
}

/// dx = dy W^T: dy [n, out], dx [n, in], of the type of the weights.
inline void expert_input_gradient(handle& with, expert_shape const& shape, std::span<std::int64_t const> rows,
                                  void const* dy, void const* w, void* dx) {
  auto const bytes = bytes_of(shape.type);
  detail::for_each_expert(shape, rows, [&](detail::expert_rows const& of) {
    if (of.count == 0) return;
    detail::matrix const weight{detail::at(w, of.expert * shape.in * shape.out, bytes), CUBLAS_OP_T,
                                shape.out};
    detail::matrix const given{detail::at(dy, of.first * shape.out, bytes), CUBLAS_OP_N, shape.out};
    detail::multiply(
        with, shape, "input gradient", of, weight, given,
        {shape.in, of.count, shape.out, false, detail::at(dx, of.first * shape.in, bytes), shape.type});
  });
}

/// dw = x^T dy, or dw += x^T dy: dw like the weights but of `gradient_type`. To an expert without rows nothing is added, or
/// zeros are written.
inline void expert_weight_gradient(handle& with, expert_shape const& shape,
                                   std::span<std::int64_t const> rows, void const* x, void const* dy,
                                   void* dw, gradient_sum how = gradient_sum::add) {
  auto const bytes = bytes_of(shape.type);
  auto const type = gradient_type(shape.type);
  auto const of_one = shape.in * shape.out;
  detail::for_each_expert(shape, rows, [&](detail::expert_rows const& of) {
    auto* const to = detail::at(dw, of.expert * of_one, bytes_of(type));
    if (of.count == 0) {
      if (how == gradient_sum::write)
        detail::check(
            cudaMemsetAsync(to, 0, static_cast<std::size_t>(of_one) * bytes_of(type), with.stream()),
            "cudaMemsetAsync");
      return;
    }
    detail::matrix const from{detail::at(dy, of.first * shape.out, bytes), CUBLAS_OP_N, shape.out};
    detail::matrix const given{detail::at(x, of.first * shape.in, bytes), CUBLAS_OP_T, shape.in};
    detail::multiply(with, shape, "weight gradient", of, from, given,
                     {shape.out, shape.in, of.count, true, to, type, how == gradient_sum::add});
  });
}

} // namespace cublas
} // namespace v0
} // namespace stretto
