#pragma once

#include <stretto/detail/cxx20.hpp>

/// The one table of rules: what can be wrong with a block, a policy, a program, a plan or its messages, in words: the code
/// (stable, never reused), what is wrong, and behind the semicolon how to mend it. Compile-time errors, run-time exceptions
/// and the documentation all take their sentences from here; at run time the facts are put before the semicolon. They are
/// macros because a static_assert takes nothing but a literal before C++26.
// One look for all of them.
// clang-format off
#define STRETTO_E01 \
  "stretto[E01]: an op reads a value that no earlier op writes; order the op that writes it before the op " \
  "that reads it"
#define STRETTO_E02 \
  "stretto[E02]: an op touches a value that another lane uses, and nothing makes its lane wait; let the " \
  "program derive the wait"
#define STRETTO_E03 \
  "stretto[E03]: an op reads a value that was given back; order the reader first"
#define STRETTO_E04 \
  "stretto[E04]: a weight gradient runs before the input gradient of its node; name input(...) of the " \
  "phase before weight(...)"
#define STRETTO_E05 \
  "stretto[E05]: a pass of a node never runs; name the phase's kind in the policy"
#define STRETTO_E06 \
  "stretto[E06]: a pass of a node runs twice; name the phase's kind once"
#define STRETTO_E07 \
  "stretto[E07]: the policy runs two phases on different lanes, but no Detach cuts the block between them; " \
  "write First, Detach, Second"
#define STRETTO_E08 \
  "stretto[E08]: a backward written by hand lacks a half: SplitDW needs backward_input() and " \
  "backward_weight(), and neither goes without the other; write both, or say has_weights = false if the " \
  "phase has no parameters"
#define STRETTO_E09 \
  "stretto[E09]: an op waits for an op that is issued later; order the awaited op first"
#define STRETTO_E10 \
  "stretto[E10]: a phase uses a value that it does not declare; add it to the phase's reads"
#define STRETTO_E11 \
  "stretto[E11]: a phase assigns a value that it does not declare; add it to the phase's writes"
#define STRETTO_E12 \
  "stretto[E12]: a phase reads and writes a value of this name; say io.in(...) or io.out(...), " \
  "io.grad_in(...) or io.grad_out(...)"
#define STRETTO_E13 \
  "stretto[E13]: a weight pass uses metadata or an output, whose storage may be back already; keep what it " \
  "needs in io.saved()"
#define STRETTO_E14 \
  "stretto[E14]: two phases of a block write the same value; give the second one a name of its own"
#define STRETTO_E15 \
  "stretto[E15]: two nodes of a block read the same value of the layer before; let the first one hand it " \
  "on under a new name"
#define STRETTO_E16 \
  "stretto[E16]: a block reads a value that no phase before it and no block of the model writes; write it, " \
  "or mend its name"
#define STRETTO_E17 \
  "stretto[E17]: a block has more than 8 phases, 16 values, 22 reads or 4 values from other layers, a " \
  "policy more than 64 ops, or a model more than 4 limits on what is in flight; split the block in two, or " \
  "let its phases share a communicator"
#define STRETTO_E19 \
  "stretto[E19]: a schedule needs one layer policy (a type with static constexpr void " \
  "pair(pair_builder&)), at most one pipeline, and nothing else but SplitDW; write Schedule<Layer, " \
  "TwoStream1F1B> or the like"
#define STRETTO_E20 \
  "stretto[E20]: phases of one node mix a backward written by hand with one left to autograd; put a Detach " \
  "between them"
#define STRETTO_E21 \
  "stretto[E21]: a phase has only forward(), and the tensor adapter does not differentiate; write " \
  "backward(), or backward_input() and backward_weight()"
#define STRETTO_E22 \
  "stretto[E22]: the list of layers has another number of chunks than the pipeline runs; end each chunk " \
  "with next_chunk()"
#define STRETTO_E24 \
  "stretto[E24]: a block carries a value that it writes itself, or that none of its phases reads; leave it " \
  "out of carries, or read it under that name"
