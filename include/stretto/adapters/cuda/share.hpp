#pragma once

#include <stretto/adapter.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// What every rank brings, for ranks that are threads of one process. Collective: returns when all have taken their share.
template <class Item, row_exchange Ranks>
std::vector<std::shared_ptr<Item>> share(std::shared_ptr<Item> const& mine, Ranks& ranks) {
  auto const size = static_cast<std::size_t>(ranks.ranks());
  std::vector<int> const ones(size, 1);
  std::vector<std::shared_ptr<Item> const*> sent(size, &mine), received(size);
  ranks.all_to_all(sent.data(), ones.data(), received.data(), ones.data(), sizeof(sent[0]));
  std::vector<std::shared_ptr<Item>> all;
  for (auto const* each : received) all.push_back(*each);
  // Nobody goes on, and may drop its own, before all have theirs.
  std::vector<int> counts(size);
  ranks.exchange_counts(ones.data(), counts.data());
  return all;
}

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
