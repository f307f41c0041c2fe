#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

/// Tensors of the toy model: single numbers.
namespace toy {

/// A tensor of one number. An empty one reads as NaN, so that whatever comes out of it shows.
struct number {
  number() = default;
  number(double content) : value(content), given(true) {}
  explicit operator double() const { return given ? value : std::numeric_limits<double>::quiet_NaN(); }
  bool empty() const { return !given; }
  double value = 0;
  bool given = false;
};

/// The same over atomics: a read that nothing ordered gives a stale number instead of undefined behaviour.
struct racy_number {
  racy_number() = default;
  racy_number(double content) : bits(std::bit_cast<std::uint64_t>(content)) {}
  racy_number(racy_number const& other) : bits(other.load()) {}
  racy_number& operator=(racy_number const& other) {
    bits.store(other.load(), std::memory_order_relaxed);
    return *this;
  }
  ~racy_number() = default;
  explicit operator double() const { return std::bit_cast<double>(load()); }
  bool empty() const { return load() == nothing; }

private:
  static constexpr std::uint64_t nothing = 0x7ff8'dead'dead'deadu;
  std::uint64_t load() const { return bits.load(std::memory_order_relaxed); }
  std::atomic<std::uint64_t> bits{nothing};
};

template <class Number> struct tensors {
  using tensor = Number;
  struct context {};
  Number detach(Number const& t) const { return t; }
  void release(Number& t) const { t = {}; }
  void add(Number& sum, Number const& t) const {
    if (t.empty()) return;
    sum = sum.empty() ? t : Number(double(sum) + double(t));
  }
};

/// What a communicator would hand out: it moves with the microbatch and cannot be copied.
struct ticket {
  ticket() = default;
  explicit ticket(int rows) : rows_(rows) {}
  ticket(ticket&& other) noexcept : rows_(other.rows_.exchange(0, std::memory_order_relaxed)) {}
  ticket& operator=(ticket&& other) noexcept {
    rows_.store(other.rows_.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
    return *this;
  }
  ~ticket() = default;
  int rows() const { return rows_.load(std::memory_order_relaxed); }

private:
  std::atomic<int> rows_{0};
};

} // namespace toy
