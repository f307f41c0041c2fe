// A CUDA runtime without a GPU: streams are threads, device memory is memory that processes may share, and a graph is what
// its streams were given. Enough for the protocols between ranks, which it runs in whatever order the threads take. What
// overtakes on a GPU overtakes here; what a GPU costs, and where its queues get stuck, does not show. Of CUDA 13 on.
#include "issued_calls.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int gpus = 2;
/// For tests that must not ask the runtime.
[[maybe_unused]] int const told = ::setenv("STRETTO_GPUS", "2", 1);
/// Beyond it memory is only there to take time.
constexpr std::size_t slow_bytes = std::size_t{100} << 20;

void rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

/// What was done, or not yet.
using ticket = std::shared_ptr<std::atomic<bool>>;

struct node {
  std::function<void()> run;
  std::vector<node*> behind;
  std::size_t stream = 0; ///< nodes of one stream run one after the other
  bool fits_a_body = true; ///< of a conditional node
  std::atomic<bool> done{false};
};
struct capture {
  unsigned long long number = 0;
  std::vector<std::unique_ptr<node>> nodes;
  std::map<CUstream_st*, std::size_t> streams;
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_gpu = 0;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeThreadLocal;
thread_local int captures_of_thread = 0;
std::mutex streams_mutex;
std::set<CUstream_st*> all_streams;

cudaError_t fails(cudaError_t how) { return last_error = how; }
/// Calls that a thread which captures must not make.
bool is_unsafe() { return captures_of_thread > 0 && capture_mode != cudaStreamCaptureModeRelaxed; }

} // namespace

struct CUstream_st {
  CUstream_st() : worker([this] { work(); }) {}
  ~CUstream_st() {
    {
      std::lock_guard const lock(mutex);
      ends = true;
    }
    changed.notify_all();
    worker.join();
  }

  void push(std::function<void()> what) {
    std::lock_guard const lock(mutex);
    todo.push_back(std::move(what));
    changed.notify_all();
  }
  void finish() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return todo.empty() && !is_busy; });
  }
  bool is_idle() {
    std::lock_guard const lock(mutex);
    return todo.empty() && !is_busy;
  }

  capture* part_of = nullptr;
  std::vector<node*> tips; ///< what the next node of the capture runs behind

private:
  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ends || !todo.empty(); });
      if (todo.empty()) return;
      auto const next = std::move(todo.front());
      todo.pop_front();
      is_busy = true;
      lock.unlock();
      next();
      lock.lock();
      is_busy = false;
      changed.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> todo;
  bool is_busy = false, ends = false;
  std::thread worker;
};
struct CUevent_st {
  std::mutex mutex;
  ticket recorded;
  capture* part_of = nullptr;
  std::vector<node*> tips;
};
struct CUgraph_st {
  std::vector<std::unique_ptr<node>> nodes;
  std::size_t streams = 0;
  /// What a conditional node runs; a graph with one has nothing else.
  std::unique_ptr<CUgraph_st> body;
  cudaGraph_t as_told = nullptr;
};
struct CUgraphExec_st : CUgraph_st {
  bool is_body = false;
};

