#pragma once

#include "dense_layer.hpp"
#include "ends.hpp"
#include "moe_layer.hpp"

#include <stretto/layers.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace train_moe {

/// The block types of the language model, over any communicator.
template <class Comm> struct MoeModel : stretto::Blocks<EmbeddingLayer, DenseLayer, MoeLayer<Comm>, HeadLayer> {};

/// The layers of one rank and the data of its step in progress. Stays where it is: phases point into it.
template <class Comm> class rank_model {
public:
  using types = MoeModel<Comm>;

  rank_model(model_config const& config, Comm& comm) : config_(config) {
    auto const residual_deviation = 1.0 / std::sqrt(2.0 * config_.hidden * config_.layers);
    auto const local = config_.experts / comm.ranks();
    layers_.add(stretto::layer<EmbeddingLayer>{Embedding{{config_, "embedding."}, step_}});
    for (int i = 0; i < config_.layers; ++i) {
      initializer const init{config_, "layers." + std::to_string(i) + "."};
      if (i < config_.dense)
        layers_.add(stretto::layer<DenseLayer>{DenseAttention{init, residual_deviation},
                                               DenseFeedForward{init, residual_deviation}});
      else
        layers_.add(stretto::layer<MoeLayer<Comm>>{AttentionAndRouter{init, residual_deviation, step_, i},
                                                   Dispatch<Comm>{comm},
                                                   Experts<Comm>{init, residual_deviation, comm.rank() * local, local},
                                                   Combine<Comm>{comm}});
    }
    layers_.add(stretto::layer<HeadLayer>{Head{{config_, "head."}, step_}});
    layers_.for_each([this](auto& layer, int) {
      layer.for_each_phase([this](auto& phase) {
        if constexpr (requires { phase.for_each_parameter([](model_parameter) {}); })
          phase.for_each_parameter([this](model_parameter parameter) { parameters_.push_back(parameter); });
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
  model_config config_;
  step_data step_;
  stretto::layer_list<types> layers_;
  std::vector<model_parameter> parameters_;
};

}  // namespace train_moe
