#pragma once

#include <stretto/adapters/cublas/experts.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace stretto {
inline namespace v0 {
namespace cublas {

namespace detail {

class scratch {
public:
  scratch(std::int64_t elements, cudaDataType_t type, cudaStream_t on) {
    auto const bytes = static_cast<std::size_t>(elements) * bytes_of(type);
    if (bytes == 0) return;
    check(cudaMalloc(&data_, bytes), "memory to warm cuBLAS with");
    static_cast<void>(cudaMemsetAsync(data_, 0, bytes, on));
  }
  scratch(scratch const&) = delete;
  scratch& operator=(scratch const&) = delete;
  ~scratch() { static_cast<void>(cudaFree(data_)); }
  void* data() const { return data_; }

private:
  void* data_ = nullptr;
};

} // namespace detail

/// Launches all three products of these rows once, over memory of its own, and returns when they have run.
///
/// cuBLAS chooses its kernels by shape and loads each at its first launch. That launch hangs behind a stream that waits for
/// what this thread has yet to do, and disturbs a capture: so warm every shape before. CUDA_MODULE_LOADING=EAGER in the
/// environment loads all kernels at the start instead.
inline void warm(handle& with, expert_shape const& shape, std::span<std::int64_t const> rows) {
  auto const all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  auto const weights = static_cast<std::int64_t>(rows.size()) * shape.in * shape.out;
  cudaStream_t const on = with.stream();
  detail::scratch const x(all * shape.in, shape.type, on), y(all * shape.out, shape.type, on),
      w(weights, shape.type, on), dw(weights, gradient_type(shape.type), on);
  expert_forward(with, shape, rows, x.data(), w.data(), y.data());
  expert_input_gradient(with, shape, rows, y.data(), w.data(), x.data());
  for (auto const how : {gradient_sum::write, gradient_sum::add})
    expert_weight_gradient(with, shape, rows, x.data(), y.data(), dw.data(), how);
  detail::check(cudaStreamSynchronize(on), "the first products of cuBLAS");
}

} // namespace cublas
} // namespace v0
} // namespace stretto
