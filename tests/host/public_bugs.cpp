// Bugs of other trainers as small programs of ours, over threads that sleep at random: each tag is a row of
// docs/public_bugs.md.
#include "support/toy_rows.hpp"
#include "support/toy_train.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/pipelines/interleaved.hpp>

#include <catch2/catch_test_macros.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace stretto;
using toy::hidden, toy::number, toy::parameter;

namespace {

host::lane_options shaken(int rank, host::group& group, bool peers = false) {
  return {.rank = rank,
          .board = &group.board(),
          .peers = peers,
          .shake_seed = 3U + static_cast<unsigned>(rank),
          .shake_us = 60};
}

template <class Layer> struct model_of : Blocks<toy::EmbedLayer, Layer, toy::HeadLayer> {};

// --- Which communication a rank issues, and in which order. ----------------------------------------------------------

using call_log = std::vector<std::string>;

/// A communication that writes down that it ran.
template <class P> struct logged : P {
  call_log* log;
  explicit logged(call_log* to) : log(to) {}
  void forward(auto& io) {
    note("F", io.layer(), io.microbatch());
    P::forward(io);
  }
  void backward(auto& io) {
    note("B", io.layer(), io.microbatch());
    P::backward(io);
  }

private:
  void note(char const* what, int layer, int microbatch) const {
    log->push_back(std::string(what) + "." + name_of(P::kind) + " " + std::to_string(layer) + " " +
                   std::to_string(microbatch));
  }
};
struct LoggedLayer : Block<toy::Attention, Detach, logged<toy::Dispatch>, Detach, toy::Experts, Detach,
                           logged<toy::Combine>> {};
struct LoggedModel : Blocks<toy::EmbedLayer, LoggedLayer, toy::HeadLayer> {};

/// What every rank of a group called, and what the table of its comm lane says.
template <class S> void every_rank_calls_in_one_order(std::string const& picture) {
  int const ranks = 4, microbatches = 4;
  std::vector<call_log> called(ranks), listed(ranks);
  host::group group(ranks);
  group.run([&](int rank) {
    call_log& log = called[static_cast<std::size_t>(rank)];
    std::deque<parameter> weights(32, parameter{0.7, 0});
    std::vector<double> losses(microbatches);
    layer_list<LoggedModel> layers;
    std::size_t used = 0;
    auto const next = [&] { return &weights[used++]; };
    for (char const kind : picture) {
      if (kind == '|') layers.next_chunk();
      if (kind == 'E') layers.add(layer<toy::EmbedLayer>(toy::Embed(next())));
      if (kind == 'M')
        layers.add(layer<LoggedLayer>(toy::Attention(next(), next()), logged<toy::Dispatch>(&log),
                                      toy::Experts(next()), logged<toy::Combine>(&log)));
      if (kind == 'H') layers.add(layer<toy::HeadLayer>(toy::Head(next(), losses.data())));
    }
    toy::tensors<number> numbers;
    host::lanes lanes(shaken(rank, group));
    executor run(S{}, backend{numbers, lanes}, layers, sizes{.microbatches = microbatches});
    run();
    for (op const& o : run.table().ops)
      if (o.on == lane::comm)
        listed[static_cast<std::size_t>(rank)].push_back(toy::name_of_row<LoggedModel>(o) + " " +
                                                         std::to_string(o.layer) + " " +
                                                         std::to_string(o.microbatch));
  });
  CHECK_FALSE(called[0].empty());
  for (std::size_t rank = 0; rank < called.size(); ++rank) {
    CAPTURE(rank, picture);
    CHECK(called[rank] == listed[0]);
    CHECK(listed[rank] == listed[0]);
  }
}

} // namespace

TEST_CASE("every rank of an expert group issues the same communication in the same order, however late each "
          "op is",
          "[megatron-02][pipelines-01][pipelines-02]") {
  every_rank_calls_in_one_order<Schedule<LoggedModel, TwoStream1F1B, SplitDW, toy::CrossedChunks>>("EM|MMMH");
  every_rank_calls_in_one_order<Schedule<LoggedModel, TwoStream1F1B, SplitDW, toy::CrossedChunks>>("EMMMH|");
}

// --- Gradients of data-parallel ranks. -------------------------------------------------------------------------------

