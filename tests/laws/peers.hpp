#pragma once

#include <stretto/adapter.hpp>

#include <algorithm>
#include <random>
#include <vector>

/// What every `peer_adapter` must do. Two ranks call each law together, each with the number of the other; each returns
/// whether this rank saw it kept. The user says how a tensor is made and looked at: `make(int)` gives a tensor,
/// `read(tensor)` its number, and a default-constructed tensor is the empty one, which reads as -1.
namespace laws {

namespace detail {

inline std::vector<stretto::message> some_messages(int peer, int microbatches) {
  std::vector<stretto::message> all;
  for (bool const gradient : {false, true})
    for (int stage : {0, 3})
      for (int microbatch = 0; microbatch < microbatches; ++microbatch)
        for (int chain = 0; chain < 2; ++chain) all.push_back({gradient, stage, microbatch, chain, peer});
  return all;
}
inline int number_of(stretto::message const& m, int from) {
  return ((((from * 2 + m.gradient) * 10 + m.stage) * 100 + m.microbatch) * 10) + m.chain;
}

} // namespace detail

/// A message is found by direction, stage, microbatch and chain, in whatever order it is asked for. Both ranks send
/// everything before they receive anything, which a send that waits for its receive does not survive: of each direction four
/// messages a microbatch.
template <class Peers, class Make, class Read>
bool messages_are_found_by_name(Peers& peers, int me, int other, Make make, Read read, int microbatches = 8) {
  std::vector<stretto::message> all = detail::some_messages(other, microbatches);
  for (stretto::message const& m : all) peers.send(m, make(detail::number_of(m, me)));
  std::mt19937 random(static_cast<unsigned>(me + 1));
  std::shuffle(all.begin(), all.end(), random);
  bool kept = true;
  for (stretto::message const& m : all) kept = kept && read(peers.receive(m)) == detail::number_of(m, other);
  return kept;
}

/// Names come again every step: of messages with one name the oldest comes first.
template <class Peers, class Make, class Read>
bool the_oldest_comes_first(Peers& peers, int me, int other, Make make, Read read) {
  stretto::message const name{false, 1, 2, 0, other};
  for (int step = 0; step < 5; ++step) peers.send(name, make(10 * step + me));
  bool kept = true;
  for (int step = 0; step < 5; ++step) kept = kept && read(peers.receive(name)) == 10 * step + other;
  return kept;
}

/// A gradient that nothing flows into crosses as well.
template <class Peers, class Make, class Read>
bool an_empty_tensor_arrives_empty(Peers& peers, int me, int other, Make make, Read read) {
  stretto::message const nothing{true, 1, 0, 0, other}, something{true, 1, 1, 0, other};
  peers.send(nothing, typename Peers::tensor{});
  peers.send(something, make(7 + me));
  return read(peers.receive(something)) == 7 + other && read(peers.receive(nothing)) == -1;
}

/// What was sent may go back or be written again at once: what arrives has storage of its own. `spoil(tensor&)` writes
/// another number into the storage.
template <class Peers, class Make, class Read, class Spoil>
bool what_arrives_is_its_own(Peers& peers, int me, int other, Make make, Read read, Spoil spoil) {
  bool kept = true;
  for (bool const gradient : {false, true}) {
    stretto::message const first{gradient, 1, 0, 0, other}, second{gradient, 1, 1, 0, other};
    typename Peers::tensor sent = make(7 + me);
    peers.send(first, sent);
    spoil(sent);
    peers.send(second, make(8 + me));
    // Behind the second the first has been spoilt.
    kept = read(peers.receive(second)) == 8 + other && kept;
    kept = read(peers.receive(first)) == 7 + other && kept;
  }
  return kept;
}

} // namespace laws
