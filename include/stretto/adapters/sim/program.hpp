#pragma once

#include <stretto/adapters/sim/graph.hpp>
#include <stretto/block/dataflow.hpp>
#include <stretto/program.hpp>

#include <string>

/// What the simulator runs: op tables and the dataflow of their blocks. It takes from a row which pass of which node it is,
/// where its state lies, its lane and its waits; what the pass reads and writes it derives from the dataflow by itself.
namespace stretto {
inline namespace v0 {
namespace sim {

/// Storage of a cell that goes back behind a row, or `before` its op and behind its waits, on the lane of that row.
struct freed {
  int row;
  int group;
  int cell;
  bool before = false;
};

/// The table of one rank. `layer_id` gives each layer of the rank its number in the model, `stage` each chunk its stage:
/// that is what final values go by, so that they do not depend on the number of ranks.
struct rank_table {
  numbered<op> ops;
  numbered<freed> gives_back;
  numbered<int> layer_id;
  numbered<int> stage;
};

/// The tables of all ranks of a run, and what their rows read and write.
struct program {
  numbered<block_facts> blocks;
  chain_facts chain;
  numbered<rank_table> ranks;
  /// Ranks whose dispatches and combines are one communication each, in the order of their comm lanes.
  numbered<numbered<int>> expert_groups;
};

/// How messages travel.
enum class transport : unsigned char {
  rendezvous, ///< a send ends together with its receive; the first sent to a rank over a lane is the first to come out
  buffered, ///< the same, but a send ends at once
  named, ///< a send ends at once, and each message comes out where it is asked for by its name
  any_time ///< every rank by itself: whatever it receives may be there from the start
};

/// What goes wrong in a run.
enum class trouble : unsigned char {
  none,
  hang, ///< rows that wait for each other, or for a message that nobody sends
  unmatched, ///< a message that nobody receives, or another collective than the others call
  nothing_there, ///< a read of what was not written yet, or is gone
  given_back, ///< a read of storage that went back
  state_overwritten, ///< a forward, or an I, over state that no backward has used
  state_left, ///< state that no backward has used, at the end
  other_values ///< losses, parameter gradients or messages that are not the expected ones
};

constexpr char const* name_of(trouble what) {
  constexpr char const* names[] = {"none",
                                   "hang",
                                   "unmatched",
                                   "nothing there",
                                   "given back",
                                   "overwritten state",
                                   "state left behind",
                                   "other values"};
  return names[static_cast<int>(what)];
}

/// A loss, the gradient of the parameters of a node, or a message: what must not depend on the schedule.
struct final_value {
  unsigned long long name;
  unsigned long long value;
  friend bool operator==(final_value const&, final_value const&) = default;
};

/// What the simulator looks for. Tests take one away and see what escapes.
struct senses {
  bool poison = true; ///< storage that goes back is unreadable
  bool reuse = true; ///< and is handed out again
  bool order_of_sums = true; ///< another order of the same terms is another sum
  bool state = true; ///< every state is used up once
};

/// What came out of one run. `row` of `rank` is where it went wrong.
struct outcome {
  trouble what = trouble::none;
  int rank = -1, row = -1;
  numbered<final_value> values;
};

} // namespace sim
} // namespace v0
} // namespace stretto
