#include "use_kernels.hpp"

#include "../model/fused.hpp"
#include "kernels.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>

namespace train_moe {
namespace {

cudaStream_t current() { return c10::cuda::getCurrentCUDAStream().stream(); }
kernels::number type_of(at::Tensor const& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::number::bf16 : kernels::number::f32;
}

/// Row by row, at an address that kernels take.
at::Tensor ready(at::Tensor const& x) {
  auto const dense = x.contiguous();
  return reinterpret_cast<std::uintptr_t>(dense.const_data_ptr()) % 16 == 0 ? dense : dense.clone();
}

/// Where the gradient of `x` goes: into the memory of `x` itself, as `ready` found it, unless that is a leaf. `x` is then gone,
/// and the engine refuses a later backward that needs it.
at::Tensor room_for_gradient(at::Tensor const& x, at::Tensor const& as_found) {
  if (x.is_leaf()) return at::empty(x.sizes(), x.options());
  if (as_found.is_same(x)) x.unsafeGetTensorImpl()->bump_version();
  return as_found.detach();
}

/// Of [batch, sequence, heads, head], from where they are if every token's heads lie in one place.
at::Tensor ready_heads(at::Tensor const& x) {
  auto const of_token = x.size(2) * x.size(3);
  bool const in_place = x.stride(3) == 1 && x.stride(2) == x.size(3) && x.stride(1) >= of_token &&
                        x.stride(0) == x.size(1) * x.stride(1) && x.stride(1) * x.element_size() % 16 == 0 &&
                        reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0;
  return in_place ? x : x.clone(at::MemoryFormat::Contiguous);
}

std::int64_t const* numbers_of(at::Tensor const& place) {
  return place.defined() ? place.const_data_ptr<std::int64_t>() : nullptr;
}

class gpu_kernels : public fused_operations {
public:
  bool serves(at::ScalarType type, std::int64_t width) const override {
    return (type == at::kBFloat16 && width % numbers_at_once(kernels::number::bf16) == 0) ||
           (type == at::kFloat && width % numbers_at_once(kernels::number::f32) == 0);
  }

  at::Tensor swiglu(at::Tensor const& both) const override {
    auto const from = ready(both);
    auto y = at::empty({both.size(0), both.size(1) / 2}, both.options());
    kernels::swiglu(current(), type_of(y), from.const_data_ptr(), y.mutable_data_ptr(), y.size(0),
                    width_of(y));
    return y;
  }
  swiglu_results swiglu_backward(at::Tensor const& both, at::Tensor const& dy, bool along) const override {
    auto const from = ready(both), of = ready(dy);
    auto const d_both = room_for_gradient(both, from);
    auto const sums = along ? at::empty({of.size(0), 1}, of.options().dtype(at::kFloat)) : at::Tensor();
    kernels::swiglu_backward(current(), type_of(d_both), from.const_data_ptr(), of.mutable_data_ptr(),
                             d_both.mutable_data_ptr(), along ? sums.mutable_data_ptr<float>() : nullptr,
                             of.size(0), width_of(of));
    return {d_both, of, sums};
  }
  at::Tensor turn(at::Tensor const& q, at::Tensor const& k, at::Tensor const& v, at::Tensor const& cosine,
                  at::Tensor const& sine, double direction) const override {
    auto const from_q = ready_heads(q), from_k = ready_heads(k), from_v = ready_heads(v);
    auto made = at::empty({q.size(0), q.size(1), 3, q.size(2), q.size(3)}, q.options());
    auto const heads = [](at::Tensor const& x) {
      return kernels::heads_of_tokens{x.const_data_ptr(), x.stride(1)};
    };
    kernels::turn(current(), type_of(q), heads(from_q), heads(from_k), heads(from_v), cosine.const_data_ptr(),
                  sine.const_data_ptr(), static_cast<float>(direction), made.mutable_data_ptr(),
                  {q.size(0) * q.size(1), static_cast<int>(q.size(1)), static_cast<int>(q.size(2)),
                   static_cast<int>(q.size(3))});
    return made;
  }

  at::Tensor weigh(at::Tensor const& x, at::Tensor const& rows, at::Tensor const& weights,
                   at::Tensor const& place) const override {
    auto const added_to = ready(x), from = ready(rows), by = ready(weights);
    auto y = at::empty(x.sizes(), x.options());
    kernels::weigh_rows(current(), type_of(y), {numbers_of(place), x.size(0), choices_of(by), width_of(y)},
                        from.const_data_ptr(), by.const_data_ptr<float>(), added_to.const_data_ptr(),
                        y.mutable_data_ptr());
    return y;
  }
  at::Tensor weigh_backward(at::Tensor const& dy, at::Tensor const& weights,
                            at::Tensor const& place) const override {
    auto const of = ready(dy), by = ready(weights);
    auto d_rows = at::empty({by.numel(), of.size(1)}, of.options());
    kernels::weigh_rows_gradient(current(), type_of(of),
                                 {numbers_of(place), by.size(0), choices_of(by), width_of(of)},
                                 by.const_data_ptr<float>(), of.const_data_ptr(), d_rows.mutable_data_ptr());
    return d_rows;
  }
  at::Tensor sum(at::Tensor const& rows, at::Tensor const& place, std::int64_t choices) const override {
    auto const from = ready(rows);
    auto y = at::empty({place.numel() / choices, rows.size(1)}, rows.options());
    kernels::sum_rows(current(), type_of(y),
                      {numbers_of(place), y.size(0), static_cast<int>(choices), width_of(y)},
                      from.const_data_ptr(), y.mutable_data_ptr());
    return y;
  }
  grouped_choices group(at::Tensor const& ids, int experts) const override {
    auto const from = ids.contiguous();
    auto const numbers = [&](std::int64_t count) { return at::empty({count}, ids.options()); };
    grouped_choices made{numbers(ids.numel()), numbers(ids.numel()), numbers(experts)};
    kernels::order_by_expert(current(), from.const_data_ptr<std::int64_t>(), ids.numel(), experts,
                             made.order.mutable_data_ptr<std::int64_t>(),
                             made.inverse.mutable_data_ptr<std::int64_t>(),
                             made.rows.mutable_data_ptr<std::int64_t>());
    return made;
  }

private:
  static int width_of(at::Tensor const& rows) { return static_cast<int>(rows.size(1)); }
  static int choices_of(at::Tensor const& weights) { return static_cast<int>(weights.size(1)); }
};

} // namespace

void use_kernels() {
  static gpu_kernels const all;
  gpu_operations() = &all;
}

} // namespace train_moe
