#include "support.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace test;

namespace {

span of(phase_kind phase, lane on, double start, double end, int rank = 0) {
  return {label(phase, on), rank, start, end};
}

} // namespace

TEST_CASE("busy times: overlap counts once, exposed is communication without compute", "[timeline]") {
  std::vector<span> const spans = {
      of(attn, lane::compute, 10, 20),     of(dispatch, lane::comm, 15, 30),
      of(mlp, lane::compute, 30, 40),      of(combine, lane::comm, 35, 36),
      of(combine, lane::comm, 50, 52),     of(attn, lane::receive_lower, 0, 60),
      of(mlp, lane::compute, 100, 900, 1),
  };
  busy_time const busy = busy_of_rank(spans, 0);
  CHECK(busy.length_us == 60);
  CHECK(busy.compute_us == 20);
  CHECK(busy.communication_us == 18);
  CHECK(busy.exposed_us == 12);
  CHECK(busy_of_rank(spans, 1).compute_us == 800);
  CHECK(busy_of_rank(spans, 2).length_us == 0);
}

TEST_CASE("communication is what dispatch and combine do, whatever the lane; ops that meet count once",
          "[timeline]") {
  std::vector<span> const serial = {of(attn, lane::compute, 0, 10), of(dispatch, lane::compute, 10, 15),
                                    of(mlp, lane::compute, 15, 20)};
  CHECK(busy_of_rank(serial, 0).communication_us == 5);
  CHECK(busy_of_rank(serial, 0).exposed_us == 5);
  CHECK(busy_of_rank(serial, 0).compute_us == 15);
  std::vector<span> const doubled = {of(attn, lane::compute, 0, 10), of(mlp, lane::comm, 5, 12)};
  CHECK(busy_of_rank(doubled, 0).compute_us == 12);
}

TEST_CASE("busy times agree with counting microseconds one by one", "[timeline]") {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<span> spans;
    bool computes[200] = {}, communicates[200] = {};
    for (int i = 0; i < 20; ++i) {
      int const start = static_cast<int>(random() % 150), end = start + static_cast<int>(random() % 50);
      bool const is_communication = random() % 2;
      spans.push_back(of(is_communication ? combine : mtp, lane::compute, start, end));
      for (int at = start; at < end; ++at) (is_communication ? communicates : computes)[at] = true;
    }
    int compute = 0, communication = 0, exposed = 0;
    for (int at = 0; at < 200; ++at) {
      compute += computes[at];
      communication += communicates[at];
      exposed += communicates[at] && !computes[at];
    }
    busy_time const busy = busy_of_rank(spans, 0);
    CHECK(busy.compute_us == compute);
    CHECK(busy.communication_us == communication);
    CHECK(busy.exposed_us == exposed);
  }
}

TEST_CASE("the trace is JSON that says where and when each op ran", "[timeline]") {
  std::vector<span> const spans = {
      {{attn, pass::forward, lane::compute, 2, 3}, 0, 1.5, 2.25},
      {{combine, pass::backward_input, lane::comm, 0, 12}, 1, 1e9 + 0.125, 1e9 + 1000},
      {{dispatch, pass::backward, lane::comm, 1, 1}, 0, 0, 0},
      {{attn, pass::forward, lane::receive_lower, 1, 1}, 0, -5, 0},
  };
  std::ostringstream out;
  std::vector<std::pair<std::string, std::string>> const about = {{"policy", "serial"}, {"a \"b\"", "c\\"}};
  write_chrome_trace(out, spans, "link modelled: \"10 Gb/s\"\n\\", about);
  auto const trace = nlohmann::json::parse(out.str());
  CHECK(trace["otherData"]["note"] == "link modelled: \"10 Gb/s\" \\");
  CHECK(trace["otherData"]["policy"] == "serial");
  CHECK(trace["otherData"]["a \"b\""] == "c\\");
  std::vector<nlohmann::json> ops;
  std::map<int, std::set<std::string>> names;
  for (auto const& event : trace["traceEvents"]) {
    if (event["ph"] == "X")
      ops.push_back(event);
    else {
      CHECK(event["ph"] == "M");
      if (event["args"].contains("name")) names[event["pid"]].insert(event["args"]["name"]);
    }
  }
  REQUIRE(ops.size() == spans.size());
  CHECK(names[0] == std::set<std::string>{"rank 0", "compute", "comm", "receive lower"});
  CHECK(names[1] == std::set<std::string>{"rank 1", "comm"});
  CHECK(ops[0]["name"] == "F.attn L2 mb3");
  CHECK(ops[0]["cat"] == "compute");
  CHECK(ops[0]["ts"] == 1.5);
  CHECK(ops[0]["dur"] == 0.75);
  CHECK(ops[0]["pid"] == 0);
  CHECK(ops[0]["tid"] == 0);
  CHECK(ops[0]["args"]["layer"] == 2);
  CHECK(ops[0]["args"]["microbatch"] == 3);
  CHECK(ops[1]["name"] == "I.combine L0 mb12");
  CHECK(ops[1]["cat"] == "comm");
  CHECK(ops[1]["pid"] == 1);
  CHECK(ops[1]["tid"] == 1);
  CHECK(ops[1]["ts"].get<double>() == Catch::Approx(1e9 + 0.125).epsilon(1e-15));
  CHECK(ops[2]["dur"] == 0);
  CHECK(ops[3]["cat"] == "messages");
  CHECK(ops[3]["ts"] == -5);
}

TEST_CASE("a trace of nothing is a trace", "[timeline]") {
  std::ostringstream out;
  write_chrome_trace(out, {});
  CHECK(nlohmann::json::parse(out.str())["traceEvents"].empty());
}

TEST_CASE("what lanes recorded can be told apart by rank and drawn", "[timeline]") {
  std::vector<span> all;
  for (int rank = 0; rank < 2; ++rank) {
    host::lanes lanes({.rank = rank, .spans = 10});
    host::lanes::event done;
    lanes.run(lane::compute, label(attn), [] { sleep_ms(4); });
    lanes.record(lane::compute, done);
    lanes.wait(lane::comm, done);
    lanes.run(lane::comm, label(dispatch, lane::comm), [] { sleep_ms(6); });
    lanes.drain();
    auto const mine = lanes.timeline();
    all.insert(all.end(), mine.begin(), mine.end());
  }
  for (int rank = 0; rank < 2; ++rank) {
    busy_time const busy = busy_of_rank(all, rank);
    CHECK(busy.compute_us >= 4000);
    CHECK(busy.communication_us >= 6000);
    CHECK(busy.exposed_us == Catch::Approx(busy.communication_us));
    CHECK(busy.length_us >= 10000);
  }
}
