// The bodies of a schedule beside what one would write by hand with the same objects: phases, lanes and releases are calls
// that the compiler cannot look into.
#include <stretto/adapters/null.hpp>
#include <stretto/executor.hpp>

extern "C" {
void attn_forward(void const*, void*, int);
void attn_input(void*, int);
void attn_weight(void*, int);
void dispatch_forward(void const*, void*, int);
void dispatch_backward(void*, int);
void mlp_forward(void const*, void*, int);
void mlp_input(void*, int);
void mlp_weight(void*, int);
void combine_forward(void const*, void*, int);
void combine_backward(void*, int);
void dense_attn_forward(void const*, void*, int);
void dense_attn_input(void*, int);
void dense_attn_weight(void*, int);
void dense_mlp_forward(void const*, void*, int);
void dense_mlp_input(void*, int);
void dense_mlp_weight(void*, int);
void lane_run(int, int, int, int, int);
void lane_record(int, void*);
void lane_wait(int, void*);
}

namespace us {

namespace st = stretto;

struct hidden : st::value {};
struct tokens : st::value {};
struct residual : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};
struct routing : st::metadata {
  struct type {};
};

struct Attention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens, residual, routing>;
  void forward(auto& io) { attn_forward(&io[hidden{}], &io[tokens{}], io.microbatch()); }
  void backward_input(auto& io) { attn_input(&io.grad(hidden{}), io.microbatch()); }
  void backward_weight(auto& io) { attn_weight(this, io.microbatch()); }
};
struct Dispatch : st::Phase<st::dispatch> {
  using reads = st::values<tokens, routing>;
  using writes = st::values<expert_in>;
  void forward(auto& io) { dispatch_forward(&io[tokens{}], &io[expert_in{}], io.layer()); }
  void backward(auto& io) { dispatch_backward(&io.grad(tokens{}), io.layer()); }
};
struct Experts : st::Phase<st::mlp> {
  using reads = st::values<expert_in>;
  using writes = st::values<expert_out>;
  void forward(auto& io) { mlp_forward(&io[expert_in{}], &io[expert_out{}], io.microbatch()); }
  void backward_input(auto& io) { mlp_input(&io.grad(expert_in{}), io.microbatch()); }
  void backward_weight(auto& io) { mlp_weight(this, io.microbatch()); }
};
struct Combine : st::Phase<st::combine> {
  using reads = st::values<expert_out, residual, routing>;
  using writes = st::values<hidden>;
  void forward(auto& io) { combine_forward(&io[expert_out{}], &io[hidden{}], io.layer()); }
  void backward(auto& io) { combine_backward(&io.grad(expert_out{}), io.layer()); }
};
struct DenseAttention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens>;
  void forward(auto& io) { dense_attn_forward(&io[hidden{}], &io[tokens{}], io.microbatch()); }
  void backward_input(auto& io) { dense_attn_input(&io.grad(hidden{}), io.microbatch()); }
  void backward_weight(auto& io) { dense_attn_weight(this, io.microbatch()); }
};
struct DenseMlp : st::Phase<st::mlp> {
  using reads = st::values<tokens>;
  using writes = st::values<hidden>;
  void forward(auto& io) { dense_mlp_forward(&io[tokens{}], &io[hidden{}], io.microbatch()); }
  void backward_input(auto& io) { dense_mlp_input(&io.grad(tokens{}), io.microbatch()); }
  void backward_weight(auto& io) { dense_mlp_weight(this, io.microbatch()); }
};

struct Moe : st::Block<Attention, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};
struct Dense : st::Block<DenseAttention, st::Detach, DenseMlp> {};
struct Model : st::Blocks<Moe, Dense> {};
struct Step : st::Schedule<Model, st::TwoStream1F1B, st::SplitDW> {};

struct lanes {
  struct event {
    int number;
  };
  template <class Task> STRETTO_ALWAYS_INLINE void run(st::lane on, st::op_label const& op, Task task) const {
    lane_run(static_cast<int>(on), static_cast<int>(op.phase), static_cast<int>(op.what), op.layer,
             op.microbatch);
    task();
  }
  STRETTO_ALWAYS_INLINE void record(st::lane on, event& e) const { lane_record(static_cast<int>(on), &e); }
  STRETTO_ALWAYS_INLINE void wait(st::lane on, event& e) const { lane_wait(static_cast<int>(on), &e); }
  void drain() const {}
};

using context = st::detail::body_context<st::null_tensors, lanes, st::no_peers<st::null_tensors::tensor>>;
using side = context::side;
template <st::form F, int Forward, int Backward>
using body = st::detail::body_code<Step, F, Forward, Backward, st::null_tensors, lanes,
                                   st::no_peers<st::null_tensors::tensor>>;

