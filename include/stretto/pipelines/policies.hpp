#pragma once

#include <stretto/check/plan.hpp>

namespace stretto {
inline namespace v0 {

/// What a layer policy does with the calls of a plan.
struct policy_needs {
  char const* name;
  bool overlaps; ///< its bodies hide communication where a plan offers pairs
  bool splits; ///< it runs I and W of a phase apart, so that every phase must be able to
  bool whole; ///< it knows whole passes only: no I and W apart, whatever the phases can do
};

/// The layer policies, by the names that command lines give them.
inline constexpr policy_needs layer_policies[] = {
    {"serial", false, false, false},
    {"two_stream_1f1b", true, false, false},
    {"split_dw", true, true, false},
    {"autograd", false, false, true},
};

/// How a layer policy and a pipeline go together.
enum class policy_fit : unsigned char {
  overlapped, ///< pairs run as the policy's overlapped bodies
  alone, ///< every op runs alone: one of the two knows no pairs
  needs_split, ///< as the pairs say, but the pipeline or the policy runs I and W apart and the phases cannot
  needs_passes ///< the pipeline runs I and W apart, and the policy knows whole passes only
};

/// Whether `policy` can serve a pipeline that `pairs` and `splits`, with layers whose phases can split or not.
constexpr policy_fit fit(policy_needs const& policy, bool pairs, bool splits, bool phases_split) {
  if (splits && policy.whole) return policy_fit::needs_passes;
  if ((splits || policy.splits) && !phases_split) return policy_fit::needs_split;
  return policy.overlaps && pairs ? policy_fit::overlapped : policy_fit::alone;
}

/// The same for a pipeline type.
template <pipeline Pipeline> constexpr policy_fit fit(policy_needs const& policy, bool phases_split) {
  return fit(policy, Pipeline::pairs, Pipeline::splits, phases_split);
}

/// Refuses a policy, or phases, that a plan's pipeline cannot run with.
constexpr plan_diagnosis check_policy(policy_needs const& policy, plan_facts const& facts,
                                      bool phases_split) {
  policy_fit const found = fit(policy, facts.pairs, facts.splits, phases_split);
  plan_diagnosis result;
  if (found == policy_fit::needs_split || found == policy_fit::needs_passes)
    result.what = fault::cannot_split;
  return result;
}

} // namespace v0
} // namespace stretto
