#pragma once

#include <stretto/check_messages.hpp>
#include <stretto/sentence.hpp>

#include <stdexcept>
#include <string>

/// Plan faults as sentences and exceptions, apart from the checks: they stay free of <string> and of `throw`.
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
STRETTO_COLD inline std::string numbers_of(plan_diagnosis const& wrong) {
  if (wrong.found < 0 && wrong.wanted < 0) return {};
  std::string const found = std::to_string(wrong.found), wanted = std::to_string(wrong.wanted);
  switch (wrong.what) {
  case fault::too_few_microbatches:
    return " (" + found + " given, at least " + wanted + " needed)";
  case fault::not_a_multiple:
    return " (" + found + " given, a multiple of " + wanted + " needed)";
  case fault::wrong_chunks:
    return " (" + found + " in the list, " + wanted + " in the pipeline)";
  case fault::no_such_rank:
    return " (" + found + ")";
  case fault::weight_order:
    return " (" + found + " ran before it)";
  default:
    return " (" + found + ", at most " + wanted + ")";
  }
}

} // namespace detail

/// One sentence: what is wrong, where, and how to mend it.
STRETTO_COLD inline std::string sentence(plan_facts const& facts, plan_diagnosis const& wrong) {
  if (!wrong) return {};
  std::string place;
  if (wrong.rank >= 0) place += " at rank " + std::to_string(wrong.rank);
  if (wrong.at >= 0) place += ", step " + std::to_string(wrong.at);
  if (wrong.other >= 0) place += ", rank " + std::to_string(wrong.other) + " at the other end";
  if (wrong.pass != plan_pass::none) {
    place += std::string(", ") + detail::name_of(wrong.pass) + " of stage " + std::to_string(wrong.stage) +
             ", microbatch " + std::to_string(wrong.microbatch);
  }
  std::string const subject = facts.name + std::string(" with ") + std::to_string(facts.ranks) +
                              (facts.ranks == 1 ? " rank, " : " ranks, ") + std::to_string(facts.microbatches) +
                              (facts.microbatches == 1 ? " microbatch" : " microbatches") +
                              (facts.chunks == 1 ? "" : ", " + std::to_string(facts.chunks) + " chunks a rank");
  return sentence_of(wrong.what, subject, detail::numbers_of(wrong) + place);
}

/// Throws std::invalid_argument with the sentence if the diagnosis names a fault.
inline void require(plan_facts const& facts, plan_diagnosis const& wrong) {
  if (wrong) throw std::invalid_argument(sentence(facts, wrong));
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