// A slot of null tensors holds nothing but the bytes that keep its members apart, and a body needs four events at most.
static_assert(std::is_trivially_destructible_v<st::slot<Model, 0, st::null_tensors>>);
static_assert(sizeof(st::slot<Model, 0, st::null_tensors>) <= 96);
static_assert(sizeof(st::io<Model, 0, 0, st::null_tensors>) == sizeof(void*) + 2 * sizeof(int));
static_assert(body<st::form::forward_backward, 0, 0>::events.count == 2);
static_assert(
    std::is_trivially_copyable_v<st::detail::node_task<Model, 0, 0, st::pass::forward, st::null_tensors>>);
static_assert(sizeof(st::detail::node_task<Model, 0, 0, st::pass::forward, st::null_tensors>) <= 64);

// What both sides of the comparison call by hand.
constexpr int moe = 0, dense = 1;
constexpr st::lane compute = st::lane::compute, comm = st::lane::comm;

STRETTO_ALWAYS_INLINE void come_in(context& c, side& s, st::lane on) {
  if ((s.known & bit_of(on)) == 0) c.lanes.wait(on, *s.after);
}
STRETTO_ALWAYS_INLINE void hand_over(context& c, side& s, st::lane on) { c.lanes.record(on, *s.event); }
/// Queues one pass of phase `Number` of a block on a lane: what an expert's helper would do, too. What goes back before
/// an op and behind it are lists made before the step.
template <int K, int Number, st::pass What, class Call>
STRETTO_ALWAYS_INLINE void queue(context& c, side const& s, st::phase_kind kind, st::lane on, int number,
                                 Call call) {
  using block = Model::block<K>;
  c.lanes.run(on, st::op_label{kind, What, on, s.index, s.microbatch},
              [tensors = &c.tensors, phases = static_cast<st::layer<block>*>(s.phases),
               state = static_cast<st::slot<Model, K, st::null_tensors>*>(s.state), index = s.index,
               microbatch = s.microbatch, releases = c.releases + 2 * number, call]() STRETTO_INLINE_LAMBDA {
                for (auto const *r = releases[0], *last = releases[1]; r != last; ++r) (*r)(*tensors);
                // Whole backwards and input halves see the same.
                constexpr st::pass in = What == st::pass::backward_input ? st::pass::backward : What;
                st::io<Model, K, Number, st::null_tensors, in> view(*state, index, microbatch);
                call(phases->template at<Number>(), view);
                for (auto const *r = releases[1], *last = releases[2]; r != last; ++r) (*r)(*tensors);
              });
}

} // namespace us

using namespace us;
using stretto::form;
using stretto::pass;

// The four calls, as things to hand over.
constexpr auto forward = [](auto& phase, auto& io) STRETTO_INLINE_LAMBDA { phase.forward(io); };
constexpr auto backward = [](auto& phase, auto& io) STRETTO_INLINE_LAMBDA { phase.backward(io); };
constexpr auto backward_input = [](auto& phase, auto& io) STRETTO_INLINE_LAMBDA { phase.backward_input(io); };
constexpr auto backward_weight = [](auto& phase, auto& io)
                                     STRETTO_INLINE_LAMBDA { phase.backward_weight(io); };

