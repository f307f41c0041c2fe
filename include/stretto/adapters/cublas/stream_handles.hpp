#pragma once

#include <stretto/adapters/cublas/handle.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cublas {

/// A handle for every stream that one thread uses, made when the stream is first asked for. Ranks that are threads have one
/// of these each. A stream that was destroyed leaves its handle to one that gets its address.
class stream_handles {
public:
  explicit stream_handles(std::size_t workspace_bytes = handle::usual_workspace) : bytes_(workspace_bytes) {}

  /// Throws `std::logic_error` when the stream is new and in a capture.
  handle& on(cudaStream_t stream) {
    int device = 0;
    detail::check(cudaGetDevice(&device), "cudaGetDevice");
    for (auto const& each : made_)
      if (each.device == device && each.of->stream() == stream) return *each.of;
    auto made = std::make_unique<handle>(stream, bytes_);
    if (multiprocessors_ > 0) made->use_multiprocessors(multiprocessors_);
    made_.push_back({device, std::move(made)});
    return *made_.back().of;
  }

  /// Of every handle, also of those that are made later; see `handle`.
  void use_multiprocessors(int count) {
    for (auto const& each : made_) each.of->use_multiprocessors(count);
    multiprocessors_ = count;
  }

private:
  struct placed {
    int device;
    std::unique_ptr<handle> of;
  };
  std::size_t bytes_;
  int multiprocessors_ = 0;
  std::vector<placed> made_;
};

} // namespace cublas
} // namespace v0
} // namespace stretto
