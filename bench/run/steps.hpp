#pragma once

#include "work.hpp"

#include <stretto/adapters/null.hpp>
#include <stretto/executor.hpp>

#include <functional>
#include <vector>

/// One step of a model in four ways: by the executor, by a loop that one would write by hand, by a loop over the table of ops,
/// and by a list of std::function.
namespace steps {

namespace st = stretto;

struct hidden : st::value {};
struct tokens : st::value {};
struct residual : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};
struct loss : st::objective {};

template <st::phase_kind Kind> struct Work : st::Phase<Kind> {
  static constexpr int place = static_cast<int>(Kind);
  void forward(auto& io) { phase_work(&io, place); }
  void backward_input(auto& io) { phase_work(&io, 8 + place); }
  void backward_weight(auto& io) { phase_work(&io, 16 + place); }
};
struct Embed : Work<st::attn> {
  using writes = st::values<hidden>;
};
struct Attention : Work<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens, residual>;
};
struct Dispatch : Work<st::dispatch> {
  using reads = st::values<tokens>;
  using writes = st::values<expert_in>;
};
struct Experts : Work<st::mlp> {
  using reads = st::values<expert_in>;
  using writes = st::values<expert_out>;
};
struct Combine : Work<st::combine> {
  using reads = st::values<expert_out, residual>;
  using writes = st::values<hidden>;
};
struct Head : Work<st::mlp> {
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
};

struct EmbedLayer : st::Block<Embed> {};
struct MoeLayer : st::Block<Attention, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};
struct HeadLayer : st::Block<Head> {};
struct Model : st::Blocks<EmbedLayer, MoeLayer, HeadLayer> {};
struct Step : st::Schedule<Model, st::TwoStream1F1B, st::SplitDW> {};

struct opaque_lanes {
  struct event {
    int number = 0;
  };
  template <class Task> STRETTO_ALWAYS_INLINE void run(st::lane on, st::op_label const& op, Task task) const {
    lane_begin(static_cast<int>(on), op.layer);
    task();
  }
  STRETTO_ALWAYS_INLINE void record(st::lane on, event& e) const { lane_record(static_cast<int>(on), &e); }
  STRETTO_ALWAYS_INLINE void wait(st::lane on, event& e) const { lane_wait(static_cast<int>(on), &e); }
  void drain() const {}
};

using tensors = st::null_tensors;
using context = st::detail::body_context<tensors, opaque_lanes, st::no_peers<tensors::tensor>>;
template <st::form F, int Forward, int Backward>
using body =
    st::detail::body_code<Step, F, Forward, Backward, tensors, opaque_lanes, st::no_peers<tensors::tensor>>;

inline st::layer_list<Model> make_layers(int moe_layers) {
  st::layer_list<Model> layers;
  layers.add(st::layer<EmbedLayer>(Embed()));
  for (int i = 0; i < moe_layers; ++i)
    layers.add(st::layer<MoeLayer>(Attention(), Dispatch(), Experts(), Combine()));
  layers.add(st::layer<HeadLayer>(Head()));
  return layers;
}

/// The step as a loop over layers and microbatches around the bodies: two microbatches in flight, and the same dispatch on
/// block types as the executor.
class by_hand {
public:
  by_hand(int moe_layers, int microbatches)
      : layers_(make_layers(moe_layers)), microbatches_(microbatches), last_(layers_.size() - 1) {
    for (int s = 0; s < 2; ++s) {
      embed_[s].resize(1);
      moe_[s].resize(static_cast<unsigned>(moe_layers));
      head_[s].resize(1);
    }
    for (int l = 0; l <= last_; ++l) {
      auto const at = layers_[l];
      entry e;
      e.type = at.type;
      e.phases = layers_.address(l);
      unsigned const index = static_cast<unsigned>(at.index);
      for (int s = 0; s < 2; ++s) {
        if (at.type == 0) e.state[s] = &embed_[s][index];
        if (at.type == 1) e.state[s] = &moe_[s][index];
        if (at.type == 2) e.state[s] = &head_[s][index];
      }
      chain_.push_back(e);
    }
    releases_.resize(64, nullptr);
  }

  void operator()() {
    forwards(0);
    for (int m = 1; m < microbatches_; ++m) {
      int const f = m % 2, b = 1 - f;
      forward_[f] = {};
      backward_[b] = forward_[b];
      forward(0, m);
      backward(last_, m - 1);
      for (int k = 1; k < last_; ++k) pair(k, f, m, last_ - k, b, m - 1);
      forward(last_, m);
      backward(0, m - 1);
    }
    backwards(microbatches_ - 1);
  }

private:
  struct entry {
    int type = 0;
    void* phases = nullptr;
    st::boundary<tensors::tensor>* state[2] = {};
  };
  /// What spoke last for a microbatch, and the lanes that need not wait for it.
  struct port {
    opaque_lanes::event* event = nullptr;
    unsigned known = ~0U;
  };

