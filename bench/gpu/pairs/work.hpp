#pragma once

#include "memory.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace layer_pairs {

inline void check(cublasStatus_t result, char const* call) {
  if (result != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(result));
}

/// What a rank computes and sends. Every weight is width x width; a microbatch has `tokens` rows.
struct shape {
  int tokens = 0, width = 0;
  int peer_rows = 0; ///< of `width` bf16 numbers, to each other rank and per all-to-all
  int layers = 0, microbatches = 0;

  std::size_t row_bytes() const { return static_cast<std::size_t>(width) * 2; }
  std::size_t peer_bytes() const { return static_cast<std::size_t>(peer_rows) * row_bytes(); }
  /// Forward of one layer beside backward of another.
  int pairs() const { return (microbatches - 1) * layers; }
};

/// GEMMs on one stream, with a workspace of their own. Matrices lie row by row.
class gemms {
public:
  gemms(cudaStream_t on, shape const& of, int multiprocessors)
      : stream_(on), shape_(of), workspace_(std::size_t{64} << 20) {
    check(cublasCreate(&handle_), "cublasCreate");
    check(cublasSetStream(handle_, on), "cublasSetStream");
    check(cublasSetWorkspace(handle_, workspace_.data(), workspace_.bytes()), "cublasSetWorkspace");
    check(cublasSetSmCountTarget(handle_, multiprocessors), "cublasSetSmCountTarget");
  }
  gemms(gemms const&) = delete;
  gemms& operator=(gemms const&) = delete;
  ~gemms() { static_cast<void>(cublasDestroy(handle_)); }

  cudaStream_t stream() const { return stream_; }

