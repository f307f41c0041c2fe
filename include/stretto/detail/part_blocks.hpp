#pragma once

#include <stretto/detail/cxx20.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace detail {

/// Where blocks of rows lie of which every rank has several, one for each of its parts: block p of rank r is number
/// r * parts + p. In bytes.
struct part_blocks {
  std::vector<std::size_t> begins, bytes;

  /// `rows` of each block. They lie by rank and within it by part, or by part and within it by rank. `whose` is the exchange,
  /// for errors.
  void place(int const* rows, std::size_t ranks, std::size_t parts, bool by_part, std::size_t row_bytes,
             char const* whose) {
    begins.resize(ranks * parts);
    bytes.resize(ranks * parts);
    std::size_t next = 0;
    for (std::size_t i = 0; i < ranks * parts; ++i) {
      std::size_t const block = by_part ? i % ranks * parts + i / ranks : i;
      if (rows[block] < 0) throw std::invalid_argument(std::string(whose) + ": a negative number of rows");
      begins[block] = next;
      next += bytes[block] = static_cast<std::size_t>(rows[block]) * row_bytes;
    }
  }
  std::size_t of_rank(std::size_t rank, std::size_t parts) const {
    std::size_t sum = 0;
    for (std::size_t p = 0; p < parts; ++p) sum += bytes[rank * parts + p];
    return sum;
  }
};

} // namespace detail
} // namespace v0
} // namespace stretto
