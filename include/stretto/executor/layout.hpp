#pragma once

#include <stretto/detail/sequence.hpp>
#include <stretto/phase.hpp>
#include <stretto/plan.hpp>

namespace stretto {
inline namespace v0 {
namespace detail {

/// Where the layers of a rank meet. A chunk of n layers has n + 1 points: layer k reads what lies at point k and hands on at
/// point k + 1. Where two chunks of the rank follow each other in the model (the bend of a V, or one rank alone), the end of
/// one is the beginning of the other; elsewhere messages come in and go out.
class chain_layout {
public:
  /// `Layers` says where chunks begin (`first(chunk)`), see `layer_list`.
  template <class Layers>
  STRETTO_COLD chain_layout(plan_facts const& facts, int rank, Layers const& layers)
      : map_(facts.map), ranks_(facts.ranks), rank_(rank) {
    for (int c = 0; c < layers.chunks(); ++c) {
      int const stage = facts.stage(rank, c);
      bool const joins = c > 0 && facts.stage(rank, c - 1) == stage - 1;
      chunk_place place;
      place.stage = stage;
      place.first_layer = layers.first(c);
      place.layers = layers.first(c + 1) - place.first_layer;
      place.begin = joins ? chunks_.back().end : points_++;
      place.end = place.layers == 0 ? place.begin : points_ + place.layers - 1;
      place.inner = points_;
      points_ += place.layers;
      place.is_first = stage == 0;
      place.is_last = stage == facts.stages() - 1;
      place.from = place.is_first || joins ? -1 : facts.owner(stage - 1);
      chunks_.push_back(place);
      if (joins) chunks_[chunks_.size() - 2].to = -1;
      chunks_.back().to = place.is_last ? -1 : facts.owner(stage + 1);
    }
    for (chunk_place const& c : chunks_)
      for (int k = 0; k < c.layers; ++k) chunk_of_.push_back(static_cast<int>(&c - chunks_.data()));
  }

  struct chunk_place {
    int stage = 0;
    int first_layer = 0, layers = 0;
    int begin = 0, end = 0; ///< points
    /// Ranks of the stages before and behind; -1 if there is none, or it is this rank.
    int from = -1, to = -1;
    bool is_first = false, is_last = false; ///< stage of the model
    int inner = 0;
  };

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  int points() const { return points_; }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  chunk_place const& chunk(int c) const { return chunks_[c]; }
  chunk_place const& chunk_of_layer(int l) const { return chunk(chunk_of_[l]); }
  /// The point where layer `l` (counted over all chunks) reads.
  int point(int l) const {
    chunk_place const& c = chunk_of_layer(l);
    int const k = l - c.first_layer;
    return k == 0 ? c.begin : c.inner + k - 1;
  }
  /// The point where it hands on.
  int next_point(int l) const {
    chunk_place const& c = chunk_of_layer(l);
    return c.inner + l - c.first_layer;
  }
  /// The lane of a message, by the way it travels: in a loop of ranks activations all go one way and gradients the other,
  /// also where the last rank meets the first; in a V the way follows from the ranks.
  lane lane_of(bool gradient, bool sends, int peer) const {
    bool const lower = map_ == placement::looped ? gradient == sends : peer < rank_;
    if (sends) return lower ? lane::send_lower : lane::send_higher;
    return lower ? lane::receive_lower : lane::receive_higher;
  }

  /// Whether the activation and the gradient that the two halves of a pair make leave on one lane.
  bool share_a_lane(call const& c) const {
    if (c.what != form::forward_backward) return false;
    if (chunk(c.forward_chunk).layers == 0) return false;
    int const to = chunk(c.forward_chunk).to, from = chunk(c.backward_chunk).from;
    return to >= 0 && from >= 0 && lane_of(false, true, to) == lane_of(true, true, from);
  }

  bool is_first_of_chunk(int l) const { return l == chunk_of_layer(l).first_layer; }
  bool is_last_of_chunk(int l) const {
    return l + 1 == chunk_of_layer(l).first_layer + chunk_of_layer(l).layers;
  }

private:
  placement map_;
  int ranks_, rank_;
  sequence<chunk_place> chunks_;
  sequence<int> chunk_of_;
  int points_ = 0;
};

} // namespace detail
} // namespace v0
} // namespace stretto
