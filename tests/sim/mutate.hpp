#pragma once

#include "sim/programs.hpp"

#include <stretto/check/releases.hpp>

#include <algorithm>

/// Changes of a lowered rank that keep everything else as it is: waits and releases follow their rows.
namespace sim_test {

inline int rows_of(rank_step const& of) { return static_cast<int>(of.table.ops.size()); }
inline op& row_of(rank_step& of, int row) { return of.table.ops[static_cast<std::size_t>(row)]; }
inline op const& row_of(rank_step const& of, int row) { return of.table.ops[static_cast<std::size_t>(row)]; }

inline int previous_on_lane(rank_step const& of, int row) {
  int before = row - 1;
  while (before >= 0 && row_of(of, before).on != row_of(of, row).on) --before;
  return before;
}
/// The first row on `on` behind `row`, or -1.
inline int next_on_lane(rank_step const& of, int row, lane on) {
  for (int next = row + 1; next < rows_of(of); ++next)
    if (row_of(of, next).on == on) return next;
  return -1;
}
/// The row of another pass of the same node and microbatch, or -1.
inline int find_pass(rank_step const& of, op const& like, pass what) {
  for (int row = 0; row < rows_of(of); ++row) {
    op const& o = row_of(of, row);
    if (!o.is_message() && o.what == what && o.layer == like.layer && o.node == like.node &&
        o.microbatch == like.microbatch)
      return row;
  }
  return -1;
}

/// Gives every row the number `place(row)`; -1: it is gone.
template <class Place> void renumber(rank_step& of, Place&& place) {
  for (op& o : of.table.ops)
    for (int& w : o.wait)
      if (w >= 0) w = place(w);
}

/// Changes the rows as a vector.
template <class Change> void change_rows(rank_step& of, Change&& change) {
  std::vector<op> rows(of.table.ops.begin(), of.table.ops.end());
  change(rows);
  of.table.ops = detail::sequence<op>(rows.data(), rows.data() + rows.size());
}

/// One place up on its lane: from behind an op to before it, and from there to behind the op before. False: there is none.
inline bool move_up(rank_step const& of, release& r) {
  if (r.row >= rows_of(of)) return false;
  int const row = r.before ? previous_on_lane(of, r.row) : r.row;
  if (row < 0) return false;
  r.row = row, r.before = !r.before;
  return true;
}

/// What went back behind the row goes back behind the one before it on its lane, and what went back before it, before the
/// next one.
inline void erase_row(rank_step& of, int row) {
  int const before = previous_on_lane(of, row), count = rows_of(of);
  int const behind = next_on_lane(of, row, row_of(of, row).on);
  for (release& r : of.releases) {
    if (r.row == row && r.before)
      r = {(behind < 0 ? count : behind) - 1, r.group, r.cell, behind >= 0};
    else if (r.row == row)
      r.row = before;
    else if (r.row > row && r.row < count)
      --r.row;
    else if (r.row == count)
      r.row = count - 1;
  }
  change_rows(of, [row](std::vector<op>& rows) { rows.erase(rows.begin() + row); });
  renumber(of, [row](int w) { return w == row ? -1 : w > row ? w - 1 : w; });
}
/// Moves a row to another place; what lies between moves by one.
inline void move_row(rank_step& of, int from, int to) {
  auto const place = [from, to](int row) {
    if (row == from) return to;
    if (from < to && row > from && row <= to) return row - 1;
    if (to < from && row >= to && row < from) return row + 1;
    return row;
  };
  change_rows(of, [from, to](std::vector<op>& rows) {
    op const moved = rows[static_cast<std::size_t>(from)];
    rows.erase(rows.begin() + from);
    rows.insert(rows.begin() + to, moved);
  });
  renumber(of, place);
  for (release& r : of.releases)
    if (r.row < rows_of(of)) r.row = place(r.row);
}
/// The same once more, right behind it.
inline void double_row(rank_step& of, int row) {
  op again = row_of(of, row);
  renumber(of, [row](int w) { return w > row ? w + 1 : w; });
  for (release& r : of.releases)
    if (r.row > row) ++r.row;
  change_rows(of, [&](std::vector<op>& rows) { rows.insert(rows.begin() + row + 1, again); });
}

/// Which rows come before which in every execution, over lanes and waits.
inline bool comes_before(rank_step const& of, int earlier, int later) {
  std::vector<char> after(static_cast<std::size_t>(rows_of(of)), 0);
  after[static_cast<std::size_t>(earlier)] = 1;
  bool on_lane[lane_count] = {};
  on_lane[static_cast<int>(row_of(of, earlier).on)] = true;
  for (int row = earlier + 1; row <= later; ++row) {
    op const& o = row_of(of, row);
    bool comes = on_lane[static_cast<int>(o.on)];
    for (int w : o.wait) comes = comes || (w >= 0 && w < row && after[static_cast<std::size_t>(w)] != 0);
    after[static_cast<std::size_t>(row)] = comes ? 1 : 0;
    if (comes) on_lane[static_cast<int>(o.on)] = true;
  }
  return after[static_cast<std::size_t>(later)] != 0;
}

/// What the checker says of a rank.
inline diagnosis refusal_of(rank_step const& of) {
  op const* const ops = of.table.ops.data();
  int const count = rows_of(of);
  if (diagnosis const wrong = of.table.check()) return wrong;
  return check_releases(ops, count, of.table.groups, of.table.layers, of.releases);
}

/// Whether a rank is refused for no more than what the checker asks for beyond need:
/// - between layers the last op speaks for all that hand something on, and between ranks a message in one direction for those
///   in the other;
/// - a wait for what is issued later waits for nothing, and the rank is fine without it;
/// - a carried value is read behind the layer that carries it, although it lies where it was written.
inline bool is_strictly_refused(rank_step of) {
  if (!refusal_of(of)) return false;
  cell_set const kept = ~(cells::boundary_forward | cells::boundary_backward);
  std::vector<op> names;
  for (int i = 0; i < rows_of(of); ++i) {
    op& o = row_of(of, i);
    for (cell_set* cells :
         {&o.touches.reads, &o.touches.writes, &o.touches.next_reads, &o.touches.next_writes})
      *cells &= kept;
    for (int& w : o.wait) w = w > i ? -1 : w;
    if (o.touches.carries == 0) continue;
    op name;
    name.on = lane::forward_port, name.layer = o.layer;
    name.group = o.group, name.next_group = o.next_group, name.touches.carries = o.touches.carries;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [](op const& a, op const& b) { return a.layer < b.layer; });
  int const count = static_cast<int>(names.size());
  renumber(of, [count](int w) { return w + count; });
  for (release& r : of.releases) r.row += count;
  change_rows(of, [&](std::vector<op>& rows) { rows.insert(rows.begin(), names.begin(), names.end()); });
  return !refusal_of(of);
}

} // namespace sim_test
