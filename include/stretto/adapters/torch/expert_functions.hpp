#pragma once

#include <stretto/adapter.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

template <class Communicator>
concept torch_communicator =
    expert_communicator<Communicator> && std::same_as<typename Communicator::tensor, at::Tensor>;

namespace detail {

template <class Pointee> std::int64_t as_number(Pointee& object) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&object));
}
template <class Pointee> Pointee& from_number(c10::IValue const& number) {
  return *reinterpret_cast<Pointee*>(static_cast<std::intptr_t>(number.toInt()));
}

template <torch_communicator Communicator>
struct dispatch_function : ::torch::autograd::Function<dispatch_function<Communicator>> {
  static at::Tensor forward(::torch::autograd::AutogradContext* saved, at::Tensor const& rows,
                            Communicator* comm, typename Communicator::routing const* where,
                            typename Communicator::handle* made) {
    saved->saved_data["comm"] = as_number(*comm);
    saved->saved_data["handle"] = as_number(*made);
    return comm->dispatch(rows, *where, *made);
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* saved,
                                                   ::torch::autograd::variable_list gradients) {
    auto& comm = from_number<Communicator>(saved->saved_data["comm"]);
    auto& made = from_number<typename Communicator::handle>(saved->saved_data["handle"]);
    return {comm.dispatch_backward(gradients[0], made), {}, {}, {}};
  }
};

template <torch_communicator Communicator>
struct dispatch_beside_function : ::torch::autograd::Function<dispatch_beside_function<Communicator>> {
  static ::torch::autograd::variable_list forward(::torch::autograd::AutogradContext* saved,
                                                  at::Tensor const& rows, at::Tensor const& beside,
                                                  Communicator* comm,
                                                  typename Communicator::routing const* where,
                                                  typename Communicator::handle* made) {
    saved->saved_data["comm"] = as_number(*comm);
    saved->saved_data["handle"] = as_number(*made);
    auto const arrived = comm->dispatch(rows, *where, *made);
    auto sizes = beside.sizes().vec();
    sizes[0] = arrived.size(0);
    // One number at every place.
    return {arrived, at::empty_strided(sizes, std::vector<std::int64_t>(sizes.size()), beside.options())};
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* saved,
                                                   ::torch::autograd::variable_list gradients) {
    auto& comm = from_number<Communicator>(saved->saved_data["comm"]);
    auto& made = from_number<typename Communicator::handle>(saved->saved_data["handle"]);
    auto const of_rows = comm.dispatch_backward(gradients[0], made);
    return {of_rows, comm.dispatch_backward(gradients[1], made), {}, {}, {}};
  }
};

template <torch_communicator Communicator>
struct combine_function : ::torch::autograd::Function<combine_function<Communicator>> {
  static at::Tensor forward(::torch::autograd::AutogradContext* saved, at::Tensor const& rows,
                            Communicator* comm, typename Communicator::handle* made) {
    saved->saved_data["comm"] = as_number(*comm);
    saved->saved_data["handle"] = as_number(*made);
    return comm->combine(rows, *made);
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* saved,
                                                   ::torch::autograd::variable_list gradients) {
    auto& comm = from_number<Communicator>(saved->saved_data["comm"]);
    auto& made = from_number<typename Communicator::handle>(saved->saved_data["handle"]);
    return {comm.combine_backward(gradients[0], made), {}, {}};
  }
};

} // namespace detail

/// `comm.dispatch`, differentiable: its transpose runs in backward, a collective call like the forward. Communicator
/// and handle must stay where they are until then; a handle in a phase's metadata does.
template <torch_communicator Communicator>
at::Tensor dispatch_rows(Communicator& comm, at::Tensor const& rows,
                         typename Communicator::routing const& where, typename Communicator::handle& made) {
  return detail::dispatch_function<Communicator>::apply(rows, &comm, &where, &made);
}

/// Also what lies beside `rows`, `beside` [n, ...], for whoever has its gradient where the rows arrive and needs no value of it: in
/// forward nothing of it is exchanged, and what stands for it there, the second result, has the sizes of what would have
/// come, no content and the memory of one number. Its gradient comes back behind that of the rows.
template <torch_communicator Communicator>
std::pair<at::Tensor, at::Tensor>
dispatch_rows(Communicator& comm, at::Tensor const& rows, at::Tensor const& beside,
              typename Communicator::routing const& where, typename Communicator::handle& made) {
  auto const both = detail::dispatch_beside_function<Communicator>::apply(rows, beside, &comm, &where, &made);
  return {both[0], both[1]};
}

/// `comm.combine`, differentiable; see `dispatch_rows`.
template <torch_communicator Communicator>
at::Tensor combine_rows(Communicator& comm, at::Tensor const& rows, typename Communicator::handle& made) {
  return detail::combine_function<Communicator>::apply(rows, &comm, &made);
}

} // namespace torch
} // namespace v0
} // namespace stretto
