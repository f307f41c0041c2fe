#pragma once

#include <stretto/check.hpp>

#include <bit>

/// Where storage goes back. The program knows the last reader of everything, so nothing has to be watched while it runs.
namespace stretto {
inline namespace v0 {

/// With row `row`, on the lane of that row, the storage of a cell goes back: behind the row, or `before` it, which is between
/// the waits of the row and its op, so that the op may have the memory. `row` is the number of rows where it goes back only
/// when the step has drained.
struct release {
  int row;
  int group;
  int cell;
  bool before = false;
};

/// The releases of a linked table, by row, those before it first: for each time that a value or a gradient is written, the
/// first op of the lane that owns its memory (the lane that wrote it) that has seen every reader. Storage goes back before
/// that op, unless the op itself is one of its readers. What ops clear themselves is left out. What arrives in a message belongs
/// to the lane of the op that reads it last.
class release_planner {
public:
  release_planner(op const* ops, int count, int groups) : ops_(ops), count_(count), groups_(groups) {}

  /// Cells that hold no tensor. No template: one copy of the code, and short names in it.
  struct cells_left_out {
    bool (*call)(void const* of, int group, int cell);
    void const* of;
    bool operator()(int group, int cell) const { return call != nullptr && call(of, group, cell); }
  };

  detail::sequence<release> plan() { return plan({nullptr, nullptr}); }
  STRETTO_COLD detail::sequence<release> plan(cells_left_out skip) {
    collect(skip);
    detail::clocks clock(ops_, count_);
    detail::sequence<release> found;
    detail::sequence<life> waiting;
    for (int i = 0; i < count_; ++i) {
      op const& o = ops_[i];
      clock.enter(i);
      for (int w : o.wait)
        if (w >= 0) clock.wait(i, w);
      clock.leave(i);
      unsigned long const before = waiting.size();
      for (long k = begin_[i]; k < begin_[i + 1]; ++k) waiting.push_back(ending_[k]);
      long kept = 0;
      for (unsigned long at = 0; at < waiting.size(); ++at) {
        life const l = waiting[at];
        bool const touched_before = at < before;
        // Behind a message nothing of ours runs: what it was the last to touch waits for an op that has seen it.
        bool known = l.owner == o.on && !o.is_message();
        for (int reader : l.last) known = known && (reader < 0 || clock.has_seen(i, reader));
        if (known) found.push_back({i, l.group, l.cell, touched_before});
        // Writing over a place gives back what lay there: by then its readers have been seen, or it would be a race.
        else if (!(touched_before && writes(o, l.group, l.cell)))
          waiting[kept++] = l;
      }
      waiting.shrink(kept);
    }
    for (life const& l : waiting) found.push_back({count_, l.group, l.cell});
    return found;
  }

private:
  static bool writes(op const& o, int group, int cell) {
    return (group == o.group && (o.touches.writes & cells::one(cell)) != 0) ||
           (group == o.next_group && (o.touches.next_writes & cells::one(cell)) != 0);
  }

  /// From one write of a cell to the next: who touched it last on each lane.
  struct life {
    int group = 0, cell = 0;
    lane owner = lane::compute;
    bool arrived = false, cleared = false, open = false;
    int end = -1;
    int last[lane_count] = {-1, -1, -1, -1, -1, -1, -1, -1};
  };

  STRETTO_COLD void collect(cells_left_out skip) {
    constexpr int places = cells::count, chains = max_carried;
    detail::sequence<life> now(groups_ * 1L * places), closed;
    // A carried value lives on under the name that the layer behind has for it.
    detail::sequence<life*> chain_value(groups_ * 1L * chains);
    for (unsigned long at = 0; at < chain_value.size(); ++at)
      chain_value[at] = &now[at / chains * places + at % chains];
    begin_ = detail::sequence<long>(count_ + 2L);
    auto close = [&](life& l) {
      if (l.open && !l.cleared) closed.push_back(l), ++begin_[l.end + 2];
      l = life{};
    };
    auto touch = [&](int i, int group, cell_set set, int how) STRETTO_COLD_LAMBDA {
      for (; set != 0; set &= set - 1) {
        int const cell = std::countr_zero(set);
        if (cell >= cells::first_boundary || skip(group, cell)) continue;
        life& l = cells::is_chain_value(cell) ? *chain_value[group * 1L * chains + cell]
                                              : now[group * 1L * places + cell];
        if (how == 1) {
          close(l);
          l.open = true;
          l.group = group;
          l.cell = cell;
          l.owner = ops_[i].on;
          l.arrived = ops_[i].is_message();
        }
        if (how == 2) l.cleared = true;
        l.end = i;
        l.last[detail::index_of(ops_[i].on)] = i;
        if (l.arrived && !ops_[i].is_message()) l.owner = ops_[i].on;
      }
    };
    for (int i = 0; i < count_; ++i) {
      cell_access const& a = ops_[i].touches;
      for (cell_set set = a.carries; set != 0; set &= set - 1) {
        long const chain = std::countr_zero(set);
        chain_value[ops_[i].next_group * chains + chain] = chain_value[ops_[i].group * chains + chain];
      }
      touch(i, ops_[i].group, a.reads, 0);
      touch(i, ops_[i].next_group, a.next_reads, 0);
      touch(i, ops_[i].group, a.writes, 1);
      touch(i, ops_[i].next_group, a.next_writes, 1);
      touch(i, ops_[i].group, a.clears, 2);
      touch(i, ops_[i].next_group, a.next_clears, 2);
    }
    for (life& l : now) close(l);
    // Sorted by row, those of one row in the order in which they ended.
    for (int i = 0; i <= count_; ++i) begin_[i + 1] += begin_[i];
    ending_ = detail::sequence<life>(static_cast<long>(closed.size()));
    for (life const& l : closed) ending_[begin_[l.end + 1]++] = l;
  }

  op const* ops_;
  int count_, groups_;
  detail::sequence<life> ending_; ///< by the row that touched them last
  detail::sequence<long> begin_; ///< of each row
};

} // namespace v0
} // namespace stretto
