#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/array/tensor.hpp>
#include <stretto/detail/op_place.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace array {

/// The all-to-all of expert parallelism over any exchange of plain rows: an `expert_communicator`. Experts lie on the
/// ranks in order, `local_experts` on each. Rows go out in any order and come back in that order; what arrives at a rank
/// is grouped by its experts, within one by the rank it comes from.
template <row_exchange Exchange> class expert_parallel {
public:
  using tensor = array::tensor;

  /// The expert of each row.
  struct routing {
    std::vector<int> expert;
  };

  class handle {
  public:
    handle() = default;
    handle(handle&&) noexcept = default;
    handle& operator=(handle&&) noexcept = default;

    /// How many rows arrived for each local expert.
    std::vector<int> const& rows() const { return of_expert_; }

  private:
    friend class expert_parallel;
    std::vector<int> sent_to_, received_from_; ///< rows by rank
    std::vector<int> outgoing_; ///< place on the wire -> row here
    std::vector<int> arrived_; ///< place on the wire -> row by expert
    std::vector<int> of_expert_;
    stretto::detail::made_at made_at_;
  };

  static constexpr counts_mode counts = counts_mode::host;
  static constexpr int in_flight = 0;
  static constexpr bool capturable = false;

  expert_parallel(Exchange& exchange, int local_experts)
      : exchange_(exchange), local_experts_(local_experts) {}

  int rank() const { return exchange_.rank(); }
  int ranks() const { return exchange_.ranks(); }

  tensor dispatch(tensor const& rows, routing const& where, handle& made) {
    std::size_t const local = static_cast<std::size_t>(local_experts_),
                      ranks = static_cast<std::size_t>(this->ranks());
    std::vector<int> const leaving = count(rows, where);
    made.made_at_.note();
    made.outgoing_ = grouped(where.expert, leaving);
    std::vector<int> arriving(local * ranks), one(ranks, 1);
    exchange_.all_to_all(leaving.data(), one.data(), arriving.data(), one.data(), local * sizeof(int));
    made.sent_to_ = sums(leaving, local);
    made.received_from_ = sums(arriving, local);
    // On the wire by rank and expert, here by expert and rank.
    made.of_expert_.assign(local, 0);
    for (std::size_t i = 0; i < arriving.size(); ++i) made.of_expert_[i % local] += arriving[i];
    std::vector<int> next(local, 0);
    for (std::size_t e = 1; e < local; ++e) next[e] = next[e - 1] + made.of_expert_[e - 1];
    made.arrived_.clear();
    for (std::size_t i = 0; i < arriving.size(); ++i)
      for (int k = 0; k < arriving[i]; ++k) made.arrived_.push_back(next[i % local]++);
    return outward(rows, made);
  }
  tensor combine(tensor const& rows, handle& made) {
    return exchange(rows, made, made.arrived_, made.received_from_, made.outgoing_, made.sent_to_);
  }
  tensor dispatch_backward(tensor const& rows, handle& made) { return combine(rows, made); }
  tensor combine_backward(tensor const& rows, handle& made) { return outward(rows, made); }

private:
  static std::vector<int> sums(std::vector<int> const& of, std::size_t group) {
    std::vector<int> made(of.size() / group);
    for (std::size_t i = 0; i < of.size(); ++i) made[i / group] += of[i];
    return made;
  }
  std::vector<int> count(tensor const& rows, routing const& where) const {
    std::vector<int> made(static_cast<std::size_t>(ranks() * local_experts_));
    if (rows.rows() != static_cast<int>(where.expert.size()))
      throw std::invalid_argument("stretto::array::expert_parallel: a routing of " +
                                  std::to_string(where.expert.size()) + " rows for " +
                                  std::to_string(rows.rows()));
    for (int const e : where.expert) {
      if (e < 0 || e >= static_cast<int>(made.size()))
        throw std::invalid_argument("stretto::array::expert_parallel: no expert has number " +
                                    std::to_string(e));
      ++made[static_cast<std::size_t>(e)];
    }
    return made;
  }
  static std::vector<int> grouped(std::vector<int> const& expert, std::vector<int> const& rows) {
    std::vector<int> next(rows.size()), made(expert.size());
    for (std::size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + rows[e - 1];
    for (std::size_t i = 0; i < expert.size(); ++i)
      made[static_cast<std::size_t>(next[static_cast<std::size_t>(expert[i])]++)] = static_cast<int>(i);
    return made;
  }

  tensor outward(tensor const& rows, handle& made) {
    return exchange(rows, made, made.outgoing_, made.sent_to_, made.arrived_, made.received_from_);
  }

  /// Row `from[i]` is the i-th on the wire; the i-th that comes becomes row `to[i]`.
  tensor exchange(tensor const& rows, handle const& by, std::vector<int> const& from,
                  std::vector<int> const& send, std::vector<int> const& to, std::vector<int> const& receive) {
    by.made_at_.require_here("stretto::array::expert_parallel: a handle");
    if (rows.rows() != static_cast<int>(from.size()))
      throw std::invalid_argument("stretto::array::expert_parallel: " + std::to_string(rows.rows()) +
                                  " rows for a handle of " + std::to_string(from.size()));
    std::size_t const width = static_cast<std::size_t>(rows.columns());
    std::vector<float> out(from.size() * width), in(to.size() * width);
    for (std::size_t i = 0; i < from.size(); ++i) std::copy_n(rows[from[i]], width, out.data() + i * width);
    exchange_.all_to_all(out.data(), send.data(), in.data(), receive.data(), width * sizeof(float));
    tensor made(rows.account(), static_cast<int>(to.size()), rows.columns());
    for (std::size_t i = 0; i < to.size(); ++i) std::copy_n(in.data() + i * width, width, made[to[i]]);
    return made;
  }

  Exchange& exchange_;
  int local_experts_;
};

} // namespace array
} // namespace v0
} // namespace stretto
