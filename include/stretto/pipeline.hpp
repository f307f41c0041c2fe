#pragma once

#include <stretto/detail/cxx20.hpp>

#include <concepts>
#include <type_traits>

namespace stretto {
inline namespace v0 {

namespace detail {
constexpr int at_most(int number, int limit) { return number < limit ? number : limit; }
} // namespace detail

/// What one call of a plan runs on a rank.
enum class form : unsigned char {
  forward_backward, ///< F of one microbatch beside B of another: an overlapped pair
  forward, ///< F alone
  backward, ///< B alone: both halves
  backward_input, ///< I alone: the gradients of the inputs
  backward_weight ///< W alone: the parameter gradients of an earlier I
};

/// One step of a rank: a form, and the chunks and microbatches that it works on.
///
/// Chunks are local to the rank (0 up to its number of chunks); `stage_of` gives the stage of the model. A side that the
/// form does not have is -1, so that calls compare by value.
struct call {
  form what;
  short forward_chunk, backward_chunk;
  int forward_microbatch, backward_microbatch;

  /// F of `microbatch` on `chunk`.
  static constexpr call forward(int chunk, int microbatch) {
    return {form::forward, static_cast<short>(chunk), -1, microbatch, -1};
  }
  /// B, I and W together, of `microbatch` on `chunk`.
  static constexpr call backward(int chunk, int microbatch) {
    return {form::backward, -1, static_cast<short>(chunk), -1, microbatch};
  }
  /// I: the gradients of the inputs only; its W is a call of its own.
  static constexpr call backward_input(int chunk, int microbatch) {
    return {form::backward_input, -1, static_cast<short>(chunk), -1, microbatch};
  }
  /// W of an earlier I.
  static constexpr call backward_weight(int chunk, int microbatch) {
    return {form::backward_weight, -1, static_cast<short>(chunk), -1, microbatch};
  }
  /// F of one chunk and microbatch beside B of another; neither may need the other.
  static constexpr call pair(int chunk_f, int microbatch_f, int chunk_b, int microbatch_b) {
    return {form::forward_backward, static_cast<short>(chunk_f), static_cast<short>(chunk_b), microbatch_f,
            microbatch_b};
  }

  /// Whether an F is part of this call.
  constexpr bool runs_forward() const { return what == form::forward_backward || what == form::forward; }
  /// Whether input gradients are part of this call (B and I).
  constexpr bool runs_input() const { return runs_backward() || what == form::backward_input; }
  /// Whether parameter gradients are part of this call (B and W).
  constexpr bool runs_weight() const { return runs_backward() || what == form::backward_weight; }
  /// Whether a whole B is part of this call.
  constexpr bool runs_backward() const { return what == form::forward_backward || what == form::backward; }

  friend constexpr bool operator==(call const&, call const&) = default;
};

/// How the stages of the model lie on the ranks.
enum class placement : unsigned char {
  looped, ///< stage s on rank s mod P: chunk after chunk in the same direction
  vee ///< there and back: chunk 0 runs up the ranks, chunk 1 down, and so on (one V for two chunks)
};

/// The stage that `chunk` of `rank` holds.
constexpr int stage_of(placement map, int ranks, int rank, int chunk) {
  return chunk * ranks + (map == placement::vee && chunk % 2 == 1 ? ranks - 1 - rank : rank);
}

/// The chunk, local to its rank, that holds `stage`.
constexpr int chunk_of(int ranks, int stage) { return stage / ranks; }

/// The rank that holds `stage`.
constexpr int rank_of(placement map, int ranks, int stage) {
  int const at = stage % ranks;
  return map == placement::vee && chunk_of(ranks, stage) % 2 == 1 ? ranks - 1 - at : at;
}

namespace detail {

/// Counts calls, and writes them down where there is room. One type, so that a pipeline is instantiated once; no copies, since
/// what a pipeline tells a copy nobody hears.
struct call_sink {
  call* room = nullptr;
  long count = 0;

  constexpr explicit call_sink(call* where = nullptr) : room(where) {}
  call_sink(call_sink const&) = delete;
  call_sink& operator=(call_sink const&) = delete;
  constexpr void operator()(call one) {
    if (room != nullptr) room[count] = one;
    ++count;
  }
};

} // namespace detail

/// A pipeline: a type that says which chunk and microbatch a rank runs when.
///
/// `name` is what command lines and sentences call it; `map` places the stages; `chunks` is the number of chunks of a rank
/// (a pipeline that leaves it to the user adds `most_chunks`, and `chunks` is the default); `pairs` and `splits` say
/// whether it emits overlapped pairs, and I and W apart; `min_microbatches(ranks)` is the least number it can serve.
/// `run(ranks, rank, microbatches, chunks, sink)` hands the calls of one rank to `sink` in order, which it takes as
/// `auto&& sink`. It is one constexpr function: proofs, pictures and the executor all read the same order from it.
///
/// Optional: `microbatch_multiple(ranks)`, a number that must divide the microbatches, and
/// `peak_live(ranks, rank, microbatches, chunks)`, the bound on live chunk activations that the plan is held to. An
/// activation lives from its F to the end of its W (the inputs of the layers are what W reads).
template <class Pipeline>
concept pipeline = requires(int number, detail::call_sink& sink) {
  { Pipeline::name } -> std::convertible_to<char const*>;
  { Pipeline::map } -> std::convertible_to<placement>;
  // Constants. With casts in the argument of an alias: without them g++ 12 stops at a member that is not static.
  typename std::bool_constant<static_cast<int>(Pipeline::chunks) == 0>;
  typename std::bool_constant<static_cast<bool>(Pipeline::pairs)>;
  typename std::bool_constant<static_cast<bool>(Pipeline::splits)>;
  { Pipeline::min_microbatches(number) } -> std::convertible_to<int>;
  Pipeline::run(number, number, number, number, sink);
};

/// The largest number of chunks that a rank may have under `Pipeline`.
template <pipeline Pipeline> constexpr int most_chunks() {
  if constexpr (requires { Pipeline::most_chunks; }) {
    return Pipeline::most_chunks;
  } else {
    return Pipeline::chunks;
  }
}

/// The number that must divide the microbatches under `Pipeline` (1: any number will do).
template <pipeline Pipeline> constexpr int microbatch_multiple(int ranks) {
  if constexpr (requires { Pipeline::microbatch_multiple(ranks); }) {
    return Pipeline::microbatch_multiple(ranks);
  } else {
    return 1;
  }
}

/// The bound on the live chunk activations of a rank, or -1 where `Pipeline` gives none.
template <pipeline Pipeline> constexpr int peak_live(int ranks, int rank, int microbatches, int chunks) {
  if constexpr (requires { Pipeline::peak_live(ranks, rank, microbatches, chunks); }) {
    return Pipeline::peak_live(ranks, rank, microbatches, chunks);
  } else {
    return -1;
  }
}

} // namespace v0
} // namespace stretto
