#include "kernels.hpp"

#include <cuda_bf16.h>

#include <stdexcept>
#include <string>

namespace train_moe::kernels {
namespace {

constexpr int threads = 256;

/// 16 bytes of a row.
template <class Number> struct alignas(16) piece {
  static constexpr int size = 16 / sizeof(Number);
  Number of[size];

  __device__ static piece read(Number const* from) { return *reinterpret_cast<piece const*>(from); }
  __device__ void write(Number* to) const { *reinterpret_cast<piece*>(to) = *this; }
  __device__ float operator[](int i) const { return static_cast<float>(of[i]); }
  __device__ void set(int i, float x) { of[i] = static_cast<Number>(x); }
};

/// Where this thread's piece begins in a row of the block's own.
template <class Number> __device__ int column() {
  return static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * piece<Number>::size;
}
__device__ std::int64_t row() { return blockIdx.x; }

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class Number> __global__ void swiglu_rows(Number const* both, Number* y, int width) {
  int const c = column<Number>();
  if (c >= width) return;
  auto const gate = piece<Number>::read(both + row() * 2 * width + c);
  auto const up = piece<Number>::read(both + row() * 2 * width + width + c);
  piece<Number> out;
  for (int i = 0; i < out.size; ++i) out.set(i, gate[i] * sigmoid(gate[i]) * up[i]);
  out.write(y + row() * width + c);
}

/// One piece of a row, at `c`; the sum of dy * y over it.
template <class Number>
__device__ float swiglu_backward_piece(Number const* both, Number* dy, Number* d_both, int width, int c) {
  auto const gate = piece<Number>::read(both + c), up = piece<Number>::read(both + width + c);
  auto const d = piece<Number>::read(dy + c);
  piece<Number> of_gate, of_up, y;
  float along = 0;
  for (int i = 0; i < d.size; ++i) {
    float const s = sigmoid(gate[i]);
    of_gate.set(i, d[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s)));
    of_up.set(i, d[i] * gate[i] * s);
    y.set(i, gate[i] * s * up[i]);
    along += d[i] * y[i];
  }
  of_gate.write(d_both + c);
  of_up.write(d_both + width + c);
  y.write(dy + c);
  return along;
}

template <class Number>
__global__ void swiglu_backward_rows(Number const* both, Number* dy, Number* d_both, int width) {
  int const c = column<Number>();
  if (c >= width) return;
  swiglu_backward_piece(both + row() * 2 * width, dy + row() * width, d_both + row() * 2 * width, width, c);
}

/// A warp for each row.
template <class Number>
__global__ void swiglu_backward_along_rows(Number const* both, Number* dy, Number* d_both, float* along,
                                           std::int64_t rows, int width) {
  auto const r = row() * (threads / 32) + threadIdx.x / 32;
  if (r >= rows) return;
  int const lane = static_cast<int>(threadIdx.x % 32);
  float sum = 0;
  for (int c = lane * piece<Number>::size; c < width; c += 32 * piece<Number>::size)
    sum += swiglu_backward_piece(both + r * 2 * width, dy + r * width, d_both + r * 2 * width, width, c);
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (lane == 0) along[r] = sum;
}

struct three_heads {
  heads_of_tokens of[3];
};
template <class Number>
__global__ void turn_heads(three_heads from, Number const* cosine, Number const* sine, float direction,
                           Number* qkv, turn_sizes sizes) {
  int const half = sizes.head / 2, pieces = half / piece<Number>::size;
  int const i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x), part = i / (sizes.heads * pieces);
  if (part > 2) return;
  int const head = i / pieces % sizes.heads, c = i % pieces * piece<Number>::size;
  auto const* const x =
      static_cast<Number const*>(from.of[part].first) + row() * from.of[part].stride + head * sizes.head + c;
  auto const a = piece<Number>::read(x), b = piece<Number>::read(x + half);
  auto first = a, second = b;
  if (part < 2) {
    auto const angle = row() % sizes.sequence * half + c;
    auto const cosines = piece<Number>::read(cosine + angle), sines = piece<Number>::read(sine + angle);
    for (int j = 0; j < a.size; ++j) {
      float const s = sines[j] * direction;
      first.set(j, a[j] * cosines[j] - b[j] * s);
      second.set(j, b[j] * cosines[j] + a[j] * s);
    }
  }
  auto* const y = qkv + ((row() * 3 + part) * sizes.heads + head) * sizes.head + c;
  first.write(y);
  second.write(y + half);
}

