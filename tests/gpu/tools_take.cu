/// tools_take CASE: operations that are right, for the tools of compute-sanitizer: which of them they let through, and which they hold or break.
#include "told_to_initcheck.hpp"

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int blocks = 1536, threads = 1024, words = blocks * threads; // 6 MiB
constexpr unsigned value = 7;

void check(cudaError_t code, char const* what) {
  if (code == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(code));
  std::exit(3);
}
void check(CUresult code, char const* what) {
  if (code != CUDA_SUCCESS) std::printf("%s: %d\n", what, static_cast<int>(code)), std::exit(3);
}
template <class Call> Call driver_call(char const* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how{};
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how), name);
  return reinterpret_cast<Call>(found);
}

__global__ void write_all(unsigned* to) { to[blockIdx.x * blockDim.x + threadIdx.x] = value; }

/// Counts words that are not `value`.
__global__ void read_all(unsigned const* from, int* wrong) {
  if (from[blockIdx.x * blockDim.x + threadIdx.x] != value) atomicAdd(wrong, 1);
}

unsigned* memory_of(int gpu) {
  void* made = nullptr;
  check(cudaSetDevice(gpu), "cudaSetDevice");
  check(cudaMalloc(&made, words * 4), "cudaMalloc");
  return static_cast<unsigned*>(made);
}
cudaStream_t stream_of(int gpu) {
  cudaStream_t made{};
  check(cudaSetDevice(gpu), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
  return made;
}
int wrong_on_host(unsigned const* memory) {
  std::vector<unsigned> found(words);
  check(cudaMemcpy(found.data(), memory, words * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  int wrong = 0;
  for (unsigned const each : found) wrong += each != value;
  return wrong;
}

/// Which calls come back while their stream waits for the host, in a function of the host or for a flag in its memory.
void behind_a_gate() {
  auto const on = stream_of(0);
  auto *const memory = memory_of(0), *const second = memory_of(0);
  void* taken = nullptr;
  std::vector<std::pair<char const*, std::function<void()>>> const calls{
      {"kernel", [&] { write_all<<<blocks, threads, 0, on>>>(memory); }},
      {"fill", [&] { check(cudaMemsetAsync(second, 1, words * 4, on), "cudaMemsetAsync"); }},
      {"copy",
       [&] {
         check(cudaMemcpyAsync(second, memory, words * 4, cudaMemcpyDeviceToDevice, on), "cudaMemcpyAsync");
       }},
      {"mark", [&] { test::is_written(second, words * 4, on); }},
      {"memory taken", [&] { check(cudaMallocAsync(&taken, words * 4, on), "cudaMallocAsync"); }},
      {"memory back", [&] { check(cudaFreeAsync(taken, on), "cudaFreeAsync"); }}};
  for (auto const& [_, call] : calls) call(); // warm
  check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  auto const wait =
      driver_call<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWaitValue32");
  for (bool const by_flag : {false, true}) {
    std::printf("issued behind a stream that waits for %s:", by_flag ? "a flag" : "a function");
    for (auto const& [name, call] : calls) {
      void* flag = nullptr;
      check(cudaHostAlloc(&flag, 4, cudaHostAllocMapped), "cudaHostAlloc");
      std::atomic_ref<std::uint32_t> const open(*static_cast<std::uint32_t*>(flag));
      open = 0;
      auto const hold = [](void* stored) {
        while (std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(stored)) == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      if (by_flag)
        check(wait(on, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ),
              "cuStreamWaitValue32");
      else
        check(cudaLaunchHostFunc(on, hold, flag), "cudaLaunchHostFunc");
      std::thread opens([&] {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        open = 1;
      });
      call();
      std::printf(" %s %s,", name, open == 0 ? "at once" : "not before");
      opens.join();
      check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
    }
    std::printf("\n");
  }
}

/// What GPU 0 does with memory of GPU 1.
int with_a_peer(std::string const& which) {
  int wrong = 0, *counter = nullptr;
  auto* const far = memory_of(1);
  check(cudaMemset(far, 0, words * 4), "cudaMemset");
  if (which == "peer_kernel_reads") write_all<<<blocks, threads>>>(far);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  auto const on = stream_of(0);
  auto* const near = memory_of(0);
  check(cudaDeviceEnablePeerAccess(1, 0), "cudaDeviceEnablePeerAccess");
  check(cudaMalloc(&counter, 4), "cudaMalloc");
  check(cudaMemset(counter, 0, 4), "cudaMemset");
  write_all<<<blocks, threads>>>(near);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (which == "peer_kernel_reads") read_all<<<blocks, threads, 0, on>>>(far, counter);
  if (which == "peer_kernel_writes") write_all<<<blocks, threads, 0, on>>>(far);
  if (which == "peer_copy")
    check(cudaMemcpyAsync(far, near, words * 4, cudaMemcpyDeviceToDevice, on), "cudaMemcpyAsync");
  if (which == "peer_copy_then_free") {
    // The flag says that the copy has ended, and nothing else has to wait for the stream of the copy.
    auto const write =
        driver_call<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWriteValue32");
    void* flag = nullptr;
    check(cudaHostAlloc(&flag, 4, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
    std::atomic_ref<std::uint32_t> const copied(*static_cast<std::uint32_t*>(flag));
    copied = 0;
    for (std::uint32_t time = 1; time <= 100; ++time) {
      auto* const brief = memory_of(1);
      check(cudaSetDevice(0), "cudaSetDevice");
      check(cudaMemcpyAsync(brief, near, words * 4, cudaMemcpyDeviceToDevice, on), "cudaMemcpyAsync");
      check(write(on, reinterpret_cast<CUdeviceptr>(flag), time, CU_STREAM_WRITE_VALUE_DEFAULT),
            "cuStreamWriteValue32");
      while (copied != time) std::this_thread::yield();
      check(cudaSetDevice(1), "cudaSetDevice");
      if (time == 100) wrong = wrong_on_host(brief);
      check(cudaFree(brief), "cudaFree");
    }
    check(cudaSetDevice(0), "cudaSetDevice");
  }
  check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  if (which == "peer_kernel_reads")
    check(cudaMemcpy(&wrong, counter, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  if (which == "peer_kernel_writes" || which == "peer_copy") wrong = wrong_on_host(far);
  return wrong;
}

/// A kernel, alone or in a graph, writes memory of another process on another GPU.
int into_another_process(bool in_graph) {
  int to_me[2], to_owner[2];
  if (pipe(to_me) != 0 || pipe(to_owner) != 0) std::exit(3);
  cudaIpcMemHandle_t name{};
  char done = 0;
  if (pid_t const owner = fork(); owner == 0) {
    close(to_owner[1]);
    auto* const mine = memory_of(0);
    check(cudaMemset(mine, 0, words * 4), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaIpcGetMemHandle(&name, mine), "cudaIpcGetMemHandle");
    if (write(to_me[1], &name, sizeof name) != sizeof name || read(to_owner[0], &done, 1) != 1) std::exit(3);
    std::exit(wrong_on_host(mine) != 0);
  } else {
    close(to_me[1]); // else nothing tells that the owner has ended
    if (read(to_me[0], &name, sizeof name) != sizeof name) std::exit(3);
    auto const on = stream_of(1);
    void* opened = nullptr;
    check(cudaIpcOpenMemHandle(&opened, name, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    auto* const far = static_cast<unsigned*>(opened);
    if (in_graph) {
      cudaGraph_t graph{};
      cudaGraphExec_t run{};
      check(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
      write_all<<<blocks, threads, 0, on>>>(far);
      check(cudaStreamEndCapture(on, &graph), "cudaStreamEndCapture");
      check(cudaGraphInstantiate(&run, graph, 0), "cudaGraphInstantiate");
      check(cudaGraphLaunch(run, on), "cudaGraphLaunch");
    } else {
      write_all<<<blocks, threads, 0, on>>>(far);
    }
    check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
    check(cudaIpcCloseMemHandle(opened), "cudaIpcCloseMemHandle");
    int status = 1;
    if (write(to_owner[1], &done, 1) != 1 || waitpid(owner, &status, 0) != owner) std::exit(3);
    return status != 0;
  }
}

} // namespace

int main(int argc, char** argv) {
  std::string const which = argc > 1 ? argv[1] : "";
  int wrong = 0;
  // Before the runtime starts here, since a process that has it cannot be forked.
  if (which.starts_with("process_")) {
    wrong = into_another_process(which == "process_graph_writes");
  } else if (which.starts_with("peer_")) {
    wrong = with_a_peer(which);
  } else if (which == "gate") {
    behind_a_gate();
  } else {
    return std::printf("no such case: %s\n", which.c_str()), 2;
  }
  std::printf("%s: %d of the numbers wrong\n", which.c_str(), wrong);
  return wrong != 0;
}
