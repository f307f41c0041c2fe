#pragma once

#include <stretto/adapters/array/maths.hpp>

#include <cstddef>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace array {

/// The decision of a softmax top-k router: choice c of token t is number t * k + c, best first; of equals the lower
/// expert.
struct choices {
  std::vector<int> expert;
  tensor weight; ///< [tokens, k]
};

inline choices choose(tensor const& probabilities, int k) {
  detail::require(k > 0 && k <= probabilities.columns());
  choices made{{}, {probabilities.account(), probabilities.rows(), k}};
  std::vector<bool> taken;
  for (int token = 0; token < probabilities.rows(); ++token) {
    float const* p = probabilities[token];
    taken.assign(static_cast<std::size_t>(probabilities.columns()), false);
    for (int c = 0; c < k; ++c) {
      int best = -1;
      for (int e = 0; e < probabilities.columns(); ++e)
        if (!taken[static_cast<std::size_t>(e)] && (best < 0 || p[e] > p[best])) best = e;
      taken[static_cast<std::size_t>(best)] = true;
      made.expert.push_back(best);
      made.weight[token][c] = p[best];
    }
  }
  return made;
}

/// The gradient of the probabilities from that of the weights.
inline tensor choose_backward(tensor const& weight_gradient, std::vector<int> const& expert, int experts) {
  tensor made(weight_gradient.account(), weight_gradient.rows(), experts);
  std::size_t choice = 0;
  for (int token = 0; token < weight_gradient.rows(); ++token)
    for (int c = 0; c < weight_gradient.columns(); ++c)
      made[token][expert.at(choice++)] += weight_gradient[token][c];
  return made;
}

/// `weight`-ed sum of the rows of each token, added to `sum`.
inline void add_weighted(tensor& sum, tensor const& rows, tensor const& weight) {
  detail::require(rows.rows() == weight.rows() * weight.columns() && sum.rows() == weight.rows());
  for (int token = 0; token < weight.rows(); ++token)
    for (int c = 0; c < weight.columns(); ++c)
      for (int j = 0; j < rows.columns(); ++j)
        sum[token][j] += weight[token][c] * rows[token * weight.columns() + c][j];
}
/// The gradients of `rows` and of `weight`.
inline tensor weighted_rows_gradient(tensor const& gradient, tensor const& weight) {
  tensor made(gradient.account(), weight.rows() * weight.columns(), gradient.columns());
  for (int i = 0; i < made.rows(); ++i)
    for (int j = 0; j < made.columns(); ++j)
      made[i][j] = weight[i / weight.columns()][i % weight.columns()] * gradient[i / weight.columns()][j];
  return made;
}
inline tensor weights_gradient(tensor const& gradient, tensor const& rows, int k) {
  detail::require(rows.rows() == gradient.rows() * k);
  tensor made(gradient.account(), gradient.rows(), k);
  for (int i = 0; i < rows.rows(); ++i)
    for (int j = 0; j < rows.columns(); ++j) made[i / k][i % k] += gradient[i / k][j] * rows[i][j];
  return made;
}

} // namespace array
} // namespace v0
} // namespace stretto
