#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/array/maths.hpp>
#include <stretto/adapters/array/tensor.hpp>

#include <initializer_list>

namespace stretto {
inline namespace v0 {
namespace array {

/// Small matrices of floats in host memory, as a `tensor_adapter` without autograd: phases bring their own backward. It
/// counts what lives. Every thread may use one object.
class tensors {
public:
  using tensor = array::tensor;
  struct context {};

  tensors() = default;
  tensors(tensors const&) = delete;
  tensors& operator=(tensors const&) = delete;

  tensor zeros(int rows, int columns) { return {memory_, rows, columns}; }
  tensor of(int rows, int columns, std::initializer_list<float> content) {
    return {memory_, rows, columns, content};
  }

  tensor detach(tensor const& root) const { return root.share(); }
  void add(tensor& sum, tensor const& term) const {
    if (term.empty()) return;
    sum = sum.empty() ? term.share() : array::add(sum, term);
  }
  void release(tensor& root) const { root.give_back(); }

  array::memory& memory() noexcept { return memory_; }
  array::memory const& memory() const noexcept { return memory_; }

private:
  array::memory memory_;
};

static_assert(tensor_adapter<tensors> && !autograd_tensor_adapter<tensors>);

} // namespace array
} // namespace v0
} // namespace stretto
