#include "array/book.hpp"

#include <stretto/executor/lower.hpp>
#include <stretto/pipelines/all.hpp>
#include <stretto/simulate.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <memory>

using namespace memory_test;

namespace {

/// Messages that belong to no rank's memory while they are under way; what arrives is the receiver's.
struct posted {
  int rows, columns;
  std::vector<float> numbers;
};
class posting_peers {
public:
  using tensor = array::tensor;
  posting_peers(host::mailbox<std::shared_ptr<posted const>>& mailbox, int rank, array::memory& memory)
      : inner_(mailbox, rank), memory_(memory) {}
  void send(message const& m, tensor const& t) {
    inner_.send(
        m, std::make_shared<posted const>(posted{t.rows(), t.columns(), {t.data(), t.data() + t.size()}}));
  }
  tensor receive(message const& m) {
    auto const came = inner_.receive(m);
    tensor made(memory_, came->rows, came->columns);
    std::copy(came->numbers.begin(), came->numbers.end(), made.data());
    return made;
  }

private:
  host::peers<std::shared_ptr<posted const>> inner_;
  array::memory& memory_;
};

/// The stages of `Pipeline`, and never more than one microbatch in flight: what each holds can be weighed.
template <class Pipeline> struct OneAtATime {
  static constexpr char const* name = "one_at_a_time";
  static constexpr placement map = Pipeline::map;
  static constexpr int chunks = Pipeline::chunks;
  static constexpr bool pairs = false, splits = Pipeline::splits;
  static constexpr int min_microbatches(int) { return 1; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      for (int c = 0; c < chunks; ++c) sink(call::forward(c, m));
      for (int c = chunks - 1; c >= 0; --c) sink(splits ? call::backward_input(c, m) : call::backward(c, m));
      if (splits)
        for (int c = chunks - 1; c >= 0; --c) sink(call::backward_weight(c, m));
    }
  }
};

/// How far a chunk is with a microbatch.
enum progress { untouched, has_activation, awaits_weights, done, between };

/// What lives on one rank whenever none of its chunks is in the middle of a pass, by how far each is.
struct rest {
  std::vector<progress> at; ///< by chunk and microbatch
  std::size_t bytes;
};

struct rank_memory {
  std::vector<rest> rests;
  int live = 0; ///< chunks of microbatches that have begun and are not done, at most
};

/// What was sent on, bytes of one message.
std::size_t message_bytes() {
  own_tensors::shape const shape;
  return static_cast<std::size_t>(shape.words * shape.hidden) * sizeof(float);
}

/// By chunk and microbatch: after which row the storage of the activation that was sent goes back; the number of rows where
/// that is later than the step or nothing was sent.
std::vector<int> sent_goes_back(detail::sequence<op> const& ops, detail::sequence<release> const& releases,
                                int chunks, int microbatches) {
  auto const rows = static_cast<int>(ops.size());
  std::vector<int> found(static_cast<std::size_t>(chunks * microbatches), rows);
  for (int row = 0; row < rows; ++row) {
    op const& o = ops[static_cast<std::size_t>(row)];
    if (!is_send(o.on) || o.what != pass::forward) continue;
    for (release const& each : releases)
      if (each.row > row && each.group == o.group && (o.touches.reads & cells::one(each.cell)) != 0) {
        int& first = found[static_cast<std::size_t>(o.chunk * microbatches + o.microbatch)];
        first = (std::min)(first, each.row);
      }
  }
  return found;
}