namespace {

/// Adds up the gradient over the ranks right behind its last weight pass, as a bucket of one.
template <class P> struct reduced : P {
  host::communicator* comm;
  int microbatches;
  reduced(P phase, host::communicator* c, int m) : P(std::move(phase)), comm(c), microbatches(m) {}
  void backward_weight(auto& io) {
    P::backward_weight(io);
    if (comm != nullptr && io.microbatch() + 1 == microbatches) comm->all_reduce(&this->w->gradient, 1);
  }
};
/// Every rank has data of its own.
struct RankEmbed : toy::Embed {
  int rank;
  RankEmbed(parameter* p, int of_rank) : toy::Embed(p), rank(of_rank) {}
  double mine(int microbatch) const { return input(microbatch) + 0.05 * rank; }
  void forward(auto& io) { io[hidden{}] = w->weight * mine(io.microbatch()); }
  void backward_weight(auto& io) { w->gradient += io.saved() * mine(io.microbatch()); }
};
struct ReducedEmbedLayer : Block<reduced<RankEmbed>> {};
struct ReducedLayer
    : Block<toy::Attention, Detach, toy::Dispatch, Detach, reduced<toy::Experts>, Detach, toy::Combine> {};
struct ReducedModel : Blocks<ReducedEmbedLayer, ReducedLayer, toy::HeadLayer> {};

/// The gradients of embedding and experts of one rank.
template <class... Policies> std::vector<double> train_rank(int rank, host::group& group, bool reduce) {
  int const microbatches = 2;
  parameter weights[8] = {{0.7, 0}, {0.9, 0}, {0.5, 0}, {0.8, 0}, {0.6, 0}, {0.4, 0}, {0.7, 0}, {0.6, 0}};
  std::vector<double> losses(microbatches);
  host::communicator comm = group.communicator(rank);
  host::communicator* const how = reduce ? &comm : nullptr;
  layer_list<ReducedModel> layers;
  layers.add(layer<ReducedEmbedLayer>(reduced<RankEmbed>(RankEmbed(&weights[0], rank), how, microbatches)));
  for (int l = 0; l < 2; ++l)
    layers.add(layer<ReducedLayer>(
        toy::Attention(&weights[3 * l + 1], &weights[3 * l + 2]), toy::Dispatch(),
        reduced<toy::Experts>(toy::Experts(&weights[3 * l + 3]), how, microbatches), toy::Combine()));
  layers.add(layer<toy::HeadLayer>(toy::Head(&weights[7], losses.data())));
  toy::tensors<number> numbers;
  host::lanes lanes(shaken(rank, group));
  executor run(Schedule<ReducedModel, Policies...>{}, backend{numbers, lanes}, layers,
               sizes{.microbatches = microbatches});
  run();
  return {weights[0].gradient, weights[3].gradient, weights[6].gradient};
}
template <class... Policies> std::vector<std::vector<double>> train_data_ranks(bool reduce) {
  std::vector<std::vector<double>> all(2);
  host::group group(2);
  group.run(
      [&](int rank) { all[static_cast<std::size_t>(rank)] = train_rank<Policies...>(rank, group, reduce); });
  return all;
}

} // namespace

TEST_CASE("gradients are reduced over data ranks when their last weight pass has run", "[megatron-12]") {
  auto const apart = train_data_ranks<Serial>(false);
  CHECK(apart[0] != apart[1]);
  std::vector<double> expected;
  for (std::size_t i = 0; i < apart[0].size(); ++i) expected.push_back(apart[0][i] + apart[1][i]);
  CHECK(train_data_ranks<Serial>(true) == std::vector(2, expected));
  CHECK(train_data_ranks<TwoStream1F1B, SplitDW>(true) == std::vector(2, expected));
}

// --- On which lane a weight gradient runs. ---------------------------------------------------------------------------

namespace {

thread_local lane current_lane = lane::forward_port;

/// Where the passes of a phase ran: no two of them at once.
template <class P> struct located : P {
  std::vector<lane>*inputs, *weights;
  located(P phase, std::vector<lane>* of_i, std::vector<lane>* of_w)
      : P(std::move(phase)), inputs(of_i), weights(of_w) {}
  void backward_input(auto& io) {
    inputs->push_back(current_lane);
    P::backward_input(io);
  }
  void backward_weight(auto& io) {
    weights->push_back(current_lane);
    P::backward_weight(io);
  }
};
struct LocatedLayer
    : Block<toy::Attention, Detach, toy::Dispatch, Detach, located<toy::Experts>, Detach, toy::Combine> {};

/// Weight gradients of experts on the other lane than their input gradients.
struct WeightsOnComm {
  static constexpr void pair(pair_builder& p) {
    auto [f, b] = std::pair{p.f, p.b};
    p.comm(b.backward(combine));
    p.compute(f.forward(attn), b.input(mlp));
    p.comm(f.forward(dispatch), b.backward(dispatch), b.weight(mlp));
    p.compute(f.forward(mlp));
    p.comm(f.forward(combine));
    p.compute(b.input(attn), b.weight(attn));
  }
};

struct located_step {
  std::vector<lane> inputs, weights;
  std::vector<double> gradients;
};
template <class... Policies> located_step train_located() {
  int const microbatches = 4;
  located_step found;
  parameter weights[5] = {{0.7, 0}, {0.9, 0}, {0.5, 0}, {0.8, 0}, {0.6, 0}};
  std::vector<double> losses(microbatches);
  layer_list<model_of<LocatedLayer>> layers;
  layers.add(layer<toy::EmbedLayer>(toy::Embed(&weights[0])));
  layers.add(layer<LocatedLayer>(
      toy::Attention(&weights[1], &weights[2]), toy::Dispatch(),
      located<toy::Experts>(toy::Experts(&weights[3]), &found.inputs, &found.weights), toy::Combine()));
  layers.add(layer<toy::HeadLayer>(toy::Head(&weights[4], losses.data())));
  toy::tensors<number> numbers;
  host::lanes lanes({.shake_seed = 4, .shake_us = 60}, [](lane on) { current_lane = on; });
  executor run(Schedule<model_of<LocatedLayer>, Policies...>{}, backend{numbers, lanes}, layers,
               sizes{.microbatches = microbatches});
  run();
  for (parameter const& p : weights) found.gradients.push_back(p.gradient);
  return found;
}

} // namespace

