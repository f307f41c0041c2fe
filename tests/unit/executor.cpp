#include "unit/agreement.hpp"

using namespace stretto;
using toy::agrees_with_serial, toy::counts, toy::mixes, toy::train;
using toy::Model;
using toy::OddModel;

namespace {

double as_double(std::uint64_t bits) { return std::bit_cast<double>(bits); }

} // namespace

TEST_CASE("every policy gives the bits of the serial one", "[executor]") {
  agrees_with_serial<Model, Serial, SplitDW>(mixes, counts);
  agrees_with_serial<Model, TwoStream1F1B>(mixes, counts);
  agrees_with_serial<Model, TwoStream1F1B, SplitDW>(mixes, counts);
  agrees_with_serial<Model, Serial, OneFOneBOverlapped>(mixes, counts);
}

TEST_CASE("values with several readers, several phases in a node, phases without weights", "[executor]") {
  std::vector<std::string> const pictures = {"EFH", "ESH", "EQH", "ESFQSH", "EQQSSFH"};
  agrees_with_serial<OddModel, Serial, SplitDW>(pictures, counts);
  agrees_with_serial<OddModel, TwoStream1F1B>(pictures, counts);
  agrees_with_serial<OddModel, TwoStream1F1B, SplitDW>(pictures, counts);
  agrees_with_serial<OddModel, TwoStream1F1B, toy::LateWeights>(pictures, counts);
}

TEST_CASE("losses are those of a plain walk over the layers", "[executor]") {
  int const microbatches = 5;
  toy::network<Model> net("EMDMMH", microbatches);
  toy::walker<Model> walk(net);
  std::vector<std::uint64_t> const bits =
      train<Schedule<Model, TwoStream1F1B, SplitDW>>("EMDMMH", microbatches).bits;
  for (int m = 0; m < microbatches; ++m)
    CHECK(std::bit_cast<std::uint64_t>(walk(m)) == bits[static_cast<unsigned>(m)]);
}

TEST_CASE("gradients are those of finite differences", "[executor][megatron-14]") {
  auto compare = []<class M, class S>(std::string const& picture, S, std::type_identity<M>) {
    int const microbatches = 4;
    toy::network<M> net(picture, microbatches);
    toy::walker<M> walk(net);
    auto total = [&] {
      double sum = 0;
      for (int m = 0; m < microbatches; ++m) sum += walk(m);
      return sum;
    };
    std::vector<std::uint64_t> const bits = train<S>(picture, microbatches).bits;
    unsigned place = microbatches;
    for (toy::parameter& p : net.parameters) {
      double const weight = p.weight, step = 1e-5;
      p.weight = weight + step;
      double const above = total();
      p.weight = weight - step;
      double const below = total();
      p.weight = weight;
      double const slope = (above - below) / (2 * step), gradient = as_double(bits[place++]);
      CAPTURE(picture, place, slope, gradient);
      CHECK(std::abs(slope - gradient) <= 1e-6 * (1 + std::abs(slope)));
      CHECK(gradient != 0);
    }
  };
  compare("EMDMH", Schedule<Model, Serial>{}, std::type_identity<Model>{});
  compare("EMDMH", Schedule<Model, TwoStream1F1B, SplitDW>{}, std::type_identity<Model>{});
  compare("ESFQSH", Schedule<OddModel, TwoStream1F1B, SplitDW>{}, std::type_identity<OddModel>{});
}

TEST_CASE("steps follow each other", "[executor]") {
  toy::network<Model> net("EMDMH", 3);
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  executor run(Schedule<Model, TwoStream1F1B, SplitDW>{}, backend{numbers, lanes}, net.layers,
               sizes{.microbatches = 3});
  run();
  auto const first = net.bits();
  for (int step = 0; step < 3; ++step) {
    net.clear();
    run();
    CHECK(net.bits() == first);
  }
}
