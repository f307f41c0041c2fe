#pragma once

#include "../hash.hpp"
#include "config.hpp"

#include <stretto/adapters/torch/parameter.hpp>
#include <stretto/adapters/torch/threads.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace train_moe {

/// A parameter with what optimizer and reports need to know. Experts are sharded: expert `first_expert + i` is slice i.
struct model_parameter {
  stretto::torch::parameter* weight;
  int first_expert = -1;
  int layer = 0; ///< in the whole model, counted with embedding and head

  bool sharded() const { return first_expert >= 0; }
};

inline at::ScalarType torch_type(number_type type) {
  switch (type) {
  case number_type::bf16:
    return at::kBFloat16;
  case number_type::f64:
    return at::kDouble;
  case number_type::f32:
    break;
  }
  return at::kFloat;
}
inline at::Device torch_device(device_kind device) {
  return device == device_kind::cuda ? at::Device(at::kCUDA) : at::Device(at::kCPU);
}
/// What sums, norms and the router's softmax are computed in.
inline at::ScalarType wide_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Makes initial values. Each depends on the seed and its own global name alone, so that every split of the experts
/// over ranks starts from the same model.
class initializer {
public:
  initializer(model_config const& config, std::string prefix) : config_(config), prefix_(std::move(prefix)) {}

  model_config const& config() const { return config_; }

  stretto::torch::parameter ones(char const* name, std::int64_t size) const {
    return {
        prefix_ + name,
        at::ones({size}, at::TensorOptions(torch_device(config_.device)).dtype(torch_type(config_.type)))};
  }
  /// Normal with the given deviation.
  stretto::torch::parameter normal(char const* name, at::IntArrayRef sizes, double deviation) const {
    return {prefix_ + name, draw(prefix_ + name, sizes, deviation).to(torch_device(config_.device))};
  }
  /// [count, in, out] of the experts from `first` on.
  stretto::torch::parameter experts(char const* name, int first, int count, at::IntArrayRef sizes,
                                    double deviation) const {
    std::vector<at::Tensor> each(static_cast<std::size_t>(count));
    auto const draw_each = [&](std::size_t from, std::size_t step) {
      for (std::size_t i = from; i < each.size(); i += step)
        each[i] = draw(expert_name(prefix_ + name, first + static_cast<int>(i)), sizes, deviation);
    };
    if (c10::multiply_integers(sizes) < worth_a_thread) {
      draw_each(0, 1);
    } else {
      auto const threads = (std::max)(std::size_t{1}, std::size_t{std::thread::hardware_concurrency()});
      std::vector<std::future<void>> drawn;
      for (std::size_t t = 0; t < threads && t < each.size(); ++t)
        drawn.push_back(std::async(std::launch::async, [&draw_each, t, threads] {
          stretto::torch::use_one_thread();
          draw_each(t, threads);
        }));
      for (auto& one : drawn) one.get();
    }
    return {prefix_ + name, at::stack(each).to(torch_device(config_.device))};
  }

  /// `layers.2.experts.up` and 5: `layers.2.experts.up[5]`.
  static std::string expert_name(std::string const& name, int expert) {
    return name + "[" + std::to_string(expert) + "]";
  }

private:
  static constexpr std::int64_t worth_a_thread = 1 << 20; ///< numbers, of which one takes tens of nanoseconds

  /// In host memory.
  at::Tensor draw(std::string const& name, at::IntArrayRef sizes, double deviation) const {
    auto generator = at::detail::createCPUGenerator(hash_text(config_.seed, name));
    auto const wide = at::empty(sizes, at::kDouble).normal_(0.0, deviation, generator);
    return wide.to(torch_type(config_.type));
  }

  model_config const& config_;
  std::string prefix_;
};

} // namespace train_moe
