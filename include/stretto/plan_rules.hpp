#pragma once

/// The one table of rules for plans and their messages: code (stable), what is wrong, how to mend it. As in rules.hpp the
/// texts are macros, because a static_assert takes nothing but a literal before C++26. At run time the facts are put
/// before the semicolon.
#define STRETTO_E40                                                                                          \
  "stretto[E40]: a size is out of range; take 1 to 4096 ranks, 1 to 1000000 microbatches and 1 to 1024 "     \
  "chunks"
#define STRETTO_E41                                                                                          \
  "stretto[E41]: the pipeline needs more microbatches than it is given; raise the microbatches, lower "      \
  "the ranks, or take a pipeline without that minimum"
#define STRETTO_E42                                                                                          \
  "stretto[E42]: the pipeline cannot divide these microbatches evenly; take a multiple of the number "       \
  "it asks for"
#define STRETTO_E43                                                                                          \
  "stretto[E43]: the pipeline does not serve this number of chunks; leave the chunks out to get its "        \
  "own number, or take interleaved or interleaved_ep"
#define STRETTO_E44                                                                                          \
  "stretto[E44]: stages times microbatches pass the limit of a plan that is held in memory; lower the "      \
  "ranks, chunks or microbatches"
#define STRETTO_E45                                                                                          \
  "stretto[E45]: a call names a chunk or microbatch that is not there; keep chunks and microbatches "        \
  "between 0 and the numbers handed to run()"
#define STRETTO_E46                                                                                          \
  "stretto[E46]: a pass never runs; emit F once, and B, or I and W, once for every chunk and "               \
  "microbatch"
#define STRETTO_E47                                                                                          \
  "stretto[E47]: a pass runs twice; emit F once, and B, or I and W, once for every chunk and "               \
  "microbatch"
#define STRETTO_E48                                                                                          \
  "stretto[E48]: a call has a form that the pipeline does not declare; set pairs for overlapped pairs, "     \
  "splits for I and W apart"
#define STRETTO_E49                                                                                          \
  "stretto[E49]: the two halves of a pair belong to one microbatch, so one waits for the other; pair "       \
  "the forward with the backward of an earlier microbatch (one more warm-up forward does it)"
#define STRETTO_E50                                                                                          \
  "stretto[E50]: a pass runs before the pass of its own chunk that it needs; on one rank F comes "           \
  "before B or I, and I before W"
#define STRETTO_E51                                                                                          \
  "stretto[E51]: weight gradients of a chunk are not in ascending microbatch order; keep B and W of a "      \
  "chunk in microbatch order: sums of floats depend on it"
#define STRETTO_E52                                                                                          \
  "stretto[E52]: the ranks wait for each other in a circle; move the waiting call behind the calls "         \
  "that its input comes from"
#define STRETTO_E53                                                                                          \
  "stretto[E53]: more chunk activations are live than the pipeline promises; run backwards earlier, or "     \
  "raise peak_live"
#define STRETTO_E54                                                                                          \
  "stretto[E54]: a message has no other end, or nobody needs it; send every output that another rank "       \
  "reads once, receive it once, and send nothing between stages of one rank"
#define STRETTO_E55                                                                                          \
  "stretto[E55]: two ranks list their messages to each other in different orders; list the messages of "     \
  "a pair of ranks in one order at both ends"
#define STRETTO_E56                                                                                          \
  "stretto[E56]: a message is listed on the wrong side of its call; receive before the call that "           \
  "reads, send after the call that writes"
#define STRETTO_E57                                                                                          \
  "stretto[E57]: the messages wait for each other in a circle; place a receive before every send that "      \
  "is ready later"
#define STRETTO_E58                                                                                          \
  "stretto[E58]: ranks of one expert group issue expert communication in different orders; give every "      \
  "rank of an expert group the same pipeline, rank of the pipeline, microbatches and chunks"
#define STRETTO_E59                                                                                          \
  "stretto[E59]: the pipeline runs I and W apart, and the policy or the phases cannot; take a policy "       \
  "other than autograd and phases with backward_input and backward_weight, or a pipeline that does not "     \
  "split"

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

struct plan_rule {
  plan_fault what;
  char const* text; ///< `stretto[E40]: what is wrong; how to mend it`
};

/// The rules, in the order of their codes.
inline constexpr plan_rule plan_rules[] = {
    {plan_fault::size_out_of_range, STRETTO_E40}, {plan_fault::too_few_microbatches, STRETTO_E41},
    {plan_fault::not_a_multiple, STRETTO_E42},    {plan_fault::wrong_chunks, STRETTO_E43},
    {plan_fault::too_large, STRETTO_E44},         {plan_fault::no_such_place, STRETTO_E45},
    {plan_fault::missing, STRETTO_E46},           {plan_fault::doubled, STRETTO_E47},
    {plan_fault::undeclared_form, STRETTO_E48},   {plan_fault::dependent_pair, STRETTO_E49},
    {plan_fault::too_early, STRETTO_E50},         {plan_fault::weight_order, STRETTO_E51},
    {plan_fault::deadlock, STRETTO_E52},          {plan_fault::too_many_live, STRETTO_E53},
    {plan_fault::unmatched_message, STRETTO_E54}, {plan_fault::message_order, STRETTO_E55},
    {plan_fault::misplaced_message, STRETTO_E56}, {plan_fault::message_deadlock, STRETTO_E57},
    {plan_fault::group_order, STRETTO_E58},       {plan_fault::cannot_split, STRETTO_E59},
};

/// The rule of a fault; null for none.
constexpr plan_rule const* rule_of(plan_fault what) {
  for (plan_rule const& rule : plan_rules) {
    if (rule.what == what) return &rule;
  }
  return nullptr;
}

} // namespace v0
} // namespace stretto
