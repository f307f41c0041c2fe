#pragma once

#include "by_hand.hpp"
#include "graphs.hpp"
#include "layers.hpp"

#include <stretto/adapters/cuda/lanes.hpp>
#include <stretto/adapters/host/group.hpp>
#include <stretto/timeline.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace layer_pairs {

namespace host = stretto::host;

enum variant {
  serial_by_hand,
  serial_executor,
  two_stream_by_hand,
  two_stream_executor,
  split_by_hand,
  split_executor,
  compute_only,
  comm_only,
  variants,
  serial_beside ///< by hand with the GEMMs that run beside communication: whose bits theirs must be
};
inline constexpr char const* variant_names[] = {
    "serial_by_hand", "serial_executor", "two_stream_by_hand", "two_stream_executor",
    "split_by_hand",  "split_executor",  "compute_only",       "comm_only"};

struct settings {
  int repeats = 20, warm_up = 3;
  int multiprocessors = -1; ///< that GEMMs beside communication aim at; 0: all, -1: what the transport leaves
  int gated_pairs = 12; ///< that are issued before the gate opens: queues have an end
  bool gated = true; ///< times on the GPU come from gated runs
  bool wall = true; ///< ungated runs beside them
};

/// What all ranks of a run share.
struct meeting {
  host::group& group;
  stream_gate& gate;
};

using make_transport = std::function<std::unique_ptr<row_transport>(int rank)>;

/// One rank: its buffers, the ways to run the step, and their times.
class rank_bench {
public:
  rank_bench(meeting const& with, int rank, shape const& of, settings const& how,
             make_transport const& transport)
      : shape_(of), how_(how), rank_(rank), gate_(with.gate), between_(with.group.communicator(rank, 1)),
        transport_(transport(rank)), data_(of, rank, *transport_, kernels_, gated_.get()),
        rows_(*transport_, of, rank, with.group.ranks()), times_(of, with.gate), board_(with.group.board()),
        lanes_({.rank = rank}, {}, &board_),
        multiprocessors_(how.multiprocessors < 0 ? transport_->multiprocessors(of.peer_bytes())
                                                 : how.multiprocessors),
        gemms_(compute(), of, 0), gemms_beside_(compute(), of, multiprocessors_),
        layers_(make_layers(work_, of)), serial_(SerialStep{}, {tensors_, lanes_}, layers_, sizes()),
        two_stream_(TwoStreamStep{}, {tensors_, lanes_}, layers_, sizes()),
        split_(SplitStep{}, {tensors_, lanes_}, layers_, sizes()),
        hand_serial_(work_, of, order::serial, compute(), comm()),
        hand_two_stream_(work_, of, order::two_stream, compute(), comm()),
        hand_split_(work_, of, order::split_dw, compute(), comm()) {
    times_.opens_at = how.gated_pairs;
  }

  /// Whether the GPU could be faster than the host that issues. Where GEMMs are long it cannot, and queues would be full.
  bool gated() const { return how_.gated && static_cast<double>(shape_.tokens) * shape_.width < 1e7; }

  /// That GEMMs beside communication aim at; 0: all.
  int multiprocessors() const { return multiprocessors_; }

  /// One run. The times are those of the slowest rank, or of the longest lane.
  step_times run(variant which, bool gated) {
    begin(gated);
    double wall = 0;
    try {
      auto const here = cuda::thread_stream{}.enter(gated_.get());
      times_.begin(gated_.get(), gated);
      auto const start = clock::now();
      issue(which);
      wall = us_since(start);
    } catch (...) {
      gate_.open();
      throw;
    }
    between_.barrier();
    auto times = times_.times();
    times.wall_us = wall;
    return slowest(times);
  }

  /// Collective, as is what follows: a graph of each of these.
  void capture(std::vector<variant> const& which) {
    for (auto const each : which) {
      graphs_.push_back(std::make_unique<captured_step>(between_, board_, transport_->captured_together()));
      auto const here = cuda::thread_stream{}.enter(gated_.get());
      graphs_.back()->capture([&] { issue(each); });
    }
  }
  std::size_t captured() const { return graphs_.size(); }
  /// A graph holds what all ranks have.
  void forget() {
    between_.barrier();
    graphs_.clear();
    between_.barrier();
  }
  /// As `run`, of a captured step: it has no times of pairs, and the host only launches.
  step_times replay(std::size_t which, bool gated) {
    begin(gated);
    double launched = 0, wall = 0;
    try {
      auto const here = cuda::thread_stream{}.enter(gated_.get());
      times_.begin(gated_.get(), gated);
      auto const start = clock::now();
      graphs_[which]->replay();
      launched = us_since(start);
      times_.end(gated_.get());
      cuda::check(cudaStreamSynchronize(gated_.get()), "cudaStreamSynchronize");
      wall = us_since(start);
    } catch (...) {
      gate_.open();
      throw;
    }
    between_.barrier();
    return slowest({times_.step_us(), 0, 0, launched / shape_.pairs(), wall});
  }

  std::uint64_t checksum() { return data_.checksum(kernels_, gated_.get()); }

