#include <stretto/adapters/cublas.hpp>
#include <stretto/adapters/cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdlib>

using namespace stretto;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a machine that cannot run says why, and what to do", "[cuda]") {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  auto const says = [](cuda::machine const& here, int gpus = 1) { return cuda::why_not_ready(here, gpus); };
  CHECK(says({cudaSuccess, 2, 13000, 13000}, 2).empty());
  CHECK(says({cudaSuccess, 1, 13010, 12080}).empty());
  CHECK(says({cudaErrorInsufficientDriver, 0, 12020, 13000}) ==
        "this program was built for CUDA 13.0 and the driver serves 12.2 at most; install a newer driver, or "
        "build with an "
        "older CUDA toolkit");
  CHECK(says({cudaErrorInsufficientDriver, 0, 0, 13000}) ==
        "this program was built for CUDA 13.0 and there is no NVIDIA driver; install one, or run where there "
        "is a GPU");
  CHECK(says({cudaErrorNoDevice, 0, 13000, 13000}) ==
        "there is no GPU that CUDA can use; look at nvidia-smi");
  ::setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  CHECK(says({cudaErrorNoDevice, 0, 13000, 13000}) ==
        "there is no GPU that CUDA can use; CUDA_VISIBLE_DEVICES is '7': name one, or unset it");
  CHECK_THAT(says({cudaErrorSystemDriverMismatch, 0, 13000, 13000}),
             ContainsSubstring("cudaErrorSystemDriverMismatch"));
  CHECK(says({cudaSuccess, 1, 13000, 13000}, 2) == "2 GPUs are asked for and there is 1; ask for fewer");
}

TEST_CASE("this machine, with its GPUs hidden, is not ready, and nothing hangs", "[cuda]") {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  auto const here = cuda::look_at_machine();
  CHECK(here.runtime >= 12000);
  auto const why = cuda::why_not_ready(here);
  CHECK_THAT(
      why, ContainsSubstring(here.driver == 0 ? "there is no NVIDIA driver" : "CUDA_VISIBLE_DEVICES is ''"));
  CHECK_THROWS_AS(cuda::lanes<>(), cuda::error);
  CHECK_THROWS_AS(cublas::handle(nullptr), std::runtime_error);
}

TEST_CASE("too few hardware queues are told with the number to set",
          "[cuda][building-blocks-17][megatron-03]") {
  CHECK(cuda::why_lanes_serialize(nullptr, 8).empty());
  CHECK(cuda::why_lanes_serialize("4", 4).empty());
  CHECK(cuda::why_lanes_serialize("32", 100).empty());
  CHECK(cuda::why_lanes_serialize("1", 2) == "CUDA_DEVICE_MAX_CONNECTIONS is 1, and with fewer queues than "
                                             "the 2 streams lanes wait for each other; set it to 32 "
                                             "before the program starts");
  CHECK_THAT(cuda::why_lanes_serialize(nullptr, 9), ContainsSubstring("not set, so 8"));
  for (auto const* text : {"", "0", "-3", "many", "8x"})
    CHECK_THAT(cuda::why_lanes_serialize(text, 2),
               ContainsSubstring(std::string("'") + text + "', which is no number"));
}

TEST_CASE("an error of cuBLAS has the name of its status and a remedy", "[cuda]") {
  auto const text = [](cublasStatus_t status) {
    return std::string(cublas::error(status, "forward of 3 rows").what());
  };
  CHECK_THAT(text(CUBLAS_STATUS_NOT_SUPPORTED),
             ContainsSubstring("forward of 3 rows: CUBLAS_STATUS_NOT_SUPPORTED; ") &&
                 ContainsSubstring("use float"));
  CHECK_THAT(text(CUBLAS_STATUS_ALLOC_FAILED), ContainsSubstring("memory is used up"));
  CHECK_THAT(text(CUBLAS_STATUS_EXECUTION_FAILED), ContainsSubstring("CUDA_LAUNCH_BLOCKING=1"));
}
