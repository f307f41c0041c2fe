#pragma once

#include <stretto/adapters/sim/graph.hpp>
#include <stretto/block/dataflow.hpp>
#include <stretto/program.hpp>

/// What a row of a table does, as reads and writes of places.
namespace stretto {
inline namespace v0 {
namespace sim {

/// A place holds one value of one layer and one microbatch in flight: `group * places_of_a_group + cell`. The cells are
/// those of releases, and behind them what a phase keeps of storage that came in a message.
inline constexpr int places_of_a_group = cells::count + max_reads;
constexpr int chain_value_cell(int chain) { return cells::first_chain_value + chain; }
constexpr int chain_gradient_cell(int chain) { return cells::first_chain_gradient + chain; }
constexpr int root_cell(int root) { return cells::first_root + root; }
constexpr int leaf_gradient_cell(int leaf) { return cells::first_leaf_gradient + leaf; }
constexpr int context_cell(int node) { return cells::first_context + node; }
constexpr int pending_cell(int node) { return cells::first_pending + node; }
constexpr int kept_cell(int leaf) { return cells::count + leaf; }

using hash = unsigned long long;
constexpr hash mix(hash sum, hash next) {
  sum = (sum ^ next) * 0x9e37'79b9'7f4a'7c15U;
  return sum ^ (sum >> 29);
}

/// A part of the work of a row: everything that it writes is a number made of everything that it reads, in this order.
struct part {
  struct write {
    int place;
    hash salt;
    bool starts_state = false; ///< of a microbatch: what an earlier one left there must be used up
    bool is_loss = false;
  };
  /// The same storage under a second name.
  struct share {
    int from, to;
  };
  hash salt = 0;
  numbered<int> reads;
  numbered<share> shares;
  numbered<write> writes;
  numbered<int> clears;
  numbered<int> gives_up; ///< names of storage that came in
  int adds_to_node = -1; ///< parameter gradients
  int node = -1, kind = 0; ///< whose part it is: of a forward, an I or a W
};

} // namespace sim
} // namespace v0
} // namespace stretto
