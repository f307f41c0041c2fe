// What went wrong once where chunks are empty, pairs uneven, or a model has ends.
#include "lowered.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string>
#include <utility>

using namespace stretto;
using lowered::policy;

// The bend of a V without layers before it: the first layer behind the bend reads what came in from another rank, but is not
// the first of a chunk that receives. A W that runs apart then still reads it while the next message comes in.
TEST_CASE("an empty chunk before the bend of a V is legal where W runs apart", "[tables][pipelines-02]") {
  for (int const ranks : {2, 3, 4}) {
    for (int const microbatches : {2 * ranks - 1, 4 * ranks}) {
      lowered::each_pipeline(ranks, microbatches, [&](plan made) {
        plan_facts const facts = made.facts();
        if (facts.map != placement::vee) return;
        auto const types = [&](int stage) {
          return std::vector<int>(stage == ranks - 1 ? 0U : 2U, lowered::moe);
        };
        lowered::step const step =
            lowered::lower(std::move(made), policy::split, lowered::with_ends(facts, types));
        for (flat_table const& table : step.tables) {
          INFO(facts.name << ' ' << ranks << ' ' << microbatches);
          CHECK_FALSE(table.check());
        }
      });
    }
  }
}

// A pair whose forward has more layers than its backward, or none, makes B before F; lower_messages, and so the other end, has
// F first.
TEST_CASE("both ends list messages in one order where pairs are uneven", "[tables][pipelines-02]") {
  for (int const ranks : {2, 3, 4}) {
    lowered::each_pipeline(ranks, 2 * ranks + 1, [&](plan made) {
      plan_facts const facts = made.facts();
      std::pair<unsigned, unsigned> const sizes[] = {{3, 1}, {1, 3}, {0, 2}, {2, 0}};
      for (auto const& layers : sizes) {
        auto const types = [&](int stage) {
          return std::vector<int>(stage / facts.ranks % 2 == 0 ? layers.first : layers.second, lowered::moe);
        };
        plan again(std::move(made));
        lowered::step step =
            lowered::lower(std::move(again), policy::split, lowered::with_ends(facts, types));
        INFO(facts.name << ", " << ranks << " ranks, " << facts.chunks << " chunks, " << layers.first
                        << " or " << layers.second << " layers");
        CHECK(lowered::ends_agree(step));
        made = std::move(step.all);
      }
    });
  }
}

// Layers meet by their distance from the ends of a chunk, so an embedding in front shifts every pair of the chunk by one and
// leaves a MoE layer alone at each end.
TEST_CASE("an embedding and a head that cost nothing cost nothing", "[tables]") {
  auto const makespan = [](plan made, bool ends) {
    plan_facts const facts = made.facts();
    auto const inner = lowered::only_moe(4);
    lowered::step const step =
        lowered::lower(std::move(made), policy::split, ends ? lowered::with_ends(facts, inner) : inner);
    double last = 0;
    auto const cost = [](int, op const& o) { return o.block == lowered::moe ? 1.0 : 0.0; };
    for (auto const& rank : simulate_ops(facts, step.tables, cost))
      for (op_times const& one : rank) last = std::max(last, one.end);
    return last;
  };
  std::vector<double> bare, whole;
  std::vector<std::string> names;
  lowered::each_pipeline(4, 16, [&](plan made) {
    if (!made.facts().pairs) return;
    names.push_back(made.facts().name);
    bare.push_back(makespan(std::move(made), false));
  });
  lowered::each_pipeline(4, 16, [&](plan made) {
    if (made.facts().pairs) whole.push_back(makespan(std::move(made), true));
  });
  for (std::size_t i = 0; i < bare.size(); ++i) {
    INFO(names[i] << ", bare " << bare[i] << ", with ends " << whole[i]);
    CHECK(whole[i] <= 1.01 * bare[i]);
  }
}