namespace {

cudaError_t issue(CUstream_st* on, std::function<void()> what, bool fits_a_body = true) {
  if (!on) {
    what();
    return cudaSuccess;
  }
  if (!on->part_of) {
    on->push(std::move(what));
    return cudaSuccess;
  }
  auto made = std::make_unique<node>();
  made->run = std::move(what);
  made->fits_a_body = fits_a_body;
  made->behind = std::exchange(on->tips, {made.get()});
  auto& streams = on->part_of->streams;
  made->stream = streams.try_emplace(on, streams.size()).first->second;
  on->part_of->nodes.push_back(std::move(made));
  return cudaSuccess;
}

/// Device memory: a file without a name, so that other processes may map it.
struct allocation {
  int file = -1;
  std::size_t bytes = 0;
  std::uint64_t number = 0;
};
std::mutex memory_mutex;
std::map<std::uintptr_t, allocation> memory;
std::uint64_t allocations = 0;

struct exported {
  std::int64_t process;
  std::int64_t file;
  std::uint64_t bytes;
};
static_assert(sizeof(exported) <= sizeof(cudaIpcMemHandle_t));

std::pair<const std::uintptr_t, allocation>& allocation_of(std::uintptr_t address) {
  return *std::prev(memory.upper_bound(address));
}

std::atomic_ref<std::uint32_t> word(CUdeviceptr address) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(address));
}
bool is_met(CUstreamBatchMemOpParams const& wait) {
  auto const value = word(wait.waitValue.address).load();
  if (wait.waitValue.flags == CU_STREAM_WAIT_VALUE_EQ) return value == wait.waitValue.value;
  return static_cast<std::int32_t>(value - wait.waitValue.value) >= 0;
}
CUresult batch_of_memory_operations(CUstream on, unsigned count, CUstreamBatchMemOpParams* operations,
                                    unsigned) {
  for (unsigned i = 0; i < count; ++i) {
    auto const each = operations[i];
    // The second version of the call takes no other.
    if (each.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 &&
        each.writeValue.flags != CU_STREAM_WRITE_VALUE_DEFAULT)
      return CUDA_ERROR_NOT_SUPPORTED;
    issue(
        on,
        [each] {
          if (each.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
            word(each.writeValue.address).store(each.writeValue.value);
          else
            while (!is_met(each)) rest();
        },
        false);
  }
  return CUDA_SUCCESS;
}
CUresult address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  std::lock_guard const lock(memory_mutex);
  *base = allocation_of(address).first;
  if (bytes) *bytes = allocation_of(address).second.bytes;
  return CUDA_SUCCESS;
}
CUresult pointer_attribute(void* to, CUpointer_attribute, CUdeviceptr address) {
  std::lock_guard const lock(memory_mutex);
  *static_cast<std::uint64_t*>(to) = allocation_of(address).second.number;
  return CUDA_SUCCESS;
}

} // namespace

issued_calls& calls_of_this_thread() {
  thread_local issued_calls calls;
  return calls;
}

