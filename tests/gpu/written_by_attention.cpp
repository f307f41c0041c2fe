/// As written_by_products.cpp, for attention by cuDNN. compute-sanitizer loads it into a program of its own too, which has no torch: what needs a
/// symbol of torch at once, as the vtables of classes that are destroyed here, must not come up. So arguments and results pass as addresses, as
/// the Itanium C++ ABI passes what has a destructor, in functions that carry the names of torch's.
#include "told_to_initcheck.hpp"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_ops.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <tuple>
#include <type_traits>

#include <dlfcn.h>

namespace {

using at::Tensor, c10::SymInt;
using number = std::optional<double>;
using made_forward = std::tuple<Tensor, Tensor, Tensor, Tensor, SymInt, SymInt, Tensor, Tensor, Tensor>;
using made_backward = std::tuple<Tensor, Tensor, Tensor>;
static_assert(std::is_same_v<decltype(at::_ops::_scaled_dot_product_cudnn_attention::call),
                             made_forward(Tensor const&, Tensor const&, Tensor const&,
                                          std::optional<Tensor> const&, bool, double, bool, bool, number)>);
static_assert(
    std::is_same_v<decltype(at::_ops::_scaled_dot_product_cudnn_attention_backward::call),
                   made_backward(Tensor const&, Tensor const&, Tensor const&, Tensor const&, Tensor const&,
                                 Tensor const&, Tensor const&, Tensor const&, Tensor const&, Tensor const&,
                                 Tensor const&, SymInt, SymInt, double, bool, number)>);

template <std::size_t... Place> void are_written(auto const& made) {
  // Nothing is no tensor of CUDA either; to ask whether it is nothing takes a symbol of torch.
  auto const tell = [](Tensor const& each) {
    if (each.is_cuda())
      test::is_written(each.const_data_ptr(), each.nbytes(), c10::cuda::getCurrentCUDAStream());
  };
  (tell(std::get<Place>(made)), ...);
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

void* attention(made_forward*, void*, void*, void*, void*, bool, double, bool, bool, number) asm(
    "_ZN2at4_ops35_scaled_dot_product_cudnn_attention4callERKNS_6TensorES4_S4_RKSt8optionalIS2_EbdbbS5_IdE");
void* attention_backward(made_backward*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                         void*, void*, void*, double, bool,
                         number) asm("_ZN2at4_ops44_scaled_dot_product_cudnn_attention_backward4callERKNS_"
                                     "6TensorES4_S4_S4_S4_S4_S4_S4_S4_S4_S4_"
                                     "N3c106SymIntES6_dbSt8optionalIdE");

void* attention(made_forward* made, void* q, void* k, void* v, void* bias, bool with_sums, double dropout,
                bool causal, bool with_mask, number scale) {
  static auto* const real = behind(&attention);
  real(made, q, k, v, bias, with_sums, dropout, causal, with_mask, scale);
  are_written<0, 1>(*made);
  return made;
}

void* attention_backward(made_backward* made, void* dy, void* q, void* k, void* v, void* output, void* sums,
                         void* seed, void* offset, void* bias, void* starts_q, void* starts_k,
                         void* longest_q, void* longest_k, double dropout, bool causal, number scale) {
  static auto* const real = behind(&attention_backward);
  real(made, dy, q, k, v, output, sums, seed, offset, bias, starts_q, starts_k, longest_q, longest_k, dropout,
       causal, scale);
  are_written<0, 1, 2>(*made);
  return made;
}
