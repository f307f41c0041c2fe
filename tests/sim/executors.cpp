#include "laws/lanes.hpp"
#include "support/toy_train.hpp"

#include <stretto/adapters/sim.hpp>
#include <stretto/pipelines/all.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>
#include <stdexcept>

using namespace stretto;
using Catch::Matchers::ContainsSubstring;
using toy::Model;
using bits = std::vector<std::uint64_t>;

namespace {

/// How many parameters the layers of a picture have.
int parameters_of(std::string const& picture) {
  int count = 0;
  for (char const kind : picture)
    count += kind == 'M' ? 3 : kind == 'S' ? 4 : kind == 'D' || kind == 'F' ? 2 : kind == 'Q' ? 0 : 1;
  return count;
}

/// A model over the ranks of a simulated world; `stages` are pictures of its stages.
template <class S> class simulated {
  using made = executor<S, sim::tensors, sim::lanes, sim::peers>;

public:
  simulated(std::vector<std::string> stages, int ranks, int microbatches,
            sim::transport how = sim::transport::rendezvous)
      : world(ranks, how), stages_(std::move(stages)), microbatches_(microbatches), peers_(mail_) {
    plan_facts const facts = facts_of<typename S::rank_plan>(ranks, microbatches);
    std::string all;
    for (std::string const& one : stages_) all += one;
    toy::network<typename S::model> whole(all, microbatches);
    for (int rank = 0; rank < ranks; ++rank) {
      std::string picture;
      for (int c = 0; c < facts.chunks; ++c)
        picture += (c > 0 ? "|" : "") + stages_[static_cast<std::size_t>(facts.stage(rank, c))];
      nets_.push_back(std::make_unique<toy::network<typename S::model>>(picture, microbatches));
      lanes_.emplace_back(world, rank);
      std::size_t mine = 0;
      for (int c = 0; c < facts.chunks; ++c) {
        int first = 0;
        for (int stage = 0; stage < facts.stage(rank, c); ++stage)
          first += parameters_of(stages_[static_cast<std::size_t>(stage)]);
        for (int p = 0; p < parameters_of(stages_[static_cast<std::size_t>(facts.stage(rank, c))]); ++p) {
          places_.push_back({rank, mine, static_cast<std::size_t>(first + p)});
          nets_.back()->parameters[mine++].weight =
              whole.parameters[static_cast<std::size_t>(first + p)].weight;
        }
      }
    }
    last_ = facts.owner(facts.stages() - 1);
    for (int rank = 0; rank < ranks; ++rank) {
      auto const at = static_cast<std::size_t>(rank);
      executors_.push_back(
          std::make_unique<made>(unproved{}, S{}, backend(tensors_, lanes_[at], peers_), nets_[at]->layers,
                                 sizes{.microbatches = microbatches, .ranks = ranks, .rank = rank}));
      steps_.push_back([this, at, rank] {
        if (rank == leaves_) throw std::runtime_error("left");
        (*executors_[at])();
      });
    }
  }

  /// Losses and gradients of one step, in the order of the whole model.
  bits operator()() {
    for (auto& net : nets_) net->clear();
    world.step(steps_);
    bits all;
    for (double const l : nets_[static_cast<std::size_t>(last_)]->losses)
      all.push_back(std::bit_cast<std::uint64_t>(l));
    all.resize(all.size() + places_.size());
    for (place const& p : places_)
      all[static_cast<std::size_t>(microbatches_) + p.of_all] = std::bit_cast<std::uint64_t>(
          nets_[static_cast<std::size_t>(p.rank)]->parameters[p.of_rank].gradient);
    return all;
  }
  bits expected() const {
    std::string all;
    for (std::string const& one : stages_) all += one;
    return toy::train<Schedule<typename S::model, Serial>>(all, microbatches_).bits;
  }

  /// The experts of a rank throw when this microbatch reaches them; -1: never.
  void burn(int rank, int microbatch) {
    nets_[static_cast<std::size_t>(rank)]->burns.microbatch = microbatch;
  }

  /// A rank throws before it has issued anything; -1: none.
  void leave(int rank) { leaves_ = rank; }

  sim::world world;

private:
  struct place {
    int rank;
    std::size_t of_rank, of_all;
  };
  std::vector<std::string> stages_;
  int microbatches_, last_ = 0, leaves_ = -1;
  sim::peers::mail mail_;
  sim::tensors tensors_;
  sim::peers peers_;
  std::deque<sim::lanes> lanes_;
  std::vector<std::unique_ptr<toy::network<typename S::model>>> nets_;
  std::vector<place> places_;
  std::vector<std::unique_ptr<made>> executors_;
  std::vector<std::function<void()>> steps_;
};

template <class S> std::string attacked(std::vector<std::string> const& stages, int ranks, int microbatches) {
  simulated<S> run(stages, ranks, microbatches);
  return sim::attack(run.world, run, run.expected(), {.most_rows = 60});
}

using Split = Schedule<Model, TwoStream1F1B, SplitDW, DualPipeV>;

/// Without the wait of the experts for what was dispatched.
struct Racy : Schedule<Model, TwoStream1F1B, SplitDW> {
  template <form What, int Forward, int Backward> static constexpr detail::draft make_body() {
    auto made = Schedule<Model, TwoStream1F1B, SplitDW>::make_body<What, Forward, Backward>();
    for (op& o : made.ops)
      if (o.is_forward() && o.node == 2)
        for (int& w : o.wait) w = -1;
    return made;
  }
};

/// Says that backward needs none of what crosses between phases, and keeps a pointer to its input for it.
struct Forgetful : toy::Experts {
  using saves = values<>;
  using saved = sim::tensor const*;
  using toy::Experts::Experts;
  void forward(auto& io) {
    toy::Experts::forward(io);
    io.saved() = &io[toy::expert_in{}];
  }
  void backward_input(auto& io) {
    double const t = std::tanh(double(*io.saved()) * w->weight);
    io.grad(toy::expert_in{}) = double(io.grad(toy::expert_out{})) * (1 - t * t) * w->weight;
  }
  void backward_weight(auto&) {}
};
struct ForgetfulLayer
    : Block<toy::Attention, Detach, toy::Dispatch, Detach, Forgetful, Detach, toy::Combine> {};
struct ForgetfulModel : Blocks<toy::EmbedLayer, ForgetfulLayer, toy::HeadLayer> {};

} // namespace

