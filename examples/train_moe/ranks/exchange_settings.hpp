#pragma once

#include "rank_transport.hpp"

#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/joint_capture.hpp>

#include <chrono>

namespace train_moe {

/// For rows and messages between the ranks of a run.
inline stretto::cuda::exchange_options exchange_settings(transport_parts const& of) {
  return {.deadline = std::chrono::seconds(of.o.deadline),
          .failed = [&board = of.links.board()] { return board.failed(); },
          .waits = stretto::cuda::hand_on_turn,
          .report =
              [&board = of.links.board(), rank = of.place.rank](stretto::failure const& what) {
                board.report({rank, what.in_op, what.op, what.reason, what.original});
              }};
}

} // namespace train_moe
