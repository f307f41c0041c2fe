#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace train_moe::kernels {

/// What tensors consist of. Sums are in float.
enum class number : unsigned char { f32, bf16 };

/// Numbers that one thread moves at a time: widths below are multiples of it, and all addresses of 16 bytes.
constexpr int numbers_at_once(number type) { return type == number::f32 ? 4 : 8; }

// Each of these is one kernel on `stream`, gives the same bits on every run, and throws `std::runtime_error` if it cannot
// start. Matrices are row by row.

/// `y` [rows, width] = silu(gate) * up of `both` [rows, 2 * width], gate in front.
void swiglu(cudaStream_t stream, number type, void const* both, void* y, std::int64_t rows, int width);
/// The gradient of `both`, from that of `y` in `dy`, whose place `y` takes. `d_both` may be `both`. Unless `along` is null, it gets
/// the sum of dy * y for each row.
void swiglu_backward(cudaStream_t stream, number type, void const* both, void* dy, void* d_both, float* along,
                     std::int64_t rows, int width);

/// The heads of a token in one place, those of the next `stride` numbers further.
struct heads_of_tokens {
  void const* first;
  std::int64_t stride;
};
struct turn_sizes {
  std::int64_t tokens;
  int sequence, heads, head;
};
/// `qkv` [tokens, 3, heads, head]: queries and keys turned by the angle of their place in the sequence, times `direction`
/// (1 or -1), and values as they are. `cosine` and `sine` [sequence, head / 2]. Widths: head / 2.
void turn(cudaStream_t stream, number type, heads_of_tokens q, heads_of_tokens k, heads_of_tokens v,
          void const* cosine, void const* sine, float direction, void* qkv, turn_sizes sizes);

/// Where rows of tokens are that went to `choices` experts each: choice c of token t is row `place[t * choices + c]`, or row
/// t * choices + c itself where `place` is null.
struct chosen_rows {
  std::int64_t const* place;
  std::int64_t tokens;
  int choices, width;
};
/// `y` [tokens, width] = x + the sum of the choices' rows by `weights` [tokens, choices].
void weigh_rows(cudaStream_t stream, number type, chosen_rows of, void const* rows, float const* weights,
                void const* x, void* y);
/// The gradient of the rows, from that of `y`. Rows that are nobody's choice are left as they are.
void weigh_rows_gradient(cudaStream_t stream, number type, chosen_rows of, float const* weights,
                         void const* dy, void* d_rows);
/// `y` [tokens, width] = the sum of the choices' rows.
void sum_rows(cudaStream_t stream, number type, chosen_rows of, void const* rows, void* y);

/// The choices by expert, those of one expert in their order: `order[i]` is the i-th, `inverse` leads back, and `rows` are
/// those of each expert. All ids are below `experts`.
void order_by_expert(cudaStream_t stream, std::int64_t const* ids, std::int64_t count, int experts,
                     std::int64_t* order, std::int64_t* inverse, std::int64_t* rows);

} // namespace train_moe::kernels
