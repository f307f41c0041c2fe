#include "forecast.hpp"

#include "run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace train_moe {
namespace {

/// In numbers, of one rank.
struct layer_size {
  std::size_t parameters = 0;
  std::size_t of_token = 0; ///< kept for backward in the type of the model
  std::size_t wide_of_token = 0; ///< kept in float
};

std::size_t size(int number) { return static_cast<std::size_t>(number); }

/// `layer` counts from the first one behind the embedding.
layer_size size_of_layer(options const& o, int layer) {
  auto const& m = o.model;
  std::size_t const hidden = size(m.hidden), ffn = size(m.ffn), top_k = size(m.top_k),
                    shared = size(m.shared);
  std::size_t const experts = size(m.experts);
  // What both norms read, the projections and what attention itself keeps.
  layer_size made{hidden + 4 * hidden * hidden + hidden, 7 * hidden, 0};
  if (layer < m.dense) {
    made.parameters += 3 * hidden * (top_k + shared) * ffn;
    made.of_token += 2 * (top_k + shared) * ffn;
    return made;
  }
  made.parameters += hidden * experts + 3 * hidden * shared * ffn + 3 * hidden * ffn * experts / size(o.ep);
  // Slots are rows, whether they are filled or not.
  std::size_t const tokens = size(o.batch) * size(m.sequence);
  std::size_t const rows = o.capacity > 0 ? experts * size(slots_of(o)) / tokens : top_k;
  made.of_token += 2 * shared * ffn + rows * (hidden + 2 * ffn);
  made.wide_of_token += experts;
  return made;
}
layer_size size_of_embedding(options const& o) {
  return {size(o.model.hidden) * model_config::vocabulary, 0, 0};
}
layer_size size_of_head(options const& o) {
  auto const hidden = size(o.model.hidden);
  return {hidden + hidden * model_config::vocabulary, hidden, model_config::vocabulary};
}

std::string gibibytes(std::size_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

} // namespace

memory_forecast forecast(options const& o, policy how) {
  auto const plan = plan_of(o, how);
  auto const& facts = plan.facts();
  std::size_t const width = o.model.type == number_type::bf16 ? 2 : o.model.type == number_type::f64 ? 8 : 4;
  std::size_t const wide = (std::max)(width, std::size_t{4});
  // The weight, its gradient, two moments; a master copy where the weight is narrower.
  std::size_t const of_parameter = width + 3 * wide + (width < wide ? wide : 0);
  std::size_t const tokens = size(o.batch) * size(o.model.sequence);
  memory_forecast found;
  for (int rank = 0; rank < o.pp; ++rank) {
    std::vector<std::size_t> of_chunk;
    for (auto const& part : parts_of(facts, rank, o.model.layers)) {
      std::size_t kept = 0;
      auto const count = [&](layer_size const& layer) {
        found.parameters += layer.parameters * of_parameter;
        kept += tokens * (layer.of_token * width + layer.wide_of_token * wide);
      };
      if (part.embeds) count(size_of_embedding(o));
      for (int layer = part.first; layer < part.end; ++layer) count(size_of_layer(o, layer));
      if (part.has_head) count(size_of_head(o));
      of_chunk.push_back(kept);
    }
    std::size_t live = 0, most = 0;
    for (auto const& call : std::span(plan.calls(rank), static_cast<std::size_t>(plan.size(rank)))) {
      // A pair takes layer by layer what it gives back.
      if (call.runs_forward()) live += of_chunk[size(call.forward_chunk)];
      if (call.runs_weight()) live -= of_chunk[size(call.backward_chunk)];
      most = (std::max)(most, live);
    }
    found.activations += most;
  }
  found.parameters *= size(o.ep);
  found.activations *= size(o.ep);
  return found;
}

std::string told(memory_forecast const& needs) {
  return fmt::format(
      "it takes {} at least, {} of them for parameters with their gradients and optimizer and {} for what "
      "forwards leave for their backwards",
      gibibytes(needs.all()), gibibytes(needs.parameters), gibibytes(needs.activations));
}

void require_memory(options const& o, std::size_t free, int ranks) {
  for (auto const how : all_policies) {
    if (o.compare ? !goes_with_pipeline(o, how) : how != o.how) continue;
    auto const needs = forecast(o, how).share(ranks, o.ep * o.pp);
    if (needs.all() <= free) continue;
    throw input_error(fmt::format(
        "{} of --ep {} times --pp {} ranks {} on one GPU with {} free, and with {} {}; lower --layers, "
        "--hidden, --ffn, --experts, --batch or --seq, or the ranks on a GPU",
        ranks, o.ep, o.pp, ranks == 1 ? "is" : "are", gibibytes(free), name_of(how), told(needs)));
  }
}

std::string with_forecast(std::string const& problem, options const& o, policy how) {
  // Of torch for a GPU or a CPU, and of CUDA itself.
  auto at = problem.find("out of memory");
  if (at == std::string::npos) at = problem.find("can't allocate memory");
  if (at == std::string::npos) return problem;
  constexpr std::string_view before = " failed: ";
  auto const op = problem.substr(0, at).rfind(before);
  auto const needs = forecast(o, how);
  return (op == std::string::npos ? "" : problem.substr(0, op + before.size())) + "out of memory; with " +
         name_of(how) + " " + told(needs) +
         (needs.parameters > needs.activations ? "; lower --layers, --hidden, --ffn, --experts or --ep"
                                               : "; lower --batch, --seq, --layers or --ep");
}

} // namespace train_moe
