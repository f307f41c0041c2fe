#pragma once

#include "rank_links.hpp"
#include "rank_place.hpp"

#include <stretto/adapters/host/peers.hpp>

#include <vector>

namespace train_moe {

using stage_mailbox = stretto::host::mailbox<at::Tensor>;

/// Messages between ranks that are threads.
class thread_peers : public stage_peers {
public:
  thread_peers(stage_mailbox& of, rank_place const& place) : peers_(of, place.rank), place_(place) {}

  void send(stretto::message const& about, at::Tensor const& content) override {
    peers_.send(in_run(about), content);
  }
  at::Tensor receive(stretto::message const& about) override { return peers_.receive(in_run(about)); }

private:
  stretto::message in_run(stretto::message about) const {
    about.peer = place_.of_pipeline(about.peer);
    return about;
  }

  stretto::host::peers<at::Tensor> peers_;
  rank_place place_;
};

/// Ranks that are threads of this process.
class thread_links : public rank_links {
public:
  /// Before the ranks start. Domain 0 is there from the start and has all ranks; the expert ranks of each pipeline rank have two
  /// more.
  static void prepare(stretto::host::group& group, rank_place const& grid) {
    for (int pipeline_rank = 0; pipeline_rank < grid.pp; ++pipeline_rank) {
      std::vector<int> members;
      for (int expert_rank = 0; expert_rank < grid.ep; ++expert_rank)
        members.push_back(pipeline_rank * grid.ep + expert_rank);
      group.add_domain(members);
      group.add_domain(members);
    }
  }

  thread_links(stretto::host::group& of, stage_mailbox& mailbox, rank_place const& place)
      : group_(of), place_(place), peers_(mailbox, place) {}

  rank_communicator all() override { return group_.communicator(place_.rank, 0); }
  rank_communicator rows() override {
    return group_.communicator(place_.rank, 1 + 2 * place_.pipeline_rank());
  }
  rank_communicator replicas() override {
    return group_.communicator(place_.rank, 2 + 2 * place_.pipeline_rank());
  }
  stage_peers& peers() override { return peers_; }
  stretto::host::failure_board& board() override { return group_.board(); }
  bool shares_process() const override { return true; }

private:
  stretto::host::group& group_;
  rank_place place_;
  thread_peers peers_;
};

} // namespace train_moe
