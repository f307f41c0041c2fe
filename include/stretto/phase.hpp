#pragma once

#include <stretto/value.hpp>

namespace stretto {
inline namespace v0 {

/// The place of a phase in a layer, in forward order. A layer policy orders ops by these names, so a phase that
/// belongs to none of them takes the place where it should run: an embedding is an `attn`, a head with its loss an
/// `mlp`. `mtp` is the work after the combine (multi-token prediction, or any tail on the compute lane).
enum class phase_kind : unsigned char { attn, dispatch, mlp, combine, mtp };

inline constexpr phase_kind attn = phase_kind::attn;
inline constexpr phase_kind dispatch = phase_kind::dispatch;
inline constexpr phase_kind mlp = phase_kind::mlp;
inline constexpr phase_kind combine = phase_kind::combine;
inline constexpr phase_kind mtp = phase_kind::mtp;

/// The part of a node's work that one op does. `backward` is the whole; `backward_input` and `backward_weight` are
/// its halves (zero-bubble pipelines, arXiv 2401.10241).
enum class pass : unsigned char { forward, backward, backward_input, backward_weight };

/// An in-order queue: what is issued on one lane runs in that order; two lanes meet only where one waits.
/// Messages between pipeline ranks have a lane for sends and one for receives on either side, so that a receive never blocks
/// a ready send and nothing from one side waits for the other: with one lane for all receives a simulated DualPipeV step is
/// 1 to 2 % longer. The ports stand for what happened outside of a body.
enum class lane : unsigned char {
  compute,
  comm,
  send_lower,
  send_higher,
  receive_lower,
  receive_higher,
  forward_port,
  backward_port
};
inline constexpr int lane_count = 8;
constexpr unsigned bit_of(lane on) { return 1U << static_cast<unsigned>(on); }
constexpr bool is_send(lane on) { return on == lane::send_lower || on == lane::send_higher; }
constexpr bool is_receive(lane on) { return on == lane::receive_lower || on == lane::receive_higher; }

/// Base of a user's phase. The derived struct declares what it `reads` and `writes` and has
/// `void forward(auto& io)`. With an autograd tensor adapter that is all; otherwise it also has
/// `void backward(auto& io)`, or `void backward_input(auto& io)` and `void backward_weight(auto& io)`.
///
/// Inside, `io[hidden{}]` is the tensor that the phase declared (`io.in`, `io.out` where it reads and writes one
/// name), `io.grad(hidden{})` its gradient, `io.microbatch()` the microbatch. What a phase keeps between forward and
/// backward goes into `io.saved()` (type `saved`, if declared), never into members: several microbatches are in flight.
///
/// `using saves = values<...>` lists what of its reads and writes the backward of the phase needs, by its own code or in its
/// autograd graph. The storage of a value that neither its writer nor a reader saves goes back after its last forward
/// reader. Without the line a phase is taken to save everything it reads and writes, which is always safe. A backward written
/// by hand that uses what the line leaves out does not compile.
///
/// `using aliases = values<a, b>` says that the phase, at times or always, hands on the storage of `a`, which it reads, as `b`,
/// which it writes, as an exchange among one rank does. The storage then lives as long as either is needed. More pairs may
/// follow. What goes to the layer behind cannot be an alias: `carries` of the block passes a value on under its own name.
///
/// `using communicator = C;` says that a microbatch holds one handle of that expert communicator from forward to backward of
/// the phase, which is the one that dispatches: at most `C::in_flight` microbatches may be in between, of all layers and
/// phases that name `C`, since they share its buffers. `static constexpr int in_flight = n;` says the same of the phase alone;
/// 0 is any number. A policy that needs more does not compile; layers and plans that do are refused when their executor is
/// made.
template <phase_kind Kind> struct Phase {
  static constexpr phase_kind kind = Kind;
  using reads = values<>;
  using writes = values<>;
  /// False for phases without trainable parameters: their backward is one op, nothing is left for a weight pass.
  static constexpr bool has_weights = Kind != phase_kind::dispatch && Kind != phase_kind::combine;
};

/// Where the autograd graph of a block is cut. The phases between two cuts are one node: the unit that is scheduled.
struct Detach {};

/// The phases of one node, in a block, whose forward runs once more at the beginning of their backward: from the first forward
/// on only what they read from outside is kept, and not what they save, write or put into `io.saved()`. Their forward must
/// give the same bits twice, also where it draws random numbers; one that communicates does so twice.
template <class... Phases> struct Recompute {};

constexpr char const* name_of(phase_kind kind) {
  constexpr char const* names[] = {"attn", "dispatch", "mlp", "combine", "mtp"};
  return names[static_cast<int>(kind)];
}
/// F, B, I, W: the letters of the pipeline literature.
constexpr char const* letter_of(pass what) {
  constexpr char const* letters[] = {"F", "B", "I", "W"};
  return letters[static_cast<int>(what)];
}
constexpr char const* name_of(lane on) {
  constexpr char const* names[] = {"compute",       "comm",           "send lower",   "send higher",
                                   "receive lower", "receive higher", "forward port", "backward port"};
  return names[static_cast<int>(on)];
}

} // namespace v0
} // namespace stretto
