#pragma once

namespace stretto {
inline namespace v0 {

/// What can be wrong with a plan or its messages; the number is that of the code.
enum class plan_fault : unsigned char {
  none = 0,
  size_out_of_range = 40,
  too_few_microbatches = 41,
  not_a_multiple = 42,
  wrong_chunks = 43,
  too_large = 44,
  no_such_place = 45,
  missing = 46,
  doubled = 47,
  undeclared_form = 48,
  dependent_pair = 49,
  too_early = 50,
  weight_order = 51,
  deadlock = 52,
  too_many_live = 53,
  unmatched_message = 54,
  message_order = 55,
  misplaced_message = 56,
  message_deadlock = 57,
  group_order = 58,
  cannot_split = 59
};

/// One rule of plans: `code` is stable; `sentence` says what is wrong, `remedy` how to mend it. The facts stand between.
struct plan_rule {
  plan_fault what;
  char const* code;
  char const* sentence;
  char const* remedy;
};

/// The rules, in the order of their codes: one home for compile time, run time and the documentation.
inline constexpr plan_rule plan_rules[] = {
    {plan_fault::size_out_of_range, "E40", "a size is out of range",
     "take 1 to 4096 ranks, 1 to 1000000 microbatches and 1 to 1024 chunks"},
    {plan_fault::too_few_microbatches, "E41", "the pipeline needs more microbatches than it is given",
     "raise the microbatches, lower the ranks, or take a pipeline without that minimum"},
    {plan_fault::not_a_multiple, "E42", "the pipeline cannot divide these microbatches evenly",
     "take a multiple of the number it asks for"},
    {plan_fault::wrong_chunks, "E43", "the pipeline does not serve this number of chunks",
     "leave the chunks out to get its own number, or take interleaved or interleaved_ep"},
    {plan_fault::too_large, "E44", "stages times microbatches pass the limit of a plan that is held in memory",
     "lower the ranks, chunks or microbatches"},
    {plan_fault::no_such_place, "E45", "a call names a chunk or microbatch that is not there",
     "keep chunks and microbatches between 0 and the numbers handed to run()"},
    {plan_fault::missing, "E46", "a pass never runs", "emit F once, and B, or I and W, once for every chunk and microbatch"},
    {plan_fault::doubled, "E47", "a pass runs twice", "emit F once, and B, or I and W, once for every chunk and microbatch"},
    {plan_fault::undeclared_form, "E48", "a call has a form that the pipeline does not declare",
     "set pairs for overlapped pairs, splits for I and W apart"},
    {plan_fault::dependent_pair, "E49", "the two halves of a pair belong to one microbatch, so one waits for the other",
     "pair the forward with the backward of an earlier microbatch (one more warm-up forward does it)"},
    {plan_fault::too_early, "E50", "a pass runs before the pass of its own chunk that it needs",
     "on one rank F comes before B or I, and I before W"},
    {plan_fault::weight_order, "E51", "weight gradients of a chunk are not in ascending microbatch order",
     "keep B and W of a chunk in microbatch order: sums of floats depend on it"},
    {plan_fault::deadlock, "E52", "the ranks wait for each other in a circle",
     "move the waiting call behind the calls that its input comes from"},
    {plan_fault::too_many_live, "E53", "more chunk activations are live than the pipeline promises",
     "run backwards earlier, or raise peak_live"},
    {plan_fault::unmatched_message, "E54", "a message has no other end, or nobody needs it",
     "send every output that another rank reads once, receive it once, and send nothing between stages of one rank"},
    {plan_fault::message_order, "E55", "two ranks list their messages to each other in different orders",
     "list the messages of a pair of ranks in one order at both ends"},
    {plan_fault::misplaced_message, "E56", "a message is listed on the wrong side of its call",
     "receive before the call that reads, send after the call that writes"},
    {plan_fault::message_deadlock, "E57", "the messages wait for each other in a circle",
     "place a receive before every send that is ready later"},
    {plan_fault::group_order, "E58", "ranks of one expert group issue expert communication in different orders",
     "give every rank of an expert group the same pipeline, rank of the pipeline, microbatches and chunks"},
    {plan_fault::cannot_split, "E59", "the pipeline runs I and W apart, and the policy or the phases cannot",
     "take a policy other than autograd and phases with backward_input and backward_weight, or a pipeline that does not "
     "split"},
};

/// The rule of a fault; null for none.
constexpr plan_rule const* rule_of(plan_fault what) {
  for (plan_rule const& rule : plan_rules) {
    if (rule.what == what) return &rule;
  }
  return nullptr;
}

}  // namespace v0
}  // namespace stretto