TEST_CASE("a deferred weight gradient runs on the lane of its own op, not on that of its input gradient",
          "[megatron-16][megatron-e]") {
  auto const expected = train_located<Serial>();
  auto const found = train_located<WeightsOnComm, SplitDW>();
  CHECK(found.inputs == std::vector<lane>(4, lane::compute));
  CHECK(found.weights == std::vector<lane>(4, lane::comm));
  CHECK(found.gradients == expected.gradients);
}

// --- Activations that leave for the host and come back. --------------------------------------------------------------

namespace {

struct activation : value {};
struct squared : value {};

struct Up : Phase<attn> {
  using reads = values<hidden>;
  using writes = values<activation>;
  using saves = values<hidden>;
  parameter* w;
  explicit Up(parameter* p) : w(p) {}
  void forward(auto& io) { io[activation{}] = std::sin(double(io[hidden{}]) * w->weight); }
  void backward_input(auto& io) {
    io.grad(hidden{}) =
        double(io.grad(activation{})) * std::cos(double(io[hidden{}]) * w->weight) * w->weight;
  }
  void backward_weight(auto& io) {
    double const h(io[hidden{}]);
    w->gradient += double(io.grad(activation{})) * std::cos(h * w->weight) * h;
  }
};
/// Copies its input out in forward and back in backward; in between nobody holds the original.
struct Offload : Phase<dispatch> {
  using reads = values<activation>;
  using writes = values<squared>;
  using saves = values<>;
  using saved = double; ///< on the host
  void forward(auto& io) {
    io.saved() = double(io[activation{}]);
    io[squared{}] = double(io[activation{}]) * double(io[activation{}]);
  }
  void backward(auto& io) { io.grad(activation{}) = 2 * io.saved() * double(io.grad(squared{})); }
};
struct Down : Phase<mlp> {
  using reads = values<squared>;
  using writes = values<hidden>;
  using saves = values<>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io[hidden{}] = 3 * double(io[squared{}]); }
  void backward(auto& io) { io.grad(squared{}) = 3 * double(io.grad(hidden{})); }
};
struct OffloadedLayer : Block<Up, Detach, Offload, Detach, Down> {};
using OffloadedModel = model_of<OffloadedLayer>;

/// The copy back on another lane than the copy out.
struct TwoCopyLanes {
  static constexpr void pair(pair_builder& p) {
    p.compute(p.f.forward(attn), p.b.backward(mlp), p.b.backward(dispatch));
    p.comm(p.f.forward(dispatch));
    p.compute(p.f.forward(mlp), p.b.backward(attn));
  }
};

struct offloaded {
  explicit offloaded(bool two_chunks) {
    layers.add(layer<toy::EmbedLayer>(toy::Embed(&weights[0])));
    layers.add(layer<OffloadedLayer>(Up(&weights[1]), Offload(), Down()));
    if (two_chunks) layers.next_chunk();
    layers.add(layer<OffloadedLayer>(Up(&weights[2]), Offload(), Down()));
    layers.add(layer<toy::HeadLayer>(toy::Head(&weights[3], losses)));
  }
  template <class S> std::vector<double> train() {
    host::lanes lanes({.shake_seed = 6, .shake_us = 60});
    executor run(S{}, backend{numbers, lanes}, layers, sizes{.microbatches = 4});
    std::vector<double> found;
    for (int step = 0; step < 3; ++step) {
      for (parameter& p : weights) p.gradient = 0;
      run();
      for (parameter const& p : weights) found.push_back(p.gradient);
    }
    return found;
  }
  parameter weights[4] = {{1.1, 0}, {0.9, 0}, {0.5, 0}, {0.8, 0}};
  double losses[4] = {};
  toy::tensors<toy::racy_number> numbers;
  layer_list<OffloadedModel> layers;
};

} // namespace

