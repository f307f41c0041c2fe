#include "unit/agreement.hpp"

#include <stretto/pipelines/all.hpp>

using namespace stretto;
using toy::agrees_with_serial, toy::counts, toy::mixes, toy::Model;

TEST_CASE("several chunks, pairs across them, empty ones, I and W apart", "[executor]") {
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
