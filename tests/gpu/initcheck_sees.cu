/// initcheck_sees CASE: memory that one operation writes whole and another one reads, for compute-sanitizer's initcheck: what it reports was
/// written all the same, as the numbers show. Only `nothing` reads what nobody wrote.
#include "told_to_initcheck.hpp"

#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int side = 128, words = side * side, columns = 512;
constexpr unsigned value = 7;

void check(cudaError_t code, char const* what) {
  if (code == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(code));
  std::exit(3);
}
void check(cublasStatus_t code, char const* what) {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  std::printf("%s: %s\n", what, cublasGetStatusString(code));
  std::exit(3);
}

__global__ void write_plainly(unsigned* to) { to[blockIdx.x * blockDim.x + threadIdx.x] = value; }

__global__ void write_late(unsigned* to) {
  for (int i = 0; i < 20000; ++i) __nanosleep(1000);
  to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

/// A row of `side` words a block, from shared memory by one bulk copy.
__global__ void write_in_bulk(unsigned* to) {
  __shared__ alignas(128) unsigned row[side];
  row[threadIdx.x] = value;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x > 0) return;
  auto const from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + blockIdx.x * side),
               "r"(from), "r"(unsigned(sizeof row))
               : "memory");
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

/// The same by a bulk copy that is described by a tensor map, as matrix products and attention write.
__global__ void write_by_tensor_map(__grid_constant__ CUtensorMap const map) {
  __shared__ alignas(128) unsigned row[side / 2];
  row[threadIdx.x] = value;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x > 0) return;
  auto const from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  int const column = blockIdx.x % 2 * (side / 2), line = blockIdx.x / 2;
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(column), "r"(line), "r"(from)
               : "memory");
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Counts words that are not `expected`.
__global__ void read_all(unsigned const* from, unsigned expected, int* wrong) {
  if (from[blockIdx.x * blockDim.x + threadIdx.x] != expected) atomicAdd(wrong, 1);
}

CUtensorMap map_of(unsigned* memory) {
  using encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, cuuint64_t const*,
                              cuuint64_t const*, cuuint32_t const*, cuuint32_t const*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &how),
        "cuTensorMapEncodeTiled");
  CUtensorMap map{};
  cuuint64_t const sizes[] = {side, side}, strides[] = {side * 4};
  cuuint32_t const box[] = {side / 2, 1}, steps[] = {1, 1};
  auto const code =
      reinterpret_cast<encode>(found)(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, memory, sizes, strides, box,
                                      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled: %d\n", static_cast<int>(code)), std::exit(3);
  return map;
}

struct product_type {
  cudaDataType_t type, out;
  cublasComputeType_t compute;
  int bytes, n; ///< n: leading dimensions that are no multiple of 16 bytes rule tensor maps out
};

