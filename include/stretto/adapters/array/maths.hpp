#pragma once

#include <stretto/adapters/array/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <stdexcept>

/// The little that a small model needs, as plain loops: every sum has one order.
namespace stretto {
inline namespace v0 {
namespace array {

namespace detail {

inline void require(bool fits) {
  if (!fits) throw std::invalid_argument("stretto::array: shapes that do not fit together");
}
template <class Act> tensor each(tensor const& a, Act f) {
  tensor made(a.account(), a.rows(), a.columns());
  for (std::size_t i = 0; i < a.size(); ++i) made.data()[i] = f(a.data()[i]);
  return made;
}
template <class Act> tensor each(tensor const& a, tensor const& b, Act f) {
  require(a.rows() == b.rows() && a.columns() == b.columns());
  tensor made(a.account(), a.rows(), a.columns());
  for (std::size_t i = 0; i < a.size(); ++i) made.data()[i] = f(a.data()[i], b.data()[i]);
  return made;
}

} // namespace detail

/// `sum += a b`.
inline void add_product(mutable_rows sum, const_rows a, const_rows b) {
  detail::require(a.columns == b.rows && sum.rows == a.rows && sum.columns == b.columns);
  for (int i = 0; i < a.rows; ++i)
    for (int k = 0; k < a.columns; ++k)
      for (int j = 0; j < b.columns; ++j) sum[i][j] += a[i][k] * b[k][j];
}
/// `sum += a b'`: gradients of inputs.
inline void add_product_with_transposed(mutable_rows sum, const_rows a, const_rows b) {
  detail::require(a.columns == b.columns && sum.rows == a.rows && sum.columns == b.rows);
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < b.rows; ++j) {
      float dot = 0;
      for (int k = 0; k < a.columns; ++k) dot += a[i][k] * b[j][k];
      sum[i][j] += dot;
    }
}
/// `sum += a' b`: gradients of weights.
inline void add_product_of_transposed(mutable_rows sum, const_rows a, const_rows b) {
  detail::require(a.rows == b.rows && sum.rows == a.columns && sum.columns == b.columns);
  for (int k = 0; k < a.rows; ++k)
    for (int i = 0; i < a.columns; ++i)
      for (int j = 0; j < b.columns; ++j) sum[i][j] += a[k][i] * b[k][j];
}

/// `a b`.
inline tensor product(tensor const& a, tensor const& b) {
  tensor made(a.account(), a.rows(), b.columns());
  add_product(made, a, b);
  return made;
}
/// `a b'`.
inline tensor product_with_transposed(tensor const& a, tensor const& b) {
  tensor made(a.account(), a.rows(), b.rows());
  add_product_with_transposed(made, a, b);
  return made;
}

inline tensor add(tensor const& a, tensor const& b) {
  return detail::each(a, b, [](float x, float y) { return x + y; });
}
inline void add_to(tensor& sum, tensor const& term) {
  detail::require(sum.rows() == term.rows() && sum.columns() == term.columns());
  for (std::size_t i = 0; i < sum.size(); ++i) sum.data()[i] += term.data()[i];
}

inline tensor tanh(tensor const& a) {
  return detail::each(a, [](float x) { return std::tanh(x); });
}
/// From the result of `tanh`.
inline tensor tanh_backward(tensor const& gradient, tensor const& result) {
  return detail::each(gradient, result, [](float g, float t) { return g * (1.0F - t * t); });
}

/// Row i is row i - 1 of `a`; row 0 is zero. `backward`: row i is row i + 1, the last is zero.
inline tensor shift_rows(tensor const& a, bool backward = false) {
  tensor made(a.account(), a.rows(), a.columns());
  int const by = backward ? 1 : -1;
  for (int i = 0; i < a.rows(); ++i)
    if (int const from = i + by; from >= 0 && from < a.rows())
      for (int j = 0; j < a.columns(); ++j) made[i][j] = a[from][j];
  return made;
}
/// Each row `times` times in a row, and the transpose of that.
inline tensor repeat_rows(tensor const& a, int times) {
  tensor made(a.account(), a.rows() * times, a.columns());
  for (int i = 0; i < made.rows(); ++i)
    for (int j = 0; j < a.columns(); ++j) made[i][j] = a[i / times][j];
  return made;
}
inline tensor sum_repeated_rows(tensor const& a, int times) {
  tensor made(a.account(), a.rows() / times, a.columns());
  for (int i = 0; i < a.rows(); ++i)
    for (int j = 0; j < a.columns(); ++j) made[i / times][j] += a[i][j];
  return made;
}

/// Of each row.
inline tensor softmax(tensor const& a) {
  tensor made(a.account(), a.rows(), a.columns());
  for (int i = 0; i < a.rows(); ++i) {
    float most = a[i][0], sum = 0;
    for (int j = 1; j < a.columns(); ++j) most = a[i][j] > most ? a[i][j] : most;
    for (int j = 0; j < a.columns(); ++j) sum += made[i][j] = std::exp(a[i][j] - most);
    for (int j = 0; j < a.columns(); ++j) made[i][j] /= sum;
  }
  return made;
}
/// From the result of `softmax`.
inline tensor softmax_backward(tensor const& gradient, tensor const& result) {
  detail::require(gradient.rows() == result.rows() && gradient.columns() == result.columns());
  tensor made(result.account(), result.rows(), result.columns());
  for (int i = 0; i < result.rows(); ++i) {
    float dot = 0;
    for (int j = 0; j < result.columns(); ++j) dot += gradient[i][j] * result[i][j];
    for (int j = 0; j < result.columns(); ++j) made[i][j] = result[i][j] * (gradient[i][j] - dot);
  }
  return made;
}

} // namespace array
} // namespace v0
} // namespace stretto
