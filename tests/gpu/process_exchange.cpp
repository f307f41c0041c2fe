#include "exchanges.hpp"

#include <stretto/adapters/cuda/process_exchange.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

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

using namespace test;

namespace {

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
    for (int look = 0; !children.empty() && look < 6000; ++look) {
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
int gpus_without_asking() {
  if (char const* const told = std::getenv("STRETTO_GPUS")) return std::atoi(told);
  int found = 0;
  while (::access(("/dev/nvidia" + std::to_string(found)).c_str(), F_OK) == 0) ++found;
  return found;
}

exchange_of_processes make_process_exchange(forked_ranks const& ranks, std::chrono::milliseconds deadline,
                                            std::function<bool()> failed = {}) {
  return exchange_of_processes(ranks, cuda::thread_stream{},
                               cuda::exchange_options{deadline, std::move(failed), {}});
}

bool rounds_are_right(forked_ranks& ranks, int gpus) {
  use_gpu_of(ranks.rank(), gpus);
  cuda::stream own;
  auto const current = cuda::thread_stream{}.enter(own.get());
  random_delay delay(ranks.rank());
  auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(20000));
  bool right = true;
  for (rows_of const rows : {random_rows, no_rows, rows_to_the_first, many_rows}) {
    std::vector<round_data> data;
    for (int round = 0; round < (rows == random_rows ? 50 : 4); ++round)
      data.emplace_back(round_bytes(ranks.rank(), ranks.ranks(), round, round, rows, 64));
    for (auto const& each : data) {
      delay(own.get());
      each.issue(exchange, 64, own.get());
    }
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    for (auto const& each : data) right = right && !each.is_wrong();
    // Nobody gives memory back while others may still push.
    ranks.meet();
  }
  seen_from_host<exchange_of_processes> seen(exchange);
  right = laws::counts_are_transposed(seen) && right;
  right = laws::rows_arrive_in_rank_order(seen) && right;
  ranks.meet();
  return right;
}

} // namespace

// Nothing here may touch CUDA before it forks.
TEST_CASE("rows are pushed between processes, under random delays", "[gpu]") {
  int const ranks = GENERATE(2, 4), gpus = GENERATE(1, 2);
  if (gpus > gpus_without_asking()) return;
  CAPTURE(ranks, gpus);
  forked_ranks forked(ranks);
  CHECK(forked.count_true([&](forked_ranks& of_rank) { return rounds_are_right(of_rank, gpus); }) == ranks);
}

TEST_CASE("a process that is killed in a call ends the calls and the streams of the others", "[gpu]") {
  int const ranks = GENERATE(2, 4), gpus = GENERATE(1, 2);
  if (gpus > gpus_without_asking()) return;
  CAPTURE(ranks, gpus);
  forked_ranks forked(ranks);
  auto const survives = [&](forked_ranks& of_rank) {
    int const me = of_rank.rank();
    use_gpu_of(me, gpus);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(me, ranks, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(of_rank, std::chrono::milliseconds(1000));
    for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    of_rank.meet();
    cuda::host_flags never(1);
    if (me == 1) {
      // It comes to the call, and what it sends does not.
      cuda::flag_ops().wait_for(never[0], 1).issue(own.get());
      data.issue(exchange, 64, own.get());
      ::raise(SIGKILL);
    }
    std::string told;
    try {
      for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    } catch (std::exception const& problem) {
      told = problem.what();
    }
    // What is not let go hangs here.
    static_cast<void>(cudaStreamSynchronize(own.get()));
    bool const is_told = told == "call 5 of a process_exchange: rank 1 did not come within 1000 ms" ||
                         told == "call 5 of a process_exchange given up: another rank has failed";
    if (!is_told) std::fprintf(stderr, "rank %d: '%s'\n", me, told.c_str());
    return is_told;
  };
  CHECK(forked.count_true(survives) == ranks - 1);
}
