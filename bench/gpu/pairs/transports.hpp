#pragma once

#include "rank_bench.hpp"

#include <stretto/adapters/cuda/staged_exchange.hpp>

#include <stdexcept>
#include <string>

namespace layer_pairs {

/// Any `row_exchange` of device memory.
template <class Exchange> class rows_over : public row_transport {
public:
  template <class... Arguments>
  explicit rows_over(Arguments&&... made_from) : exchange_(std::forward<Arguments>(made_from)...) {}
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) override {
    exchange_.all_to_all(send, send_rows, receive, receive_rows, row_bytes);
  }

private:
  Exchange exchange_;
};

inline constexpr char const* transport_names = "staged: by copy engines through pinned host memory";

inline make_transport transport_named(std::string const& name, host::group& group) {
  if (name == "staged")
    return [&group](int rank) {
      return std::make_unique<rows_over<cuda::staged_exchange<host::communicator>>>(
          group.communicator(rank, 0));
    };
  throw std::invalid_argument("--transport wants one of these, and got '" + name + "': " + transport_names);
}

} // namespace layer_pairs
