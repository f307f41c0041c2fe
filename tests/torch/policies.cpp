#include "support/text_file.hpp"

#include <train_moe/corpus.hpp>
#include <train_moe/options.hpp>
#include <train_moe/trainer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <exception>
#include <string>

using namespace train_moe;

namespace {

options small() {
  options o;
  o.ep = 2;
  o.microbatches = 3;
  o.batch = 2;
  o.steps = 3;
  auto& m = o.model;
  m.layers = 3;
  m.dense = 1;
  m.hidden = 16;
  m.heads = 2;
  m.ffn = 8;
  m.experts = 4;
  m.sequence = 12;
  return o;
}

run_result run(options const& o, policy how, corpus const& text) {
  return train(o, how, text, [](progress const&) {});
}

void check_same(run_result const& a, run_result const& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.gradient_digest == b.gradient_digest);
  CHECK(a.held_out_loss == b.held_out_loss);
}

void check_policies(options const& o, corpus const& text) {
  auto const yardstick = run(o, policy::autograd, text);
  REQUIRE(yardstick.losses.size() == static_cast<std::size_t>(o.steps));
  for (auto const each : yardstick.losses) REQUIRE(std::isfinite(each));
  for (auto const how : {policy::serial, policy::two_stream_1f1b, policy::split_dw}) {
    CAPTURE(name_of(how));
    check_same(run(o, how, text), yardstick);
  }
}

} // namespace

TEST_CASE("every policy gives the bits of ordinary autograd", "[torch][megatron-21][building-blocks-07]") {
  text_file const file;
  auto o = small();
  SECTION("microbatches and ranks") {
    o.microbatches = GENERATE(1, 2, 5);
    o.ep = GENERATE(1, 2, 4);
    o.batch = 4 / o.ep;
  }
  SECTION("bf16") { o.model.type = number_type::bf16; }
  SECTION("double") { o.model.type = number_type::f64; }
  SECTION("dense layers only") { o.model.dense = o.model.layers; }
  SECTION("one expert of all") { o.model.top_k = 1, o.model.shared = 0; }
  SECTION("all experts") { o.model.top_k = 4, o.model.auxiliary = 0; }
  SECTION("one expert on each rank") { o.model.experts = 2; }
  SECTION("one expert on one rank") { o.model.experts = 1, o.model.top_k = 1, o.ep = 1; }
  SECTION("slots for all rows") { o.capacity = 2, o.ep = GENERATE(1, 2); }
  SECTION("slots for all rows, bf16, of a large model's kind") {
    o.capacity = 8, o.model.experts = 16, o.model.type = number_type::bf16;
  }
  SECTION("more experts than rows") { o.model.experts = 64, o.batch = 1, o.model.sequence = 4; }
  CAPTURE(o.microbatches, o.ep, o.model.experts, o.model.top_k);
  check_policies(o, corpus(file.path(), o.model.sequence));
}

TEST_CASE("the number of expert ranks hardly changes the losses", "[torch][building-blocks-18]") {
  text_file const file;
  auto o = small();
  corpus const text(file.path(), o.model.sequence);
  o.batch = 4;
  o.ep = 1;
  auto const one = run(o, policy::split_dw, text);
  for (int const ranks : {2, 4}) {
    o.ep = ranks;
    o.batch = 4 / ranks;
    auto const several = run(o, policy::split_dw, text);
    for (std::size_t i = 0; i < one.losses.size(); ++i)
      CHECK(std::abs(one.losses[i] - several.losses[i]) <= 1e-5);
    CHECK(std::abs(one.held_out_loss - several.held_out_loss) <= 1e-5);
    CHECK(one.bigram_loss == several.bigram_loss);
  }
}

TEST_CASE("a run can be repeated, and depends on its seed", "[torch]") {
  text_file const file;
  auto o = small();
  corpus const text(file.path(), o.model.sequence);
  auto const first = run(o, policy::split_dw, text);
  check_same(run(o, policy::split_dw, text), first);
  o.model.seed = 2;
  auto const other = run(o, policy::split_dw, text);
  CHECK(other.losses != first.losses);
  CHECK(other.gradient_digest != first.gradient_digest);
}

TEST_CASE("slots hardly change the losses, however many are empty", "[torch]") {
  text_file const file;
  auto o = small();
  corpus const text(file.path(), o.model.sequence);
  auto const without = run(o, policy::split_dw, text);
  o.capacity = GENERATE(2.0, 1.9);
  CHECK(slots_of(o) == (o.capacity == 2 ? 24 : 23));
  auto const with = run(o, policy::split_dw, text);
  for (std::size_t i = 0; i < with.losses.size(); ++i)
    CHECK(std::abs(with.losses[i] - without.losses[i]) <= 1e-5);
  CHECK(std::abs(with.held_out_loss - without.held_out_loss) <= 1e-5);
}

TEST_CASE("a choice without a slot ends the run with a sentence, whatever the policy", "[torch]") {
  text_file const file;
  auto o = small();
  o.capacity = 0.5;
  corpus const text(file.path(), o.model.sequence);
  using Catch::Matchers::ContainsSubstring;
  std::string first;
  for (auto const how : all_policies) {
    std::string said;
    try {
      run(o, how, text);
    } catch (std::exception const& problem) {
      said = problem.what();
    }
    CHECK_THAT(said, ContainsSubstring("step 1, rank 0, layer 1, microbatch 0: ") &&
                         ContainsSubstring(" choices found no slot; an expert has 6 and one was chosen ") &&
                         ContainsSubstring("raise --capacity to ") &&
                         ContainsSubstring("(2.00 always suffices)"));
    if (!first.empty()) CHECK(said.substr(said.find("step 1")) == first.substr(first.find("step 1")));
    first = said;
  }
}

TEST_CASE("a modelled link costs time and changes no bit", "[torch]") {
  text_file const file;
  auto o = small();
  corpus const text(file.path(), o.model.sequence);
  auto const how = GENERATE(policy::autograd, policy::serial, policy::split_dw);
  auto const without = run(o, how, text);
  o.link_us = 500;
  auto const with = run(o, how, text);
  check_same(with, without);
  // Two layers, three microbatches, counts and rows there, rows back, and both again in backward: 5 calls each.
  auto const calls = o.steps * 2 * o.microbatches * 5;
  if (how != policy::split_dw) CHECK(with.exposed_seconds >= 0.9 * calls * 500e-6);
  CHECK(with.exposed_seconds > 0);
}

TEST_CASE("training beats counts of pairs of bytes", "[torch]") {
  text_file const file;
  auto o = small();
  o.steps = 120;
  o.batch = 4;
  o.model.hidden = 32;
  o.model.sequence = 32;
  o.learning_rate = 1e-2;
  auto const result = run(o, policy::split_dw, corpus(file.path(), o.model.sequence));
  CHECK(result.losses.front() > 5.0);
  CHECK(result.held_out_loss < result.bigram_loss);
}

TEST_CASE("a gradient that is not finite ends the run with a sentence", "[torch]") {
  text_file const file;
  auto o = small();
  o.steps = 60;
  o.learning_rate = 1e30;
  corpus const text(file.path(), o.model.sequence);
  CHECK_THROWS_WITH(run(o, policy::serial, text), Catch::Matchers::ContainsSubstring("the gradient of step"));
  o.steps = 1; // Behind the last step no other looks at the gradient.
  o.learning_rate = 1e15; // What swiglu makes overflows; much larger weights a norm turns into zeros.
  CHECK_THROWS_WITH(run(o, policy::serial, text), Catch::Matchers::ContainsSubstring("held-out bytes"));
}
