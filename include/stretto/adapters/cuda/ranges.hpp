#pragma once

#include <stretto/timeline.hpp>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define STRETTO_HAS_NVTX 1
#else
#define STRETTO_HAS_NVTX 0
#endif

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Whether `op_range` can do anything: the toolkit has NVTX.
inline constexpr bool has_ranges = STRETTO_HAS_NVTX;

namespace detail {

/// Whether a profiler takes ranges. Asked once: it is there from the first call on or not at all.
inline bool somebody_looks() {
#if STRETTO_HAS_NVTX
  static bool const found = [] {
    bool const taken = nvtxRangePushA("stretto") >= 0;
    if (taken) nvtxRangePop();
    return taken;
  }();
  return found;
#else
  return false;
#endif
}

} // namespace detail

/// What the host issues as long as it lives is shown in profilers as the op, `I.mlp L3 mb2`.
class op_range {
public:
  op_range(bool wanted, op_label const& op) : shown_(wanted && detail::somebody_looks()) {
#if STRETTO_HAS_NVTX
    if (shown_) nvtxRangePushA(short_name(op).c_str());
#else
    static_cast<void>(op);
#endif
  }
  ~op_range() {
#if STRETTO_HAS_NVTX
    if (shown_) nvtxRangePop();
#endif
  }
  op_range(op_range const&) = delete;
  op_range& operator=(op_range const&) = delete;

private:
  [[maybe_unused]] bool shown_;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
