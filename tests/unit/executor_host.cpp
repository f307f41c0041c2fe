#include "unit/agreement.hpp"

#include <stretto/adapters/host.hpp>

#include "support/toy_rows.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

using namespace stretto;
using Catch::Matchers::ContainsSubstring;
using toy::Model;

namespace {

host::lane_options shaken(unsigned seed, double microseconds = 60) {
  host::lane_options options;
  options.shake_seed = seed;
  options.shake_us = microseconds;
  return options;
}

/// Steps over threads that sleep at random; how many of them gave other bits than the serial policy does.
template <class S, class Number>
int wrong_steps(std::string const& picture, int microbatches, int steps, unsigned seed,
                bool until_wrong = false) {
  auto const expected = toy::serial_bits<Model>(picture, microbatches);
  toy::network<typename S::model> net(picture, microbatches);
  toy::tensors<Number> numbers;
  host::lanes lanes(shaken(seed));
  executor run(unproved{}, S{}, backend{numbers, lanes}, net.layers, sizes{.microbatches = microbatches});
  int wrong = 0;
  for (int step = 0; step < steps && !(until_wrong && wrong > 0); ++step) {
    net.clear();
    run();
    wrong += net.bits() != expected;
  }
  return wrong;
}

/// Three block types are enough for a pair of MoE layers, and quicker to compile.
struct Small : Blocks<toy::EmbedLayer, toy::MoeLayer, toy::HeadLayer> {};
using Sound = Schedule<Small, TwoStream1F1B, SplitDW>;
constexpr int moe = 1;
constexpr auto const& moe_pair = body_of<Sound, form::forward_backward, moe, moe>::value;

/// The n-th wait of the pair of MoE layers.
struct place {
  int row = -1, on = -1;
};
constexpr place wait_number(int n) {
  for (int i = 0; i < moe_pair.size; ++i)
    for (int l = 0; l < lane_count; ++l)
      if (moe_pair.ops[i].wait[l] >= 0 && n-- == 0) return {i, l};
  return {};
}

/// The shipped schedule but for one wait of that pair.
template <int Wait> struct Forgetful : Sound {
  template <form F, int Forward, int Backward> static constexpr detail::draft make_body() {
    detail::draft d = Sound::make_body<F, Forward, Backward>();
    if (F == form::forward_backward && Forward == moe && Backward == moe) {
      constexpr place p = wait_number(Wait);
      d.ops[p.row].wait[p.on] = -1;
    }
    return d;
  }
};

template <int Wait> void forgetting_shows() {
  constexpr place p = wait_number(Wait);
  op const &o = moe_pair.ops[p.row], &awaited = moe_pair.ops[o.wait[p.on]];
  CAPTURE(Wait, toy::name_of_row<Small>(o), toy::name_of_row<Small>(awaited));
  // The checker sees it without running anything.
  toy::network<Small> net("EMMH", 4);
  toy::tensors<toy::racy_number> numbers;
  null_lanes lanes;
  executor const made(unproved{}, Forgetful<Wait>{}, backend{numbers, lanes}, net.layers,
                      sizes{.microbatches = 4});
  CHECK(made.table().check().what == fault::race);
  CHECK(wrong_steps<Forgetful<Wait>, toy::racy_number>("EMMMH", 6, 400, 1 + Wait, true) > 0);
}

} // namespace

TEST_CASE("random delays change nothing", "[host][executor]") {
  for (unsigned const seed : {1u, 2u, 3u}) {
    CHECK(wrong_steps<Schedule<Model, Serial>, toy::number>("EMDMH", 4, 2, seed) == 0);
    CHECK(wrong_steps<Schedule<Model, TwoStream1F1B>, toy::number>("EMDMH", 4, 5, seed) == 0);
    CHECK(wrong_steps<Schedule<Model, TwoStream1F1B, SplitDW>, toy::number>("EMMDMMH", 5, 5, seed) == 0);
  }
}

TEST_CASE("random delays change nothing across chunks", "[host][executor]") {
  auto const expected = toy::serial_bits<Model>("EMMDMH", 5);
  for (std::string const picture : {"EMM|DMH", "E|MMDMH", "EMMDMH|", "|EMMDMH"}) {
    using S = Schedule<Model, TwoStream1F1B, SplitDW, toy::CrossedChunks>;
    toy::network<Model> net(picture, 5);
    toy::tensors<toy::number> numbers;
    host::lanes lanes(shaken(7));
    executor run(S{}, backend{numbers, lanes}, net.layers, sizes{.microbatches = 5});
    for (int step = 0; step < 5; ++step) {
      net.clear();
      run();
      CAPTURE(picture, step);
      CHECK(net.bits() == expected);
    }
  }
}

TEST_CASE("each wait of the MoE pair is needed: without it the bits come out wrong", "[host][executor]") {
  STATIC_REQUIRE(moe_pair.waits() == 8);
  CHECK(wrong_steps<Sound, toy::racy_number>("EMMMH", 6, 60, 1) == 0);
  forgetting_shows<0>();
  forgetting_shows<1>();
  forgetting_shows<2>();
  forgetting_shows<3>();
  forgetting_shows<4>();
  forgetting_shows<5>();
  forgetting_shows<6>();
  forgetting_shows<7>();
}

TEST_CASE("a phase that throws ends the step with its name, and the next step is right", "[host][executor]") {
  int const microbatches = 4;
  auto const expected = toy::serial_bits<Model>("EMDMH", microbatches);
  toy::network<Model> net("EMDMH", microbatches);
  toy::tensors<toy::number> numbers;
  host::lanes lanes(shaken(3));
  executor run(Schedule<Model, TwoStream1F1B, SplitDW>{}, backend{numbers, lanes}, net.layers,
               sizes{.microbatches = microbatches});
  struct burn {
    int fuse;
    char const* where;
  };
  // Negative numbers burn in the backward of that microbatch; the last layer comes first there.
  for (burn const& b :
       {burn{0, "F.mlp of layer 1, microbatch 0"}, burn{2, "F.mlp of layer 1, microbatch 2"},
        burn{-3, "I.mlp of layer 3, microbatch 1"}, burn{-5, "I.mlp of layer 3, microbatch 3"}}) {
    CAPTURE(b.where);
    net.burns.microbatch = b.fuse;
    CHECK_THROWS_WITH(run(), ContainsSubstring(b.where) && ContainsSubstring("the fuse has blown"));
    net.burns.microbatch = -1;
    net.clear();
    run();
    CHECK(net.bits() == expected);
  }
}
