#pragma once

#include <stretto/adapter.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// An exchange of host memory among the ranks that NCCL is to join: `host::communicator`, `c10d::communicator`, or any other.
/// - `all_gather(mine, count, all)`: `count` elements of every rank, in rank order.
template <class Host>
concept host_exchange = row_exchange<Host> &&
    requires(Host& ranks, char const* mine, std::size_t count, char* all) {
  ranks.all_gather(mine, count, all);
};

/// The text of every rank, on every rank.
template <host_exchange Host> std::vector<std::string> gather_texts(Host& ranks, std::string const& mine) {
  auto const all = static_cast<std::size_t>(ranks.ranks());
  std::size_t const size = mine.size();
  std::vector<std::size_t> sizes(all);
  ranks.all_gather(&size, 1, sizes.data());
  std::size_t const most = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine, gathered(most * all, '\0');
  padded.resize(most);
  ranks.all_gather(padded.data(), most, gathered.data());
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < all; ++rank) texts.push_back(gathered.substr(rank * most, sizes[rank]));
  return texts;
}

} // namespace nccl
} // namespace v0
} // namespace stretto
