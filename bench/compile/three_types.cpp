// What the compiler is timed with: an executor over null adapters for a model of three block types, pairs and halves. With
// UNPROVED nothing is proved: not the schedule, not its bodies, and not the table of the executor.
#include <stretto/adapters/null.hpp>
#include <stretto/executor.hpp>
#include <stretto/pipelines/all.hpp>

namespace model {

namespace st = stretto;

struct hidden : st::value {};
struct tokens : st::value {};
struct probs : st::value {};
struct residual : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};
struct normed : st::value {};
struct loss : st::objective {};
struct routing : st::metadata {
  using type = int;
};

/// A phase whose code is elsewhere, as that of a real one is.
template <class Self> struct Elsewhere {
  static void call(void* io);
  void forward(auto& io) { call(&io); }
  void backward_input(auto& io) { call(&io); }
  void backward_weight(auto& io) { call(&io); }
};

struct Attention : st::Phase<st::attn>, Elsewhere<Attention> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens, probs, residual, routing>;
};
struct Dispatch : st::Phase<st::dispatch>, Elsewhere<Dispatch> {
  using reads = st::values<tokens, routing>;
  using writes = st::values<expert_in>;
};
struct Experts : st::Phase<st::mlp>, Elsewhere<Experts> {
  using reads = st::values<expert_in>;
  using writes = st::values<expert_out>;
};
struct Combine : st::Phase<st::combine>, Elsewhere<Combine> {
  using reads = st::values<expert_out, probs, residual, routing>;
  using writes = st::values<hidden>;
};
struct DenseAttention : st::Phase<st::attn>, Elsewhere<DenseAttention> {
  using reads = st::values<hidden>;
  using writes = st::values<normed, residual>;
};
struct DenseMlp : st::Phase<st::mlp>, Elsewhere<DenseMlp> {
  using reads = st::values<normed, residual>;
  using writes = st::values<hidden>;
};
struct Head : st::Phase<st::mlp>, Elsewhere<Head> {
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
};

struct MoeLayer : st::Block<Attention, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};
struct DenseLayer : st::Block<DenseAttention, st::Detach, DenseMlp> {};
struct HeadLayer : st::Block<Head> {};
struct Model : st::Blocks<MoeLayer, DenseLayer, HeadLayer> {};
struct Step : st::Schedule<Model, st::TwoStream1F1B, st::SplitDW, st::DualPipeV> {};

} // namespace model

#ifdef UNPROVED
namespace stretto {
inline namespace v0 {
template <form What, int Forward, int Backward> struct draft_of<model::Step, What, Forward, Backward> {
  static constexpr detail::draft value = model::Step::make_body<What, Forward, Backward>();
};
} // namespace v0
} // namespace stretto
#define PROVED_OR_NOT stretto::unproved{},
#else
#define PROVED_OR_NOT
#endif

void train(stretto::layer_list<model::Model>& layers, int microbatches) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(PROVED_OR_NOT model::Step{}, stretto::backend{tensors, lanes}, layers,
                        stretto::sizes{.microbatches = microbatches});
  run();
}
