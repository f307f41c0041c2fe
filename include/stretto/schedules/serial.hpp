#pragma once

#include <stretto/program/builder.hpp>

namespace stretto {
inline namespace v0 {

/// Everything on one lane, in order: the reference that every other policy must agree with bit by bit.
struct Serial {
  static constexpr void pair(pair_builder& p) {
    p.compute(p.f.forward(attn), p.f.forward(dispatch), p.f.forward(mlp), p.f.forward(combine),
              p.f.forward(mtp));
    p.compute(p.b.backward(mtp), p.b.backward(combine), p.b.backward(mlp), p.b.backward(dispatch),
              p.b.backward(attn));
  }
};

} // namespace v0
} // namespace stretto
