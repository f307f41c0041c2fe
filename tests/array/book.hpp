#pragma once

#include "../../examples/own_tensors/model.hpp"

#include <stretto/adapters/array.hpp>
#include <stretto/adapters/host.hpp>
#include <stretto/executor.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

/// What a step should hold after each op, from its table alone and the sizes of its values.
namespace memory_test {

using namespace stretto;

/// The sizes of the values, told by the phases that write them, and what phases keep in `saved()`.
struct book {
  std::function<void()> forward_begins; ///< told by every phase before it makes anything
  std::map<std::tuple<int, int, detail::type_id>, std::size_t> bytes; ///< layer, microbatch, value
  std::map<std::tuple<int, int, phase_kind>, std::function<std::size_t()>> kept; ///< layer, microbatch, phase
};
inline thread_local book* open_book = nullptr;

/// A phase that writes down the sizes of what it writes.
template <class P> struct told : P {
  using P::P;
  told(P phase) : P(std::move(phase)) {}
  void forward(auto& io) {
    if (open_book != nullptr && open_book->forward_begins) open_book->forward_begins();
    P::forward(io);
    if (open_book == nullptr) return;
    note(typename P::writes{}, io);
    if constexpr (requires { typename P::saved; })
      open_book->kept[{io.layer(), io.microbatch(), P::kind}] = [saved = &io.saved()] {
        return saved->bytes();
      };
  }

private:
  template <class... V> static void note(values<V...>, auto& io) {
    (
        [&] {
          if constexpr (!std::derived_from<V, metadata>)
            open_book->bytes[{io.layer(), io.microbatch(), detail::id_of<V>()}] = io.out(V{}).bytes();
        }(),
        ...);
  }
};

/// Lanes that run each op at once and then tell.
struct watched_lanes {
  struct event {};
  template <class Task> void run(lane, op_label const&, Task task) {
    task();
    if (after) after();
  }
  void record(lane, event&) {}
  void wait(lane, event const&) {}
  void drain() {}
  std::function<void()> after;
};

/// Live bytes by the table.
template <class S> class ledger {
  using model = typename S::model;
  static constexpr chain_facts const& chain = chain_of<model>::value;

public:
  template <class Layers>
  ledger(flat_table const& table, book const& sizes, Layers const& layers, plan_facts const& facts)
      : table_(table), book_(sizes), layout_(facts, 0, layers),
        releases(detail::plan_releases<S>(table, layout_, layers)),
        live_(static_cast<std::size_t>(table.groups) * cells::count),
        chain_bytes_(static_cast<std::size_t>(table.groups) * max_carried) {}

  /// When row `i` begins: its lane has waited, and what goes back before it is gone.
  std::size_t begin(int i) {
    give_back(i, true);
    return live();
  }
  /// After row `i` has run.
  std::size_t after(int i) {
    give_back(i, true);
    op const& o = table_.ops[static_cast<std::size_t>(i)];
    block_facts const& f = *detail::facts_at<model>(o.block, std::make_integer_sequence<int, model::count>{});
    for (cell_set m = o.touches.next_writes; m != 0; m &= m - 1)
      if (int const c = std::countr_zero(m); c < 4)
        at(o.next_group, c) = chain_bytes(o.next_group, c) = bytes_of(o, chain.value[c]);
    for (cell_set m = o.touches.writes; m != 0; m &= m - 1) write(o, f, std::countr_zero(m));
    for (cell_set m = o.touches.clears; m != 0; m &= m - 1) {
      at(o.group, std::countr_zero(m)) = 0;
      kept_.erase({o.group, std::countr_zero(m)});
    }
    give_back(i, false);
    return live();
  }

private:
  void give_back(int i, bool before) {
    for (release const& r : releases)
      if (r.row == i && r.before == before) at(r.group, r.cell) = 0;
  }
  std::size_t live() const {
    std::size_t sum = 0;
    for (std::size_t const bytes : live_) sum += bytes;
    for (auto const& [cell, bytes] : kept_) sum += bytes();
    return sum;
  }
  std::size_t& at(int group, int cell) {
    return live_[static_cast<std::size_t>(group * cells::count + cell)];
  }
  std::size_t& chain_bytes(int group, int c) {
    return chain_bytes_[static_cast<std::size_t>(group * max_carried + c)];
  }
  std::size_t bytes_of(op const& o, detail::type_id value) const {
    return book_.bytes.at({o.layer, o.microbatch, value});
  }

  void write(op const& o, block_facts const& f, int cell) {
    if (cells::is_chain_gradient(cell))
      at(o.group, cell) = chain_bytes(o.group, cell - cells::first_chain_gradient);
    if (int const root = cell - cells::first_root; cells::is_root(cell) && !f.root_is_metadata[root])
      at(o.group, cell) = bytes_of(o, f.root[root]);
    if (cells::is_leaf_gradient(cell))
      at(o.group, cell) = bytes_of(o, f.root[f.leaf_root[cell - cells::first_leaf_gradient]]);
    if (cells::is_context(cell))
      for (int p = 0; p < f.phases; ++p)
        if (auto const kept = book_.kept.find({o.layer, o.microbatch, f.kind[p]});
            f.node_of[p] == cell - cells::first_context && kept != book_.kept.end())
          kept_[{o.group, cell}] = kept->second;
    // Between I and W live the sums of gradients that have several addends; one addend is the reader's own.
    if (cell >= cells::first_pending) at(o.group, cell) = sums_of(o, f, cell - cells::first_pending);
  }
  std::size_t sums_of(op const& o, block_facts const& f, int node) const {
    std::size_t sum = 0;
    for (int v = 0; v < f.roots; ++v) {
      if (f.node_of[f.root_writer[v]] != node || f.root_is_metadata[v]) continue;
      int addends = detail::chain_of_root(f, chain, v) >= 0;
      for (int r = 0; r < f.leaves; ++r) addends += f.leaf_root[r] == v;
      if (addends > 1) sum += bytes_of(o, f.root[v]);
    }
    return sum;
  }

  flat_table const& table_;
  book const& book_;
  detail::chain_layout layout_;

public:
  detail::sequence<release> releases;

private:
  std::vector<std::size_t> live_, chain_bytes_;
  std::map<std::pair<int, int>, std::function<std::size_t()>> kept_;
};

/// How the releases of a table lie to the ops that use what they give back. The optimum is the first op of the lane that
/// wrote it that has seen every use, before it unless it is a use itself; there is none where that lane runs nothing more that has.
struct release_counts {
  int all = 0, at_optimum = 0, at_last_use = 0, at_drain = 0, later_than_optimum = 0;
  long rows_behind_last_use = 0;
};
inline bool touches(op const& o, release const& r, bool only_writes) {
  cell_set const bit = cells::one(r.cell);
  cell_set const own = o.touches.writes | (only_writes ? 0 : o.touches.reads);
  cell_set const next = o.touches.next_writes | (only_writes ? 0 : o.touches.next_reads);
  return (o.group == r.group && (own & bit) != 0) || (o.next_group == r.group && (next & bit) != 0);
}
inline release_counts count_releases(flat_table const& table, detail::sequence<release> const& releases) {
  int const rows = static_cast<int>(table.ops.size());
  op const* const ops = table.ops.data();
  detail::clocks clocks(ops, rows);
  for (int i = 0; i < rows; ++i) {
    clocks.enter(i);
    for (int w : ops[i].wait)
      if (w >= 0) clocks.wait(i, w);
    clocks.leave(i);
  }
  release_counts found;
  for (release const& r : releases) {
    int const last = std::min(r.before ? r.row - 1 : r.row, rows - 1);
    int writer = last;
    while (!touches(ops[writer], r, true)) --writer;
    std::vector<int> uses;
    for (int i = writer; i <= last; ++i)
      if (touches(ops[i], r, false)) uses.push_back(i);
    int best = uses.back();
    auto knows_all = [&](int i) {
      return ops[i].on == ops[writer].on &&
             std::all_of(uses.begin(), uses.end(), [&](int use) { return clocks.has_seen(i, use); });
    };
    while (best < rows && !knows_all(best)) ++best;
    ++found.all;
    bool const before = best < rows && best > uses.back();
    found.at_optimum += r.row == best && r.before == before && best < rows;
    found.at_last_use += r.row == uses.back();
    found.at_drain += r.row == rows;
    found.later_than_optimum += r.row > best || r.before < before;
    if (r.row < rows) found.rows_behind_last_use += r.row - uses.back();
  }
  return found;
}

using Comm = array::expert_parallel<host::communicator>;
using Network = own_tensors::network<Comm, told>;
using Model = Network::model;

/// One step of one rank, op by op.
struct watched_step {
  std::vector<std::size_t> measured, expected; ///< after each row, parameters left out
  struct beginning {
    int row;
    std::size_t measured, expected;
  };
  std::vector<beginning> begins; ///< of the phases that run forward
  std::size_t peak = 0, left = 0;
  detail::sequence<release> planned;
  release_counts releases;
  flat_table table;
  std::string problem;
};

template <class S, class Tensors = array::tensors>
watched_step watch(host::group& group, int rank, std::string const& picture, int microbatches,
                   int delay = 0) {
  auto exchange = group.communicator(rank);
  own_tensors::shape const shape;
  Comm comm(exchange, shape.experts / group.ranks());
  Tensors arrays;
  Network net(picture, shape, arrays, comm, microbatches);
  net.next_batches(0);
  watched_lanes lanes;
  executor run(S{}, backend{arrays, lanes}, net.layers, sizes{.microbatches = microbatches});
  book sizes_of_values;
  open_book = &sizes_of_values;
  std::size_t const parameters = arrays.memory().live();
  arrays.memory().forget_peak();
  plan const all = proved_plan<typename S::rank_plan>(1, microbatches, 0);
  ledger<S> expected(run.table(), sizes_of_values, net.layers, all.facts());
  watched_step found;
  found.table = run.table();
  found.planned = expected.releases;
  found.releases = count_releases(run.table(), expected.releases);
  // A release of the ledger that comes late, to see that it shows.
  if (delay > 0) expected.releases[expected.releases.size() / 2].row += delay;
  int row = 0;
  sizes_of_values.forward_begins = [&] {
    found.begins.push_back({row, arrays.memory().live() - parameters, expected.begin(row)});
  };
  lanes.after = [&] {
    found.measured.push_back(arrays.memory().live() - parameters);
    found.expected.push_back(expected.after(row++));
  };
  run();
  open_book = nullptr;
  found.peak = arrays.memory().peak() - parameters;
  found.left = arrays.memory().live() - parameters;
  return found;
}

} // namespace memory_test
