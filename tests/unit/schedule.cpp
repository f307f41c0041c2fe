#include "unit/agreement.hpp"

#include <stretto/pipelines/all.hpp>

#include <random>

using namespace stretto;
using toy::Model;

namespace {

struct Chunks {
  std::vector<int> begins;
  int first(int chunk) const { return begins[static_cast<unsigned>(chunk)]; }
};
struct body {
  form what;
  int f, b;
  bool operator==(body const&) const = default;
};
std::vector<body> bodies_of(call const& c, Chunks const& layers) {
  std::vector<body> all;
  detail::for_each_body(
      c, layers, [](int) { return true; },
      [&all](detail::body_call const& one) {
        all.push_back({one.what, one.forward_layer, one.backward_layer});
      });
  return all;
}

/// Peers of a step that is never run.
struct silent_peers {
  using tensor = toy::number;
  void send(message const&, tensor const&) {}
  tensor receive(message const&) { return {}; }
};

template <class S> flat_table table_of(std::string const& picture, sizes const& wanted) {
  toy::network<typename S::model> net(picture, wanted.microbatches);
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  silent_peers peers;
  return executor(S{}, backend{numbers, lanes, peers}, net.layers, wanted).table();
}

/// The waits that the whole table needs, derived with all of it in view.
flat_table derived(flat_table table) {
  link(table.ops.data(), static_cast<int>(table.ops.size()), table.groups, table.layers);
  return table;
}
int different_waits(flat_table const& a, flat_table const& b) {
  int count = 0;
  for (unsigned i = 0; i < a.ops.size(); ++i)
    for (unsigned l = 0; l < lane_count; ++l) count += a.ops[i].wait[l] != b.ops[i].wait[l];
  return count;
}

} // namespace

TEST_CASE("a schedule finds its policies in any order", "[schedule]") {
  using one = Schedule<toy::MoeLayer, TwoStream1F1B>;
  STATIC_CHECK(std::same_as<one::model, Blocks<toy::MoeLayer>>);
  STATIC_CHECK(std::same_as<one::policy, TwoStream1F1B>);
  STATIC_CHECK(std::same_as<one::rank_plan, OneFOneBOverlapped>);
  STATIC_CHECK_FALSE(one::splits);
  using other = Schedule<Model, SplitDW, DualPipeV, TwoStream1F1B>;
  STATIC_CHECK(std::same_as<other::model, Model>);
  STATIC_CHECK(std::same_as<other::policy, TwoStream1F1B>);
  STATIC_CHECK(std::same_as<other::rank_plan, DualPipeV>);
  STATIC_CHECK(other::splits);
  STATIC_CHECK(std::same_as<Schedule<Model, Serial>::rank_plan, SerialPipeline>);
}

TEST_CASE("schedules that ship are proved", "[schedule]") {
  STATIC_CHECK(proof<Schedule<Model, Serial>>::holds);
  STATIC_CHECK(proof<Schedule<Model, TwoStream1F1B, SplitDW>>::holds);
  STATIC_CHECK(proof<Schedule<Model, TwoStream1F1B, SplitDW, DualPipeV>>::holds);
  STATIC_CHECK(proof<Schedule<toy::OddModel, TwoStream1F1B, ZeroBubbleV>>::holds);
}

