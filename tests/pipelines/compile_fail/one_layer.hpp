#pragma once

#include "one_chunk.hpp"

#include <stretto/check/proof.hpp>

namespace mine {

struct hidden : stretto::value {};
struct Whole : stretto::Phase<stretto::attn> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<hidden>;
  void forward(auto&) {}
  void backward(auto&) {}
  static constexpr bool has_weights = false;
};
struct Layer : stretto::Block<Whole> {};

/// A schedule of such layers in that order.
template <class Order> struct StepIn : stretto::Schedule<Layer, stretto::TwoStream1F1B, Order> {};

} // namespace mine
