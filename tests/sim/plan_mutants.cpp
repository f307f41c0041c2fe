#include "pipelines/oracle.hpp"
#include "sim/matrix.hpp"
#include "sim/programs.hpp"

#include <stretto/check/messages.hpp>
#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace sim_test;
using sim::transport, sim::trouble;

namespace {

struct hidden : value {};
struct loss : objective {};

// A chunk is one node: the first of the model, one inside, the last, or the only one.
template <class Reads, class Writes> struct Chunk : Phase<attn> {
  using reads = Reads;
  using writes = Writes;
};
struct First : Block<Chunk<values<>, values<hidden>>> {};
struct Inner : Block<Chunk<values<hidden>, values<hidden>>> {};
struct Last : Block<Chunk<values<hidden>, values<loss>>> {};
struct Only : Block<Chunk<values<>, values<loss>>> {};
struct Chunks : Blocks<First, Inner, Last, Only> {};

using lists = std::vector<std::vector<plan_step>>;

/// Lists of calls and messages as a program: each rank does one thing at a time, and every microbatch has a slot of its own.
class list_program {
public:
  list_program(plan const& of, lists const& steps) : of_(of), facts_(of.facts()) {
    static model_values const model = values_of<Chunks>();
    for (block_facts const& f : model.blocks) made_.blocks.push_back(f);
    made_.chain = model.chain;
    for (int rank = 0; rank < facts_.ranks; ++rank) add(rank, steps[static_cast<std::size_t>(rank)]);
  }
  sim::program const& operator()() const { return made_; }

private:
  int type_of(int stage) const {
    bool const first = stage == 0, last = stage == facts_.stages() - 1;
    return first && last ? 3 : first ? 0 : last ? 2 : 1;
  }

  void add(int rank, std::vector<plan_step> const& steps) {
    std::vector<std::vector<int>> chunks;
    sim::rank_table table;
    for (int c = 0; c < facts_.chunks; ++c) {
      int const stage = facts_.stage(rank, c);
      chunks.push_back({type_of(stage)});
      table.stage.push_back(stage), table.layer_id.push_back(stage);
    }
    layer_shape const shape(chunks);
    detail::chain_layout const layout(facts_, rank, shape);
    for (plan_step const& step : steps) {
      if (step.what == step_kind::run) {
        if (step.number >= of_.size(rank)) continue;
        call const& c = of_.calls(rank)[step.number];
        auto const back = [&](pass what) {
          push(table, pass_row(layout, shape, what, c.backward_chunk, c.backward_microbatch));
        };
        // The halves of a pair must not need each other: here the backward goes first.
        if (c.runs_backward())
          back(pass::backward);
        else if (c.runs_input())
          back(pass::backward_input);
        else if (c.runs_weight())
          back(pass::backward_weight);
        if (c.runs_forward())
          push(table, pass_row(layout, shape, pass::forward, c.forward_chunk, c.forward_microbatch));
      } else {
        push(table, message_row(layout, step));
      }
    }
    made_.ranks.push_back(table);
  }
  /// One thing at a time.
  static void push(sim::rank_table& to, op o) {
    if (int const last = to.ops.size() - 1; last >= 0) o.wait[static_cast<int>(to.ops[last].on)] = last;
    to.ops.push_back(o);
  }
  static op pass_row(detail::chain_layout const& layout, layer_shape const& shape, pass what, int chunk,
                     int microbatch) {
    op o;
    o.what = what, o.block = static_cast<unsigned char>(shape[chunk].type);
    o.chunk = static_cast<short>(chunk), o.layer = chunk;
    o.slot = o.microbatch = microbatch;
    o.group = microbatch * layout.points() + layout.point(chunk);
    o.next_group = microbatch * layout.points() + layout.next_point(chunk);
    return o;
  }
  op message_row(detail::chain_layout const& layout, plan_step const& step) const {
    bool const gradient = step.carries == traffic::gradient, sends = step.what == step_kind::send;
    int const mine = sends ? step.stage : gradient ? step.stage - 1 : step.stage + 1;
    op o;
    o.what = gradient ? pass::backward : pass::forward;
    o.on = layout.lane_of(gradient, sends, step.peer);
    o.peer = step.peer;
    o.chunk = static_cast<short>(chunk_of(facts_.ranks, mine));
    o.slot = o.microbatch = step.number;
    detail::chain_layout::chunk_place const& place = layout.chunk(o.chunk);
    o.group = o.next_group = step.number * layout.points() + (gradient == sends ? place.begin : place.end);
    return o;
  }

