#include "laws/expert_communicator.hpp"
#include "laws/own_stream.hpp"
#include "laws/peers.hpp"
#include "laws/row_exchange.hpp"

#include "../../examples/own_tensors/model.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/executor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>

using namespace stretto;
using Catch::Matchers::ContainsSubstring;

namespace {

using Exchange = host::communicator;
using array::tensor;
template <class Inner = Exchange> using arrays_comm = array::expert_parallel<Inner>;

template <class Comm, int Copies> struct kit {
  static constexpr int columns = 3, copies = Copies;
  int experts;
  array::memory& memory;
  Exchange& sums;

  tensor make(int rows, std::vector<double> const& numbers) const {
    tensor made(memory, rows, columns);
    for (std::size_t i = 0; i < numbers.size(); ++i) made.data()[i] = static_cast<float>(numbers[i]);
    return made;
  }
  static std::vector<double> read(tensor const& t) {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < t.size(); ++i) numbers.push_back(static_cast<double>(t.data()[i]));
    return numbers;
  }
  static typename Comm::routing route(std::vector<int> const& ids) { return {ids}; }
  double sum(double x) const {
    sums.all_reduce(&x, 1);
    return x;
  }
};

/// Whether every rank kept the law; one that ends by an exception did not.
template <class Law> bool all_keep(int ranks, Law const& law) {
  std::vector<char> kept(static_cast<std::size_t>(ranks), 0);
  host::group group(ranks, {.deadline = std::chrono::milliseconds(2000)});
  int const sums = group.add_domain();
  try {
    group.run([&](int rank) { kept[static_cast<std::size_t>(rank)] = law(group, rank, sums); });
  } catch (std::exception const&) {
    return false;
  }
  for (char const each : kept)
    if (each == 0) return false;
  return true;
}

/// Which laws of expert communicators are kept.
template <class Comm, int Copies = 1, class... Extra> std::vector<bool> kept_by(int ranks, Extra... extra) {
  std::vector<bool> kept;
  auto check = [&](auto law) {
    kept.push_back(all_keep(ranks, [&](host::group& group, int rank, int sums) {
      Exchange exchange = group.communicator(rank), adds = group.communicator(rank, sums);
      array::tensors arrays;
      int const local = 2;
      kit<Comm, Copies> k{local * ranks, arrays.memory(), adds};
      Comm comm(exchange, local, extra...);
      return law(comm, k);
    }));
  };
  check([](auto& comm, auto& k) { return laws::combine_undoes_dispatch(comm, k); });
  check([](auto& comm, auto& k) { return laws::ranks_without_rows_take_part(comm, k); });
  check([](auto& comm, auto& k) { return laws::backwards_are_transposes(comm, k); });
  check([](auto& comm, auto& k) { return laws::a_handle_serves_more_than_once(comm, k); });
  check([](auto& comm, auto& k) { return laws::a_handle_may_go_unused(comm, k); });
  check([](auto& comm, auto& k) { return laws::handles_are_apart_up_to_the_limit(comm, k); });
  return kept;
}
std::vector<bool> all_but(std::vector<std::size_t> const& broken, std::size_t laws = 6) {
  std::vector<bool> kept(laws, true);
  for (std::size_t const law : broken) kept[law] = false;
  return kept;
}

/// Communicators with one fault each.
struct swaps_rows : arrays_comm<> {
  using arrays_comm<>::arrays_comm;
  tensor combine(tensor const& rows, handle& h) {
    tensor back = arrays_comm<>::combine(rows, h);
    if (back.rows() > 1) std::swap_ranges(back[0], back[0] + back.columns(), back[1]);
    return back;
  }
};
struct needs_rows : arrays_comm<> {
  using arrays_comm<>::arrays_comm;
  tensor dispatch(tensor const& rows, routing const& where, handle& h) {
    if (rows.rows() == 0) throw std::runtime_error("no rows to send");
    return arrays_comm<>::dispatch(rows, where, h);
  }
};
struct scales_gradients : arrays_comm<> {
  using arrays_comm<>::arrays_comm;
  tensor combine_backward(tensor const& rows, handle& h) {
    return add(arrays_comm<>::combine_backward(rows, h), arrays_comm<>::combine_backward(rows, h));
  }
};
struct forgets_after_combine : arrays_comm<> {
  using arrays_comm<>::arrays_comm;
  tensor combine(tensor const& rows, handle& h) {
    tensor back = arrays_comm<>::combine(rows, h);
    h = {};
    return back;
  }
};
/// One place for all handles.
struct shares_its_handles : arrays_comm<> {
  using arrays_comm<>::arrays_comm;
  typename arrays_comm<>::handle last;
  tensor dispatch(tensor const& rows, routing const& where, handle&) {
    return arrays_comm<>::dispatch(rows, where, last);
  }
  tensor combine(tensor const& rows, handle&) { return arrays_comm<>::combine(rows, last); }
  tensor dispatch_backward(tensor const& rows, handle&) { return combine(rows, last); }
  tensor combine_backward(tensor const& rows, handle&) { return arrays_comm<>::combine_backward(rows, last); }
};
/// Its one buffer is free again only after a combine.
struct wants_every_combine : arrays_comm<> {
  using arrays_comm<>::arrays_comm;
  bool busy = false;
  tensor dispatch(tensor const& rows, routing const& where, handle& h) {
    if (std::exchange(busy, true)) throw std::runtime_error("the buffer is busy");
    return arrays_comm<>::dispatch(rows, where, h);
  }
  tensor combine(tensor const& rows, handle& h) {
    busy = false;
    return arrays_comm<>::combine(rows, h);
  }
};
struct says_one_takes_more : arrays_comm<> {
  using arrays_comm<>::arrays_comm;
  static constexpr int in_flight = 1;
};

} // namespace

