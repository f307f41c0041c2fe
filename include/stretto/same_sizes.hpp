#pragma once

#include <stretto/adapter.hpp>
#include <stretto/check/sentence.hpp>
#include <stretto/detail/sequence.hpp>
#include <stretto/plan.hpp>

namespace stretto {
inline namespace v0 {
namespace detail {

/// What is wrong with the sizes of all ranks of a run, one entry a rank of the communicator; empty if they fit together.
STRETTO_COLD inline words unequal_sizes(sequence<sizes> const& all) {
  words wrong;
  long const ranks = static_cast<long>(all.size());
  constexpr struct {
    int sizes::*which;
    char const* name;
  } common[] = {
      {&sizes::microbatches, ".microbatches"}, {&sizes::ranks, ".ranks"}, {&sizes::chunks, ".chunks"}};
  for (auto const& [which, name] : common)
    for (long rank = 1; rank < ranks; ++rank)
      if (all[rank].*which != all[0].*which)
        return wrong << ": " << name << " is " << all[0].*which << " on rank 0 and " << all[rank].*which
                     << " on rank " << rank;
  long const stages = all[0].ranks, each = stages > 0 ? ranks / stages : 0;
  if (each == 0 || each * stages != ranks)
    return wrong << ": .ranks is " << stages << ", of which " << ranks << " is no multiple";
  sequence<long> holders(stages);
  for (long rank = 0; rank < ranks; ++rank) {
    if (all[rank].rank < 0 || all[rank].rank >= stages)
      return wrong << ": .rank is " << all[rank].rank << " on rank " << rank << ", not from 0 to "
                   << stages - 1;
    ++holders[all[rank].rank];
  }
  for (long stage = 0; stage < stages; ++stage)
    if (holders[stage] != each)
      return wrong << ": .rank is " << stage << " on " << holders[stage] << " of " << ranks
                   << " ranks, and should be on " << each;
  return wrong;
}

} // namespace detail

/// Compares what the ranks of a run are given, before their executors are made: otherwise a rank would wait for what another
/// never does. `all` joins every rank of the run, those of all stages and of all expert groups, in any order.
///
/// Collective, four exchanges of counts. Throws `std::invalid_argument` with one sentence on every rank; a rank that does not
/// come is found as `all` finds it in any call.
template <row_exchange Exchange> void require_same_sizes(Exchange& all, sizes const& mine) {
  long const ranks = all.ranks();
  detail::sequence<sizes> found(ranks);
  detail::sequence<int> told(ranks), heard(ranks);
  for (int sizes::*const which : {&sizes::microbatches, &sizes::ranks, &sizes::rank, &sizes::chunks}) {
    for (int& each : told) each = mine.*which;
    all.exchange_counts(told.data(), heard.data());
    for (long rank = 0; rank < ranks; ++rank) found[rank].*which = heard[rank];
  }
  detail::words const wrong = detail::unequal_sizes(found);
  if (!wrong.empty()) sentence_of(fault::unequal_sizes, {}, wrong).refuse();
}

} // namespace v0
} // namespace stretto