#define STRETTO_E25 \
  "stretto[E25]: a phase reads an objective, which backward starts from with a gradient of one; write what " \
  "is read as a value of its own beside it"
#define STRETTO_E26 \
  "stretto[E26]: a phase has no forward; write void forward(auto& io) in it"
#define STRETTO_E27 \
  "stretto[E27]: an item of a block is neither a phase nor Detach; derive it publicly from " \
  "stretto::Phase<kind>, not final, list it without const, volatile or &, and list blocks as " \
  "stretto::Blocks<...>"
#define STRETTO_E28 \
  "stretto[E28]: a phase or block lists something that is no value; derive it publicly from " \
  "stretto::value, objective or metadata, and list values as stretto::values<...>"
#define STRETTO_E29 \
  "stretto[E29]: metadata does not say what it holds; write using type = ... in it, a type that is default " \
  "constructible and movable"
#define STRETTO_E30 \
  "stretto[E30]: a phase saves a value that it does not have; name in saves only what stands in its reads " \
  "or writes"
#define STRETTO_E31 \
  "stretto[E31]: a block holds one phase type twice; derive a type of its own for the second"
#define STRETTO_E32 \
  "stretto[E32]: a phase keeps something in io.saved() and does not say what; write using saved = ... in it"
#define STRETTO_E33 \
  "stretto[E33]: a schedule or model is made of something that is no block; derive it publicly " \
  "from stretto::Block<...>, list blocks as stretto::Blocks<...>, and name the policies behind them"
#define STRETTO_E34 \
  "stretto[E34]: a model lists one block type twice; list it once, and add a layer for each use of it to " \
  "the list of layers"
#define STRETTO_E35 \
  "stretto[E35]: a block reads metadata that no phase of it wrote before, and metadata stays within its " \
  "layer; write it in a phase before the reader, or hand a value over instead"
#define STRETTO_E36 \
  "stretto[E36]: a node runs forward on one lane and backward on another, but autograd or a limit on what " \
  "is in flight ties it to one; name one lane for both, or write the backward of its phases by hand and " \
  "without a limit"
#define STRETTO_E37 \
  "stretto[E37]: more microbatches are between forward and backward of a phase than it allows; raise " \
  "in_flight of the phase and of its communicator, or take a policy or pipeline that runs backward earlier"
#define STRETTO_E38 \
  "stretto[E38]: a layer is added whose block type the model does not list; name it in the Blocks<...> of " \
  "the model"
#define STRETTO_E39 \
  "stretto[E39]: a phase aliases what is no pair of a value that it reads and a value that it writes for a " \
  "later phase of its block; write using aliases = stretto::values<read, written>, and give the layer " \
  "behind a copy"
#define STRETTO_E40 \
  "stretto[E40]: a size is out of range; take 1 to 4096 ranks, 1 to 1000000 microbatches and 1 to 1024 " \
  "chunks"
#define STRETTO_E41 \
  "stretto[E41]: the pipeline needs more microbatches than it is given; raise the microbatches, lower the " \
  "ranks, or take a pipeline without that minimum"
#define STRETTO_E42 \
  "stretto[E42]: the pipeline cannot divide these microbatches evenly; take a multiple of the number it " \
  "asks for"
#define STRETTO_E43 \
  "stretto[E43]: the pipeline does not serve this number of chunks; leave the chunks out to get its own " \
  "number, or take interleaved or interleaved_ep"
#define STRETTO_E44 \
  "stretto[E44]: stages times microbatches pass the limit of a plan that is held in memory; lower the " \
  "ranks, chunks or microbatches"
#define STRETTO_E45 \
  "stretto[E45]: a call names a chunk or microbatch that is not there; keep chunks and microbatches " \
  "between 0 and the numbers handed to run()"
#define STRETTO_E46 \
  "stretto[E46]: a pass never runs; emit F once, and B, or I and W, once for every chunk and microbatch"
#define STRETTO_E47 \
  "stretto[E47]: a pass runs twice; emit F once, and B, or I and W, once for every chunk and microbatch"
#define STRETTO_E48 \
  "stretto[E48]: a call has a form that the pipeline does not declare; set pairs for overlapped pairs, " \
  "splits for I and W apart"
