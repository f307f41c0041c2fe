#pragma once

#include <stretto/adapter.hpp>
#include <stretto/detail/config.hpp>

/// Adapters that do nothing and hold nothing: what remains of an executor over them is its own code.
namespace stretto {
inline namespace v0 {

/// A `tensor_adapter` whose tensors hold nothing. Phases bring their own backward.
struct null_tensors {
  struct tensor {};
  struct context {};
  STRETTO_ALWAYS_INLINE tensor detach(tensor const&) const noexcept { return {}; }
  STRETTO_ALWAYS_INLINE void add(tensor&, tensor const&) const noexcept {}
  STRETTO_ALWAYS_INLINE void release(tensor&) const noexcept {}
};

/// A `lane_adapter` that runs each op at once, on the thread that issues it.
struct null_lanes {
  struct event {};
  template <class Task> STRETTO_ALWAYS_INLINE void run(lane, op_label const&, Task task) const { task(); }
  STRETTO_ALWAYS_INLINE void record(lane, event&) const noexcept {}
  STRETTO_ALWAYS_INLINE void wait(lane, event const&) const noexcept {}
  STRETTO_ALWAYS_INLINE void drain() const noexcept {}
};

/// A group of one rank: rows stay where they are and nothing is copied.
struct null_comm {
  using tensor = null_tensors::tensor;
  struct routing {};
  struct handle {
    handle() = default;
    handle(handle&&) = default;
    handle& operator=(handle&&) = default;
  };
  static constexpr counts_mode counts = counts_mode::static_capacity;
  static constexpr int in_flight = 0;
  static constexpr bool capturable = true;

  STRETTO_ALWAYS_INLINE int rank() const noexcept { return 0; }
  STRETTO_ALWAYS_INLINE int ranks() const noexcept { return 1; }
  STRETTO_ALWAYS_INLINE tensor dispatch(tensor const&, routing const&, handle&) const noexcept { return {}; }
  STRETTO_ALWAYS_INLINE tensor combine(tensor const&, handle&) const noexcept { return {}; }
  STRETTO_ALWAYS_INLINE tensor dispatch_backward(tensor const&, handle&) const noexcept { return {}; }
  STRETTO_ALWAYS_INLINE tensor combine_backward(tensor const&, handle&) const noexcept { return {}; }
};

/// `null_lanes` that count how often each member was called.
struct counting_lanes {
  struct event {};
  template <class Task> void run(lane, op_label const&, Task task) {
    ++runs;
    task();
  }
  void record(lane, event&) noexcept { ++records; }
  void wait(lane, event const&) noexcept { ++waits; }
  void drain() noexcept { ++drains; }

  int runs = 0;
  int records = 0;
  int waits = 0;
  int drains = 0;
};

static_assert(tensor_adapter<null_tensors> && !autograd_tensor_adapter<null_tensors>);
static_assert(lane_adapter<null_lanes> && lane_adapter<counting_lanes>);
static_assert(expert_communicator<null_comm>);

} // namespace v0
} // namespace stretto
