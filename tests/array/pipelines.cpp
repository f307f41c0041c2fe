#include "array/mishaps.hpp"

#include <stretto/pipelines/all.hpp>

using namespace mishaps;

namespace {

/// The pictures of the ranks from those of the stages.
template <class Pipeline>
std::vector<std::string> pictures(std::vector<std::string> const& stages, int ranks) {
  std::vector<std::string> all(static_cast<std::size_t>(ranks));
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    int const round = stage / ranks, place = stage % ranks;
    int const owner = Pipeline::map == placement::vee && round % 2 == 1 ? ranks - 1 - place : place;
    for (int rank = 0; rank < ranks; ++rank) {
      std::string& mine = all[static_cast<std::size_t>(rank)];
      if (rank == owner && round > 0) mine += '|';
      for (char const kind : stages[static_cast<std::size_t>(stage)])
        mine += rank == owner ? kind : static_cast<char>(kind + ('a' - 'A'));
    }
  }
  return all;
}

/// What all ranks with one rank of experts have together.
template <class S> std::vector<numbered_bits> train(grid const& of) {
  std::vector<outcome> const all = steps_of<S>(of).with(mishap::none, -1, -1);
  std::vector<numbered_bits> found(static_cast<std::size_t>(of.expert_ranks));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    INFO(all[rank].error);
    REQUIRE(all[rank].error.empty());
    for (auto const& [number, bits] : all[rank].bits) {
      bool const is_new = found[rank % found.size()].emplace(number, bits).second;
      CHECK(is_new);
    }
  }
  return found;
}

template <class S>
void gives_the_bits_of_one_rank(std::vector<std::string> const& stages, int ranks, int microbatches) {
  std::string whole;
  for (std::string const& stage : stages) whole += stage;
  for (int const expert_ranks : {1, 2}) {
    CAPTURE(S::rank_plan::name, whole, ranks, microbatches, expert_ranks);
    auto const expected = train<Schedule<Model, Serial>>({{whole}, expert_ranks, microbatches});
    auto const found = train<S>({pictures<typename S::rank_plan>(stages, ranks), expert_ranks, microbatches});
    CHECK((found == expected));
  }
}

using Overlapped = Schedule<Model, TwoStream1F1B, OneFOneBOverlapped>;
using Halves = Schedule<Model, TwoStream1F1B, SplitDW, DualPipeV>;
using Late = Schedule<Model, TwoStream1F1B, ZeroBubbleH1>;

} // namespace

TEST_CASE("pipelines over ranks give the bits of one rank", "[array][pipelines][building-blocks-18]") {
  gives_the_bits_of_one_rank<Overlapped>({"EM", "DMH"}, 2, 5);
  gives_the_bits_of_one_rank<Overlapped>({"E", "MMD", "MH"}, 3, 4);
  gives_the_bits_of_one_rank<Late>({"EM", "D", "MH"}, 3, 4);
  gives_the_bits_of_one_rank<Halves>({"EM", "M", "DM", "MH"}, 2, 4);
  gives_the_bits_of_one_rank<Halves>({"E", "M", "", "D", "M", "H"}, 3, 5);
}

TEST_CASE("1F1B with pairs: whatever fails at whichever op of a stage, every rank ends with one error and "
          "can go on",
          "[failure][pipelines]") {
  every_op_may_fail<Overlapped>(
      {pictures<OneFOneBOverlapped>({"EM", "MH"}, 2), 1, 2},
      {mishap::phase_throws_at_its_end, mishap::communicator_fails, mishap::rank_leaves});
}
TEST_CASE(
    "DualPipeV: whatever fails at whichever op of a stage, every rank ends with one error and can go on",
    "[failure][pipelines]") {
  every_op_may_fail<Halves>({pictures<DualPipeV>({"E", "M", "D", "MH"}, 2), 1, 3},
                            {mishap::phase_throws_at_once, mishap::communicator_fails});
}
TEST_CASE("ZeroBubbleH1: whatever fails at whichever op of three stages, every rank ends with one error and "
          "can go on",
          "[failure][pipelines]") {
  every_op_may_fail<Late>({pictures<ZeroBubbleH1>({"E", "M", "MH"}, 3), 1, 2},
                          {mishap::phase_throws_at_its_end, mishap::communicator_fails});
}

TEST_CASE("a rank started with fewer microbatches than the others: everyone is told in time",
          "[failure][pipelines]") {
  other_sizes_end_with_a_sentence<Overlapped>({pictures<OneFOneBOverlapped>({"EM", "MH"}, 2), 1, 3});
  other_sizes_end_with_a_sentence<Late>({pictures<ZeroBubbleH1>({"E", "M", "MH"}, 3), 1, 3});
  other_sizes_end_with_a_sentence<Overlapped>({{"EMH"}, 3, 3});
}
