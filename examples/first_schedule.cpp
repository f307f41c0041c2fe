// A layer as phases, a schedule as a type, its program as text. Needs the core headers only.
#include <stretto/stretto.hpp>

#include <cstdio>

namespace st = stretto;

// What crosses between the phases.
struct hidden : st::value {};
struct tokens : st::value {};
struct probs : st::value {};
struct residual : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};
struct routing : st::metadata {
  using type = int;
};

struct Attention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens, probs, residual, routing>;
};
struct Dispatch : st::Phase<st::dispatch> {
  using reads = st::values<tokens, routing>;
  using writes = st::values<expert_in>;
};
struct Experts : st::Phase<st::mlp> {
  using reads = st::values<expert_in>;
  using writes = st::values<expert_out>;
};
struct Combine : st::Phase<st::combine> {
  using reads = st::values<expert_out, probs, residual, routing>;
  using writes = st::values<hidden>;
};

struct Layer : st::Block<Attention, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};
struct Step : st::Schedule<Layer, st::TwoStream1F1B, st::SplitDW> {};

// Swap the policy and the proof runs again; leave out a Detach and this does not compile.
static_assert(st::proof<Step>::holds);
static_assert(st::pair_program<Step>.waits() == 8);

int main() {
  std::puts("One microbatch forward (F) beside another one's backward (I, W; B where nothing is split):\n");
  std::fputs(st::to_text<Step>().c_str(), stdout);
}
