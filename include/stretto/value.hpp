#pragma once

#include <stretto/detail/cxx20.hpp>

/// What crosses between the phases of a layer.
namespace stretto {
inline namespace v0 {

/// A named differentiable tensor. Derive an empty struct from it: `struct hidden : value {};`. The name is the
/// identity: two phases talk about the same tensor when they name the same struct.
struct value {};

/// A value that backward starts from (a loss): nothing reads it and its gradient is one.
struct objective : value {};

/// A value without a gradient, such as the splits of a routing or a communicator's handle. The derived struct says
/// what is stored: `struct routing : metadata { using type = my_handle; };`. `type` must be default constructible and
/// movable; it lives with the microbatch, from the phase that writes it until that phase's backward has run.
struct metadata {};

/// A list of values, in the order in which a phase names them.
template <class... Values> struct values {};

} // namespace v0
} // namespace stretto
