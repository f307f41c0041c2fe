#include "bits.hpp"

#include <train_moe/corpus.hpp>
#include <train_moe/forecast.hpp>
#include <train_moe/gradients.hpp>
#include <train_moe/memory.hpp>
#include <train_moe/model/router.hpp>
#include <train_moe/optimizer.hpp>
#include <train_moe/options.hpp>
#include <train_moe/output_file.hpp>
#include <train_moe/ranks/agreement.hpp>
#include <train_moe/ranks/rank_types.hpp>
#include <train_moe/report.hpp>
#include <train_moe/trainer.hpp>

#include <stretto/adapters/host/group.hpp>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

using namespace train_moe;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {

class folder {
public:
  folder() : path_(fs::temp_directory_path() / ("stretto_parts." + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~folder() { fs::remove_all(path_); }
  folder(folder const&) = delete;
  folder& operator=(folder const&) = delete;
  fs::path operator/(char const* name) const { return path_ / name; }
  fs::path const& path() const { return path_; }

private:
  fs::path path_;
};

void write(fs::path const& to, std::string const& what) { std::ofstream(to, std::ios::binary) << what; }
std::string read(fs::path const& from) {
  std::ifstream in(from, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("experts that are worth a thread each get the numbers of one thread", "[train_moe]") {
  model_config const config;
  initializer const init(config, "layers.0.");
  auto const drawn = init.experts("up", 3, 2, {1024, 1024}, 0.5);
  for (int i = 0; i < 2; ++i) {
    auto generator = at::detail::createCPUGenerator(
        hash_text(config.seed, initializer::expert_name("layers.0.up", 3 + i)));
    auto const alone = at::empty({1024, 1024}, at::kDouble).normal_(0.0, 0.5, generator).to(at::kFloat);
    CHECK(at::equal(drawn.data()[i], alone));
  }
}

TEST_CASE("however many experts there are, they are drawn by as many threads as there are cores",
          "[train_moe]") {
  auto const threads = [] {
    fs::directory_iterator const each("/proc/self/task");
    return std::distance(begin(each), end(each));
  };
  auto const cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  model_config const config;
  auto const before = threads();
  std::atomic<bool> done = false;
  auto most = before;
  std::thread looks([&] {
    for (; !done; std::this_thread::sleep_for(std::chrono::microseconds(200)))
      most = std::max(most, threads());
  });
  initializer(config, "").experts("up", 0, 2 * cores + 8, {1024, 1024}, 0.5);
  done = true;
  looks.join();
  CHECK(most > before + 1);
  CHECK(most <= before + 1 + cores);
}

TEST_CASE("a forced balance gives experts as many rows each, and the router its gradient", "[train_moe]") {
  model_config config;
  config.hidden = 16;
  config.auxiliary = 0;
  config.forced_balance = true;
  config.type = number_type::f64;
  initializer const init(config, "layers.0.");
  step_data step;
  step.resize(1, 2, 1);
  router routes(init, step, 0), of_other_layer(init, step, 1);
  norm normed(init, "norm");
  constexpr std::int64_t tokens = 4096;
  auto const x = normed(at::arange(tokens * config.hidden, at::kDouble).sin().view({tokens, -1}));

  auto const chosen = routes(x, 0);
  CHECK(at::equal(chosen.ids, routes(x, 0).ids));
  CHECK_FALSE(at::equal(chosen.ids, routes(x, 1).ids));
  CHECK_FALSE(at::equal(chosen.ids, of_other_layer(x, 0).ids));
  auto const rows = chosen.ids.flatten().bincount({}, config.experts);
  auto const mean = static_cast<double>(tokens * config.top_k) / config.experts;
  CHECK(rows.min().item<double>() > 0.9 * mean);
  CHECK(rows.max().item<double>() < 1.1 * mean);

  // Of two weights w and 1 - w the first has the slope w (1 - w) by the first logit and less that by the second.
  auto const gradient = at::arange(2 * tokens, at::kDouble).square().cos().view({tokens, 2});
  auto const& w = chosen.weights;
  torch::autograd::backward({chosen.log_weights}, {gradient * w});
  auto const first = w.prod(1) * (gradient.select(1, 0) - gradient.select(1, 1));
  auto const of_logits =
      at::zeros({tokens, config.experts}, at::kDouble).scatter(1, chosen.ids, at::stack({first, -first}, 1));
  routes.for_each_parameter([&](model_parameter const& each) {
    auto const right = x.rows.detach().t().mm(of_logits);
    CHECK(at::allclose(each.weight->leaf().grad(), right, 1e-9, 1e-9));
    CHECK(right.abs().max().item<double>() > 1);
  });
}

TEST_CASE("a rank whose attention or way to others is another one is named", "[train_moe]") {
  options const usual;
  options fast, pushing;
  fast.repeatable = false;
  pushing.transport = transport_kind::peer;
  auto const told = [](options const& of) { return agreement_of(of, 0); };
  CHECK(difference_of({told(usual), told(usual)}).empty());
  CHECK_THAT(difference_of({told(usual), told(fast), told(usual)}),
             ContainsSubstring("rank 1 has --attention fast and others have --attention repeatable"));
  CHECK_THAT(difference_of({told(usual), told(usual), told(pushing)}),
             ContainsSubstring("rank 2 has --comm peer and others have --comm staged"));
}

TEST_CASE("a corpus holds a tenth out and never trains on it", "[torch]") {
  folder const place;
  // Bytes that tell which block they are from: there are ten blocks while a tenth of the text is below 4 KiB.
  constexpr int sequence = 299;
  std::string bytes;
  for (int block = 0; block < 10; ++block) bytes += std::string(600, static_cast<char>(block));
  fs::create_directories(place / "b");
  write(place / "a.txt", bytes.substr(0, 1000));
  write(place / "b/c.txt", bytes.substr(1000, 4000));
  write(place / "d.txt", bytes.substr(5000));
  // Links are no text, wherever they lead.
  fs::create_symlink("d.txt", place / "e");
  fs::create_symlink("f", place / "f");
  corpus const text(place.path(), 59);
  CHECK(text.training_bytes() + text.held_out_bytes() == bytes.size());

  corpus const whole(place.path(), sequence);
  CHECK(whole.held_out_bytes() == 600);
  std::set<int> held, trained;
  for (int i = 0; i < 10; ++i)
    for (auto const each : whole.held_out(i, 10)) held.insert(each);
  for (int step = 0; step < 200; ++step)
    for (auto const each : whole.training(1, step, 0, 0)) trained.insert(each);
  CHECK(held == std::set<int>{9});
  CHECK(trained.size() == 9);
  CHECK_FALSE(trained.contains(9));
  CHECK(whole.training(1, 0, 0, 0).size() == sequence + 1);
}

TEST_CASE("the bigram loss is that of counts of pairs", "[torch]") {
  folder const place;
  std::string bytes;
  while (bytes.size() < 200000) bytes += "ab";
  write(place / "text", bytes);
  corpus const regular(place / "text", 16);
  CHECK(regular.bigram_loss(8) < 1e-3);
  unsigned state = 7;
  for (auto& each : bytes) {
    state = state * 1664525u + 1013904223u;
    each = (state >> 30) & 1 ? 'a' : 'b';
  }
  write(place / "text", bytes);
  CHECK(corpus(place / "text", 16).bigram_loss(512) == Catch::Approx(std::log(2.0)).epsilon(0.01));
}

TEST_CASE("text that cannot be trained on is refused with a remedy", "[torch]") {
  folder const place;
  auto const refusal = [](fs::path const& path) -> std::string {
    try {
      corpus const text(path, 16);
    } catch (input_error const& error) {
      return error.what();
    }
    return {};
  };
  CHECK_THAT(refusal(place / "missing"), ContainsSubstring("there is no file or folder"));
  CHECK_THAT(refusal(place.path()), ContainsSubstring("no files in"));
  write(place / "empty", "");
  CHECK_THAT(refusal(place / "empty"), ContainsSubstring("is empty"));
  write(place / "short", std::string(169, 'x'));
  CHECK_THAT(refusal(place / "short"), ContainsSubstring("169 bytes") && ContainsSubstring("at least 170"));
  write(place / "short", std::string(170, 'x'));
  CHECK(refusal(place / "short").empty());
  CHECK_THAT(refusal("/dev/null"), ContainsSubstring("neither a file nor a folder"));
}

TEST_CASE("the digest sees every bit of every gradient, and ranks and names", "[torch]") {
  auto const make = [] {
    std::vector<stretto::torch::parameter> weights;
    weights.emplace_back("b", random_tensor({3, 5}, at::kFloat, 1));
    weights.emplace_back("experts", random_tensor({2, 3, 3}, at::kFloat, 2));
    weights[0].accumulate(random_tensor({3, 5}, at::kFloat, 3));
    weights[1].accumulate(random_tensor({2, 3, 3}, at::kFloat, 4));
    return weights;
  };
  auto weights = make();
  std::vector<model_parameter> const parameters{{&weights[0]}, {&weights[1], 6}};
  auto const hashes = hash_gradients(parameters, 0);
  REQUIRE(hashes.size() == 3);
  CHECK(hashes[2].name == "experts[7]");
  auto const digest = digest_of(hashes);
  CHECK(digest.size() == 16);
  CHECK(digest_of({hashes.rbegin(), hashes.rend()}) == digest);

  std::set<std::string> seen{digest, digest_of(hash_gradients(parameters, 1))};
  CHECK(seen.size() == 2);
  for (auto& weight : weights) {
    auto* bits = static_cast<std::uint32_t*>(weight.main_grad().mutable_data_ptr());
    for (std::int64_t i = 0; i < weight.main_grad().numel(); ++i)
      for (int bit = 0; bit < 32; ++bit) {
        bits[i] ^= 1u << bit;
        seen.insert(digest_of(hash_gradients(parameters, 0)));
        bits[i] ^= 1u << bit;
      }
  }
  CHECK(seen.size() == 2 + 32 * (15 + 18));
}

TEST_CASE("replicated gradients are added up in rank order, the norm covers all experts", "[torch]") {
  constexpr int ranks = 3;
  stretto::host::group group(ranks);
  std::vector<at::Tensor> reduced(ranks), of_experts(ranks);
  std::vector<double> norms(ranks);
  auto const gradient = [](int rank, std::uint64_t which, at::IntArrayRef sizes) {
    return random_tensor(sizes, at::kFloat, which * 10 + static_cast<std::uint64_t>(rank));
  };
  group.run([&](int rank) {
    rank_communicator comm = group.communicator(rank);
    auto const r = static_cast<std::size_t>(rank);
    stretto::torch::parameter replicated("w", at::zeros({7, 3})), experts("e", at::zeros({2, 4, 4}));
    replicated.accumulate(gradient(rank, 1, {7, 3}));
    experts.accumulate(gradient(rank, 2, {2, 4, 4}));
    std::vector<model_parameter> const parameters{{&replicated}, {&experts, 2 * rank}};
    timed_exchange<rank_communicator> rows(comm);
    reduce_replicated(parameters, comm, rows);
    norms[r] = global_norm(parameters, comm);
    reduced[r] = replicated.main_grad().clone();
    of_experts[r] = experts.main_grad().clone();
  });
  auto sum = gradient(0, 1, {7, 3});
  for (int rank = 1; rank < ranks; ++rank) sum = sum + gradient(rank, 1, {7, 3});
  double squares = sum.to(at::kDouble).square().sum().item<double>();
  for (auto const& each : of_experts) squares += each.to(at::kDouble).square().sum().item<double>();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CHECK(same_bits(reduced[rank], sum));
    CHECK(same_bits(of_experts[rank], gradient(static_cast<int>(rank), 2, {2, 4, 4})));
    CHECK(norms[rank] == Catch::Approx(std::sqrt(squares)).epsilon(1e-6));
    CHECK(norms[rank] == norms[0]);
  }
}

TEST_CASE("the optimizer is AdamW, and bf16 weights follow a float master", "[torch]") {
  for (auto const type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    stretto::torch::parameter matrix("m", at::full({1, 1}, 0.5, type)), gain("g", at::full({1}, 0.5, type));
    std::vector<model_parameter> const parameters{{&matrix}, {&gain}};
    adam_w optimizer(parameters);
    double value[] = {0.5, 0.5}, mean = 0, square = 0;
    for (int step = 1; step <= 50; ++step) {
      auto const gradient = std::sin(step) + 0.25;
      for (auto const& each : parameters) {
        each.weight->zero_grad();
        each.weight->accumulate(at::full(each.weight->leaf().sizes(), gradient));
      }
      optimizer.step(1e-3, 0.5);
      auto const used = 0.5 * gradient;
      mean = 0.9 * mean + 0.1 * used;
      square = 0.95 * square + 0.05 * used * used;
      for (int i = 0; i < 2; ++i) {
        value[i] *= 1 - 1e-3 * (i == 0 ? 0.1 : 0.0);
        value[i] -= 1e-3 * (mean / (1 - std::pow(0.9, step))) /
                    (std::sqrt(square / (1 - std::pow(0.95, step))) + 1e-8);
      }
    }
    auto const near = type == at::kDouble ? 1e-7 : type == at::kFloat ? 1e-5 : 1.0 / 256;
    CHECK(matrix.leaf().item<double>() == Catch::Approx(value[0]).epsilon(near));
    CHECK(gain.leaf().item<double>() == Catch::Approx(value[1]).epsilon(near));
    // Steps of a thousandth are below what bf16 can add to 0.5: without a master the weight would stay there.
    CHECK(std::abs(gain.leaf().item<double>() - 0.5) > 5e-3);
  }
}

TEST_CASE("the learning rate warms up and falls to a tenth", "[torch]") {
  CHECK(learning_rate_at(0, 100, 1.0) == Catch::Approx(0.1));
  CHECK(learning_rate_at(9, 100, 1.0) == Catch::Approx(1.0));
  CHECK(learning_rate_at(10, 100, 1.0) == Catch::Approx(1.0));
  CHECK(learning_rate_at(99, 100, 1.0) == Catch::Approx(0.1).margin(0.01));
  CHECK(learning_rate_at(0, 1, 1.0) == 1.0);
}

TEST_CASE("tensor memory is counted", "[torch]") {
  count_tensor_memory();
  auto const before = live_tensor_bytes();
  restart_peak();
  {
    auto const a = at::zeros({1024}, at::kFloat);
    CHECK(live_tensor_bytes() - before == 4096);
    auto const b = at::zeros({1024}, at::kDouble);
    CHECK(live_tensor_bytes() - before == 3 * 4096);
  }
  CHECK(live_tensor_bytes() == before);
  CHECK(peak_tensor_bytes() - before == 3 * 4096);
  // As some kernels take scratch memory.
  auto* const allocator = c10::GetAllocator(c10::DeviceType::CPU);
  auto* const scratch = allocator->raw_allocate(100);
  CHECK(live_tensor_bytes() == before + 100);
  allocator->raw_deallocate(scratch);
  CHECK(live_tensor_bytes() == before);
  restart_peak();
  CHECK(peak_tensor_bytes() == before);
}

TEST_CASE("an output file appears whole or not at all", "[torch]") {
  folder const place;
  write(place / "old", "kept");
  auto const entries = [&] {
    return std::distance(fs::directory_iterator(place.path()), fs::directory_iterator());
  };
  output_file const file("--json", place / "old");
  CHECK(read(place / "old") == "kept");
  CHECK(entries() == 1);
  CHECK_THROWS(file.write([](std::ostream& out) {
    out << "half";
    out.setstate(std::ios::failbit);
  }));
  CHECK(read(place / "old") == "kept");
  CHECK(entries() == 1);
  CHECK_THROWS_AS(file.write([](std::ostream& out) {
    out << "half" << std::flush;
    throw std::bad_alloc();
  }),
                  std::bad_alloc);
  CHECK(read(place / "old") == "kept");
  CHECK(entries() == 1);
  for (int const signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    pid_t const child = ::fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL); // Catch2 has its own
      file.write([signal](std::ostream& out) {
        out << "half" << std::flush;
        std::raise(signal);
      });
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == signal));
    CHECK(read(place / "old") == "kept");
    CHECK(entries() == 1);
  }
  file.write([](std::ostream& out) { out << "new"; });
  CHECK(read(place / "old") == "new");
  CHECK(entries() == 1);
  CHECK_THROWS_AS(output_file("--json", place.path()), input_error);
  CHECK_THROWS_AS(output_file("--json", place / "no/such/folder"), input_error);
  CHECK_FALSE(output_file("--json", ""));
}

TEST_CASE("the table says whether gradients are those of serial", "[torch]") {
  run_result serial;
  serial.how = policy::serial;
  serial.losses = {2.0, 1.5};
  serial.step_seconds = {0.5, 0.2};
  serial.gradient_digest = "0123456789abcdef";
  auto same = serial, other_digest = serial, other_loss = serial;
  same.how = policy::split_dw;
  same.step_seconds = {0.5, 0.1};
  other_digest.gradient_digest = "0123456789abcdee";
  other_loss.losses[0] = std::nextafter(2.0, 3.0);
  auto const table = [&](run_result const& second) {
    run_result const runs[] = {serial, second};
    std::istringstream lines(comparison_table(runs));
    std::string line, last;
    std::size_t width = 0;
    while (std::getline(lines, line)) {
      if (width != 0) CHECK(line.size() == width);
      width = line.size();
      last = line;
    }
    return last;
  };
  CHECK_THAT(table(same),
             ContainsSubstring("split_dw") && ContainsSubstring(" yes ") && ContainsSubstring(" 0.500 "));
  CHECK_THAT(table(other_digest), ContainsSubstring(" no "));
  CHECK_THAT(table(other_loss), ContainsSubstring(" no "));
}

TEST_CASE("a forecast of memory: parameters are exact, activations less than a step takes, and not by much",
          "[torch]") {
  folder const place;
  write(place / "text.txt", std::string(20000, 'x'));
  options o;
  o.text = place / "text.txt";
  o.ep = 1;
  o.steps = 1;
  o.batch = 8;
  o.microbatches = 3;
  o.model.layers = 3;
  o.model.dense = 1;
  o.model.hidden = 64;
  o.model.ffn = 48;
  prepare(o);
  corpus const text(o.text, o.model.sequence);
  for (auto const type : {number_type::f32, number_type::bf16}) {
    o.model.type = type;
    CAPTURE(type);
    std::size_t parameters = 0;
    {
      stretto::host::group group(1);
      rank_communicator const alone(group.communicator(0));
      timed_exchange<rank_communicator> rows(alone);
      expert_exchange exchange(rows, o.model.experts);
      language_model model(o.model, exchange);
      for (auto const& each : model.parameters()) {
        auto const one = each.weight->data();
        parameters +=
            static_cast<std::size_t>(one.numel()) * (type == number_type::bf16 ? 2 + 3 * 4 + 4 : 4 * 4);
      }
    }
    for (auto const how : {policy::serial, policy::split_dw}) {
      auto const found = forecast(o, how);
      CAPTURE(name_of(how), found.activations);
      CHECK(found.parameters == parameters);
      auto const taken = train(o, how, text, [](progress const&) {}).peak_bytes;
      CAPTURE(taken);
      CHECK(found.activations < taken);
      CHECK(found.activations > taken / 2);
    }
  }
  auto const of_serial = forecast(o, policy::serial);
  CHECK(forecast(o, policy::split_dw).activations == of_serial.activations);
  o.ep = 2;
  CHECK(forecast(o, policy::serial).activations == 2 * of_serial.activations);
  o.how = policy::serial;
  auto const needed = forecast(o, policy::serial).all();
  require_memory(o, needed, 2);
  require_memory(o, needed / 2, 1);
  CHECK_THROWS_WITH(require_memory(o, needed - 1, 2),
                    ContainsSubstring("2 of --ep 2 times --pp 1 ranks are on one GPU") &&
                        ContainsSubstring("lower --layers"));
}

TEST_CASE("an error about memory keeps its op and tells what the run takes, others stay", "[torch]") {
  options o;
  auto const said =
      with_forecast("rank 1: F.mlp L2 mb3 failed: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
                    o, policy::serial);
  CHECK_THAT(
      said, Catch::Matchers::StartsWith("rank 1: F.mlp L2 mb3 failed: out of memory; with serial it takes "));
  CHECK_THAT(said, ContainsSubstring("GiB at least") && !ContainsSubstring("Tried"));
  CHECK_THAT(with_forecast("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried", o,
                           policy::split_dw),
             Catch::Matchers::StartsWith("out of memory; with split_dw"));
  CHECK(with_forecast("rank 1: F.mlp L2 mb3 failed: no expert", o, policy::serial) ==
        "rank 1: F.mlp L2 mb3 failed: no expert");
}
