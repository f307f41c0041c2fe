#pragma once

#include <stretto/layout.hpp>
#include <stretto/ports.hpp>
#include <stretto/releases.hpp>
#include <stretto/schedule.hpp>
#include <stretto/steps.hpp>

#include <array>
#include <string>
#include <vector>

/// A whole step of one rank as one flat table: the bodies of its plan, pasted at their ports. What is checked, simulated
/// and drawn here is row by row what the executor issues.
namespace stretto {
inline namespace v0 {

/// The rows of one body, wherever they were compiled.
struct body_rows {
  op const* ops = nullptr;
  int count = 0;
  int exports_forward = -1;
  int exports_backward = -1;
};

namespace detail {

template <class S, form F, int Forward, int Backward> constexpr body_rows rows_of() {
  using body = body_of<S, F, Forward, Backward>;
  return {body::value.ops, body::size, forward_export(body::value), backward_export(body::value)};
}

template <class S, int... K> body_rows find_lone_rows(form f, int type, std::integer_sequence<int, K...>) {
  body_rows found;
  auto pick = [&]<int Type>(std::integral_constant<int, Type>) {
    if (f == form::forward) found = rows_of<S, form::forward, Type, -1>();
    if (f == form::backward) found = rows_of<S, form::backward, -1, Type>();
    if constexpr (S::rank_plan::splits) {
      if (f == form::backward_input) found = rows_of<S, form::backward_input, -1, Type>();
      if (f == form::backward_weight) found = rows_of<S, form::backward_weight, -1, Type>();
    }
  };
  ((type == K ? pick(std::integral_constant<int, K>{}) : void()), ...);
  return found;
}
template <class S, int... Pair> body_rows find_pair_rows(int pair, std::integer_sequence<int, Pair...>) {
  constexpr int n = S::model::count;
  body_rows found;
  auto pick = [&found]<int Type>(std::integral_constant<int, Type>) {
    if constexpr (meets_in_pairs<typename S::model, Type / n>() && meets_in_pairs<typename S::model, Type % n>())
      found = rows_of<S, form::forward_backward, Type / n, Type % n>();
  };
  ((pair == Pair ? pick(std::integral_constant<int, Pair>{}) : void()), ...);
  return found;
}

/// The compiled rows of a body, by its run-time form and block types.
template <class S> body_rows find_rows(form f, int forward_type, int backward_type) {
  constexpr int n = S::model::count;
  if (f != form::forward_backward)
    return find_lone_rows<S>(f, f == form::forward ? forward_type : backward_type, std::make_integer_sequence<int, n>{});
  if constexpr (S::rank_plan::pairs)
    return find_pair_rows<S>(forward_type * n + backward_type, std::make_integer_sequence<int, n * n>{});
  else
    return {};
}

}  // namespace detail

/// A flat table with the sizes of its cells.
struct flat_table {
  std::vector<op> ops;
  int groups = 0;
  int layers = 0;

  diagnosis check() const { return check_table(ops.data(), static_cast<int>(ops.size()), groups, layers); }
  int waits() const {
    int count = 0;
    for (op const& o : ops)
      for (int w : o.wait) count += w >= 0;
    return count;
  }
};

namespace detail {

class flattener {
 public:
  flattener(chain_layout const& layout, chain_facts const& chain, int layers, int slots)
      : layout_(layout),
        chain_(chain),
        forward_port_(static_cast<unsigned>(slots), -1),
        backward_port_(forward_port_),
        sent_(static_cast<unsigned>(slots * layout.chunks() * 2), -1) {
    out_.layers = layers;
    out_.groups = slots * layout.points();
  }

  /// A backward begins where the forward of its microbatch ended.
  void start_backward(int slot) { backward_port_[static_cast<unsigned>(slot)] = forward_port_[static_cast<unsigned>(slot)]; }
  void start_forward(int slot) { forward_port_[static_cast<unsigned>(slot)] = -1; }

  void receive(placed_step& p) {
    bool const gradient = p.arriving.gradient;
    int const slot = gradient ? p.backward_slot : p.forward_slot;
    op o = message_row(gradient, false, p.chunk, slot, p.arriving.microbatch, p.arriving.peer);
    // The message the other way has left: for a gradient that of the same microbatch, else that of the slot's last one.
    if (int const left = sent(!gradient, p.chunk, slot); left >= 0) wait_for(o, left);
    port(!gradient, slot) = static_cast<int>(out_.ops.size());
    droppable_.push_back({out_.ops.size(), -1, &p.receive_known});
    out_.ops.push_back(o);
  }

  /// The last op of chunk `c` has spoken: what it made leaves at once.
  void send(bool gradient, int c, int slot, int microbatch) {
    int const peer = gradient ? layout_.chunk(c).from : layout_.chunk(c).to;
    if (peer < 0) return;
    op o = message_row(gradient, true, c, slot, microbatch, peer);
    if (int const speaker = port(!gradient, slot); speaker >= 0) wait_for(o, speaker);
    sent(gradient, c, slot) = static_cast<int>(out_.ops.size());
    out_.ops.push_back(o);
  }

  /// Both ends list the activation of a pair first. Where its gradient takes the same lane and comes earlier, because the
  /// forward has more layers, it waits until the activation has left.
  void begin(call const& c) {
    held_ = false;
    backward_waits_ = layout_.share_a_lane(c);
  }
  void end(placed_step const& p) {
    if (held_) send(true, p.what.backward_chunk, p.backward_slot, p.what.backward_microbatch);
  }

  void paste(body_rows const& rows, body_call const& body, placed_step& p) {
    std::vector<int> place(static_cast<unsigned>(rows.count), -1);
    for (int i = 0; i < rows.count; ++i) {
      op o = rows.ops[i];
      if (o.is_port()) continue;
      bool const forward = o.is_forward();
      int const layer = forward ? body.forward_layer : body.backward_layer;
      int const slot = forward ? p.forward_slot : p.backward_slot;
      o.layer = static_cast<short>(layer);
      o.slot = slot;
      o.chunk = forward ? p.what.forward_chunk : p.what.backward_chunk;
      o.microbatch = forward ? p.what.forward_microbatch : p.what.backward_microbatch;
      o.group = slot * layout_.points() + layout_.point(layer);
      o.next_group = slot * layout_.points() + layout_.next_point(layer);
      if (layout_.reads_arrival(layer)) o.touches = taken_over(o.touches, forward);
      for (int& w : o.wait) w = -1;
      bool const begins = forward ? layout_.is_first_of_chunk(layer) : layout_.is_last_of_chunk(layer);
      for (int w : rows.ops[i].wait) {
        if (w < 0) continue;
        bool const at_port = rows.ops[w].is_port();
        int const row = at_port ? port(forward, slot) : place[static_cast<unsigned>(w)];
        if (row < 0) continue;
        wait_for(o, row);
        if (at_port && begins)
          droppable_.push_back({out_.ops.size(), row, forward ? &p.forward_known : &p.backward_known});
      }
      int const here = place[static_cast<unsigned>(i)] = static_cast<int>(out_.ops.size());
      out_.ops.push_back(o);
      if (i == rows.exports_forward || i == rows.exports_backward) {
        port(forward, slot) = here;
        if (forward && layout_.is_last_of_chunk(layer)) {
          send(false, o.chunk, slot, o.microbatch);
          backward_waits_ = false;
        } else if (!forward && layout_.is_first_of_chunk(layer)) {
          held_ = backward_waits_;
          if (!held_) send(true, o.chunk, slot, o.microbatch);
        }
      }
    }
  }

  /// Where a call begins, and where a message comes in, a wait is left out if its lane has seen the op by other ways. Inside
  /// of bodies that is so from the start.
  flat_table take() {
    int const count = static_cast<int>(out_.ops.size());
    clocks clock(out_.ops.data(), count);
    auto next = droppable_.begin();
    for (int i = 0; i < count; ++i) {
      op& o = out_.ops[static_cast<unsigned>(i)];
      clock.enter(i);
      std::array<bool, lane_count> drop{};
      for (; next != droppable_.end() && next->row == static_cast<unsigned>(i); ++next)
        for (int l = 0; l < lane_count; ++l)
          if (int const w = o.wait[l]; w >= 0 && (next->waits_for < 0 || w == next->waits_for) && knows(clock, o, i, w)) {
            drop[static_cast<unsigned>(l)] = true;
            *next->known |= bit_of(o.on);
          }
      for (int l = 0; l < lane_count; ++l) {
        if (drop[static_cast<unsigned>(l)]) o.wait[l] = -1;
        if (o.wait[l] >= 0) clock.wait(i, o.wait[l]);
      }
      clock.leave(i);
    }
    return std::move(out_);
  }

 private:
  /// Whether op `i` has seen `w` by its lane, or will by another of its waits.
  static bool knows(clocks& clock, op const& o, int i, int w) {
    if (clock.has_seen(i, w)) return true;
    for (int other : o.wait)
      if (other >= 0 && other != w && clock.has_seen(other, w)) return true;
    return false;
  }

  int& port(bool forward, int slot) { return (forward ? forward_port_ : backward_port_)[static_cast<unsigned>(slot)]; }

  int& sent(bool gradient, int c, int slot) {
    return sent_[static_cast<unsigned>((slot * layout_.chunks() + c) * 2 + gradient)];
  }

  void wait_for(op& o, int row) const {
    lane const on = out_.ops[static_cast<unsigned>(row)].on;
    if (on == o.on) return;
    int& latest = o.wait[index_of(on)];
    if (row > latest) latest = row;
  }

  op message_row(bool gradient, bool sends, int chunk, int slot, int microbatch, int peer) const {
    op o;
    o.what = gradient ? pass::backward : pass::forward;
    o.on = layout_.lane_of(gradient, sends, peer);
    o.peer = static_cast<short>(peer);
    o.chunk = static_cast<short>(chunk);
    o.layer = 0;
    o.slot = slot;
    o.microbatch = microbatch;
    bool const at_begin = gradient == sends;
    int const point = at_begin ? layout_.chunk(chunk).begin : layout_.chunk(chunk).end;
    o.group = o.next_group = slot * layout_.points() + point;
    o.touches = message_access(chain_, gradient, sends);
    return o;
  }

  chain_layout const& layout_;
  chain_facts const& chain_;
  bool backward_waits_ = false, held_ = false;
  std::vector<int> forward_port_, backward_port_, sent_;
  /// A wait that may turn out to be known: of `row`, for op `waits_for` (-1: any).
  struct droppable_wait {
    std::size_t row;
    int waits_for;
    unsigned* known;
  };
  std::vector<droppable_wait> droppable_;
  flat_table out_;
};

}  // namespace detail

/// Lowers the placed list of one rank over its layers (see `layer_list`) to the flat table of schedule `S`, and notes in the
/// list which waits are known already.
template <class S, class Layers>
flat_table lower(std::vector<placed_step>& steps, Layers const& layers, chain_layout const& layout,
                 int slots) {
  detail::flattener flat(layout, chain_of<typename S::model>::value, layers.size(), slots);
  for (placed_step& p : steps) {
    if (p.is_receive) {
      flat.receive(p);
      continue;
    }
    call const& c = p.what;
    if (c.runs_input() && layout.chunk(c.backward_chunk).is_last) flat.start_backward(p.backward_slot);
    if (c.runs_forward() && layout.chunk(c.forward_chunk).is_first) flat.start_forward(p.forward_slot);
    // A chunk without layers passes on what it got.
    if (c.runs_forward() && layout.chunk(c.forward_chunk).layers == 0)
      flat.send(false, c.forward_chunk, p.forward_slot, c.forward_microbatch);
    flat.begin(c);
    auto const pairs = [&layers](int l) { return detail::runs_in_pairs<typename S::model>(layers[l].type); };
    for_each_body(c, layers, pairs, [&](body_call const& body) {
      int const f = body.forward_layer < 0 ? -1 : layers[body.forward_layer].type;
      int const b = body.backward_layer < 0 ? -1 : layers[body.backward_layer].type;
      flat.paste(detail::find_rows<S>(body.what, f, b), body, p);
    });
    flat.end(p);
    if (c.runs_input() && layout.chunk(c.backward_chunk).layers == 0)
      flat.send(true, c.backward_chunk, p.backward_slot, c.backward_microbatch);
  }
  return flat.take();
}

/// The releases of a lowered table of schedule `S`, in the order of its rows.
template <class S, class Layers>
std::vector<release> plan_releases(flat_table const& table, chain_layout const& layout, Layers const& layers) {
  std::vector<int> type(static_cast<unsigned>(layout.points()), -1);
  for (int l = 0; l < layers.size(); ++l) type[static_cast<unsigned>(layout.point(l))] = layers[l].type;
  release_planner planner(table.ops.data(), static_cast<int>(table.ops.size()), table.groups);
  return planner.plan([&](int group, int cell) {
    int const k = type[static_cast<unsigned>(group % layout.points())];
    if (k < 0 || cell < 8 || cell >= 24) return false;
    return detail::facts_at<typename S::model>(k, std::make_integer_sequence<int, S::model::count>{})
        ->root_is_metadata[cell - 8];
  });
}

}  // namespace v0
}  // namespace stretto