TEST_CASE("expert communicators keep the laws", "[laws]") {
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    CHECK(kept_by<arrays_comm<>>(ranks) == all_but({}));
    CHECK(kept_by<laws::own_stream<Exchange, 2>, 2>(ranks) == all_but({}));
    CHECK(kept_by<laws::own_stream<Exchange, 1>>(ranks) == all_but({}));
  }
  STATIC_REQUIRE(expert_communicator<arrays_comm<>>);
  STATIC_REQUIRE(expert_communicator<laws::own_stream<Exchange, 2>>);
}

TEST_CASE("the laws of expert communicators see those that break them", "[laws]") {
  CHECK(kept_by<swaps_rows>(2) == all_but({0, 1, 2, 4, 5}));
  CHECK(kept_by<needs_rows>(2) == all_but({1, 2}));
  CHECK(kept_by<scales_gradients>(2) == all_but({2}));
  CHECK(kept_by<forgets_after_combine>(2) == all_but({2, 3}));
  CHECK(kept_by<shares_its_handles>(2) == all_but({5}));
  CHECK(kept_by<wants_every_combine>(2) == all_but({4, 5}));
  CHECK(kept_by<says_one_takes_more>(2) == all_but({5}));
}

namespace {

/// One step on two ranks. Unproved, so that a communicator meets what no proof would let pass.
template <class S, class Comm> std::vector<std::uint32_t> step(std::string const& picture, int microbatches) {
  using Network = own_tensors::network<Comm>;
  std::vector<std::uint32_t> bits;
  own_tensors::shape shape;
  shape.top_k = 1;
  host::group group(2);
  group.run([&](int rank) {
    Exchange exchange = group.communicator(rank);
    Comm comm(exchange, shape.experts / 2);
    array::tensors arrays;
    Network net(picture, shape, arrays, comm, microbatches);
    net.next_batches(0);
    host::lanes lanes({.rank = rank, .board = &group.board()});
    executor run(unproved{}, S{}, backend{arrays, lanes}, net.layers, sizes{.microbatches = microbatches});
    run();
    if (rank == 0) bits = net.bits();
  });
  return bits;
}

} // namespace

TEST_CASE("a communicator that owns its stream serves a schedule, up to its one handle",
          "[laws][megatron-34][building-blocks-13]") {
  using Own = laws::own_stream<Exchange, 1>;
  using OwnModel = own_tensors::Model<Own>;
  auto const expected = step<Schedule<own_tensors::Model<arrays_comm<>>, Serial>, arrays_comm<>>("EMDH", 3);
  CHECK(step<Schedule<OwnModel, Serial>, Own>("EMDH", 3) == expected);
  CHECK(step<Schedule<OwnModel, Serial, SplitDW>, Own>("EMDH", 3) == expected);
  // Two microbatches in flight are two handles: the proof refuses that, and so does the communicator.
  using Two = Schedule<OwnModel, TwoStream1F1B>;
  STATIC_REQUIRE(stretto::detail::fault_in<Two>::value.d.what == fault::too_many_in_flight);
  STATIC_REQUIRE(proof<Schedule<OwnModel, Serial>>::holds);
  CHECK_THROWS_WITH((step<Two, Own>("EMDH", 3)),
                    ContainsSubstring("F.dispatch of layer 1, microbatch 1") &&
                        ContainsSubstring("the handle of another dispatch still lives"));
}

namespace {

struct forgets_own_rows : Exchange {
  using Exchange::Exchange;
  explicit forgets_own_rows(Exchange const& e) : Exchange(e) {}
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t bytes) {
    Exchange::all_to_all(send, send_rows, receive, receive_rows, bytes);
    std::size_t before = 0;
    for (int r = 0; r < rank(); ++r) before += static_cast<std::size_t>(receive_rows[r]) * bytes;
    std::memset(static_cast<char*>(receive) + before, 0,
                static_cast<std::size_t>(receive_rows[rank()]) * bytes);
  }
};
struct returns_its_own_counts : Exchange {
  explicit returns_its_own_counts(Exchange const& e) : Exchange(e) {}
  void exchange_counts(int const* send_rows, int* counts) {
    Exchange::exchange_counts(send_rows, counts);
    std::copy_n(send_rows, ranks(), counts);
  }
};
/// Delivers what was there when the next call came.
struct delivers_late : Exchange {
  explicit delivers_late(Exchange const& e) : Exchange(e) {}
  std::vector<char> last;
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t bytes) {
    Exchange::all_to_all(send, send_rows, receive, receive_rows, bytes);
    std::size_t total = 0;
    for (int r = 0; r < ranks(); ++r) total += static_cast<std::size_t>(receive_rows[r]) * bytes;
    std::vector<char> now(static_cast<char*>(receive), static_cast<char*>(receive) + total);
    if (last.size() == total) std::copy(last.begin(), last.end(), static_cast<char*>(receive));
    last = now;
  }
};

