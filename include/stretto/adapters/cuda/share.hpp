#pragma once

#include <stretto/adapter.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Collective: what every rank has, plain bytes.
template <row_exchange Ranks, class What> std::vector<What> of_all(Ranks& ranks, What const& mine) {
  auto const size = static_cast<std::size_t>(ranks.ranks());
  std::vector<int> const ones(size, 1);
  std::vector<What> const out(size, mine);
  std::vector<What> all(size);
  ranks.all_to_all(out.data(), ones.data(), all.data(), ones.data(), sizeof(What));
  return all;
}

/// Collective: returns when every rank has come.
template <row_exchange Ranks> void meet(Ranks& ranks) {
  std::vector<int> const out(static_cast<std::size_t>(ranks.ranks()), 1);
  std::vector<int> in(out.size());
  ranks.exchange_counts(out.data(), in.data());
}

/// What every rank brings, for ranks that are threads of one process. Collective: returns when all have taken their share.
template <class Item, row_exchange Ranks>
std::vector<std::shared_ptr<Item>> share(std::shared_ptr<Item> const& mine, Ranks& ranks) {
  std::vector<std::shared_ptr<Item>> all;
  for (auto const* each : of_all(ranks, &mine)) all.push_back(*each);
  // Nobody goes on, and may drop its own, before all have theirs.
  meet(ranks);
  return all;
}

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
