#pragma once

#include "rank_communicator.hpp"
#include "rank_rows.hpp"
#include "timed_exchange.hpp"

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch/exchange_rows.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <cstddef>
#include <deque>
#include <utility>

namespace train_moe {

/// Rows of GPU memory over `Exchange`, a `row_exchange` that issues on the current stream; `measured` calls are timed on the GPU.
template <class Exchange> class device_rows : public rank_rows {
public:
  /// `of_exchange` follows the host exchange among what `Exchange` is made from.
  template <class... OfExchange>
  device_rows(rank_communicator between, bool measured, OfExchange&&... of_exchange)
      : host_(between), exchange_(between, std::forward<OfExchange>(of_exchange)...), measured_(measured) {}

  int rank() const override { return exchange_.rank(); }
  int ranks() const override { return exchange_.ranks(); }
  void exchange_counts(int const* send_rows, int* counts) override {
    exchange_.exchange_counts(send_rows, counts);
  }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) override {
    timed([&] { exchange_.all_to_all(send, send_rows, receive, receive_rows, row_bytes); });
  }
  bool moves_parts() const override {
    if constexpr (stretto::torch::part_exchange<Exchange>)
      return exchange_.moves_parts();
    else
      return false;
  }
  void all_to_all_parts(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                        std::size_t row_bytes, int parts, bool sorted) override {
    if constexpr (stretto::torch::part_exchange<Exchange>)
      timed([&] {
        exchange_.all_to_all_parts(send, send_rows, receive, receive_rows, row_bytes, parts, sorted);
      });
    else
      rank_rows::all_to_all_parts(send, send_rows, receive, receive_rows, row_bytes, parts, sorted);
  }
  bool rows_on_device() const override { return true; }
  /// A rank alone has nobody to meet.
  bool capturable() const override {
    return exchange_.ranks() == 1 || stretto::torch::is_capturable<Exchange>();
  }
  rank_rows& host() override { return host_; }
  Exchange& exchange() { return exchange_; }
  double seconds() override {
    for (std::size_t i = 0; i < used_; ++i) {
      calls_[i].end.synchronize();
      seconds_ += 1e-6 * stretto::cuda::microseconds_between(calls_[i].start, calls_[i].end);
    }
    used_ = 0;
    return seconds_;
  }

private:
  struct call {
    stretto::cuda::time_mark start, end;
  };
  template <class Call> void timed(Call const& issue) {
    auto const here = stretto::torch_cuda::current_stream{}.current();
    bool const is_timed = measured_ && !stretto::cuda::is_capturing(here);
    if (is_timed && used_ == calls_.size()) calls_.emplace_back();
    if (is_timed) calls_[used_].start.record(here);
    issue();
    if (is_timed) calls_[used_++].end.record(here);
  }
  timed_exchange<rank_communicator> host_;
  Exchange exchange_;
  bool measured_;
  std::deque<call> calls_;
  std::size_t used_ = 0;
  double seconds_ = 0;
};

} // namespace train_moe
