#pragma once

#include <stretto/detail/extent.hpp>
#include <stretto/phase.hpp>
#include <stretto/program/limits.hpp>

/// One representation for every schedule: an ordered table of ops with what they touch and what they wait for.
namespace stretto {
inline namespace v0 {

/// A set of cells of one group.
using cell_set = unsigned long long;

/// What can be read or written for one (layer, microbatch in flight): a group of cells, numbered from 0.
/// `boundary_forward` and `boundary_backward` are touched by every op that hands something to the layer behind or before:
/// they order those ops, so that one event stands for all of them.
namespace cells {
// Where each kind begins; it ends where the next one begins.
inline constexpr int first_chain_value = 0; ///< what the layer before hands over
inline constexpr int first_chain_gradient = first_chain_value + max_carried; ///< what this layer hands back
inline constexpr int first_root = first_chain_gradient + max_carried;
inline constexpr int first_leaf_gradient = first_root + max_values;
inline constexpr int first_boundary = first_leaf_gradient + max_reads;
inline constexpr int first_context = first_boundary + 2; ///< what forward keeps for backward, by node
inline constexpr int first_pending = first_context + max_phases; ///< what I keeps for W, by node
inline constexpr int count = first_pending + max_phases; ///< cells of a group
inline constexpr int parameter_gradients = count; ///< in diagnoses only: the gradients that an op adds to
static_assert(first_chain_value == 0 && count <= 64, "a group fits into a cell_set");

constexpr bool is_chain_value(int cell) { return cell < first_chain_gradient; }
constexpr bool is_chain_gradient(int cell) { return cell >= first_chain_gradient && cell < first_root; }
constexpr bool is_root(int cell) { return cell >= first_root && cell < first_leaf_gradient; }
constexpr bool is_leaf_gradient(int cell) { return cell >= first_leaf_gradient && cell < first_boundary; }
constexpr bool is_boundary(int cell) { return cell >= first_boundary && cell < first_context; }
constexpr bool is_context(int cell) { return cell >= first_context && cell < first_pending; }

constexpr cell_set one(int cell) { return cell_set{1} << cell; }
constexpr cell_set chain_value(int chain) { return one(first_chain_value + chain); }
constexpr cell_set chain_gradient(int chain) { return one(first_chain_gradient + chain); }
constexpr cell_set root(int value) { return one(first_root + value); }
constexpr cell_set leaf_gradient(int leaf) { return one(first_leaf_gradient + leaf); }
inline constexpr cell_set chain_values = one(first_chain_gradient) - 1; ///< all of them
inline constexpr cell_set boundary_forward = one(first_boundary);
inline constexpr cell_set boundary_backward = one(first_boundary + 1);
constexpr cell_set context(int node) { return one(first_context + node); }
constexpr cell_set pending(int node) { return one(first_pending + node); }
} // namespace cells

/// The cells that an op touches: in the group of its own layer, and in that of the layer behind it. Cleared cells are
/// given back by the op: nothing may read them until they are written again. A carried chain value is passed on as it is:
/// from then on the cell of the layer behind is another name for the cell of this layer.
struct cell_access {
  cell_set reads = 0, writes = 0, clears = 0;
  cell_set next_reads = 0, next_writes = 0, next_clears = 0;
  cell_set carries = 0;
  /// Roots that are names which the op gives to storage that it reads: nothing goes back under them. Chain values that it
  /// reads under such a name alone.
  cell_set aliases = 0;
  /// Adds to the parameter gradients of its node: order matters, microbatches ascend.
  bool accumulates = false;
  bool keeps_lane = false; ///< backward touches handles that forward left on its lane: both take one lane
  unsigned char takes[max_limited] = {}; ///< of what a model limits, so many from forward to backward,
  short in_flight[max_limited] = {}; ///< where so many may be taken at once, by all layers; 0: any number
};

/// One row of the table. `wait[l]` is the latest op on lane `l` that must have run before this one (-1: none): lanes are
/// in order, so one wait per other lane is enough. In a body the forward side has microbatch 0 and the backward side
/// microbatch 1, and the first rows stand for the ports.
struct op {
  pass what = pass::forward;
  lane on = lane::compute;
  unsigned char block = 0; ///< block type
  unsigned char node = 0;
  short chunk = 0;
  int layer = 0;
  int slot = 0;
  short peer = -1; ///< the rank at the other end of a message; `what` tells an activation from a gradient
  int microbatch = 0;
  int group = 0, next_group = 0; ///< groups of cells of this layer, and of the layer behind
  cell_access touches{};
  int wait[lane_count] = {-1, -1, -1, -1, -1, -1, -1, -1};

  constexpr bool is_message() const { return is_send(on) || is_receive(on); }
  constexpr bool is_port() const { return on == lane::forward_port || on == lane::backward_port; }
  constexpr bool is_forward() const { return what == pass::forward; }
};

/// A program of `N` rows, ports included.
template <int Rows> struct program {
  op ops[detail::extent(Rows)] = {};
  static constexpr int size = Rows;

  /// How many waits the rows hold, those for ports included.
  constexpr int waits() const {
    int count = 0;
    for (int i = 0; i < Rows; ++i)
      for (int w : ops[i].wait) count += w >= 0;
    return count;
  }
  constexpr op const* begin() const { return ops; }
  constexpr op const* end() const { return ops + Rows; }
};

} // namespace v0
} // namespace stretto
