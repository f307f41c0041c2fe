#pragma once

#include "exchanges.hpp"

#include <stretto/adapters/cuda/process_exchange.hpp>

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>

namespace test {

/// Host memory that processes exchange which this one forks: enough for what an exchange of device rows needs.
class forked_ranks {
public:
  explicit forked_ranks(int ranks) : ranks_(ranks) {
    void* const memory =
        ::mmap(nullptr, bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    board_ = static_cast<unsigned char*>(memory);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier(), &shared, static_cast<unsigned>(ranks));
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  void exchange_counts(int const* send_rows, int* counts) const {
    std::vector<int> const ones(static_cast<std::size_t>(ranks_), 1);
    all_to_all(send_rows, ones.data(), counts, ones.data(), sizeof(int));
  }
  /// One row to each.
  void all_to_all(void const* send, int const*, void* receive, int const*, std::size_t row_bytes) const {
    std::memcpy(area(rank_), send, row_bytes * static_cast<std::size_t>(ranks_));
    meet();
    for (int from = 0; from < ranks_; ++from)
      std::memcpy(static_cast<unsigned char*>(receive) + static_cast<std::size_t>(from) * row_bytes,
                  area(from) + static_cast<std::size_t>(rank_) * row_bytes, row_bytes);
    meet();
  }
  void meet() const { pthread_barrier_wait(barrier()); }

  /// Runs `body(ranks)` in a process for each rank. How many of them returned true; who hangs is killed.
  template <class Body> int count_true(Body const& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks_; ++rank) {
      pid_t const child = ::fork();
      if (child == 0) {
        rank_ = rank;
        bool good = false;
        try {
          good = body(*this);
        } catch (std::exception const& problem) {
          std::fprintf(stderr, "rank %d: %s\n", rank, problem.what());
        }
        ::_exit(good ? 0 : 1);
      }
      children.push_back(child);
    }
    int good = 0;
    for (int look = 0; !children.empty() && look < 3000; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      for (auto each = children.begin(); each != children.end();) {
        int status = 0;
        if (::waitpid(*each, &status, WNOHANG) == 0) {
          ++each;
          continue;
        }
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        each = children.erase(each);
      }
    }
    for (pid_t const each : children) {
      ::kill(each, SIGKILL);
      ::waitpid(each, nullptr, 0);
    }
    return good;
  }

private:
  static constexpr std::size_t area_bytes = 65536;
  static std::size_t bytes(int ranks) { return (1 + static_cast<std::size_t>(ranks)) * area_bytes; }
  pthread_barrier_t* barrier() const { return reinterpret_cast<pthread_barrier_t*>(board_); }
  unsigned char* area(int rank) const { return board_ + (1 + static_cast<std::size_t>(rank)) * area_bytes; }

  int ranks_, rank_ = 0;
  unsigned char* board_ = nullptr;
};

using exchange_of_processes = cuda::process_exchange<forked_ranks>;
static_assert(row_exchange<exchange_of_processes>);

/// CUDA must not be asked before the processes are forked.
inline int gpus_without_asking() {
  if (char const* const told = std::getenv("STRETTO_GPUS")) return std::atoi(told);
  int found = 0;
  while (::access(("/dev/nvidia" + std::to_string(found)).c_str(), F_OK) == 0) ++found;
  return found;
}

inline exchange_of_processes make_process_exchange(forked_ranks const& ranks,
                                                   std::chrono::milliseconds deadline,
                                                   std::function<bool()> failed = {}) {
  return exchange_of_processes(ranks, cuda::thread_stream{},
                               cuda::exchange_options{deadline, std::move(failed), {}});
}

} // namespace test
