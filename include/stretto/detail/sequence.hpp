#pragma once

#include <stretto/detail/config.hpp>

#include <cstring>
#include <type_traits>

namespace stretto {
inline namespace v0 {
namespace detail {

/// Room for `count` items of `bytes` each, with the first `used` of `old`, which goes back. One function for all types.
STRETTO_COLD inline void* moved_bytes(void* old, long used, long count, unsigned long bytes) {
  void* const more = ::operator new[](static_cast<unsigned long>(count) * bytes);
  if (used > 0) std::memcpy(more, old, static_cast<unsigned long>(used) * bytes);
  ::operator delete[](old);
  return more;
}

/// Apart, since clang 19 leaves out the call of a constexpr destructor that calls `operator delete` itself.
inline void free_bytes(void* old) { ::operator delete[](old); }

/// Items in a row, like those of a `std::vector`. Constant expressions may use it while they last, any integer is an index,
/// and it takes compilers a fraction of the time.
template <class Item> class sequence {
public:
  constexpr sequence() = default;
  /// `count` value-initialized items.
  STRETTO_COLD constexpr explicit sequence(long count) {
    reserve(count);
    size_ = count;
    if constexpr (are_bytes)
      if (!__builtin_is_constant_evaluated())
        for (Item& each : *this) each = Item();
  }
  STRETTO_COLD constexpr sequence(long count, Item const& item) : sequence(count) {
    for (Item& each : *this) each = item;
  }
  STRETTO_COLD constexpr sequence(Item const* first, Item const* last) : sequence(last - first) {
    for (Item& each : *this) each = *first++;
  }
  constexpr sequence(sequence const& other) : sequence(other.begin(), other.end()) {}
  constexpr sequence(sequence&& other) noexcept
      : items_(other.items_), size_(other.size_), room_(other.room_) {
    other.items_ = nullptr, other.size_ = other.room_ = 0;
  }
  constexpr sequence& operator=(sequence other) noexcept {
    Item* const mine = items_;
    items_ = other.items_, size_ = other.size_, room_ = other.room_;
    other.items_ = mine;
    return *this;
  }
  constexpr ~sequence() {
    if constexpr (are_bytes)
      if (!__builtin_is_constant_evaluated()) {
        free_bytes(items_);
        return;
      }
    delete[] items_;
  }

  constexpr unsigned long size() const { return static_cast<unsigned long>(size_); }
  constexpr bool empty() const { return size_ == 0; }
  constexpr Item* data() { return items_; }
  constexpr Item const* data() const { return items_; }
  constexpr Item* begin() { return items_; }
  constexpr Item const* begin() const { return items_; }
  constexpr Item* end() { return items_ + size_; }
  constexpr Item const* end() const { return items_ + size_; }
  constexpr Item& operator[](auto at) { return items_[at]; }
  constexpr Item const& operator[](auto at) const { return items_[at]; }
  constexpr Item& back() { return items_[size_ - 1]; }

  constexpr void push_back(Item item) {
    if (size_ == room_) reserve(2 * room_ + 8);
    items_[size_++] = static_cast<Item&&>(item);
  }
  STRETTO_COLD constexpr void reserve(long count) {
    if (count <= room_) return;
    if constexpr (are_bytes)
      if (!__builtin_is_constant_evaluated()) {
        items_ = static_cast<Item*>(moved_bytes(items_, size_, count, sizeof(Item)));
        room_ = count;
        return;
      }
    Item* const more = new Item[static_cast<unsigned long>(count)]{};
    for (long at = 0; at < size_; ++at) more[at] = static_cast<Item&&>(items_[at]);
    delete[] items_;
    items_ = more, room_ = count;
  }
  /// Keeps the first `count` items.
  constexpr void shrink(long count) { size_ = count; }

private:
  /// Whether items lie in plain bytes, which is less code to compile; constant expressions cannot do that. The builtin is
  /// what `std::is_constant_evaluated` calls, without the call.
  static constexpr bool are_bytes =
      std::is_trivially_copyable_v<Item> && alignof(Item) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;

  Item* items_ = nullptr;
  long size_ = 0, room_ = 0;
};

} // namespace detail
} // namespace v0
} // namespace stretto
