#pragma once

/// The one table of rules: what can be wrong with a block, a policy or a program, in words: the code (stable), what is
/// wrong, how to mend it. Compile-time errors, run-time exceptions and the documentation all take their sentences from
/// here; they are macros because a static_assert takes nothing but a literal before C++26.
#define STRETTO_E01 \
  "stretto[E01]: an op reads a value that no earlier op writes; order the op that writes it before the " \
  "op that reads it"
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
  "stretto[E07]: the policy runs two phases on different lanes, but no Detach cuts the block between " \
  "them; write First, Detach, Second"
#define STRETTO_E08 \
  "stretto[E08]: a backward written by hand lacks a half: SplitDW needs backward_input() and backward_weight(), and " \
  "neither goes without the other; write both, or say has_weights = false if the phase has no parameters"
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
  "stretto[E15]: two nodes of a block read the same value of the layer before; let the first one hand " \
  "it on under a new name"
#define STRETTO_E16 \
  "stretto[E16]: a block reads a value that no phase before it and no block of the model writes; write " \
  "it, or mend its name"
#define STRETTO_E17 \
  "stretto[E17]: a block has more than 8 phases, 16 values, 22 reads or 4 values from other layers, or " \
  "a policy more than 64 ops; split the block in two"
#define STRETTO_E18 \
  "stretto[E18]: weight gradients of a layer do not run in ascending order of the microbatches; keep " \
  "the queue of weight gradients first in, first out"
#define STRETTO_E19 \
  "stretto[E19]: a schedule needs one layer policy (a type with static constexpr void " \
  "pair(pair_builder&)), at most one pipeline, and nothing else but SplitDW; write Schedule<Layer, " \
  "TwoStream1F1B> or the like"
#define STRETTO_E20 \
  "stretto[E20]: phases of one node mix a backward written by hand with one left to autograd; put a Detach " \
  "between them"
#define STRETTO_E21 \
  "stretto[E21]: a phase has only forward(), and the tensor adapter does not differentiate; write backward(), " \
  "or backward_input() and backward_weight()"
#define STRETTO_E22 \
  "stretto[E22]: the list of layers has another number of chunks than the pipeline runs; end each chunk with " \
  "next_chunk()"
#define STRETTO_E24 \
  "stretto[E24]: a block carries a value that it writes itself, or that none of its phases reads; leave it out of " \
  "carries, or read it under that name"
#define STRETTO_E25 \
  "stretto[E25]: a phase reads an objective, which backward starts from with a gradient of one; write what is read " \
  "as a value of its own beside it"

namespace stretto {
inline namespace v0 {

enum class fault : unsigned char {
  none,
  unwritten_read,
  race,
  read_after_release,
  weight_before_input,
  missing_node,
  doubled_node,
  missing_cut,
  no_backward_weight,
  wait_on_later,
  undeclared_read,
  undeclared_write,
  ambiguous_name,
  gone_before_weight_pass,
  written_twice,
  input_of_two_nodes,
  never_produced,
  too_large,
  weights_out_of_order,
  not_a_policy,
  mixed_backward,
  needs_autograd,
  wrong_chunks,
  carried_wrongly,
  objective_read,
};

struct rule {
  fault what;
  char const* name;
  char const* code;
  char const* sentence;
};

inline constexpr rule rules[] = {
    {fault::unwritten_read, "unwritten_read", "E01", STRETTO_E01},
    {fault::race, "race", "E02", STRETTO_E02},
    {fault::read_after_release, "read_after_release", "E03", STRETTO_E03},
    {fault::weight_before_input, "weight_before_input", "E04", STRETTO_E04},
    {fault::missing_node, "missing_node", "E05", STRETTO_E05},
    {fault::doubled_node, "doubled_node", "E06", STRETTO_E06},
    {fault::missing_cut, "missing_cut", "E07", STRETTO_E07},
    {fault::no_backward_weight, "no_backward_weight", "E08", STRETTO_E08},
    {fault::wait_on_later, "wait_on_later", "E09", STRETTO_E09},
    {fault::undeclared_read, "undeclared_read", "E10", STRETTO_E10},
    {fault::undeclared_write, "undeclared_write", "E11", STRETTO_E11},
    {fault::ambiguous_name, "ambiguous_name", "E12", STRETTO_E12},
    {fault::gone_before_weight_pass, "gone_before_weight_pass", "E13", STRETTO_E13},
    {fault::written_twice, "written_twice", "E14", STRETTO_E14},
    {fault::input_of_two_nodes, "input_of_two_nodes", "E15", STRETTO_E15},
    {fault::never_produced, "never_produced", "E16", STRETTO_E16},
    {fault::too_large, "too_large", "E17", STRETTO_E17},
    {fault::weights_out_of_order, "weights_out_of_order", "E18", STRETTO_E18},
    {fault::not_a_policy, "not_a_policy", "E19", STRETTO_E19},
    {fault::mixed_backward, "mixed_backward", "E20", STRETTO_E20},
    {fault::needs_autograd, "needs_autograd", "E21", STRETTO_E21},
    {fault::wrong_chunks, "wrong_chunks", "E22", STRETTO_E22},
    {fault::carried_wrongly, "carried_wrongly", "E24", STRETTO_E24},
    {fault::objective_read, "objective_read", "E25", STRETTO_E25},
};

constexpr rule const& rule_of(fault what) {
  for (rule const& r : rules)
    if (r.what == what) return r;
  return rules[0];
}

}  // namespace v0
}  // namespace stretto
