#pragma once

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExtMemCudaRt.h>

#include <cstddef>

namespace test {

/// Marks are no part of a capture: those of a stream that is captured go to another one and hold at once.
inline cudaStream_t stream_for_marks(cudaStream_t of) {
  auto status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(of, &status) == cudaSuccess && status == cudaStreamCaptureStatusNone) return of;
  thread_local cudaStream_t own = nullptr;
  if (!own) {
    auto mode = cudaStreamCaptureModeRelaxed;
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
    static_cast<void>(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  }
  return own;
}

/// Tells initcheck that memory is written by what is on the stream. Without a tool that listens it does nothing.
inline void is_written(void const* begin, std::size_t bytes, cudaStream_t on) {
  if (!begin || bytes == 0) return;
  static nvtxDomainHandle_t const domain = nvtxDomainCreateA("stretto tests");
  nvtxMemVirtualRangeDesc_t range{};
  range.size = bytes;
  range.ptr = begin;
  nvtxMemMarkInitializedBatch_t all{};
  all.extCompatID = NVTX_EXT_COMPATID_MEM;
  all.structSize = sizeof all;
  all.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  all.regionDescCount = 1;
  all.regionDescElementSize = sizeof range;
  all.regionDescElements = &range;
  nvtxMemCudaMarkInitialized(domain, stream_for_marks(on), 0, &all);
}

} // namespace test