TEST_CASE("the first forward layer meets the last backward layer", "[steps]") {
  Chunks const layers{{0, 3, 3, 5}};
  CHECK(bodies_of(call::pair(0, 1, 0, 0), layers) == std::vector<body>{{form::forward_backward, 0, 2},
                                                                       {form::forward_backward, 1, 1},
                                                                       {form::forward_backward, 2, 0}});
  SECTION("what is left runs alone") {
    CHECK(bodies_of(call::pair(0, 1, 2, 0), layers) == std::vector<body>{{form::forward_backward, 0, 4},
                                                                         {form::forward_backward, 1, 3},
                                                                         {form::forward, 2, -1}});
    CHECK(bodies_of(call::pair(2, 1, 0, 0), layers) == std::vector<body>{{form::forward_backward, 3, 2},
                                                                         {form::forward_backward, 4, 1},
                                                                         {form::backward, -1, 0}});
  }
  SECTION("a chunk without layers has no bodies") {
    CHECK(bodies_of(call::pair(1, 1, 0, 0), layers) ==
          std::vector<body>{{form::backward, -1, 2}, {form::backward, -1, 1}, {form::backward, -1, 0}});
    CHECK(bodies_of(call::pair(0, 1, 1, 0), layers) ==
          std::vector<body>{{form::forward, 0, -1}, {form::forward, 1, -1}, {form::forward, 2, -1}});
    CHECK(bodies_of(call::forward(1, 0), layers).empty());
  }
  SECTION("halves alone") {
    CHECK(bodies_of(call::backward_input(2, 0), layers) ==
          std::vector<body>{{form::backward_input, -1, 4}, {form::backward_input, -1, 3}});
    CHECK(bodies_of(call::backward_weight(2, 0), layers) ==
          std::vector<body>{{form::backward_weight, -1, 4}, {form::backward_weight, -1, 3}});
    CHECK(bodies_of(call::forward(2, 0), layers) ==
          std::vector<body>{{form::forward, 3, -1}, {form::forward, 4, -1}});
  }
}

TEST_CASE("a microbatch keeps its slot while it is in flight, and slots are reused", "[steps][megatron-09]") {
  auto const slots_of = []<class P>(P, int ranks, int rank, int microbatches) {
    plan const all = proved_plan<P>(ranks, microbatches);
    detail::placed_steps const placed = detail::place_steps(all, lower_messages(all), rank);
    int const slots = placed.slots;
    // Who holds a slot, and how many chunks of it are still to come.
    std::vector<int> holder(static_cast<unsigned>(slots), -1), left(static_cast<unsigned>(slots), 0);
    auto const use = [&](int slot, int microbatch) {
      REQUIRE(slot >= 0);
      REQUIRE(slot < slots);
      int& held = holder[static_cast<unsigned>(slot)];
      if (held < 0) held = microbatch, left[static_cast<unsigned>(slot)] = all.facts().chunks;
      CHECK(held == microbatch);
    };
    for (detail::placed_step const& s : placed.steps) {
      if (s.is_receive) {
        use(s.arriving.gradient ? s.backward_slot : s.forward_slot, s.arriving.microbatch);
        continue;
      }
      if (s.what.runs_forward()) use(s.forward_slot, s.what.forward_microbatch);
      if (s.what.runs_input() || s.what.runs_weight()) use(s.backward_slot, s.what.backward_microbatch);
      if (s.what.runs_weight() && --left[static_cast<unsigned>(s.backward_slot)] == 0)
        holder[static_cast<unsigned>(s.backward_slot)] = -1;
    }
    for (int const held : holder) CHECK(held == -1);
    return slots;
  };
  CHECK(slots_of(SerialPipeline{}, 1, 0, 5) == 1);
  CHECK(slots_of(OneFOneBOverlapped{}, 1, 0, 8) == 2);
  CHECK(slots_of(OneFOneB{}, 4, 0, 8) == 4);
  CHECK(slots_of(OneFOneB{}, 4, 3, 8) == 1);
  CHECK(slots_of(GPipe{}, 2, 0, 6) == 6);
  CHECK(slots_of(toy::LateWeights{}, 1, 0, 4) == 4);
  for (int rank = 0; rank < 4; ++rank) CHECK(slots_of(DualPipeV{}, 4, rank, 12) <= 9);
  for (int rank = 0; rank < 4; ++rank) CHECK(slots_of(ZeroBubbleV{}, 4, rank, 12) <= 8);
}