template <class E> std::vector<bool> kept_by_exchange(int ranks) {
  std::vector<bool> kept;
  auto check = [&](auto law) {
    kept.push_back(all_keep(ranks, [&](host::group& group, int rank, int) {
      E exchange(group.communicator(rank));
      return law(exchange);
    }));
  };
  check([](auto& e) { return laws::counts_are_transposed(e); });
  check([](auto& e) { return laws::rows_arrive_in_rank_order(e); });
  check([](auto& e) { return laws::calls_are_apart(e); });
  return kept;
}

} // namespace

TEST_CASE("row exchanges keep their laws, and those that do not are seen", "[laws][megatron-34]") {
  for (int const ranks : {1, 2, 3}) CHECK(kept_by_exchange<Exchange>(ranks) == all_but({}, 3));
  CHECK(kept_by_exchange<forgets_own_rows>(3) == all_but({1, 2}, 3));
  CHECK(kept_by_exchange<returns_its_own_counts>(3) == all_but({0}, 3));
  CHECK(kept_by_exchange<delivers_late>(3) == all_but({2}, 3));
}

namespace {

using Host = host::peers<int>;
struct ignores_chains : Host {
  using Host::Host;
  void send(message m, int const& t) {
    m.chain = 0;
    Host::send(m, t);
  }
  int receive(message m) {
    m.chain = 0;
    return Host::receive(m);
  }
};
struct newest_first : Host {
  using Host::Host;
  std::vector<int> held;
  int receive(message const& m) {
    if (m.stage != 1 || m.microbatch != 2) return Host::receive(m);
    while (held.size() < 5 && taken == 0) held.push_back(Host::receive(m));
    ++taken;
    int const last = held.back();
    held.pop_back();
    return last;
  }
  int taken = 0;
};
struct drops_empty : Host {
  using Host::Host;
  void send(message const& m, int const& t) { Host::send(m, t == 0 ? 1 : t); }
};

template <class P> std::vector<bool> kept_by_peers() {
  std::vector<bool> kept;
  // The empty message of these tests is 0.
  auto const make = [](int n) { return n + 1; };
  auto const read = [](int n) { return n - 1; };
  auto check = [&](auto law) {
    std::vector<char> both(2, 0);
    host::group group(2, {.deadline = std::chrono::milliseconds(2000)});
    host::mailbox<int> mailbox(group);
    group.run([&](int rank) {
      P peers(mailbox, rank);
      both[static_cast<std::size_t>(rank)] = law(peers, rank, 1 - rank, make, read);
    });
    kept.push_back(both[0] != 0 && both[1] != 0);
  };
  check([](auto&&... all) { return laws::messages_are_found_by_name(all...); });
  check([](auto&&... all) { return laws::the_oldest_comes_first(all...); });
  check([](auto&&... all) { return laws::an_empty_tensor_arrives_empty(all...); });
  return kept;
}

} // namespace

namespace {

/// Copies of a handle share the number. With `clone` it is a tensor as torch has them.
struct handle {
  std::shared_ptr<int> number;
  bool defined() const { return number != nullptr; }
  handle detach() const { return *this; }
};
struct cloning_handle : handle {
  cloning_handle detach() const { return *this; }
  cloning_handle clone() const { return {{std::make_shared<int>(*number)}}; }
};

template <class Tensor> bool arrives_alone() {
  std::vector<char> both(2, 0);
  host::group group(2);
  host::mailbox<Tensor> mailbox(group);
  group.run([&](int rank) {
    host::peers<Tensor> peers(mailbox, rank);
    both[static_cast<std::size_t>(rank)] = laws::what_arrives_is_its_own(
        peers, rank, 1 - rank, [](int n) { return Tensor{{std::make_shared<int>(n)}}; },
        [](Tensor const& t) { return t.defined() ? *t.number : -1; }, [](Tensor& t) { *t.number = 99; });
  });
  return both[0] != 0 && both[1] != 0;
}

} // namespace

TEST_CASE("peers keep their laws, and those that do not are seen", "[laws]") {
  CHECK(arrives_alone<cloning_handle>());
  CHECK_FALSE(arrives_alone<handle>());
  CHECK(kept_by_peers<Host>() == all_but({}, 3));
  CHECK(kept_by_peers<ignores_chains>() == all_but({0}, 3));
  CHECK(kept_by_peers<newest_first>() == all_but({1}, 3));
  CHECK(kept_by_peers<drops_empty>() == all_but({2}, 3));
}
