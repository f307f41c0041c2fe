#include "support/text_file.hpp"

#include <train_moe/run_plan.hpp>
#include <train_moe/trainer.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

using namespace train_moe;

namespace {

/// One way to run, as numbers of choices.
enum { pipeline, how, pipeline_ranks, expert_ranks, microbatches, type, layers, chunks, factors };
using choice = std::array<int, factors>;

constexpr int most_microbatches = 12;
/// With an embedding and a head for the ends: fewer layers than stages, as many, more; the first of several is dense.
constexpr int layer_counts[] = {1, 4, 7};

options options_of(choice const& of) {
  options o;
  o.pipeline = pipeline_names()[static_cast<std::size_t>(of[pipeline])];
  o.pp = of[pipeline_ranks];
  o.ep = of[expert_ranks];
  o.microbatches = of[microbatches];
  o.chunks = of[chunks];
  o.batch = 4;
  o.steps = 2;
  o.deadline = 300; // for machines with other work
  auto& m = o.model;
  m.type = of[type] == 0 ? number_type::f32 : number_type::bf16;
  m.layers = layer_counts[of[layers]];
  m.dense = m.layers > 1 ? 1 : 0;
  m.hidden = 8;
  m.heads = 2;
  m.ffn = 4;
  m.experts = 4;
  m.sequence = 8;
  return o;
}

bool is_legal(choice const& of) {
  auto const o = options_of(of);
  auto const names_chunks = o.pipeline == "interleaved" || o.pipeline == "interleaved_ep";
  if ((o.chunks != 0) != names_chunks || !goes_with_pipeline(o, all_policies[of[how]])) return false;
  try {
    plan_of(o, all_policies[of[how]]);
  } catch (input_error const&) {
    return false; // fewer microbatches than the pipeline needs
  }
  return true;
}

/// Every way to run there is.
std::vector<choice> all_choices() {
  std::vector<choice> all{choice{}};
  auto const spread = [&all](int factor, int first, int last) {
    std::vector<choice> more;
    for (auto each : all)
      for (int value = first; value <= last; ++value)
        each[static_cast<std::size_t>(factor)] = value, more.push_back(each);
    all = std::move(more);
  };
  spread(pipeline, 0, static_cast<int>(pipeline_names().size()) - 1);
  spread(how, 0, static_cast<int>(std::size(all_policies)) - 1);
  spread(pipeline_ranks, 1, 4);
  spread(expert_ranks, 1, 2);
  spread(microbatches, 1, most_microbatches);
  spread(type, 0, 1);
  spread(layers, 0, static_cast<int>(std::size(layer_counts)) - 1);
  spread(chunks, 0, 3);
  std::erase_if(all, [](choice const& each) { return !is_legal(each); });
  return all;
}

/// Enough of them that any two choices that can meet do. Greedy: each next one has the most pairs that are new.
std::vector<choice> pairwise(std::vector<choice> const& all) {
  auto const values = static_cast<std::size_t>(most_microbatches + 1);
  auto const pair_of = [&](choice const& of, std::size_t a, std::size_t b) {
    return ((a * factors + b) * values + static_cast<std::size_t>(of[a])) * values +
           static_cast<std::size_t>(of[b]);
  };
  auto const each_pair = [&](choice const& of, auto&& sink) {
    for (std::size_t a = 0; a < factors; ++a)
      for (std::size_t b = a + 1; b < factors; ++b) sink(pair_of(of, a, b));
  };
  std::vector<char> wanted(factors * factors * values * values);
  std::size_t left = 0;
  for (auto const& each : all)
    each_pair(each, [&](std::size_t pair) { left += !std::exchange(wanted[pair], 1); });
  std::vector<choice> chosen;
  while (left > 0) {
    auto const gain = [&](choice const& of) {
      int sum = 0;
      each_pair(of, [&](std::size_t pair) { sum += wanted[pair]; });
      return sum;
    };
    choice const* best = nullptr;
    int most = 0;
    for (auto const& each : all)
      if (int const sum = gain(each); sum > most) best = &each, most = sum;
    chosen.push_back(*best);
    each_pair(*best,
              [&](std::size_t pair) { left -= static_cast<std::size_t>(std::exchange(wanted[pair], 0)); });
  }
  return chosen;
}

/// The same result in series serves all of these.
std::array<int, 4> yardstick_of(choice const& of) {
  return {of[expert_ranks], of[microbatches], of[type], of[layers]};
}

/// STRETTO_EVERY_SIZE=PART/PARTS: that part of them, PART from 1; anything else: all. Ways with one yardstick stay together.
std::vector<choice> part_of(std::vector<choice> all, char const* said) {
  std::size_t part = 0, parts = 0;
  if (std::sscanf(said, "%zu/%zu", &part, &parts) != 2) return all;
  REQUIRE((part >= 1 && part <= parts && parts <= all.size()));
  std::stable_sort(all.begin(), all.end(),
                   [](choice const& a, choice const& b) { return yardstick_of(a) < yardstick_of(b); });
  auto const at = [&](std::size_t which) {
    return all.begin() + static_cast<std::ptrdiff_t>(which * all.size() / parts);
  };
  return {at(part - 1), at(part)};
}

run_result run(options const& o, policy policy, corpus const& text) {
  return train(o, policy, text, [](progress const&) {});
}

} // namespace

