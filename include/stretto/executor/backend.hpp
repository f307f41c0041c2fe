#pragma once

#include <stretto/adapter.hpp>

#include <type_traits>

namespace stretto {
inline namespace v0 {
namespace detail {

// One sentence for each member that an adapter may miss: what compilers say of a concept is long, or leaves the member out.

template <class Adapter> constexpr bool can_be_tensors() {
  constexpr bool has_tensor = has_tensor_type<Adapter>; // Of a concept itself g++ tells the whole story.
  static_assert(
      has_tensor,
      "stretto: a tensor adapter needs a type 'tensor', which can be default-constructed (empty) and moved");
  if constexpr (has_tensor) {
    using tensor = typename Adapter::tensor;
    static_assert(
        requires { typename Adapter::context; },
        "stretto: a tensor adapter needs a type 'context': what it keeps "
        "for a node between its forward and its last backward");
    static_assert(
        requires(Adapter & a, tensor const& t) {
          { a.detach(t) } -> std::same_as<tensor>;
        },
        "stretto: a tensor adapter needs a member 'tensor detach(tensor const&)': the same data as a leaf of "
        "its own");
    static_assert(
        requires(Adapter & a, tensor const& t, tensor& sum) { a.add(sum, t); },
        "stretto: a tensor adapter needs a member 'add(tensor& sum, tensor const& term)': the sum, in new "
        "storage");
    static_assert(
        requires(Adapter & a, tensor & t) { a.release(t); },
        "stretto: a tensor adapter needs a member 'release(tensor&)': gives the storage back");
    // A name that nobody could call would be a check that nobody makes.
    constexpr bool takes_pointer =
        requires(Adapter & a, text name, phase_value<tensor> const* values, void (*run)()) {
      a.check_forward(name, values, 1, run);
    };
    static_assert(!takes_pointer || checks_phases<Adapter>,
                  "stretto: 'check_forward(phase, values, count, run)' of a tensor adapter must take every "
                  "callable 'run', which it gets as a temporary and which converts to no pointer");
  }
  return true;
}

/// Who brings one of the members that differentiate brings all.
template <class Adapter> struct autograd_members {
  using tensor = typename Adapter::tensor;
  using context = typename Adapter::context;
  using request = gradient_request<tensor>;
  static constexpr bool scope = requires(Adapter & a, context& c) { a.forward_scope(c); };
  static constexpr bool forget = requires(Adapter & a, tensor& t) { a.forget_graph(t); };
  static constexpr bool whole = requires(Adapter & a, context& c, request const& r) { a.backward(c, r); };
  static constexpr bool input = requires(Adapter & a, context& c, request const& r) {
    a.backward_input(c, r);
  };
  static constexpr bool weight = requires(Adapter & a, context& c) { a.backward_weight(c); };
  static constexpr bool none = !scope && !forget && !whole && !input && !weight;
};
template <class Adapter> constexpr bool can_differentiate() {
  if constexpr (tensor_adapter<Adapter> && !autograd_tensor_adapter<Adapter>) {
    using has = autograd_members<Adapter>;
    static_assert(has::none || has::scope,
                  "stretto: a tensor adapter that differentiates needs a member 'forward_scope(context&)'");
    static_assert(has::none || has::forget,
                  "stretto: a tensor adapter that differentiates needs a member 'forget_graph(tensor&)'");
    static_assert(has::none || has::whole,
                  "stretto: a tensor adapter that differentiates needs a member 'backward(context&, "
                  "gradient_request<tensor> const&, phases&...)'");
    static_assert(has::none || has::input,
                  "stretto: a tensor adapter that differentiates needs a member 'backward_input(context&, "
                  "gradient_request<tensor> const&, phases&...)'");
    static_assert(has::none || has::weight, "stretto: a tensor adapter that differentiates needs a member "
                                            "'backward_weight(context&, phases&...)'");
  }
  return true;
}

/// Of a backend that is made of one adapter.
struct missing_lanes {};

/// Behind what is no tensor adapter nothing is asked: lanes and tensors given in each other's place are one mistake.
template <class Adapter, bool BehindTensors> constexpr bool can_be_lanes() {
  constexpr bool given = !std::same_as<Adapter, missing_lanes>;
  static_assert(
      given, "stretto: a backend is made of tensors and lanes, and of peers where the pipeline has several "
             "ranks; write backend{tensors, lanes}");
  static_assert(
      !given || !BehindTensors || requires { requires std::default_initializable<typename Adapter::event>; },
      "stretto: a lane adapter needs a type 'event', which can be default-constructed");
  if constexpr (requires { typename Adapter::event; }) {
    using event = typename Adapter::event;
    static_assert(
        requires(Adapter & a, lane const on, op_label const& op) { a.run(on, op, some_task{}); },
        "stretto: a lane adapter needs a member 'run(lane, op_label const&, task)' for every callable "
        "'task', which it gets as a temporary and which converts to no pointer");
    static_assert(
        requires(Adapter & a, lane const on, event& e) { a.record(on, e); },
        "stretto: a lane adapter needs a member 'record(lane, event&)'");
    static_assert(
        requires(Adapter & a, lane const on, event& e) { a.wait(on, e); },
        "stretto: a lane adapter needs a member 'wait(lane, event&)'");
    static_assert(
        requires(Adapter & a) { a.drain(); },
        "stretto: a lane adapter needs a member 'drain()': returns when "
        "every lane is idle, throws if an op failed");
  }
  return true;
}

template <class Adapter, class Tensor> constexpr bool can_be_peers() {
  constexpr bool has_tensor = requires { requires std::same_as<typename Adapter::tensor, Tensor>; };
  static_assert(has_tensor,
                "stretto: a peer adapter needs a type 'tensor', that of the tensor adapter beside it");
  if constexpr (has_tensor) {
    static_assert(
        requires(Adapter & a, message const& m, Tensor const& t) { a.send(m, t); },
        "stretto: a peer adapter needs a member 'send(message const&, tensor const&)'");
    static_assert(
        requires(Adapter & a, message const& m) {
          { a.receive(m) } -> std::same_as<Tensor>;
        },
        "stretto: a peer adapter needs a member 'tensor receive(message const&)'");
  }
  return true;
}

/// Of forwarding references, an rvalue is a type without `&`.
template <class... Adapters>
inline constexpr bool has_temporary = !(std::is_lvalue_reference_v<Adapters> && ...);

/// Adapters of which a backend has nothing to say.
template <class Tensors, class Lanes, class Peers>
concept complete_backend = tensor_adapter<Tensors> && lane_adapter<Lanes> && peer_adapter<Peers> &&
    std::same_as<typename Peers::tensor, typename Tensors::tensor> &&
    (autograd_tensor_adapter<Tensors> || autograd_members<Tensors>::none);

template <class Adapter> struct tensor_of {
  struct type {};
};
template <has_tensor_type Adapter> struct tensor_of<Adapter> { using type = typename Adapter::tensor; };

} // namespace detail

/// The adapters of one rank, joined and referred to. Communicators belong to the phases that call them.
template <class Tensors, class Lanes, class Peers = no_peers<typename detail::tensor_of<Tensors>::type>>
struct backend {
  static_assert(detail::can_be_tensors<Tensors>() && detail::can_differentiate<Tensors>() &&
                detail::can_be_lanes<Lanes, has_tensor_type<Tensors>>() &&
                detail::can_be_peers<Peers, typename detail::tensor_of<Tensors>::type>());
  Tensors& tensors;
  Lanes& lanes;
  Peers* peers = nullptr;

  template <class One>
  requires std::same_as<Lanes, detail::missing_lanes>
  explicit backend(One&& one);
  backend(Tensors& t, Lanes& l) : tensors(t), lanes(l) {}
  backend(Tensors& t, Lanes& l, Peers& p) : tensors(t), lanes(l), peers(&p) {}
  template <class SomeTensors, class SomeLanes, class... SomePeers>
  requires detail::has_temporary<SomeTensors, SomeLanes, SomePeers...> backend(SomeTensors&& t, SomeLanes&& l,
                                                                               SomePeers&&...)
      : tensors(t), lanes(l) {
    static_assert(
        !detail::has_temporary<SomeTensors, SomeLanes, SomePeers...>,
        "stretto: a backend refers to its adapters; give it variables that live as long as the executor, no "
        "temporaries");
  }
};
template <class Tensors>
backend(Tensors&&) -> backend<std::remove_reference_t<Tensors>, detail::missing_lanes>;
template <class Tensors, class Lanes, class... Peers>
backend(Tensors&&, Lanes&&, Peers&&...)
    -> backend<std::remove_reference_t<Tensors>, std::remove_reference_t<Lanes>,
               std::remove_reference_t<Peers>...>;

} // namespace v0
} // namespace stretto
