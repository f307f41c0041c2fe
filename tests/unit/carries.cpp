#include "unit/agreement.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/pipelines/zero_bubble_h1.hpp>

#include <algorithm>

using namespace stretto;
using toy::hidden, toy::parameter, toy::MoeLayer;

namespace {

struct ahead : value {};
struct second_loss : objective {};

struct Embed : toy::Embed {
  using saves = values<>;
  using toy::Embed::Embed;
};
struct EmbedLayer : Block<Embed> {};

/// Reads the output of the trunk, keeps what its backward needs and leaves the rest to those behind.
struct TrunkHead : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<toy::loss>;
  using saves = values<>;
  using saved = double;
  parameter* w;
  double* losses;
  TrunkHead(parameter* p, double* out) : w(p), losses(out) {}
  void forward(auto& io) {
    double const h(io[hidden{}]), l = h * h * w->weight;
    io.saved() = h;
    io[toy::loss{}] = l;
    losses[io.microbatch()] = l;
  }
  void backward_input(auto& io) { io.grad(hidden{}) = 2 * io.saved() * w->weight; }
  void backward_weight(auto& io) { w->gradient += io.saved() * io.saved(); }
};
struct HeadLayer : Block<TrunkHead> {
  using carries = values<hidden>;
};

/// A prediction further ahead: two nodes, the first reads the trunk.
struct Ahead : Phase<attn> {
  using reads = values<hidden>;
  using writes = values<ahead>;
  parameter* w;
  explicit Ahead(parameter* p) : w(p) {}
  void forward(auto& io) { io[ahead{}] = std::sin(double(io[hidden{}]) * w->weight); }
  void backward_input(auto& io) {
    io.grad(hidden{}) = double(io.grad(ahead{})) * std::cos(double(io[hidden{}]) * w->weight) * w->weight;
  }
  void backward_weight(auto& io) {
    double const h(io[hidden{}]);
    w->gradient += double(io.grad(ahead{})) * std::cos(h * w->weight) * h;
  }
};
struct AheadHead : Phase<mlp> {
  using reads = values<ahead>;
  using writes = values<second_loss>;
  parameter* w;
  double* losses;
  AheadHead(parameter* p, double* out) : w(p), losses(out) {}
  void forward(auto& io) {
    double const a(io[ahead{}]), l = a * a * a * w->weight;
    io[second_loss{}] = l;
    losses[io.microbatch()] += l;
  }
  void backward_input(auto& io) {
    io.grad(ahead{}) = 3 * double(io[ahead{}]) * double(io[ahead{}]) * w->weight;
  }
  void backward_weight(auto& io) {
    double const a(io[ahead{}]);
    w->gradient += a * a * a;
  }
};
struct MiddleLayer : Block<Ahead, Detach, AheadHead> {
  using carries = values<hidden>;
};
struct LastLayer : Block<Ahead, Detach, AheadHead> {};

struct Model : Blocks<EmbedLayer, MoeLayer, HeadLayer, MiddleLayer, LastLayer> {};

static_assert(dataflow_of<HeadLayer>::value.input_is_carried[0]);
static_assert(!dataflow_of<LastLayer>::value.input_is_carried[0]);

/// E embedding, M MoE, H head that carries, P prediction that carries, Z the last prediction.
class network : public toy::network<Model> {
public:
  /// `before`: how many parameters are on the pipeline ranks before this one.
  network(std::string_view picture, int microbatches, std::size_t before = 0)
      : toy::network<Model>("", microbatches), before_(before) {
    for (char const kind : picture) {
      if (kind == '|') layers.next_chunk();
      if (kind == 'E') layers.add(layer<EmbedLayer>(Embed(next())));
      if (kind == 'M')
        layers.add(layer<MoeLayer>(toy::Attention{next(), next()}, toy::Dispatch(), toy::Experts(next()),
                                   toy::Combine()));
      if (kind == 'H') layers.add(layer<HeadLayer>(TrunkHead(next(), losses.data())));
      if (kind == 'P') layers.add(layer<MiddleLayer>(Ahead(next()), AheadHead(next(), losses.data())));
      if (kind == 'Z') layers.add(layer<LastLayer>(Ahead(next()), AheadHead(next(), losses.data())));
    }
  }

private:
  parameter* next() {
    parameters.push_back({0.7 + 0.2 * std::cos(static_cast<double>(before_ + parameters.size())), 0});
    return &parameters.back();
  }
  std::size_t before_;
};

