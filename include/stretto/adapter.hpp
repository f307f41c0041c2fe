#pragma once

#include <stretto/detail/type_name.hpp>
#include <stretto/phase.hpp>

#include <compare>
#include <concepts>
#include <cstddef>

/// The concepts that a user's tensors, lanes and communicators model. An adapter is an object with member functions;
/// each requirement below has a meaning that no compiler can check, said beside it.
namespace stretto {
inline namespace v0 {

namespace detail {

/// Stands for what adapters are given to call: an object that converts to no pointer to function.
struct some_task {
  void operator()() const {}
};

} // namespace detail

/// What an op is called in errors, traces and pictures. `layer` counts from 0 in the chain of one rank. On the lanes that
/// send and receive it is a message: `layer` is then the stage that produced it, and `what` tells an activation
/// (forward) from a gradient (backward).
struct op_label {
  phase_kind phase;
  pass what;
  lane on;
  int layer;
  int microbatch;
};

constexpr bool is_message(op_label const& op) { return is_send(op.on) || is_receive(op.on); }

/// One partial backward: gradients of `roots` are given, gradients of `leaves` are wanted (left empty where the root
/// does not depend on the leaf). An empty root gradient means "nothing flows in here"; an objective's gradient is one
/// and is marked by `root_is_objective`. Places of metadata and of values inside the node hold empty tensors: skip them.
template <class Tensor> struct gradient_request {
  Tensor* roots;
  Tensor* root_gradients;
  bool const* root_is_objective;
  int root_count;
  Tensor* leaves;
  Tensor* leaf_gradients;
  int leaf_count;
};

template <class Adapter>
concept has_tensor_type = requires {
  typename Adapter::tensor;
  requires std::default_initializable<typename Adapter::tensor> && std::movable<typename Adapter::tensor>;
};

/// What a tensor library must offer.
/// - `tensor`: a handle; a default-constructed one is empty and assigning one gives the storage back.
/// - `context`: what the adapter keeps for one node between its forward and its last backward op.
/// - `detach(t)`: the same data as a leaf of its own, for one reader.
/// - `release(t)`: gives the storage back although handles of it may live on: nothing computes with it any more, only its
///   place in a graph may still be asked for. An empty `t` is left alone.
/// - `add(sum, t)`: `sum = sum + t` without touching the storage that `sum` had (gradients alias); an empty `t` adds
///   nothing, an empty `sum` becomes `t`. Called in a fixed order, so sums do not depend on the schedule.
template <class Adapter>
concept tensor_adapter = has_tensor_type<Adapter> &&
    requires(Adapter& a, typename Adapter::tensor const& t, typename Adapter::tensor& sum) {
  typename Adapter::context;
  { a.detach(t) } -> std::same_as<typename Adapter::tensor>;
  a.add(sum, t);
  a.release(sum);
};

/// A tensor library that differentiates: phases need `forward` only.
/// - `forget_graph(t)`: the same data without history; an empty `t` stays empty.
/// - `forward_scope(context)`: an object that lives while the phases of one node run forward.
/// - `backward(context, request, phases...)`: fills the leaf gradients and accumulates the parameter gradients.
/// - `backward_input(context, request, phases...)`: fills the leaf gradients and keeps in `context` what is left.
/// - `backward_weight(context, phases...)`: accumulates what `backward_input` left; called once, in the order of the
///   `backward_input` calls.
template <class Adapter>
concept autograd_tensor_adapter = tensor_adapter<Adapter> &&
    requires(Adapter& a, typename Adapter::context& context,
             gradient_request<typename Adapter::tensor> const& request) {
  a.forward_scope(context);
  a.forget_graph(*request.roots);
  a.backward(context, request);
  a.backward_input(context, request);
  a.backward_weight(context);
};

/// A value that a phase reads or writes, for an adapter that looks at phases.
template <class Tensor> struct phase_value {
  Tensor const* what = nullptr;
  detail::text name{};
  bool is_written = false;
  bool is_saved = false; ///< the phase says that its backward needs it
  bool is_inside_node = false; ///< read where it was written, without a leaf of its own
};

/// A tensor adapter that looks at what phases do in forward, as debug builds may: `check_forward(phase, values, count, run)`
/// calls `run()`, the forward of the phase of that name, and may throw about its values. Metadata is not among them. Asked
/// only where the adapter differentiates; without the member there is no code at all.
template <class Adapter>
concept checks_phases = tensor_adapter<Adapter> &&
    requires(Adapter& a, detail::text phase, phase_value<typename Adapter::tensor> const* values) {
  a.check_forward(phase, values, 1, detail::some_task{});
};

/// In-order queues and the events between them. One thread (the host) calls all four.
/// - `run(lane, label, task)`: runs the callable on that lane, after everything issued on it before. `task` is trivially
///   copyable and at most 64 bytes. If an earlier op of the step failed, it is skipped.
/// - `record(lane, event)`: the event stands for everything issued on the lane so far.
/// - `wait(lane, event)`: what is issued on the lane from now on runs after the record of `event` that was issued last
///   before this call; recording the event again does not disturb it. An event never recorded makes nothing wait.
/// - `drain()`: returns when every lane is idle; throws if an op failed since the last drain, naming the op.
template <class Lanes>
concept lane_adapter = requires(Lanes& lanes, lane const on, op_label const& label,
                                typename Lanes::event& event) {
  requires std::default_initializable<typename Lanes::event>;
  lanes.run(on, label, detail::some_task{});
  lanes.record(on, event);
  lanes.wait(on, event);
  lanes.drain();
};

/// Who knows how many rows arrive: the host (an exchange of counts before the rows, for which a step waits, so that it cannot be
/// captured), the device alone, or nobody because capacities are fixed.
enum class counts_mode : unsigned char { host, device, static_capacity };

/// The all-to-all of an expert-parallel group.
/// - `routing`: where rows go, as this communicator wants it told: rows per destination (all-to-all-v), or top-k ids
///   and weights per token (DeepEP, HybridEP).
/// - `handle`: move-only; made by `dispatch`, used by the other three; belongs to one microbatch of one layer.
/// - `dispatch(rows, routing, handle)`: the rows that arrive here. `combine(rows, handle)`: back to their owners.
/// - `dispatch_backward`, `combine_backward`: the transposes, for gradients.
/// - `in_flight`: how many handles may live at once (0: any number). Calls are collective: every rank of the group
///   makes the same calls in the same order.
template <class Communicator>
concept expert_communicator = requires(Communicator& c, typename Communicator::tensor const& rows,
                                       typename Communicator::routing const& routing,
                                       typename Communicator::handle& handle) {
  requires !std::copyable<typename Communicator::handle> && std::movable<typename Communicator::handle>;
  { Communicator::counts } -> std::convertible_to<counts_mode>;
  { Communicator::in_flight } -> std::convertible_to<int>;
  { Communicator::capturable } -> std::convertible_to<bool>;
  { c.rank() } -> std::convertible_to<int>;
  { c.ranks() } -> std::convertible_to<int>;
  { c.dispatch(rows, routing, handle) } -> std::same_as<typename Communicator::tensor>;
  { c.combine(rows, handle) } -> std::same_as<typename Communicator::tensor>;
  { c.dispatch_backward(rows, handle) } -> std::same_as<typename Communicator::tensor>;
  { c.combine_backward(rows, handle) } -> std::same_as<typename Communicator::tensor>;
};

/// Exchange of plain rows between the ranks of a group, the layer below an expert communicator. Rows for rank d lie at
/// `send` behind those for the ranks before d; `send_rows[d]` and `receive_rows[d]` may be zero. Collective.
template <class Exchange>
concept row_exchange = requires(Exchange& c, void const* send, int const* send_rows, void* receive,
                                int const* receive_rows, int* counts, std::size_t row_bytes) {
  { c.rank() } -> std::convertible_to<int>;
  { c.ranks() } -> std::convertible_to<int>;
  c.exchange_counts(send_rows, counts);
  c.all_to_all(send, send_rows, receive, receive_rows, row_bytes);
};

/// A message between two pipeline ranks: the output of F of `stage` (an activation, to the next stage) or the input
/// gradient of B of `stage` (to the stage before), for one microbatch; `chain` numbers the values that cross.
struct message {
  bool gradient;
  int stage;
  int microbatch;
  int chain;
  int peer; ///< the rank at the other end
};

/// The way that messages of one kind take from one rank of a pipeline to another. Adapters give each a channel of its own,
/// since calls of one channel run in order: a receive that waits must not stand before a send that is ready.
struct message_route {
  int from;
  int to;
  bool gradient;
  friend auto operator<=>(message_route const&, message_route const&) = default;
};

/// What a message is called on the lane that sends or receives it.
constexpr op_label label_of(message const& m, lane on) {
  return {phase_kind::attn, m.gradient ? pass::backward : pass::forward, on, m.stage, m.microbatch};
}

/// Messages between the ranks of a pipeline, keyed by everything in `message` but the peer.
/// - `send(message, t)`: runs on a send lane, in plan order; may return before the other end has it. Behind it on the lane the
///   storage of `t` may go back or be written again, so what arrives has storage of its own.
/// - `receive(message)`: runs on a receive lane, in the order of need; returns when the tensor is there.
/// An empty tensor may be sent and arrives empty: a gradient that nothing flows into.
template <class Adapter>
concept peer_adapter = requires(Adapter& peers, message const& m, typename Adapter::tensor const& t) {
  peers.send(m, t);
  { peers.receive(m) } -> std::same_as<typename Adapter::tensor>;
};

/// The peers of a rank that is alone.
template <class Tensor> struct no_peers {
  using tensor = Tensor;
  void send(message const&, tensor const&) const noexcept {}
  tensor receive(message const&) const noexcept { return {}; }
};

} // namespace v0
} // namespace stretto
