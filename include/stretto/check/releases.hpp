#pragma once

#include <stretto/program/releases.hpp>

#include <bit>
#include <utility>

namespace stretto {
inline namespace v0 {

/// Whether storage goes back in time: on the lane that wrote it, behind every row that touches it, with no reader to come,
/// and under the name that it was written by. What came in a message has no such lane. In a diagnosis `at` is the row that
/// goes wrong: the one with which a cell is given back, or a reader that comes later.
STRETTO_COLD inline diagnosis check_releases(op const* ops, int count, int groups, int layers,
                                             detail::sequence<release> const& releases) {
  // A release is a row of its own, which clears the cell.
  detail::sequence<op> rows;
  detail::sequence<int> row_of, place(count);
  struct written {
    int by = -1;
    bool is_alias = false;
  };
  detail::sequence<written> writer(groups * 1L * cells::count);
  auto const at = [&writer](int group, int cell) -> written& { return writer[group * cells::count + cell]; };
  auto const write = [&at](int group, cell_set set, int row, bool is_alias) STRETTO_COLD_LAMBDA {
    for (; set != 0; set &= set - 1) at(group, std::countr_zero(set)) = {row, is_alias};
  };
  // By row: the first release with it, and for each release the next one with the same row.
  detail::sequence<int> first(count, -1), next(static_cast<long>(releases.size()), -1);
  for (unsigned k = static_cast<unsigned>(releases.size()); k-- > 0;)
    if (int const row = releases[k].row < 0 ? 0 : releases[k].row; row < count)
      next[k] = std::exchange(first[row], static_cast<int>(k));
  auto const give_back = [&](int i, op const& o, bool before) STRETTO_COLD_LAMBDA -> diagnosis {
    for (int k = first[i]; k >= 0; k = next[k]) {
      release const& one = releases[k];
      if (one.before != before) continue;
      auto const [owner, is_alias] = at(one.group, one.cell);
      if (is_alias) return {fault::read_after_release, i, owner, one.cell};
      if (owner >= 0 && !is_receive(ops[owner].on) && ops[owner].on != o.on)
        return {fault::race, i, owner, one.cell};
      op gives_back;
      gives_back.on = o.on;
      gives_back.group = gives_back.next_group = one.group;
      gives_back.touches.clears = cells::one(one.cell);
      // Before its op a row has waited already.
      for (int l = 0; before && l < lane_count; ++l) gives_back.wait[l] = o.wait[l];
      rows.push_back(gives_back);
      row_of.push_back(i);
    }
    return {};
  };
  for (int i = 0; i < count; ++i) {
    op o = ops[i];
    for (int& w : o.wait)
      if (w >= 0 && w < i) w = place[w];
    if (diagnosis const wrong = give_back(i, o, true)) return wrong;
    write(o.group, o.touches.writes, i, false);
    write(o.group, o.touches.aliases & ~cells::chain_values, i, true);
    write(o.next_group, o.touches.next_writes, i, false);
    rows.push_back(o);
    row_of.push_back(i);
    if (diagnosis const wrong = give_back(i, o, false)) return wrong;
    // Whoever waits for a row waits for what it gives back.
    place[i] = static_cast<int>(rows.size()) - 1;
  }
  diagnosis found = check_table(rows.data(), static_cast<int>(rows.size()), groups, layers);
  if (found.at >= 0) found.at = row_of[found.at];
  if (found.other >= 0) found.other = row_of[found.other];
  return found;
}

} // namespace v0
} // namespace stretto
