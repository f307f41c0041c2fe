#pragma once

#include <stretto/detail/cxx20.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace stretto {
inline namespace v0 {

/// What a message between pipeline ranks says of its tensor. What type and sizes mean is the tensor library's business.
struct tensor_head {
  std::int64_t type = 0;
  std::int64_t dimensions = 0;
  std::array<std::int64_t, 8> sizes{};
  std::size_t bytes = 0;

  friend bool operator==(tensor_head const&, tensor_head const&) = default;
};

/// What messages of device memory need to know of a tensor library.
/// - `contiguous(t)`: the elements of `t` in order, in memory of the device; `data(t)` is where they lie.
/// - `describe(t, head)`: fills the head. Throws if it does not fit.
/// - `make(head)`: a tensor of that description on the current device, whose memory belongs to the current stream.
/// - `lend(base, gone)`: a tensor over the storage of `base`; calls `gone` when nobody holds that storage any more but `base`.
template <class Library>
concept message_tensors = requires(Library const& of, typename Library::tensor const& sent, tensor_head& head,
                                   tensor_head const& known) {
  { of.is_empty(sent) } -> std::convertible_to<bool>;
  { of.contiguous(sent) } -> std::same_as<typename Library::tensor>;
  { of.data(sent) } -> std::same_as<void*>;
  of.describe(sent, head);
  { of.make(known) } -> std::same_as<typename Library::tensor>;
  { of.lend(sent, std::function<void()>()) } -> std::same_as<typename Library::tensor>;
};

} // namespace v0
} // namespace stretto
