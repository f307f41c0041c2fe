#pragma once

#include <stretto/pipelines/dual_pipe_v.hpp>
#include <stretto/pipelines/gpipe.hpp>
#include <stretto/pipelines/interleaved.hpp>
#include <stretto/pipelines/one_f_one_b.hpp>
#include <stretto/pipelines/serial.hpp>
#include <stretto/pipelines/zero_bubble_h1.hpp>
#include <stretto/pipelines/zero_bubble_v.hpp>

namespace stretto {
inline namespace v0 {

/// A list of pipeline types; command lines look names up in it. A user's own list takes the user's own pipelines along.
template <pipeline... Pipelines> struct pipeline_list {
  static constexpr int size = sizeof...(Pipelines);
  static constexpr char const* names[] = {Pipelines::name...};

  /// Calls `act.operator()<Pipeline>()` with the type called `name`; false if there is none.
  static constexpr bool with(char const* name, auto&& act) {
    return ((same(name, Pipelines::name) && (act.template operator()<Pipelines>(), true)) || ...);
  }
  /// Calls `act.operator()<Pipeline>()` with every type in turn.
  static constexpr void each(auto&& act) { (act.template operator()<Pipelines>(), ...); }

private:
  static constexpr bool same(char const* left, char const* right) {
    while (*left != 0 && *left == *right) ++left, ++right;
    return *left == *right;
  }
};

/// The pipelines that ship.
using shipped_pipelines = pipeline_list<SerialPipeline, GPipe, OneFOneB, OneFOneBOverlapped, Interleaved<>,
                                        InterleavedOverlapped<>, ZeroBubbleH1, ZeroBubbleV, DualPipeV>;

} // namespace v0
} // namespace stretto
