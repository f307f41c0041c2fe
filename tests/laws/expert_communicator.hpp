#pragma once

#include <stretto/adapter.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <random>
#include <utility>
#include <vector>

/// What every `expert_communicator` must do. Every rank of the group calls the same laws in the same order; each returns
/// whether this rank saw it kept. The user hands over a kit for one rank:
/// - `tensor make(int rows, std::vector<double> const& numbers)`: a tensor of that many rows;
/// - `std::vector<double> read(tensor const&)`;
/// - `static constexpr int columns`, and `int experts` of the whole group;
/// - `routing route(std::vector<int> const& ids)`: `copies` ids for each row that is dispatched, all different;
/// - `static constexpr int copies`: to how many experts a row goes. `combine` adds up what comes back;
/// - `double sum(double)`: over the ranks of the group, a collective call.
/// Numbers are small integers, so that every sum is exact in any floating-point type.
namespace laws {

namespace detail {

template <class Kit> class routed {
public:
  /// `count` rows on this rank, for experts drawn from `seed`, or all for the experts from `only` on.
  routed(Kit& kit, int rank, int count, unsigned seed, int only = -1)
      : random_(seed * 977 + static_cast<unsigned>(rank)), numbers(draw(count * Kit::columns)), rows(count) {
    for (int row = 0; row < rows; ++row) {
      int const first = only >= 0 ? only : static_cast<int>(random_() % static_cast<unsigned>(kit.experts));
      for (int c = 0; c < Kit::copies; ++c) ids.push_back((first + c) % kit.experts);
    }
  }
  std::vector<double> draw(int count) {
    std::vector<double> made;
    for (int i = 0; i < count; ++i) made.push_back(static_cast<double>(random_() % 9) - 4);
    return made;
  }

private:
  std::mt19937 random_;

public:
  std::vector<double> numbers;
  std::vector<int> ids;
  int rows;
};

inline double dot(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) sum += a[i] * b[i];
  return a.size() == b.size() ? sum : sum + 1e9;
}
template <class Kit> int rows_of(std::vector<double> const& numbers) {
  return static_cast<int>(numbers.size()) / Kit::columns;
}

/// Whether a round trip gives back what left, times the copies.
template <class Comm, class Kit> bool comes_back(Comm& comm, Kit& kit, routed<Kit> const& what) {
  typename Comm::handle handle;
  auto const there = comm.dispatch(kit.make(what.rows, what.numbers), kit.route(what.ids), handle);
  std::vector<double> back = kit.read(comm.combine(there, handle));
  for (double& x : back) x /= Kit::copies;
  return back == what.numbers;
}

} // namespace detail

/// `combine` after `dispatch` is the identity times the copies.
template <class Comm, class Kit> bool combine_undoes_dispatch(Comm& comm, Kit& kit) {
  bool kept = true;
  for (unsigned seed = 1; seed <= 5; ++seed)
    kept = detail::comes_back(comm, kit,
                              detail::routed<Kit>(kit, comm.rank(), 3 + static_cast<int>(seed), seed)) &&
           kept;
  return kept;
}

/// So it is where ranks have no rows, where all rows go to one expert, and where there are none at all.
template <class Comm, class Kit> bool ranks_without_rows_take_part(Comm& comm, Kit& kit) {
  int const me = comm.rank();
  bool kept = detail::comes_back(comm, kit, detail::routed<Kit>(kit, me, me == 0 ? 0 : 4, 1));
  kept = detail::comes_back(comm, kit, detail::routed<Kit>(kit, me, me == 0 ? 5 : 0, 2)) && kept;
  kept = detail::comes_back(comm, kit, detail::routed<Kit>(kit, me, 4, 3, 0)) && kept;
  return detail::comes_back(comm, kit, detail::routed<Kit>(kit, me, 0, 4)) && kept;
}

