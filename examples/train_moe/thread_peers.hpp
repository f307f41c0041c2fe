#pragma once

#include "rank_place.hpp"
#include "stage_peers.hpp"

#include <stretto/adapters/host/peers.hpp>

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

} // namespace train_moe
