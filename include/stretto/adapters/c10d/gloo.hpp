#pragma once

#include <stretto/detail/cxx20.hpp>

#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace stretto {
inline namespace v0 {
namespace c10d {

namespace detail {

/// Throws where the process may not open `count` files more than it has.
inline void require_open_files(std::string const& whose, int count) {
  std::vector<int> held;
  int problem = 0;
  for (int i = 0; i < count && problem == 0; ++i) {
    int const file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file < 0)
      problem = errno;
    else
      held.push_back(file);
  }
  for (int const file : held) ::close(file);
  if (problem == EMFILE || problem == ENFILE)
    throw std::runtime_error(whose + " takes " + std::to_string(count) +
                             " open files, of which this process may open " + std::to_string(held.size()) +
                             "; raise ulimit -n");
}

} // namespace detail

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
  /// must make them in one order. Throws where the process may not open a socket for each other member, and four files besides.
  ::c10::intrusive_ptr<::c10d::Backend> make(std::string const& name, int rank, int size) const {
    // Gloo accepts connections in a thread of its own, where one that finds no file ends the process. There must be some to
    // make them with, and left for others.
    constexpr int besides = 4;
    detail::require_open_files("a Gloo group of " + std::to_string(size) + " ranks", size - 1 + besides);
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
