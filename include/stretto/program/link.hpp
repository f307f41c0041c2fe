#pragma once

#include <stretto/detail/sequence.hpp>
#include <stretto/program.hpp>

#include <bit>

/// Derives what each op must wait for. Users never write an edge.
namespace stretto {
inline namespace v0 {
namespace detail {

constexpr int index_of(lane on) { return static_cast<int>(on); }

/// Who touched a cell last: the op that wrote or cleared it, and per lane the last op that read it since.
struct cell_state {
  int writer = -1;
  bool cleared = false;
  int reader[lane_count] = {-1, -1, -1, -1, -1, -1, -1, -1};
};

/// What must have run before an op: per lane the latest op, and the cell that asks for it.
struct needs {
  int latest[lane_count] = {-1, -1, -1, -1, -1, -1, -1, -1};
  long cell[lane_count] = {};
  /// A read of something that was never written for this microbatch (`unwritten`) or was given back by `cleared_by`.
  long unwritten = -1, cleared = -1;
  int cleared_by = -1;
};

/// Follows the cells through a table in issue order and says for each op what it must come after: the writer of what it
/// reads, the writer and the readers of what it writes or gives back. Accumulator cells lie behind the groups, one for each
/// node of each layer.
class hazards {
public:
  constexpr hazards(op const* ops, int groups, int layers)
      : ops_(ops), accumulators_(cells_in(groups)), states_(cells_in(groups) + layers * nodes),
        homes_(groups * chains), state_(states_.data()), home_(homes_.data()) {}
  hazards(hazards const&) = delete;
  hazards& operator=(hazards const&) = delete;

  STRETTO_COLD constexpr needs before(int i) const {
    op const& o = ops_[i];
    needs n;
    for (int side = 0; side < 2; ++side) {
      access_side const a = side_of(o, side);
      for (cell_set m = a.reads; m != 0; m &= m - 1) {
        long const cell = home(a.base + std::countr_zero(m));
        cell_state const& s = state_[cell];
        // What another microbatch left in the slot is not what is meant.
        bool const stale = s.writer >= 0 && !s.cleared && ops_[s.writer].microbatch != o.microbatch;
        if (s.writer < 0 || stale) {
          if (n.unwritten < 0) n.unwritten = cell;
        } else if (s.cleared) {
          if (n.cleared < 0) n.cleared = cell, n.cleared_by = s.writer;
        } else {
          raise(n, s.writer, cell);
        }
      }
      for (cell_set m = a.writes | a.clears; m != 0; m &= m - 1)
        overwrite(n, home(a.base + std::countr_zero(m)));
    }
    if (o.touches.accumulates) overwrite(n, accumulator_of(o));
    return n;
  }

  /// The forward that filled what backward op `o` reads back; -1 if it ran before this table.
  constexpr int forward_of(op const& o) const {
    int const writer = state_[cells_in(o.group) + std::countr_zero(cells::context(o.node))].writer;
    return writer < 0 || ops_[writer].is_port() ? -1 : writer;
  }

  STRETTO_COLD constexpr void run(int i) {
    op const& o = ops_[i];
    for (cell_set m = o.touches.carries; m != 0; m &= m - 1) {
      int const chain = std::countr_zero(m);
      home_[o.next_group * chains + chain] = home(cells_in(o.group) + chain) + 1;
    }
    int const on = index_of(o.on);
    for (int side = 0; side < 2; ++side) {
      access_side const a = side_of(o, side);
      for (cell_set m = a.reads; m != 0; m &= m - 1)
        state_[home(a.base + std::countr_zero(m))].reader[on] = i;
      for (cell_set m = a.writes | a.clears; m != 0; m &= m - 1) {
        cell_state s;
        s.writer = i;
        s.cleared = (a.clears & m & (~m + 1)) != 0;
        state_[home(a.base + std::countr_zero(m))] = s;
      }
    }
    if (o.touches.accumulates) {
      cell_state s;
      s.writer = i;
      state_[accumulator_of(o)] = s;
    }
  }

private:
  static constexpr long nodes = max_phases, chains = max_carried;
  static constexpr long cells_in(int groups) { return groups * 1LL * cells::count; }
  struct access_side {
    long base;
    cell_set reads, writes, clears;
  };
  static constexpr access_side side_of(op const& o, int side) {
    cell_access const& a = o.touches;
    return side == 0 ? access_side{cells_in(o.group), a.reads, a.writes, a.clears}
                     : access_side{cells_in(o.next_group), a.next_reads, a.next_writes, a.next_clears};
  }
  /// Where a cell lies: a carried value still lies where it was written.
  constexpr long home(long cell) const {
    int const in_group = static_cast<int>(cell % cells::count);
    if (!cells::is_chain_value(in_group)) return cell;
    long const behind = home_[cell / cells::count * chains + in_group];
    return behind == 0 ? cell : behind - 1;
  }
  constexpr long accumulator_of(op const& o) const { return accumulators_ + o.layer * nodes + o.node; }

  constexpr void raise(needs& n, int earlier, long cell) const {
    if (earlier < 0) return;
    int const on = index_of(ops_[earlier].on);
    if (earlier > n.latest[on]) n.latest[on] = earlier, n.cell[on] = cell;
  }
  constexpr void overwrite(needs& n, long cell) const {
    cell_state const& s = state_[cell];
    raise(n, s.writer, cell);
    for (int earlier : s.reader) raise(n, earlier, cell);
  }

  op const* ops_;
  long accumulators_;
  sequence<cell_state> states_;
  sequence<long> homes_;
  // Compilers count every call in a constant expression, so what is asked often is a pointer.
  cell_state* state_;
  long* home_; ///< of chain values that are carried, plus one; 0: where the group says
};

/// What each op has seen: per lane, how many ops of that lane are known to have run (vector clocks).
class clocks {
public:
  constexpr clocks(op const* ops, int count)
      : ops_(ops), seens_(count * 1L * lane_count), positions_(count), seen_(seens_.data()),
        position_(positions_.data()) {}
  clocks(clocks const&) = delete;
  clocks& operator=(clocks const&) = delete;

  /// Starts op `i`: it has seen what its lane has seen.
  constexpr void enter(int i) {
    int const on = index_of(ops_[i].on);
    for (int l = 0; l < lane_count; ++l) at(i, l) = last_[on] < 0 ? 0 : at(last_[on], l);
  }
  constexpr bool has_seen(int i, int earlier) const {
    return seen_[i * lane_count + index_of(ops_[earlier].on)] >= position_[earlier];
  }
  /// Op `i` waits for `earlier`, and so for all that `earlier` has seen.
  constexpr void wait(int i, int earlier) {
    for (int l = 0; l < lane_count; ++l)
      if (at(i, l) < at(earlier, l)) at(i, l) = at(earlier, l);
  }
  constexpr void leave(int i) {
    int const on = index_of(ops_[i].on);
    position_[i] = at(i, on) = ++issued_[on];
    last_[on] = i;
  }

private:
  constexpr int& at(int i, int l) { return seen_[i * lane_count + l]; }
  op const* ops_;
  sequence<int> seens_, positions_;
  int *seen_, *position_;
  int last_[lane_count] = {-1, -1, -1, -1, -1, -1, -1, -1};
  int issued_[lane_count] = {};
};

} // namespace detail

/// Fills the waits of `count` rows: every hazard is ordered, and a wait that another one implies is left out (latest
/// first, which is a transitive reduction over in-order lanes). `groups` and `layers` bound the cells.
constexpr void link(op* ops, int count, int groups, int layers) {
  detail::hazards hazards(ops, groups, layers);
  detail::clocks clocks(ops, count);
  for (int i = 0; i < count; ++i) {
    detail::needs const need = hazards.before(i);
    clocks.enter(i);
    for (int l = 0; l < lane_count; ++l) ops[i].wait[l] = -1;
    for (int round = 0; round < lane_count; ++round) {
      int latest = -1;
      for (int earlier : need.latest)
        if (earlier > latest && !clocks.has_seen(i, earlier)) latest = earlier;
      if (latest < 0) break;
      ops[i].wait[detail::index_of(ops[latest].on)] = latest;
      clocks.wait(i, latest);
    }
    clocks.leave(i);
    hazards.run(i);
  }
}

} // namespace v0
} // namespace stretto
