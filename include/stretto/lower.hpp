#pragma once

#include <stretto/layout.hpp>
#include <stretto/ports.hpp>
#include <stretto/schedule.hpp>
#include <stretto/steps.hpp>

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
  ((pair == Pair ? void(found = rows_of<S, form::forward_backward, Pair / n, Pair % n>()) : void()), ...);
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

  void receive(placed_step const& p) {
    bool const gradient = p.arriving.gradient;
    int const slot = gradient ? p.backward_slot : p.forward_slot;
    op o = message_row(gradient, false, p.chunk, slot, p.arriving.microbatch);
    o.peer = static_cast<short>(p.arriving.peer);
    // Whoever had the slot before is done with it, and the message the other way has left.
    if (int const last = port(false, slot); last >= 0) wait_for(o, last);
    if (int const left = sent(!gradient, p.chunk, slot); left >= 0) wait_for(o, left);
    port(!gradient, slot) = static_cast<int>(out_.ops.size());
    out_.ops.push_back(o);
  }

  /// The last op of chunk `c` has spoken: what it made leaves at once.
  void send(bool gradient, int c, int slot, int microbatch) {
    int const peer = gradient ? layout_.chunk(c).from : layout_.chunk(c).to;
    if (peer < 0) return;
    op o = message_row(gradient, true, c, slot, microbatch);
    o.peer = static_cast<short>(peer);
    if (int const speaker = port(!gradient, slot); speaker >= 0) wait_for(o, speaker);
    sent(gradient, c, slot) = static_cast<int>(out_.ops.size());
    out_.ops.push_back(o);
  }

  void paste(body_rows const& rows, body_call const& body, placed_step const& p) {
    std::vector<int> place(static_cast<unsigned>(rows.count), -1);
    for (int i = 0; i < rows.count; ++i) {
      op o = rows.ops[i];
      if (o.is_port()) continue;
      bool const forward = o.is_forward();
      int const layer = forward ? body.forward_layer : body.backward_layer;
      int const slot = forward ? p.forward_slot : p.backward_slot;
      o.layer = static_cast<short>(layer);
      o.slot = static_cast<short>(slot);
      o.chunk = forward ? p.what.forward_chunk : p.what.backward_chunk;
      o.microbatch = forward ? p.what.forward_microbatch : p.what.backward_microbatch;
      o.group = slot * layout_.points() + layout_.point(layer);
      o.next_group = slot * layout_.points() + layout_.next_point(layer);
      for (int& w : o.wait) w = -1;
      for (int w : rows.ops[i].wait) {
        if (w < 0) continue;
        int const row = rows.ops[w].is_port() ? port(forward, slot) : place[static_cast<unsigned>(w)];
        if (row >= 0) wait_for(o, row);
      }
      int const here = place[static_cast<unsigned>(i)] = static_cast<int>(out_.ops.size());
      out_.ops.push_back(o);
      if (i == rows.exports_forward || i == rows.exports_backward) {
        port(forward, slot) = here;
        if (forward ? layout_.is_last_of_chunk(layer) : layout_.is_first_of_chunk(layer))
          send(!forward, o.chunk, slot, o.microbatch);
      }
    }
  }

  flat_table take() { return std::move(out_); }

 private:
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

  op message_row(bool gradient, bool is_send, int chunk, int slot, int microbatch) const {
    op o;
    o.what = gradient ? pass::backward : pass::forward;
    o.on = is_send ? lane::send : lane::receive;
    o.chunk = static_cast<short>(chunk);
    o.layer = 0;
    o.slot = static_cast<short>(slot);
    o.microbatch = microbatch;
    bool const at_begin = gradient == is_send;
    int const point = at_begin ? layout_.chunk(chunk).begin : layout_.chunk(chunk).end;
    o.group = o.next_group = slot * layout_.points() + point;
    o.touches = message_access(chain_, gradient, is_send);
    return o;
  }

  chain_layout const& layout_;
  chain_facts const& chain_;
  std::vector<int> forward_port_, backward_port_, sent_;
  flat_table out_;
};

}  // namespace detail

/// Lowers the placed list of one rank over its layers (see `layer_list`) to the flat table of schedule `S`.
template <class S, class Layers>
flat_table lower(std::vector<placed_step> const& steps, Layers const& layers, chain_layout const& layout, int slots) {
  detail::flattener flat(layout, chain_of<typename S::model>::value, layers.size(), slots);
  for (placed_step const& p : steps) {
    if (p.is_receive) {
      flat.receive(p);
      continue;
    }
    call const& c = p.what;
    if (c.runs_input() && layout.chunk(c.backward_chunk).is_last) flat.start_backward(p.backward_slot);
    if (c.runs_forward() && layout.chunk(c.forward_chunk).is_first) flat.start_forward(p.forward_slot);
    for_each_body(c, layers, [&](body_call const& body) {
      int const f = body.forward_layer < 0 ? -1 : layers[body.forward_layer].type;
      int const b = body.backward_layer < 0 ? -1 : layers[body.backward_layer].type;
      flat.paste(detail::find_rows<S>(body.what, f, b), body, p);
    });
    // A chunk without layers passes on what it got.
    if (c.runs_forward() && layout.chunk(c.forward_chunk).layers == 0)
      flat.send(false, c.forward_chunk, p.forward_slot, c.forward_microbatch);
    if (c.runs_input() && layout.chunk(c.backward_chunk).layers == 0)
      flat.send(true, c.backward_chunk, p.backward_slot, c.backward_microbatch);
  }
  return flat.take();
}

namespace detail {

/// "F.mlp (Experts) of layer 3, microbatch 2, on comm".
template <class S> std::string describe(op const& o) {
  block_facts const& f = *facts_at<typename S::model>(o.block, std::make_integer_sequence<int, S::model::count>{});
  int const phase = f.first_phase_of(o.node);
  text const name = f.phase_name[phase];
  return std::string(letter_of(o.what)) + '.' + name_of(f.kind[phase]) + " (" +
         std::string(name.begin, static_cast<unsigned>(name.size)) + ") of layer " + std::to_string(o.layer) +
         ", microbatch " + std::to_string(o.microbatch) + ", on " + name_of(o.on);
}

template <class S> std::string explain(diagnosis const& d, flat_table const& table) {
  std::string all = rule_of(d.what).sentence;
  if (d.at >= 0) all += ": " + describe<S>(table.ops[static_cast<unsigned>(d.at)]);
  if (d.other >= 0) all += "; " + describe<S>(table.ops[static_cast<unsigned>(d.other)]);
  return all;
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