__device__ std::int64_t row_of(chosen_rows const& of, int choice) {
  auto const number = row() * of.choices + choice;
  return of.place ? of.place[number] : number;
}

/// Without weights the sum of the rows, without `x` nothing is added to.
template <class Number>
__global__ void weigh_of_token(chosen_rows of, Number const* rows, float const* weights, Number const* x,
                               Number* y) {
  int const c = column<Number>();
  if (c >= of.width) return;
  float sum[piece<Number>::size] = {};
  for (int choice = 0; choice < of.choices; ++choice) {
    auto const r = piece<Number>::read(rows + row_of(of, choice) * of.width + c);
    float const weight = weights ? weights[row() * of.choices + choice] : 1.0f;
    for (int i = 0; i < r.size; ++i) sum[i] += weight * r[i];
  }
  piece<Number> out;
  if (x) out = piece<Number>::read(x + row() * of.width + c);
  for (int i = 0; i < out.size; ++i) out.set(i, x ? out[i] + sum[i] : sum[i]);
  out.write(y + row() * of.width + c);
}

template <class Number>
__global__ void weigh_gradient_of_token(chosen_rows of, float const* weights, Number const* dy,
                                        Number* d_rows) {
  int const c = column<Number>();
  if (c >= of.width) return;
  auto const d = piece<Number>::read(dy + row() * of.width + c);
  for (int choice = 0; choice < of.choices; ++choice) {
    float const weight = weights[row() * of.choices + choice];
    piece<Number> out;
    for (int i = 0; i < out.size; ++i) out.set(i, weight * d[i]);
    out.write(d_rows + row_of(of, choice) * of.width + c);
  }
}

constexpr int many_threads = 1024;

/// Of the threads of a block of `many_threads` for which `is` holds: how many are before this one, and all.
struct rank_in_block {
  int before = 0, all = 0;
};
__device__ rank_in_block count_in_block(bool is) {
  __shared__ int of_warp[many_threads / 32];
  auto const lanes = __ballot_sync(~0u, is);
  int const warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[warp] = __popc(lanes);
  __syncthreads();
  rank_in_block made{__popc(lanes & ((1u << threadIdx.x % 32) - 1)), 0};
  for (int i = 0; i < many_threads / 32; ++i) {
    if (i < warp) made.before += of_warp[i];
    made.all += of_warp[i];
  }
  return made;
}

/// A block for each expert: the choices of experts before it are counted, then its own are placed.
__global__ void order_of_expert(std::int64_t const* ids, std::int64_t count, std::int64_t* order,
                                std::int64_t* inverse, std::int64_t* rows) {
  __shared__ unsigned long long of_lower;
  if (threadIdx.x == 0) of_lower = 0;
  __syncthreads();
  unsigned long long lower = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += many_threads) lower += ids[i] < row();
  atomicAdd(&of_lower, lower);
  __syncthreads();
  auto const first = static_cast<std::int64_t>(of_lower);
  std::int64_t own = 0;
  for (std::int64_t start = 0; start < count; start += many_threads) {
    auto const i = start + threadIdx.x;
    bool const is = i < count && ids[i] == row();
    auto const counted = count_in_block(is);
    if (is) {
      order[first + own + counted.before] = i;
      inverse[i] = first + own + counted.before;
    }
    own += counted.all;
  }
  if (threadIdx.x == 0) rows[row()] = own;
}

/// Fails for its own reasons only, not for what others have left to be asked for.
template <class... Parameters, class... Arguments>
void launch(char const* what, cudaStream_t on, dim3 blocks, int threads_of_block,
            void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t how{};
  how.gridDim = blocks;
  how.blockDim = static_cast<unsigned>(threads_of_block);
  how.stream = on;
  auto const problem = cudaLaunchKernelEx(&how, kernel, arguments...);
  if (problem == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string("train_moe: the kernel '") + what +
                           "' did not start: " + cudaGetErrorString(problem));
}

