#include "device_memory.hpp"
#include "under_a_tool.hpp"

#include <stretto/adapters/cublas.hpp>
#include <stretto/adapters/cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

using namespace stretto;
using cublas::expert_shape;
using cublas::gradient_sum;
using test::device_bytes;
using test::times;
using bytes = std::vector<unsigned char>;
using numbers = std::vector<double>;
using row_counts = std::vector<std::int64_t>;

namespace {

template <class Number> bytes bits_of(Number const& number) {
  bytes all(sizeof number);
  std::memcpy(all.data(), &number, sizeof number);
  return all;
}

/// One number in a type of the GPU.
bytes encoded(double number, cudaDataType_t type) {
  if (type == CUDA_R_64F) return bits_of(number);
  auto const narrow = static_cast<float>(number);
  if (type == CUDA_R_32F) return bits_of(narrow);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return bits_of(static_cast<std::uint16_t>(bits >> 16));
}
double decoded(unsigned char const* from, cudaDataType_t type) {
  if (type == CUDA_R_64F) {
    double number = 0;
    std::memcpy(&number, from, sizeof number);
    return number;
  }
  std::uint32_t bits = 0;
  if (type == CUDA_R_32F) {
    std::memcpy(&bits, from, 4);
  } else {
    std::uint16_t upper = 0;
    std::memcpy(&upper, from, 2);
    bits = static_cast<std::uint32_t>(upper) << 16;
  }
  float number = 0;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}
bytes encoded(numbers const& all, cudaDataType_t type) {
  bytes to;
  for (double const each : all) {
    auto const one = encoded(each, type);
    to.insert(to.end(), one.begin(), one.end());
  }
  return to;
}
numbers decoded(bytes const& all, cudaDataType_t type) {
  numbers to;
  auto const width = cublas::bytes_of(type);
  for (std::size_t i = 0; i + width <= all.size(); i += width) to.push_back(decoded(&all[i], type));
  return to;
}

/// Random numbers that the type can hold.
numbers drawn(std::int64_t count, cudaDataType_t type, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  numbers all(static_cast<std::size_t>(count));
  for (auto& each : all) each = normal(random);
  return decoded(encoded(all, type), type);
}

/// Behind every output lies some more of this, which no product may touch. It is no number in any of the types.
constexpr unsigned char poison = 0xff;
constexpr std::size_t guard = 64;
device_bytes poisoned(std::size_t size) { return device_bytes(bytes(size + guard, poison)); }

struct outputs {
  bytes y, dx, dw;
  bool operator==(outputs const&) const = default;
};

/// Rows and weights of some experts, on the host and on the GPU.
struct problem {
  problem(expert_shape const& of, row_counts counts, unsigned seed)
      : shape(of), rows(std::move(counts)), all(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})),
        weights(static_cast<std::int64_t>(rows.size()) * of.in * of.out),
        x(drawn(all * of.in, of.type, seed)), w(drawn(weights, of.type, seed + 1)),
        dy(drawn(all * of.out, of.type, seed + 2)),
        before(drawn(weights, cublas::gradient_type(of.type), seed + 3)),
        on_gpu{device_bytes(encoded(x, of.type)), device_bytes(encoded(w, of.type)),
               device_bytes(encoded(dy, of.type))},
        y(poisoned(dy.size() * cublas::bytes_of(of.type))),
        dx(poisoned(x.size() * cublas::bytes_of(of.type))),
        dw(poisoned(before.size() * cublas::bytes_of(cublas::gradient_type(of.type)))) {}

  expert_shape shape;
  row_counts rows;
  std::int64_t all, weights;
  numbers x, w, dy, before;
  struct inputs {
    device_bytes x, w, dy;
  } on_gpu;
  device_bytes y, dx, dw;

  cudaDataType_t gradient_type() const { return cublas::gradient_type(shape.type); }

  /// Makes the outputs nothing, and the weight gradient what is added to.
  void prepare(gradient_sum how) {
    for (auto const* each : {&y, &dx, &dw})
      cuda::check(cudaMemset(each->data(), poison, each->size()), "cudaMemset");
    if (how == gradient_sum::add) {
      auto const start = encoded(before, gradient_type());
      cuda::check(cudaMemcpy(dw.data(), start.data(), start.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  void issue(cublas::handle& with, gradient_sum how) const {
    cublas::expert_forward(with, shape, rows, on_gpu.x.data(), on_gpu.w.data(), y.data());
    cublas::expert_input_gradient(with, shape, rows, on_gpu.dy.data(), on_gpu.w.data(), dx.data());
    cublas::expert_weight_gradient(with, shape, rows, on_gpu.x.data(), on_gpu.dy.data(), dw.data(), how);
  }
  outputs read() const {
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return {y.to_host(), dx.to_host(), dw.to_host()};
  }
  outputs run(cublas::handle& with, gradient_sum how) {
    prepare(how);
    issue(with, how);
    return read();
  }
};

/// The same in double precision.
struct reference {
  numbers y, dx, dw;
};
reference reference_of(problem const& p, gradient_sum how) {
  auto const in = static_cast<std::size_t>(p.shape.in), out = static_cast<std::size_t>(p.shape.out);
  reference r{numbers(p.dy.size()), numbers(p.x.size()),
              how == gradient_sum::add ? p.before : numbers(p.before.size())};
  std::size_t row = 0;
  for (std::size_t e = 0; e < p.rows.size(); ++e)
    for (auto const end = row + static_cast<std::size_t>(p.rows[e]); row < end; ++row)
      for (std::size_t i = 0; i < in; ++i) {
        double const x = p.x[row * in + i];
        double sum = 0;
        for (std::size_t o = 0; o < out; ++o) {
          auto const weight = (e * in + i) * out + o;
          r.y[row * out + o] += x * p.w[weight];
          sum += p.dy[row * out + o] * p.w[weight];
          r.dw[weight] += x * p.dy[row * out + o];
        }
        r.dx[row * in + i] = sum;
      }
  return r;
}

/// Of the whole, relative to the reference; not a number where an element was not written.
double error_of(bytes const& found, cudaDataType_t type, numbers const& expected) {
  auto const values = decoded(found, type);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (values[i] - expected[i]) * (values[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference) / std::sqrt(size);
}
double rounding_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 1e-13 : type == CUDA_R_32F ? 1e-5 : 1e-2;
}
bool guard_is_whole(bytes const& of) {
  return std::all_of(of.end() - static_cast<std::ptrdiff_t>(guard), of.end(),
                     [](unsigned char each) { return each == poison; });
}
void check_close(problem const& p, outputs const& found, gradient_sum how) {
  auto const expected = reference_of(p, how);
  CHECK(error_of(found.y, p.shape.type, expected.y) < rounding_of(p.shape.type));
  CHECK(error_of(found.dx, p.shape.type, expected.dx) < rounding_of(p.shape.type));
  CHECK(error_of(found.dw, p.gradient_type(), expected.dw) < rounding_of(p.gradient_type()));
  for (auto const* each : {&found.y, &found.dx, &found.dw}) CHECK(guard_is_whole(*each));
}

row_counts const uneven{0, 17, 0, 1, 130, 33, 0};

/// Large enough for products of two streams to run at the same time and to want a workspace.
row_counts const many{4096, 100, 0, 777};
constexpr expert_shape wide{CUDA_R_16BF, 256, 320};

} // namespace

TEST_CASE("the products of experts are right to rounding", "[gpu][building-blocks-14]") {
  cuda::stream own;
  cublas::handle with(own.get());
  auto const type = GENERATE(CUDA_R_16BF, CUDA_R_32F, CUDA_R_64F);
  auto const [in, out] = GENERATE(table<int, int>({{64, 96}, {37, 53}, {129, 31}, {1, 1}, {256, 8}}));
  auto const how = GENERATE(gradient_sum::add, gradient_sum::write);
  // Aligned, and not.
  if (test::under_a_tool() && in != 64 && in != 37) return;
  CAPTURE(static_cast<int>(type), in, out, static_cast<int>(how));
  problem p({type, in, out}, uneven, 1);
  auto const found = p.run(with, how);
  check_close(p, found, how);
  CHECK(p.run(with, how) == found);
}

TEST_CASE("experts without rows: nothing is added, or zeros are written", "[gpu][building-blocks-14]") {
  cuda::stream own;
  cublas::handle with(own.get());
  auto const type = GENERATE(CUDA_R_16BF, CUDA_R_32F, CUDA_R_64F);
  problem p({type, 24, 40}, {0, 0, 0}, 5);
  auto const added = p.run(with, gradient_sum::add);
  CHECK(decoded(added.dw, p.gradient_type())[0] == p.before[0]);
  CHECK(error_of(added.dw, p.gradient_type(), p.before) == 0);
  CHECK(guard_is_whole(added.dw));
  auto const written = p.run(with, gradient_sum::write);
  auto const values = decoded(written.dw, p.gradient_type());
  CHECK(std::count(values.begin(), values.begin() + p.weights, 0.0) == p.weights);
  CHECK(guard_is_whole(written.dw));
  CHECK(guard_is_whole(written.y));
}

TEST_CASE("for fewer multiprocessors products are as right, and for all again have the same bits",
          "[gpu][building-blocks-17]") {
  cuda::stream own;
  cublas::handle with(own.get());
  problem p(wide, many, 9);
  auto const all = p.run(with, gradient_sum::add);
  check_close(p, all, gradient_sum::add);
  with.use_multiprocessors(20);
  int target = 0;
  CHECK(cublasGetSmCountTarget(with.get(), &target) == CUBLAS_STATUS_SUCCESS);
  CHECK(target == 20);
  check_close(p, p.run(with, gradient_sum::add), gradient_sum::add);
  with.use_multiprocessors(0);
  CHECK(p.run(with, gradient_sum::add) == all);

  cublas::stream_handles handles;
  auto& made_before = handles.on(own.get());
  handles.use_multiprocessors(24);
  cuda::stream later;
  for (auto* each : {&made_before, &handles.on(later.get())}) {
    CHECK(cublasGetSmCountTarget(each->get(), &target) == CUBLAS_STATUS_SUCCESS);
    CHECK(target == 24);
  }
}

TEST_CASE("one search serves a range of row counts, and what came first does not show", "[gpu]") {
  cuda::stream own;
  problem small(wide, {130, 0, 4}, 90), large(wide, {136, 8, 0}, 91), next(wide, {137, 1, 1}, 92);
  cublas::handle first(own.get());
  auto const of_small = small.run(first, gradient_sum::write);
  auto const after = first.kernels().size();
  CHECK(after == 6);
  auto const of_large = large.run(first, gradient_sum::write);
  CHECK(first.kernels().size() == after);
  auto const of_next = next.run(first, gradient_sum::write);
  // What is summed over is rounded further.
  CHECK(first.kernels().size() == after + 2);
  cublas::handle second(own.get());
  CHECK(next.run(second, gradient_sum::write) == of_next);
  CHECK(large.run(second, gradient_sum::write) == of_large);
  CHECK(small.run(second, gradient_sum::write) == of_small);
  for (auto const* each : {&small, &large, &next}) check_close(*each, each->read(), gradient_sum::write);
}

TEST_CASE("a product is as right with the kernel for the most rows of its range as with that for its own",
          "[gpu]") {
  cuda::stream own;
  cublas::handle with(own.get());
  auto const type = GENERATE(CUDA_R_16BF, CUDA_R_32F, CUDA_R_64F);
  auto const [in, out] = GENERATE(table<int, int>({{40, 72}, {40, 96}, {16, 16}, {96, 40}}));
  for (std::int64_t const count : {1, 2, 63, 65, 127, 129, 2049, 4097}) {
    CAPTURE(static_cast<int>(type), in, out, count);
    problem p({type, in, out}, {count}, 95);
    check_close(p, p.run(with, gradient_sum::add), gradient_sum::add);
  }
}

TEST_CASE("two lanes at once give the bits of each alone", "[gpu][building-blocks-15]") {
  cuda::stream streams[2];
  std::optional<problem> problems[2];
  outputs alone[2];
  for (unsigned i = 0; i < 2; ++i) {
    problems[i].emplace(wide, many, 20 + 10 * i);
    cublas::handle with(streams[i].get());
    alone[i] = problems[i]->run(with, gradient_sum::write);
  }
  CHECK(alone[0] != alone[1]);
  auto const differ = [&] {
    int count = 0;
    for (int i = 0; i < 2; ++i) count += problems[i]->read() != alone[i];
    return count;
  };

  SECTION("issued by one thread") {
    cublas::stream_handles handles;
    CHECK(&handles.on(streams[0].get()) == &handles.on(streams[0].get()));
    CHECK(&handles.on(streams[0].get()) != &handles.on(streams[1].get()));
    for (int round = 0; round < times(20, 2); ++round) {
      for (auto& each : problems) each->prepare(gradient_sum::write);
      for (int again = 0; again < 4; ++again)
        for (int i = 0; i < 2; ++i) problems[i]->issue(handles.on(streams[i].get()), gradient_sum::write);
      CHECK(differ() == 0);
    }
  }
  SECTION("by the threads of two ranks") {
    for (auto& each : problems) each->prepare(gradient_sum::write);
    std::thread ranks[2];
    for (int i = 0; i < 2; ++i)
      ranks[i] = std::thread([&, i] {
        cublas::stream_handles handles;
        for (int again = 0; again < times(80, 4); ++again)
          problems[i]->issue(handles.on(streams[i].get()), gradient_sum::write);
        cuda::check(cudaStreamSynchronize(streams[i].get()), "cudaStreamSynchronize");
      });
    for (auto& each : ranks) each.join();
    CHECK(differ() == 0);
  }
}

TEST_CASE("a captured call gives the bits of an eager one, with new rows too", "[gpu][building-blocks-15]") {
  cuda::stream own;
  cublas::handle with(own.get());
  problem p(wide, many, 40);
  cublas::warm(with, wide, many);
  auto const how = GENERATE(gradient_sum::add, gradient_sum::write);
  p.prepare(how);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  cuda::check(cudaStreamBeginCapture(own.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  p.issue(with, how);
  cuda::check(cudaStreamEndCapture(own.get(), &graph), "cudaStreamEndCapture");
  cuda::check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  for (unsigned seed = 50; seed < 53; ++seed) {
    auto const rows = encoded(drawn(p.all * wide.in, wide.type, seed), wide.type);
    cuda::check(cudaMemcpy(p.on_gpu.x.data(), rows.data(), rows.size(), cudaMemcpyHostToDevice),
                "cudaMemcpy");
    auto const eager = p.run(with, how);
    p.prepare(how);
    cuda::check(cudaGraphLaunch(replay, own.get()), "cudaGraphLaunch");
    CHECK(p.read() == eager);
  }
  std::size_t count = 0;
  cuda::check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  cuda::check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  for (auto const node : nodes) {
    cudaGraphNodeType type{};
    cuda::check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    // Else a workspace of cuBLAS's own would be taken anew by every capture.
    CHECK(type != cudaGraphNodeTypeMemAlloc);
  }
  static_cast<void>(cudaGraphExecDestroy(replay));
  static_cast<void>(cudaGraphDestroy(graph));
}

TEST_CASE("kernels are looked for in a capture as outside of one", "[gpu][building-blocks-15]") {
  cuda::stream own;
  cublas::handle warmed(own.get()), asked_first_in_capture(own.get());
  row_counts const in_the_same_ranges{4090, 97, 0, 779};
  problem p(wide, in_the_same_ranges, 45);
  cublas::warm(warmed, wide, many);
  auto const searches = warmed.kernels().size();
  auto const eager = p.run(warmed, gradient_sum::write);
  CHECK(warmed.kernels().size() == searches);
  p.prepare(gradient_sum::write);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  cuda::check(cudaStreamBeginCapture(own.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  p.issue(asked_first_in_capture, gradient_sum::write);
  cuda::check(cudaStreamEndCapture(own.get(), &graph), "cudaStreamEndCapture");
  CHECK(asked_first_in_capture.kernels().size() > 0);
  cuda::check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  cuda::check(cudaGraphLaunch(replay, own.get()), "cudaGraphLaunch");
  CHECK(p.read() == eager);
  static_cast<void>(cudaGraphExecDestroy(replay));
  static_cast<void>(cudaGraphDestroy(graph));
}

TEST_CASE("a handle that changes streams keeps its workspace and its order", "[gpu][building-blocks-15]") {
  cuda::stream first, second;
  cublas::handle with(first.get());
  problem p({CUDA_R_16BF, 64, 96}, {20000, 9000}, 60);
  auto const expected = p.run(with, gradient_sum::write);
  outputs found;
  // Sums over many rows are made in parts, which lie in the workspace.
  auto const uses_own_workspace = [&] {
    auto const size = with.workspace_bytes();
    cuda::check(cudaMemset(with.workspace(), poison, size), "cudaMemset");
    found = p.run(with, gradient_sum::write);
    bytes after(size);
    cuda::check(cudaMemcpy(after.data(), with.workspace(), size, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return after != bytes(size, poison);
  };
  CHECK(uses_own_workspace());
  CHECK(found == expected);
  for (int round = 0; round < 3; ++round)
    for (auto const* each : {&second, &first}) {
      with.move_to(each->get());
      CHECK(with.stream() == each->get());
      cudaStream_t current = nullptr;
      CHECK(cublasGetStream(with.get(), &current) == CUBLAS_STATUS_SUCCESS);
      CHECK(current == each->get());
      CHECK(uses_own_workspace());
      CHECK(found == expected);
    }
  // A bare change of streams goes back to a workspace of cuBLAS's own, which products here do not take.
  CHECK(cublasSetStream(with.get(), second.get()) == CUBLAS_STATUS_SUCCESS);
  CHECK(uses_own_workspace());
  CHECK(found == expected);

  cublas::handle moving(first.get());
  p.prepare(gradient_sum::write);
  for (int again = 0; again < times(50, 8); ++again) {
    p.issue(moving, gradient_sum::write);
    moving.move_to(moving.stream() == first.get() ? second.get() : first.get());
  }
  CHECK(p.read() == expected);
}

namespace {

/// Whether what `issue` puts on a stream is issued while that stream waits for the host.
template <class Issue> bool issues_behind_a_gate(cudaStream_t on, Issue const& issue) {
  struct gate {
    std::atomic<bool> open = false, gave_up = false;
  } closed;
  auto const hold = [](void* stored) {
    auto& mine = *static_cast<gate*>(stored);
    for (int i = 0; i < 10000 && !mine.open; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    mine.gave_up = !mine.open;
  };
  cuda::check(cudaLaunchHostFunc(on, hold, &closed), "cudaLaunchHostFunc");
  issue();
  closed.open = true;
  cuda::check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  return !closed.gave_up;
}

} // namespace

TEST_CASE("warm products are issued behind a stream that waits for the host", "[gpu][h200-01]") {
  if (test::under_initcheck())
    SKIP("under initcheck not all is issued behind a stream that waits for the host");
  cuda::stream own;
  cublas::handle with(own.get());
  problem p({CUDA_R_16BF, 72, 200}, {300, 0, 45}, 70);
  cublas::warm(with, p.shape, p.rows);
  p.prepare(gradient_sum::write);
  CHECK(issues_behind_a_gate(own.get(), [&] { p.issue(with, gradient_sum::write); }));
  check_close(p, p.read(), gradient_sum::write);
}

TEST_CASE("what cuBLAS cannot do is said before or with the call", "[gpu]") {
  using Catch::Matchers::ContainsSubstring;
  cuda::stream own;
  cublas::handle with(own.get());
  problem p({CUDA_R_32F, 8, 8}, {4}, 80);
  auto const issue = [&](expert_shape const& shape, row_counts const& rows) {
    cublas::expert_forward(with, shape, rows, p.on_gpu.x.data(), p.on_gpu.w.data(), p.y.data());
  };
  CHECK_THROWS_WITH(issue({CUDA_R_8I, 8, 8}, {4}), ContainsSubstring("bf16, half, float or double"));
  CHECK_THROWS_WITH(issue({CUDA_R_32F, 0, 8}, {4}), ContainsSubstring("0 by 8"));
  CHECK_THROWS_WITH(issue({CUDA_R_32F, 8, 8}, {2, -1}), ContainsSubstring("-1 rows of expert 1"));
  CHECK_THROWS_WITH(issue({CUDA_R_32F, 8, 8}, {std::int64_t{1} << 31}),
                    ContainsSubstring("2147483648 rows of expert 0"));
  CHECK_THROWS_WITH(with.use_multiprocessors(-1), ContainsSubstring("CUBLAS_STATUS_INVALID_VALUE"));
  cuda::stream captured;
  cuda::check(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
  cublas::stream_handles handles;
  CHECK_THROWS_WITH(handles.on(captured.get()), ContainsSubstring("made while its stream is captured"));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  static_cast<void>(cudaGraphDestroy(graph));
}
