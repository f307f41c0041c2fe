#pragma once

#include <stretto/plan/replay.hpp>

namespace stretto {
inline namespace v0 {

/// What one chunk of a rank costs, in any one unit of time. Compute and communication apart: a pair runs them side by side.
struct chunk_costs {
  double forward_compute = 1, forward_comm = 0; ///< F
  double input_compute = 1, input_comm = 0; ///< I
  double weight_compute = 1; ///< W
  double message = 0; ///< from one rank to another

  /// The costs of a chunk that is `share` as large.
  constexpr chunk_costs scaled(double share) const {
    return {forward_compute * share, forward_comm * share,   input_compute * share,
            input_comm * share,      weight_compute * share, message};
  }

  constexpr double compute(call const& one) const {
    return (one.runs_forward() ? forward_compute : 0) + (one.runs_input() ? input_compute : 0) +
           (one.runs_weight() ? weight_compute : 0);
  }
  constexpr double comm(call const& one) const {
    return (one.runs_forward() ? forward_comm : 0) + (one.runs_input() ? input_comm : 0);
  }
  /// A pair takes its longer lane; a call alone has nothing to hide behind and takes the sum.
  constexpr double duration(call const& one) const {
    double const work = compute(one), talk = comm(one);
    return one.what != form::forward_backward ? work + talk : work < talk ? talk : work;
  }
  /// The part of a call's communication during which compute is idle.
  constexpr double exposed(call const& one) const {
    double const idle = duration(one) - compute(one), talk = comm(one);
    return idle < talk ? idle : talk;
  }
};

/// What a rank did in a simulated step.
struct rank_report {
  double compute = 0, comm = 0; ///< the sums over its calls
  double busy = 0; ///< time inside calls; the rest of the makespan is bubble
  double exposed = 0; ///< time in which communication is busy and compute idle
  int peak_live = 0; ///< chunk activations, from F to the end of W
};

/// A simulated step: chunk costs on a plan that passed `check_plan`.
class simulation {
public:
  simulation(plan const& of, chunk_costs const& costs)
      : times_(replay<double>(
            of, [&](call const& one) { return costs.duration(one); }, costs.message)),
        ranks_(of.facts().ranks) {
    for (int rank = 0; rank < of.facts().ranks; ++rank) {
      rank_report& report = ranks_[rank];
      int live = 0;
      for (long at = 0; at < of.size(rank); ++at) {
        call const& one = of.calls(rank)[at];
        report.compute += costs.compute(one), report.comm += costs.comm(one);
        report.busy += costs.duration(one), report.exposed += costs.exposed(one);
        if (one.runs_forward() && ++live > report.peak_live) report.peak_live = live;
        if (one.runs_weight()) --live;
      }
      double const longer = report.compute < report.comm ? report.comm : report.compute;
      if (ideal_ < longer) ideal_ = longer;
    }
  }

  double makespan() const { return times_.makespan; }
  /// What the busiest lane of any rank takes alone: no schedule of these calls can be shorter.
  double ideal() const { return ideal_; }
  double ratio() const { return ideal_ > 0 ? makespan() / ideal_ : 1; }
  rank_report const& rank(int number) const { return ranks_[number]; }
  double bubble(int number) const { return makespan() - ranks_[number].busy; }
  /// Start and end of every call, by the rows of the plan.
  plan_times<double> const& times() const { return times_; }

private:
  plan_times<double> times_;
  detail::sequence<rank_report> ranks_;
  double ideal_ = 0;
};

} // namespace v0
} // namespace stretto
