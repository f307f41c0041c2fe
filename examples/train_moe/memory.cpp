#include "memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <memory>

namespace train_moe {
namespace {

std::atomic<std::size_t> live{0};
std::atomic<std::size_t> peak{0};

struct block {
  void* data;
  std::size_t bytes;
};

void release(void* context) {
  std::unique_ptr<block> const freed(static_cast<block*>(context));
  c10::free_cpu(freed->data);
  live -= freed->bytes;
}

/// torch's own memory, with a record of the size beside it.
class counting_allocator : public c10::Allocator {
public:
  c10::DataPtr allocate(std::size_t bytes) override {
    auto record = std::make_unique<block>(block{c10::alloc_cpu(bytes), bytes});
    auto const now = live += bytes;
    for (auto before = peak.load(); before < now && !peak.compare_exchange_weak(before, now);) {
    }
    auto* const data = record->data;
    return {data, record.release(), &release, c10::Device(c10::DeviceType::CPU)};
  }
  // No deleter that works on the bare data pointer: the size lies elsewhere.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, void const* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

void count_tensor_memory() {
  static counting_allocator allocator;
  c10::SetAllocator(c10::DeviceType::CPU, &allocator, /*priority=*/1);
}
std::size_t live_tensor_bytes() { return live; }
std::size_t peak_tensor_bytes() { return peak; }
void restart_peak() { peak = live.load(); }

}  // namespace train_moe
