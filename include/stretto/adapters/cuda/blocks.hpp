#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

inline void copy_bytes(void* to, void const* from, std::size_t bytes, cudaStream_t on,
                       cudaMemcpyKind how = cudaMemcpyDefault) {
  check(cudaMemcpyAsync(to, from, bytes, how, on), "cudaMemcpyAsync");
}

/// Where the block of each rank begins, and behind the last where all end, in bytes: `begins` has one place more than there are
/// ranks. `whose` is the exchange, for errors.
inline void place_blocks(int const* rows, std::size_t ranks, std::size_t row_bytes, std::size_t* begins,
                         char const* whose) {
  begins[0] = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (rows[rank] < 0) throw std::invalid_argument(std::string(whose) + ": a negative number of rows");
    begins[rank + 1] = begins[rank] + static_cast<std::size_t>(rows[rank]) * row_bytes;
  }
}

inline void require_same_bytes(char const* whose, std::size_t from, std::size_t sent, std::size_t to,
                               std::size_t expected) {
  if (sent != expected)
    throw std::invalid_argument(std::string(whose) + ": rank " + std::to_string(from) + " sends " +
                                std::to_string(sent) + " bytes to rank " + std::to_string(to) +
                                ", which expects " + std::to_string(expected));
}

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
