#pragma once

#include <stretto/adapters/array.hpp>
#include <stretto/block.hpp>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

/// The phases of a small language model that bring their own backward. Every phase says what it saves, so that all other
/// storage goes back after its last reader. Those of the experts are in experts.hpp.
namespace own_tensors {

namespace st = stretto;
using st::array::tensor;

struct hidden : st::value {};
struct middle : st::value {};
struct loss : st::objective {};

struct parameter {
  tensor weight, gradient;
  bool of_expert = false; ///< lives on one rank; all others are the same on every rank
  int number = 0; ///< says which parameter of the model it is, on whichever rank
};

/// What the microbatches of one step read, and their losses.
struct batches {
  std::vector<std::vector<int>> words, next_words;
  std::vector<float> losses;
  float gradient_scale = 1;
};

/// The words of a microbatch as rows.
class Embed : public st::Phase<st::attn> {
public:
  using writes = st::values<hidden>;
  using saves = st::values<>;

  Embed(parameter& table, batches& data) : table_(&table), data_(&data) {}

  void forward(auto& io) {
    auto const& words = words_of(io.microbatch());
    tensor rows(table_->weight.account(), static_cast<int>(words.size()), table_->weight.columns());
    for (int i = 0; i < rows.rows(); ++i)
      for (int j = 0; j < rows.columns(); ++j)
        rows[i][j] = table_->weight[words[static_cast<std::size_t>(i)]][j];
    io[hidden{}] = std::move(rows);
  }
  void backward_input(auto&) {}
  void backward_weight(auto& io) {
    auto const& words = words_of(io.microbatch());
    tensor const& g = io.grad(hidden{});
    for (int i = 0; i < g.rows(); ++i)
      for (int j = 0; j < g.columns(); ++j)
        table_->gradient[words[static_cast<std::size_t>(i)]][j] += g[i][j];
  }

private:
  std::vector<int> const& words_of(int microbatch) const {
    return data_->words[static_cast<std::size_t>(microbatch)];
  }
  parameter* table_;
  batches* data_;
};

/// `x + tanh(x own + previous(x) before)`: every word sees the one before it.
struct mixer {
  parameter *own, *before;

  /// Returns the tanh, which backward needs.
  tensor forward(tensor const& x) const {
    tensor sum = product(x, own->weight);
    add_product(sum, shift_rows(x), before->weight);
    return tanh(sum);
  }
  /// The gradient of `x`; `inner` is that of the sum under the tanh.
  tensor backward_input(tensor const& gradient, tensor const& inner) const {
    tensor made = add(gradient, product_with_transposed(inner, own->weight));
    add_to(made, shift_rows(product_with_transposed(inner, before->weight), true));
    return made;
  }
  void backward_weight(tensor const& x, tensor const& inner) const {
    add_product_of_transposed(own->gradient, x, inner);
    add_product_of_transposed(before->gradient, shift_rows(x), inner);
  }
};

/// The dense layer: the mixer, then `x + tanh(x up) down`.
class Mix : public st::Phase<st::attn> {
public:
  using reads = st::values<hidden>;
  using writes = st::values<middle>;
  using saves = st::values<hidden>;
  struct saved {
    tensor mixed, inner;
    std::size_t bytes() const { return mixed.bytes() + inner.bytes(); }
  };

  explicit Mix(mixer mix) : mix_(mix) {}

  void forward(auto& io) {
    io.saved().mixed = mix_.forward(io[hidden{}]);
    io[middle{}] = add(io[hidden{}], io.saved().mixed);
  }
  void backward_input(auto& io) {
    io.saved().inner = tanh_backward(io.grad(middle{}), io.saved().mixed);
    io.grad(hidden{}) = mix_.backward_input(io.grad(middle{}), io.saved().inner);
  }
  void backward_weight(auto& io) { mix_.backward_weight(io[hidden{}], io.saved().inner); }

private:
  mixer mix_;
};

class FeedForward : public st::Phase<st::mlp> {
public:
  using reads = st::values<middle>;
  using writes = st::values<hidden>;
  using saves = st::values<middle>;
  struct saved {
    tensor activation, inner;
    std::size_t bytes() const { return activation.bytes() + inner.bytes(); }
  };

  FeedForward(parameter& up, parameter& down) : up_(&up), down_(&down) {}

  void forward(auto& io) {
    io.saved().activation = tanh(product(io[middle{}], up_->weight));
    io[hidden{}] = add(io[middle{}], product(io.saved().activation, down_->weight));
  }
  void backward_input(auto& io) {
    tensor const& g = io.grad(hidden{});
    io.saved().inner = tanh_backward(product_with_transposed(g, down_->weight), io.saved().activation);
    io.grad(middle{}) = add(g, product_with_transposed(io.saved().inner, up_->weight));
  }
  void backward_weight(auto& io) {
    add_product_of_transposed(up_->gradient, io[middle{}], io.saved().inner);
    add_product_of_transposed(down_->gradient, io.saved().activation, io.grad(hidden{}));
  }

private:
  parameter *up_, *down_;
};

/// The words that come next, and the loss.
class Head : public st::Phase<st::mlp> {
public:
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
  using saves = st::values<hidden>;
  struct saved {
    tensor logits_gradient;
    std::size_t bytes() const { return logits_gradient.bytes(); }
  };

  Head(parameter& out, batches& data) : out_(&out), data_(&data) {}

  void forward(auto& io) {
    std::size_t const m = static_cast<std::size_t>(io.microbatch());
    tensor p = softmax(product(io[hidden{}], out_->weight));
    float sum = 0;
    float const share = data_->gradient_scale / static_cast<float>(p.rows());
    for (int i = 0; i < p.rows(); ++i) {
      int const target = data_->next_words[m][static_cast<std::size_t>(i)];
      sum -= std::log(p[i][target]);
      p[i][target] -= 1;
      for (int j = 0; j < p.columns(); ++j) p[i][j] *= share;
    }
    data_->losses[m] = sum / static_cast<float>(p.rows());
    io[loss{}] = tensor(p.account(), 1, 1, {data_->losses[m]});
    io.saved().logits_gradient = std::move(p);
  }
  void backward_input(auto& io) {
    io.grad(hidden{}) = product_with_transposed(io.saved().logits_gradient, out_->weight);
  }
  void backward_weight(auto& io) {
    add_product_of_transposed(out_->gradient, io[hidden{}], io.saved().logits_gradient);
  }

private:
  parameter* out_;
  batches* data_;
};

} // namespace own_tensors
