#pragma once

#include <stretto/executor/lower.hpp>
#include <stretto/timeline.hpp>

#include <algorithm>
#include <stdexcept>
#include <vector>

/// Replays flat tables op by op: every lane of every rank in order, every op after what it waits for, every receive after
/// its send. Finer than chunk costs: the attention of the next call may run beside the last combine of this one.
namespace stretto {
inline namespace v0 {

/// The layers of one rank as block types only, for programs that are looked at and not run.
class layer_shape {
public:
  struct reference {
    int type;
  };
  /// `types[c]` are the block types of chunk c, in forward order.
  explicit layer_shape(std::vector<std::vector<int>> const& types) {
    for (std::vector<int> const& chunk : types) {
      first_.push_back(size());
      types_.insert(types_.end(), chunk.begin(), chunk.end());
    }
  }
  int size() const { return static_cast<int>(types_.size()); }
  int chunks() const { return static_cast<int>(first_.size()); }
  int first(int chunk) const { return chunk < chunks() ? first_[static_cast<unsigned>(chunk)] : size(); }
  reference operator[](int layer) const { return {types_[static_cast<unsigned>(layer)]}; }

private:
  std::vector<int> types_, first_;
};

/// The table of one rank of a proved plan, for layers of the given shape.
template <class Schedule>
flat_table lower_rank(plan const& all, plan_steps const& lists, int rank, layer_shape const& layers) {
  detail::chain_layout const layout(all.facts(), rank, layers);
  return detail::lower<Schedule>(detail::place_steps(all, lists, rank), layers, layout).table;
}

/// The stage that produced what message row `o` of `rank` carries: the same number at both ends.
constexpr int producer_of(plan_facts const& facts, int rank, op const& o) {
  int const stage = facts.stage(rank, o.chunk);
  return is_send(o.on) ? stage : o.what == pass::backward ? stage + 1 : stage - 1;
}

/// The label of row `o` of `rank`, in a table of `Schedule`.
template <class Schedule> op_label label_of(plan_facts const& facts, int rank, op const& o) {
  if (o.is_message()) return {phase_kind::attn, o.what, o.on, producer_of(facts, rank, o), o.microbatch};
  block_facts const& f = *detail::facts_at<typename Schedule::model>(
      o.block, std::make_integer_sequence<int, Schedule::model::count>{});
  return {f.kind[f.first_phase_of(o.node)], o.what, o.on, o.layer, o.microbatch};
}

/// When an op runs, in the unit of the costs that it was simulated with.
struct op_times {
  double start = 0;
  double end = 0;
};

/// Start and end of every row of every rank. `cost(rank, row)` is the time of an op on its lane; a message arrives
/// `message` after its send was ready. Sends hold nothing up: they leave when what they carry is there.
template <class Cost>
std::vector<std::vector<op_times>> simulate_ops(plan_facts const& facts, std::vector<flat_table> const& ranks,
                                                Cost cost, double message = 0) {
  std::vector<std::vector<op_times>> times(ranks.size());
  std::vector<std::vector<double>> lane_free(ranks.size(), std::vector<double>(lane_count, 0));
  std::vector<unsigned> next(ranks.size(), 0);
  // By what they carry: when a message left, -1 before.
  std::vector<double> sent(2 * static_cast<unsigned long>(facts.cells()), -1);
  for (std::size_t r = 0; r < ranks.size(); ++r) times[r].resize(ranks[r].ops.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      auto const& ops = ranks[r].ops;
      for (; next[r] < ops.size(); ++next[r], moved = true) {
        op const& o = ops[next[r]];
        double& free = lane_free[r][static_cast<unsigned>(o.on)];
        double start = free;
        for (int w : o.wait)
          if (w >= 0) start = (std::max)(start, times[r][static_cast<unsigned>(w)].end);
        double end = start;
        if (o.is_message()) {
          int const stage = producer_of(facts, static_cast<int>(r), o);
          traffic const carries = o.what == pass::backward ? traffic::gradient : traffic::activation;
          double& left =
              sent[static_cast<unsigned long>(detail::message_cell(facts, carries, stage, o.microbatch))];
          if (is_send(o.on))
            left = end;
          else if (left < 0)
            break;
          else
            end = (std::max)(start, left + message), left = -1;
        } else {
          end += cost(static_cast<int>(r), o);
        }
        times[r][next[r]] = {start, end};
        free = end;
      }
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (next[r] < ranks[r].ops.size())
      throw std::logic_error("simulate_ops: a receive has no send; prove the plan first");
  return times;
}

} // namespace v0
} // namespace stretto
