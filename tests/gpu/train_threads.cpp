#include "training.hpp"

#include <train_moe/ranks/cuda_transports.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cuda_runtime_api.h>

using namespace test;
using namespace train_moe;

namespace {

constexpr transport_kind between_threads[] = {transport_kind::staged, transport_kind::peer};

void require_nccl(int gpus) {
  int count = 0;
  if (!has_nccl() || cudaGetDeviceCount(&count) != cudaSuccess || count < gpus)
    SKIP("needs NCCL and " << gpus << " GPUs");
}

struct way_to_run {
  char const* pipeline;
  policy how;
  bool under_a_tool = false; ///< for each policy one of the pipelines, which differ in their order only
};

} // namespace

TEST_CASE("every transport between threads and every policy give the same bits", "[gpu]") {
  text_file const file;
  auto o = small();
  o.ep = GENERATE(2, 4);
  if (under_a_tool() && o.ep == 4) return;
  corpus const text(file.path(), o.model.sequence);
  auto const yardstick = run(o, policy::autograd, text);
  for (auto const transport : between_threads)
    for (auto const how : {policy::autograd, policy::two_stream_1f1b, policy::split_dw}) {
      if (is_left_out(how)) continue;
      o.transport = transport;
      CAPTURE(o.ep, transport == transport_kind::peer, name_of(how));
      CHECK(same(run(o, how, text), yardstick));
    }
}

TEST_CASE("of ranks that keep their rows one gives the bits of any transport, two those of any policy",
          "[gpu]") {
  text_file const file;
  auto o = small();
  o.ep = GENERATE(1, 2);
  o.capacity = GENERATE(0.0, 2.0);
  if (under_a_tool() && o.ep == 1) return;
  CAPTURE(o.ep, o.capacity);
  corpus const text(file.path(), o.model.sequence);
  if (o.ep > 1) o.transport = transport_kind::none;
  auto const yardstick = run(o, policy::autograd, text);
  o.transport = transport_kind::none;
  for (auto const how : {policy::serial, policy::two_stream_1f1b, policy::split_dw})
    if (!is_left_out(how)) CHECK(same(run(o, how, text), yardstick));
}

TEST_CASE("stages of a pipeline that are threads give the bits of one stage", "[gpu]") {
  text_file const file;
  auto o = small();
  o.microbatches = 4;
  o.model.layers = 5;
  o.ep = GENERATE(1, 2);
  if (under_a_tool() && o.ep == 1) return;
  corpus const text(file.path(), o.model.sequence);
  auto const yardstick = run(o, policy::serial, text);
  o.pp = 2;
  for (auto const transport : between_threads)
    // Without rows between ranks the two are the same.
    for (auto const& way :
         {way_to_run{"one_f_one_b", policy::autograd, true}, way_to_run{"one_f_one_b", policy::serial},
          way_to_run{"one_f_one_b_ep", policy::two_stream_1f1b, true},
          way_to_run{"dual_pipe_v", policy::split_dw, true}, way_to_run{"zero_bubble_v", policy::split_dw},
          way_to_run{"interleaved_ep", policy::split_dw}}) {
      if (o.ep == 1 && transport == transport_kind::staged) continue;
      if (under_a_tool() && (transport == transport_kind::staged || !way.under_a_tool)) continue;
      o.transport = transport;
      o.pipeline = way.pipeline;
      CAPTURE(o.ep, o.pipeline, transport == transport_kind::peer, name_of(way.how));
      CHECK(same(run(o, way.how, text), yardstick));
    }
}

TEST_CASE(
    "threads with a GPU each, joined by NCCL, give the bits of threads on one GPU, step by step and captured",
    "[gpu]") {
  require_nccl(2);
  text_file const file;
  auto o = small();
  o.steps = 4;
  o.capacity = 2;
  corpus const text(file.path(), o.model.sequence);
  auto const yardstick = run(o, policy::autograd, text);
  o.transport = transport_kind::nccl;
  o.graph = GENERATE(false, true);
  for (auto const how : all_policies) {
    if (is_left_out(how)) continue;
    CAPTURE(o.graph, name_of(how));
    CHECK(same(run(o, how, text), yardstick));
  }
}

TEST_CASE("stages with a GPU each, joined by NCCL, give the bits of one stage", "[gpu]") {
  require_nccl(2);
  text_file const file;
  auto o = small();
  o.microbatches = 4;
  o.model.layers = 5;
  o.ep = 1;
  corpus const text(file.path(), o.model.sequence);
  auto const yardstick = run(o, policy::serial, text);
  o.pp = 2;
  o.transport = transport_kind::nccl;
  for (auto const& way :
       {way_to_run{"one_f_one_b", policy::autograd}, way_to_run{"dual_pipe_v", policy::split_dw}}) {
    o.pipeline = way.pipeline;
    CAPTURE(o.pipeline, name_of(way.how));
    CHECK(same(run(o, way.how, text), yardstick));
  }
}
