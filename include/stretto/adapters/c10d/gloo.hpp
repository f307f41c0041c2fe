#pragma once

#include <stretto/detail/cxx20.hpp>

#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace c10d {

/// Makes Gloo groups over one store, all through the network device of `address` (empty: that of the machine's name). A call
/// that does not end within the deadline throws.
class gloo_groups {
public:
  gloo_groups(::c10::intrusive_ptr<::c10d::Store> store, std::string const& address,
              std::chrono::milliseconds deadline)
      : store_(std::move(store)), deadline_(deadline),
        device_(address.empty() ? ::c10d::ProcessGroupGloo::createDefaultDevice()
                                : ::c10d::ProcessGroupGloo::createDeviceForHostname(address)) {}

  /// Collective over the members: `rank` of `size` in the group called `name`. Processes that are members of several groups
  /// must make them in one order.
  ::c10::intrusive_ptr<::c10d::Backend> make(std::string const& name, int rank, int size) const {
    auto options = ::c10d::ProcessGroupGloo::Options::create(deadline_);
    options->devices.push_back(device_);
    options->threads = 1;
    return ::c10::make_intrusive<::c10d::ProcessGroupGloo>(
        ::c10::make_intrusive<::c10d::PrefixStore>(name, store_), rank, size, std::move(options));
  }

private:
  ::c10::intrusive_ptr<::c10d::Store> store_;
  std::chrono::milliseconds deadline_;
  std::shared_ptr<::gloo::transport::Device> device_;
};

} // namespace c10d
} // namespace v0
} // namespace stretto