TEST_CASE("executors of one rank give the serial bits in every order", "[sim]") {
  CHECK(attacked<Schedule<Model, Serial>>({"EMDH"}, 1, 2) == "");
  CHECK(attacked<Schedule<Model, TwoStream1F1B>>({"EMDMH"}, 1, 3) == "");
  CHECK(attacked<Schedule<Model, TwoStream1F1B, SplitDW>>({"EMDMH"}, 1, 4) == "");
}

TEST_CASE("executors of several ranks give the serial bits in every order", "[sim]") {
  CHECK(attacked<Schedule<Model, TwoStream1F1B, SplitDW>>({"EM", "MDH"}, 2, 4) == "");
  CHECK(attacked<Split>({"EM", "M", "", "DH"}, 2, 4) == "");
  CHECK(attacked<Split>({"EM", "D", "M", "M", "MM", "H"}, 3, 5) == "");
}

TEST_CASE("executors of several ranks, messages that end at once", "[sim]") {
  simulated<Split> run({"EM", "M", "D", "MH"}, 2, 5, sim::transport::buffered);
  CHECK(sim::attack(run.world, run, run.expected(), {.most_rows = 20}) == "");
}

TEST_CASE("an executor whose table lacks a wait is caught", "[sim]") {
  simulated<Racy> run({"EMH"}, 1, 3);
  CHECK(run() == run.expected());
  CHECK_THAT(sim::attack(run.world, run, run.expected()),
             ContainsSubstring(": F.mlp of layer 1, microbatch"));
  // And the next step is as good as before.
  CHECK(run() == run.expected());
}

TEST_CASE("a phase that lies about what it saves is caught", "[sim]") {
  simulated<Schedule<Model, TwoStream1F1B, SplitDW>> fine({"EMH"}, 1, 2);
  CHECK(fine() == fine.expected());
  toy::network<ForgetfulModel> net("", 2);
  auto const next = [&net] { return &net.parameters.emplace_back(toy::parameter{0.7, 0}); };
  net.layers.add(layer<toy::EmbedLayer>(toy::Embed(next())));
  net.layers.add(layer<ForgetfulLayer>(toy::Attention(next(), next()), toy::Dispatch(), Forgetful(next()),
                                       toy::Combine()));
  net.layers.add(layer<toy::HeadLayer>(toy::Head(next(), net.losses.data())));
  sim::world world;
  sim::tensors tensors;
  sim::lanes lanes(world, 0);
  executor run(Schedule<ForgetfulModel, TwoStream1F1B, SplitDW>{}, backend{tensors, lanes}, net.layers,
               sizes{.microbatches = 2});
  CHECK_THROWS_WITH(run(), ContainsSubstring("I.mlp of layer 1") && ContainsSubstring("of rank 0"));
}