extern "C" {

cudaError_t cudaGetDevice(int* gpu) {
  *gpu = current_gpu;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int gpu) {
  if (gpu < 0 || gpu >= gpus) return fails(cudaErrorInvalidDevice);
  current_gpu = gpu;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = gpus;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int, int gpu) {
  std::strcpy(bus, gpu == 0 ? "0000:00:00.0" : "0000:01:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* gpu, char const* bus) {
  *gpu = bus[6] - '0';
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = std::getenv("STRETTO_NO_PEER_ACCESS") ? 0 : 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  static std::mutex mutex;
  static std::set<std::pair<int, int>> enabled;
  std::lock_guard const lock(mutex);
  return enabled.emplace(current_gpu, peer).second ? cudaSuccess : fails(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (is_unsafe()) return fails(cudaErrorStreamCaptureUnsupported);
  for (bool idle = false; !idle; rest()) {
    std::lock_guard const lock(streams_mutex);
    idle = std::all_of(all_streams.begin(), all_streams.end(),
                       [](CUstream_st* each) { return each->is_idle(); });
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned, int) {
  *made = new CUstream_st;
  std::lock_guard const lock(streams_mutex);
  all_streams.insert(*made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->finish();
  {
    std::lock_guard const lock(streams_mutex);
    all_streams.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream && stream->part_of) return fails(cudaErrorStreamCaptureUnsupported);
  if (stream) stream->finish();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return !stream || stream->is_idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) {
  *made = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t on) {
  ++calls_of_this_thread().records;
  std::lock_guard const lock(event->mutex);
  event->part_of = on ? on->part_of : nullptr;
  if (event->part_of) {
    event->tips = on->tips;
    return cudaSuccess;
  }
  event->recorded = std::make_shared<std::atomic<bool>>(false);
  return issue(on, [done = event->recorded] { *done = true; });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t event, unsigned) {
  ++calls_of_this_thread().waits;
  std::lock_guard const lock(event->mutex);
  if (event->part_of) {
    if (!on || (on->part_of && on->part_of != event->part_of)) return fails(cudaErrorStreamCaptureMerge);
    if (!on->part_of) on->tips.clear();
    on->part_of = event->part_of;
    on->part_of->streams.try_emplace(on, on->part_of->streams.size());
    on->tips.insert(on->tips.end(), event->tips.begin(), event->tips.end());
    return cudaSuccess;
  }
  if (!event->recorded) return cudaSuccess;
  if (on && on->part_of) return fails(cudaErrorStreamCaptureIsolation);
  return issue(on, [done = event->recorded] {
    while (!*done) rest();
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  std::lock_guard const lock(event->mutex);
  if (event->part_of) return fails(cudaErrorCapturedEvent);
  return !event->recorded || *event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  for (;; rest())
    if (auto const found = cudaEventQuery(event); found != cudaErrorNotReady) return found;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** made, std::size_t bytes) {
  if (is_unsafe()) return fails(cudaErrorStreamCaptureUnsupported);
  int const file = ::memfd_create("device memory", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return fails(cudaErrorMemoryAllocation);
  *made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (*made == MAP_FAILED) return fails(cudaErrorMemoryAllocation);
  std::lock_guard const lock(memory_mutex);
  memory[reinterpret_cast<std::uintptr_t>(*made)] = {file, bytes, ++allocations};
  return cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  if (!address) return cudaSuccess;
  // As it does on a GPU.
  cudaDeviceSynchronize();
  std::lock_guard const lock(memory_mutex);
  auto const found = memory.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == memory.end()) return fails(cudaErrorInvalidValue);
  ::munmap(address, found->second.bytes);
  ::close(found->second.file);
  memory.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** made, std::size_t bytes, unsigned) {
  if (is_unsafe()) return fails(cudaErrorStreamCaptureUnsupported);
  if (std::getenv("STRETTO_NO_PINNED_MEMORY")) return fails(cudaErrorMemoryAllocation);
  *made = std::aligned_alloc(128, (bytes + 127) / 128 * 128);
  return *made ? cudaSuccess : fails(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* address) {
  std::free(address);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  std::lock_guard const lock(memory_mutex);
  auto const& found = memory.at(reinterpret_cast<std::uintptr_t>(address));
  exported const told{::getpid(), found.file, found.bytes};
  std::memcpy(handle, &told, sizeof told);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned) {
  exported told{};
  std::memcpy(&told, &handle, sizeof told);
  auto const path = "/proc/" + std::to_string(told.process) + "/fd/" + std::to_string(told.file);
  int const file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return fails(cudaErrorMapBufferObjectFailed);
  *address = ::mmap(nullptr, told.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return *address == MAP_FAILED ? fails(cudaErrorMapBufferObjectFailed) : cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t on) {
  ++calls_of_this_thread().copies;
  return issue(on, [=] {
    thread_local std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(to)));
    if (random() % 3 == 0) rest();
    std::memcpy(to, from, bytes);
  });
}
cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t on) {
  return issue(on, [=] {
    if (bytes < slow_bytes)
      std::memset(to, value, bytes);
    else
      std::this_thread::sleep_for(std::chrono::microseconds(300));
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t on, cudaHostFn_t call, void* with) {
  return issue(
      on, [=] { call(with); }, false);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
char const* cudaGetErrorString(cudaError_t) { return "an error of the runtime of threads"; }
char const* cudaGetErrorName(cudaError_t) { return "cudaError"; }

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream && stream->part_of ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* number, cudaGraph_t*, cudaGraphNode_t const**,
                                     cudaGraphEdgeData const**, std::size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* number, cudaGraph_t*, cudaGraphNode_t const**,
                                     std::size_t*) {
#endif
  if (number && stream && stream->part_of) *number = stream->part_of->number;
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  static std::atomic<unsigned long long> captures{0};
  stream->part_of = new capture;
  stream->part_of->number = ++captures;
  stream->part_of->streams[stream] = 0;
  stream->tips.clear();
  ++captures_of_thread;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* made) {
  std::unique_ptr<capture> const ended(stream->part_of);
  --captures_of_thread;
  std::set<node*> reached;
  for (std::vector<node*> todo = stream->tips; !todo.empty();) {
    node* const next = todo.back();
    todo.pop_back();
    if (reached.insert(next).second) todo.insert(todo.end(), next->behind.begin(), next->behind.end());
  }
  bool joined = true;
  for (auto const& [each, number] : ended->streams) {
    for (node* const tip : each->tips) joined = joined && reached.count(tip) == 1;
    each->part_of = nullptr;
    each->tips.clear();
  }
  *made = nullptr;
  if (!joined) return fails(cudaErrorStreamCaptureUnjoined);
  *made = new CUgraph_st{std::move(ended->nodes), ended->streams.size(), nullptr, nullptr};
  return cudaSuccess;
}
cudaError_t cudaGraphCreate(cudaGraph_t* made, unsigned) {
  *made = new CUgraph_st;
  return cudaSuccess;
}
#if CUDART_VERSION >= 12030
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* made, cudaGraph_t,
                                             unsigned by_default, unsigned) {
  *made = by_default;
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t graph, cudaGraphNode_t const*,
                             cudaGraphEdgeData const*, std::size_t, cudaGraphNodeParams* of) {
#else
cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t graph, cudaGraphNode_t const*, std::size_t,
                             cudaGraphNodeParams* of) {
#endif
  if (of->type != cudaGraphNodeTypeConditional || of->conditional.handle != 1)
    return fails(cudaErrorNotSupported);
  graph->body = std::make_unique<CUgraph_st>();
  graph->as_told = graph->body.get();
  of->conditional.phGraph_out = &graph->as_told;
  return cudaSuccess;
}
#endif
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t*, cudaGraph_t graph, cudaGraphNode_t const*,
                                       std::size_t, cudaGraph_t child) {
  std::map<node*, node*> copies;
  for (auto const& each : child->nodes) {
    auto copy = std::make_unique<node>();
    copy->run = each->run;
    copy->stream = each->stream;
    copy->fits_a_body = each->fits_a_body;
    for (node* const before : each->behind) copy->behind.push_back(copies.at(before));
    copies[each.get()] = copy.get();
    graph->nodes.push_back(std::move(copy));
  }
  graph->streams = child->streams;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  if (std::getenv("STRETTO_SLOW_GRAPHS")) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (graph->body)
    for (auto const& each : graph->body->nodes)
      if (!each->fits_a_body) return fails(cudaErrorNotSupported);
  auto& whole = graph->body ? *graph->body : *graph;
  *made =
      new CUgraphExec_st{{std::move(whole.nodes), whole.streams, nullptr, nullptr}, graph->body != nullptr};
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t) {
  if (graph->is_body && std::getenv("STRETTO_NO_ROOM_FOR_BODIES")) return fails(cudaErrorMemoryAllocation);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t on) {
  return issue(on, [graph] {
    for (auto const& each : graph->nodes) each->done = false;
    std::vector<std::thread> streams;
    for (std::size_t stream = 0; stream < graph->streams; ++stream)
      streams.emplace_back([graph, stream] {
        for (auto const& each : graph->nodes) {
          if (each->stream != stream) continue;
          for (node* const before : each->behind)
            while (!before->done) rest();
          each->run();
          each->done = true;
        }
      });
    for (auto& each : streams) each.join();
  });
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(char const* name, void** call, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
#else
cudaError_t cudaGetDriverEntryPoint(char const* name, void** call, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
#endif
  *found = cudaDriverEntryPointSuccess;
  std::string const wanted = name;
  if (wanted == "cuStreamBatchMemOp")
    *call = reinterpret_cast<void*>(&batch_of_memory_operations);
  else if (wanted == "cuMemGetAddressRange")
    *call = reinterpret_cast<void*>(&address_range);
  else if (wanted == "cuPointerGetAttribute")
    *call = reinterpret_cast<void*>(&pointer_attribute);
  else
    *found = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

} // extern "C"