template <class Pipeline>
std::vector<rank_memory> memory_of(int ranks, int microbatches, std::vector<std::string> const& pictures) {
  using S = Schedule<Model, Serial, Pipeline>;
  std::vector<rank_memory> all(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  for (int rank = 0; rank < ranks; ++rank) group.add_domain({rank});
  host::mailbox<std::shared_ptr<posted const>> mailbox(group);
  group.run([&](int rank) {
    auto exchange = group.communicator(rank, 1 + rank);
    own_tensors::shape const shape;
    Comm comm(exchange, shape.experts);
    array::tensors arrays;
    Network net(pictures[static_cast<std::size_t>(rank)], shape, arrays, comm, microbatches);
    net.next_batches(0);
    watched_lanes lanes;
    posting_peers peers(mailbox, rank, arrays.memory());
    executor run(S{}, backend{arrays, lanes, peers}, net.layers,
                 sizes{.microbatches = microbatches, .ranks = ranks, .rank = rank});
    struct counts {
      int forward = 0, input = 0, weight = 0;
      bool begun = false;
    };
    std::vector<counts> whole(static_cast<std::size_t>(Pipeline::chunks * microbatches)), now(whole);
    auto const count = [&](std::vector<counts>& in, op const& o) {
      auto& of = in[static_cast<std::size_t>(o.chunk * microbatches + o.microbatch)];
      ++(o.is_forward() ? of.forward : o.what == pass::backward_weight ? of.weight : of.input);
      of.begun = of.begun || !o.is_message();
    };
    for (op const& o : run.table().ops) count(whole, o);
    auto const facts = facts_of<Pipeline>(ranks, microbatches);
    auto const goes_back = sent_goes_back(
        run.table().ops,
        detail::plan_releases<S>(run.table(), detail::chain_layout(facts, rank, net.layers), net.layers),
        Pipeline::chunks, microbatches);
    std::size_t const parameters = arrays.memory().live();
    std::size_t row = 0;
    rank_memory& mine = all[static_cast<std::size_t>(rank)];
    lanes.after = [&] {
      count(now, run.table().ops[row++]);
      rest one;
      int live = 0;
      for (std::size_t i = 0; i < now.size(); ++i)
        live += now[i].begun && (now[i].forward < whole[i].forward || now[i].input < whole[i].input ||
                                 now[i].weight < whole[i].weight);
      mine.live = (std::max)(mine.live, live);
      for (std::size_t i = 0; i < now.size(); ++i) {
        counts const &is = now[i], &is_all = whole[i];
        bool const f = is.forward == is_all.forward, b = is.input == is_all.input,
                   w = is.weight == is_all.weight;
        one.at.push_back(f && b && w                              ? done
                         : f && b && is.weight == 0               ? awaits_weights
                         : f && is.input == 0 && is.weight == 0   ? has_activation
                         : is.forward + is.input + is.weight == 0 ? untouched
                                                                  : between);
        if (one.at.back() == between) return;
      }
      one.bytes = arrays.memory().live() - parameters;
      // What was sent belongs to the activation until its backward. Where the lane hears before, with another wait, that the
      // message has left, it goes back earlier.
      for (std::size_t i = 0; i < now.size(); ++i)
        if ((one.at[i] == has_activation || one.at[i] == awaits_weights) &&
            goes_back[i] < static_cast<int>(row))
          one.bytes += message_bytes();
      mine.rests.push_back(one);
    };
    run();
  });
  return all;
}

template <class Pipeline> void holds_what_the_plan_says(int ranks, std::vector<std::string> const& stages) {
  std::vector<std::string> pictures(static_cast<std::size_t>(ranks));
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    std::string& mine = pictures[static_cast<std::size_t>(rank_of(Pipeline::map, ranks, stage))];
    mine += (stage >= ranks ? "|" : "") + stages[static_cast<std::size_t>(stage)];
  }
  for (int const microbatches : {2 * ranks - 1, 2 * ranks + 2}) {
    CAPTURE(Pipeline::name, ranks, microbatches);
    auto const weighed = memory_of<OneAtATime<Pipeline>>(ranks, microbatches, pictures);
    auto const found = memory_of<Pipeline>(ranks, microbatches, pictures);
    plan const all = proved_plan<Pipeline>(ranks, microbatches);
    simulation const counted(all, chunk_costs{});
    for (int rank = 0; rank < ranks; ++rank) {
      auto const r = static_cast<std::size_t>(rank);
      // From one rest to the next one chunk has gone on, and with it what it holds.
      std::vector<std::array<std::size_t, between>> holds(weighed[r].rests.front().at.size());
      std::vector<progress> before(holds.size(), untouched);
      std::size_t bytes = 0;
      for (rest const& each : weighed[r].rests) {
        for (std::size_t i = 0; i < holds.size(); ++i)
          if (each.at[i] != before[i]) holds[i][each.at[i]] = holds[i][before[i]] + each.bytes - bytes;
        before = each.at, bytes = each.bytes;
      }
      for (rest const& each : found[r].rests) {
        std::size_t expected = 0;
        for (std::size_t i = 0; i < holds.size(); ++i) expected += holds[i][each.at[i]];
        CAPTURE(rank, expected, each.bytes);
        CHECK(each.bytes == expected);
      }
      CHECK(found[r].live == counted.rank(rank).peak_live);
      CHECK(found[r].live <= all.bound(rank));
      if (microbatches >= 2 * ranks) CHECK(found[r].live == all.bound(rank));
    }
  }
}

} // namespace

TEST_CASE("a rank holds as many activations as its plan counts, each as large as when it is alone",
          "[array][memory]") {
  holds_what_the_plan_says<SerialPipeline>(3, {"EM", "DM", "MH"});
  holds_what_the_plan_says<GPipe>(3, {"EM", "DM", "MH"});
  holds_what_the_plan_says<OneFOneB>(3, {"EM", "DM", "MH"});
  holds_what_the_plan_says<OneFOneBOverlapped>(3, {"EM", "DM", "MH"});
  holds_what_the_plan_says<ZeroBubbleH1>(3, {"EM", "DM", "MH"});
  holds_what_the_plan_says<Interleaved<>>(2, {"EM", "D", "M", "MH"});
  holds_what_the_plan_says<InterleavedOverlapped<>>(2, {"EM", "D", "M", "MH"});
  holds_what_the_plan_says<ZeroBubbleV>(2, {"EM", "D", "M", "MH"});
  holds_what_the_plan_says<DualPipeV>(2, {"EM", "D", "M", "MH"});
}
