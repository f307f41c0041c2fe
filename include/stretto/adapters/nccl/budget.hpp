#pragma once

#include <stretto/adapters/nccl/rows.hpp>
#include <stretto/adapters/nccl/session.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// What an all-to-all may take of the GPU, and what it then does.
struct cta_budget {
  communicator* over = nullptr; ///< with that budget, connected
  int most_ctas = 0; ///< what it was given
  int ctas = 0; ///< multiprocessors that it takes
  double microseconds = 0; ///< of one call on an idle GPU, the slowest rank's
};

namespace detail {

struct fixed_stream {
  cudaStream_t on;
  cudaStream_t current() const { return on; }
};

} // namespace detail

/// Chooses the smallest budget with which an all-to-all of `bytes` to every other rank takes no longer than
/// `compute_us`, the compute that is to hide it, or the fastest of all if none does: a multiprocessor that is taken
/// from compute for good costs more than a call that is done early gains (measured). Collective over the ranks of one
/// `color` of the session, which are those of `ranks`; all ranks of the session call it. For when a run is planned: it takes
/// a second, and the communicators that it tried stay until the session ends. Ranks of a negative `color`, which have no
/// all-to-all, get a budget without a communicator.
template <host_exchange Host>
cta_budget choose_budget(session& of, Host ranks, std::size_t bytes, double compute_us, int color = 0,
                         std::vector<int> const& budgets = {2, 4, 8, 16, 32}) {
  auto const all = static_cast<std::size_t>(ranks.ranks());
  std::vector<int> const counts(all, 1);
  side_stream stream;
  stream_memory const memory(stream.get(), 2 * all * (std::max)(bytes, std::size_t{1}));
  auto* const out = memory.data();
  mark const begin(cudaEventDefault), end(cudaEventDefault);
  cta_budget best;
  bool found = false;
  // Ranks of other colors go on trying, and each attempt is a meeting of all.
  for (int const most : budgets) {
    auto* const made = of.split(color, {.most_ctas = most});
    if (made == nullptr) continue;
    auto& over = *made;
    over.connect();
    rows<Host, detail::fixed_stream> exchange(ranks, over, {stream.get()});
    auto const call = [&] {
      exchange.all_to_all(out, counts.data(), out + all * bytes, counts.data(), bytes);
    };
    constexpr int warm = 3, calls = 10;
    for (int i = 0; i < warm; ++i) call();
    begin.record(stream.get());
    for (int i = 0; i < calls; ++i) call();
    end.record(stream.get());
    over.wait_for(stream.get(), "all_to_all");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    double const mine = 1e3 * static_cast<double>(milliseconds) / calls;
    std::vector<double> times(all);
    ranks.all_gather(&mine, 1, times.data());
    double const slowest = *std::max_element(times.begin(), times.end());
    if (!found && (best.over == nullptr || slowest < best.microseconds)) {
      int const taken = over.ctas_of([&](cudaStream_t) { call(); }, stream.get());
      best = {&over, most, taken, slowest};
    }
    found = found || slowest <= compute_us;
  }
  return best;
}

} // namespace nccl
} // namespace v0
} // namespace stretto
