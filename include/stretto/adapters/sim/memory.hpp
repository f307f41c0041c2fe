#pragma once

#include <stretto/adapters/sim/graph.hpp>

#include <utility>

/// Who gets which storage: each lane of a rank has memory of its own, and what goes back is handed out again by the very
/// next row of that lane that needs some, as an allocator does that follows the thread that issues. What another lane gave back
/// goes first, since that lane may still use it.
namespace stretto {
inline namespace v0 {
namespace sim {

/// Which block of storage lies in which place.
class memory {
public:
  /// Block 0 is nothing, and always poisoned.
  memory(int places, int lanes, bool reuses)
      : reuses_(reuses), holds_(places, 0), free_(lanes), from_others_(lanes), owner_(1, -1) {}

  int blocks() const { return owner_.size(); }

  /// Storage for what a row on `lane` writes to `place`. What lay there before goes back.
  int write(int place, int lane) {
    int const block = take(lane);
    drop(place, lane);
    holds_[place] = block;
    return block;
  }
  /// Storage that came in from another rank: it belongs to no lane, and is not handed out again.
  int receive(int place) {
    drop(place, -1);
    return holds_[place] = add(-1);
  }
  /// Storage that belongs to no lane: what lives with the microbatch.
  int write_state(int place) {
    if (holds_[place] == 0) holds_[place] = add(-1);
    return holds_[place];
  }
  /// A row on `lane` gives the storage in `place` back to the lane that took it. Returns the block, 0 if there is none.
  int drop(int place, int lane) {
    int const block = std::exchange(holds_[place], 0);
    if (int const owner = owner_[block]; block != 0 && reuses_ && owner >= 0)
      (owner == lane ? free_ : from_others_)[owner].push_back(block);
    return block;
  }
  /// A message takes the storage along.
  void leave(int place) { holds_[place] = 0; }
  bool holds(int place) const { return holds_[place] != 0; }

private:
  int add(int owner) {
    owner_.push_back(owner);
    return owner_.size() - 1;
  }
  int take(int lane) {
    std::vector<int>& from = from_others_[lane].empty() ? free_[lane] : from_others_[lane];
    if (from.empty()) return add(lane);
    int const block = from.back();
    from.pop_back();
    return block;
  }

  bool reuses_;
  numbered<int> holds_;
  numbered<std::vector<int>> free_, from_others_;
  numbered<int> owner_;
};

} // namespace sim
} // namespace v0
} // namespace stretto
