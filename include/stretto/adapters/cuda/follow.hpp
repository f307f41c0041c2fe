#pragma once

#include <stretto/detail/cxx20.hpp>

#include <cuda_runtime_api.h>

#include <concepts>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Makes whatever launches work (a tensor library) use a lane's stream.
/// - `enter(stream)`: an object that keeps `stream` the current one of this thread for as long as it lives.
/// - `current()`: the stream that is current on this thread.
template <class Follower>
concept stream_follower = requires(Follower const& follow, cudaStream_t on) {
  follow.enter(on);
  { follow.current() } -> std::same_as<cudaStream_t>;
};

/// For ops that ask for their stream themselves, by `current`. Outside of ops it is the legacy default stream.
class thread_stream {
public:
  class entered {
  public:
    explicit entered(cudaStream_t on) : before_(std::exchange(here(), on)) {}
    ~entered() { here() = before_; }
    entered(entered const&) = delete;
    entered& operator=(entered const&) = delete;

  private:
    cudaStream_t before_;
  };

  entered enter(cudaStream_t on) const { return entered(on); }
  cudaStream_t current() const noexcept { return here(); }

private:
  static cudaStream_t& here() noexcept {
    thread_local cudaStream_t stream = nullptr;
    return stream;
  }
};

} // namespace cuda
} // namespace v0
} // namespace stretto