#define STRETTO_E49 \
  "stretto[E49]: the two halves of a pair belong to one microbatch, so one waits for the other; pair the " \
  "forward with the backward of an earlier microbatch (one more warm-up forward does it)"
#define STRETTO_E50 \
  "stretto[E50]: a pass runs before the pass of its own chunk that it needs; on one rank F comes before B " \
  "or I, and I before W"
#define STRETTO_E51 \
  "stretto[E51]: weight gradients of a chunk are not in ascending microbatch order; keep B and W of a " \
  "chunk in microbatch order: sums of floats depend on it"
#define STRETTO_E52 \
  "stretto[E52]: the ranks wait for each other in a circle; move the waiting call behind the calls that " \
  "its input comes from"
#define STRETTO_E53 \
  "stretto[E53]: more chunk activations are live than the pipeline promises; run backwards earlier, or " \
  "raise peak_live"
#define STRETTO_E54 \
  "stretto[E54]: a message has no other end, or nobody needs it; send every output that another rank reads " \
  "once, receive it once, and send nothing between stages of one rank"
#define STRETTO_E55 \
  "stretto[E55]: two ranks list their messages to each other in different orders; list the messages of a " \
  "pair of ranks in one order at both ends"
#define STRETTO_E56 \
  "stretto[E56]: a message is listed on the wrong side of its call; receive before the call that reads, " \
  "send after the call that writes"
#define STRETTO_E57 \
  "stretto[E57]: the messages wait for each other in a circle; place a receive before every send that is " \
  "ready later"
#define STRETTO_E58 \
  "stretto[E58]: ranks of one expert group issue expert communication in different orders; give every rank " \
  "of an expert group the same pipeline, rank of the pipeline, microbatches and chunks"
#define STRETTO_E59 \
  "stretto[E59]: the pipeline runs I and W apart, and the policy or the phases cannot; take a policy other " \
  "than autograd and phases with backward_input and backward_weight, or a pipeline that does not split"
#define STRETTO_E60 \
  "stretto[E60]: the plan has no such rank; take a rank from 0 to the number of ranks less one"
#define STRETTO_E61 \
  "stretto[E61]: stages before or behind lie on other ranks, and the backend has no peers; give " \
  "stretto::backend the adapter that carries messages, such as host::peers, as its third argument"
#define STRETTO_E62 \
  "stretto[E62]: an executor is given layers of another model than that of its schedule; make them as " \
  "layer_list<Step::model> of the schedule Step"
#define STRETTO_E63 \
  "stretto[E63]: a microbatch enters the slot of an earlier one, of which a pass may still run on another " \
  "lane; let the policy run that pass on the lane of the op that hands the gradient to the layer before"
#define STRETTO_E64 \
  "stretto[E64]: a Recompute spans a Detach, or a part of a node only; write one Recompute for the phases " \
  "of each node, and a Detach before and behind it"
#define STRETTO_E65 \
  "stretto[E65]: no phase of the model writes an objective, so backward has nothing to start from and trains " \
  "nothing; derive the loss from stretto::objective"
#define STRETTO_E66 \
  "stretto[E66]: a layer or message reads a value that no layer before it hands on; add a layer before it " \
  "that writes or carries the value"
#define STRETTO_E67 \
  "stretto[E67]: a layer or message needs the gradient of a value that no layer behind it reads; add a layer " \
  "behind it that reads or carries the value"
#define STRETTO_E68 \
  "stretto[E68]: a layer is given other phases than its block lists, or in another order; give layer<...> one " \
  "of each, in the order of the block"
#define STRETTO_E69 \
  "stretto[E69]: a backward uses a value that its phase does not save, so its storage is back by then; name it " \
  "in the phase's saves"
#define STRETTO_E70 \
  "stretto[E70]: a pass of a phase is nothing that can be called with io; write public void forward(auto& io), " \
  "and backward, backward_input and backward_weight likewise"
#define STRETTO_E71 \
  "stretto[E71]: has_weights or in_flight of a phase, or in_flight of its communicator, is no constant or missing; " \
  "write static constexpr bool has_weights = ..., static constexpr int in_flight = ..."
