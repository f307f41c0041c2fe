#include <stretto/adapters/cublas.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <vector>

namespace {

/// What cuBLAS answers, and how often it was called.
struct answers {
  cublasStatus_t search = CUBLAS_STATUS_SUCCESS, by_lt = CUBLAS_STATUS_SUCCESS,
                 ordinary = CUBLAS_STATUS_SUCCESS;
  int found = 1;
  int searches = 0, products_by_lt = 0, ordinary_products = 0;
};
answers now;

} // namespace

// These come before those of the library.
extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* made) {
  static int any;
  *made = reinterpret_cast<cublasHandle_t>(&any);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++now.searches;
  *found = now.found;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  return now.search;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, void const*, void const*,
                              cublasLtMatrixLayout_t, void const*, cublasLtMatrixLayout_t, void const*,
                              void const*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                              cublasLtMatmulAlgo_t const*, void*, std::size_t, cudaStream_t) {
  ++now.products_by_lt;
  return now.by_lt;
}
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, void const*,
                            void const*, cudaDataType_t, int, void const*, cudaDataType_t, int, void const*,
                            void*, cudaDataType_t, int, cublasComputeType_t, cublasGemmAlgo_t) {
  ++now.ordinary_products;
  return now.ordinary;
}
}

namespace {

/// The forward product of one expert with so many rows.
void multiply(stretto::cublas::handle& with, std::int64_t rows) {
  static std::vector<float> memory(4096);
  std::vector<std::int64_t> const of_expert{rows};
  stretto::cublas::expert_forward(with, {CUDA_R_32F, 8, 8}, of_expert, memory.data(), memory.data(),
                                  memory.data());
}

} // namespace

TEST_CASE("row counts of one range are one search and one product each", "[cuda]") {
  now = {};
  stretto::cublas::handle with(nullptr, 0);
  for (auto const rows : {1, 2, 8}) multiply(with, rows);
  CHECK(now.searches == 1);
  CHECK(now.products_by_lt == 3);
  CHECK(now.ordinary_products == 0);
}

TEST_CASE("a product that the kernel of its range does not take is made by cuBLAS's own choice", "[cuda]") {
  for (auto const refused :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH}) {
    now = {};
    now.by_lt = refused;
    stretto::cublas::handle with(nullptr, 0);
    multiply(with, 1);
    CHECK(now.products_by_lt == 1);
    CHECK(now.ordinary_products == 1);
  }
}

TEST_CASE("a range without a kernel is looked for once, its products are made by cuBLAS's own choice",
          "[cuda]") {
  for (bool const none_found : {false, true}) {
    now = {};
    if (none_found)
      now.found = 0;
    else
      now.search = CUBLAS_STATUS_NOT_SUPPORTED;
    stretto::cublas::handle with(nullptr, 0);
    multiply(with, 1);
    multiply(with, 2);
    CHECK(now.searches == 1);
    CHECK(now.products_by_lt == 0);
    CHECK(now.ordinary_products == 2);
  }
}

TEST_CASE("a product that failed is no product to be made again", "[cuda]") {
  using Catch::Matchers::ContainsSubstring;
  stretto::cublas::handle with(nullptr, 0);
  now = {};
  now.by_lt = CUBLAS_STATUS_EXECUTION_FAILED;
  CHECK_THROWS_WITH(multiply(with, 1), ContainsSubstring("forward of 1 rows of expert 0") &&
                                           ContainsSubstring("CUBLAS_STATUS_EXECUTION_FAILED"));
  CHECK(now.ordinary_products == 0);
  now = {};
  now.by_lt = now.ordinary = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK_THROWS_WITH(multiply(with, 1), ContainsSubstring("CUBLAS_STATUS_NOT_SUPPORTED"));
}
