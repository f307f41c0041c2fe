#include "gradients.hpp"

#include "hash.hpp"

#include <stretto/adapters/torch/exchange_rows.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <tuple>

namespace train_moe {
namespace {

/// Each rank adds up one part of all, and tells the others.
template <class Exchange> void reduce(at::Tensor const& gradient, Exchange& ranks) {
  auto const all = ranks.ranks(), me = ranks.rank();
  auto const count = gradient.numel();
  std::vector<int> parts(static_cast<std::size_t>(all));
  for (int r = 0; r < all; ++r)
    parts[static_cast<std::size_t>(r)] = static_cast<int>(count * (r + 1) / all - count * r / all);
  auto const mine = parts[static_cast<std::size_t>(me)];
  std::vector<int> const each(parts.size(), mine);
  constexpr auto whose = "reduce_replicated";
  auto const of_ranks =
      stretto::torch::exchange_rows(ranks, gradient.flatten(), parts, each, whose).view({all, mine});
  auto sum = of_ranks[0].clone();
  for (int r = 1; r < all; ++r) sum.add_(of_ranks[r]);
  auto const sums = stretto::torch::exchange_rows(ranks, sum.repeat({all}), each, parts, whose);
  gradient.copy_(sums.view(gradient.sizes()));
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

void reduce_replicated(std::vector<model_parameter> const& parameters, rank_communicator& ranks,
                       rank_rows& rows) {
  if (ranks.ranks() == 1) return;
  for (auto const& each : parameters) {
    if (each.sharded() || !each.weight->trainable()) continue;
    if (rows.rows_on_device())
      reduce(each.weight->main_grad(), rows);
    else
      reduce(each.weight->main_grad(), ranks);
  }
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
