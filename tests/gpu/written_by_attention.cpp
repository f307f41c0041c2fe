/// As written_by_products.cpp, for attention by cuDNN.
#include "told_to_initcheck.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/cuda/CUDAStream.h>

#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_ops.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <tuple>

#include <dlfcn.h>

namespace {

void is_written(at::Tensor const& made) {
  if (made.defined() && made.is_cuda())
    test::is_written(made.const_data_ptr(), made.nbytes(), c10::cuda::getCurrentCUDAStream());
}

/// The function of torch that `ours` stands before.
template <class Function> Function* behind(Function* ours) {
  Dl_info name{};
  void* found = nullptr;
  if (dladdr(reinterpret_cast<void*>(ours), &name) != 0 && name.dli_sname)
    found = dlsym(RTLD_NEXT, name.dli_sname);
  if (found) return reinterpret_cast<Function*>(found);
  std::fprintf(stderr, "written_by_attention: load it before a program that has torch\n");
  std::abort();
}

} // namespace

// In at::_ops the name std is an operation's.
namespace at::_ops {

using forward = _scaled_dot_product_cudnn_attention;
using backward = _scaled_dot_product_cudnn_attention_backward;
using made_forward =
    ::std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

made_forward forward::call(Tensor const& q, Tensor const& k, Tensor const& v,
                           ::std::optional<Tensor> const& bias, bool with_sums, double dropout, bool causal,
                           bool with_mask, ::std::optional<double> scale) {
  static auto* const real = behind(&forward::call);
  auto made = real(q, k, v, bias, with_sums, dropout, causal, with_mask, scale);
  is_written(::std::get<0>(made));
  is_written(::std::get<1>(made));
  return made;
}

::std::tuple<Tensor, Tensor, Tensor>
backward::call(Tensor const& dy, Tensor const& q, Tensor const& k, Tensor const& v, Tensor const& output,
               Tensor const& sums, Tensor const& seed, Tensor const& offset, Tensor const& bias,
               Tensor const& starts_q, Tensor const& starts_k, c10::SymInt longest_q, c10::SymInt longest_k,
               double dropout, bool causal, ::std::optional<double> scale) {
  static auto* const real = behind(&backward::call);
  auto made = real(dy, q, k, v, output, sums, seed, offset, bias, starts_q, starts_k, longest_q, longest_k,
                   dropout, causal, scale);
  is_written(::std::get<0>(made));
  is_written(::std::get<1>(made));
  is_written(::std::get<2>(made));
  return made;
}

} // namespace at::_ops
