#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>
#include <stretto/simulate.hpp>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace stretto;
using Catch::Approx;

namespace {

/// Four layers of the DualPipe trace (deepseek-ai/profile-data), compute and communication per layer in ms.
constexpr chunk_costs h800{9.0, 15.4, 14.6, 13.3, 7.5, 0};

template <class Pipeline> double ratio(int ranks, int microbatches, chunk_costs costs, int chunks = 2) {
  plan const made = proved_plan<Pipeline>(ranks, microbatches, chunks);
  return simulation(made, costs.scaled(2.0 / chunks)).ratio();
}

/// Makespan less the work of the busiest rank.
template <class Pipeline> double bubble(int ranks, int microbatches, chunk_costs costs = {}, int chunks = 0) {
  plan const made = proved_plan<Pipeline>(ranks, microbatches, chunks);
  simulation const run(made, costs);
  double least = run.bubble(0);
  for (int rank = 1; rank < ranks; ++rank) least = std::min(least, run.bubble(rank));
  return least;
}

} // namespace

TEST_CASE("the published costs give the measured ratios within two percent") {
  struct row {
    int ranks, microbatches;
    double dual_pipe_v, two_chunks, four_chunks, zero_bubble_v, interleaved;
  };
  for (row const& one :
       {row{4, 8, 1.82, 1.68, 1.57, 2.17, 2.28}, row{4, 16, 1.41, 1.34, 1.28, 2.05, 2.10},
        row{8, 32, 1.42, 1.36, 1.29, 2.07, 2.13}, row{8, 64, 1.21, 1.18, 1.15, 2.00, 2.03}}) {
    CHECK(ratio<DualPipeV>(one.ranks, one.microbatches, h800) == Approx(one.dual_pipe_v).epsilon(0.02));
    CHECK(ratio<InterleavedOverlapped<>>(one.ranks, one.microbatches, h800) ==
          Approx(one.two_chunks).epsilon(0.02));
    CHECK(ratio<InterleavedOverlapped<>>(one.ranks, one.microbatches, h800, 4) ==
          Approx(one.four_chunks).epsilon(0.02));
    CHECK(ratio<ZeroBubbleV>(one.ranks, one.microbatches, h800) == Approx(one.zero_bubble_v).epsilon(0.02));
    CHECK(ratio<Interleaved<>>(one.ranks, one.microbatches, h800) == Approx(one.interleaved).epsilon(0.02));
  }
}

TEST_CASE("half and none of the communication give the measured ratios within two percent") {
  chunk_costs half = h800, none = h800;
  half.forward_comm /= 2, half.input_comm /= 2;
  none.forward_comm = none.input_comm = 0;
  CHECK(ratio<DualPipeV>(8, 32, half) == Approx(1.25).epsilon(0.02));
  CHECK(ratio<InterleavedOverlapped<>>(8, 32, half) == Approx(1.22).epsilon(0.02));
  CHECK(ratio<InterleavedOverlapped<>>(8, 32, half, 4) == Approx(1.17).epsilon(0.02));
  CHECK(ratio<ZeroBubbleV>(8, 32, half) == Approx(1.56).epsilon(0.02));
  CHECK(ratio<Interleaved<>>(8, 32, half) == Approx(1.62).epsilon(0.02));
  CHECK(ratio<DualPipeV>(8, 32, none) == Approx(1.10).epsilon(0.02));
  CHECK(ratio<InterleavedOverlapped<>>(8, 32, none) == Approx(1.11).epsilon(0.02));
  CHECK(ratio<InterleavedOverlapped<>>(8, 32, none, 4) == Approx(1.06).epsilon(0.02));
  CHECK(ratio<ZeroBubbleV>(8, 32, none) == Approx(1.05).epsilon(0.02));
  CHECK(ratio<Interleaved<>>(8, 32, none) == Approx(1.11).epsilon(0.02));
}

TEST_CASE("bubbles are those of the published formulas") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    int const microbatches = 3 * ranks, hops = ranks - 1;
    INFO(ranks);
    CHECK(bubble<GPipe>(ranks, microbatches) == Approx(hops * 3));
    CHECK(bubble<OneFOneB>(ranks, microbatches) == Approx(hops * 3));
    CHECK(bubble<Interleaved<>>(ranks, microbatches, {}, 3) == Approx(hops * 3));
    CHECK(bubble<OneFOneBOverlapped>(ranks, microbatches) == Approx(hops * 3));
    CHECK(bubble<InterleavedOverlapped<>>(ranks, microbatches, {}, 3) == Approx(hops * 3));
    CHECK(bubble<ZeroBubbleH1>(ranks, microbatches) == Approx(hops));
    CHECK(bubble<SerialPipeline>(ranks, microbatches) == Approx(microbatches * hops * 3));
    // (P-1)(F&B + B - 3W), a pair as long as its halves in turn.
    CHECK(bubble<DualPipeV>(ranks, microbatches) == Approx(hops * (3 + 2 - 3)));
  }
}

TEST_CASE("a zero-bubble V has no idle time between the first and the last call of a rank") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    plan const made = proved_plan<ZeroBubbleV>(ranks, 3 * ranks);
    simulation const run(made, {});
    for (int rank = 0; rank < ranks; ++rank) {
      double const span =
          run.times().finish[made.first(rank) + made.size(rank) - 1] - run.times().start[made.first(rank)];
      CHECK(span == Approx(run.rank(rank).busy));
    }
  }
}

TEST_CASE("a pair takes its longer lane, a call alone the sum of its phases", "[pipelines-a]") {
  CHECK(h800.duration(call::pair(0, 1, 1, 0)) == Approx(31.1));
  CHECK(h800.exposed(call::pair(0, 1, 1, 0)) == Approx(0));
  CHECK(h800.duration(call::forward(0, 0)) == Approx(24.4));
  CHECK(h800.exposed(call::forward(0, 0)) == Approx(15.4));
  CHECK(h800.duration(call::backward(0, 0)) == Approx(35.4));
  CHECK(h800.duration(call::backward_weight(0, 0)) == Approx(7.5));
  chunk_costs const talk{1, 5, 1, 5, 1, 0};
  CHECK(talk.duration(call::pair(0, 1, 1, 0)) == Approx(10));
  CHECK(talk.exposed(call::pair(0, 1, 1, 0)) == Approx(7));
}

TEST_CASE("a message between ranks delays its reader, one between stages of a rank does not") {
  chunk_costs costs;
  costs.message = 10;
  plan const two = proved_plan<OneFOneB>(2, 1), bend = proved_plan<ZeroBubbleV>(1, 1);
  CHECK(simulation(two, costs).makespan() == Approx(2 * 3 + 2 * 10));
  CHECK(simulation(bend, costs).makespan() == Approx(2 * 3));
}

TEST_CASE("no schedule is shorter than its ideal, and times follow the order of the calls") {
  shipped_pipelines::each([]<class Pipeline>() {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      plan const made = proved_plan<Pipeline>(ranks, 2 * ranks + 1);
      simulation const run(made, h800);
      INFO(Pipeline::name << ' ' << ranks);
      CHECK(run.ratio() >= 1);
      for (int rank = 0; rank < ranks; ++rank) {
        rank_report const& report = run.rank(rank);
        CHECK(report.busy == Approx(report.compute + report.exposed));
        CHECK(report.peak_live <= made.bound(rank));
        for (long at = 1; at < made.size(rank); ++at) {
          long const row = made.first(rank) + at;
          if (run.times().start[row] < run.times().finish[row - 1]) FAIL("calls overlap on rank " << rank);
        }
      }
    }
  });
}
