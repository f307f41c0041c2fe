#pragma once

// First, for a short list of includers in the compiler's message.
#include <stretto/slot.hpp>

#include <stretto/body_code.hpp>
#include <stretto/explain.hpp>
#include <stretto/layers.hpp>
#include <stretto/lower.hpp>
#include <stretto/plan_error.hpp>
#include <stretto/proof.hpp>
#include <stretto/proof_phases.hpp>
#include <stretto/states.hpp>

#include <memory>
#include <stdexcept>
#include <vector>

namespace stretto {
inline namespace v0 {

/// Skips the proofs of a schedule: for tests that break a program on purpose.
struct unproved {};

/// A schedule joined to adapters and to the layers of one rank: calling it runs one step over all microbatches. Everything
/// is allocated when it is made. Backward starts at the objective of the last stage.
///
/// Throws `std::invalid_argument`, with the sentence of the broken rule, if the schedule cannot serve these layers and
/// sizes. A step throws what `drain` of the lanes throws; every state in flight is given back first, so that a new step
/// may follow.
template <class S, class Tensors, class Lanes, class Peers = no_peers<typename Tensors::tensor>> class executor {
  using model = typename S::model;
  using tensor = typename Tensors::tensor;
  using event = typename Lanes::event;
  using context = detail::body_context<Tensors, Lanes, Peers>;
  using port = detail::port<event>;
  using departure = detail::departure<tensor, event>;
  using made_side = detail::made_side<tensor, event>;
  using made_body = detail::made_body<tensor, event>;
  static constexpr int types = model::count;

 public:
  executor(S, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers, sizes wanted)
      : executor(unproved{}, S{}, adapters, layers, wanted) {
    // What proof<S> stands on: every level of instantiation is one more in the compiler's message.
    [[maybe_unused]] detail::verdict<S, detail::fault_in<S>::value.d.what> const legal{};
    [[maybe_unused]] detail::tensors_verdict<S, Tensors> const able{};
    if (false) {
      using detail::member, detail::phases_with;
      detail::use_forward<model, Tensors>(typename phases_with<model, member::forward>::numbers{});
      detail::use_backward<model, Tensors>(typename phases_with<model, member::backward>::numbers{});
      detail::use_backward_input<model, Tensors>(typename phases_with<model, member::backward_input>::numbers{});
      detail::use_backward_weight<model, Tensors>(typename phases_with<model, member::backward_weight>::numbers{});
    }
    require_legal();
  }

  /// For a plan of any pipeline, as run-time data: bodies are shared by all plans whose forms the pipeline of `S` has too.
  executor(S, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers, plan const& all, int rank)
      : executor(unproved{}, S{}, adapters, layers, all, rank) {
    [[maybe_unused]] proof<S> const legal{};
    [[maybe_unused]] detail::tensors_verdict<S, Tensors> const able{};
    require_legal();
  }

  executor(unproved, S, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers, sizes wanted)
      : executor(unproved{}, S{}, adapters, layers,
                 proved_plan<typename S::rank_plan>(wanted.ranks, wanted.microbatches, wanted.chunks), wanted.rank) {}

  executor(unproved, S, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers, plan const& all, int rank)
      : tensors_(adapters.tensors),
        lanes_(adapters.lanes),
        peers_(adapters.peers),
        layers_(layers),
        layout_(fitting(all, layers, rank), rank, layers),
        steps_(place_steps(all, lower_messages(all), rank, slots_)),
        table_(lower<S>(steps_, layers, layout_, slots_)),
        states_(layers, layout_, slots_),
        body_events_(std::make_unique<event[]>(detail::max_events)),
        port_events_(std::make_unique<event[]>(static_cast<unsigned>(2 * slots_))),
        sent_events_(std::make_unique<event[]>(static_cast<unsigned>(2 * slots_ * layout_.chunks()))),
        forward_ports_(static_cast<unsigned>(slots_)),
        backward_ports_(forward_ports_) {
    make_sides();
    make_releases();
  }

  executor(executor const&) = delete;
  executor& operator=(executor const&) = delete;

  /// Runs one step.
  void operator()() {
    try {
      next_release_ = release_begin_.data();
      next_body_ = bodies_.data();
      for (placed_step const& p : steps_)
        if (p.is_receive)
          receive(p);
        else
          run(p);
      lanes_.drain();
      for (auto const* r = *next_release_; r != release_begin_.back(); ++r) (*r)(tensors_);
    } catch (...) {
      stop();
      states_.give_back();
      throw;
    }
  }

  /// The whole step as one table: what this executor issues, row by row.
  flat_table const& table() const { return table_; }
 private:
  void require_legal() const {
    if (diagnosis const d = table_.check()) throw std::invalid_argument(detail::explain<S>(d, table_));
  }
  static plan_facts const& fitting(plan const& all, layer_list<model> const& layers, int rank) {
    require_place(all, rank, S::rank_plan::pairs, S::rank_plan::splits);
    if (layers.chunks() != all.facts().chunks) throw std::invalid_argument(STRETTO_E22);
    return all.facts();
  }

  /// The releases of the table as pointers, by the number of the op after which they happen.
  void make_releases() {
    std::vector<release> const all = plan_releases<S>(table_, layout_, layers_);
    unsigned const rows = static_cast<unsigned>(table_.ops.size());
    std::vector<std::size_t> begin;
    releases_.reserve(all.size());
    std::size_t next = 0;
    for (unsigned row = 0; row <= rows; ++row) {
      if (row == rows || !table_.ops[row].is_message()) begin.push_back(releases_.size());
      for (; next < all.size() && all[next].row == static_cast<int>(row); ++next)
        releases_.push_back(states_.place_of(all[next].group % layout_.points(), all[next].group / layout_.points(),
                                             all[next].cell));
    }
    begin.push_back(releases_.size());
    for (std::size_t b : begin) release_begin_.push_back(releases_.data() + b);
  }

  /// Nothing may still run when states are given back.
  void stop() noexcept {
    try {
      lanes_.drain();
    } catch (...) {
      // The step has failed already, and says why.
    }
  }

  port& port_of(bool forward, int slot) {
    return (forward ? forward_ports_ : backward_ports_)[static_cast<unsigned>(slot)];
  }
  event& port_event(bool forward, int slot) { return port_events_[static_cast<unsigned>(2 * slot + !forward)]; }
  event& sent_event(bool gradient, int chunk, int slot) {
    return sent_events_[static_cast<unsigned>((slot * layout_.chunks() + chunk) * 2 + gradient)];
  }

  void receive(placed_step const& p) {
    bool const gradient = p.arriving.gradient;
    int const slot = gradient ? p.backward_slot : p.forward_slot;
    chain_layout::chunk_place const& chunk = layout_.chunk(p.chunk);
    // The message the other way has left: for a gradient that of the same microbatch, else that of the slot's last one.
    lane const on = layout_.lane_of(gradient, false, p.arriving.peer);
    if (p.receive_known == 0) lanes_.wait(on, sent_event(!gradient, p.chunk, slot));
    lanes_.run(on, detail::label_of(p.arriving, on),
               detail::receive_task<Tensors, Peers>{peers_, &states_.at(gradient ? chunk.end : chunk.begin, slot),
                                                    states_.received(p.chunk, slot), p.arriving});
    event& arrived = port_event(!gradient, slot);
    lanes_.record(on, arrived);
    port_of(!gradient, slot) = {&arrived, bit_of(on)};
  }

  /// The message that chunk `c` sends, if its neighbour is another rank.
  departure* leaving(departure& d, bool gradient, int c, int slot, int microbatch) {
    chain_layout::chunk_place const& chunk = layout_.chunk(c);
    int const peer = gradient ? chunk.from : chunk.to;
    if (!context::has_peers || peer < 0) return nullptr;
    d = {{gradient, chunk.stage, microbatch, 0, peer},
         layout_.lane_of(gradient, true, peer),
         &states_.at(gradient ? chunk.begin : chunk.end, slot),
         &sent_event(gradient, c, slot)};
    return &d;
  }

  void run(placed_step const& p) {
    call const& c = p.what;
    context body{tensors_, lanes_, peers_, body_events_.get(), next_release_, {}, {}};
    departure f{}, b{};
    departure *f_leaves = nullptr, *b_leaves = nullptr;
    if (c.runs_forward()) {
      if (layout_.chunk(c.forward_chunk).is_first) port_of(true, p.forward_slot) = {};
      port_of(true, p.forward_slot).known |= p.forward_known;
      f_leaves = leaving(f, false, c.forward_chunk, p.forward_slot, c.forward_microbatch);
    }
    if (c.runs_input()) {
      if (layout_.chunk(c.backward_chunk).is_last) port_of(false, p.backward_slot) = port_of(true, p.backward_slot);
      b_leaves = leaving(b, true, c.backward_chunk, p.backward_slot, c.backward_microbatch);
    }
    if (p.backward_slot >= 0) port_of(false, p.backward_slot).known |= p.backward_known;
    // A chunk without layers passes on what it got.
    bool const passes_on = f_leaves != nullptr && layout_.chunk(c.forward_chunk).layers == 0;
    if constexpr (context::has_peers) if (passes_on) body.send(*f_leaves, port_of(true, p.forward_slot));
    body.backward_waits = context::has_peers && layout_.share_a_lane(c);
    for (made_body const* end = bodies_.data() + p.end_body; next_body_ != end; ++next_body_) {
      int f_type = -1, b_type = -1;
      if (made_side const* made = next_body_->f) {
        body.f = made->side;
        body.f.microbatch = c.forward_microbatch;
        body.f.leaves = made->ends_chunk ? f_leaves : nullptr;
        f_type = made->type;
      }
      if (made_side const* made = next_body_->b) {
        body.b = made->side;
        body.b.microbatch = c.backward_microbatch;
        body.b.leaves = made->ends_chunk ? b_leaves : nullptr;
        b_type = made->type;
      }
      run_body(next_body_->what, body, f_type, b_type);
    }
    next_release_ = body.releases;
    if constexpr (context::has_peers) {
      if (body.held) body.send(*b_leaves, port_of(false, p.backward_slot));
      if (b_leaves != nullptr && layout_.chunk(c.backward_chunk).layers == 0)
        body.send(*b_leaves, port_of(false, p.backward_slot));
    }
  }

  made_side const* side_of(int layer, int slot, bool forward) const {
    return layer < 0 ? nullptr : &sides_[static_cast<unsigned>((slot * layers_.size() + layer) * 2 + forward)];
  }
  void make_sides() {
    for (int slot = 0; slot < slots_; ++slot)
      for (int layer = 0; layer < layers_.size(); ++layer)
        for (bool const forward : {false, true})
          sides_.push_back({{states_.phases(layer), &states_.at(layout_.point(layer), slot),
                             &states_.at(layout_.next_point(layer), slot), &port_of(forward, slot),
                             &port_event(forward, slot), nullptr, layer, 0},
                            layers_[layer].type,
                            forward ? layout_.is_last_of_chunk(layer) : layout_.is_first_of_chunk(layer)});
    auto const pairs = [this](int l) { return detail::runs_in_pairs<model>(layers_[l].type); };
    for (placed_step& p : steps_) {
      if (!p.is_receive)
        for_each_body(p.what, layers_, pairs, [&](body_call const& one) {
          bodies_.push_back({one.what, side_of(one.forward_layer, p.forward_slot, true),
                             side_of(one.backward_layer, p.backward_slot, false)});
        });
      p.end_body = bodies_.size();
    }
  }

  // Compares and direct calls: nothing indirect between the plan and the bodies.
  void run_body(form what, context& c, int f, int b) {
    if constexpr (detail::differentiates<S, Tensors>) switch (what) {
      case form::forward_backward:
        if constexpr (S::rank_plan::pairs)
          detail::each<0, types * types>([&c, f, b](auto pair) {
            constexpr int F = decltype(pair)::value / types, B = decltype(pair)::value % types;
            if constexpr (detail::meets_in_pairs<model, F>() && detail::meets_in_pairs<model, B>())
              if (f == F && b == B) detail::body_code<S, form::forward_backward, F, B, Tensors, Lanes, Peers>::run(c);
          });
        break;
      case form::forward: alone<form::forward>(c, f); break;
      case form::backward: alone<form::backward>(c, b); break;
      case form::backward_input: alone<form::backward_input>(c, b); break;
      case form::backward_weight: alone<form::backward_weight>(c, b); break;
    }
  }
  template <form F> void alone(context& c, int type) {
    if constexpr (S::rank_plan::splits || F == form::forward || F == form::backward) detail::each<0, types>([&c, type](auto k) {
      constexpr int K = decltype(k)::value, f = F == form::forward ? K : -1, b = F == form::forward ? -1 : K;
      if (type == K) detail::body_code<S, F, f, b, Tensors, Lanes, Peers>::run(c);
    });
  }

  Tensors& tensors_;
  Lanes& lanes_;
  Peers* peers_;
  layer_list<model>& layers_;
  int slots_ = 0;
  chain_layout layout_;
  std::vector<placed_step> steps_;
  flat_table table_;
  state_store<model, Tensors> states_;
  std::vector<detail::give_back<tensor>> releases_;
  std::vector<detail::give_back<tensor> const*> release_begin_;
  detail::give_back<tensor> const* const* next_release_ = nullptr;
  std::unique_ptr<event[]> body_events_, port_events_, sent_events_;
  std::vector<port> forward_ports_, backward_ports_;
  std::vector<made_side> sides_;
  std::vector<made_body> bodies_;
  made_body const* next_body_ = nullptr;
};

template <class S, class Type, class L, class Ph>
executor(S, backend<Type, L, Ph>, layer_list<typename S::model>&, sizes) -> executor<S, Type, L, Ph>;
template <class S, class Type, class L, class Ph>
executor(S, backend<Type, L, Ph>, layer_list<typename S::model>&, plan const&, int) -> executor<S, Type, L, Ph>;
template <class S, class Type, class L, class Ph>
executor(unproved, S, backend<Type, L, Ph>, layer_list<typename S::model>&, sizes) -> executor<S, Type, L, Ph>;

}  // namespace v0
}  // namespace stretto
