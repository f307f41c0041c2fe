#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif

// Before what includes Catch2: torch has a CHECK of its own, which ends the program.
#include <stretto/adapters/c10d.hpp>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "device_memory.hpp"
#include "forked_ranks.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cuda_runtime_api.h>

#include <filesystem>

using test::device_bytes;
using test::shared_exchange;
using bytes = std::vector<unsigned char>;

namespace {

using exchange = stretto::c10d::device_rows<shared_exchange>;
static_assert(stretto::row_exchange<exchange>);

int rows_between(int from, int to, int round) {
  return round == 0 ? 0 : (7 * from + 13 * to + 5 * round) % 40 * (to == round % 2);
}

bytes blocks(int rank, bool sent, int round, std::size_t row_bytes, std::vector<int>& rows) {
  bytes all;
  for (int other = 0; other < 2; ++other) {
    int const from = sent ? rank : other, to = sent ? other : rank;
    rows.push_back(rows_between(from, to, round));
    all.insert(all.end(), static_cast<std::size_t>(rows.back()) * row_bytes,
               static_cast<unsigned char>(1 + from * 2 + to * 4 + round * 8));
  }
  return all;
}

} // namespace

TEST_CASE("rows of a group of ProcessGroupNCCL reach the ranks they are for, none from or to some", "[gpu]") {
  auto const place =
      std::filesystem::temp_directory_path() / ("stretto_c10d_rows." + std::to_string(::getpid()));
  auto const found = test::run_forked(
      2, [](int rank) { test::use_gpu_of_rank(rank, 2); },
      [&](int rank, shared_exchange host) -> std::string {
        int count = 0;
        stretto::cuda::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        stretto::cuda::check(cudaSetDevice(rank % count), "cudaSetDevice");
        auto const store = c10::make_intrusive<c10d::FileStore>(place.string(), 2);
        auto const group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
            store, rank, 2, c10d::ProcessGroupNCCL::Options::create());
        exchange rows(host, group);
        int wrong = 0;
        for (int round = 0; round < 6; ++round) {
          std::vector<int> send_rows, receive_rows;
          device_bytes const send(blocks(rank, true, round, 36, send_rows));
          auto const expected = blocks(rank, false, round, 36, receive_rows);
          device_bytes const receive(bytes(expected.size(), 0xcd));
          rows.all_to_all(send.data(), send_rows.data(), receive.data(), receive_rows.data(), 36);
          stretto::cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
          wrong += receive.to_host() != expected;
        }
        host.barrier();
        return wrong == 0 ? std::string() : std::to_string(wrong) + " rounds are wrong";
      },
      std::chrono::seconds(120));
  std::filesystem::remove(place);
  for (auto const& each : found) {
    CHECK(each.ended);
    CHECK(each.said.empty());
  }
}
