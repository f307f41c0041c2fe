#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// Integers of a device on their way to the host: the copy runs behind what the current stream has done, and only whoever
/// reads them waits for it. So the host can issue other work in between. Integers in host memory are just kept.
class host_copy {
public:
  host_copy() = default;
  explicit host_copy(at::Tensor const& of) {
    if (of.is_cpu()) {
      host_ = of.contiguous();
      return;
    }
    host_ = at::empty(of.sizes(), of.options().device(at::kCPU).pinned_memory(true));
    host_.copy_(of, /*non_blocking=*/true);
    c10::impl::VirtualGuardImpl const device(of.device().type());
    done_.emplace(of.device().type());
    done_->record(device.getStream(of.device()));
  }

  /// 64-bit integers, as `Integer`.
  template <class Integer> std::vector<Integer> read() {
    if (done_) done_->synchronize();
    done_.reset();
    auto const* first = host_.const_data_ptr<std::int64_t>();
    std::vector<Integer> values;
    values.reserve(static_cast<std::size_t>(host_.numel()));
    for (std::int64_t i = 0; i < host_.numel(); ++i) values.push_back(static_cast<Integer>(first[i]));
    return values;
  }

private:
  at::Tensor host_;
  std::optional<c10::Event> done_;
};

} // namespace torch
} // namespace v0
} // namespace stretto
