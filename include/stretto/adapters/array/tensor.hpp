#pragma once

#include <stretto/adapters/array/memory.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace array {

/// Rows of floats that somebody else owns.
template <class Float> struct rows_of {
  Float* data;
  int rows, columns;

  Float* operator[](int row) const { return data + std::ptrdiff_t{row} * columns; }
};
using const_rows = rows_of<float const>;
using mutable_rows = rows_of<float>;

/// A matrix of floats. A copy has storage of its own, so a phase cannot hand on its input's storage by accident; `share`
/// makes another handle of the same storage. Storage that was given back leaves its handles their shape: reading it
/// throws. Belongs to a `memory`, which must live longer.
class tensor {
public:
  tensor() = default;
  /// Zeros.
  tensor(memory& of, int rows, int columns)
      : storage_(new storage(of, rows, columns)), rows_(rows), columns_(columns) {}
  tensor(memory& of, int rows, int columns, std::initializer_list<float> content)
      : tensor(of, rows, columns) {
    if (content.size() != storage_->count)
      throw std::invalid_argument("stretto::array: content of another size");
    std::copy(content.begin(), content.end(), storage_->data.get());
  }
  tensor(tensor const& other) {
    if (other.empty()) return;
    *this = tensor(other.account(), other.rows_, other.columns_);
    std::copy_n(other.data(), size(), data());
  }
  tensor(tensor&& other) noexcept
      : storage_(std::exchange(other.storage_, nullptr)), rows_(std::exchange(other.rows_, 0)),
        columns_(std::exchange(other.columns_, 0)) {}
  tensor& operator=(tensor other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(rows_, other.rows_);
    std::swap(columns_, other.columns_);
    return *this;
  }
  ~tensor() {
    if (storage_ && storage_->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) delete storage_;
  }

  tensor share() const noexcept {
    tensor same;
    if (storage_) storage_->handles.fetch_add(1, std::memory_order_relaxed);
    same.storage_ = storage_;
    same.rows_ = rows_;
    same.columns_ = columns_;
    return same;
  }

  bool empty() const noexcept { return storage_ == nullptr; }
  int rows() const noexcept { return rows_; }
  int columns() const noexcept { return columns_; }
  std::size_t size() const noexcept {
    return static_cast<std::size_t>(rows_) * static_cast<std::size_t>(columns_);
  }
  /// What its storage takes; nothing once it was given back.
  std::size_t bytes() const noexcept { return empty() || storage_->given_back ? 0 : storage_->bytes(); }

  float const* data() const { return alive().data.get(); }
  float* data() { return alive().data.get(); }
  float const* operator[](int row) const { return data() + std::ptrdiff_t{row} * columns_; }
  float* operator[](int row) { return data() + std::ptrdiff_t{row} * columns_; }
  operator const_rows() const { return {data(), rows_, columns_}; }
  operator mutable_rows() { return {data(), rows_, columns_}; }
  const_rows part(int first, int count) const { return {(*this)[first], count, columns_}; }
  mutable_rows part(int first, int count) { return {(*this)[first], count, columns_}; }

  /// Whose storage it is.
  memory& account() const {
    if (empty()) throw std::logic_error("stretto::array: an empty tensor is used");
    return *storage_->account;
  }

  /// Gives the storage back for every handle.
  void give_back() noexcept {
    if (storage_) storage_->give_back();
  }

private:
  struct storage {
    storage(memory& of, int rows, int columns)
        : account(&of), count(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)),
          data(new float[count]()) {
      of.take(bytes());
    }
    storage(storage const&) = delete;
    storage& operator=(storage const&) = delete;
    ~storage() { give_back(); }

    std::size_t bytes() const noexcept { return count * sizeof(float); }
    void give_back() noexcept {
      if (std::exchange(given_back, true)) return;
      data.reset();
      account->give_back(bytes());
    }

    std::atomic<int> handles{1};
    memory* account;
    std::size_t count;
    std::unique_ptr<float[]> data;
    bool given_back = false;
  };

  storage& alive() const {
    if (empty()) throw std::logic_error("stretto::array: an empty tensor is used");
    if (storage_->given_back)
      throw std::logic_error("stretto::array: a tensor is used whose storage was given back");
    return *storage_;
  }

  storage* storage_ = nullptr;
  int rows_ = 0, columns_ = 0;
};

} // namespace array
} // namespace v0
} // namespace stretto