  context make() { return {tensors_, lanes_, nullptr, events_, releases_.data(), {}, {}}; }
  void fill(context::side& s, int layer, int slot, int microbatch, port const& through,
            opaque_lanes::event& e) {
    entry& at = chain_[static_cast<unsigned>(layer)];
    s.phases = at.phases;
    s.state = at.state[slot];
    s.next = layer < last_ ? chain_[static_cast<unsigned>(layer + 1)].state[slot] : &end_[slot];
    s.after = through.event;
    s.known = through.known;
    s.event = &e;
    s.index = layer;
    s.microbatch = microbatch;
  }
  template <class Body> static void go(context& c, port* f, port* b) {
    Body::run(c);
    constexpr auto const& ops = Body::table::value.ops;
    if constexpr (Body::exports_forward >= 0) *f = {c.f.event, bit_of(ops[Body::exports_forward].on)};
    if constexpr (Body::exports_backward >= 0) *b = {c.b.event, bit_of(ops[Body::exports_backward].on)};
  }
  void pair(int f, int f_slot, int f_microbatch, int b, int b_slot, int b_microbatch) {
    context c = make();
    fill(c.f, f, f_slot, f_microbatch, forward_[f_slot], port_events_[f_slot]);
    fill(c.b, b, b_slot, b_microbatch, backward_[b_slot], port_events_[2 + b_slot]);
    // An embedding and a head never meet others in pairs.
    if (chain_[static_cast<unsigned>(f)].type == 1 && chain_[static_cast<unsigned>(b)].type == 1)
      go<body<st::form::forward_backward, 1, 1>>(c, &forward_[f_slot], &backward_[b_slot]);
  }
  void forward(int l, int m) {
    int const s = m % 2;
    context c = make();
    fill(c.f, l, s, m, forward_[s], port_events_[s]);
    int const type = chain_[static_cast<unsigned>(l)].type;
    if (type == 0) go<body<st::form::forward, 0, -1>>(c, &forward_[s], nullptr);
    if (type == 1) go<body<st::form::forward, 1, -1>>(c, &forward_[s], nullptr);
    if (type == 2) go<body<st::form::forward, 2, -1>>(c, &forward_[s], nullptr);
  }
  void backward(int l, int m) {
    int const s = m % 2;
    context c = make();
    fill(c.b, l, s, m, backward_[s], port_events_[2 + s]);
    int const type = chain_[static_cast<unsigned>(l)].type;
    if (type == 0) go<body<st::form::backward, -1, 0>>(c, nullptr, &backward_[s]);
    if (type == 1) go<body<st::form::backward, -1, 1>>(c, nullptr, &backward_[s]);
    if (type == 2) go<body<st::form::backward, -1, 2>>(c, nullptr, &backward_[s]);
  }
  void forwards(int m) {
    forward_[m % 2] = {};
    for (int l = 0; l <= last_; ++l) forward(l, m);
  }
  void backwards(int m) {
    backward_[m % 2] = forward_[m % 2];
    for (int l = last_; l >= 0; --l) backward(l, m);
  }

  tensors tensors_;
  opaque_lanes lanes_;
  st::layer_list<Model> layers_;
  int microbatches_, last_;
  std::vector<st::slot<Model, 0, tensors>> embed_[2];
  std::vector<st::slot<Model, 1, tensors>> moe_[2];
  std::vector<st::slot<Model, 2, tensors>> head_[2];
  std::vector<entry> chain_;
  st::boundary<tensors::tensor> end_[2];
  opaque_lanes::event events_[st::detail::max_events];
  opaque_lanes::event port_events_[4];
  port forward_[2], backward_[2];
  std::vector<st::detail::give_back<tensors::tensor> const*> releases_;
};

template <class Lanes> class by_executor_over {
public:
  by_executor_over(int moe_layers, int microbatches)
      : layers_(make_layers(moe_layers)),
        run_(Step{}, st::backend{tensors_, lanes_}, layers_, st::sizes{.microbatches = microbatches}) {}
  void operator()() { run_(); }
  st::flat_table const& table() const { return run_.table(); }

private:
  tensors tensors_;
  Lanes lanes_;
  st::layer_list<Model> layers_;
  st::executor<Step, tensors, Lanes> run_;
};
using by_executor = by_executor_over<opaque_lanes>;

/// What a run-time scheduler does: looks at each op of the table.
class by_table {
public:
  by_table(int moe_layers, int microbatches)
      : table_(by_executor(moe_layers, microbatches).table()), events_(table_.ops.size()) {}
  void operator()() {
    for (unsigned i = 0; i < table_.ops.size(); ++i) issue(i);
  }

protected:
  void issue(unsigned i) {
    st::op const& o = table_.ops[i];
    for (int w : o.wait)
      if (w >= 0) lane_wait(static_cast<int>(o.on), &events_[static_cast<unsigned>(w)]);
    lane_begin(static_cast<int>(o.on), o.layer);
    phase_work(&events_[i], static_cast<int>(o.what) * 8 + o.node);
    lane_record(static_cast<int>(o.on), &events_[i]);
  }
  st::flat_table table_;
  std::vector<int> events_;
};

class by_functions : by_table {
public:
  by_functions(int moe_layers, int microbatches) : by_table(moe_layers, microbatches) {
    for (unsigned i = 0; i < table_.ops.size(); ++i) all_.emplace_back([this, i] { issue(i); });
  }
  by_functions(by_functions const&) = delete;
  by_functions& operator=(by_functions const&) = delete;
  void operator()() {
    for (auto const& f : all_) f();
  }

private:
  std::vector<std::function<void()>> all_;
};

} // namespace steps
