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

/// Whether calls of an exchange may be captured into a graph as long as their counts stay the same: it says so itself.
template <row_exchange Exchange> constexpr bool is_capturable() {
  if constexpr (requires {
                  { Exchange::capturable } -> std::convertible_to<bool>;
                })
    return Exchange::capturable;
  else
    return false;
}

/// Rows [n, ...] of which `to[r]` go to rank r; those that come, `from[r]` of rank r, in the order of the ranks. Collective.
/// `who` is named where the rows do not fit.
template <row_exchange Exchange>
at::Tensor exchange_rows(Exchange& exchange, at::Tensor const& rows, std::vector<int> const& to,
                         std::vector<int> const& from, char const* who) {
  bool on_device = false;
  if constexpr (device_row_exchange<Exchange>) on_device = exchange.rows_on_device();
  if (rows.device().is_cpu() == on_device)
    throw std::invalid_argument(std::string(who) + ": rows must be in " + (on_device ? "device" : "host") +
                                " memory");
  auto const expected = std::accumulate(to.begin(), to.end(), std::int64_t{0});
  if (rows.size(0) != expected)
    throw std::invalid_argument(std::string(who) + ": " + std::to_string(rows.size(0)) +
                                " rows for a handle of " + std::to_string(expected));
  auto const sent = rows.contiguous();
  auto sizes = rows.sizes().vec();
  sizes[0] = std::accumulate(from.begin(), from.end(), std::int64_t{0});
  auto received = at::empty(sizes, rows.options());
  auto row_bytes = static_cast<std::size_t>(rows.element_size());
  for (std::size_t d = 1; d < sizes.size(); ++d) row_bytes *= static_cast<std::size_t>(sizes[d]);
  exchange.all_to_all(sent.const_data_ptr(), to.data(), received.mutable_data_ptr(), from.data(), row_bytes);
  return received;
}

} // namespace torch
} // namespace v0
} // namespace stretto
