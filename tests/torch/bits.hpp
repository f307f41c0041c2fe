#pragma once

#include <ATen/ATen.h>

#include <cstring>

/// The same type, shape and bytes: -0 is not 0, and a NaN is equal to itself.
inline bool same_bits(at::Tensor const& a, at::Tensor const& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  auto const x = a.detach().contiguous();
  auto const y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType type, std::uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator, at::kDouble).to(type);
}
