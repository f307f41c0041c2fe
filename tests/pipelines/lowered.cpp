#include "lowered.hpp"

#include "../../examples/plan/layer_types.hpp"

#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>

#include <cstdlib>
#include <map>
#include <tuple>

namespace lowered {

namespace {

using namespace stretto;

// One pipeline that pairs and splits brings every body; plans come from all of them.
struct SplitStep : Schedule<plan_program::MixedModel, TwoStream1F1B, SplitDW, DualPipeV> {};
struct WholeStep : Schedule<plan_program::MoeLayer, TwoStream1F1B, DualPipeV> {};
struct SerialStep : Schedule<plan_program::MoeLayer, Serial, DualPipeV> {};

} // namespace

step lower(plan made, policy how, stage_types const& types) {
  plan_facts const facts = made.facts();
  step result{std::move(made), {}, {}};
  plan_steps const lists = lower_messages(result.all);
  for (int rank = 0; rank < facts.ranks; ++rank) {
    std::vector<std::vector<int>> chunks;
    for (int c = 0; c < facts.chunks; ++c) chunks.push_back(types(facts.stage(rank, c)));
    layer_shape const shape(chunks);
    result.tables.push_back(how == policy::split   ? lower_rank<SplitStep>(result.all, lists, rank, shape)
                            : how == policy::whole ? lower_rank<WholeStep>(result.all, lists, rank, shape)
                                                   : lower_rank<SerialStep>(result.all, lists, rank, shape));
    result.shapes.push_back(shape);
  }
  return result;
}

detail::sequence<release> releases_of(step const& of, int rank) {
  auto const at = static_cast<std::size_t>(rank);
  detail::chain_layout const layout(of.all.facts(), rank, of.shapes[at]);
  return detail::plan_releases<SplitStep>(of.tables[at], layout, of.shapes[at]);
}

stage_types only_moe(int layers) {
  return [=](int) { return std::vector<int>(static_cast<std::size_t>(layers), moe); };
}

stage_types with_ends(plan_facts const& facts, stage_types inner) {
  int const last = facts.stages() - 1;
  return [=](int stage) {
    std::vector<int> types = inner(stage);
    if (stage == 0) types.insert(types.begin(), embedding);
    if (stage == last) types.push_back(head);
    return types;
  };
}

bool ends_agree(step const& of) {
  using message = std::tuple<pass, int, int>;
  // Per pair of ranks and way of travel: each has its own lane at both ends.
  std::map<std::tuple<int, int, bool>, std::vector<message>> sent, received;
  plan_facts const& facts = of.all.facts();
  for (int rank = 0; rank < facts.ranks; ++rank) {
    for (op const& o : of.tables[static_cast<std::size_t>(rank)].ops) {
      message const one{o.what, o.is_message() ? producer_of(facts, rank, o) : 0, o.microbatch};
      if (is_send(o.on)) sent[{rank, o.peer, o.on == lane::send_higher}].push_back(one);
      if (is_receive(o.on)) received[{o.peer, rank, o.on == lane::receive_lower}].push_back(one);
    }
  }
  return sent == received;
}

std::vector<std::vector<use>> uses_of(flat_table const& table) {
  constexpr std::size_t in_group = cells::count;
  // Behind the cells: the parameter gradients of each node.
  std::size_t const parameters = static_cast<std::size_t>(table.groups) * in_group;
  std::vector<std::vector<use>> result(parameters + static_cast<std::size_t>(table.layers) * max_phases);
  for (std::size_t row = 0; row < table.ops.size(); ++row) {
    op const& o = table.ops[row];
    cell_access const& a = o.touches;
    auto const side = [&](int group, cell_set reads, cell_set writes, cell_set clears) {
      for (std::size_t cell = 0; cell < in_group; ++cell) {
        auto const in = [&](cell_set set) { return (set >> cell & 1) != 0; };
        if (in(reads | writes | clears))
          result[static_cast<std::size_t>(group) * in_group + cell].push_back(
              {row, in(reads), in(writes), in(clears)});
      }
    };
    side(o.group, a.reads, a.writes, a.clears);
    side(o.next_group, a.next_reads, a.next_writes, a.next_clears);
    if (a.accumulates)
      result[parameters + static_cast<std::size_t>(o.layer) * max_phases + o.node].push_back(
          {row, false, true, false});
  }
  return result;
}

bool tries_every_size() { return std::getenv("STRETTO_EVERY_SIZE") != nullptr; }

void each_pipeline(int ranks, int microbatches, std::function<void(plan)> const& act) {
  shipped_pipelines::each([&]<class Pipeline>() {
    if (microbatches < Pipeline::min_microbatches(ranks)) return;
    for (int chunks = 1; chunks <= (most_chunks<Pipeline>() != Pipeline::chunks ? 4 : 1); ++chunks) {
      act(proved_plan<Pipeline>(ranks, microbatches,
                                most_chunks<Pipeline>() != Pipeline::chunks ? chunks : 0));
    }
  });
}

} // namespace lowered
