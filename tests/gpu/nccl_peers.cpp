#include "device_memory.hpp"
#include "forked_ranks.hpp"
#include "laws/peers.hpp"

#include <stretto/adapters/host/failure.hpp>
#include <stretto/adapters/nccl.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <optional>

using namespace stretto;
using std::chrono::seconds;
using test::device_bytes;
using test::shared_exchange;

namespace {

struct lane_stream {
  cudaStream_t on;
  cudaStream_t current() const { return on; }
};

/// Device memory that comes and goes in the order of a stream: to free it otherwise waits for the whole device, sends included.
class lane_bytes {
public:
  lane_bytes(std::size_t size, cudaStream_t on) : size_(size), on_(on) {
    nccl::check(cudaMallocAsync(&data_, size, on), "cudaMallocAsync");
  }
  lane_bytes(lane_bytes const&) = delete;
  lane_bytes& operator=(lane_bytes const&) = delete;
  ~lane_bytes() { static_cast<void>(cudaFreeAsync(data_, on_)); }
  void* data() const { return data_; }
  std::size_t size() const { return size_; }

private:
  void* data_ = nullptr;
  std::size_t size_;
  cudaStream_t on_;
};

/// Numbers in device memory, as little of a tensor library as messages need.
struct device_numbers {
  cudaStream_t on;
  using tensor = std::shared_ptr<lane_bytes>;
  bool is_empty(tensor const& t) const { return !t; }
  tensor contiguous(tensor const& t) const { return t; }
  void* data(tensor const& t) const { return t->data(); }
  void describe(tensor const& t, tensor_head& head) const { head.bytes = t->size(); }
  tensor make(tensor_head const& head) const { return std::make_shared<lane_bytes>(head.bytes, on); }
  tensor lend(tensor const& base, std::function<void()> gone) const {
    return {base.get(), [base, gone = std::move(gone)](lane_bytes*) { gone(); }};
  }
};
using heads = test::shared_mail<nccl::message_head>;
using messages = nccl::peers<device_numbers, heads, lane_stream>;
static_assert(peer_adapter<messages>);

/// One of two ranks, with a route of each kind.
struct joined {
  explicit joined(shared_exchange const& ranks)
      : host(ranks), gpu(choose(ranks)),
        session(host, {test::patiently(seconds(60)), [this] { return board.failed(); },
                       test::patiently(seconds(120))}),
        watchdog(session, board, ranks.rank()), mail(host.board(), ranks.rank()),
        peers(ranks.rank(), mail, {stream.get()}, {stream.get()}) {
    for (int from = 0; from < 2; ++from)
      for (bool const gradient : {false, true}) {
        auto& along = *session.split(0, {.most_ctas = 2}, from == ranks.rank() ? 0 : 1);
        along.connect(/*both_ways=*/false);
        peers.add({from, 1 - from, gradient}, along);
      }
  }
  static int choose(shared_exchange const& ranks) {
    int count = 0;
    nccl::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    nccl::check(cudaSetDevice(ranks.rank() % count), "cudaSetDevice");
    return ranks.rank() % count;
  }

  shared_exchange host;
  int gpu;
  host::failure_board board;
  nccl::side_stream stream;
  nccl::session session;
  nccl::watchdog<host::failure_board> watchdog;
  heads mail;
  messages peers;
};

constexpr std::size_t numbers = std::size_t{1} << 16;

device_numbers::tensor make(cudaStream_t on, int number) {
  auto const made = std::make_shared<lane_bytes>(numbers * sizeof(int), on);
  std::vector<int> const from(numbers, number);
  nccl::check(cudaMemcpyAsync(made->data(), from.data(), made->size(), cudaMemcpyHostToDevice, on),
              "cudaMemcpyAsync");
  nccl::check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  return made;
}
/// -1 if there is nothing, -2 if not all are the same.
int read(cudaStream_t on, device_numbers::tensor const& t) {
  if (!t) return -1;
  std::vector<int> to(numbers);
  nccl::check(cudaMemcpyAsync(to.data(), t->data(), t->size(), cudaMemcpyDeviceToHost, on),
              "cudaMemcpyAsync");
  nccl::check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  for (int const each : to)
    if (each != to[0]) return -2;
  return to[0];
}

void check_all(std::vector<test::outcome> const& found) {
  for (auto const& each : found) {
    CHECK(each.ended);
    CHECK(each.status == 0);
    CHECK(each.said == "");
  }
}

} // namespace

