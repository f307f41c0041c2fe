#pragma once

#include <stretto/check.hpp>
#include <stretto/executor/issue.hpp>
#include <stretto/executor/layout.hpp>
#include <stretto/executor/steps.hpp>
#include <stretto/program/access.hpp>

namespace stretto {
inline namespace v0 {
namespace detail {

/// The rows of one body, wherever they were compiled.
struct body_rows {
  op const* ops = nullptr;
  int count = 0;
  int exports_forward = -1;
  int exports_backward = -1;
};

/// Walks through the list of a rank and writes down what is issued: bodies pasted at their ports, and messages. The only
/// place that knows where a microbatch waits and what leaves when.
class flattener {
public:
  STRETTO_COLD flattener(chain_layout const& layout, chain_facts const& chain, int layers, int slots)
      : layout_(layout), chain_(chain), numbers_{slots, layout.chunks()}, forward_port_(slots),
        backward_port_(forward_port_), sent_(numbers_.count(), -1), arrived_(layout.points()) {
    out_.table.layers = layers;
    out_.table.groups = slots * layout.points();
    out_.slots = slots;
    out_.events = numbers_.count();
    for (int c = 0; c < layout.chunks(); ++c)
      if (layout.chunk(c).from >= 0) arrived_[layout.chunk(c).begin] = cells::chain_values;
  }

  STRETTO_COLD void receive(placed_step const& p) {
    bool const gradient = p.arriving.gradient;
    int const peer = peer_of(gradient, false, p.chunk);
    if (peer < 0) return;
    int const slot = gradient ? p.backward_slot : p.forward_slot;
    op o = message_row(gradient, false, p.chunk, slot, p.arriving.microbatch, peer);
    // The message the other way has left: for a gradient that of the same microbatch, else that of the slot's last one.
    int const leaves = numbers_.sent(!gradient, p.chunk, slot);
    if (int const left = sent_[leaves]; left >= 0) wait_for(o, left);
    port_place& arrives = port(!gradient, slot);
    arrives = {rows(), numbers_.port(!gradient, slot), bit_of(o.on)};
    droppable_.push_back({rows(), -1, static_cast<int>(out_.list.size()), known_by_message});
    out_.list.push_back(posting(issue_kind::receive));
    out_.messages.push_back(
        {p.arriving, o.on, p.chunk, slot, point_of(gradient, false, p.chunk), leaves, false, arrives.event});
    out_.table.ops.push_back(o);
  }

  /// Both ends list the activation of a pair first. Where its gradient takes the same lane and comes earlier, because the
  /// forward has more layers, it waits until the activation has left.
  STRETTO_COLD void begin(placed_step const& p) {
    call const& c = p.what;
    // A backward begins where the forward of its microbatch ended, a forward where the last backward in its slot did.
    if (c.runs_input() && layout_.chunk(c.backward_chunk).is_last)
      port(false, p.backward_slot) = port(true, p.backward_slot);
    if (c.runs_forward() && layout_.chunk(c.forward_chunk).is_first)
      port(true, p.forward_slot) = port(false, p.forward_slot);
    forward_left_ = backward_left_ = false;
    // A chunk without layers passes on what it got.
    if (c.runs_forward() && layout_.chunk(c.forward_chunk).layers == 0)
      send(false, c.forward_chunk, p.forward_slot, c.forward_microbatch);
    backward_waits_ = layout_.share_a_lane(c);
  }
  STRETTO_COLD void end(placed_step const& p) {
    call const& c = p.what;
    // A gradient that waited; and where no layer has spoken, so that the check says what the other rank would wait for.
    if (c.runs_forward() && !forward_left_)
      send(false, c.forward_chunk, p.forward_slot, c.forward_microbatch);
    if (c.runs_input() && !backward_left_)
      send(true, c.backward_chunk, p.backward_slot, c.backward_microbatch);
  }

  STRETTO_COLD void paste(body_rows const& rows, body_call const& body, placed_step const& p) {
    int const index = static_cast<int>(out_.list.size());
    issue all;
    all.what = issue_kind::body;
    all.shape = body.what;
    if (body.forward_layer >= 0)
      all.f = side(true, body.forward_layer, p.forward_slot, p.what.forward_microbatch);
    if (body.backward_layer >= 0)
      all.b = side(false, body.backward_layer, p.backward_slot, p.what.backward_microbatch);
    port_place const f_port = body.forward_layer >= 0 ? port(true, p.forward_slot) : port_place{};
    port_place const b_port = body.backward_layer >= 0 ? port(false, p.backward_slot) : port_place{};
    sequence<int> place(rows.count, -1);
    for (int i = 0; i < rows.count; ++i) {
      op o = rows.ops[i];
      if (o.is_port()) continue;
      bool const forward = o.is_forward();
      issue_side& mine = forward ? all.f : all.b;
      o.layer = mine.layer;
      o.slot = mine.slot;
      o.chunk = forward ? p.what.forward_chunk : p.what.backward_chunk;
      o.microbatch = mine.microbatch;
      int const point = layout_.point(mine.layer), next = layout_.next_point(mine.layer);
      o.group = mine.slot * layout_.points() + point;
      o.next_group = mine.slot * layout_.points() + next;
      cell_set const arrived = arrived_[point];
      if (forward) arrived_[next] |= arrived & o.touches.carries;
      o.touches = taken_over(o.touches, arrived, forward);
      for (int& w : o.wait) w = -1;
      bool const begins =
          forward ? layout_.is_first_of_chunk(mine.layer) : layout_.is_last_of_chunk(mine.layer);
      for (int w : rows.ops[i].wait) {
        if (w < 0) continue;
        bool const at_port = rows.ops[w].is_port();
        int const row = at_port ? (forward ? f_port : b_port).row : place[w];
        if (row < 0) continue;
        wait_for(o, row);
        if (at_port && begins)
          droppable_.push_back({this->rows(), row, index, forward ? known_by_forward : known_by_backward});
      }
      int const here = place[i] = this->rows();
      out_.table.ops.push_back(o);
      if (i != rows.exports_forward && i != rows.exports_backward) continue;
      port(forward, mine.slot) = {here, mine.records, bit_of(o.on)};
      if (forward && layout_.is_last_of_chunk(mine.layer)) {
        mine.message = leave(false, o.chunk, mine.slot, o.microbatch);
        backward_waits_ = false;
      } else if (!forward && layout_.is_first_of_chunk(mine.layer) && !backward_waits_) {
        mine.message = leave(true, o.chunk, mine.slot, o.microbatch);
      }
    }
    out_.list.push_back(all);
  }

  /// Where a call begins, and where a message comes in, a wait is left out if its lane has seen the op by other ways. Inside
  /// of bodies that is so from the start.
  STRETTO_COLD issue_list take() {
    sequence<op>& ops = out_.table.ops;
    clocks clock(ops.data(), rows());
    droppable_wait const* next = droppable_.begin();
    for (int i = 0; i < rows(); ++i) {
      op& o = ops[i];
      clock.enter(i);
      bool drop[lane_count] = {};
      for (; next != droppable_.end() && next->row == i; ++next)
        for (int l = 0; l < lane_count; ++l)
          if (int const w = o.wait[l];
              w >= 0 && (next->waits_for < 0 || w == next->waits_for) && knows(clock, o, i, w)) {
            drop[l] = true;
            note_known(*next, o.on);
          }
      for (int l = 0; l < lane_count; ++l) {
        if (drop[l]) o.wait[l] = -1;
        if (o.wait[l] >= 0) clock.wait(i, o.wait[l]);
      }
      clock.leave(i);
    }
    return static_cast<issue_list&&>(out_);
  }

private:
  /// The row that spoke last for a microbatch, the event that stands for it, and the lanes that need not wait for it.
  struct port_place {
    int row = -1;
    int event = -1;
    unsigned known = ~0U;
  };
  enum known_by { known_by_forward, known_by_backward, known_by_message };
  /// A wait that may turn out to be known: of `row`, for op `waits_for` (-1: any).
  struct droppable_wait {
    int row;
    int waits_for;
    int issue;
    known_by whose;
  };

  int rows() const { return static_cast<int>(out_.table.ops.size()); }

  void note_known(droppable_wait const& w, lane by) {
    issue& one = out_.list[w.issue];
    if (w.whose == known_by_message)
      out_.messages[one.message].known = true;
    else
      (w.whose == known_by_forward ? one.f : one.b).known |= bit_of(by);
  }

  /// Whether op `i` has seen `w` by its lane, or will by another of its waits.
  static bool knows(clocks& clock, op const& o, int i, int w) {
    if (clock.has_seen(i, w)) return true;
    for (int other : o.wait)
      if (other >= 0 && other != w && clock.has_seen(other, w)) return true;
    return false;
  }

  port_place& port(bool forward, int slot) { return (forward ? forward_port_ : backward_port_)[slot]; }

  issue_side side(bool forward, int layer, int slot, int microbatch) {
    port_place const& at = port(forward, slot);
    return {layer, slot, microbatch, at.event, at.known, numbers_.port(forward, slot), -1};
  }
  /// The next message, as an entry of its own.
  issue posting(issue_kind what) const {
    issue one;
    one.what = what;
    one.message = static_cast<int>(out_.messages.size());
    return one;
  }

  void send(bool gradient, int c, int slot, int microbatch) {
    issue const one = posting(issue_kind::send);
    if (leave(gradient, c, slot, microbatch) >= 0) out_.list.push_back(one);
  }
  /// The last op of chunk `c` has spoken: what it made leaves at once, if the neighbour is another rank. The number of the
  /// message, or -1.
  STRETTO_COLD int leave(bool gradient, int c, int slot, int microbatch) {
    int const peer = peer_of(gradient, true, c);
    (gradient ? backward_left_ : forward_left_) = true;
    if (peer < 0) return -1;
    op o = message_row(gradient, true, c, slot, microbatch, peer);
    port_place const& speaker = port(!gradient, slot);
    if (speaker.row >= 0) wait_for(o, speaker.row);
    int const event = numbers_.sent(gradient, c, slot);
    sent_[event] = rows();
    out_.messages.push_back({{gradient, layout_.chunk(c).stage, microbatch, 0, peer},
                             o.on,
                             c,
                             slot,
                             point_of(gradient, true, c),
                             speaker.event,
                             false,
                             event});
    out_.table.ops.push_back(o);
    return static_cast<int>(out_.messages.size()) - 1;
  }

  void wait_for(op& o, int row) const {
    lane const on = out_.table.ops[row].on;
    if (on == o.on) return;
    int& latest = o.wait[index_of(on)];
    if (row > latest) latest = row;
  }

  /// The rank that the message of a chunk goes to or comes from; -1: none does, as in a model where nothing crosses between layers.
  int peer_of(bool gradient, bool sends, int chunk) const {
    if (chain_.count == 0) return -1;
    return gradient == sends ? layout_.chunk(chunk).from : layout_.chunk(chunk).to;
  }
  int point_of(bool gradient, bool sends, int chunk) const {
    return gradient == sends ? layout_.chunk(chunk).begin : layout_.chunk(chunk).end;
  }
  STRETTO_COLD op message_row(bool gradient, bool sends, int chunk, int slot, int microbatch,
                              int peer) const {
    op o;
    o.what = gradient ? pass::backward : pass::forward;
    o.on = layout_.lane_of(gradient, sends, peer);
    o.peer = static_cast<short>(peer);
    o.chunk = static_cast<short>(chunk);
    o.layer = 0;
    o.slot = slot;
    o.microbatch = microbatch;
    o.group = o.next_group = slot * layout_.points() + point_of(gradient, sends, chunk);
    o.touches = message_access(chain_, gradient, sends);
    return o;
  }

  chain_layout const& layout_;
  chain_facts const& chain_;
  event_numbers const numbers_;
  bool backward_waits_ = false, forward_left_ = false, backward_left_ = false;
  sequence<port_place> forward_port_, backward_port_;
  sequence<int> sent_; ///< by event: the row of the message that left last
  sequence<cell_set> arrived_; ///< by point: the chain values there whose storage came in from another rank
  sequence<droppable_wait> droppable_;
  issue_list out_;
};

} // namespace detail
} // namespace v0
} // namespace stretto
