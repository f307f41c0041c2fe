#pragma once

#include <stretto/check.hpp>
#include <stretto/pipeline.hpp>
#include <stretto/program/access.hpp>
#include <stretto/program/builder.hpp>

/// Turns the order of a policy into the table of one body: the straight-line code of a layer pair, or of a layer alone.
namespace stretto {
inline namespace v0 {

/// Which block types a body serves; -1 for a side that its form does not have.
struct body_blocks {
  int forward;
  int backward;
};

constexpr bool has_forward(form f) { return f == form::forward_backward || f == form::forward; }
constexpr bool has_backward(form f) { return f != form::forward; }

namespace detail {

/// Two ports and every pass of every node of two blocks.
inline constexpr int max_rows = 2 + 3 * max_phases;

/// Groups of cells inside a body: the forward layer, the layer behind it, the backward layer, the layer behind that.
inline constexpr int body_groups = 4;

struct draft {
  op ops[max_rows] = {};
  int count = 0;
  diagnosis problem{};

  constexpr void add(op const& o) { ops[count++] = o; }
};

class body_maker {
public:
  constexpr body_maker(block_facts const* forward, block_facts const* backward, chain_facts const& chain,
                       body_blocks blocks, form f, bool split)
      : forward_(forward), backward_(backward), chain_(chain), blocks_(blocks), form_(f), split_(split) {}

  constexpr draft make(pair_builder const& order) {
    add_ports();
    if (order.size() > pair_builder::capacity) return refuse({fault::too_large});
    for (int i = 0; i < order.size(); ++i)
      if (!place(order[i])) return out_;
    census(forward_, true);
    census(backward_, false);
    if (out_.problem) return out_;
    link(out_.ops, out_.count, body_groups, 2);
    return out_;
  }

private:
  /// What of a node has been placed: passes, and the kind and lane that placed it first.
  struct placed {
    int passes[4] = {};
    int by_phase[4] = {-1, -1, -1, -1};
    lane on[4] = {};
  };

  constexpr draft& refuse(diagnosis const& d) {
    out_.problem = d;
    return out_;
  }

  constexpr void add_ports() {
    if (has_forward(form_)) {
      op port = row(true);
      port.on = lane::forward_port;
      port.touches = forward_port_access(*forward_, chain_);
      out_.add(port);
    }
    if (has_backward(form_)) {
      op port = row(false);
      port.on = lane::backward_port;
      port.touches = backward_port_access(*backward_, chain_, form_ == form::backward_weight);
      out_.add(port);
    }
  }

  constexpr op row(bool forward) const {
    op o;
    o.block = static_cast<unsigned char>(forward ? blocks_.forward : blocks_.backward);
    o.microbatch = forward ? 0 : 1;
    o.layer = forward ? 0 : 1;
    o.group = forward ? 0 : 2;
    o.next_group = forward ? 1 : 3;
    return o;
  }

  /// Said by the number of the block: under the undefined-behaviour sanitizer g++ 12 does not compare the address of a
  /// template's variable with null at compile time.
  constexpr bool has_side(bool forward) const { return (forward ? blocks_.forward : blocks_.backward) >= 0; }

  /// Whether the node's backward runs as I and W in this body.
  constexpr bool splits(int node) const {
    bool const halves = split_ || form_ == form::backward_input || form_ == form::backward_weight;
    return halves && backward_->node_has_weights(node);
  }

  constexpr bool place(request const& r) {
    bool const forward = r.what == pass::forward;
    block_facts const* f = forward ? forward_ : backward_;
    if (!has_side(forward)) return true;
    for (int step = 0; step < f->phases; ++step) {
      int const phase = forward ? step : f->phases - 1 - step;
      if (f->kind[phase] != r.kind) continue;
      if (!place_node(*f, phase, r)) return false;
    }
    return true;
  }

  constexpr bool place_node(block_facts const& f, int phase, request const& r) {
    int const node = f.node_of[phase];
    if (r.what == pass::forward) return place_pass(f, phase, pass::forward, r);
    if (!splits(node))
      return r.what == pass::backward_weight || form_ == form::backward_weight ||
             place_pass(f, phase, pass::backward, r);
    bool const input = r.what != pass::backward_weight && form_ != form::backward_weight;
    bool const weight = r.what != pass::backward_input && form_ != form::backward_input;
    if (input && !place_pass(f, phase, pass::backward_input, r)) return false;
    return !weight || place_pass(f, phase, pass::backward_weight, r);
  }

  constexpr bool place_pass(block_facts const& f, int phase, pass what, request const& r) {
    int const node = f.node_of[phase];
    placed& p = what == pass::forward ? forward_placed_[node] : backward_placed_[node];
    int const w = static_cast<int>(what);
    int const block = what == pass::forward ? blocks_.forward : blocks_.backward;
    if (p.passes[w] > 0) {
      // Another phase of the same node: it has run with it, if the lanes agree.
      if (f.kind[p.by_phase[w]] == r.kind && p.by_phase[w] == phase) {
        refuse({fault::doubled_node, phase, -1, w, block});
        return false;
      }
      if (p.on[w] != r.on) {
        // In the order of the block, whichever of the two the policy names first.
        int const first = p.by_phase[w] < phase ? p.by_phase[w] : phase;
        refuse({fault::missing_cut, first, p.by_phase[w] + phase - first, w, block});
        return false;
      }
      return true;
    }
    p.passes[w] = 1;
    p.by_phase[w] = phase;
    p.on[w] = r.on;
    op o = row(what == pass::forward);
    o.what = what;
    o.on = r.on;
    o.node = static_cast<unsigned char>(node);
    o.touches = access_of(f, chain_, node, what);
    out_.add(o);
    return true;
  }

  /// Every node exactly once per required pass. Dataflow alone would miss a dropped weight gradient.
  constexpr void census(block_facts const* f, bool forward) {
    if (!has_side(forward) || out_.problem) return;
    for (int node = 0; node < f->nodes; ++node) {
      placed const& p = forward ? forward_placed_[node] : backward_placed_[node];
      bool required[4] = {};
      if (forward) {
        required[0] = true;
      } else if (!splits(node)) {
        required[static_cast<int>(pass::backward)] = form_ != form::backward_weight;
      } else {
        required[static_cast<int>(pass::backward_input)] = form_ != form::backward_weight;
        required[static_cast<int>(pass::backward_weight)] = form_ != form::backward_input;
      }
      for (int w = 0; w < 4; ++w)
        if (required[w] && p.passes[w] == 0)
          refuse({fault::missing_node, f->first_phase_of(node), -1, w,
                  forward ? blocks_.forward : blocks_.backward});
    }
  }

  block_facts const* forward_;
  block_facts const* backward_;
  chain_facts const& chain_;
  body_blocks blocks_;
  form form_;
  bool split_;
  placed forward_placed_[max_phases] = {};
  placed backward_placed_[max_phases] = {};
  draft out_{};
};

/// Apart from the making, so that it also sees what a derived schedule has changed in the table.
constexpr draft checked(draft d) {
  if (!d.problem) d.problem = check_table(d.ops, d.count, body_groups, 2);
  return d;
}

template <class Policy> constexpr pair_builder order_of(form f) {
  pair_builder p;
  if constexpr (orders_forwards<Policy>) {
    if (f == form::forward) return Policy::forward(p), p;
  }
  if constexpr (orders_backwards<Policy>) {
    if (has_backward(f) && !has_forward(f)) return Policy::backward(p), p;
  }
  Policy::pair(p);
  return p;
}

} // namespace detail
} // namespace v0
} // namespace stretto
