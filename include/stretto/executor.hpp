#pragma once

// First, for a short list of includers in the compiler's message.
#include <stretto/executor/slot.hpp>

#include <stretto/check/explain.hpp>
#include <stretto/check/proof.hpp>
#include <stretto/check/proof_phases.hpp>
#include <stretto/check/releases.hpp>
#include <stretto/executor/arguments.hpp>
#include <stretto/executor/body_code.hpp>
#include <stretto/executor/lower.hpp>
#include <stretto/executor/states.hpp>
#include <stretto/layers.hpp>
#include <stretto/plan/error.hpp>

namespace stretto {
inline namespace v0 {

/// Skips the proofs of a schedule, not those of its plan: for tests that break a program on purpose.
struct unproved {};

/// A schedule joined to adapters and to the layers of one rank: calling it runs one step over all microbatches. Everything
/// is allocated when it is made. Backward starts at the objective of the last stage.
///
/// Throws `std::invalid_argument`, with the sentence of the broken rule, if the schedule cannot serve these layers and
/// sizes. A step throws what `drain` of the lanes throws; every state in flight is given back first, so that a new step
/// may follow.
template <class Schedule, class Tensors, class Lanes,
          class Peers = no_peers<typename detail::tensor_of<Tensors>::type>>
class executor {
  using model = typename Schedule::model;
  using tensor = typename Tensors::tensor;
  using event = typename Lanes::event;
  using context = detail::body_context<Tensors, Lanes, Peers>;
  using side = detail::body_side<tensor, event>;
  using posted = detail::posted_message<tensor, event>;
  static constexpr int types = model::count;

public:
  executor(Schedule, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers, sizes wanted)
      : executor(adapters, layers, plan_for(wanted), wanted.rank) {
    // What proof<S> stands on, here and below: every level of instantiation is one more in the compiler's message.
    [[maybe_unused]] detail::verdict<Schedule, detail::fault_in<Schedule>::value.d.what> const legal{};
    [[maybe_unused]] detail::tensors_verdict<Schedule, Tensors> const able{};
    [[maybe_unused]] detail::uses_verdict<
        decltype(detail::passes<model, Tensors>::template use<true>())> const callable{};
    require_legal();
  }

  /// For a plan of any pipeline, as run-time data: bodies are shared by all plans whose forms the pipeline of `Schedule` has too.
  executor(Schedule, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers, plan const& all,
           int rank)
      : executor(adapters, layers, checked(all), rank) {
    [[maybe_unused]] detail::verdict<Schedule, detail::fault_in<Schedule>::value.d.what> const legal{};
    [[maybe_unused]] detail::tensors_verdict<Schedule, Tensors> const able{};
    [[maybe_unused]] detail::uses_verdict<
        decltype(detail::passes<model, Tensors>::template use<true>())> const callable{};
    require_legal();
  }

  /// Layers of another model or in a temporary list, and missing sizes, stop the compiler here with one sentence.
  template <class Layers, class... Rest>
  requires detail::makes_no_executor<model, Layers, Rest...>
  executor(Schedule, backend<Tensors, Lanes, Peers> adapters, Layers&&, Rest const&...)
      : executor(adapters, detail::some<layer_list<model>>(), plan_for({}), 0) {
    detail::refuse_arguments<Schedule, Layers>();
  }

  executor(unproved, Schedule, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers,
           sizes wanted)
      : executor(adapters, layers, plan_for(wanted), wanted.rank) {}

  executor(unproved, Schedule, backend<Tensors, Lanes, Peers> adapters, layer_list<model>& layers,
           plan const& all, int rank)
      : executor(adapters, layers, checked(all), rank) {}

  executor(executor const&) = delete;

  /// Runs one step.
  void operator()() {
    try {
      context c{tensors_, lanes_, peers_, body_events_.data(), release_begin_.data(), {}, {}};
      for (bound_issue const& one : issues_) run(one, c);
      lanes_.drain();
      detail::give_back_each(c.releases, tensors_);
    } catch (...) {
      stop();
      states_.give_back_all();
      throw;
    }
  }

  /// The whole step as one table: what this executor issues, row by row.
  flat_table const& table() const { return listed_.table; }

private:
  STRETTO_COLD executor(backend<Tensors, Lanes, Peers> const& adapters, layer_list<model>& layers,
                        plan const& all, int rank)
      : tensors_(adapters.tensors), lanes_(adapters.lanes), peers_(adapters.peers), layers_(layers),
        layout_(fitting(all.facts(), layers, rank), rank, layers),
        listed_(
            detail::lower<Schedule>(detail::place_steps(all, lower_messages(all), rank), layers, layout_)),
        states_(layers, layout_, listed_.slots), body_events_(detail::max_events), events_(listed_.events) {
    if (!listed_.messages.empty() && (!context::has_peers || peers_ == nullptr))
      refuse(all.facts(), fault::no_peers);
    bind();
    make_releases();
  }

  STRETTO_COLD void require_legal() {
    flat_table const& all = listed_.table;
    diagnosis d = all.check();
    if (!d)
      d = check_releases(all.ops.data(), static_cast<int>(all.ops.size()), all.groups, all.layers, planned_);
    if (d) detail::explain<Schedule>(d, all, layout_.rank(), layout_.ranks()).refuse();
    planned_ = {};
  }

  static plan plan_for(sizes const& wanted) {
    return proved_plan<typename Schedule::rank_plan>(wanted.ranks, wanted.microbatches, wanted.chunks);
  }
  static plan const& checked(plan const& all) {
    require(all.facts(), check_plan(all));
    return all;
  }
  [[noreturn]] static void refuse(plan_facts const& facts, fault what, long found = -1, long wanted = -1) {
    plan_diagnosis wrong;
    wrong.what = what, wrong.found = found, wrong.wanted = wanted;
    detail::explain(facts, wrong).refuse();
  }
  static plan_facts const& fitting(plan_facts const& facts, layer_list<model> const& layers, int rank) {
    if (rank < 0 || rank >= facts.ranks) refuse(facts, fault::no_such_rank, rank, facts.ranks - 1);
    if ((facts.pairs && !Schedule::rank_plan::pairs) || (facts.splits && !Schedule::rank_plan::splits))
      refuse(facts, fault::undeclared_form);
    if (layers.chunks() != facts.chunks) refuse(facts, fault::wrong_chunks, layers.chunks(), facts.chunks);
    return facts;
  }

  /// One entry of the list with everything looked up.
  struct bound_issue {
    detail::issue_kind what;
    form shape;
    int f_type, b_type;
    side f, b;
    posted const* message;
  };

  STRETTO_COLD void bind() {
    messages_.reserve(static_cast<long>(listed_.messages.size()));
    for (detail::issue_message const& m : listed_.messages)
      messages_.push_back({m.what, m.on, &states_.at(m.point, m.slot), states_.received(m.chunk, m.slot),
                           m.known ? nullptr : event_at(m.waits), event_at(m.records)});
    issues_.reserve(static_cast<long>(listed_.list.size()));
    for (detail::issue const& one : listed_.list)
      issues_.push_back({one.what, one.shape, type_of(one.f), type_of(one.b), bound(one.f), bound(one.b),
                         message_at(one.message)});
    listed_.list = {}, listed_.messages = {};
  }
  STRETTO_COLD side bound(detail::issue_side const& s) {
    if (s.layer < 0) return {};
    return {{layers_.address(s.layer), &states_.at(layout_.point(s.layer), s.slot),
             &states_.at(layout_.next_point(s.layer), s.slot), s.layer, s.microbatch},
            event_at(s.waits),
            event_at(s.records),
            message_at(s.message),
            s.known};
  }
  int type_of(detail::issue_side const& s) const { return s.layer < 0 ? -1 : layers_[s.layer].type; }
  event* event_at(int number) { return number < 0 ? nullptr : &events_[number]; }
  posted const* message_at(int number) const { return number < 0 ? nullptr : &messages_[number]; }

  /// The releases of the table as pointers, with two beginnings for each op: of those before it, and of those behind it.
  STRETTO_COLD void make_releases() {
    detail::sequence<release> const& all = planned_ =
        detail::plan_releases<Schedule>(listed_.table, layout_, layers_);
    int const rows = static_cast<int>(listed_.table.ops.size());
    releases_.reserve(static_cast<long>(all.size())); // From now on they stay where they are.
    release_begin_.reserve(2 * rows + 2L);
    release const* next = all.begin();
    auto const begin = [&](int row, bool before) STRETTO_COLD_LAMBDA {
      release_begin_.push_back(releases_.end());
      for (; next != all.end() && next->row == row && next->before == before; ++next)
        releases_.push_back(
            states_.place_of(next->group % layout_.points(), next->group / layout_.points(), next->cell));
    };
    for (int row = 0; row < rows; ++row)
      if (!listed_.table.ops[row].is_message()) begin(row, true), begin(row, false);
    begin(rows, false);
    release_begin_.push_back(releases_.end());
  }

  /// Nothing may still run when states are given back.
  void stop() noexcept {
    try {
      lanes_.drain();
    } catch (...) {
      // The step has failed already, and says why.
    }
  }

  void run(bound_issue const& one, context& c) {
    if constexpr (context::has_peers) {
      if (one.what == detail::issue_kind::receive) return c.receive(*one.message);
      if (one.what == detail::issue_kind::send) return c.send(*one.message);
    }
    c.f = one.f;
    c.b = one.b;
    run_body(one.shape, c, one.f_type, one.b_type);
  }

  // Compares and direct calls: nothing indirect between the plan and the bodies.
  void run_body(form what, context& c, int f, int b) {
    if constexpr (detail::can_run<Schedule, Tensors> &&
                  decltype(detail::passes<model, Tensors>::template use<false>())::fine) {
      using numbers = std::make_integer_sequence<int, types>;
      switch (what) {
      case form::forward_backward:
        if constexpr (Schedule::rank_plan::pairs)
          pair(c, f * types + b, std::make_integer_sequence<int, types * types>{});
        break;
      case form::forward:
        forward(c, f, numbers{});
        break;
      case form::backward:
        backward<form::backward>(c, b, numbers{});
        break;
      case form::backward_input:
        if constexpr (Schedule::rank_plan::splits) backward<form::backward_input>(c, b, numbers{});
        break;
      case form::backward_weight:
        if constexpr (Schedule::rank_plan::splits) backward<form::backward_weight>(c, b, numbers{});
        break;
      }
    }
  }
  template <form What, int Forward, int Backward>
  using body = detail::body_code<Schedule, What, Forward, Backward, Tensors, Lanes, Peers>;
  template <int... Pair> static void pair(context& c, int which, std::integer_sequence<int, Pair...>) {
    ((which == Pair ? pair_of<Pair / types, Pair % types>(c) : void()), ...);
  }
  template <int Forward, int Backward> static void pair_of(context& c) {
    if constexpr (detail::meets_in_pairs<model, Forward>() && detail::meets_in_pairs<model, Backward>())
      body<form::forward_backward, Forward, Backward>::run(c);
  }
  template <int... Forward>
  static void forward(context& c, int type, std::integer_sequence<int, Forward...>) {
    ((type == Forward ? body<form::forward, Forward, -1>::run(c) : void()), ...);
  }
  template <form What, int... Backward>
  static void backward(context& c, int type, std::integer_sequence<int, Backward...>) {
    ((type == Backward ? body<What, -1, Backward>::run(c) : void()), ...);
  }

  Tensors& tensors_;
  Lanes& lanes_;
  Peers* peers_;
  layer_list<model>& layers_;
  detail::chain_layout layout_;
  detail::issue_list listed_;
  detail::sequence<release> planned_;
  detail::state_store<model, Tensors> states_;
  detail::sequence<detail::give_back<tensor>> releases_;
  detail::sequence<detail::give_back<tensor> const*> release_begin_;
  detail::sequence<event> body_events_, events_;
  detail::sequence<posted> messages_;
  detail::sequence<bound_issue> issues_;
};

/// Nothing is made of a model or of adapters that are not sound, which have said so, or of other things in another order.
template <class Schedule, class Tensors, class Lanes, class Peers>
requires(!schedule_type<Schedule> || detail::refused<typename Schedule::model> ||
         !detail::complete_backend<Tensors, Lanes, Peers>) class executor<Schedule, Tensors, Lanes, Peers> {
  static constexpr bool is_made_of_schedule =
      schedule_type<Schedule>; // Of a concept itself g++ tells the whole story.
  static_assert(is_made_of_schedule,
                "stretto: an executor is made of a schedule, a backend, a list of layers and sizes; write "
                "them in this order: executor run{Step{}, backend{tensors, lanes}, layers, sizes{...}}");

public:
  template <class... Arguments> explicit executor(Arguments&&...) {}
  void operator()() {}
};

template <class Schedule, class Tensors, class Lanes, class Peers, class Model>
executor(Schedule, backend<Tensors, Lanes, Peers>, layer_list<Model>&, sizes)
    -> executor<Schedule, Tensors, Lanes, Peers>;
template <class Schedule, class Tensors, class Lanes, class Peers, class Model>
executor(Schedule, backend<Tensors, Lanes, Peers>, layer_list<Model>&, plan const&, int)
    -> executor<Schedule, Tensors, Lanes, Peers>;
template <class Schedule, class Tensors, class Lanes, class Peers>
executor(unproved, Schedule, backend<Tensors, Lanes, Peers>, layer_list<typename Schedule::model>&, sizes)
    -> executor<Schedule, Tensors, Lanes, Peers>;
template <class... Others>
executor(Others const&...) -> executor<error::nothing, error::nothing, error::nothing>;

} // namespace v0
} // namespace stretto
