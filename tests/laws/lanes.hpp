#pragma once

#include <stretto/adapter.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
#include <thread>
#include <vector>

/// What every `lane_adapter` whose ops run on the host must do. Each law returns whether the lanes kept it; none hangs
/// on lanes that do not.
namespace laws {

using stretto::lane, stretto::attn, stretto::dispatch, stretto::mlp, stretto::combine;

namespace detail {

inline stretto::op_label label(stretto::phase_kind phase, lane on = lane::compute) {
  return {phase, stretto::pass::forward, on, 0, 0};
}
inline bool comes_true(std::atomic<bool> const& flag, int milliseconds) {
  auto const end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!flag) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

} // namespace detail

template <class Lanes> bool runs_in_order_of_issue(Lanes& lanes) {
  std::vector<int> seen[2];
  for (int i = 0; i < 1000; ++i) {
    auto* compute = &seen[0];
    auto* comm = &seen[1];
    lanes.run(lane::compute, detail::label(attn), [compute, i] { compute->push_back(i); });
    lanes.run(lane::comm, detail::label(dispatch, lane::comm), [comm, i] { comm->push_back(i); });
  }
  lanes.drain();
  for (auto const& of_lane : seen) {
    if (of_lane.size() != 1000) return false;
    for (int i = 0; i < 1000; ++i)
      if (of_lane[static_cast<std::size_t>(i)] != i) return false;
  }
  return true;
}

/// The op after the wait starts after what was issued before the record has ended, which gives it `patience` milliseconds
/// to start too early.
template <class Lanes> bool wait_orders(Lanes& lanes, int patience) {
  typename Lanes::event done{};
  std::atomic<bool> started = false;
  bool early = false;
  lanes.run(lane::comm, detail::label(dispatch, lane::comm),
            [&, patience] { early = detail::comes_true(started, patience); });
  lanes.record(lane::comm, done);
  lanes.wait(lane::compute, done);
  lanes.run(lane::compute, detail::label(mlp), [&started] { started = true; });
  lanes.drain();
  return !early;
}

/// A second record moves the event: a wait issued after it waits for the second.
template <class Lanes> bool wait_binds_to_the_last_record(Lanes& lanes, int patience) {
  typename Lanes::event done{};
  std::atomic<bool> started = false;
  bool early = false;
  lanes.run(lane::comm, detail::label(dispatch, lane::comm), [] {});
  lanes.record(lane::comm, done);
  lanes.run(lane::comm, detail::label(combine, lane::comm),
            [&, patience] { early = detail::comes_true(started, patience); });
  lanes.record(lane::comm, done);
  lanes.wait(lane::compute, done);
  lanes.run(lane::compute, detail::label(mlp), [&started] { started = true; });
  lanes.drain();
  return !early;
}

/// A record issued after the wait does not disturb it, although the wait has not run yet: the op after the wait starts
/// within `patience` milliseconds although what is recorded later waits for it.
template <class Lanes> bool a_later_record_leaves_the_wait_alone(Lanes& lanes, int patience) {
  typename Lanes::event done{};
  std::atomic<bool> open = false;
  std::atomic<bool> started = false;
  bool kept = false;
  lanes.run(lane::comm, detail::label(dispatch, lane::comm), [&open] { detail::comes_true(open, 5000); });
  lanes.record(lane::comm, done);
  lanes.wait(lane::compute, done);
  lanes.run(lane::compute, detail::label(mlp), [&started] { started = true; });
  lanes.run(lane::comm, detail::label(combine, lane::comm),
            [&, patience] { kept = detail::comes_true(started, patience); });
  lanes.record(lane::comm, done);
  open = true;
  lanes.drain();
  return kept;
}

/// An event that was never recorded makes nothing wait, and a lane that waits for itself goes on.
template <class Lanes> bool trivial_waits_go_through(Lanes& lanes, int patience = 5000) {
  typename Lanes::event never{};
  typename Lanes::event own{};
  std::atomic<bool> ran = false;
  lanes.wait(lane::compute, never);
  lanes.run(lane::compute, detail::label(attn), [] {});
  lanes.record(lane::compute, own);
  lanes.wait(lane::compute, own);
  lanes.run(lane::compute, detail::label(mlp), [&ran] { ran = true; });
  bool const in_time = detail::comes_true(ran, patience);
  lanes.drain();
  return in_time;
}

/// Random ops on `Count` lanes, with few events that are recorded again and again: each op finds finished what the
/// waits before it promised.
template <class Lanes>
bool random_waits_hold(Lanes& lanes, std::vector<lane> const& on, unsigned seed, int ops) {
  struct node {
    std::vector<node const*> needs;
    std::atomic<bool> finished = false;
    bool found_all = true;
  };
  std::vector<std::unique_ptr<node>> nodes;
  std::vector<typename Lanes::event> events(3);
  // The model: the last op of each lane, what each event stands for, what each lane's next op may rely on.
  std::vector<node const*> last(on.size()), recorded(events.size());
  std::vector<std::vector<node const*>> promised(on.size());
  std::mt19937 random(seed);
  for (int i = 0; i < ops; ++i) {
    std::size_t const at = random() % on.size();
    std::size_t const event = random() % events.size();
    switch (random() % 4) {
    case 0:
      lanes.record(on[at], events[event]);
      recorded[event] = last[at];
      break;
    case 1:
      lanes.wait(on[at], events[event]);
      if (recorded[event]) promised[at].push_back(recorded[event]);
      break;
    default:
      node* const mine = nodes.emplace_back(std::make_unique<node>()).get();
      mine->needs = promised[at];
      if (last[at]) mine->needs.push_back(last[at]);
      last[at] = mine;
      lanes.run(on[at], detail::label(attn, on[at]), [mine] {
        for (node const* need : mine->needs) mine->found_all = mine->found_all && need->finished;
        mine->finished = true;
      });
    }
  }
  lanes.drain();
  for (auto const& each : nodes)
    if (!each->finished || !each->found_all) return false;
  return true;
}

} // namespace laws