  plan const& of_;
  plan_facts const facts_;
  sim::program made_;
};

/// The calls of a plan that may be illegal, each behind the messages that it needs and before those that it makes.
lists with_messages(plan const& of) {
  lists all;
  for (int rank = 0; rank < of.facts().ranks; ++rank) {
    std::vector<plan_step> steps;
    for (int at = 0; at < of.size(rank); ++at) {
      call const& one = of.calls(rank)[at];
      for (detail::plan_message const& in : detail::needed_by(of.facts(), rank, one))
        steps.push_back({step_kind::receive, in.carries, in.from, in.stage, in.microbatch});
      steps.push_back({step_kind::run, traffic::activation, -1, -1, at});
      for (detail::plan_message const& out : detail::sent_by(of.facts(), rank, one))
        steps.push_back({step_kind::send, out.carries, out.to, out.stage, out.microbatch});
    }
    all.push_back(steps);
  }
  return all;
}

trouble found_in(plan const& of, lists const& steps, transport how, numbered_values const& expected) {
  list_program const made(of, steps);
  sim::machine machine(made(), how);
  // One thing at a time on every rank: no order of the ranks gives other values, so one run tells.
  sim::outcome const found = machine.run();
  if (found.what != trouble::none) return found.what;
  return found.values == expected ? trouble::none : trouble::other_values;
}
numbered_values values_of_calls(plan const& of) {
  list_program const made(of, with_messages(of));
  sim::outcome const right = sim::machine(made(), transport::named).run();
  REQUIRE(right.what == trouble::none);
  return right.values;
}

void each_plan(int most_ranks, std::vector<int> const& microbatches, auto&& act) {
  shipped_pipelines::each([&]<class Pipeline>() {
    for (int ranks = 1; ranks <= (tries_all ? most_ranks : 3); ++ranks)
      for (int m : microbatches) {
        if (!tries_all && m > 5) continue;
        m = (std::max)(m, Pipeline::min_microbatches(ranks));
        INFO(Pipeline::name << ' ' << ranks << ' ' << m);
        act(lay_out<Pipeline>(facts_of<Pipeline>(ranks, m)));
      }
  });
}

/// Mutants of the calls of a plan.
class call_mutants {
public:
  call_mutants(matrix& into, plan const& whole)
      : into_(into), expected_(values_of_calls(whole)), name_(whole.facts().name) {
    REQUIRE_FALSE(check_plan(whole));
  }

  void judge(char const* kind, oracle::lists const& mutant) const {
    plan const made = oracle::plan_of(mutant);
    plan_diagnosis const refused = check_plan(made);
    verdict const found{refused.what, found_in(made, with_messages(made), transport::named, expected_)};
    // More live activations than the pipeline promises give the same values.
    bool const holds_more = refused.what == fault::too_many_live && over_its_bound(mutant);
    into_.enter(kind, "", name_, found, false, holds_more);
    if (refused) return;
    // What is legal lowers into messages that are legal too.
    plan_steps const messages = lower_messages(made);
    REQUIRE_FALSE(check_messages(made, messages));
    REQUIRE(found_in(made, oracle::steps_of(made.facts().ranks, messages), transport::rendezvous,
                     expected_) == trouble::none);
  }

private:
  static bool over_its_bound(oracle::lists const& of) {
    for (std::size_t rank = 0; rank < of.ranks.size(); ++rank)
      if (of.bounds[rank] >= 0 && oracle::peak_of(of.ranks[rank]) > of.bounds[rank]) return true;
    return false;
  }
  matrix& into_;
  numbered_values expected_;
  char const* name_;
};

/// Mutants of the lists that a plan is lowered to.
class message_mutants {
public:
  message_mutants(matrix& into, plan const& whole)
      : into_(into), whole_(whole), right_(oracle::steps_of(whole.facts().ranks, lower_messages(whole))),
        expected_(values_of_calls(whole)) {
    for (transport const how : {transport::rendezvous, transport::buffered})
      REQUIRE(found_in(whole_, right_, how, expected_) == trouble::none);
  }

  lists const& right() const { return right_; }

