#pragma once

#include <stretto/adapters/nccl/communicator.hpp>

#include <cstddef>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// Device memory that a communicator reads and writes without buffers of its own: about twice the bandwidth of each of its
/// multiprocessors (measured). Rows may begin anywhere in it. Make it where memory is planned: it is slow to make, and its first
/// call connects anew, so that one is to be made before any capture.
class registered_memory {
public:
  registered_memory(communicator& with, std::size_t bytes) : of_(&with), bytes_(bytes) {
    if (bytes == 0) return;
    gate::pass const inside(with.entrance(), "ncclCommRegister", with.entrance().calls.joining());
    check(ncclMemAlloc(&data_, bytes), "ncclMemAlloc");
    if (auto const result = ncclCommRegister(with.handle(), data_, bytes, &handle_); result != ncclSuccess) {
      static_cast<void>(ncclMemFree(data_));
      check(result, "ncclCommRegister");
    }
  }
  registered_memory(registered_memory&& other) noexcept
      : of_(other.of_), data_(std::exchange(other.data_, nullptr)), handle_(other.handle_),
        bytes_(std::exchange(other.bytes_, 0)) {}
  registered_memory& operator=(registered_memory&&) = delete;
  /// While the session is there, and no call uses the memory.
  ~registered_memory() {
    if (data_ == nullptr) return;
    try {
      gate::pass const inside(of_->entrance(), "ncclCommDeregister", of_->entrance().calls.joining());
      static_cast<void>(ncclCommDeregister(of_->handle(), handle_));
    } catch (error const&) {
      // Given up, and what was registered with it.
    }
    static_cast<void>(ncclMemFree(data_));
  }

  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  std::size_t size() const noexcept { return bytes_; }

private:
  communicator* of_;
  void* data_ = nullptr;
  void* handle_ = nullptr;
  std::size_t bytes_;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
