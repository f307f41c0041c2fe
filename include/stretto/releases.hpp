#pragma once

#include <stretto/check.hpp>

#include <bit>
#include <vector>

/// Where storage goes back. The program knows the last reader of everything, so nothing has to be watched while it runs.
namespace stretto {
inline namespace v0 {

/// After row `row`, on the lane of that row, the storage of a cell goes back. `row` is the number of rows where it goes back
/// only when the step has drained.
struct release {
  int row;
  int group;
  int cell;
};

/// The releases of a linked table, by row: for each time that a value or a gradient is written, the first op of the lane
/// that owns its memory (the lane that wrote it) that has seen every reader. What ops clear themselves is left out. What
/// arrives in a message belongs to the lane of the op that reads it last.
class release_planner {
 public:
  release_planner(op const* ops, int count, int groups) : ops_(ops), count_(count), groups_(groups) {}

  /// Cells that hold no tensor. No template: one copy of the code, and short names in it.
  struct cells_left_out {
    bool (*call)(void const* of, int group, int cell);
    void const* of;
    bool operator()(int group, int cell) const { return call != nullptr && call(of, group, cell); }
  };

  std::vector<release> plan() { return plan({nullptr, nullptr}); }
  std::vector<release> plan(cells_left_out skip) {
    collect(skip);
    detail::clocks clock(ops_, count_);
    std::vector<release> found;
    std::vector<std::vector<life>> waiting(lane_count);
    for (int i = 0; i < count_; ++i) {
      op const& o = ops_[i];
      clock.enter(i);
      for (int w : o.wait)
        if (w >= 0) clock.wait(i, w);
      clock.leave(i);
      // Writing over a place gives back what lay there: by then its readers have been seen, or it would be a race.
      for (std::vector<life>& lane : waiting)
        std::erase_if(lane, [&o](life const& l) { return writes(o, l.group, l.cell); });
      std::vector<life>& mine = waiting[static_cast<unsigned>(detail::index_of(o.on))];
      for (life const& l : ending_[static_cast<unsigned>(i)])
        waiting[static_cast<unsigned>(detail::index_of(l.owner))].push_back(l);
      // Behind a message nothing of ours runs: what it was the last to touch waits for an op that has seen it.
      if (o.is_message()) continue;
      std::size_t kept = 0;
      for (life const& l : mine) {
        bool known = true;
        for (int reader : l.last)
          if (reader >= 0 && !clock.has_seen(i, reader)) known = false;
        if (known)
          found.push_back({i, l.group, l.cell});
        else
          mine[kept++] = l;
      }
      mine.resize(kept);
    }
    for (std::vector<life> const& lane : waiting)
      for (life const& l : lane) found.push_back({count_, l.group, l.cell});
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

  void collect(cells_left_out skip) {
    ending_.assign(static_cast<unsigned>(count_), {});
    constexpr unsigned places = cells::count, chains = max_carried;
    std::vector<life> now(static_cast<unsigned>(groups_) * places);
    // A carried value lives on under the name that the layer behind has for it.
    std::vector<life*> chain_value(static_cast<unsigned>(groups_) * chains);
    for (unsigned at = 0; at < chain_value.size(); ++at) chain_value[at] = &now[at / chains * places + at % chains];
    auto close = [&](life& l) {
      if (l.open && !l.cleared) ending_[static_cast<unsigned>(l.end)].push_back(l);
      l = life{};
    };
    auto touch = [&](int i, int group, cell_set set, int how) {
      for (; set != 0; set &= set - 1) {
        int const cell = std::countr_zero(set);
        if (cell >= cells::first_boundary || skip(group, cell)) continue;
        unsigned const g = static_cast<unsigned>(group), c = static_cast<unsigned>(cell);
        life& l = cells::is_chain_value(cell) ? *chain_value[g * chains + c] : now[g * places + c];
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
        unsigned const c = static_cast<unsigned>(std::countr_zero(set));
        chain_value[static_cast<unsigned>(ops_[i].next_group) * chains + c] =
            chain_value[static_cast<unsigned>(ops_[i].group) * chains + c];
      }
      touch(i, ops_[i].group, a.reads, 0);
      touch(i, ops_[i].next_group, a.next_reads, 0);
      touch(i, ops_[i].group, a.writes, 1);
      touch(i, ops_[i].next_group, a.next_writes, 1);
      touch(i, ops_[i].group, a.clears, 2);
      touch(i, ops_[i].next_group, a.next_clears, 2);
    }
    for (life& l : now) close(l);
  }

  op const* ops_;
  int count_, groups_;
  std::vector<std::vector<life>> ending_;  ///< by the row that touched them last
};

}  // namespace v0
}  // namespace stretto
