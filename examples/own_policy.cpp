// A layer policy of one's own: ordinary constexpr code. The verb is the lane, the order of the lines is the order in which
// the host issues the ops; what waits for what follows from what the phases read and write.
#include <stretto/stretto.hpp>

#include <cstdio>

namespace st = stretto;

struct hidden : st::value {};
struct tokens : st::value {};
struct residual : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};

struct Attention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens, residual>;
};
struct Dispatch : st::Phase<st::dispatch> {
  using reads = st::values<tokens>;
  using writes = st::values<expert_in>;
};
struct Experts : st::Phase<st::mlp> {
  using reads = st::values<expert_in>;
  using writes = st::values<expert_out>;
};
struct Combine : st::Phase<st::combine> {
  using reads = st::values<expert_out, residual>;
  using writes = st::values<hidden>;
};
struct Layer : st::Block<Attention, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};

/// Attention's backward before the experts' forward: its activations go back earlier, and more communication is exposed.
struct EarlyAttention {
  static constexpr void pair(st::pair_builder& p) {
    p.comm(p.b.backward(st::combine));
    p.compute(p.f.forward(st::attn), p.b.input(st::mlp));
    p.comm(p.b.backward(st::dispatch), p.f.forward(st::dispatch));
    p.compute(p.b.weight(st::mlp), p.b.input(st::attn), p.f.forward(st::mlp));
    p.comm(p.f.forward(st::combine));
    p.compute(p.b.weight(st::attn));
  }
};

struct Step : st::Schedule<Layer, EarlyAttention, st::SplitDW> {};
static_assert(st::proof<Step>::holds);

int main() { std::fputs(st::to_text<Step>().c_str(), stdout); }