template <class S, class Lanes>
std::vector<std::uint64_t> train(std::string const& picture, int microbatches, Lanes& lanes) {
  network net(picture, microbatches);
  toy::tensors<toy::number> numbers;
  executor run(S{}, backend{numbers, lanes}, net.layers, sizes{.microbatches = microbatches});
  run();
  net.clear();
  run();
  return net.bits();
}
template <class... Policies> std::vector<std::uint64_t> train(std::string const& picture, int microbatches) {
  null_lanes lanes;
  return train<Schedule<Model, Policies...>>(picture, microbatches, lanes);
}
/// The gradients of all ranks of a pipeline, which are threads, in the order of their layers.
template <class... Policies>
std::vector<double> train_ranks(std::vector<std::string> const& stages, int microbatches) {
  int const ranks = static_cast<int>(stages.size());
  std::vector<std::vector<double>> gradients(stages.size());
  host::group group(ranks);
  host::mailbox<toy::number> mailbox(group);
  group.run([&](int rank) {
    std::size_t before = 0;
    for (int r = 0; r < rank; ++r)
      for (char const kind : stages[static_cast<std::size_t>(r)])
        before += kind == 'E' || kind == 'H' ? 1 : kind == 'M' ? 3 : 2;
    network net(stages[static_cast<std::size_t>(rank)], microbatches, before);
    toy::tensors<toy::number> numbers;
    host::lanes lanes(
        {.rank = rank, .board = &group.board(), .peers = true, .shake_seed = 5, .shake_us = 60});
    host::peers<toy::number> peers(mailbox, rank);
    executor run(Schedule<Model, Policies...>{}, backend{numbers, lanes, peers}, net.layers,
                 sizes{.microbatches = microbatches, .ranks = ranks, .rank = rank});
    run();
    net.clear();
    run();
    for (parameter const& p : net.parameters) gradients[static_cast<std::size_t>(rank)].push_back(p.gradient);
  });
  std::vector<double> all;
  for (auto const& of_rank : gradients) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return all;
}

template <class... Policies> flat_table table_of(std::string const& picture, int microbatches) {
  network net(picture, microbatches);
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  return executor(Schedule<Model, Policies...>{}, backend{numbers, lanes}, net.layers,
                  sizes{.microbatches = microbatches})
      .table();
}

/// Whether row `later` runs after row `earlier` in every execution.
bool runs_after(flat_table const& table, int later, int earlier) {
  int const count = static_cast<int>(table.ops.size());
  detail::clocks clocks(table.ops.data(), count);
  for (int i = 0; i < count; ++i) {
    clocks.enter(i);
    for (int w : table.ops[static_cast<std::size_t>(i)].wait)
      if (w >= 0) clocks.wait(i, w);
    clocks.leave(i);
  }
  return clocks.has_seen(later, earlier);
}

std::vector<std::string> const pictures = {"EHZ", "EMHZ", "EMMHPZ", "EMHPPZ"};

} // namespace

TEST_CASE("a trunk that several blocks read: every policy gives the same bits", "[carries]") {
  for (std::string const& picture : pictures)
    for (int const count : {1, 2, 5}) {
      CAPTURE(picture, count);
      auto const expected = train<Serial>(picture, count);
      CHECK(train<Serial, SplitDW>(picture, count) == expected);
      CHECK(train<TwoStream1F1B>(picture, count) == expected);
      CHECK(train<TwoStream1F1B, SplitDW>(picture, count) == expected);
      CHECK(train<TwoStream1F1B, toy::LateWeights>(picture, count) == expected);
    }
}

TEST_CASE("a trunk that several blocks read, over threads and across chunks", "[carries]") {
  auto const expected = train<Serial>("EMHPZ", 4);
  host::lane_options options;
  options.shake_seed = 5;
  options.shake_us = 60;
  host::lanes lanes(options);
  for (int step = 0; step < 5; ++step)
    CHECK(train<Schedule<Model, TwoStream1F1B, SplitDW>>("EMHPZ", 4, lanes) == expected);
  for (std::string const picture : {"EM|HPZ", "EMH|PZ", "EMHP|Z"}) {
    CAPTURE(picture);
    CHECK(train<TwoStream1F1B, SplitDW, toy::CrossedChunks>(picture, 4) == expected);
  }
}

