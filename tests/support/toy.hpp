#pragma once

#include "support/toy_phases.hpp"

#include <stretto/executor.hpp>
#include <stretto/walk.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// A model small enough to know every number of it: tensors are single numbers, backward is written by hand, and sums
/// have several addends in floating point, so that another order of them gives other bits.
namespace toy {

template <class Model, class B, int K = 0> constexpr int number_of() {
  if constexpr (K == Model::count)
    return -1;
  else if constexpr (std::same_as<B, typename Model::template block<K>>)
    return K;
  else
    return number_of<Model, B, K + 1>();
}

/// Layers from a picture: E embedding, M MoE, S MoE with shared expert, D dense, F fused dense, Q squash, H head, and `|`
/// between chunks.
template <class Model> class network {
public:
  network(std::string_view picture, int microbatches) : losses(static_cast<unsigned>(microbatches)) {
    for (char const kind : picture) {
      if (kind == '|') layers.next_chunk();
      if (kind == 'E') add<EmbedLayer>(Embed(next()));
      if (kind == 'M')
        add<MoeLayer>(Attention{next(), next()}, Dispatch(), Experts(next(), &burns), Combine());
      if (kind == 'S')
        add<SharedLayer>(Attention{next(), next()}, Dispatch(), SharedExperts{next(), next()},
                         SharedCombine());
      if (kind == 'D') add<DenseLayer>(DenseAttention(next()), DenseMlp(next()));
      if (kind == 'F') add<FusedLayer>(DenseAttention(next()), DenseMlp(next()));
      if (kind == 'Q') add<SquashLayer>(Squash());
      if (kind == 'H') add<HeadLayer>(Head(next(), losses.data()));
    }
  }
  network(network const&) = delete;
  network& operator=(network const&) = delete;

  void clear() {
    for (parameter& p : parameters) p.gradient = 0;
    for (double& l : losses) l = 0;
  }
  double total_loss() const {
    double sum = 0;
    for (double const l : losses) sum += l;
    return sum;
  }
  /// Losses, then gradients: what must be the same, bit for bit, whatever the schedule.
  std::vector<std::uint64_t> bits() const {
    std::vector<std::uint64_t> all;
    for (double const l : losses) all.push_back(std::bit_cast<std::uint64_t>(l));
    for (parameter const& p : parameters) all.push_back(std::bit_cast<std::uint64_t>(p.gradient));
    return all;
  }

  std::vector<double> losses;
  std::deque<parameter> parameters;
  fuse burns;
  st::layer_list<Model> layers;

private:
  parameter* next() {
    double const place = static_cast<double>(parameters.size());
    parameters.push_back({0.6 + 0.31 * std::sin(place), 0});
    return &parameters.back();
  }
  template <class B, class... P> void add(P... phases) {
    if constexpr (number_of<Model, B>() >= 0)
      layers.add(st::layer<B>(std::move(phases)...));
    else
      throw std::logic_error("the model of this test has no such block type");
  }
};

/// The losses of the microbatches by the plain walk over the layers, with no schedule.
template <class Model> class walker {
public:
  explicit walker(network<Model>& net) : net_(net) {}
  double operator()(int microbatch) {
    st::boundary<number> handed{};
    double const before = net_.losses[static_cast<unsigned>(microbatch)];
    run(0, microbatch, handed);
    return std::exchange(net_.losses[static_cast<unsigned>(microbatch)], before);
  }

private:
  template <int K = 0> void run(int index, int microbatch, st::boundary<number>& from) {
    if (index == net_.layers.size()) return;
    if constexpr (K < Model::count) {
      auto const at = net_.layers[index];
      if (at.type != K) return run<K + 1>(index, microbatch, from);
      st::slot<Model, K, tensors<number>> state;
      for (int c = 0; c < st::max_carried; ++c) state.value[c] = from.value[c];
      st::boundary<number> next{};
      st::walk_forward<Model, K, tensors<number>>(net_.layers.template at<K>(index), state, next, index,
                                                  microbatch);
      run(index + 1, microbatch, next);
    }
  }
  network<Model>& net_;
};

} // namespace toy
