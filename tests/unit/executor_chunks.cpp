#include "unit/agreement.hpp"

#include <stretto/pipelines/all.hpp>

using namespace stretto;
using toy::agrees_with_serial, toy::counts, toy::mixes, toy::Model;

TEST_CASE("several chunks, pairs across them, empty ones, I and W apart", "[executor][pipelines-02]") {
  std::vector<std::string> const two = {"EM|MH", "E|MMH", "EMM|H", "EMDM|DH", "|EMMH", "EMDH|", "EDD|MMMH"};
  agrees_with_serial<Model, TwoStream1F1B, toy::CrossedChunks>(two, counts);
  agrees_with_serial<Model, TwoStream1F1B, SplitDW, toy::CrossedChunks>(two, counts);
  agrees_with_serial<Model, TwoStream1F1B, SplitDW, toy::ThreeChunks>(
      {"EM|MD|MH", "E|MMDM|H", "EMM||MH", "||EMMH", "EMMH||"}, {2, 3, 8});
  agrees_with_serial<Model, TwoStream1F1B, toy::LateWeights>(mixes, counts);
}

TEST_CASE("the pipelines that ship, on one rank", "[executor]") {
  std::vector<std::string> const two = {"EM|MH", "E|MDMH", "|EMH"};
  agrees_with_serial<Model, TwoStream1F1B, SplitDW, DualPipeV>(two, counts);
  agrees_with_serial<Model, TwoStream1F1B, ZeroBubbleV>(two, counts);
  agrees_with_serial<Model, TwoStream1F1B, OneFOneB>(mixes, {1, 3});
  agrees_with_serial<Model, Serial, GPipe>(mixes, {1, 3});
  agrees_with_serial<Model, TwoStream1F1B, ZeroBubbleH1>(mixes, {1, 3});
}

TEST_CASE("a plan of any pipeline runs on the bodies of one schedule", "[executor]") {
  using Bodies = Schedule<Model, TwoStream1F1B, SplitDW, DualPipeV>;
  int const microbatches = 4;
  auto const run_plan = [&]<class S>(S, plan const& all, std::string const& picture, int rank = 0) {
    toy::network<Model> net(picture, microbatches);
    toy::tensors<toy::number> numbers;
    null_lanes lanes;
    executor run(S{}, backend{numbers, lanes}, net.layers, all, rank);
    run();
    return net.bits();
  };
  shipped_pipelines::each([&]<class Pipeline>() {
    CAPTURE(Pipeline::name);
    std::string const picture = Pipeline::chunks == 1 ? "EMDMH" : "EMD|MH";
    CHECK(run_plan(Bodies{}, proved_plan<Pipeline>(1, microbatches), picture) ==
          toy::serial_bits<Model>(picture, microbatches));
  });
  using Whole = Schedule<Model, TwoStream1F1B, OneFOneBOverlapped>;
  auto const refused = [&]<class S>(S, plan const& all, int rank = 0) -> std::string {
    try {
      run_plan(S{}, all, "EMH", rank);
    } catch (std::invalid_argument const& refusal) {
      return refusal.what();
    }
    return {};
  };
  auto const halves = proved_plan<ZeroBubbleH1>(1, microbatches);
  CHECK(refused(Bodies{}, halves).empty());
  CHECK(refused(Whole{}, halves).starts_with("stretto[E48]: zero_bubble_h1 with 1 rank"));
  CHECK(refused(Bodies{}, halves, 1).starts_with("stretto[E60]"));
  long const none[] = {0};
  CHECK(refused(Bodies{}, plan(halves.facts(), none)).starts_with("stretto[E46]"));
}