/// For all x and y, over all ranks: <dispatch x, y> = <x, dispatch_backward y>, and the same for combine.
template <class Comm, class Kit> bool backwards_are_transposes(Comm& comm, Kit& kit) {
  bool kept = true;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    detail::routed<Kit> what(kit, comm.rank(), seed == 2 && comm.rank() == 0 ? 0 : 5, seed + 20);
    typename Comm::handle handle;
    std::vector<double> const there =
        kit.read(comm.dispatch(kit.make(what.rows, what.numbers), kit.route(what.ids), handle));
    int const arrived = detail::rows_of<Kit>(there);
    std::vector<double> const y = what.draw(arrived * Kit::columns), r = what.draw(arrived * Kit::columns),
                              z = what.draw(what.rows * Kit::columns);
    std::vector<double> const x_gradient = kit.read(comm.dispatch_backward(kit.make(arrived, y), handle));
    std::vector<double> const combined = kit.read(comm.combine(kit.make(arrived, r), handle));
    std::vector<double> const r_gradient = kit.read(comm.combine_backward(kit.make(what.rows, z), handle));
    double const dispatch_differs = detail::dot(there, y) - detail::dot(what.numbers, x_gradient);
    double const combine_differs = detail::dot(combined, z) - detail::dot(r, r_gradient);
    kept = kit.sum(dispatch_differs) == 0 && kept;
    kept = kit.sum(combine_differs) == 0 && kept;
  }
  return kept;
}

/// A handle says where rows went as often as it is asked, also after it was moved.
template <class Comm, class Kit> bool a_handle_serves_more_than_once(Comm& comm, Kit& kit) {
  detail::routed<Kit> const what(kit, comm.rank(), 4, 31);
  typename Comm::handle made;
  auto const there = comm.dispatch(kit.make(what.rows, what.numbers), kit.route(what.ids), made);
  auto const first = kit.read(comm.combine(there, made));
  typename Comm::handle moved = std::move(made);
  auto const second = kit.read(comm.combine(there, moved));
  return first == second && detail::rows_of<Kit>(first) == what.rows;
}

/// A step that ends early leaves handles that nobody asks: the next dispatch works.
template <class Comm, class Kit> bool a_handle_may_go_unused(Comm& comm, Kit& kit) {
  for (unsigned round = 0; round < 3; ++round) {
    detail::routed<Kit> const what(kit, comm.rank(), 4, 41 + round);
    typename Comm::handle unused;
    comm.dispatch(kit.make(what.rows, what.numbers), kit.route(what.ids), unused);
  }
  return detail::comes_back(comm, kit, detail::routed<Kit>(kit, comm.rank(), 4, 44));
}

/// As many handles as the communicator allows live side by side (five, if any number does), each with its own rows. One
/// more is refused by an exception on every rank, and there is room again once one is gone.
template <class Comm, class Kit> bool handles_are_apart_up_to_the_limit(Comm& comm, Kit& kit) {
  constexpr int limit = Comm::in_flight, count = limit > 0 ? limit : 5;
  std::vector<detail::routed<Kit>> what;
  std::vector<std::optional<typename Comm::handle>> handles(static_cast<std::size_t>(count));
  std::vector<typename Comm::tensor> there;
  for (int i = 0; i < count; ++i) {
    what.emplace_back(kit, comm.rank(), 2 + i, 51 + static_cast<unsigned>(i));
    auto& handle = handles[static_cast<std::size_t>(i)].emplace();
    there.push_back(
        comm.dispatch(kit.make(what.back().rows, what.back().numbers), kit.route(what.back().ids), handle));
  }
  bool kept = true;
  detail::routed<Kit> const one_more(kit, comm.rank(), 3, 61);
  if (limit > 0) {
    bool refused = false;
    typename Comm::handle handle;
    try {
      comm.dispatch(kit.make(one_more.rows, one_more.numbers), kit.route(one_more.ids), handle);
    } catch (std::exception const&) {
      refused = true;
    }
    kept = refused;
  }
  for (std::size_t i = handles.size(); i-- > 0;) {
    std::vector<double> back = kit.read(comm.combine(there[i], *handles[i]));
    for (double& x : back) x /= Kit::copies;
    kept = back == what[i].numbers && kept;
    handles[i].reset();
  }
  return detail::comes_back(comm, kit, one_more) && kept;
}

} // namespace laws
