#pragma once

#include <stretto/check_plan.hpp>

/// The compile-time proof of a pipeline type: an order that drops or doubles a pass, disorders weight gradients, holds more
/// than it promises or deadlocks stops the compiler with one sentence and the place.
namespace stretto {
inline namespace v0 {
namespace error {

// Nouns, never defined: where it was found.
template <int Count> struct with_ranks;
template <int Count> struct with_microbatches;
template <int Rank> struct on_rank;
template <long Position> struct at_call;
template <plan_pass Pass, int Stage, int Microbatch> struct pass_of_stage_and_microbatch;

/// Errors of plans, named after their rules; apart from the errors of programs, which share some names.
namespace of_plan {

template <class> inline constexpr bool never = false;

template <class Pipeline, class... Facts> struct size_out_of_range {
  static_assert(never<Pipeline>, STRETTO_E40);
};
template <class Pipeline, class... Facts> struct no_such_place {
  static_assert(never<Pipeline>, STRETTO_E45);
};
template <class Pipeline, class... Facts> struct missing { static_assert(never<Pipeline>, STRETTO_E46); };
template <class Pipeline, class... Facts> struct doubled { static_assert(never<Pipeline>, STRETTO_E47); };
template <class Pipeline, class... Facts> struct undeclared_form {
  static_assert(never<Pipeline>, STRETTO_E48);
};
template <class Pipeline, class... Facts> struct dependent_pair {
  static_assert(never<Pipeline>, STRETTO_E49);
};
template <class Pipeline, class... Facts> struct too_early { static_assert(never<Pipeline>, STRETTO_E50); };
template <class Pipeline, class... Facts> struct weight_order {
  static_assert(never<Pipeline>, STRETTO_E51);
};
template <class Pipeline, class... Facts> struct deadlock { static_assert(never<Pipeline>, STRETTO_E52); };
template <class Pipeline, class... Facts> struct too_many_live {
  static_assert(never<Pipeline>, STRETTO_E53);
};

} // namespace of_plan
} // namespace error

namespace detail {

template <pipeline Pipeline> struct finding_of { static constexpr plan_finding value = prove<Pipeline>(); };

template <template <class, class...> class Error, class Pipeline, class Finding = finding_of<Pipeline>>
using plan_error_at = Error<Pipeline, error::with_ranks<Finding::value.ranks>,
                            error::with_microbatches<Finding::value.microbatches>,
                            error::on_rank<Finding::value.rank>, error::at_call<Finding::value.at>,
                            error::pass_of_stage_and_microbatch<Finding::value.pass, Finding::value.stage,
                                                                Finding::value.microbatch>>;

// The other rules are about sizes and messages, which a proof at small sizes cannot break.
template <class Pipeline, plan_fault Fault> struct plan_verdict;
template <class Pipeline> struct plan_verdict<Pipeline, plan_fault::none> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::size_out_of_range>
    : plan_error_at<error::of_plan::size_out_of_range, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::no_such_place>
    : plan_error_at<error::of_plan::no_such_place, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::missing> : plan_error_at<error::of_plan::missing, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::doubled> : plan_error_at<error::of_plan::doubled, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::undeclared_form>
    : plan_error_at<error::of_plan::undeclared_form, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::dependent_pair>
    : plan_error_at<error::of_plan::dependent_pair, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::too_early> : plan_error_at<error::of_plan::too_early, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::weight_order>
    : plan_error_at<error::of_plan::weight_order, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::deadlock> : plan_error_at<error::of_plan::deadlock, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, plan_fault::too_many_live>
    : plan_error_at<error::of_plan::too_many_live, Pipeline> {};

} // namespace detail

/// Proves `Pipeline` at small sizes where it is instantiated: `template struct stretto::pipeline_proof<Mine>;`.
template <pipeline Pipeline>
struct pipeline_proof : detail::plan_verdict<Pipeline, detail::finding_of<Pipeline>::value.what> {};

} // namespace v0
} // namespace stretto