TEST_CASE("what was copied to the host comes back as it left, with one layer a chunk too", "[megatron-25]") {
  auto const expected = offloaded(false).train<Schedule<OffloadedModel, Serial>>();
  for (double const g : expected) CHECK(std::abs(g) > 1e-4);
  CHECK(offloaded(true).train<Schedule<OffloadedModel, TwoStream1F1B, toy::CrossedChunks>>() == expected);
  using Apart = Schedule<OffloadedModel, TwoCopyLanes>;
  CHECK(offloaded(false).train<Apart>() == expected);

  // Every wait of a lane that copies back for the one that copies out is needed.
  offloaded layers(false);
  null_lanes lanes;
  flat_table table =
      executor(Apart{}, backend{layers.numbers, lanes}, layers.layers, sizes{.microbatches = 4}).table();
  int forgotten = 0;
  for (op& o : table.ops) {
    int& w = o.wait[static_cast<int>(lane::comm)];
    if (w < 0) continue;
    int const kept = std::exchange(w, -1);
    CHECK(table.check().what == fault::race);
    w = kept;
    ++forgotten;
  }
  CHECK(forgotten > 0);
}

// --- Ranks of a pipeline that drift apart. ---------------------------------------------------------------------------

namespace {

struct StageModel : Blocks<toy::EmbedLayer, toy::MoeLayer, toy::HeadLayer> {};
int parameters_of(std::string const& stage) {
  int count = 0;
  for (char const kind : stage) count += kind == 'M' ? 3 : 1;
  return count;
}

/// Gradients by their number in the model.
using gradient_map = std::map<int, double>;
template <class... Policies>
gradient_map train_stages(std::vector<std::string> const& stages, int ranks, int microbatches) {
  std::vector<gradient_map> found(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  host::mailbox<number> mailbox(group);
  group.run([&](int rank) {
    std::deque<std::pair<int, parameter>> weights;
    std::vector<double> losses(static_cast<std::size_t>(microbatches));
    layer_list<StageModel> layers;
    int number_of_next = 0;
    auto const next = [&] {
      weights.push_back({number_of_next, {0.6 + 0.31 * std::sin(static_cast<double>(number_of_next)), 0}});
      ++number_of_next;
      return &weights.back().second;
    };
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      if (static_cast<int>(stage) % ranks != rank) {
        number_of_next += parameters_of(stages[stage]);
        continue;
      }
      if (static_cast<int>(stage) >= ranks) layers.next_chunk();
      for (char const kind : stages[stage]) {
        if (kind == 'E') layers.add(layer<toy::EmbedLayer>(toy::Embed(next())));
        if (kind == 'H') layers.add(layer<toy::HeadLayer>(toy::Head(next(), losses.data())));
        if (kind != 'M') continue;
        parameter *const w = next(), *const gate = next(), *const experts = next();
        layers.add(layer<toy::MoeLayer>(toy::Attention(w, gate), toy::Dispatch(), toy::Experts(experts),
                                        toy::Combine()));
      }
    }
    toy::tensors<number> numbers;
    host::lanes lanes(shaken(rank, group, true));
    host::peers<number> peers(mailbox, rank);
    executor run(Schedule<StageModel, Policies...>{}, backend{numbers, lanes, peers}, layers,
                 sizes{.microbatches = microbatches, .ranks = ranks, .rank = rank});
    run();
    for (auto const& [at, p] : weights) found[static_cast<std::size_t>(rank)][at] = p.gradient;
  });
  gradient_map all;
  for (gradient_map const& one : found) all.insert(one.begin(), one.end());
  return all;
}

} // namespace

// The pairs hold a forward of the first stage beside a backward whose gradient comes in, and a forward whose input comes in
// beside a backward of the last stage.
TEST_CASE("interleaved stages give the bits of one rank, however far their ranks drift apart",
          "[pipelines-06][pipelines-22]") {
  auto const expected = train_stages<Serial>({"EMMMMH"}, 1, 6);
  CHECK(expected.size() == 14);
  using Chunks = InterleavedOverlapped<2>;
  CHECK(train_stages<TwoStream1F1B, SplitDW, Chunks>({"EM", "M", "M", "MH"}, 2, 6) == expected);
  CHECK(train_stages<TwoStream1F1B, SplitDW, Chunks>({"E", "M", "M", "M", "M", "H"}, 3, 6) == expected);
}
