#pragma once

#include <stretto/adapters/sim/program.hpp>

#include <array>
#include <map>
#include <tuple>

/// What joins the rows of a program: lanes and waits inside of a rank, messages and collectives between ranks.
namespace stretto {
inline namespace v0 {
namespace sim {

/// That of a whole program, as a graph with a task for each row.
class wires {
public:
  wires(program const& of, transport how) : of_(of), graph_(of.ranks.size() * lane_count) {
    int longest = 0;
    for (rank_table const& r : of.ranks) {
      first_.push_back(count_);
      count_ += r.ops.size();
      longest = (std::max)(longest, r.ops.size());
    }
    task_of_ = numbered<int>(count_, -1), wire_of_ = numbered<int>(count_, -1);
    for (int row = 0; row < longest; ++row)
      for (int rank = 0; rank < of.ranks.size(); ++rank)
        if (row < of.ranks[rank].ops.size()) add(rank, row);
    if (how != transport::any_time) join_messages(how);
    for (numbered<int> const& group : of.expert_groups) join_collectives(group);
    if (graph_.close() || wrong_.what != trouble::none) return;
    int stuck = 0;
    while (!graph_.is_stuck(stuck)) ++stuck;
    wrong_ = {trouble::hang, rank_of(stuck), row_of(stuck), {}};
  }

  sim::graph const& graph() const { return graph_; }
  int count() const { return wires_; }
  int wire_of(int rank, int row) const { return wire_of_[first_[rank] + row]; }
  int task_of(int rank, int row) const { return task_of_[first_[rank] + row]; }
  int rank_of(int task) const { return place_[task][0]; }
  int row_of(int task) const { return place_[task][1]; }
  outcome const& wrong() const { return wrong_; }

  /// What a message carries: the same at both ends.
  unsigned long long message_name(int rank, int row) const {
    op const& o = at(rank, row);
    int const stage = of_.ranks[rank].stage[o.chunk];
    int const from = is_send(o.on) ? stage : o.is_forward() ? stage - 1 : stage + 1;
    return (static_cast<unsigned long long>(from + 1) * 2 + (o.is_forward() ? 0 : 1)) << 32 |
           static_cast<unsigned>(o.microbatch);
  }

private:
  op const& at(int rank, int row) const { return of_.ranks[rank].ops[row]; }

  void add(int rank, int row) {
    op const& o = at(rank, row);
    int const task = graph_.add(rank * lane_count + static_cast<int>(o.on));
    task_of_[first_[rank] + row] = task;
    place_.push_back({rank, row});
    // A wait for what is issued later finds nothing recorded, and waits for nothing.
    for (int w : o.wait)
      if (w >= 0 && w < row) graph_.after(task, task_of(rank, w));
  }
  /// It never runs.
  void block(int task) { graph_.after(task, task); }

  void join_messages(transport how) {
    // From, to, which of the two lanes between them, and the name where that is known on the way.
    using way = std::tuple<int, int, bool, unsigned long long>;
    auto const name = [&](int rank, int row) {
      return how == transport::named ? message_name(rank, row) : 0;
    };
    struct ends {
      numbered<std::array<int, 2>> sent, received;
    };
    std::map<way, ends> all;
    for (int rank = 0; rank < of_.ranks.size(); ++rank)
      for (int row = 0; row < of_.ranks[rank].ops.size(); ++row) {
        op const& o = at(rank, row);
        if (is_send(o.on))
          all[{rank, o.peer, o.on == lane::send_higher, name(rank, row)}].sent.push_back({rank, row});
        if (is_receive(o.on))
          all[{o.peer, rank, o.on == lane::receive_lower, name(rank, row)}].received.push_back({rank, row});
      }
    for (auto const& [key, both] : all) {
      for (int k = 0; k < (std::max)(both.sent.size(), both.received.size()); ++k) {
        if (k >= both.sent.size()) {
          block(task(both.received[k]));
        } else if (k >= both.received.size()) {
          if (how == transport::rendezvous)
            block(task(both.sent[k]));
          else
            complain(trouble::unmatched, both.sent[k]);
        } else {
          wire_of_[first_[both.sent[k][0]] + both.sent[k][1]] = wires_;
          wire_of_[first_[both.received[k][0]] + both.received[k][1]] = wires_++;
          int const sent = task(both.sent[k]), received = task(both.received[k]);
          if (how == transport::rendezvous)
            graph_.join(sent, received);
          else
            graph_.after(received, sent);
        }
      }
    }
  }

  bool is_collective(op const& o) const {
    if (o.on != lane::comm || o.what == pass::backward_weight) return false;
    block_facts const& f = of_.blocks[o.block];
    phase_kind const kind = f.kind[f.first_phase_of(o.node)];
    return kind == dispatch || kind == combine;
  }
  void join_collectives(numbered<int> const& group) {
    numbered<numbered<int>> calls(group.size());
    int most = 0;
    for (int m = 0; m < group.size(); ++m) {
      for (int row = 0; row < of_.ranks[group[m]].ops.size(); ++row)
        if (is_collective(at(group[m], row))) calls[m].push_back(row);
      most = (std::max)(most, calls[m].size());
    }
    for (int k = 0; k < most; ++k)
      for (int m = 0; m < group.size(); ++m) {
        if (k >= calls[m].size()) {
          for (int other = 0; other < group.size(); ++other)
            if (k < calls[other].size()) block(task_of(group[other], calls[other][k]));
          break;
        }
        op const &mine = at(group[m], calls[m][k]), &first = at(group[0], calls[0][k]);
        if (mine.what != first.what || mine.node != first.node || mine.layer != first.layer ||
            mine.microbatch != first.microbatch)
          complain(trouble::unmatched, {group[m], calls[m][k]});
        graph_.join(task_of(group[0], calls[0][k]), task_of(group[m], calls[m][k]));
      }
  }

  int task(std::array<int, 2> const& end) const { return task_of(end[0], end[1]); }
  void complain(trouble what, std::array<int, 2> const& where) {
    if (wrong_.what == trouble::none) wrong_ = {what, where[0], where[1], {}};
  }

  program const& of_;
  sim::graph graph_;
  numbered<int> first_, task_of_, wire_of_;
  numbered<std::array<int, 2>> place_;
  int count_ = 0, wires_ = 0;
  outcome wrong_;
};

} // namespace sim
} // namespace v0
} // namespace stretto
