#include "device_memory.hpp"
#include "forked_ranks.hpp"

#include <stretto/adapters/host/failure.hpp>
#include <stretto/adapters/nccl.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdio>
#include <random>

using namespace stretto;
using Catch::Matchers::ContainsSubstring;
using test::device_bytes;
using test::shared_exchange;
using bytes = std::vector<unsigned char>;
using std::chrono::seconds;

namespace {

struct lane_stream {
  cudaStream_t on;
  cudaStream_t current() const { return on; }
};
using exchange = nccl::rows<shared_exchange, lane_stream>;
static_assert(row_exchange<exchange>);

void on_own_gpu(int rank, int ranks) { test::use_gpu_of_rank(rank, ranks); }

/// A rank with a communicator over all, connected, and a stream.
struct joined {
  explicit joined(shared_exchange ranks, std::chrono::milliseconds deadline = seconds(60),
                  nccl::communicator_options const& how = {.most_ctas = 4})
      : gpu(choose(ranks)), session(ranks, {test::patiently(deadline), [this] { return board.failed(); },
                                            test::patiently(seconds(120))}),
        watchdog(session, board, ranks.rank()), all(*session.split(0, how)),
        rows(ranks, all, {stream.get()}) {
    all.connect();
  }
  static int choose(shared_exchange const& ranks) {
    int count = 0;
    nccl::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    nccl::check(cudaSetDevice(ranks.rank() % count), "cudaSetDevice");
    return ranks.rank() % count;
  }

