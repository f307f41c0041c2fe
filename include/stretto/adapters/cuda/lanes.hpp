#pragma once

#include <stretto/adapters/cuda/failure.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/adapters/cuda/ranges.hpp>
#include <stretto/adapters/cuda/stopwatch.hpp>
#include <stretto/detail/op_place.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// How the lanes of one rank are made.
struct lane_options {
  /// The rank that errors and timelines name.
  int rank = 0;
  /// Whether there are lanes for the messages between pipeline ranks.
  bool peers = false;
  /// Ops of one lane that the timeline holds until it is cleared. 0: no timeline. Each costs two timing events.
  std::size_t spans = 0;
  /// Shows every op as a range in profilers.
  bool ranges = false;
  /// Waits for every op before the next is issued, so that an error of the GPU can be told with its op. For debugging.
  bool check_each_op = false;
};

/// The lanes of one rank as streams of the current device: a `lane_adapter`. An op is issued at once by the calling
/// thread, with the stream of its lane current; it runs on the GPU behind what its stream waits for. One thread may call
/// the members, and issues both lanes, so that the order of launches is the program's.
///
/// A step begins behind what its thread has issued on the current stream before, and `drain` leaves nothing running: so a
/// step may read what was made before it, and what it made may be read after it, on any stream.
///
/// While the current stream is being captured (`step_graph`), a step becomes part of the graph: `drain` does not wait but
/// joins the lanes into the current stream, nothing is timed, and no op is waited for.
///
/// An op that throws ends the step: what is issued later is skipped, and `drain` throws an error that names it. With the
/// board of a group (its type is `Board`) the step ends on every rank of the group.
template <stream_follower Follow = thread_stream, class Board = failure_note> class lanes {
public:
  /// Made when it is first recorded.
  struct event {
    edge mark;
    lane on = lane::compute;
    unsigned long step = 0; ///< of its last record
  };

  explicit lanes(lane_options const& options = {}, Follow follow = {}, Board* shared = nullptr)
      : options_(options), follow_(std::move(follow)), board_(shared ? *shared : own_board_) {
    check(cudaGetDevice(&device_), "cudaGetDevice");
    for (std::size_t i = 0; i < std::size(streams_); ++i) {
      auto const on = static_cast<lane>(i);
      if (on == lane::compute || on == lane::comm || options.peers)
        streams_[i].emplace(on == lane::compute ? urgency::usual : urgency::high);
      watches_.emplace_back(options.spans);
    }
    if (options.spans > 0) clear_timeline();
  }
  lanes(lanes const&) = delete;
  lanes& operator=(lanes const&) = delete;

  template <class Task> void run(lane on, op_label const& label, Task task) {
    if (board_.failed()) return;
    cudaStream_t const where = stream(on);
    begin();
    auto& watch = watches_[index(on)];
    bool const timed = !capturing_;
    try {
      op_range const shown(options_.ranges, label);
      [[maybe_unused]] auto const current = follow_.enter(where);
      stretto::detail::place_scope const here(stretto::detail::place_of(label));
      if (timed) watch.start(label, where);
      task();
      if (timed) watch.stop(where);
      check(options_.check_each_op && timed ? cudaStreamSynchronize(where) : cudaPeekAtLastError(),
            "what the op launched");
    } catch (std::exception const& problem) {
      board_.report({options_.rank, true, label, problem.what(), std::current_exception()});
    } catch (...) {
      board_.report({options_.rank, true, label, "it threw something that is no std::exception",
                     std::current_exception()});
    }
  }

  void record(lane on, event& mark) {
    cudaStream_t const where = stream(on);
    if (board_.failed()) return;
    begin();
    mark.mark.record(where);
    mark.on = on;
    mark.step = step_;
  }

  /// What was recorded in an earlier step has happened, and has no place in a graph of this one.
  void wait(lane on, event const& mark) {
    cudaStream_t const where = stream(on);
    if (board_.failed()) return;
    begin();
    if (mark.on != on && mark.step == step_) mark.mark.wait(where);
  }

  /// Returns when every lane is idle. Throws if an op of this rank or of its group failed.
  void drain() {
    if (begun_) capturing_ ? join() : finish();
    begun_ = capturing_ = false;
    ++step_;
    if (!board_.failed()) return;
    auto const what = board_.first();
    if (&board_ == &own_board_) own_board_.clear();
    throw_step_error(what);
  }

  cudaStream_t stream(lane on) const {
    if (index(on) >= std::size(streams_) || !streams_[index(on)])
      throw std::invalid_argument(std::string("stretto::cuda::lanes has no lane '") + name_of(on) +
                                  "'; ask for it with lane_options::peers");
    return streams_[index(on)]->get();
  }
  int rank() const noexcept { return options_.rank; }

  /// What ran since the last `clear_timeline`, by start. Only after `drain`.
  std::vector<span> timeline() {
    std::vector<span> all;
    if (options_.spans == 0) return all;
    for (auto& each : watches_) each.append(all, options_.rank, epoch_, epoch_us_);
    std::sort(all.begin(), all.end(), [](span const& a, span const& b) { return a.start_us < b.start_us; });
    return all;
  }
  /// Only after `drain`.
  void clear_timeline() {
    for (auto& each : watches_) each.clear();
    if (options_.spans == 0) return;
    // Times since an event are floats: near ones are exact.
    auto& base = time_base::of_device(device_);
    epoch_.record(stream(lane::compute));
    epoch_.synchronize();
    epoch_us_ = base.us + microseconds_between(base.mark, epoch_);
  }

private:
  static constexpr std::size_t index(lane on) noexcept { return static_cast<std::size_t>(on); }

  void begin() {
    if (begun_) return;
    cudaStream_t const outside = follow_.current();
    capturing_ = is_capturing(outside);
    begun_ = true;
    before_.record(outside);
    for (auto const& each : streams_)
      if (each) before_.wait(each->get());
  }

  void finish() {
    for (auto const& each : streams_) {
      if (!each) continue;
      if (auto const result = cudaStreamSynchronize(each->get()); result != cudaSuccess)
        board_.report({options_.rank,
                       false,
                       {},
                       std::string("something that the step put on the GPU ended with '") +
                           cudaGetErrorString(result) + "'; lane_options::check_each_op finds the op",
                       std::make_exception_ptr(error(result, "cudaStreamSynchronize"))});
    }
  }

  /// After a failure too, as far as it goes: a capture does not end as long as a stream has not come back.
  void join() {
    try {
      for (auto const& each : streams_) {
        if (!each) continue;
        after_.record(each->get());
        after_.wait(follow_.current());
      }
    } catch (std::exception const& problem) {
      if (!board_.failed())
        board_.report({options_.rank, false, {}, problem.what(), std::current_exception()});
    }
  }

  lane_options const options_;
  Follow follow_;
  Board own_board_;
  Board& board_;
  int device_ = 0;
  bool begun_ = false, capturing_ = false;
  unsigned long step_ = 1;
  edge before_, after_;
  std::optional<cuda::stream> streams_[static_cast<std::size_t>(lane::forward_port)];
  std::vector<stopwatch> watches_;
  time_mark epoch_;
  double epoch_us_ = 0;
};

static_assert(lane_adapter<lanes<>>);

} // namespace cuda
} // namespace v0
} // namespace stretto
