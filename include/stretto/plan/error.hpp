#pragma once

#include <stretto/check/messages.hpp>
#include <stretto/check/sentence.hpp>

#include <string>

/// Plan faults as sentences and exceptions, apart from the checks: they stay free of words and of `throw`.
namespace stretto {
inline namespace v0 {

namespace detail {

constexpr char const* name_of(plan_pass pass) {
  switch (pass) {
  case plan_pass::forward:
    return "F";
  case plan_pass::backward:
    return "B";
  case plan_pass::input:
    return "I";
  case plan_pass::weight:
    return "W";
  case plan_pass::send:
    return "the send of the output";
  case plan_pass::receive:
    return "the receive of the output";
  case plan_pass::none:
    break;
  }
  return "";
}

/// The two numbers of a size fault in words, or nothing.
STRETTO_COLD inline void say_numbers(words& to, plan_diagnosis const& wrong) {
  if (wrong.found < 0 && wrong.wanted < 0) return;
  to << " (" << wrong.found;
  switch (wrong.what) {
  case fault::too_few_microbatches:
    to << " given, at least " << wrong.wanted << " needed";
    break;
  case fault::not_a_multiple:
    to << " given, a multiple of " << wrong.wanted << " needed";
    break;
  case fault::wrong_chunks:
    to << " in the list, " << wrong.wanted << " in the pipeline";
    break;
  case fault::no_such_rank:
    break;
  case fault::weight_order:
    to << " ran before it";
    break;
  default:
    to << ", at most " << wrong.wanted;
  }
  to << ")";
}

STRETTO_COLD inline words explain(plan_facts const& facts, plan_diagnosis const& wrong) {
  words place, subject;
  say_numbers(place, wrong);
  if (wrong.rank >= 0) place << " at rank " << wrong.rank;
  if (wrong.at >= 0) place << ", step " << wrong.at;
  if (wrong.other >= 0) place << ", rank " << wrong.other << " at the other end";
  if (wrong.pass != plan_pass::none)
    place << ", " << name_of(wrong.pass) << " of stage " << wrong.stage << ", microbatch "
          << wrong.microbatch;
  subject << facts.name << " with " << facts.ranks << (facts.ranks == 1 ? " rank, " : " ranks, ")
          << facts.microbatches << (facts.microbatches == 1 ? " microbatch" : " microbatches");
  if (facts.chunks != 1) subject << ", " << facts.chunks << " chunks a rank";
  return sentence_of(wrong.what, subject, place);
}

} // namespace detail

/// One sentence: what is wrong, where, and how to mend it.
inline std::string sentence(plan_facts const& facts, plan_diagnosis const& wrong) {
  return wrong ? detail::explain(facts, wrong).str() : std::string();
}

/// Throws std::invalid_argument with the sentence if the diagnosis names a fault.
inline void require(plan_facts const& facts, plan_diagnosis const& wrong) {
  if (wrong) detail::explain(facts, wrong).refuse();
}

/// The plan of `Pipeline` for all ranks, proved; `chunks` 0 takes the pipeline's own number.
/// Throws std::invalid_argument with the sentence of the first rule that it breaks.
template <pipeline Pipeline> plan proved_plan(int ranks, int microbatches, int chunks = 0) {
  plan_facts const facts = facts_of<Pipeline>(ranks, microbatches, chunks);
  require(facts, check_sizes(facts));
  plan result = lay_out<Pipeline>(facts);
  require(facts, check_plan(result));
  return result;
}

} // namespace v0
} // namespace stretto