  int gpu;
  host::failure_board board;
  nccl::side_stream stream;
  nccl::session session;
  nccl::watchdog<host::failure_board> watchdog;
  nccl::communicator& all;
  exchange rows;
};

/// A graph of one call, whatever happens to the test.
class graph {
public:
  template <class Call> graph(cudaStream_t on, Call const& call) {
    nccl::check(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    call();
    nccl::check(cudaStreamEndCapture(on, &captured_), "cudaStreamEndCapture");
    nccl::check(cudaGraphInstantiate(&run_, captured_, 0), "cudaGraphInstantiate");
  }
  graph(graph const&) = delete;
  graph& operator=(graph const&) = delete;
  ~graph() {
    if (run_) static_cast<void>(cudaGraphExecDestroy(run_));
    if (captured_) static_cast<void>(cudaGraphDestroy(captured_));
  }
  void launch(cudaStream_t on) const { nccl::check(cudaGraphLaunch(run_, on), "cudaGraphLaunch"); }

private:
  cudaGraph_t captured_ = nullptr;
  cudaGraphExec_t run_ = nullptr;
};

int rows_between(int from, int to, int round) {
  switch (round % 5) {
  case 0:
    return 0;
  case 1:
    return to == 0 ? 10 + from : 0;
  case 2:
    return from == to ? 300 : 0;
  case 3:
    return 2000 + 100 * from + 10 * to;
  default:
    std::mt19937 random(static_cast<unsigned>(from * 100 + to * 10 + round * 1000));
    return random() % 3 == 0 ? 0 : static_cast<int>(random() % 500);
  }
}

bytes block_of(int from, int to, int round, std::size_t row_bytes) {
  bytes block(static_cast<std::size_t>(rows_between(from, to, round)) * row_bytes);
  auto state = static_cast<unsigned>(1 + from + 10 * to + 100 * round);
  for (auto& each : block) {
    state = state * 1664525u + 1013904223u;
    each = static_cast<unsigned char>(state >> 24);
  }
  return block;
}

struct round_data {
  std::vector<int> send_rows, receive_rows;
  bytes out, expected;
};

round_data make_round(int rank, int ranks, int round, std::size_t row_bytes) {
  round_data made;
  for (int other = 0; other < ranks; ++other) {
    made.send_rows.push_back(rows_between(rank, other, round));
    made.receive_rows.push_back(rows_between(other, rank, round));
    auto const out = block_of(rank, other, round, row_bytes), in = block_of(other, rank, round, row_bytes);
    made.out.insert(made.out.end(), out.begin(), out.end());
    made.expected.insert(made.expected.end(), in.begin(), in.end());
  }
  return made;
}

void check_all(std::vector<test::outcome> const& found) {
  for (auto const& each : found) {
    CHECK(each.ended);
    CHECK(each.status == 0);
    CHECK(each.said == "");
  }
}

/// Each time another rank ends, before another op.
void lose_ranks(int ranks) {
  int const count = std::getenv("STRETTO_EVERY_SIZE") ? 10 : 1;
  for (int seed = 0; seed < count; ++seed)
    for (int const how : {SIGKILL, SIGSTOP}) {
      std::mt19937 random(static_cast<unsigned>(seed + 1));
      int const victim = static_cast<int>(random() % static_cast<unsigned>(ranks)),
                last = 1 + static_cast<int>(random() % 40);
      CAPTURE(seed, how, ranks, victim, last);
      // Several on one GPU take turns, so that meetings last.
      int const deadline = ranks == 2 ? 5 : 10;
      auto const found = test::run_forked(
          ranks, [&](int rank) { on_own_gpu(rank, ranks); },
          [&](int rank, shared_exchange host) -> std::string {
            joined mine(host, seconds(deadline));
            device_bytes const memory(bytes(std::size_t{1} << 22));
            std::vector<int> const counts(static_cast<std::size_t>(ranks), 1000);
            host.barrier();
            for (int op = 0; op < 1000; ++op) {
              if (rank == victim && op == last) std::raise(how);
              detail::place_scope const here(
                  {1, op, static_cast<unsigned char>(dispatch), 0, static_cast<unsigned char>(lane::comm)});
              mine.rows.all_to_all(memory.data(), counts.data(), memory.data() + memory.size() / 2,
                                   counts.data(), 256);
              auto const ended = cudaStreamSynchronize(mine.stream.get());
              if (ended != cudaSuccess || mine.board.failed()) break;
            }
            // Nobody reports without the board.
            for (int naps = 0; !mine.board.failed() && naps < 1000; ++naps)
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            auto const first = mine.board.first();
            try {
              mine.rows.all_to_all(memory.data(), counts.data(), memory.data() + memory.size() / 2,
                                   counts.data(), 256);
              return "a call after the end was taken";
            } catch (nccl::error const& problem) {
              auto const said = describe(first) + " | " + problem.what();
              host.note(said);
              return said;
            }
          },
          seconds(60));
      for (int rank = 0; rank < ranks; ++rank) {
        auto const& one = found[static_cast<std::size_t>(rank)];
        if (rank == victim) continue;
        INFO("rank " << rank << " after " << one.seconds << " s: " << one.said);
        CHECK(one.ended);
        CHECK_THAT(one.said, ContainsSubstring("rank " + std::to_string(rank) +
                                               ": F.dispatch of layer 1, microbatch "));
        CHECK_THAT(one.said, ContainsSubstring("failed: NCCL in all_to_all: "));
        CHECK_THAT(one.said, ContainsSubstring("| NCCL was given up: "));
        if (rank == (victim + 1) % ranks)
          std::printf("%s of rank %d of %d: %.1f s, %s\n", how == SIGKILL ? "kill" : "stop", victim, ranks,
                      one.seconds, one.said.c_str());
      }
    }
}

} // namespace

TEST_CASE("NCCL brings rows to the ranks they are for, call after call, none from or to some", "[gpu]") {
  for (int const ranks : {2, 4}) {
    if (test::under_a_tool() && ranks > 2) continue;
    check_all(test::run_forked(
        ranks, [&](int rank) { on_own_gpu(rank, ranks); },
        [&](int rank, shared_exchange host) {
          joined mine(host);
          int wrong = 0;
          for (std::size_t const row_bytes : {std::size_t{2}, std::size_t{1030}})
            for (int round = 0; round < 10; ++round) {
              auto const data = make_round(rank, ranks, round, row_bytes);
              device_bytes const send(data.out), receive(bytes(data.expected.size(), 0xcd));
              mine.rows.all_to_all(send.data(), data.send_rows.data(), receive.data(),
                                   data.receive_rows.data(), row_bytes);
              // What is sent may be written over behind the call.
              if (send.size() > 0) cudaMemsetAsync(send.data(), 0xee, send.size(), mine.stream.get());
              nccl::check(cudaStreamSynchronize(mine.stream.get()), "cudaStreamSynchronize");
              wrong += receive.to_host() != data.expected;
            }
          host.barrier();
          return wrong == 0 ? std::string() : std::to_string(wrong) + " rounds are wrong";
        },
        seconds(120)));
  }
}

TEST_CASE("a captured call of NCCL brings other rows in every replay, and tells what it takes of the GPU",
          "[gpu][h200-01][h200-02]") {
  auto const found = test::run_forked(
      2, [](int rank) { on_own_gpu(rank, 2); },
      [](int rank, shared_exchange host) {
        joined mine(host, seconds(10), {.most_ctas = 8});
        std::vector<int> const counts(2, 3000);
        std::size_t const size = 6000 * 512;
        std::string said;
        for (bool const registered : {false, true}) {
          if (registered && test::under_memcheck()) continue;
          device_bytes const plain(registered ? 0 : 2 * size);
          nccl::registered_memory const own(mine.all, registered ? 2 * size : 0);
          std::byte* const memory = registered ? own.data() : plain.data();
          nccl::check(cudaMemsetAsync(memory, 0, 2 * size, mine.stream.get()), "cudaMemsetAsync");
          auto const call = [&] {
            mine.rows.all_to_all(memory, counts.data(), memory + size, counts.data(), 512);
          };
          host.note("the call before the capture");
          call();
          mine.all.wait_for(mine.stream.get(), "the call before the capture");
          host.note("the capture");
          graph const captured(mine.stream.get(), call);
          for (int replay = 0; replay < 3; ++replay) {
            bytes const out(size, static_cast<unsigned char>(10 * replay + rank + 1));
            // On the stream of the replay, which does not wait for the default one.
            nccl::check(cudaMemcpyAsync(memory, out.data(), size, cudaMemcpyHostToDevice, mine.stream.get()),
                        "cudaMemcpyAsync");
            host.note("replay " + std::to_string(replay));
            captured.launch(mine.stream.get());
            mine.session.entrance().calls.note("a replay", mine.stream.get());
            mine.all.wait_for(mine.stream.get(), "a replay");
            bytes in(size);
            nccl::check(cudaMemcpy(in.data(), memory + size, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
            for (std::size_t i = 0; i < size; ++i)
              if (in[i] != 10 * replay + (i < size / 2 ? 1 : 2))
                said = "replay " + std::to_string(replay) + " is wrong";
          }
          host.note("a capture that does not run");
          // Half of what it was given, since the own rows go beside it.
          int const takes = mine.all.ctas_of([&](cudaStream_t) { call(); }, mine.stream.get());
          if (rank == 0)
            std::printf("8 blocks allowed, %d taken, matrix products get %d\n", takes,
                        nccl::sm_target(takes));
          if (takes < 1 || takes > 8) said = "it takes " + std::to_string(takes) + " blocks of at most 8";
        }
        std::fflush(stdout);
        host.note("the end");
        host.barrier();
        return said;
      },
      seconds(test::times(30, 120)));
  check_all(found);
}

TEST_CASE(
    "the smallest budget that keeps a call shorter than the compute beside it is chosen, alike on all ranks",
    "[gpu]") {
  check_all(test::run_forked(
      2, [](int rank) { on_own_gpu(rank, 2); },
      [](int rank, shared_exchange host) -> std::string {
        joined mine(host);
        constexpr std::size_t size = std::size_t{8} << 20;
        // Everything hides behind an hour, and nothing behind less than nothing: then the fastest is right.
        std::vector<int> const budgets =
            test::under_a_tool() ? std::vector<int>{2, 8} : std::vector<int>{2, 4, 8, 16, 32};
        auto const least = nccl::choose_budget(mine.session, host, size, 3.6e9, 0, budgets);
        auto const fastest = nccl::choose_budget(mine.session, host, size, -1.0, 0, budgets);
        if (rank == 0)
          std::printf("8 MiB a call: %d blocks of %d in %.0f us, %d of %d in %.0f us\n", least.ctas,
                      least.most_ctas, least.microseconds, fastest.ctas, fastest.most_ctas,
                      fastest.microseconds);
        std::fflush(stdout);
        std::array const mine_chosen{least.most_ctas, fastest.most_ctas};
        std::array<std::array<int, 2>, 2> chosen{};
        host.all_gather(&mine_chosen, 1, chosen.data());
        host.barrier();
        if (chosen[0] != chosen[1]) return "ranks chose differently";
        if (least.most_ctas != 2 || least.ctas < 1 || least.ctas > 2) return "not the smallest";
        return {};
      },
      seconds(120)));
}

TEST_CASE("the watchdog looks at calls while another thread captures, and spoils nothing",
          "[gpu][building-blocks-12]") {
  check_all(test::run_forked(
      2, [](int rank) { on_own_gpu(rank, 2); },
      [](int, shared_exchange host) -> std::string {
        joined mine(host, seconds(test::times(3, 10)));
        device_bytes const memory(bytes(1 << 20));
        std::vector<int> const counts(2, 100);
        auto const call = [&] {
          mine.rows.all_to_all(memory.data(), counts.data(), memory.data() + memory.size() / 2, counts.data(),
                               256);
        };
        call();
        nccl::check(cudaStreamSynchronize(mine.stream.get()), "cudaStreamSynchronize");
        host.barrier();
        // Of the strictest kind, in which a look at an event by any other thread counts.
        cudaGraph_t captured = nullptr;
        nccl::check(cudaStreamBeginCapture(mine.stream.get(), cudaStreamCaptureModeGlobal),
                    "cudaStreamBeginCapture");
        // The call is older than the deadline then, and is looked at.
        std::this_thread::sleep_for(test::patiently(std::chrono::milliseconds(test::times(3800, 10800))));
        call();
        nccl::check(cudaStreamEndCapture(mine.stream.get(), &captured), "cudaStreamEndCapture");
        nccl::check(cudaGraphDestroy(captured), "cudaGraphDestroy");
        host.barrier();
        return mine.board.failed() ? describe(mine.board.first()) : std::string();
      },
      seconds(120)));
}

TEST_CASE("when one of two ranks is killed or falls silent, calls of the other end and name it",
          "[gpu][building-blocks-11]") {
  lose_ranks(2);
}
TEST_CASE("when one of four ranks is killed or falls silent, calls of the others end and name it", "[gpu]") {
  lose_ranks(4);
}

TEST_CASE("what NCCL cannot serve is refused on every rank with one sentence", "[gpu]") {
  auto const refused = [](auto prepare, auto words) {
    auto const found = test::run_forked(
        2, prepare,
        [](int, shared_exchange host) {
          joined const mine(host);
          return std::string("joined");
        },
        seconds(60));
    for (auto const& each : found) {
      CHECK(each.ended);
      CHECK_THAT(each.said, ContainsSubstring(words));
    }
  };
  // Where there are two GPUs both ranks are shown one.
  refused([](int) { ::setenv("CUDA_VISIBLE_DEVICES", "0", 1); }, "ranks 0 and 1 are both on the GPU");
  refused([](int) { ::setenv("CUDA_VISIBLE_DEVICES", "0", 1); },
          "set NCCL_HOSTID=<rank> NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo");
  refused(
      [](int rank) {
        on_own_gpu(rank, 2);
        if (rank == 1) ::setenv("NCCL_MAX_CTAS", "2", 1);
      },
      "NCCL_MAX_CTAS differs: rank 0 does not set it, rank 1 has '2'");
  // The others are joined first, which takes minutes then, and nothing is launched.
  if (test::under_a_tool()) return;
  auto const uneven = test::run_forked(
      2, [](int rank) { on_own_gpu(rank, 2); },
      [](int, shared_exchange host) {
        joined const mine(host, seconds(60), {.most_ctas = 6});
        return std::string("joined");
      },
      seconds(60));
  for (auto const& each : uneven)
    CHECK_THAT(each.said, ContainsSubstring("most_ctas is 6 and must be a power of two"));
  auto const different = test::run_forked(
      2, [](int rank) { on_own_gpu(rank, 2); },
      [](int rank, shared_exchange host) {
        joined const mine(host, seconds(60), {.most_ctas = rank == 0 ? 4 : 8});
        return std::string("joined");
      },
      seconds(60));
  for (auto const& each : different)
    CHECK_THAT(each.said,
               ContainsSubstring("ranks 0 and 1 ask for different communicators: 'stretto' of at most 4 "
                                 "blocks in clusters of 1 and 'stretto' of at most 8 blocks"));
}

TEST_CASE("a rank that does not come to the first meeting ends the wait of the others at the deadline",
          "[gpu]") {
  if (test::under_a_tool()) SKIP("NCCL is not joined within the deadline there, and nothing is launched");
  auto const found = test::run_forked(
      2, [](int rank) { on_own_gpu(rank, 2); },
      [](int rank, shared_exchange host) {
        joined::choose(host);
        nccl::session session(host, {seconds(3), {}, seconds(3)});
        if (rank == 1) {
          // It comes to the meeting of the hosts, and stays away from that of NCCL.
          nccl::gather_texts(host, "0 " + nccl::communicator_options{}.text());
          std::this_thread::sleep_for(seconds(6));
          return std::string("threw: ncclCommSplit");
        }
        static_cast<void>(session.split(0));
        return std::string("split alone");
      },
      seconds(60));
  for (auto const& each : found) CHECK_THAT(each.said, ContainsSubstring("threw: ncclCommSplit"));
}
