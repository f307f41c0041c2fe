#include <stretto/adapters/host.hpp>
#include <stretto/adapters/nccl.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

// What is left of a session that is given up, over an NCCL that never ends what it begins and writes its answer late.

using namespace stretto;
using std::chrono::milliseconds;

namespace {

struct late_nccl {
  std::atomic<ncclComm_t*> answer{nullptr}; ///< where a split is to be written
  std::atomic<bool> is_freed{false}; ///< the memory of that
  std::atomic<bool> ends{false}; ///< what waits for other ranks may end
  std::atomic<int> aborted{0}, ended{0};
};
late_nccl& nccl_here() {
  static late_nccl here;
  return here;
}
int some_communicator = 0;

void note_freed(void* memory, std::size_t bytes) noexcept {
  auto const* const begin = static_cast<std::byte*>(memory);
  auto const* const answer = reinterpret_cast<std::byte*>(nccl_here().answer.load());
  if (answer != nullptr && begin <= answer && answer < begin + bytes) nccl_here().is_freed = true;
}

} // namespace

// Not inlined: g++ 12 then takes the pair of operator new and free for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* const made = std::malloc(bytes)) return made;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t bytes) noexcept {
  note_freed(memory, bytes);
  std::free(memory);
}

// Before those of the libraries.
extern "C" {
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
  *found = {};
  return cudaSuccess;
}
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int, ncclUniqueId, int, ncclConfig_t*) {
  *made = reinterpret_cast<ncclComm_t>(&some_communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t* made, ncclConfig_t*) {
  nccl_here().answer = made;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* found) {
  *found = nccl_here().answer.load() == nullptr ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  while (!nccl_here().ends) std::this_thread::sleep_for(milliseconds(1));
  ++nccl_here().ended;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  ++nccl_here().aborted;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
char const* ncclGetErrorString(ncclResult_t) { return "an error"; }
char const* ncclGetLastError(ncclComm_t) { return ""; }
}

TEST_CASE("a session whose split was given up ends, and leaves where NCCL may still write", "[nccl]") {
  auto& here = nccl_here();
  host::group group(1);
  std::string told;
  auto const begun = std::chrono::steady_clock::now();
  group.run([&](int rank) {
    auto ranks = group.communicator(rank);
    try {
      nccl::session session(ranks, {milliseconds(50), {}, milliseconds(50)});
      static_cast<void>(session.split(0));
    } catch (nccl::error const& problem) {
      told = problem.what();
    }
  });
  CHECK(told == "ncclCommSplit: a rank did not come within 0 s");
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
  CHECK(here.aborted == 1);
  REQUIRE(here.answer.load() != nullptr);
  CHECK_FALSE(here.is_freed);
  // NCCL ends after all.
  here.ends = true;
  for (int naps = 0; !here.is_freed && naps < 5000; ++naps) std::this_thread::sleep_for(milliseconds(1));
  CHECK(here.ended == 1);
  CHECK(here.is_freed);
}
