/// Tensors of one's own, without a third party: a small mixture-of-experts language model over `stretto::array`, trained by
/// two ranks that are threads, once by every policy. The phases are in own_tensors/phases.hpp and own_tensors/experts.hpp.
#include "own_tensors/model.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/stretto.hpp>

#include <cstdio>
#include <exception>
#include <vector>

namespace st = stretto;

namespace {

constexpr int ranks = 2, microbatches = 4, steps = 120;
constexpr char const* picture = "EMDMH";

using Comm = st::array::expert_parallel<st::host::communicator>;
using Model = own_tensors::Model<Comm>;

struct Serial : st::Schedule<Model, st::Serial> {};
struct TwoStream : st::Schedule<Model, st::TwoStream1F1B> {};
struct SplitDW : st::Schedule<Model, st::TwoStream1F1B, st::SplitDW> {};

struct training {
  std::vector<float> losses; ///< of each step, over all ranks
  std::vector<std::uint32_t> bits; ///< losses and gradients of the last step, rank by rank
  std::size_t peak_bytes = 0, lives_after = 0;
};

/// One rank of it. Gradients of what every rank has are summed in rank order, then everybody takes the same step.
template <class Schedule> void train_rank(st::host::group& group, int gradients, int rank, training& result) {
  auto exchange = group.communicator(rank);
  auto sums = group.communicator(rank, gradients);
  Comm comm(exchange, own_tensors::shape{}.experts / ranks);
  st::array::tensors arrays;
  own_tensors::network<Comm> net(picture, {}, arrays, comm, microbatches);
  st::host::lanes lanes({.rank = rank, .board = &group.board()});
  st::executor run(Schedule{}, st::backend{arrays, lanes}, net.layers,
                   st::sizes{.microbatches = microbatches});
  std::size_t const parameters = arrays.memory().live();
  for (int step = 0; step < steps; ++step) {
    net.next_batches(step);
    net.clear_gradients();
    run();
    for (own_tensors::parameter& p : net.parameters)
      if (!p.of_expert) sums.all_reduce(p.gradient.data(), p.gradient.size());
    net.descend(1.0F);
    float loss = 0;
    for (float const l : net.data.losses) loss += l / (ranks * microbatches);
    sums.all_reduce(&loss, 1);
    if (rank == 0) result.losses.push_back(loss);
  }
  std::vector<std::uint32_t> const mine = net.bits();
  std::vector<std::uint32_t> all(mine.size() * ranks);
  sums.all_gather(mine.data(), mine.size(), all.data());
  if (rank != 0) return;
  result.bits = all;
  result.peak_bytes = arrays.memory().peak() - parameters;
  result.lives_after = arrays.memory().live() - parameters;
}

template <class Schedule> training train() {
  training result;
  st::host::group group(ranks);
  int const gradients = group.add_domain();
  group.run([&](int rank) { train_rank<Schedule>(group, gradients, rank, result); });
  return result;
}

void print(char const* policy, training const& of, training const& serial) {
  std::printf("  %-22s %10.4f %12.4f   %-9s %10zu %10zu\n", policy, static_cast<double>(of.losses.front()),
              static_cast<double>(of.losses.back()), of.bits == serial.bits ? "yes" : "NO", of.peak_bytes,
              of.lives_after);
}

} // namespace

int main() try {
  training const serial = train<Serial>(), two_stream = train<TwoStream>(), split = train<SplitDW>();
  std::printf("%d ranks, %d microbatches, layers %s, %d steps\n\n", ranks, microbatches, picture, steps);
  for (std::size_t step = 0; step < serial.losses.size(); step += 20)
    std::printf("  step %3zu   loss %.4f\n", step, static_cast<double>(serial.losses[step]));
  std::printf("\n  %-22s %10s %12s   %-9s %10s %10s\n", "policy", "first loss", "last loss", "same bits",
              "peak bytes", "left after");
  print("Serial", serial, serial);
  print("TwoStream1F1B", two_stream, serial);
  print("TwoStream1F1B, SplitDW", split, serial);
  bool const learns = serial.losses.back() < 0.8F * serial.losses.front();
  bool const same = two_stream.bits == serial.bits && split.bits == serial.bits;
  return learns && same ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "own_tensors: %s\n", error.what());
  return 1;
}
