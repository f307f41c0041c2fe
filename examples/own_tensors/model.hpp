#pragma once

#include "experts.hpp"

#include <stretto/layers.hpp>

#include <bit>
#include <cstdint>
#include <deque>
#include <random>
#include <stdexcept>
#include <string_view>

namespace own_tensors {

struct shape {
  int vocabulary = 13, hidden = 8, inner = 12, experts = 6, top_k = 2, words = 12;
};

/// `Wrap` may put something around every phase, as tests do; by itself it is the phase.
template <class Phase> using plain = Phase;

template <template <class> class Wrap> struct EmbedLayer : st::Block<Wrap<Embed>> {};
template <class Comm, template <class> class Wrap>
struct MoeLayer : st::Block<Wrap<MixAndRoute>, st::Detach, Wrap<Dispatch<Comm>>, st::Detach,
                            Wrap<Experts<Comm>>, st::Detach, Wrap<Combine<Comm>>> {};
template <template <class> class Wrap>
struct DenseLayer : st::Block<Wrap<Mix>, st::Detach, Wrap<FeedForward>> {};
template <template <class> class Wrap> struct HeadLayer : st::Block<Wrap<Head>> {};

template <class Comm, template <class> class Wrap = plain>
struct Model : st::Blocks<EmbedLayer<Wrap>, MoeLayer<Comm, Wrap>, DenseLayer<Wrap>, HeadLayer<Wrap>> {};

/// The layers of one rank from a picture: E embedding, M mixture of experts, D dense, H head, `|` between chunks; a small letter
/// is a layer that another pipeline rank has. Parameters that several ranks have start the same on each, and an expert starts
/// the same wherever it lives.
template <class Comm, template <class> class Wrap = plain> class network {
public:
  using model = Model<Comm, Wrap>;

  network(std::string_view picture, shape const& of, st::array::tensors& arrays, Comm& comm, int microbatches)
      : of_(of), arrays_(arrays), rank_(comm.rank()), ranks_(comm.ranks()) {
    if (of.experts % ranks_ != 0) throw std::invalid_argument("the ranks must divide the experts");
    data.words.resize(static_cast<std::size_t>(microbatches));
    data.next_words = data.words;
    data.losses.resize(data.words.size());
    data.gradient_scale = 1.0F / static_cast<float>(microbatches * ranks_);
    for (char const kind : picture) {
      switch (kind) {
      case 'E':
        add<EmbedLayer<Wrap>>(Wrap<Embed>(make(of.vocabulary, of.hidden), data));
        break;
      case 'M': {
        mixer const mix = make_mixer();
        parameter& router = make(of.hidden, of.experts);
        auto const up = make_experts(of.hidden, of.inner), down = make_experts(of.inner, of.hidden);
        add<MoeLayer<Comm, Wrap>>(Wrap<MixAndRoute>(mix, router, of.top_k), Wrap<Dispatch<Comm>>(comm),
                                  Wrap<Experts<Comm>>(up, down), Wrap<Combine<Comm>>(comm));
        break;
      }
      case 'D': {
        mixer const mix = make_mixer();
        parameter& up = make(of.hidden, of.inner);
        parameter& down = make(of.inner, of.hidden);
        add<DenseLayer<Wrap>>(Wrap<Mix>(mix), Wrap<FeedForward>(up, down));
        break;
      }
      case 'H':
        add<HeadLayer<Wrap>>(Wrap<Head>(make(of.hidden, of.vocabulary), data));
        break;
      case '|':
        layers.next_chunk();
        break;
      case 'e':
      case 'h':
        ++made_;
        break;
      case 'm':
        made_ += 5;
        break;
      case 'd':
        made_ += 4;
        break;
      default:
        throw std::invalid_argument(
            "a picture of layers is made of E, M, D, H, small letters for other ranks' and |");
      }
    }
  }
  network(network const&) = delete;
  network& operator=(network const&) = delete;

  /// Other sentences for every rank and step: each word follows from the two before it, with some noise.
  void next_batches(int step) {
    for (std::size_t m = 0; m < data.words.size(); ++m) {
      std::mt19937 random(static_cast<unsigned>((step * ranks_ + rank_) * 101 + static_cast<int>(m)));
      auto draw = [&] { return static_cast<int>(random() % static_cast<unsigned>(of_.vocabulary)); };
      std::vector<int> text = {draw(), draw()};
      while (static_cast<int>(text.size()) < of_.words + 2)
        text.push_back(random() % 16 == 0
                           ? draw()
                           : (2 * text[text.size() - 1] + text[text.size() - 2] + 1) % of_.vocabulary);
      data.words[m].assign(text.begin() + 1, text.end() - 1);
      data.next_words[m].assign(text.begin() + 2, text.end());
    }
  }

  void clear_gradients() {
    for (parameter& p : parameters) p.gradient = {arrays_.memory(), p.weight.rows(), p.weight.columns()};
  }
  void descend(float rate) {
    for (parameter& p : parameters)
      for (std::size_t i = 0; i < p.weight.size(); ++i) p.weight.data()[i] -= rate * p.gradient.data()[i];
  }
  /// Losses and gradients, bit for bit.
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (float const l : data.losses) all.push_back(std::bit_cast<std::uint32_t>(l));
    for (parameter const& p : parameters)
      for (std::size_t i = 0; i < p.gradient.size(); ++i)
        all.push_back(std::bit_cast<std::uint32_t>(p.gradient.data()[i]));
    return all;
  }

  batches data;
  std::deque<parameter> parameters;
  st::layer_list<model> layers;

private:
  parameter& make(int rows, int columns, int seed = -1) {
    bool const of_expert = seed >= 0;
    if (!of_expert) seed = 1000 * ++made_;
    std::mt19937 random(static_cast<unsigned>(seed));
    parameters.push_back({arrays_.zeros(rows, columns), arrays_.zeros(rows, columns), of_expert, seed});
    tensor& w = parameters.back().weight;
    // By hand: what the standard's distributions give differs between libraries.
    for (std::size_t i = 0; i < w.size(); ++i)
      w.data()[i] =
          (static_cast<float>(random() >> 8) / 8388608.0F - 1) * std::sqrt(3.0F / static_cast<float>(rows));
    return parameters.back();
  }
  mixer make_mixer() {
    parameter& own = make(of_.hidden, of_.hidden);
    parameter& before = make(of_.hidden, of_.hidden);
    return {&own, &before};
  }
  std::vector<parameter*> make_experts(int rows, int columns) {
    int const local = of_.experts / ranks_, base = 1000 * ++made_;
    std::vector<parameter*> all;
    for (int e = 0; e < local; ++e) all.push_back(&make(rows, columns, base + 1 + rank_ * local + e));
    return all;
  }
  template <class Block, class... Phases> void add(Phases... phases) {
    layers.add(st::layer<Block>(std::move(phases)...));
  }

  shape of_;
  st::array::tensors& arrays_;
  int rank_, ranks_, made_ = 0;
};

} // namespace own_tensors
