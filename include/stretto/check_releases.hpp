#pragma once

#include <stretto/releases.hpp>

#include <algorithm>
#include <bit>
#include <vector>

namespace stretto {
inline namespace v0 {

/// Whether storage goes back in time: on the lane that wrote it, behind every row that touches it, and with no reader to
/// come. What came in a message has no such lane. In a diagnosis `at` is the row that goes wrong: the one behind which a
/// cell is given back, or a reader that comes later.
inline diagnosis check_releases(op const* ops, int count, int groups, int layers, std::vector<release> releases) {
  std::sort(releases.begin(), releases.end(), [](release const& a, release const& b) { return a.row < b.row; });
  // A release is a row of its own, which clears the cell.
  std::vector<op> rows;
  std::vector<int> row_of, place(static_cast<unsigned>(count)), writer(static_cast<unsigned>(groups) * 64U, -1);
  auto const write = [&writer](int group, cell_set set, int i) {
    for (; set != 0; set &= set - 1) writer[static_cast<unsigned>(group * 64 + std::countr_zero(set))] = i;
  };
  auto next = releases.begin();
  for (int i = 0; i < count; ++i) {
    op o = ops[i];
    write(o.group, o.touches.writes, i);
    write(o.next_group, o.touches.next_writes, i);
    for (int& w : o.wait)
      if (w >= 0 && w < i) w = place[static_cast<unsigned>(w)];
    rows.push_back(o);
    row_of.push_back(i);
    for (; next != releases.end() && next->row <= i; ++next) {
      int const owner = writer[static_cast<unsigned>(next->group * 64 + next->cell)];
      if (owner >= 0 && !is_receive(ops[owner].on) && ops[owner].on != o.on) return {fault::race, i, owner, next->cell};
      op gives_back;
      gives_back.on = o.on;
      gives_back.group = gives_back.next_group = next->group;
      gives_back.touches.clears = cells::one(next->cell);
      rows.push_back(gives_back);
      row_of.push_back(i);
    }
    // Whoever waits for a row waits for what it gives back.
    place[static_cast<unsigned>(i)] = static_cast<int>(rows.size()) - 1;
  }
  diagnosis found = check_table(rows.data(), static_cast<int>(rows.size()), groups, layers);
  if (found.at >= 0) found.at = row_of[static_cast<unsigned>(found.at)];
  if (found.other >= 0) found.other = row_of[static_cast<unsigned>(found.other)];
  return found;
}

}  // namespace v0
}  // namespace stretto