TEST_CASE("every pipeline with every policy gives the bits of one rank in series", "[torch]") {
  text_file const file;
  auto const all = all_choices();
  auto const* const every = std::getenv("STRETTO_EVERY_SIZE");
  auto const chosen = every != nullptr ? part_of(all, every) : pairwise(all);
  std::printf("%zu of %zu ways to run\n", chosen.size(), all.size());
  REQUIRE((every != nullptr || chosen.size() > pipeline_names().size() * most_microbatches / 2));
  corpus const text(file.path(), options_of(all.front()).model.sequence);
  std::map<std::array<int, 4>, run_result> in_series;
  for (auto const& each : chosen) {
    auto const o = options_of(each);
    CAPTURE(o.pipeline, name_of(all_policies[each[how]]), o.pp, o.ep, o.microbatches, o.chunks,
            o.model.layers, each[type]);
    auto const& [expected, is_new] = in_series.try_emplace(yardstick_of(each));
    if (is_new) {
      auto plain = o;
      plain.pipeline = "serial", plain.pp = 1, plain.chunks = 0;
      expected->second = run(plain, policy::serial, text);
    }
    auto const found = run(o, all_policies[each[how]], text);
    CHECK(found.pipeline == o.pipeline);
    CHECK(found.losses == expected->second.losses);
    CHECK(found.gradient_digest == expected->second.gradient_digest);
    CHECK(found.held_out_loss == expected->second.held_out_loss);
  }
}

TEST_CASE("layers lie on the stages as evenly as whole layers allow", "[torch]") {
  auto const held = [](char const* name, int ranks, int all_layers) {
    options o;
    o.pipeline = name, o.pp = ranks, o.microbatches = 12;
    auto const plan = plan_of(o, policy::serial);
    auto const& facts = plan.facts();
    std::vector<stage_part> by_stage(static_cast<std::size_t>(facts.stages()));
    for (int rank = 0; rank < ranks; ++rank) {
      auto const parts = parts_of(facts, rank, all_layers);
      REQUIRE(static_cast<int>(parts.size()) == facts.chunks);
      for (int chunk = 0; chunk < facts.chunks; ++chunk)
        by_stage[static_cast<std::size_t>(facts.stage(rank, chunk))] = parts[static_cast<std::size_t>(chunk)];
    }
    int next = 0, fewest = all_layers, most = 0;
    for (auto const& each : by_stage) {
      CHECK(each.first == next);
      CHECK(each.embeds == (&each == &by_stage.front()));
      CHECK(each.has_head == (&each == &by_stage.back()));
      next = each.end;
      fewest = std::min(fewest, each.end - each.first);
      most = std::max(most, each.end - each.first);
    }
    CHECK(next == all_layers);
    CHECK(most - fewest <= 1);
  };
  for (int const all_layers : {1, 3, 8, 13}) {
    held("one_f_one_b", 4, all_layers);
    held("dual_pipe_v", 4, all_layers);
    held("interleaved", 3, all_layers);
  }
}