  /// out = in * weight, scaled so that random numbers keep their size.
  void forward(void* out, void const* in, void const* weight) {
    multiply(CUBLAS_OP_N, CUBLAS_OP_N, shape_.width, shape_.tokens, shape_.width, scale(), weight, in, 0.0F,
             out, CUDA_R_16BF);
  }
  /// in = out * transposed weight.
  void input_gradient(void* in, void const* out, void const* weight) {
    multiply(CUBLAS_OP_T, CUBLAS_OP_N, shape_.width, shape_.tokens, shape_.width, scale(), weight, out, 0.0F,
             in, CUDA_R_16BF);
  }
  /// sum += transposed in * out, in f32.
  void weight_gradient(void* sum, void const* in, void const* out) {
    multiply(CUBLAS_OP_N, CUBLAS_OP_T, shape_.width, shape_.width, shape_.tokens,
             1.0F / static_cast<float>(shape_.tokens), out, in, 1.0F, sum, CUDA_R_32F);
  }

private:
  float scale() const { return std::sqrt(3.0F / static_cast<float>(shape_.width)); }
  void multiply(cublasOperation_t first_how, cublasOperation_t second_how, int rows, int columns, int inner,
                float alpha, void const* first, void const* second, float beta, void* to,
                cudaDataType to_type) {
    check(cublasGemmEx(handle_, first_how, second_how, rows, columns, inner, &alpha, first, CUDA_R_16BF,
                       shape_.width, second, CUDA_R_16BF, shape_.width, &beta, to, to_type, shape_.width,
                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

  cudaStream_t stream_;
  shape shape_;
  device_memory workspace_;
  cublasHandle_t handle_{};
};

/// The all-to-all of one rank, over whichever transport; on the stream that is current.
class row_transport {
public:
  virtual ~row_transport() = default;
  virtual void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                          std::size_t row_bytes) = 0;
  /// For rows, for as long as the transport lives.
  virtual void* memory(std::size_t bytes) { return memory_.emplace_back(bytes).data(); }
  /// Multiprocessors that are left to the GEMMs beside calls of `peer_bytes`; 0: all.
  virtual int multiprocessors(std::size_t) { return 0; }
  /// Whether a capture must hold the streams of all ranks.
  virtual bool captured_together() const { return true; }

private:
  std::deque<device_memory> memory_;
};

/// Where everything of a rank lies: two microbatches are in flight, so each layer has two places for each value.
class buffers {
public:
  enum value { hidden, tokens, expert_in, expert_out, values };

  buffers(shape const& of, int rank, row_transport& transport, memory_kernels& kernels, cudaStream_t on)
      : shape_(of), place_bytes_(index((std::max)(of.tokens, of.peer_rows)) * of.row_bytes()),
        data_(static_cast<std::byte*>(transport.memory(place_bytes_ * places()))),
        gradients_(static_cast<std::byte*>(transport.memory(place_bytes_ * places()))),
        weights_(matrices() * matrix_elements() * 2), sums_(matrices() * matrix_elements() * 4) {
    unsigned seed = 1000003U * static_cast<unsigned>(rank + 1);
    kernels.randomize(data_, place_bytes_ * places(), seed, on);
    kernels.randomize(gradients_, place_bytes_ * places(), seed + 1, on);
    kernels.randomize(weights_.data(), weights_.bytes(), seed + 2, on);
    cuda::check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  }

  void* at(value what, int layer, int microbatch) const { return data_ + place(what, layer, microbatch); }
  void* gradient(value what, int layer, int microbatch) const {
    return gradients_ + place(what, layer, microbatch);
  }
  void* attn_weight(int layer) const { return matrix(weights_, 2 * layer, 2); }
  void* mlp_weight(int layer) const { return matrix(weights_, 2 * layer + 1, 2); }
  void* attn_sum(int layer) const { return matrix(sums_, 2 * layer, 4); }
  void* mlp_sum(int layer) const { return matrix(sums_, 2 * layer + 1, 4); }

  void clear_sums(cudaStream_t on) const {
    cuda::check(cudaMemsetAsync(sums_.data(), 0, sums_.bytes(), on), "cudaMemsetAsync");
  }

  /// Of all weight gradients, into which all rows flow that the GEMMs read, and of all rows that came last from other ranks.
  std::uint64_t checksum(memory_kernels& kernels, cudaStream_t on) const {
    kernels.clear_sum(on);
    kernels.add(sums_.data(), sums_.bytes(), on);
    for (int slot = 0; slot < 2; ++slot)
      for (int layer = 0; layer < shape_.layers; ++layer)
        for (void const* each : {at(expert_in, layer, slot), at(hidden, layer + 1, slot),
                                 gradient(expert_out, layer, slot), gradient(tokens, layer, slot)})
          kernels.add(each, shape_.peer_bytes(), on);
    return kernels.sum(on);
  }

private:
  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  std::size_t places() const { return index(2 * values * (shape_.layers + 1)); }
  std::size_t matrices() const { return index(2 * shape_.layers); }
  std::size_t matrix_elements() const { return index(shape_.width) * index(shape_.width); }
  std::size_t place(value what, int layer, int microbatch) const {
    return index((layer * 2 + microbatch % 2) * values + what) * place_bytes_;
  }
  void* matrix(device_memory const& in, int number, std::size_t element_bytes) const {
    return static_cast<std::byte*>(in.data()) + index(number) * matrix_elements() * element_bytes;
  }

  shape shape_;
  std::size_t place_bytes_;
  std::byte *data_, *gradients_;
  device_memory weights_, sums_;
};

/// Only what goes to other ranks: own rows are moved by kernels that permute, which are none of communication.
class exchange {
public:
  exchange(row_transport& over, shape const& of, int rank, int ranks)
      : over_(over), rows_(static_cast<std::size_t>(ranks), of.peer_rows), row_bytes_(of.row_bytes()) {
    rows_[static_cast<std::size_t>(rank)] = 0;
  }
  void operator()(void* receive, void const* send) {
    if (moves) over_.all_to_all(send, rows_.data(), receive, rows_.data(), row_bytes_);
  }
  bool moves = true;

private:
  row_transport& over_;
  std::vector<int> rows_;
  std::size_t row_bytes_;
};

} // namespace layer_pairs
