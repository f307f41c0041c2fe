/// To be loaded before a program: what puts work on a stream does nothing, so that its host time is not CUDA's. With
/// `STRETTO_EMPTY=cublas` products of cuBLAS do nothing either. What the GPU would have computed is not there.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace {

bool without_products() {
  static bool const empty = [] {
    char const* const told = std::getenv("STRETTO_EMPTY");
    return told && std::strcmp(told, "cublas") == 0;
  }();
  return empty;
}

template <class... Arguments> cublasStatus_t product(char const* name, Arguments... arguments) {
  if (without_products()) return CUBLAS_STATUS_SUCCESS;
  return reinterpret_cast<cublasStatus_t (*)(Arguments...)>(dlsym(RTLD_NEXT, name))(arguments...);
}

} // namespace

extern "C" {

cudaError_t cudaLaunchKernel(void const*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(cudaLaunchConfig_t const*, void const*, void**) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, void const*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                            int k, void const* alpha, void const* a, cudaDataType_t a_type, int lda,
                            void const* b, cudaDataType_t b_type, int ldb, void const* beta, void* c,
                            cudaDataType_t c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return product("cublasGemmEx", handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
                 c_type, ldc, compute, algorithm);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                                          int m, int n, int k, void const* alpha, void const* a,
                                          cudaDataType_t a_type, int lda, long long sa, void const* b,
                                          cudaDataType_t b_type, int ldb, long long sb, void const* beta,
                                          void* c, cudaDataType_t c_type, int ldc, long long sc, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return product("cublasGemmStridedBatchedEx", handle, ta, tb, m, n, k, alpha, a, a_type, lda, sa, b, b_type,
                 ldb, sb, beta, c, c_type, ldc, sc, batch, compute, algorithm);
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                              int k, float const* alpha, float const* a, int lda, float const* b, int ldb,
                              float const* beta, float* c, int ldc) {
  return product("cublasSgemm_v2", handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, void const* alpha,
                              void const* a, cublasLtMatrixLayout_t of_a, void const* b,
                              cublasLtMatrixLayout_t of_b, void const* beta, void const* c,
                              cublasLtMatrixLayout_t of_c, void* d, cublasLtMatrixLayout_t of_d,
                              cublasLtMatmulAlgo_t const* algorithm, void* workspace, std::size_t bytes,
                              cudaStream_t on) {
  return product("cublasLtMatmul", handle, how, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm,
                 workspace, bytes, on);
}

} // extern "C"
