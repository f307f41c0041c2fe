#pragma once

#include "dense_layer.hpp"
#include "ends.hpp"
#include "moe_layer.hpp"
#include "stage_part.hpp"

#include <stretto/layers.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace train_moe {

/// The block types of the language model, over any communicator.
template <class Comm>
struct MoeModel : stretto::Blocks<EmbeddingLayer, DenseLayer, MoeLayer<Comm>, HeadLayer> {};

/// The layers of one rank, chunk by chunk, and the data of its step in progress. Stays where it is: phases point into it.
template <class Comm> class rank_model {
public:
  using types = MoeModel<Comm>;

  /// The whole model on one pipeline rank.
  rank_model(model_config const& config, Comm& comm)
      : rank_model(config, comm, {{0, config.layers, true, true}}) {}

  /// The chunks of one pipeline rank, one for each of `parts`.
  rank_model(model_config const& config, Comm& comm, std::vector<stage_part> const& parts,
             expert_linears const& linears = expert_linears_of_torch)
      : config_(config), linears_(linears) {
    std::vector<int> places;
    for (auto const& part : parts) {
      if (&part != &parts.front()) layers_.next_chunk();
      add_chunk(comm, part, places);
    }
    layers_.for_each([this, &places](auto& layer, int number) {
      auto const place = places[static_cast<std::size_t>(number)];
      layer.for_each_phase([this, place](auto& phase) {
        if constexpr (requires { phase.for_each_parameter([](model_parameter) {}); })
          phase.for_each_parameter([this, place](model_parameter parameter) {
            parameter.layer = place;
            parameters_.push_back(parameter);
          });
      });
    });
  }
  rank_model(rank_model const&) = delete;
  rank_model& operator=(rank_model const&) = delete;

  model_config const& config() const { return config_; }
  stretto::layer_list<types>& layers() { return layers_; }
  step_data& step() { return step_; }
  /// Every parameter of this rank, in the order of the layers.
  std::vector<model_parameter> const& parameters() const { return parameters_; }

private:
  /// `places` gets the number of each layer in the whole model, the embedding first.
  void add_chunk(Comm& comm, stage_part const& part, std::vector<int>& places) {
    auto const residual_deviation = 1.0 / std::sqrt(2.0 * config_.hidden * config_.layers);
    auto const local = config_.experts / comm.ranks();
    if (part.embeds) {
      layers_.add(stretto::layer<EmbeddingLayer>{Embedding{{config_, "embedding."}, step_}});
      places.push_back(0);
    }
    for (int i = part.first; i < part.end; ++i) {
      initializer const init{config_, "layers." + std::to_string(i) + "."};
      if (i < config_.dense)
        layers_.add(stretto::layer<DenseLayer>{DenseAttention{init, residual_deviation},
                                               DenseFeedForward{init, residual_deviation}});
      else
        layers_.add(stretto::layer<MoeLayer<Comm>>{
            AttentionAndRouter{init, residual_deviation, step_, i}, Dispatch<Comm>{comm},
            Experts<Comm>{init, residual_deviation, comm.rank() * local, local, linears_},
            Combine<Comm>{comm}});
      places.push_back(i + 1);
    }
    if (part.has_head) {
      layers_.add(stretto::layer<HeadLayer>{Head{{config_, "head."}, step_}});
      places.push_back(config_.layers + 1);
    }
  }

  model_config config_;
  expert_linears linears_;
  step_data step_;
  stretto::layer_list<types> layers_;
  std::vector<model_parameter> parameters_;
};

} // namespace train_moe
