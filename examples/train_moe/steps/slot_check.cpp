#include "slot_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace train_moe {
namespace {

/// Of one rank: where choices were lost first, how many there, and how often one expert was chosen anywhere.
struct shortage {
  std::int64_t layer = -1, microbatch = -1, lost = 0, most = 0;
};

shortage shortage_in(at::Tensor const& use) {
  shortage found;
  auto const there = use.cpu();
  auto const* next = there.const_data_ptr<std::int64_t>();
  for (std::int64_t layer = 0; layer < there.size(0); ++layer)
    for (std::int64_t microbatch = 0; microbatch < there.size(1); ++microbatch, next += 2) {
      found.most = std::max(found.most, next[1]);
      if (next[0] > 0 && found.layer < 0)
        found.layer = layer, found.microbatch = microbatch, found.lost = next[0];
    }
  return found;
}

/// With two digits behind the point, and no less than it is.
std::string rounded_up(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", std::ceil(value * 100 - 1e-9) / 100);
  return text;
}

} // namespace

void check_slots(options const& o, at::Tensor const& use, int step, rank_communicator& ranks) {
  auto const all = gather_all<shortage>({shortage_in(use)}, ranks);
  auto const short_one =
      std::find_if(all.begin(), all.end(), [](auto const& of_rank) { return of_rank[0].layer >= 0; });
  if (short_one == all.end()) return;
  std::int64_t most = 0;
  for (auto const& of_rank : all) most = std::max(most, of_rank[0].most);
  auto const& where = (*short_one)[0];
  double const even = 1.0 * o.batch * o.model.sequence * o.model.top_k / o.model.experts;
  throw run_error("step " + std::to_string(step + 1) + ", rank " + std::to_string(short_one - all.begin()) +
                  ", layer " + std::to_string(where.layer) + ", microbatch " +
                  std::to_string(where.microbatch) + ": " + std::to_string(where.lost) +
                  " choices found no slot; an expert has " + std::to_string(slots_of(o)) +
                  " and one was chosen " + std::to_string(most) + " times, so raise --capacity to " +
                  rounded_up(static_cast<double>(most) / even) + " or more (" +
                  rounded_up(static_cast<double>(o.model.experts) / o.model.top_k) + " always suffices)");
}

} // namespace train_moe
