#pragma once

#include "under_a_tool.hpp"

#include <stretto/adapter.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

/// GPUs of this machine, or as many as the runtime of threads has, without asking CUDA: a process that has asked cannot fork.
inline int gpus_of_machine() {
  if (char const* const told = std::getenv("STRETTO_GPUS")) return std::atoi(told);
  int count = 0;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(count))) ++count;
  return count;
}

/// Says that the rest of a test needs more GPUs than there are.
inline void need_gpus_of_machine(int count) {
  if (gpus_of_machine() < count) SKIP("needs " << count << " GPUs");
}
/// Under a tool each process takes half a minute to start: all but as many GPUs as there are.
inline bool is_left_out_of_processes(int gpus) {
  return under_a_tool() && gpus != (std::min)(gpus_of_machine(), 2);
}

/// What forked ranks share.
struct shared_board {
  static constexpr std::size_t most_ranks = 8, most_bytes = std::size_t{1} << 16;
  std::atomic<int> arrived, round;
  std::atomic<bool> lost_a_rank; ///< or is about to
  std::array<std::array<char, most_bytes>, most_ranks> slots;
  std::array<std::array<char, 1024>, most_ranks> said;

  /// Letters of one sender, in the order in which it wrote them.
  struct queue {
    static constexpr std::size_t most = 1024;
    std::array<std::array<char, 256>, most> letters;
    std::atomic<std::size_t> written, read;
  };
  std::array<std::array<queue, 2>, most_ranks> queues;
};