TEST_CASE("nccl::peers keeps the laws of messages", "[gpu]") {
  check_all(test::run_forked(
      2, [](int rank) { test::use_gpu_of_rank(rank, 2); },
      [](int rank, shared_exchange host) {
        joined mine(host);
        auto const on = mine.stream.get();
        auto const make_one = [on](int number) { return make(on, number); };
        auto const read_one = [on](device_numbers::tensor const& t) { return read(on, t); };
        auto const spoil = [on](device_numbers::tensor const& t) {
          nccl::check(cudaMemsetAsync(t->data(), 0xee, t->size(), on), "cudaMemsetAsync");
        };
        std::string wrong;
        int const other = 1 - rank;
        // Under a tool something waits for sends that wait for their receives (gpu_sanitizer.md): there they are as few as fit
        // into NCCL's eight buffers a channel, where they end by themselves.
        int const microbatches = test::times(8, 1);
        if (!laws::messages_are_found_by_name(mine.peers, rank, other, make_one, read_one, microbatches))
          wrong += "found by name; ";
        if (!laws::the_oldest_comes_first(mine.peers, rank, other, make_one, read_one))
          wrong += "oldest first; ";
        if (!laws::an_empty_tensor_arrives_empty(mine.peers, rank, other, make_one, read_one))
          wrong += "empty; ";
        if (!laws::what_arrives_is_its_own(mine.peers, rank, other, make_one, read_one, spoil))
          wrong += "its own; ";
        host.barrier();
        return wrong;
      },
      seconds(120)));
}

TEST_CASE("rows and messages on communicators of their own, issued in another order on each rank, end with "
          "the right values",
          "[gpu][building-blocks-09][megatron-31]") {
  check_all(test::run_forked(
      2, [](int rank) { test::use_gpu_of_rank(rank, 2); },
      [](int rank, shared_exchange host) {
        joined mine(host);
        auto& all = *mine.session.split(0, {.most_ctas = 8});
        all.connect();
        nccl::side_stream lane;
        nccl::rows<shared_exchange, lane_stream> rows(host, all, {lane.get()});
        std::vector<int> const counts(2, 512);
        device_bytes const out(1024 * 256), in(1024 * 256);
        int wrong = 0;
        for (int round = 0; round < test::times(60, 10); ++round) {
          auto const exchange = [&] {
            nccl::check(cudaMemsetAsync(out.data(), round + 100 * rank, out.size(), lane.get()),
                        "cudaMemsetAsync");
            rows.all_to_all(out.data(), counts.data(), in.data(), counts.data(), 256);
          };
          auto const sent = make(mine.stream.get(), 1000 * rank + round);
          // Nothing here waits for the GPU before all is issued.
          if (rank == 0) exchange();
          mine.peers.send({round % 2 == 0, 0, round, 0, 1 - rank}, sent);
          auto const got = mine.peers.receive({round % 2 == 0, 0, round, 0, 1 - rank});
          if (rank == 1) exchange();
          wrong += read(mine.stream.get(), got) != 1000 * (1 - rank) + round;
          nccl::check(cudaStreamSynchronize(lane.get()), "cudaStreamSynchronize");
          auto const bytes = in.to_host();
          for (std::size_t i = 0; i < bytes.size(); i += 997)
            wrong += bytes[i] != round + 100 * (i < bytes.size() / 2 ? 0 : 1);
        }
        host.barrier();
        return wrong == 0 ? std::string() : std::to_string(wrong) + " are wrong";
      },
      seconds(120)));
}