/// Calls `start` with a null pointer of the number's type.
template <class Start> void with_type(number type, Start const& start) {
  if (type == number::bf16)
    start(static_cast<__nv_bfloat16*>(nullptr));
  else
    start(static_cast<float*>(nullptr));
}
/// A thread for each piece of each row.
dim3 blocks_of(std::int64_t rows, std::int64_t width, number type) {
  auto const pieces = width / numbers_at_once(type);
  return {static_cast<unsigned>(rows), static_cast<unsigned>((pieces + threads - 1) / threads)};
}

} // namespace

void swiglu(cudaStream_t stream, number type, void const* both, void* y, std::int64_t rows, int width) {
  if (rows == 0) return;
  with_type(type, [&]<class Number>(Number*) {
    launch("swiglu", stream, blocks_of(rows, width, type), threads, swiglu_rows<Number>,
           static_cast<Number const*>(both), static_cast<Number*>(y), width);
  });
}

void swiglu_backward(cudaStream_t stream, number type, void const* both, void* dy, void* d_both, float* along,
                     std::int64_t rows, int width) {
  if (rows == 0) return;
  with_type(type, [&]<class Number>(Number*) {
    auto const* const x = static_cast<Number const*>(both);
    auto* const d_y = static_cast<Number*>(dy);
    auto* const d_x = static_cast<Number*>(d_both);
    if (!along)
      return launch("swiglu_backward", stream, blocks_of(rows, width, type), threads,
                    swiglu_backward_rows<Number>, x, d_y, d_x, width);
    constexpr int at_once = threads / 32;
    launch("swiglu_backward", stream, static_cast<unsigned>((rows + at_once - 1) / at_once), threads,
           swiglu_backward_along_rows<Number>, x, d_y, d_x, along, rows, width);
  });
}

void turn(cudaStream_t stream, number type, heads_of_tokens q, heads_of_tokens k, heads_of_tokens v,
          void const* cosine, void const* sine, float direction, void* qkv, turn_sizes sizes) {
  if (sizes.tokens == 0) return;
  with_type(type, [&]<class Number>(Number*) {
    launch("turn", stream, blocks_of(sizes.tokens, std::int64_t{3} * sizes.heads * sizes.head / 2, type),
           threads, turn_heads<Number>, three_heads{{q, k, v}}, static_cast<Number const*>(cosine),
           static_cast<Number const*>(sine), direction, static_cast<Number*>(qkv), sizes);
  });
}

void weigh_rows(cudaStream_t stream, number type, chosen_rows of, void const* rows, float const* weights,
                void const* x, void* y) {
  if (of.tokens == 0) return;
  with_type(type, [&]<class Number>(Number*) {
    launch("weigh_rows", stream, blocks_of(of.tokens, of.width, type), threads, weigh_of_token<Number>, of,
           static_cast<Number const*>(rows), weights, static_cast<Number const*>(x), static_cast<Number*>(y));
  });
}

void weigh_rows_gradient(cudaStream_t stream, number type, chosen_rows of, float const* weights,
                         void const* dy, void* d_rows) {
  if (of.tokens == 0) return;
  with_type(type, [&]<class Number>(Number*) {
    launch("weigh_rows_gradient", stream, blocks_of(of.tokens, of.width, type), threads,
           weigh_gradient_of_token<Number>, of, weights, static_cast<Number const*>(dy),
           static_cast<Number*>(d_rows));
  });
}

void sum_rows(cudaStream_t stream, number type, chosen_rows of, void const* rows, void* y) {
  weigh_rows(stream, type, of, rows, nullptr, nullptr, y);
}

void order_by_expert(cudaStream_t stream, std::int64_t const* ids, std::int64_t count, int experts,
                     std::int64_t* order, std::int64_t* inverse, std::int64_t* rows) {
  launch("order_by_expert", stream, static_cast<unsigned>(experts), many_threads, order_of_expert, ids, count,
         order, inverse, rows);
}

} // namespace train_moe::kernels