  /// Sums of the spans of compute ops with and without communication beside them: how much longer they are with it. Timing
  /// events cost time, so this is a run of its own.
  double dilation() {
    std::size_t const spans = static_cast<std::size_t>(4 * (shape_.layers + 2) * shape_.microbatches * 4);
    cuda::lanes<cuda::thread_stream, host::failure_board> timed({.rank = rank_, .spans = spans}, {}, &board_);
    gemms of_timed(timed.stream(st::lane::compute), shape_, multiprocessors_);
    st::executor<SplitStep, fixed_tensors, decltype(timed)> step(SplitStep{}, {tensors_, timed}, layers_,
                                                                 sizes());
    work_.compute = &of_timed;
    double sums[2] = {};
    for (int with = 0; with < 2; ++with) {
      rows_.moves = with == 1;
      for (int i = 0; i < 4; ++i) {
        between_.barrier();
        if (i == 1) timed.clear_timeline();
        step();
      }
      for (auto const& each : timed.timeline())
        if (each.label.on == st::lane::compute) sums[with] += each.end_us - each.start_us;
      timed.clear_timeline();
    }
    rows_.moves = true;
    return sums[1] / sums[0];
  }

  template <class Value> std::vector<Value> of_all(Value const& mine) {
    std::vector<Value> all(static_cast<std::size_t>(between_.ranks()));
    between_.all_gather(&mine, 1, all.data());
    return all;
  }
  void barrier() { between_.barrier(); }

private:
  using rank_lanes = cuda::lanes<cuda::thread_stream, host::failure_board>;
  template <class Step> using run_of = st::executor<Step, fixed_tensors, rank_lanes>;

  void begin(bool gated) {
    data_.clear_sums(gated_.get());
    cuda::check(cudaStreamSynchronize(gated_.get()), "cudaStreamSynchronize");
    if (rank_ == 0 && gated) gate_.close();
    between_.barrier();
    if (gated) gate_.hold(gated_.get());
  }

  st::sizes sizes() const { return {.microbatches = shape_.microbatches}; }
  // By hand on the same streams: which copy engine and which queue a stream gets makes a difference of up to 3 %.
  cudaStream_t compute() const { return lanes_.stream(st::lane::compute); }
  cudaStream_t comm() const { return lanes_.stream(st::lane::comm); }

  void issue(variant which) {
    bool const alone = which == serial_by_hand || which == serial_executor || which == compute_only;
    work_.compute = alone ? &gemms_ : &gemms_beside_;
    switch (which) {
    case serial_by_hand:
    case serial_beside:
      return hand_serial_();
    case serial_executor:
      return serial_();
    case two_stream_by_hand:
      return hand_two_stream_();
    case two_stream_executor:
      return two_stream_();
    case split_by_hand:
      return hand_split_();
    case split_executor:
      return split_();
    case compute_only:
      rows_.moves = false;
      split_();
      rows_.moves = true;
      return;
    case comm_only:
      return move_alone();
    case variants:
      return;
    }
  }

  /// The all-to-alls of a step, one behind the other.
  void move_alone() {
    cudaStream_t const on = comm();
    cuda::edge begun;
    begun.record(gated_.get());
    begun.wait(on);
    {
      auto const here = cuda::thread_stream{}.enter(on);
      for (int microbatch = 0; microbatch < shape_.microbatches; ++microbatch)
        for (int layer = 0; layer < shape_.layers; ++layer) {
          times_.before_pair(microbatch * shape_.layers + layer, on);
          rows_(data_.at(buffers::expert_in, layer, microbatch),
                data_.at(buffers::tokens, layer, microbatch));
          rows_(data_.at(buffers::hidden, layer + 1, microbatch),
                data_.at(buffers::expert_out, layer, microbatch));
          rows_(data_.gradient(buffers::expert_out, layer, microbatch),
                data_.gradient(buffers::hidden, layer + 1, microbatch));
          rows_(data_.gradient(buffers::tokens, layer, microbatch),
                data_.gradient(buffers::expert_in, layer, microbatch));
        }
      times_.end(on);
    }
    cuda::check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  }

  step_times slowest(step_times mine) {
    for (auto const& each : of_all(mine)) {
      mine.step_us = (std::max)(mine.step_us, each.step_us);
      mine.compute_pair_us = (std::max)(mine.compute_pair_us, each.compute_pair_us);
      mine.comm_pair_us = (std::max)(mine.comm_pair_us, each.comm_pair_us);
      mine.host_pair_us = (std::max)(mine.host_pair_us, each.host_pair_us);
      mine.wall_us = (std::max)(mine.wall_us, each.wall_us);
    }
    return mine;
  }

  shape shape_;
  settings how_;
  int rank_;
  stream_gate& gate_;
  host::communicator between_;
  cuda::stream gated_;
  memory_kernels kernels_;
  std::unique_ptr<row_transport> transport_;
  buffers data_;
  exchange rows_;
  probe times_;
  host::failure_board& board_;
  fixed_tensors tensors_;
  rank_lanes lanes_;
  int multiprocessors_;
  gemms gemms_, gemms_beside_;
  rank_work work_{&data_, &rows_, &times_, nullptr};
  st::layer_list<Model> layers_;
  run_of<SerialStep> serial_;
  run_of<TwoStreamStep> two_stream_;
  run_of<SplitStep> split_;
  by_hand hand_serial_, hand_two_stream_, hand_split_;
  std::vector<std::unique_ptr<captured_step>> graphs_;
};

} // namespace layer_pairs
