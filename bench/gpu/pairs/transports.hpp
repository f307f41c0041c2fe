#pragma once

#include "rank_bench.hpp"

#include <stretto/adapters/cuda/joint_capture.hpp>
#include <stretto/adapters/cuda/peer_exchange.hpp>
#include <stretto/adapters/cuda/staged_exchange.hpp>
#include <stretto/adapters/nccl.hpp>

#include <deque>
#include <stdexcept>
#include <string>

namespace layer_pairs {

namespace nccl = stretto::nccl;

/// Any `row_exchange` of device memory.
template <class Exchange> class rows_over : public row_transport {
public:
  rows_over(host::communicator between, cuda::exchange_options options)
      : exchange_(between, {}, std::move(options)) {}
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) override {
    exchange_.all_to_all(send, send_rows, receive, receive_rows, row_bytes);
  }

private:
  Exchange exchange_;
};

/// NCCL with registered memory and as many multiprocessors as its options say.
class rows_over_nccl : public row_transport {
public:
  rows_over_nccl(host::communicator between, host::failure_board& board,
                 nccl::communicator_options const& how)
      : session_(between, {std::chrono::seconds(20), [&board] { return board.failed(); }}),
        watchdog_(session_, board, between.rank()), over_(*session_.split(0, how)), rows_(between, over_) {
    over_.connect();
  }

  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) override {
    rows_.all_to_all(send, send_rows, receive, receive_rows, row_bytes);
  }
  void* memory(std::size_t bytes) override { return memory_.emplace_back(over_, bytes).data(); }
  bool captured_together() const override { return false; }
  int multiprocessors(std::size_t peer_bytes) override {
    std::vector<int> rows(static_cast<std::size_t>(over_.ranks()), 1);
    rows[static_cast<std::size_t>(over_.rank())] = 0;
    auto* const in = memory_.front().data();
    auto* const out = in + memory_.front().size() / 2;
    auto const call = [&](cudaStream_t on) {
      auto const here = cuda::thread_stream{}.enter(on);
      rows_.all_to_all(out, rows.data(), in, rows.data(), peer_bytes);
    };
    // The first call on new memory connects.
    call(aside_.get());
    over_.wait_for(aside_.get(), "the first call");
    return nccl::sm_target(over_.ctas_of(call, aside_.get()));
  }

private:
  // First, since NCCL remembers on which stream it was last.
  nccl::side_stream aside_;
  nccl::session session_;
  nccl::watchdog<host::failure_board> watchdog_;
  nccl::communicator& over_;
  nccl::rows<host::communicator, cuda::thread_stream> rows_;
  std::deque<nccl::registered_memory> memory_;
};

inline constexpr char const* transport_names = "staged (copy engines, through pinned host memory), peer "
                                               "(copy engines, between GPUs), nccl (a GPU for each rank)";

inline make_transport transport_named(std::string const& name, host::group& group,
                                      nccl::communicator_options const& of_nccl) {
  cuda::exchange_options const options{std::chrono::milliseconds(20000), [&group] { return group.failed(); },
                                       cuda::hand_on_turn};
  if (name == "staged")
    return [&group, options](int rank) -> std::unique_ptr<row_transport> {
      return std::make_unique<rows_over<cuda::staged_exchange<host::communicator>>>(
          group.communicator(rank, 0), options);
    };
  if (name == "peer")
    return [&group, options](int rank) -> std::unique_ptr<row_transport> {
      return std::make_unique<rows_over<cuda::peer_exchange<host::communicator>>>(group.communicator(rank, 0),
                                                                                  options);
    };
  if (name == "nccl")
    return [&group, of_nccl](int rank) -> std::unique_ptr<row_transport> {
      return std::make_unique<rows_over_nccl>(group.communicator(rank, 0), group.board(), of_nccl);
    };
  throw std::invalid_argument("--transport knows " + std::string(transport_names) + ", not '" + name + "'");
}

} // namespace layer_pairs
