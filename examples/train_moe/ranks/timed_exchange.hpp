#pragma once

#include "rank_rows.hpp"

#include <stretto/adapter.hpp>

#include <chrono>
#include <cstddef>

namespace train_moe {

/// An exchange of rows that adds up how long its calls took, waiting for the other ranks included.
template <stretto::row_exchange Exchange> class timed_exchange : public rank_rows {
public:
  explicit timed_exchange(Exchange exchange) : exchange_(exchange) {}

  int rank() const override { return exchange_.rank(); }
  int ranks() const override { return exchange_.ranks(); }

  void exchange_counts(int const* send_rows, int* counts) override {
    stopwatch const running(*this);
    exchange_.exchange_counts(send_rows, counts);
  }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) override {
    stopwatch const running(*this);
    exchange_.all_to_all(send, send_rows, receive, receive_rows, row_bytes);
  }

  bool rows_on_device() const override { return false; }
  rank_rows& host() override { return *this; }

  double seconds() override { return seconds_; }

private:
  using clock = std::chrono::steady_clock;
  class stopwatch {
  public:
    explicit stopwatch(timed_exchange& of) : of_(of) {}
    ~stopwatch() { of_.seconds_ += std::chrono::duration<double>(clock::now() - start_).count(); }
    stopwatch(stopwatch const&) = delete;
    stopwatch& operator=(stopwatch const&) = delete;

  private:
    timed_exchange& of_;
    clock::time_point start_ = clock::now();
  };

  Exchange exchange_;
  double seconds_ = 0;
};

} // namespace train_moe
