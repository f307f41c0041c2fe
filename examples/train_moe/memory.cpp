#include "memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstddef>

namespace train_moe {
namespace {

std::atomic<std::size_t> live{0};
std::atomic<std::size_t> peak{0};

/// In front of the data, whose alignment it keeps: deleters are given nothing but the data.
struct alignas(c10::gAlignment) header {
  std::size_t bytes;
};

void release(void* data) {
  auto* const before = static_cast<header*>(data) - 1;
  live -= before->bytes;
  c10::free_cpu(before);
}

/// torch's own memory, with a record of the size.
class counting_allocator : public c10::Allocator {
public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto* const before = static_cast<header*>(c10::alloc_cpu(sizeof(header) + bytes));
    before->bytes = bytes;
    auto const now = live += bytes;
    for (auto highest = peak.load(); highest < now && !peak.compare_exchange_weak(highest, now);) {
    }
    void* const data = before + 1;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, void const* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

} // namespace

void count_tensor_memory() {
  static counting_allocator allocator;
  c10::SetAllocator(c10::DeviceType::CPU, &allocator, /*priority=*/1);
}
std::size_t live_tensor_bytes() { return live; }
std::size_t peak_tensor_bytes() { return peak; }
void restart_peak() { peak = live.load(); }

} // namespace train_moe