/// All ones: every element is `k`.
int product(product_type const& of, bool told) {
  int const n = of.n;
  std::vector<unsigned char> ones(std::size_t(n) * n * of.bytes);
  double const wide = 1;
  float const narrow = 1;
  auto const half = __float2bfloat16(1);
  void const* one = of.type == CUDA_R_64F   ? static_cast<void const*>(&wide)
                    : of.type == CUDA_R_32F ? static_cast<void const*>(&narrow)
                                            : &half;
  for (std::size_t i = 0; i < ones.size(); i += of.bytes) std::memcpy(&ones[i], one, of.bytes);
  int const out_bytes = of.out == CUDA_R_64F ? 8 : of.out == CUDA_R_32F ? 4 : 2;
  void *a = nullptr, *b = nullptr, *c = nullptr;
  check(cudaMalloc(&a, ones.size()), "cudaMalloc");
  check(cudaMalloc(&b, ones.size()), "cudaMalloc");
  check(cudaMalloc(&c, std::size_t(n) * n * out_bytes), "cudaMalloc");
  check(cudaMemcpy(a, ones.data(), ones.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(b, ones.data(), ones.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  cublasHandle_t with{};
  check(cublasCreate(&with), "cublasCreate");
  double const wide_zero = 0;
  float const zero = 0;
  bool const is_wide = of.type == CUDA_R_64F;
  check(cublasGemmEx(with, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n,
                     is_wide ? static_cast<void const*>(&wide) : &narrow, a, of.type, n, b, of.type, n,
                     is_wide ? static_cast<void const*>(&wide_zero) : &zero, c, of.out, n, of.compute,
                     CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
  if (told) test::is_written(c, std::size_t(n) * n * out_bytes, nullptr);
  std::vector<unsigned char> found(std::size_t(n) * n * out_bytes);
  check(cudaMemcpy(found.data(), c, found.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  int wrong = 0;
  for (std::size_t i = 0; i < found.size(); i += out_bytes) {
    double number = 0;
    float single = 0;
    __nv_bfloat16 brief;
    if (out_bytes == 8) std::memcpy(&number, &found[i], 8);
    if (out_bytes == 4) std::memcpy(&single, &found[i], 4), number = single;
    if (out_bytes == 2) std::memcpy(&brief, &found[i], 2), number = __bfloat162float(brief);
    wrong += number != __bfloat162float(__float2bfloat16(float(n)));
  }
  return wrong;
}

} // namespace

int main(int argc, char** argv) {
  std::string const which = argc > 1 ? argv[1] : "";
  unsigned *memory = nullptr, *second = nullptr;
  int* counter = nullptr;
  unsigned* on_host = nullptr;
  check(cudaMallocHost(&on_host, words * 4), "cudaMallocHost");
  std::fill_n(on_host, words, value);
  check(cudaMalloc(&memory, words * 4), "cudaMalloc");
  check(cudaMalloc(&second, words * 4), "cudaMalloc");
  check(cudaMalloc(&counter, 4), "cudaMalloc");
  check(cudaMemset(counter, 0, 4), "cudaMemset");
  cudaStream_t on{}, other{};
  cudaEvent_t joint{};
  check(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaEventCreateWithFlags(&joint, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  product_type const bf16{CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, columns},
      bf16_sum{CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, columns},
      odd{CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, 257},
      f32{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, columns},
      f64{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 8, columns};
  int wrong = -1;
  if (which == "cublas_bf16") wrong = product(bf16, false);
  if (which == "cublas_bf16_told") wrong = product(bf16, true);
  if (which == "cublas_bf16_to_f32") wrong = product(bf16_sum, false);
  if (which == "cublas_bf16_odd") wrong = product(odd, false);
  if (which == "cublas_f32") wrong = product(f32, false);
  if (which == "cublas_f64") wrong = product(f64, false);
  if (wrong >= 0) return std::printf("%s: %d of the numbers wrong\n", which.c_str(), wrong), wrong != 0;

  unsigned* read = memory;
  unsigned expected = value;
  if (which.rfind("graph_", 0) == 0) {
    cudaGraph_t graph{};
    cudaGraphExec_t run{};
    check(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    bool const set = which.rfind("graph_memset", 0) == 0, by_map = which.rfind("graph_tensor", 0) == 0;
    bool const lanes = which.rfind("graph_lanes", 0) == 0, late = lanes || which.rfind("graph_late", 0) == 0;
    if (set) {
      check(cudaMemsetAsync(memory, 0, words * 4, on), "cudaMemsetAsync");
      expected = 0;
    } else if (which == "graph_from_host") {
      check(cudaMemcpyAsync(memory, on_host, words * 4, cudaMemcpyHostToDevice, on), "cudaMemcpyAsync");
    } else if (by_map) {
      write_by_tensor_map<<<side * 2, side / 2, 0, on>>>(map_of(memory));
    } else if (late) {
      write_late<<<side, side, 0, on>>>(memory);
    } else {
      write_plainly<<<side, side, 0, on>>>(memory);
    }
    if (which.ends_with("_copy")) {
      cudaStream_t const copies_on = lanes ? other : on;
      if (lanes) {
        check(cudaEventRecord(joint, on), "cudaEventRecord");
        check(cudaStreamWaitEvent(other, joint, 0), "cudaStreamWaitEvent");
      }
      check(cudaMemcpyAsync(second, memory, words * 4, cudaMemcpyDeviceToDevice, copies_on),
            "cudaMemcpyAsync");
      if (lanes) {
        check(cudaEventRecord(joint, other), "cudaEventRecord");
        check(cudaStreamWaitEvent(on, joint, 0), "cudaStreamWaitEvent");
      }
      read = second;
    }
    read_all<<<side, side, 0, on>>>(read, expected, counter);
    check(cudaStreamEndCapture(on, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&run, graph, 0), "cudaGraphInstantiate");
    for (int replay = 0; replay < (late ? 1 : 2); ++replay) {
      check(cudaGraphLaunch(run, on), "cudaGraphLaunch");
      check(cudaStreamSynchronize(on), "a replay");
    }
  } else {
    if (which == "plain" || which == "plain_copy")
      write_plainly<<<side, side, 0, on>>>(memory);
    else if (which == "from_host")
      check(cudaMemcpyAsync(memory, on_host, words * 4, cudaMemcpyHostToDevice, on), "cudaMemcpyAsync");
    else if (which == "bulk")
      write_in_bulk<<<side, side, 0, on>>>(memory);
    else if (which == "tensor" || which == "tensor_told" || which == "tensor_half_told")
      write_by_tensor_map<<<side * 2, side / 2, 0, on>>>(map_of(memory));
    else if (which != "nothing")
      return std::printf("no such case: %s\n", which.c_str()), 2;
    if (which == "tensor_told") test::is_written(memory, words * 4, on);
    if (which == "tensor_half_told") test::is_written(memory, words * 2, on);
    if (which == "plain_copy") {
      check(cudaMemcpyAsync(second, memory, words * 4, cudaMemcpyDeviceToDevice, on), "cudaMemcpyAsync");
      read = second;
    }
    read_all<<<side, side, 0, on>>>(read, value, counter);
    check(cudaStreamSynchronize(on), "the kernels");
  }
  check(cudaGetLastError(), "launches");
  check(cudaMemcpy(&wrong, counter, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("%s: %d of the numbers wrong\n", which.c_str(), wrong);
  return which != "nothing" && wrong != 0;
}
