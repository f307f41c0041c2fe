#include "array/book.hpp"

#include "support/toy_train.hpp"

#include <stretto/pipelines/all.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdio>

using namespace memory_test;

namespace {

template <class S>
std::vector<watched_step> watch_all(int ranks, std::string const& picture, int microbatches) {
  std::vector<watched_step> all(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run(
      [&](int rank) { all[static_cast<std::size_t>(rank)] = watch<S>(group, rank, picture, microbatches); });
  return all;
}

std::size_t most(std::vector<std::size_t> const& of) { return *std::max_element(of.begin(), of.end()); }

/// One line of the table that this test prints.
void print_line(char const* policy, int ranks, std::string const& picture, int microbatches,
                watched_step const& rank) {
  std::size_t differ = 0;
  for (std::size_t row = 0; row < rank.measured.size(); ++row)
    differ += rank.measured[row] != rank.expected[row];
  std::printf("%-24s %2d  %-6s %3d %5zu %10zu %10zu %7zu %5zu\n", policy, ranks, picture.c_str(),
              microbatches, rank.measured.size(), most(rank.measured), most(rank.expected), differ,
              rank.left);
}

template <class... Policies>
void table_tells_what_lives(char const* policy, std::vector<std::string> const& pictures) {
  for (int const ranks : {1, 2, 3})
    for (std::string const& picture : pictures)
      for (int const microbatches : {1, 2, 5}) {
        CAPTURE(policy, ranks, picture, microbatches);
        bool is_first = true;
        for (watched_step const& rank :
             watch_all<Schedule<Model, Policies...>>(ranks, picture, microbatches)) {
          CHECK(rank.measured == rank.expected);
          CHECK(rank.measured.size() == rank.table.ops.size());
          CHECK(rank.left == 0);
          if (&picture == &pictures.back() && microbatches == 5 && is_first)
            print_line(policy, ranks, picture, microbatches, rank);
          is_first = false;
        }
      }
}

std::vector<std::string> const mixes = {"EH", "EMH", "EDH", "EMDMH", "EDMMDH"};

/// A tensor adapter that keeps what it should give back.
class hoarding : public array::tensors {
public:
  void release(tensor&) const {}
};

} // namespace

TEST_CASE("after every op lives what the table says", "[array][memory]") {
  std::printf("bytes that live after every op of rank 0, measured and by the table of ops\n"
              "%-24s %2s  %-6s %3s %5s %10s %10s %7s %5s\n",
              "policy", "EP", "layers", "M", "ops", "most", "by table", "differ", "left");
  table_tells_what_lives<Serial>("Serial", mixes);
  table_tells_what_lives<TwoStream1F1B>("TwoStream1F1B", mixes);
  table_tells_what_lives<TwoStream1F1B, SplitDW>("TwoStream1F1B, SplitDW", mixes);
  table_tells_what_lives<Serial, SplitDW>("Serial, SplitDW", {"EMDMH"});
  table_tells_what_lives<TwoStream1F1B, SplitDW, toy::LateWeights>("SplitDW, LateWeights", {"EMDMH"});
  table_tells_what_lives<TwoStream1F1B, SplitDW, toy::CrossedChunks>("SplitDW, CrossedChunks",
                                                                     {"EM|DMH", "EMD|MH"});
}

TEST_CASE("a late release, or none, shows", "[array][memory][pipelines-b]") {
  using S = Schedule<Model, TwoStream1F1B, SplitDW>;
  host::group group(1);
  CHECK(watch<S>(group, 0, "EMMH", 3).measured == watch<S>(group, 0, "EMMH", 3).expected);
  watched_step const late = watch<S>(group, 0, "EMMH", 3, 1);
  CHECK(late.measured != late.expected);
  watched_step const never = watch<S, hoarding>(group, 0, "EMMH", 3);
  CHECK(never.measured != never.expected);
}

TEST_CASE("an op finds the memory of what its lane has waited for", "[array][memory][megatron-23]") {
  auto check = []<class S>(S, bool one_lane) {
    watched_step const step = watch_all<S>(1, "EMDMH", 4)[0];
    std::size_t begun = 0, less_than_before = 0;
    for (auto const& [row, found, expected] : step.begins) {
      CAPTURE(row);
      CHECK(found == expected);
      ++begun;
      less_than_before += row > 0 && found < step.measured[static_cast<std::size_t>(row - 1)];
    }
    CHECK(begun == 4 * (1 + 4 + 2 + 4 + 1));
    // On one lane the last reader of everything gives it back.
    CHECK((less_than_before == 0) == one_lane);
  };
  check(Schedule<Model, Serial>{}, true);
  check(Schedule<Model, TwoStream1F1B>{}, false);
  check(Schedule<Model, TwoStream1F1B, SplitDW>{}, false);
}

TEST_CASE("storage goes back as early as its lane can know", "[array][memory][megatron-23]") {
  auto check = []<class S>(S, char const* policy) {
    for (std::string const& picture : mixes) {
      CAPTURE(picture);
      watched_step const step = watch_all<S>(1, picture, 6)[0];
      release_counts const& found = step.releases;
      if (picture == "EDMMDH")
        std::printf(
            "%-22s of %d releases %d (%.1f %%) at the optimum, %d of these with the last use itself, else "
            "%.1f ops behind it; %d when the step has drained\n",
            policy, found.all, found.at_optimum, 100.0 * found.at_optimum / found.all, found.at_last_use,
            static_cast<double>(found.rows_behind_last_use) /
                std::max(1, found.at_optimum - found.at_last_use),
            found.at_drain);
      CHECK(found.later_than_optimum == 0);
      CHECK(found.at_optimum + found.at_drain == found.all);
      // Only what the last backward dispatch and combine of the step wrote, which compute reads after them.
      bool const has_experts = picture.find('M') != std::string::npos;
      CHECK(found.at_drain <= (has_experts ? 5 : 0));
      for (release const& r : step.planned) {
        if (r.row < static_cast<int>(step.table.ops.size())) continue;
        op const* last = step.table.ops.end() - 1;
        while (last != step.table.ops.begin() && !touches(*last, r, true)) --last;
        CHECK(last->on == lane::comm);
        CHECK(last->microbatch == 5);
      }
    }
  };
  check(Schedule<Model, Serial>{}, "Serial");
  check(Schedule<Model, TwoStream1F1B>{}, "TwoStream1F1B");
  check(Schedule<Model, TwoStream1F1B, SplitDW>{}, "TwoStream1F1B, SplitDW");
}

TEST_CASE("weight gradients wait within their pair", "[array][memory][pipelines-19]") {
  flat_table const table = watch_all<Schedule<Model, TwoStream1F1B, SplitDW>>(1, "EMDMMH", 6)[0].table;
  std::vector<std::pair<int, int>> pending; // layer and microbatch of nodes whose W has not run
  std::size_t seen = 0, at_most = 0;
  for (op const& o : table.ops) {
    if (o.what == pass::backward_input) pending.push_back({o.layer, o.microbatch});
    for (auto const& each : pending) CHECK(each == pending.front());
    at_most = (std::max)(at_most, pending.size());
    if (o.what == pass::backward_weight) {
      REQUIRE(!pending.empty());
      pending.pop_back();
      ++seen;
    }
  }
  CHECK(pending.empty());
  CHECK(seen > 0);
  std::printf("TwoStream1F1B, SplitDW: at most %zu weight passes wait, all of one layer and microbatch\n",
              at_most);
}

TEST_CASE("two streams hold one microbatch more than one", "[array][memory]") {
  int const microbatches = 6;
  std::string const picture = "EMDMMH";
  auto const serial = watch_all<Schedule<Model, Serial>>(2, picture, microbatches);
  auto const two = watch_all<Schedule<Model, TwoStream1F1B>>(2, picture, microbatches);
  auto const split = watch_all<Schedule<Model, TwoStream1F1B, SplitDW>>(2, picture, microbatches);
  for (std::size_t rank = 0; rank < serial.size(); ++rank) {
    // What the forward of a microbatch leaves for its backward.
    std::size_t one = 0;
    for (std::size_t row = 0; row < serial[rank].table.ops.size(); ++row)
      if (row + 1 < serial[rank].table.ops.size() && serial[rank].table.ops[row].is_forward() &&
          !serial[rank].table.ops[row + 1].is_forward())
        one = std::max(one, serial[rank].measured[row]);
    std::printf("rank %zu of 2, layers %s, %d microbatches: one holds %zu bytes; at most live, between ops: "
                "Serial %zu, "
                "TwoStream1F1B %zu, with SplitDW %zu; within ops: %zu, %zu, %zu\n",
                rank, picture.c_str(), microbatches, one, most(serial[rank].measured),
                most(two[rank].measured), most(split[rank].measured), serial[rank].peak, two[rank].peak,
                split[rank].peak);
    CHECK(most(two[rank].measured) <= most(serial[rank].measured) + one);
    CHECK(most(split[rank].measured) <= most(serial[rank].measured) + one);
    CHECK(most(two[rank].measured) > most(serial[rank].measured));
  }
}

TEST_CASE("a thousand steps take and give back the same",
          "[array][memory][megatron-22][building-blocks-03]") {
  host::group group(1);
  auto exchange = group.communicator(0);
  own_tensors::shape const shape{
      .vocabulary = 5, .hidden = 3, .inner = 3, .experts = 2, .top_k = 1, .words = 4};
  Comm comm(exchange, shape.experts);
  array::tensors arrays;
  Network net("EMDH", shape, arrays, comm, 3);
  net.next_batches(0);
  watched_lanes lanes;
  executor run(Schedule<Model, TwoStream1F1B, SplitDW>{}, backend{arrays, lanes}, net.layers,
               sizes{.microbatches = 3});
  std::size_t const parameters = arrays.memory().live();
  run();
  std::size_t const peak = arrays.memory().peak(), taken = arrays.memory().taken();
  run();
  std::size_t const each = arrays.memory().taken() - taken;
  for (int step = 2; step < 1000; ++step) run();
  CHECK(arrays.memory().live() == parameters);
  CHECK(arrays.memory().peak() == peak);
  CHECK(arrays.memory().taken() == taken + 999 * each);
}
