#pragma once

#include <stretto/plan.hpp>
#include <stretto/simulate/ops.hpp>

#include <cstddef>
#include <functional>
#include <vector>

/// Plans lowered to flat tables, compiled once for the tests that look at them.
namespace lowered {

/// Numbers of the block types.
inline constexpr int moe = 0, dense = 1, embedding = 2, head = 3;

enum class policy { serial, whole, split };

/// The block types of a stage; its number is given.
using stage_types = std::function<std::vector<int>(int)>;

struct step {
  stretto::plan all;
  std::vector<stretto::layer_shape> shapes; ///< by rank
  std::vector<stretto::flat_table> tables;
};

/// Policies other than `split` know MoE layers only.
step lower(stretto::plan plan, policy how, stage_types const& types);

stretto::detail::sequence<stretto::release> releases_of(step const& of, int rank);

/// `layers` MoE layers on every stage and nothing else.
stage_types only_moe(int layers);
/// The same between an embedding and a head.
stage_types with_ends(stretto::plan_facts const& facts, stage_types inner);

/// Whether every rank receives from every other in the order in which that one sends.
bool ends_agree(step const& of);

/// What must happen before what: reachability over the order of the lanes and the waits, by brute force.
class before {
public:
  explicit before(stretto::flat_table const& table) : words_((table.ops.size() + 63) / 64) {
    rows_.assign(table.ops.size(), std::vector<unsigned long long>(words_));
    follow(table, 0);
  }
  /// Anew from row `first` on, after a change of its waits.
  void follow(stretto::flat_table const& table, std::size_t first) {
    int last[stretto::lane_count];
    for (int& row : last) row = -1;
    for (std::size_t i = 0; i < table.ops.size(); ++i) {
      stretto::op const& o = table.ops[i];
      int& mine = last[static_cast<int>(o.on)];
      if (i >= first) {
        rows_[i].assign(words_, 0);
        if (mine >= 0) add(i, static_cast<std::size_t>(mine));
        for (int const w : o.wait)
          if (w >= 0) add(i, static_cast<std::size_t>(w));
      }
      mine = static_cast<int>(i);
    }
  }
  bool operator()(std::size_t earlier, std::size_t later) const {
    return (rows_[later][earlier / 64] >> earlier % 64 & 1) != 0;
  }

private:
  void add(std::size_t to, std::size_t from) {
    for (std::size_t w = 0; w < words_; ++w) rows_[to][w] |= rows_[from][w];
    rows_[to][from / 64] |= 1ULL << from % 64;
  }
  std::size_t words_;
  std::vector<std::vector<unsigned long long>> rows_;
};

/// One use of a cell.
struct use {
  std::size_t row;
  bool reads, writes, clears;
};
/// The uses of every cell in the order of the rows; parameter accumulators behind the groups.
std::vector<std::vector<use>> uses_of(stretto::flat_table const& table);

/// Whether this run is to try every size and not a choice of them.
bool tries_every_size();

/// Calls `act(plan)` for every shipped pipeline that serves the sizes; interleaved ones with 1 to 4 chunks too.
void each_pipeline(int ranks, int microbatches, std::function<void(stretto::plan)> const& act);

inline int derived_waits(stretto::flat_table table, stretto::flat_table* into = nullptr) {
  stretto::link(table.ops.data(), static_cast<int>(table.ops.size()), table.groups, table.layers);
  int const waits = table.waits();
  if (into != nullptr) *into = std::move(table);
  return waits;
}

} // namespace lowered