extern "C" {

[[gnu::flatten]] void stretto_moe_pair(context& c) {
  body<form::forward_backward, moe, moe>::run(c, body<form::forward_backward, moe, moe>::rows());
}
void hand_moe_pair(context& c) {
  come_in(c, c.b, comm);
  queue<moe, 3, pass::backward>(c, c.b, st::combine, comm, 0, backward);
  c.lanes.record(comm, c.events[0]);

  come_in(c, c.f, compute);
  queue<moe, 0, pass::forward>(c, c.f, st::attn, compute, 1, forward);
  c.lanes.record(compute, c.events[1]);

  c.lanes.wait(compute, c.events[0]);
  queue<moe, 2, pass::backward_input>(c, c.b, st::mlp, compute, 2, backward_input);
  c.lanes.record(compute, c.events[0]);

  c.lanes.wait(comm, c.events[1]);
  queue<moe, 1, pass::forward>(c, c.f, st::dispatch, comm, 3, forward);
  c.lanes.record(comm, c.events[1]);

  c.lanes.wait(comm, c.events[0]);
  queue<moe, 1, pass::backward>(c, c.b, st::dispatch, comm, 4, backward);
  c.lanes.record(comm, c.events[0]);

  queue<moe, 2, pass::backward_weight>(c, c.b, st::mlp, compute, 5, backward_weight);

  c.lanes.wait(compute, c.events[1]);
  queue<moe, 2, pass::forward>(c, c.f, st::mlp, compute, 6, forward);
  c.lanes.record(compute, c.events[1]);

  c.lanes.wait(comm, c.events[1]);
  queue<moe, 3, pass::forward>(c, c.f, st::combine, comm, 7, forward);
  hand_over(c, c.f, comm);

  c.lanes.wait(compute, c.events[0]);
  queue<moe, 0, pass::backward_input>(c, c.b, st::attn, compute, 8, backward_input);
  hand_over(c, c.b, compute);

  queue<moe, 0, pass::backward_weight>(c, c.b, st::attn, compute, 9, backward_weight);
  c.releases += 20;
}

[[gnu::flatten]] void stretto_dense_pair(context& c) {
  body<form::forward_backward, dense, dense>::run(c, body<form::forward_backward, dense, dense>::rows());
}
void hand_dense_pair(context& c) {
  come_in(c, c.f, compute);
  queue<dense, 0, pass::forward>(c, c.f, st::attn, compute, 0, forward);

  come_in(c, c.b, compute);
  queue<dense, 1, pass::backward_input>(c, c.b, st::mlp, compute, 1, backward_input);

  queue<dense, 1, pass::backward_weight>(c, c.b, st::mlp, compute, 2, backward_weight);

  queue<dense, 1, pass::forward>(c, c.f, st::mlp, compute, 3, forward);
  hand_over(c, c.f, compute);

  queue<dense, 0, pass::backward_input>(c, c.b, st::attn, compute, 4, backward_input);
  hand_over(c, c.b, compute);

  queue<dense, 0, pass::backward_weight>(c, c.b, st::attn, compute, 5, backward_weight);
  c.releases += 12;
}

[[gnu::flatten]] void stretto_moe_forward(context& c) {
  body<form::forward, moe, -1>::run(c, body<form::forward, moe, -1>::rows());
}
void hand_moe_forward(context& c) {
  come_in(c, c.f, compute);
  queue<moe, 0, pass::forward>(c, c.f, st::attn, compute, 0, forward);
  c.lanes.record(compute, c.events[0]);

  c.lanes.wait(comm, c.events[0]);
  queue<moe, 1, pass::forward>(c, c.f, st::dispatch, comm, 1, forward);
  c.lanes.record(comm, c.events[0]);

  c.lanes.wait(compute, c.events[0]);
  queue<moe, 2, pass::forward>(c, c.f, st::mlp, compute, 2, forward);
  c.lanes.record(compute, c.events[0]);

  c.lanes.wait(comm, c.events[0]);
  queue<moe, 3, pass::forward>(c, c.f, st::combine, comm, 3, forward);
  hand_over(c, c.f, comm);
  c.releases += 8;
}

[[gnu::flatten]] void stretto_moe_input(context& c) {
  body<form::backward_input, -1, moe>::run(c, body<form::backward_input, -1, moe>::rows());
}
void hand_moe_input(context& c) {
  come_in(c, c.b, comm);
  queue<moe, 3, pass::backward>(c, c.b, st::combine, comm, 0, backward);
  c.lanes.record(comm, c.events[0]);

  c.lanes.wait(compute, c.events[0]);
  queue<moe, 2, pass::backward_input>(c, c.b, st::mlp, compute, 1, backward_input);
  c.lanes.record(compute, c.events[0]);

  c.lanes.wait(comm, c.events[0]);
  queue<moe, 1, pass::backward>(c, c.b, st::dispatch, comm, 2, backward);
  c.lanes.record(comm, c.events[0]);

  c.lanes.wait(compute, c.events[0]);
  queue<moe, 0, pass::backward_input>(c, c.b, st::attn, compute, 3, backward_input);
  hand_over(c, c.b, compute);
  c.releases += 8;
}

[[gnu::flatten]] void stretto_moe_weight(context& c) {
  body<form::backward_weight, -1, moe>::run(c, body<form::backward_weight, -1, moe>::rows());
}
void hand_moe_weight(context& c) {
  come_in(c, c.b, compute);
  queue<moe, 2, pass::backward_weight>(c, c.b, st::mlp, compute, 0, backward_weight);

  queue<moe, 0, pass::backward_weight>(c, c.b, st::attn, compute, 1, backward_weight);
  c.releases += 4;
}

[[gnu::flatten]] void stretto_dense_backward(context& c) {
  body<form::backward, -1, dense>::run(c, body<form::backward, -1, dense>::rows());
}
void hand_dense_backward(context& c) {
  come_in(c, c.b, compute);
  queue<dense, 1, pass::backward_input>(c, c.b, st::mlp, compute, 0, backward_input);

  queue<dense, 1, pass::backward_weight>(c, c.b, st::mlp, compute, 1, backward_weight);

  queue<dense, 0, pass::backward_input>(c, c.b, st::attn, compute, 2, backward_input);
  hand_over(c, c.b, compute);

  queue<dense, 0, pass::backward_weight>(c, c.b, st::attn, compute, 3, backward_weight);
  c.releases += 8;
}

} // extern "C"
