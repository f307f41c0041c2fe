#pragma once

#include <stretto/detail/cxx20.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace detail {

/// Refuses a call in which a rank sends itself other rows than it makes room for, of which no other rank knows. Of each rank there
/// are so many `parts`; `whose` is the exchange.
inline void require_own_rows(int const* send_rows, int const* receive_rows, int rank, int parts,
                             char const* whose) {
  for (int own = rank * parts; own < (rank + 1) * parts; ++own)
    if (send_rows[own] != receive_rows[own])
      throw std::invalid_argument(std::string(whose) + ": rank " + std::to_string(rank) + " sends " +
                                  std::to_string(send_rows[own]) + " rows to itself and expects " +
                                  std::to_string(receive_rows[own]));
}

} // namespace detail
} // namespace v0
} // namespace stretto