  void judge(char const* kind, lists const& mutant) const {
    plan_diagnosis const refused = check_messages(whole_, oracle::pack(mutant));
    trouble caught = found_in(whole_, mutant, transport::rendezvous, expected_);
    if (caught == trouble::none) caught = found_in(whole_, mutant, transport::buffered, expected_);
    into_.enter(kind, "", whole_.facts().name, {refused.what, caught}, false, false);
  }

private:
  matrix& into_;
  plan const& whole_;
  lists right_;
  numbered_values expected_;
};

} // namespace

void sim_test::mutate_calls(matrix& into) {
  each_plan(4, {1, 5, 10}, [&into](plan const& whole) {
    call_mutants const mutants(into, whole);
    auto const right = oracle::lists_of(whole);
    for (std::size_t rank = 0; rank < right.ranks.size(); ++rank) {
      auto const& calls = right.ranks[rank];
      for (std::size_t at = 0; at < calls.size(); at += tries_all ? 1 : 7) {
        auto dropped = right, doubled = right, swapped = right;
        auto const place = static_cast<std::ptrdiff_t>(at);
        dropped.ranks[rank].erase(dropped.ranks[rank].begin() + place);
        mutants.judge("drop a call", dropped);
        doubled.ranks[rank].insert(doubled.ranks[rank].begin() + place, calls[at]);
        mutants.judge("double a call", doubled);
        if (at + 1 == calls.size()) continue;
        std::swap(swapped.ranks[rank][at], swapped.ranks[rank][at + 1]);
        mutants.judge("swap neighbouring calls", swapped);
        call const &one = calls[at], &next = calls[at + 1];
        if (one.what != form::forward || next.what != form::backward ||
            one.forward_microbatch != next.backward_microbatch)
          continue;
        auto glued = right;
        glued.facts.pairs = true;
        glued.ranks[rank][at] = call::pair(one.forward_chunk, one.forward_microbatch, next.backward_chunk,
                                           next.backward_microbatch);
        glued.ranks[rank].erase(glued.ranks[rank].begin() + place + 1);
        mutants.judge("pair an F with the B of its own microbatch", glued);
      }
    }
  });
  each_plan(4, {1, 4}, [&into](plan const& whole) {
    call_mutants const mutants(into, whole);
    auto swapped = oracle::lists_of(whole);
    for (auto& calls : swapped.ranks)
      for (std::size_t i = 0; i < calls.size(); i += tries_all ? 1 : 5)
        for (std::size_t j = i + 2; j < calls.size(); ++j) {
          std::swap(calls[i], calls[j]);
          mutants.judge("swap any two calls", swapped);
          std::swap(calls[i], calls[j]);
        }
  });
}

void sim_test::mutate_messages(matrix& into) {
  each_plan(4, {1, 5, 10}, [&into](plan const& whole) {
    message_mutants const mutants(into, whole);
    lists const& right = mutants.right();
    int const ranks = whole.facts().ranks, microbatches = whole.facts().microbatches;
    for (std::size_t rank = 0; rank < right.size(); ++rank)
      for (std::size_t at = 0; at < right[rank].size(); at += tries_all ? 1 : 11) {
        auto const place = static_cast<std::ptrdiff_t>(at);
        plan_step const& step = right[rank][at];
        if (at + 1 < right[rank].size() &&
            (step.what != step_kind::run || right[rank][at + 1].what != step_kind::run)) {
          lists swapped = right;
          std::swap(swapped[rank][at], swapped[rank][at + 1]);
          mutants.judge("swap a message with its neighbour", swapped);
        }
        if (step.what == step_kind::run) continue;
        lists dropped = right, doubled = right, renamed = right;
        dropped[rank].erase(dropped[rank].begin() + place);
        mutants.judge("drop an end of a message", dropped);
        doubled[rank].insert(doubled[rank].begin() + place, step);
        mutants.judge("double an end of a message", doubled);
        if (microbatches > 1) {
          renamed[rank][at].number = (step.number + 1) % microbatches;
          mutants.judge("name another microbatch", renamed);
          renamed = right;
        }
        if (ranks > 2) {
          short& peer = renamed[rank][at].peer;
          do peer = static_cast<short>((peer + 1) % ranks);
          while (peer == static_cast<short>(rank));
          mutants.judge("name another rank", renamed);
          renamed = right;
        }
        renamed[rank][at].what = step.what == step_kind::send ? step_kind::receive : step_kind::send;
        mutants.judge("turn a send into a receive", renamed);
      }
  });
}