TEST_CASE("each further pair of MoE layers adds 8 waits: 6 inside and 2 to the pair before", "[lower]") {
  using S = Schedule<Model, TwoStream1F1B, SplitDW>;
  auto const waits = [](std::string const& picture, int microbatches) {
    return table_of<S>(picture, {.microbatches = microbatches}).waits();
  };
  // One more microbatch is one more pair of every layer with a layer of another microbatch.
  for (int const layers : {1, 2, 3, 4}) {
    std::string const picture = "E" + std::string(static_cast<unsigned>(layers), 'M') + "H";
    std::string const longer = "EM" + picture.substr(1);
    CAPTURE(picture);
    CHECK(waits(longer, 6) - waits(longer, 5) - (waits(picture, 6) - waits(picture, 5)) == 8);
  }
  flat_table const table = table_of<S>("EMMMH", {.microbatches = 3});
  auto const& ops = table.ops;
  // The forward of layer 2, microbatch 2, runs beside the backward of layer 2, microbatch 1.
  int inside = 0, outside = 0;
  for (op const& o : ops) {
    if (o.layer != 2 || o.microbatch != (o.is_forward() ? 2 : 1)) continue;
    for (int w : o.wait) {
      if (w < 0) continue;
      op const& e = ops[static_cast<unsigned>(w)];
      bool const same = e.layer == 2 && e.microbatch == (e.is_forward() ? 2 : 1);
      ++(same ? inside : outside);
    }
  }
  CHECK(inside == 6);
  CHECK(outside == 2);
}

TEST_CASE("pasted bodies wait as the whole table says, layer after equal layer", "[lower]") {
  auto const compare = []<class S>(S, std::vector<std::string> const& pictures, int microbatches) {
    for (std::string const& picture : pictures) {
      CAPTURE(picture);
      flat_table const pasted = table_of<S>(picture, {.microbatches = microbatches});
      CHECK(pasted.waits() > 0);
      CHECK(different_waits(pasted, derived(pasted)) == 0);
    }
  };
  std::vector<std::string> const one = {"EMH", "EMMH", "EMMMMMMH"}, two = {"EMM|MMH", "EMMM|MMMH"};
  compare(Schedule<Model, TwoStream1F1B, SplitDW>{}, one, 6);
  compare(Schedule<Model, TwoStream1F1B>{}, one, 6);
  compare(Schedule<Model, TwoStream1F1B, SplitDW, toy::CrossedChunks>{}, two, 6);
  compare(Schedule<Model, TwoStream1F1B, SplitDW, DualPipeV>{}, two, 6);
}

TEST_CASE("no wait of a homogeneous step is superfluous", "[lower]") {
  flat_table table =
      table_of<Schedule<Model, TwoStream1F1B, SplitDW, toy::CrossedChunks>>("EMM|MMH", {.microbatches = 4});
  REQUIRE_FALSE(table.check());
  int removed = 0;
  for (op& o : table.ops)
    for (int& w : o.wait) {
      if (w < 0) continue;
      int const kept = std::exchange(w, -1);
      CHECK(table.check().what == fault::race);
      w = kept;
      ++removed;
    }
  CHECK(removed == table.waits());
}

TEST_CASE("mixed layers and messages wait at most 2 % more than the whole table needs", "[lower]") {
  std::mt19937 random(4);
  long pasted = 0, minimal = 0, different = 0;
  auto const add = [&]<class S>(S, std::string const& picture, sizes const& wanted) {
    flat_table const table = table_of<S>(picture, wanted);
    REQUIRE_FALSE(table.check());
    pasted += table.waits();
    minimal += derived(table).waits();
    different += different_waits(table, derived(table));
  };
  for (int round = 0; round < 40; ++round) {
    auto const layers = [&random] {
      std::string some;
      for (auto n = random() % 5; n > 0; --n) some += random() % 2 == 0 ? 'D' : 'M';
      return some;
    };
    int const microbatches = 2 + static_cast<int>(random() % 7);
    add(Schedule<Model, TwoStream1F1B, SplitDW>{}, "E" + layers() + "H", {.microbatches = microbatches});
    add(Schedule<Model, TwoStream1F1B, SplitDW, DualPipeV>{}, "E" + layers() + "|" + layers() + "H",
        {.microbatches = microbatches});
    int const ranks = 2 + static_cast<int>(random() % 3);
    for (int rank = 0; rank < ranks; ++rank)
      add(Schedule<Model, TwoStream1F1B, SplitDW, DualPipeV>{},
          (rank == 0 ? "E" : "") + layers() + "|" + layers() + (rank == 0 ? "H" : ""),
          {.microbatches = microbatches + 2 * ranks, .ranks = ranks, .rank = rank});
  }
  CAPTURE(pasted, minimal, different);
  CHECK(minimal > 1000);
  CHECK(pasted >= minimal);
  CHECK(static_cast<double>(pasted) <= 1.02 * static_cast<double>(minimal));
}