/// Messages of small things between two forked processes, asked for in the order in which they are sent: a `peer_adapter`.
template <class Letter> class shared_mail {
public:
  using tensor = Letter;
  static_assert(std::is_trivially_copyable_v<Letter> && sizeof(Letter) <= 256);

  shared_mail(shared_board& over, int rank) : board_(over), rank_(rank) {}

  void send(stretto::message const& about, Letter const& letter) {
    auto& to = queue_of(rank_, about.gradient);
    std::memcpy(to.letters[to.written.load() % shared_board::queue::most].data(), &letter, sizeof letter);
    to.written.fetch_add(1);
  }
  Letter receive(stretto::message const& about) {
    auto& from = queue_of(about.peer, about.gradient);
    for (int naps = 0; from.written.load() == from.read.load(); ++naps) {
      if (naps > times(300'000, 2'000'000)) throw std::runtime_error("a letter did not come");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    Letter letter;
    std::memcpy(&letter, from.letters[from.read.load() % shared_board::queue::most].data(), sizeof letter);
    from.read.fetch_add(1);
    return letter;
  }

private:
  shared_board::queue& queue_of(int sender, bool gradient) {
    return board_.queues[static_cast<std::size_t>(sender)][gradient];
  }

  shared_board& board_;
  int rank_;
};

/// Host memory between forked processes, good for what a test has to say: a `row_exchange` with `all_gather`.
class shared_exchange {
public:
  shared_exchange(shared_board& over, int rank, int ranks) : board_(over), rank_(rank), ranks_(ranks) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  shared_board& board() const { return board_; }
  /// Where this rank is: what it has said if it never ends.
  void note(std::string const& where) const {
    auto& to = board_.said[static_cast<std::size_t>(rank_)];
    to[where.copy(to.data(), to.size() - 1)] = 0;
  }

  void barrier() {
    int const round = board_.round.load();
    if (board_.arrived.fetch_add(1) + 1 == ranks_) {
      board_.arrived.store(0);
      board_.round.store(round + 1);
      return;
    }
    for (int naps = 0; board_.round.load() == round; ++naps) {
      if (naps > times(300'000, 2'000'000)) throw std::runtime_error("a rank did not come to the barrier");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  template <class Element> void all_gather(Element const* mine, std::size_t count, Element* all) {
    static_assert(std::is_trivially_copyable_v<Element>);
    put(mine, count * sizeof(Element), 0);
    barrier();
    for (int from = 0; from < ranks_; ++from)
      take(all + static_cast<std::size_t>(from) * count, from, 0, count * sizeof(Element));
    barrier();
  }
  void exchange_counts(int const* send_rows, int* counts) {
    std::vector<int> const one(static_cast<std::size_t>(ranks_), 1);
    all_to_all(send_rows, one.data(), counts, one.data(), sizeof(int));
  }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    std::array<std::size_t, shared_board::most_ranks + 1> places{};
    for (int to = 0; to < ranks_; ++to)
      places[static_cast<std::size_t>(to) + 1] =
          places[static_cast<std::size_t>(to)] + static_cast<std::size_t>(send_rows[to]) * row_bytes;
    put(places.data(), sizeof places, 0);
    put(send, places[static_cast<std::size_t>(ranks_)], sizeof places);
    barrier();
    auto* in = static_cast<char*>(receive);
    for (int from = 0; from < ranks_; ++from) {
      take(places.data(), from, 0, sizeof places);
      auto const size = static_cast<std::size_t>(receive_rows[from]) * row_bytes;
      take(in, from, sizeof places + places[static_cast<std::size_t>(rank_)], size);
      in += size;
    }
    barrier();
  }

private:
  void put(void const* what, std::size_t size, std::size_t at) {
    if (at + size > shared_board::most_bytes) throw std::length_error("shared_exchange: too much for a test");
    if (size > 0) std::memcpy(board_.slots[static_cast<std::size_t>(rank_)].data() + at, what, size);
  }
  void take(void* to, int from, std::size_t at, std::size_t size) const {
    if (size > 0) std::memcpy(to, board_.slots[static_cast<std::size_t>(from)].data() + at, size);
  }

  shared_board& board_;
  int rank_, ranks_;
};

struct outcome {
  bool ended = false; ///< by itself, before the limit
  bool stopped = false; ///< until all others had ended
  int status = 0; ///< as `waitpid` tells it
  std::string said; ///< what the rank returned or threw, or where it was last
  double seconds = 0;
};

/// Runs `body(rank, exchange)` in a process for each rank; it returns what it has to say. `prepare(rank)` comes first, before
/// anything of CUDA. Processes that last longer than `limit` are killed, and those that have stopped when all others have ended.
template <class Prepare, class Body>
std::vector<outcome> run_forked(int ranks, Prepare const& prepare, Body const& body,
                                std::chrono::seconds limit) {
  void* const memory =
      ::mmap(nullptr, sizeof(shared_board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto& board = *new (memory) shared_board{};
  std::vector<pid_t> running;
  auto const start = std::chrono::steady_clock::now();
  for (int rank = 0; rank < ranks; ++rank) {
    auto const child = ::fork();
    if (child == 0) {
      std::string said;
      try {
        prepare(rank);
        said = body(rank, shared_exchange(board, rank, ranks));
      } catch (std::exception const& problem) {
        said = std::string("threw: ") + problem.what();
      }
      shared_exchange(board, rank, ranks).note(said);
      // Destructors of what is static would wait for a GPU that may be stuck.
      ::_exit(0);
    }
    if (child < 0) {
      // Kept, it would be killed like a rank: -1 is every process.
      for (auto const each : running) ::kill(each, SIGKILL), ::waitpid(each, nullptr, 0);
      ::munmap(memory, sizeof(shared_board));
      throw std::runtime_error("no process for rank " + std::to_string(rank));
    }
    running.push_back(child);
  }
  std::vector<outcome> found(static_cast<std::size_t>(ranks));
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    double const now = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    bool const late = now > static_cast<double>(patiently(limit).count());
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      auto& one = found[rank];
      if (one.seconds > 0) continue;
      int status = 0;
      if (::waitpid(running[rank], &status, WNOHANG | WUNTRACED) == running[rank]) {
        one.status = status;
        one.stopped = WIFSTOPPED(status);
        one.ended = !one.stopped;
        if (one.ended) one.seconds = now;
      } else if (late && !one.stopped) {
        ::kill(running[rank], SIGKILL);
        ::waitpid(running[rank], &one.status, 0);
        one.seconds = now;
      }
      goes_on = goes_on || (one.seconds <= 0 && !one.stopped);
    }
    if (goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (std::size_t rank = 0; rank < found.size(); ++rank)
    if (found[rank].stopped) {
      ::kill(running[rank], SIGKILL);
      ::waitpid(running[rank], &found[rank].status, 0);
    }
  for (std::size_t rank = 0; rank < found.size(); ++rank) found[rank].said = board.said[rank].data();
  ::munmap(memory, sizeof(shared_board));
  return found;
}

/// NCCL takes two ranks on one GPU only if it believes them on two machines.
inline void use_gpu_of_rank(int rank, int ranks) {
  if (gpus_of_machine() >= ranks) return;
  ::setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
  ::setenv("NCCL_NET", "Socket", 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
}

} // namespace test
