#pragma once

#include <stretto/program.hpp>
#include <stretto/program/link.hpp>

/// Facts about a body's table that its generated code needs: which event stands for which op, and which op speaks for
/// the body at its ports.
namespace stretto {
inline namespace v0 {
namespace detail {

/// Per row: the event that is recorded after it (-1: nobody waits for it). An event is free again after its last wait,
/// in host order; lanes bind a wait to the record issued last before it, so reuse is safe.
template <int Rows> struct body_events {
  int id[extent(Rows)] = {};
  int count = 0;
};
template <int Rows> constexpr body_events<Rows> number_events(program<Rows> const& p) {
  body_events<Rows> e;
  int last_wait[extent(Rows)] = {};
  for (int i = 0; i < Rows; ++i) e.id[i] = -1, last_wait[i] = -1;
  for (int i = 0; i < Rows; ++i)
    for (int w : p.ops[i].wait)
      if (w >= 0 && !p.ops[w].is_port()) last_wait[w] = i;
  for (int i = 0; i < Rows; ++i) {
    if (last_wait[i] < 0) continue;
    int id = 0;
    for (int tried = 0; tried < i; ++tried)
      if (e.id[tried] == id && last_wait[tried] > i) {
        ++id;
        tried = -1;
      }
    e.id[i] = id;
    if (id >= e.count) e.count = id + 1;
  }
  return e;
}

/// The last op that hands something to the layer behind (forward) or before (backward); -1 if none does. The boundary
/// cells order all such ops, so this one has seen the others.
template <int Rows> constexpr int forward_export(program<Rows> const& p) {
  int last = -1;
  for (int i = 0; i < Rows; ++i)
    if (!p.ops[i].is_port() && (p.ops[i].touches.next_writes & cells::boundary_forward) != 0) last = i;
  return last;
}
template <int Rows> constexpr int backward_export(program<Rows> const& p) {
  int last = -1;
  for (int i = 0; i < Rows; ++i)
    if (!p.ops[i].is_port() && (p.ops[i].touches.writes & cells::boundary_backward) != 0) last = i;
  return last;
}

/// What a row of a body waits for: another row, and what happened outside.
struct waits_of_row {
  int row = -1;
  bool at_port = false;
  bool elsewhere = false; ///< on a lane that bodies do not run on, or for two rows: never
};
constexpr waits_of_row waits_of(op const& o) {
  waits_of_row found;
  for (int l = 0; l < lane_count; ++l) {
    if (o.wait[l] < 0) continue;
    if (l == index_of(lane::forward_port) || l == index_of(lane::backward_port))
      found.at_port = true;
    else if ((l == index_of(lane::compute) || l == index_of(lane::comm)) && found.row < 0)
      found.row = o.wait[l];
    else
      found.elsewhere = true;
  }
  return found;
}

/// Bodies use at most this many events at once: one per op and lane crossing.
inline constexpr int max_events = 16;

} // namespace detail
} // namespace v0
} // namespace stretto
