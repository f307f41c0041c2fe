#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <cuda_runtime_api.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Memory that processes of one host share, zeros at first, which streams may read and write too.
class shared_segment {
public:
  /// A new one, which others may open until it is `hidden`.
  explicit shared_segment(std::size_t bytes) : bytes_(bytes), name_(new_name()) {
    int const file = ::shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    if (file < 0) fail("cannot be made");
    if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      ::close(file);
      fail("cannot have " + std::to_string(bytes) + " bytes");
    }
    map(file);
  }
  /// One of another process, whose name stays that one's.
  shared_segment(std::string const& name, std::size_t bytes) : bytes_(bytes) {
    int const file = ::shm_open(name.c_str(), O_RDWR, 0);
    if (file < 0) fail("cannot be opened: all ranks must be processes of one user on one host");
    map(file);
  }
  shared_segment(shared_segment const&) = delete;
  shared_segment& operator=(shared_segment const&) = delete;
  ~shared_segment() {
    hide();
    static_cast<void>(cudaHostUnregister(memory_));
    static_cast<void>(cudaGetLastError());
    ::munmap(memory_, bytes_);
  }

  std::string const& name() const noexcept { return name_; }
  /// Nothing of it is left when the processes have ended, however they end.
  void hide() {
    if (!name_.empty()) ::shm_unlink(name_.c_str());
    name_.clear();
  }

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }
  /// The same memory for streams of this process.
  std::byte* on_gpu() const noexcept { return static_cast<std::byte*>(on_gpu_); }

private:
  static std::string new_name() {
    static std::atomic<int> made{0};
    return "/stretto." + std::to_string(::getpid()) + "." + std::to_string(++made);
  }
  [[noreturn]] void fail(std::string const& what) {
    std::string const why = std::strerror(errno);
    hide();
    throw std::runtime_error("memory that processes share (shm_open) " + what + " (" + why + ")");
  }
  void map(int file) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory_ == MAP_FAILED) fail("cannot be mapped");
    char const* call = "cudaHostRegister";
    auto result = cudaHostRegister(memory_, bytes_, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (result == cudaSuccess) {
      call = "cudaHostGetDevicePointer";
      result = cudaHostGetDevicePointer(&on_gpu_, memory_, 0);
      if (result == cudaSuccess) return;
      static_cast<void>(cudaHostUnregister(memory_));
    }
    hide();
    ::munmap(memory_, bytes_);
    check(result, call);
  }

  std::size_t bytes_;
  std::string name_;
  void* memory_ = nullptr;
  void* on_gpu_ = nullptr;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
