#include "gradients.hpp"

#include "hash.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
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

}  // namespace

void reduce_replicated(std::vector<model_parameter> const& parameters, rank_communicator& ranks) {
  std::vector<at::Tensor> gradients;
  for (auto const& each : parameters)
    if (!each.sharded() && each.weight->trainable()) gradients.push_back(each.weight->main_grad());
  if (gradients.empty() || ranks.ranks() == 1) return;
  if (gradients.front().scalar_type() == at::kDouble) return reduce_as<double>(gradients, ranks);
  reduce_as<float>(gradients, ranks);
}

double global_norm(std::vector<model_parameter> const& parameters, rank_communicator& ranks) {
  double sum = 0;
  std::vector<double> of_experts;
  for (auto const& each : parameters) {
    if (!each.weight->trainable()) continue;
    auto const& gradient = each.weight->main_grad();
    if (!each.sharded()) sum += squares_of(gradient);
    else
      for (std::int64_t e = 0; e < gradient.size(0); ++e) of_experts.push_back(squares_of(gradient[e]));
  }
  std::vector<double> of_ranks(of_experts.size() * static_cast<std::size_t>(ranks.ranks()));
  ranks.all_gather(of_experts.data(), of_experts.size(), of_ranks.data());
  std::size_t first = 0;
  for (auto const& each : parameters) {
    if (!each.sharded() || !each.weight->trainable()) continue;
    auto const local = static_cast<std::size_t>(each.weight->main_grad().size(0));
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks.ranks()); ++rank)
      for (std::size_t e = 0; e < local; ++e) sum += of_ranks[rank * of_experts.size() + first + e];
    first += local;
  }
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
    if (!each.sharded()) add(each.weight->name(), gradient);
    else
      for (std::int64_t e = 0; e < gradient.size(0); ++e)
        add(initializer::expert_name(each.weight->name(), each.first_expert + static_cast<int>(e)), gradient[e]);
  }
  return hashes;
}

std::string digest_of(std::vector<gradient_hash> hashes) {
  std::sort(hashes.begin(), hashes.end(), [](auto const& a, auto const& b) {
    return std::tie(a.name, a.rank) < std::tie(b.name, b.rank);
  });
  std::uint64_t all = 0;
  for (auto const& each : hashes)
    all = mixed(mixed(hash_text(all, each.name) ^ static_cast<std::uint64_t>(each.rank)) ^ each.hash);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(all));
  return digits;
}

}  // namespace train_moe
