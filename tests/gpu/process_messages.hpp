#pragma once

#include "exchange_processes.hpp"

#include <stretto/adapters/cuda/process_peers.hpp>

#include <deque>
#include <utility>

/// Messages of device memory between forked processes.
namespace test {

/// Letters between forked processes, asked for in any order.
class named_mail {
public:
  using tensor = cuda::process_letter;

  explicit named_mail(shared_exchange const& ranks) : mail_(ranks.board(), ranks.rank()) {}

  void send(message const& about, tensor const& letter) { mail_.send(about, {about, letter}); }
  tensor receive(message const& about) {
    for (;;) {
      for (auto each = early_.begin(); each != early_.end(); ++each)
        if (each->first == about.peer && is_same(each->second.about, about)) {
          tensor const found = each->second.letter;
          early_.erase(each);
          return found;
        }
      early_.emplace_back(about.peer, mail_.receive(about));
    }
  }

private:
  struct named_letter {
    message about{};
    tensor letter{};
  };
  static bool is_same(message const& a, message const& b) {
    return a.gradient == b.gradient && a.stage == b.stage && a.microbatch == b.microbatch &&
           a.chain == b.chain;
  }

  shared_mail<named_letter> mail_;
  std::deque<std::pair<int, named_letter>> early_; ///< with their senders
};

template <class Tensors> using message_processes = cuda::process_peers<Tensors, named_mail>;

/// Failures of the GPU are told to the board of this process.
inline cuda::exchange_options settings_of(int rank, host::failure_board& board,
                                          std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  cuda::exchange_options made;
  made.deadline = deadline;
  made.failed = [&board] { return board.failed(); };
  made.report = [&board, rank](failure const& what) {
    board.report({rank, what.in_op, what.op, what.reason, what.original});
  };
  return made;
}

} // namespace test
