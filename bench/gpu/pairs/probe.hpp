#pragma once

#include "gate.hpp"
#include "work.hpp"

#include <chrono>

namespace layer_pairs {

using clock = std::chrono::steady_clock;
inline double us_since(clock::time_point from) {
  return std::chrono::duration<double, std::micro>(clock::now() - from).count();
}

/// Times of one run of a step on one rank. Steady pairs are measured from one pair to the same place in a later one, on each
/// lane, so that the ramps before and behind them are not in it.
struct step_times {
  double step_us = 0; ///< on the GPU, from the gate to the end
  double compute_pair_us = 0; ///< a pair, by the compute lane
  double comm_pair_us = 0; ///< a pair, by the comm lane
  double host_pair_us = 0; ///< of the thread that issues
  double wall_us = 0; ///< from the first call until the lanes are idle
};

/// What the phases call at the places that are measured, by an executor and by hand.
class probe {
public:
  /// Pairs of the ramp that are left out on either side.
  static constexpr int left_out = 2;

  probe(shape const& of, stream_gate& gate) : shape_(of), gate_(gate) {}

  double step_us() { return cuda::microseconds_between(begin_, end_); }
  int measured_pairs() const { return shape_.pairs() - 1 - left_out; }
  /// The pair after whose start the gate opens although more is to come, since queues have an end.
  int opens_at = 1 << 30;

  void begin(cudaStream_t on, bool gated) {
    waiting_ = gated;
    begin_.record(on);
  }
  void before_attention(int layer, int microbatch, cudaStream_t on) {
    if (microbatch > 0) pass((microbatch - 1) * shape_.layers + layer, compute_, host_, on);
  }
  void before_backward_combine(int layer, int microbatch, cudaStream_t on) {
    if (microbatch + 1 < shape_.microbatches) pass(pair_behind(layer, microbatch), comm_, nullptr, on);
  }
  /// For the all-to-alls alone: as many as in a pair.
  void before_pair(int pair_number, cudaStream_t on) {
    pass(pair_number, compute_, host_, on);
    pass(pair_number, comm_, nullptr, on);
  }
  /// Behind the last op.
  void end(cudaStream_t on) {
    end_.record(on);
    arrive();
  }
  /// Once everything has run.
  step_times times() {
    double const pairs = measured_pairs();
    return {step_us(), cuda::microseconds_between(compute_[0], compute_[1]) / pairs,
            cuda::microseconds_between(comm_[0], comm_[1]) / pairs,
            std::chrono::duration<double, std::micro>(host_[1] - host_[0]).count() / pairs, 0};
  }

private:
  /// The backward of a layer runs beside the forward of the next microbatch.
  int pair_behind(int layer, int microbatch) const {
    return microbatch * shape_.layers + shape_.layers - 1 - layer;
  }
  void pass(int pair, cuda::time_mark* marks, clock::time_point* host, cudaStream_t on) {
    if (pair == opens_at) arrive();
    if (pair != left_out && pair != shape_.pairs() - 1) return;
    int const which = pair != left_out;
    marks[which].record(on);
    if (host) host[which] = clock::now();
  }
  void arrive() {
    if (std::exchange(waiting_, false)) gate_.arrive();
  }

  shape shape_;
  stream_gate& gate_;
  bool waiting_ = false;
  cuda::time_mark begin_, end_, compute_[2], comm_[2];
  clock::time_point host_[2];
};

/// One rank's work as the phases see it.
struct rank_work {
  buffers* data;
  exchange* rows;
  probe* times;
  gemms* compute; ///< of the stream of whoever issues now
};

} // namespace layer_pairs