TEST_CASE("ranks that wait for each other are told, and do not hang", "[sim]") {
  sim::world world(2);
  sim::lanes first(world, 0), second(world, 1);
  sim::peers::mail mail;
  auto const receive = [&](sim::lanes& lanes, int stage) {
    lanes.run(lane::receive_higher, {attn, pass::forward, lane::receive_higher, stage, 0}, [] {});
    sim::lanes::event arrived;
    lanes.record(lane::receive_higher, arrived);
    lanes.wait(lane::send_higher, arrived);
    lanes.run(lane::send_higher, {attn, pass::forward, lane::send_higher, 1 - stage, 0}, [] {});
    lanes.drain();
  };
  std::vector<std::function<void()>> const steps = {[&] { receive(first, 0); }, [&] { receive(second, 1); }};
  CHECK_THROWS_WITH(world.step(steps), ContainsSubstring("hang"));
}

TEST_CASE("an op that throws ends the step, and the next one is right", "[sim]") {
  simulated<Schedule<Model, TwoStream1F1B, SplitDW>> run({"EM", "MH"}, 2, 3);
  bits const expected = run.expected();
  CHECK(run() == expected);
  run.burn(1, 1);
  CHECK_THROWS_AS(run(), toy::blown);
  run.burn(1, -1);
  CHECK(run() == expected);
  // A rank that leaves when others have issued, and an order that cannot be told.
  run.leave(1);
  CHECK_THROWS_AS(run(), std::runtime_error);
  run.leave(-1);
  CHECK(run() == expected);
  run.world.run_in([](sim::graph const&) -> sim::numbered<int> { throw std::runtime_error("no order"); });
  CHECK_THROWS_AS(run(), std::runtime_error);
  run.world.run_in({});
  CHECK(run() == expected);
}

namespace {

/// A lane adapter that forgets to wait.
struct forgetful_lanes : sim::lanes {
  using sim::lanes::lanes;
  void wait(lane, event const&) {}
};
/// How many of the orders that an adversary takes keep the law of waits.
struct tally {
  int tried = 0, kept = 0;
};
template <class Lanes> tally orders_that_keep_waits() {
  tally found;
  for (unsigned seed = 1; seed <= 20; ++seed)
    for (int const on : {0, 1})
      for (bool const ahead : {true, false}) {
        sim::world world;
        world.run_in([=](sim::graph const& all) { return ahead ? all.ahead(on) : all.behind(on); });
        Lanes lanes(world, 0);
        found.kept += laws::random_waits_hold(lanes, {lane::compute, lane::comm}, seed, 200);
        ++found.tried;
      }
  return found;
}

} // namespace

TEST_CASE("simulated lanes keep the laws of lanes in any order", "[sim]") {
  sim::world world;
  sim::lanes lanes(world, 0);
  CHECK(laws::runs_in_order_of_issue(lanes));
  CHECK(laws::wait_orders(lanes, 1));
  CHECK(laws::wait_binds_to_the_last_record(lanes, 1));
  tally const right = orders_that_keep_waits<sim::lanes>(), wrong = orders_that_keep_waits<forgetful_lanes>();
  CHECK(right.kept == right.tried);
  CHECK(wrong.kept < wrong.tried / 2);
}

TEST_CASE("storage of a simulated tensor goes back, and a late reader is told", "[sim]") {
  sim::world world;
  sim::lanes lanes(world, 0);
  sim::tensors tensors;
  sim::tensor kept;
  auto const run = [&](auto&& what) {
    lanes.run(lane::compute, {attn, pass::forward, lane::compute, 0, 0}, [&what] { what(); });
    lanes.drain();
  };
  run([&] { kept = 2.0; });
  sim::tensor leaf = tensors.detach(kept);
  run([&] { CHECK(double(leaf) == 2.0); });
  tensors.release(kept);
  CHECK_THROWS_WITH(run([&] { static_cast<void>(double(leaf)); }), ContainsSubstring("given back: F.attn"));
  // What comes next is made in the same storage, and the old name does not see it.
  sim::tensor next;
  run([&] { next = 3.0; });
  CHECK_THROWS_WITH(run([&] { static_cast<void>(double(leaf)); }), ContainsSubstring("given back"));
  run([&] { CHECK(double(next) == 3.0); });
  sim::tensor const nothing;
  CHECK_THROWS_WITH(run([&] { static_cast<void>(double(nothing)); }), ContainsSubstring("nothing there"));
}
