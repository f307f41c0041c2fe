#pragma once

#include "support/toy_train.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>

namespace toy {

/// Without the cuts between chunks.
inline std::string one_chunk(std::string picture) {
  std::erase(picture, '|');
  return picture;
}

template <class M> std::vector<std::uint64_t> serial_bits(std::string const& picture, int microbatches) {
  return train<st::Schedule<M, st::Serial>>(one_chunk(picture), microbatches).bits;
}

/// Every policy against the serial one: the bits, and that what ran is what the table says.
template <class M, class... Policies>
void agrees_with_serial(std::vector<std::string> const& pictures, std::vector<int> const& microbatches) {
  for (std::string const& picture : pictures)
    for (int const count : microbatches) {
      CAPTURE(picture, count);
      trained const result = train<st::Schedule<M, Policies...>>(picture, count);
      CHECK(result.bits == serial_bits<M>(picture, count));
      CHECK(result.lanes.runs == static_cast<int>(result.table.ops.size()));
      CHECK(result.lanes.waits == result.table.waits());
      CHECK(result.lanes.drains == 1);
    }
}

inline std::vector<std::string> const mixes = {"EH",    "EMH",   "EDH",     "EMMH",     "EDMH",
                                               "EMDMH", "EDMMH", "EMMMMMH", "EDMDMMDH", "EMMMMMMH"};
inline std::vector<int> const counts = {1, 2, 3, 8};

} // namespace toy
