/// Loaded before a program under compute-sanitizer: tells its initcheck what products of cuBLAS have written, whose kernels write by copies that
/// a tensor map describes, which it does not see (initcheck_sees.cu shows that). Every product writes all of its output.
#include "behind.hpp"
#include "told_to_initcheck.hpp"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace {

using test::is_written;

std::size_t bytes_of(cudaDataType_t type) {
  switch (type) {
  case CUDA_R_64F:
    return 8;
  case CUDA_R_32F:
    return 4;
  default:
    return 2;
  }
}

void matrix_is_written(void const* begin, std::size_t rows, std::size_t columns, std::size_t stride,
                       std::size_t width, cudaStream_t on) {
  auto const* const first = static_cast<std::byte const*>(begin);
  if (stride == rows) return is_written(first, rows * columns * width, on);
  for (std::size_t c = 0; c < columns; ++c) is_written(first + c * stride * width, rows * width, on);
}

/// Else the product reads what was there, which then must have been written by others. Factors lie on the host here.
bool is_zero(void const* factor, cudaDataType_t type) {
  auto const* const bytes = static_cast<unsigned char const*>(factor);
  return std::all_of(bytes, bytes + bytes_of(type), [](unsigned char each) { return each == 0; });
}

/// Of the factors of such a product.
cudaDataType_t type_of_factors(cublasComputeType_t compute) {
  switch (compute) {
  case CUBLAS_COMPUTE_64F:
  case CUBLAS_COMPUTE_64F_PEDANTIC:
    return CUDA_R_64F;
  case CUBLAS_COMPUTE_16F:
  case CUBLAS_COMPUTE_16F_PEDANTIC:
    return CUDA_R_16F;
  default:
    return CUDA_R_32F;
  }
}
cudaDataType_t type_of_factors(cublasLtMatmulDesc_t of) {
  std::int32_t type = CUDA_R_32F;
  std::size_t told = 0;
  static_cast<void>(
      cublasLtMatmulDescGetAttribute(of, CUBLASLT_MATMUL_DESC_SCALE_TYPE, &type, sizeof type, &told));
  return static_cast<cudaDataType_t>(type);
}

cudaStream_t stream_of(cublasHandle_t handle) {
  cudaStream_t on = nullptr;
  static_cast<void>(cublasGetStream_v2(handle, &on));
  return on;
}

template <class Number>
Number attribute_of(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t which) {
  Number number{};
  std::size_t written = 0;
  static_cast<void>(cublasLtMatrixLayoutGetAttribute(of, which, &number, sizeof number, &written));
  return number;
}

} // namespace

extern "C" {

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* memory, std::size_t bytes) {
  // Parts of sums, which nobody else reads.
  is_written(memory, bytes, stream_of(handle));
  return test::behind<cublasStatus_t>("cublasSetWorkspace_v2", handle, memory, bytes);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                            int k, void const* alpha, void const* a, cudaDataType_t a_type, int lda,
                            void const* b, cudaDataType_t b_type, int ldb, void const* beta, void* c,
                            cudaDataType_t c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  auto const status =
      test::behind<cublasStatus_t>("cublasGemmEx", handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type,
                                   ldb, beta, c, c_type, ldc, compute, algorithm);
  if (status == CUBLAS_STATUS_SUCCESS && is_zero(beta, type_of_factors(compute)))
    matrix_is_written(c, std::size_t(m), std::size_t(n), std::size_t(ldc), bytes_of(c_type),
                      stream_of(handle));
  return status;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                                          int m, int n, int k, void const* alpha, void const* a,
                                          cudaDataType_t a_type, int lda, long long stride_a, void const* b,
                                          cudaDataType_t b_type, int ldb, long long stride_b,
                                          void const* beta, void* c, cudaDataType_t c_type, int ldc,
                                          long long stride_c, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm) {
  auto const status = test::behind<cublasStatus_t>("cublasGemmStridedBatchedEx", handle, ta, tb, m, n, k,
                                                   alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b,
                                                   beta, c, c_type, ldc, stride_c, batch, compute, algorithm);
  if (status == CUBLAS_STATUS_SUCCESS && is_zero(beta, type_of_factors(compute)))
    for (int i = 0; i < batch; ++i)
      matrix_is_written(
          static_cast<std::byte*>(c) + std::size_t(i) * std::size_t(stride_c) * bytes_of(c_type),
          std::size_t(m), std::size_t(n), std::size_t(ldc), bytes_of(c_type), stream_of(handle));
  return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, void const* alpha,
                              void const* a, cublasLtMatrixLayout_t of_a, void const* b,
                              cublasLtMatrixLayout_t of_b, void const* beta, void const* c,
                              cublasLtMatrixLayout_t of_c, void* d, cublasLtMatrixLayout_t of_d,
                              cublasLtMatmulAlgo_t const* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t on) {
  is_written(workspace, workspace_bytes, on);
  auto const status =
      test::behind<cublasStatus_t>("cublasLtMatmul", handle, how, alpha, a, of_a, b, of_b, beta, c, of_c, d,
                                   of_d, algorithm, workspace, workspace_bytes, on);
  if (status != CUBLAS_STATUS_SUCCESS || !is_zero(beta, type_of_factors(how))) return status;
  auto const width =
      bytes_of(static_cast<cudaDataType_t>(attribute_of<std::uint32_t>(of_d, CUBLASLT_MATRIX_LAYOUT_TYPE)));
  auto rows = attribute_of<std::uint64_t>(of_d, CUBLASLT_MATRIX_LAYOUT_ROWS),
       columns = attribute_of<std::uint64_t>(of_d, CUBLASLT_MATRIX_LAYOUT_COLS);
  if (attribute_of<std::int32_t>(of_d, CUBLASLT_MATRIX_LAYOUT_ORDER) == CUBLASLT_ORDER_ROW)
    std::swap(rows, columns);
  auto const stride = static_cast<std::size_t>(attribute_of<std::int64_t>(of_d, CUBLASLT_MATRIX_LAYOUT_LD)),
             apart = static_cast<std::size_t>(
                 attribute_of<std::int64_t>(of_d, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
  auto const batch = attribute_of<std::int32_t>(of_d, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  for (std::int32_t i = 0; i < batch; ++i)
    matrix_is_written(static_cast<std::byte*>(d) + std::size_t(i) * apart * width, rows, columns, stride,
                      width, on);
  return status;
}

} // extern "C"