TEST_CASE("a trunk that several pipeline ranks read, one of which hands on what came in", "[carries]") {
  int const microbatches = 5;
  auto const expected = train_ranks<Serial>({"EMHPZ"}, microbatches);
  for (auto const& stages :
       {std::vector<std::string>{"EMH", "PZ"}, {"EM", "HPZ"}, {"EM", "HP", "Z"}, {"EM", "H", "PZ"}}) {
    CAPTURE(stages.size(), stages[0], stages[1]);
    CHECK(train_ranks<TwoStream1F1B, OneFOneB>(stages, microbatches) == expected);
    CHECK(train_ranks<TwoStream1F1B, OneFOneBOverlapped>(stages, microbatches) == expected);
    CHECK(train_ranks<TwoStream1F1B, SplitDW, OneFOneBOverlapped>(stages, microbatches) == expected);
    CHECK(train_ranks<Serial, ZeroBubbleH1>(stages, microbatches) == expected);
  }
}

TEST_CASE("a trunk that several blocks read: losses of a plain walk, gradients of finite differences",
          "[carries]") {
  int const microbatches = 3;
  network net("EMHPZ", microbatches);
  toy::walker<Model> walk(net);
  auto const bits = train<TwoStream1F1B, SplitDW>("EMHPZ", microbatches);
  for (int m = 0; m < microbatches; ++m)
    CHECK(std::bit_cast<std::uint64_t>(walk(m)) == bits[static_cast<unsigned>(m)]);
  auto total = [&] {
    double sum = 0;
    for (int m = 0; m < microbatches; ++m) sum += walk(m);
    return sum;
  };
  unsigned place = microbatches;
  for (parameter& p : net.parameters) {
    double const weight = p.weight, step = 1e-5;
    p.weight = weight + step;
    double const above = total();
    p.weight = weight - step;
    double const below = total();
    p.weight = weight;
    double const slope = (above - below) / (2 * step), gradient = std::bit_cast<double>(bits[place++]);
    CAPTURE(place, slope, gradient);
    CHECK(std::abs(slope - gradient) <= 1e-6 * (1 + std::abs(slope)));
    CHECK(gradient != 0);
  }
}

TEST_CASE("the storage of a carried value goes back after its last reader, once", "[carries]") {
  flat_table table = table_of<TwoStream1F1B, SplitDW>("EHPZ", 4);
  auto plan = [](flat_table const& of) {
    release_planner planner(of.ops.data(), static_cast<int>(of.ops.size()), of.groups);
    detail::sequence<release> all = planner.plan();
    // The trunk's output, under the names of the layers that read it: points 1, 2, 3 of 5.
    auto const other = [](release const& r) { return r.cell != 0 || r.group % 5 == 0; };
    all.shrink(std::remove_if(all.begin(), all.end(), other) - all.begin());
    return all;
  };
  detail::sequence<release> const planned = plan(table);
  REQUIRE(planned.size() == 4);
  for (release const& r : planned) {
    CHECK(r.group % 5 == 1);
    // It goes back with the weight pass of the layer that saved it and runs last.
    op const& o = table.ops[static_cast<std::size_t>(r.row)];
    CHECK((o.layer == 2 && o.node == 0 && o.what == pass::backward_weight));
  }
  // Without the alias it would go back too early, and the layers behind would find nothing.
  for (op& o : table.ops) o.touches.carries = 0;
  CHECK(table.check().what == fault::unwritten_read);
  detail::sequence<release> const early = plan(table);
  REQUIRE(early.size() == planned.size());
  for (std::size_t i = 0; i < early.size(); ++i) CHECK(early[i].row < planned[i].row);
}

TEST_CASE("what overwrites a carried value waits for its readers under every name",
          "[carries][building-blocks-01]") {
  flat_table table = table_of<TwoStream1F1B, SplitDW>("EMHPZ", 6);
  // The last reader of the trunk on a lane of its own, where nothing but the storage orders it before the next microbatch.
  int reader = -1, writer = -1;
  for (int i = 0; i < static_cast<int>(table.ops.size()); ++i) {
    op& o = table.ops[static_cast<std::size_t>(i)];
    if (o.layer == 4 && o.node == 0 && o.what == pass::backward_weight) {
      o.on = lane::send_lower;
      if (reader < 0) reader = i;
    }
    if (writer < 0 && reader >= 0 && o.layer == 1 && o.node == 3 && o.is_forward() &&
        o.slot == table.ops[static_cast<std::size_t>(reader)].slot)
      writer = i;
  }
  REQUIRE(writer > reader);
  auto link_again = [&table] {
    link(table.ops.data(), static_cast<int>(table.ops.size()), table.groups, table.layers);
  };
  link_again();
  CHECK(runs_after(table, writer, reader));
  for (op& o : table.ops) o.touches.carries = 0;
  link_again();
  CHECK(!runs_after(table, writer, reader));
}
