#pragma once

#include "../array/book.hpp"
#include "bits.hpp"

#include <stretto/adapters/torch.hpp>
#include <stretto/executor.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

/// A model over torch whose graphs keep nothing but values: what lives after each op is then known from the table of ops.
namespace table_test {

using namespace stretto;
namespace st = stretto::torch;

struct hidden : value {};
struct tokens : value {};
struct arrived : value {};
struct expert_rows : value {};
struct residual : value {};
struct loss : objective {};

/// Rows of a microbatch, their width, and where they are.
struct shape {
  std::int64_t rows, width;
  at::Device on;

  at::Tensor draw(at::IntArrayRef sizes, std::uint64_t seed) const {
    return random_tensor(sizes, at::kFloat, seed).div_(8).to(on);
  }
  std::size_t bytes(std::int64_t numbers) const { return static_cast<std::size_t>(numbers) * sizeof(float); }
};

class Embedding : public Phase<attn> {
public:
  using writes = values<hidden>;
  using saves = values<>;
  explicit Embedding(shape const& s)
      : input_(s.draw({s.rows, s.width}, 1)), weight_("embedding", s.draw({s.width, s.width}, 2)) {}
  void forward(auto& io) { io[hidden{}] = st::linear(input_, weight_); }

private:
  at::Tensor input_;
  st::parameter weight_;
};

class Attention : public Phase<attn> {
public:
  using reads = values<hidden>;
  using writes = values<tokens, residual>;
  using saves = values<hidden>;
  explicit Attention(shape const& s) : weight_("attention", s.draw({s.width, 2 * s.width}, 3)) {}
  void forward(auto& io) {
    io[tokens{}] = st::linear(io[hidden{}], weight_);
    io[residual{}] = io[hidden{}] * 2;
  }

private:
  st::parameter weight_;
};

class Dispatch : public Phase<dispatch> {
public:
  using reads = values<tokens>;
  using writes = values<arrived>;
  using saves = values<>;
  void forward(auto& io) { io[arrived{}] = at::cat({io[tokens{}], io[tokens{}]}); }
};

class Experts : public Phase<mlp> {
public:
  using reads = values<arrived>;
  using writes = values<expert_rows>;
  using saves = values<arrived>;
  explicit Experts(shape const& s)
      : rows_(s.rows), weight_("experts", s.draw({2, 2 * s.width, s.width}, 4)) {}
  void forward(auto& io) {
    io[expert_rows{}] = st::expert_linear(io[arrived{}], {rows_ / 2, 2 * rows_ - rows_ / 2}, weight_);
  }

private:
  std::int64_t rows_;
  st::parameter weight_;
};

class Combine : public Phase<combine> {
public:
  using reads = values<expert_rows, residual>;
  using writes = values<hidden>;
  using saves = values<>;
  explicit Combine(shape const& s) : rows_(s.rows) {}
  void forward(auto& io) {
    auto const& rows = io[expert_rows{}];
    io[hidden{}] = rows.view({2, rows_, rows.size(1)}).sum(0) + io[residual{}];
  }

private:
  std::int64_t rows_;
};

class Head : public Phase<mlp> {
public:
  using reads = values<hidden>;
  using writes = values<loss>;
  using saves = values<hidden>;
  void forward(auto& io) { io[loss{}] = (io[hidden{}] * io[hidden{}]).sum(); }
};

struct EmbeddingLayer : Block<Embedding> {};
struct ExpertLayer : Block<Attention, Detach, Dispatch, Detach, Experts, Detach, Combine> {};
struct HeadLayer : Block<Head> {};
struct Network : Blocks<EmbeddingLayer, ExpertLayer, HeadLayer> {};

inline void fill(layer_list<Network>& to, shape const& s, int layers) {
  to.add(layer<EmbeddingLayer>{Embedding{s}});
  for (int i = 0; i < layers; ++i)
    to.add(layer<ExpertLayer>{Attention{s}, Dispatch{}, Experts{s}, Combine{s}});
  to.add(layer<HeadLayer>{Head{}});
}

inline memory_test::book book_of(shape const& s, int layers, int microbatches) {
  memory_test::book made;
  auto const note = [&]<class V>(V, int layer, int m, std::int64_t numbers) {
    made.bytes[{layer, m, stretto::detail::id_of<V>()}] = s.bytes(numbers);
  };
  for (int m = 0; m < microbatches; ++m)
    for (int i = 0; i < layers + 2; ++i) {
      note(hidden{}, i, m, s.rows * s.width);
      note(residual{}, i, m, s.rows * s.width);
      note(tokens{}, i, m, 2 * s.rows * s.width);
      note(arrived{}, i, m, 4 * s.rows * s.width);
      note(expert_rows{}, i, m, 2 * s.rows * s.width);
      note(loss{}, i, m, 1);
    }
  return made;
}

/// Bytes that live after each op of a step beyond those before it: found, and by the table.
struct watched {
  std::vector<std::size_t> measured, expected;
  std::size_t left = 0; ///< when the step has drained
  std::size_t kept = 0; ///< what lived before the step: parameters
};

/// `live` tells the bytes of all tensors. `Lanes` has a function `after` that runs behind every op in the order of issue.
template <class Schedule, class Lanes, class Live>
watched watch(shape const& s, int layers, int microbatches, Lanes& lanes, Live const& live) {
  std::size_t const at_first = live();
  layer_list<Network> network;
  fill(network, s, layers);
  st::stream_tensors tensors;
  executor run(Schedule{}, backend{tensors, lanes}, network, sizes{.microbatches = microbatches});
  auto const book = book_of(s, layers, microbatches);
  plan const all = proved_plan<typename Schedule::rank_plan>(1, microbatches, 0);
  memory_test::ledger<Schedule> table(run.table(), book, network, all.facts());
  watched found;
  // The first step makes what stays, such as handles of libraries.
  lanes.after = [] {};
  run();
  std::size_t const before = live();
  found.kept = before - at_first;
  int row = 0;
  lanes.after = [&] {
    found.measured.push_back(live() - before);
    found.expected.push_back(table.after(row++));
  };
  run();
  lanes.after = [] {};
  found.left = live() - before;
  return found;
}

inline std::size_t most(std::vector<std::size_t> const& of) {
  return *std::max_element(of.begin(), of.end());
}

} // namespace table_test