#define STRETTO_E72 \
  "stretto[E72]: what a phase keeps in io.saved() has no empty state; make its type saved default constructible " \
  "and assignable"
#define STRETTO_E73 \
  "stretto[E73]: a phase uses a gradient where there is none: in forward, or in backward_weight that of a value " \
  "that it reads; make it in backward or backward_input, and keep in io.saved() what else needs it"
#define STRETTO_E74 \
  "stretto[E74]: the ranks of a run are given sizes that do not fit together; give all of them the same " \
  "microbatches, ranks and chunks, and every rank of the pipeline to equally many"

/// Every rule: its code, and its name here, in `fault` and in namespace `error`.
#define STRETTO_RULES(rule) \
  rule(E01, unwritten_read) rule(E02, race) rule(E03, read_after_release) rule(E04, weight_before_input) \
  rule(E05, missing_node) rule(E06, doubled_node) rule(E07, missing_cut) rule(E08, no_backward_weight) \
  rule(E09, wait_on_later) rule(E10, undeclared_read) rule(E11, undeclared_write) \
  rule(E12, ambiguous_name) rule(E13, gone_before_weight_pass) rule(E14, written_twice) \
  rule(E15, input_of_two_nodes) rule(E16, never_produced) rule(E17, too_large) rule(E19, not_a_policy) \
  rule(E20, mixed_backward) rule(E21, needs_autograd) rule(E22, wrong_chunks) rule(E24, carried_wrongly) \
  rule(E25, objective_read) rule(E26, no_forward) rule(E27, not_a_phase) rule(E28, not_a_value) \
  rule(E29, metadata_without_type) rule(E30, saves_unlisted) rule(E31, phase_twice) \
  rule(E32, saved_without_type) rule(E33, not_a_block) rule(E34, block_twice) rule(E35, metadata_crosses) \
  rule(E36, backward_leaves_lane) rule(E37, too_many_in_flight) rule(E38, unknown_block) \
  rule(E39, aliased_wrongly) \
  rule(E40, size_out_of_range) rule(E41, too_few_microbatches) rule(E42, not_a_multiple) \
  rule(E43, unserved_chunks) rule(E44, plan_too_large) rule(E45, no_such_place) rule(E46, missing) \
  rule(E47, doubled) rule(E48, undeclared_form) rule(E49, dependent_pair) rule(E50, too_early) \
  rule(E51, weight_order) rule(E52, deadlock) rule(E53, too_many_live) rule(E54, unmatched_message) \
  rule(E55, message_order) rule(E56, misplaced_message) rule(E57, message_deadlock) rule(E58, group_order) \
  rule(E59, cannot_split) rule(E60, no_such_rank) rule(E61, no_peers) \
  rule(E62, other_model) rule(E63, slot_in_use) rule(E64, recompute_spans_cut) \
  rule(E65, no_objective) rule(E66, no_layer_before) rule(E67, no_layer_behind) \
  rule(E68, wrong_phases) rule(E69, unsaved_read) rule(E70, uncallable) \
  rule(E71, no_constant) rule(E72, unfit_saved) rule(E73, no_gradient) rule(E74, unequal_sizes)
// clang-format on

namespace stretto {
inline namespace v0 {

/// What can be wrong.
enum class fault : unsigned char {
  none,
#define STRETTO_RULE(code, name) name,
  STRETTO_RULES(STRETTO_RULE)
#undef STRETTO_RULE
};

struct rule {
  fault what;
  char const* name;
  char const* code;
  char const* sentence; ///< `stretto[E01]: what is wrong; how to mend it`
};

/// The rules, in the order of their codes.
inline constexpr rule rules[] = {
#define STRETTO_RULE(code, name) {fault::name, #name, #code, STRETTO_##code},
    STRETTO_RULES(STRETTO_RULE)
#undef STRETTO_RULE
};

/// The rule of a fault that is not `none`.
constexpr rule const& rule_of(fault what) { return rules[static_cast<int>(what) - 1]; }

} // namespace v0
} // namespace stretto
