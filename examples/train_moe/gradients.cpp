#include "gradients.hpp"

#include "hash.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <tuple>

namespace train_moe {
namespace {

template <class Real> void reduce_as(std::vector<at::Tensor> const& gradients, rank_communicator& ranks) {
  std::vector<at::Tensor> flat;
  for (auto const& each : gradients) flat.push_back(each.flatten());
  auto all = at::cat(flat).cpu();
  ranks.all_reduce(all.mutable_data_ptr<Real>(), static_cast<std::size_t>(all.numel()));
  std::int64_t first = 0;
  for (auto const& each : gradients) {
    each.copy_(all.narrow(0, first, each.numel()).view(each.sizes()));
    first += each.numel();
  }
}

double squares_of(at::Tensor const& gradient) { return gradient.square().sum(at::kDouble).item<double>(); }

/// The squares of one gradient and its place in the whole model.
struct square {
  int expert; ///< -1: replicated
  int layer;
  int place; ///< among the parameters of its rank, which has all of the layer
  double value;

  static bool before(square const& a, square const& b) {
    // Experts come last, parameter by parameter.
    auto const order = [](square const& of) {
      return std::tuple(of.expert >= 0, of.layer, of.place, of.expert);
    };
    return order(a) < order(b);
  }
  static bool same_place(square const& a, square const& b) { return !before(a, b) && !before(b, a); }
};

} // namespace

void reduce_replicated(std::vector<model_parameter> const& parameters, rank_communicator& ranks) {
  std::vector<at::Tensor> gradients;
  for (auto const& each : parameters)
    if (!each.sharded() && each.weight->trainable()) gradients.push_back(each.weight->main_grad());
  if (gradients.empty() || ranks.ranks() == 1) return;
  if (gradients.front().scalar_type() == at::kDouble) return reduce_as<double>(gradients, ranks);
  reduce_as<float>(gradients, ranks);
}

double global_norm(std::vector<model_parameter> const& parameters, rank_communicator& ranks) {
  std::vector<square> mine;
  int place = 0;
  for (auto const& each : parameters) {
    ++place;
    if (!each.weight->trainable()) continue;
    auto const& gradient = each.weight->main_grad();
    if (!each.sharded())
      mine.push_back({-1, each.layer, place, squares_of(gradient)});
    else
      for (std::int64_t e = 0; e < gradient.size(0); ++e)
        mine.push_back({each.first_expert + static_cast<int>(e), each.layer, place, squares_of(gradient[e])});
  }
  std::vector<square> all;
  for (auto const& of_rank : gather_all(mine, ranks)) all.insert(all.end(), of_rank.begin(), of_rank.end());
  std::sort(all.begin(), all.end(), square::before);
  // Replicas have the same bits.
  all.erase(std::unique(all.begin(), all.end(), square::same_place), all.end());
  double sum = 0;
  for (auto const& each : all) sum += each.value;
  return std::sqrt(sum);
}

std::vector<gradient_hash> hash_gradients(std::vector<model_parameter> const& parameters, int rank) {
  std::vector<gradient_hash> hashes;
  auto const add = [&](std::string name, at::Tensor const& gradient) {
    auto const bytes = gradient.cpu().contiguous();
    auto const hash = hash_bytes(hash_text(0, name), bytes.const_data_ptr(), bytes.nbytes());
    hashes.push_back({std::move(name), rank, hash});
  };
  for (auto const& each : parameters) {
    if (!each.weight->trainable()) continue;
    auto const& gradient = each.weight->main_grad();
    if (!each.sharded())
      add(each.weight->name(), gradient);
    else
      for (std::int64_t e = 0; e < gradient.size(0); ++e)
        add(initializer::expert_name(each.weight->name(), each.first_expert + static_cast<int>(e)),
            gradient[e]);
  }
  return hashes;
}

std::string digest_of(std::vector<gradient_hash> hashes) {
  std::sort(hashes.begin(), hashes.end(),
            [](auto const& a, auto const& b) { return std::tie(a.name, a.rank) < std::tie(b.name, b.rank); });
  std::uint64_t all = 0;
  for (auto const& each : hashes)
    all = mixed(mixed(hash_text(all, each.name) ^ static_cast<std::uint64_t>(each.rank)) ^ each.hash);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(all));
  return digits;
}

} // namespace train_moe
