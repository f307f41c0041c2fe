#pragma once

#include <stretto/adapter.hpp>

#include <ATen/ATen.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// An exchange whose rows may lie in device memory. `host()` exchanges host memory, such as counts, among the same ranks.
template <class Exchange>
concept device_row_exchange = row_exchange<Exchange> && requires(Exchange& exchange) {
  { exchange.rows_on_device() } -> std::convertible_to<bool>;
  exchange.host();
};

/// An exchange that puts the rows of several parts of a rank, such as those of its experts, where they belong, as
/// `cuda::peer_exchange`. It may say at run time that it does not.
template <class Exchange>
concept part_exchange = row_exchange<Exchange> &&
    requires(Exchange& exchange, int const* rows, void* memory) {
  exchange.all_to_all_parts(memory, rows, memory, rows, std::size_t{1}, 1, true);
  { exchange.moves_parts() } -> std::convertible_to<bool>;
};

/// Whether calls of an exchange may be captured into a graph as long as their counts stay the same: it says so itself.
template <row_exchange Exchange> constexpr bool is_capturable() {
  if constexpr (requires {
                  { Exchange::capturable } -> std::convertible_to<bool>;
                })
    return Exchange::capturable;
  else
    return false;
}

namespace detail {

inline void require_rows(at::Tensor const& rows, std::vector<int> const& to, char const* who) {
  auto const expected = std::accumulate(to.begin(), to.end(), std::int64_t{0});
  if (rows.size(0) != expected)
    throw std::invalid_argument(std::string(who) + ": " + std::to_string(rows.size(0)) +
                                " rows for a handle of " + std::to_string(expected));
}

/// `move(sent, received, row_bytes)` for `rows` that fit, and a tensor for as many as `from` says.
template <row_exchange Exchange, class Move>
at::Tensor exchanged(Exchange& exchange, at::Tensor const& rows, std::vector<int> const& to,
                     std::vector<int> const& from, char const* who, Move const& move) {
  bool on_device = false;
  if constexpr (device_row_exchange<Exchange>) on_device = exchange.rows_on_device();
  if (rows.device().is_cpu() == on_device)
    throw std::invalid_argument(std::string(who) + ": rows must be in " + (on_device ? "device" : "host") +
                                " memory");
  require_rows(rows, to, who);
  auto const sent = rows.contiguous();
  auto sizes = rows.sizes().vec();
  sizes[0] = std::accumulate(from.begin(), from.end(), std::int64_t{0});
  auto received = at::empty(sizes, rows.options());
  auto row_bytes = static_cast<std::size_t>(rows.element_size());
  for (std::size_t d = 1; d < sizes.size(); ++d) row_bytes *= static_cast<std::size_t>(sizes[d]);
  move(sent.const_data_ptr(), received.mutable_data_ptr(), row_bytes);
  return received;
}

/// Blocks of rows that lie as [outer][inner], to lie as [inner][outer]. `counts` in the order of the result.
inline at::Tensor turned_blocks(at::Tensor const& rows, std::vector<int> const& counts, std::size_t outer,
                                std::size_t inner) {
  if (outer == 1 || inner == 1) return rows;
  std::vector<at::Tensor> blocks(counts.size());
  std::int64_t first = 0;
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < inner; ++i) {
      blocks[i * outer + o] = rows.narrow(0, first, counts[i * outer + o]);
      first += counts[i * outer + o];
    }
  return at::cat(blocks);
}

} // namespace detail

/// Rows [n, ...] of which `to[r]` go to rank r; those that come, `from[r]` of rank r, in the order of the ranks. Collective.
/// `who` is named where the rows do not fit.
template <row_exchange Exchange>
at::Tensor exchange_rows(Exchange& exchange, at::Tensor const& rows, std::vector<int> const& to,
                         std::vector<int> const& from, char const* who) {
  return detail::exchanged(exchange, rows, to, from, who,
                           [&](void const* out, void* in, std::size_t row_bytes) {
                             exchange.all_to_all(out, to.data(), in, from.data(), row_bytes);
                           });
}

/// Rows for parts of the ranks: `to[r * parts + p]` for part p of rank r, and `from` accordingly from rank r for part p of this
/// one. If they are to be `sorted`, what is sent lies by rank and within it by part, and what comes by part and within it by
/// rank; otherwise the other way about. Collective.
template <row_exchange Exchange>
at::Tensor exchange_parts(Exchange& exchange, at::Tensor const& rows, std::vector<int> const& to,
                          std::vector<int> const& from, bool sorted, char const* who) {
  auto const ranks = static_cast<std::size_t>(exchange.ranks()), parts = to.size() / ranks;
  if (parts == 0 || to.size() != ranks * parts || from.size() != to.size())
    throw std::invalid_argument(std::string(who) + ": " + std::to_string(to.size()) +
                                " counts of rows to send and " + std::to_string(from.size()) +
                                " to receive are not as many for each of " + std::to_string(ranks) +
                                " ranks");
  if constexpr (part_exchange<Exchange>)
    if (exchange.moves_parts())
      return detail::exchanged(exchange, rows, to, from, who,
                               [&](void const* out, void* in, std::size_t row_bytes) {
                                 exchange.all_to_all_parts(out, to.data(), in, from.data(), row_bytes,
                                                           static_cast<int>(parts), sorted);
                               });
  auto const of_ranks = [&](std::vector<int> const& counts) {
    std::vector<int> sums(ranks);
    for (std::size_t i = 0; i < counts.size(); ++i) sums[i / parts] += counts[i];
    return sums;
  };
  auto const by_part = [&](std::vector<int> const& counts) {
    std::vector<int> turned(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) turned[i % parts * ranks + i / parts] = counts[i];
    return turned;
  };
  if (!sorted) {
    // Blocks that are cut out would not show it.
    detail::require_rows(rows, to, who);
    return exchange_rows(exchange, detail::turned_blocks(rows, to, parts, ranks), of_ranks(to),
                         of_ranks(from), who);
  }
  return detail::turned_blocks(exchange_rows(exchange, rows, of_ranks(to), of_ranks(from), who),
                               by_part(from), ranks, parts);
}

} // namespace torch
} // namespace v0
} // namespace stretto
