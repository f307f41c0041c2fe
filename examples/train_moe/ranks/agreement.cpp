#include "agreement.hpp"

#include "../hash.hpp"
#include "../run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace train_moe {
namespace {

std::uint64_t digest_of(stretto::plan const& plan) {
  std::uint64_t digest = hash_text(0, plan.facts().name);
  for (int rank = 0; rank < plan.facts().ranks; ++rank)
    for (long i = 0; i < plan.size(rank); ++i) {
      auto const& one = plan.calls(rank)[i];
      for (int const each :
           {static_cast<int>(one.what), static_cast<int>(one.forward_chunk), one.forward_microbatch,
            static_cast<int>(one.backward_chunk), one.backward_microbatch})
        digest = mixed(digest ^ static_cast<std::uint64_t>(static_cast<unsigned>(each)));
    }
  return digest;
}

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

} // namespace

std::string agreement_of(options const& o, std::uint64_t text) {
  auto const& m = o.model;
  std::string all;
  auto const add = [&all](char const* name, auto const& value) {
    all += fmt::format("{} {}\n", name, value);
  };
  add("--policy", o.compare ? "of --compare" : name_of(o.how));
  add("--pipeline", o.pipeline.empty() ? "that goes with the policy" : o.pipeline);
  add("--ep", o.ep), add("--pp", o.pp), add("--chunks", o.chunks), add("--microbatches", o.microbatches);
  add("--steps", o.steps), add("--batch", o.batch), add("--seq", m.sequence), add("--layers", m.layers);
  add("--dense", m.dense), add("--hidden", m.hidden), add("--heads", m.heads), add("--ffn", m.ffn);
  add("--experts", m.experts), add("--top-k", m.top_k), add("--shared", m.shared);
  add("--device", name_of(m.device)), add("--comm", name_of(o.transport));
  add("--comm-ctas", o.comm_ctas), add("--attention", name_of_attention(o)), add("--dtype", name_of(m.type));
  add("--seed", m.seed), add("--aux", m.auxiliary), add("--force-load-balancing", m.forced_balance);
  add("--lr", o.learning_rate), add("--clip", o.clip), add("--capacity", o.capacity), add("--graph", o.graph);
  for (auto const how : all_policies)
    if ((o.compare || how == o.how) && goes_with_pipeline(o, how))
      add(fmt::format("the plan of {} with digest", name_of(how)).c_str(),
          fmt::format("{:016x}", digest_of(plan_of(o, how))));
  add("a --text with digest", fmt::format("{:016x}", text));
  return all;
}

std::string difference_of(std::vector<std::string> const& agreements) {
  std::map<std::string, int> votes;
  for (auto const& each : agreements) ++votes[each];
  // Of as many votes those of the lowest rank count.
  auto const* usual = &agreements.front();
  for (auto const& each : agreements)
    if (votes[each] > votes[*usual]) usual = &each;
  std::string problem;
  auto const expected = lines_of(*usual);
  for (std::size_t rank = 0; rank < agreements.size(); ++rank) {
    auto const found = lines_of(agreements[rank]);
    auto const size = std::min(expected.size(), found.size());
    for (std::size_t i = 0; i < size; ++i)
      if (found[i] != expected[i]) {
        problem += fmt::format("{}rank {} has {} and others have {}", problem.empty() ? "" : "; ", rank,
                               found[i], expected[i]);
        break;
      }
    if (problem.empty() && found.size() != expected.size())
      problem = fmt::format("rank {} is another program", rank);
  }
  return problem.empty() ? problem : problem + "; give all ranks one command line";
}

} // namespace train_moe
