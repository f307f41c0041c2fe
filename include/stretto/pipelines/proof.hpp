#pragma once

#include <stretto/check/plan.hpp>
#include <stretto/error.hpp>

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
template <class Pipeline, fault Fault> struct plan_verdict;
template <class Pipeline> struct plan_verdict<Pipeline, fault::none> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::size_out_of_range> : plan_error_at<error::size_out_of_range, Pipeline> {
};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::no_such_place> : plan_error_at<error::no_such_place, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::missing> : plan_error_at<error::missing, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::doubled> : plan_error_at<error::doubled, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::undeclared_form> : plan_error_at<error::undeclared_form, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::dependent_pair> : plan_error_at<error::dependent_pair, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::too_early> : plan_error_at<error::too_early, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::weight_order> : plan_error_at<error::weight_order, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::deadlock> : plan_error_at<error::deadlock, Pipeline> {};
template <class Pipeline>
struct plan_verdict<Pipeline, fault::too_many_live> : plan_error_at<error::too_many_live, Pipeline> {};

} // namespace detail

/// Proves `Pipeline` at small sizes where it is instantiated: `template struct stretto::pipeline_proof<Mine>;`. Programs above
/// about 2,000 ops are too large for that: `at_construction` says that some of the sizes that are looked at here are, and are
/// proved when a plan or an executor of them is made, as all larger ones are.
template <pipeline Pipeline>
struct pipeline_proof : detail::plan_verdict<Pipeline, detail::finding_of<Pipeline>::value.what> {
  static constexpr bool at_construction = detail::finding_of<Pipeline>::value.ends_early;
};

} // namespace v0
} // namespace stretto
