#pragma once

#include <stretto/detail/config.hpp>

namespace stretto {
inline namespace v0 {
namespace detail {

/// Items in a row, like those of a `std::vector`. Constant expressions may use it while they last, any integer is an index,
/// and it takes compilers a fraction of the time.
template <class Item> class sequence {
 public:
  constexpr sequence() = default;
  /// `count` value-initialized items.
  STRETTO_COLD constexpr explicit sequence(long count)
      : items_(count > 0 ? made(count) : nullptr), size_(count), room_(count) {}
  STRETTO_COLD constexpr sequence(long count, Item const& item) : sequence(count) {
    for (Item& each : *this) each = item;
  }
  STRETTO_COLD constexpr sequence(Item const* first, Item const* last) : sequence(last - first) {
    for (Item& each : *this) each = *first++;
  }
  constexpr sequence(sequence const& other) : sequence(other.begin(), other.end()) {}
  constexpr sequence(sequence&& other) noexcept : items_(other.items_), size_(other.size_), room_(other.room_) {
    other.items_ = nullptr, other.size_ = other.room_ = 0;
  }
  constexpr sequence& operator=(sequence other) noexcept {
    Item* const mine = items_;
    items_ = other.items_, size_ = other.size_, room_ = other.room_;
    other.items_ = mine;
    return *this;
  }
  constexpr ~sequence() { delete[] items_; }

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
    Item* const more = made(count);
    for (long at = 0; at < size_; ++at) more[at] = static_cast<Item&&>(items_[at]);
    delete[] items_;
    items_ = more, room_ = count;
  }
  /// Keeps the first `count` items.
  constexpr void shrink(long count) { size_ = count; }

 private:
  static constexpr Item* made(long count) { return new Item[static_cast<unsigned long>(count)]{}; }

  Item* items_ = nullptr;
  long size_ = 0, room_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace stretto
