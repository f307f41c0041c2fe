#include "agreement.hpp"
#include "processes.hpp"
#include "pulse.hpp"
#include "rank_links.hpp"
#include "run_plan.hpp"

#include <stretto/adapters/c10d.hpp>
#include <stretto/adapters/c10d/gloo.hpp>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <c10/util/Logging.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <sys/socket.h>

namespace train_moe {
namespace {

namespace sc = stretto::c10d;
using store_handle = c10::intrusive_ptr<c10d::Store>;

std::vector<std::uint8_t> bytes_of(std::string const& text) { return {text.begin(), text.end()}; }
std::string text_of(std::vector<std::uint8_t> const& bytes) { return {bytes.begin(), bytes.end()}; }
std::string seconds_of(std::chrono::milliseconds time) { return std::to_string(time.count() / 1000) + " s"; }

std::chrono::milliseconds deadline_of(options const& o) { return std::chrono::seconds(o.deadline); }

std::optional<sc::environment> read_environment() {
  try {
    return sc::read_environment();
  } catch (std::invalid_argument const& problem) {
    throw input_error(problem.what());
  }
}

/// What `act` returns if it ends in time. Calls to a store whose process is silent do not end by themselves.
template <class Act> auto within(std::chrono::milliseconds time, Act act) -> std::optional<decltype(act())> {
  auto const promised = std::make_shared<std::promise<decltype(act())>>();
  auto found = promised->get_future();
  std::thread([promised, act = std::move(act)]() mutable {
    try {
      promised->set_value(act());
    } catch (...) {
      promised->set_exception(std::current_exception());
    }
  }).detach();
  if (found.wait_for(time) != std::future_status::ready) return std::nullopt;
  try {
    return found.get();
  } catch (std::exception const&) {
    return std::nullopt; // the store has gone
  }
}

/// Counts this rank and returns when all have come, or do not in time.
void meet(store_handle const& store, std::string const& where, int ranks,
          std::chrono::milliseconds deadline) {
  within(deadline, [store, where, ranks, deadline] {
    store->add(where, 1);
    for (auto const end = std::chrono::steady_clock::now() + deadline;
         store->add(where, 0) < ranks && std::chrono::steady_clock::now() < end;)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return true;
  });
}

/// torch warns on stderr about every attempt to connect; what is wrong is said once, by who asked.
void silence_torch() {
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 1);
  c10::initLogging();
}

void check_address(sc::environment const& here) {
  addrinfo* found = nullptr;
  int const problem = ::getaddrinfo(here.address.c_str(), nullptr, nullptr, &found);
  if (problem != 0)
    throw input_error("MASTER_ADDR '" + here.address.substr(0, 60) + "' does not resolve (" +
                      ::gai_strerror(problem) + "); give a name or address of the machine of rank 0");
  ::freeaddrinfo(found);
}

input_error no_way_to_itself(sc::environment const& here) {
  return input_error("rank 0 listens at port " + std::to_string(here.port) +
                     " and cannot reach itself at MASTER_ADDR '" + here.address.substr(0, 60) +
                     "'; give a name or address of its own machine");
}

input_error no_answer(sc::environment const& here, std::chrono::milliseconds deadline) {
  return input_error(
      (here.store_is_served ? "no store of a launcher answers at " : "rank 0 does not answer at ") +
      here.address + ":" + std::to_string(here.port) + " within " + seconds_of(deadline) +
      (here.store_is_served ? "; unset TORCHELASTIC_USE_AGENT_STORE where nobody serves one"
                            : "; start it, or correct MASTER_ADDR and MASTER_PORT"));
}

store_handle open_store(sc::environment const& here, std::chrono::milliseconds deadline) {
  c10d::TCPStoreOptions settings;
  settings.port = static_cast<std::uint16_t>(here.port);
  settings.isServer = here.rank == 0 && !here.store_is_served;
  settings.numWorkers = static_cast<std::size_t>(here.world_size);
  settings.waitWorkers = false;
  settings.timeout = deadline;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(here.address, settings);
    if (!here.store_is_served) return store;
    return c10::make_intrusive<c10d::PrefixStore>("/worker/attempt_" + std::to_string(here.attempt),
                                                  std::move(store));
  } catch (std::exception const& problem) {
    bool const listens = std::string_view(problem.what()).find("failed to listen") == std::string_view::npos;
    if (settings.isServer && listens) throw no_way_to_itself(here);
    if (settings.isServer)
      throw input_error("rank 0 cannot listen at MASTER_PORT " + std::to_string(here.port) +
                        ", which is in use or not allowed; choose another port");
    throw no_answer(here, deadline);
  }
}

/// Refuses a process of another launch on the same port, and a second one with the same rank.
void claim_rank(c10d::Store& store, sc::environment const& here) {
  auto const place = here.address + ":" + std::to_string(here.port);
  if (here.rank == 0) store.set("launch", bytes_of(here.launch));
  auto const launch = text_of(store.get("launch"));
  if (launch != here.launch || store.add("claim/" + std::to_string(here.rank), 1) != 1)
    throw input_error("another launch has rank " + std::to_string(here.rank) + " at " + place +
                      "; give each launch a MASTER_PORT of its own");
}

void agree(store_handle const& store, sc::environment const& here, options const& o, std::uint64_t text) {
  auto const deadline = deadline_of(o);
  store->set("agreement/" + std::to_string(here.rank), bytes_of(agreement_of(o, text)));
  std::vector<std::string> all;
  for (int rank = 0; rank < here.world_size; ++rank) {
    auto const key = "agreement/" + std::to_string(rank);
    try {
      store->wait({key}, deadline);
    } catch (std::exception const&) {
      throw input_error("rank " + std::to_string(rank) + " of " + std::to_string(here.world_size) +
                        " did not come within " + seconds_of(deadline) + "; start it, or lower WORLD_SIZE");
    }
    all.push_back(text_of(store->get(key)));
  }
  // Where the store lives in rank 0, that stays until all have read.
  meet(store, "read", here.world_size, deadline);
  if (auto const problem = difference_of(all); !problem.empty()) throw input_error(problem);
}

/// Messages over the groups of one pipeline.
class process_peers : public stage_peers {
public:
  process_peers(int pipeline_rank, sc::waiting& in_flight) : peers(pipeline_rank, in_flight) {}
  void send(stretto::message const& about, at::Tensor const& content) override { peers.send(about, content); }
  at::Tensor receive(stretto::message const& about) override { return peers.receive(about); }
  sc::peers peers;
};

class process_links : public rank_links {
  using group = sc::communicator::group;

public:
  process_links(store_handle const& store, rank_place const& place, std::string const& address,
                options const& o, std::function<void(std::string const&, bool)> on_failure)
      : on_failure_(std::move(on_failure)),
        board_([](void* self) { static_cast<process_links*>(self)->give_up(); }, this),
        groups_(store, address == "127.0.0.1" || address == "localhost" ? address : std::string(),
                deadline_of(o)),
        all_(make("all", place.rank, place.ep * place.pp, &all_group_)),
        rows_(make("rows/" + std::to_string(place.pipeline_rank()), place.expert_rank(), place.ep)),
        replicas_(make("replicas/" + std::to_string(place.pipeline_rank()), place.expert_rank(), place.ep)),
        peers_(place.pipeline_rank(), in_flight_) {
    add_routes(place, o);
    // Both may rightly wait for as long as others work; rows are exchanged by ranks that stand at the same op.
    constexpr auto long_enough = std::chrono::hours(24 * 30);
    in_flight_.set_patience(long_enough);
    if (all_group_) all_group_->setTimeout(long_enough);
    watch(store, place.rank, deadline_of(o));
  }

  rank_communicator all() override { return all_; }
  rank_communicator rows() override { return rows_; }
  rank_communicator replicas() override { return replicas_; }
  stage_peers& peers() override { return peers_; }
  stretto::host::failure_board& board() override { return board_; }
  bool shares_process() const override { return false; }

private:
  void watch(store_handle const& store, int rank, std::chrono::milliseconds deadline) {
    keep_pulse({.deadline = deadline,
                .progress = [this] { return board_.progress() + in_flight_.finished(); },
                .tell = [store](bool went_on) { return store->add("progress", went_on ? 1 : 0); },
                .on_silence =
                    [this, rank, deadline] {
                      if (!in_flight_.waits() || board_.failed()) return;
                      auto const silence = "nothing has gone on in any rank for " + seconds_of(deadline);
                      in_flight_.give_up(silence);
                      // Collective calls do not end by that, and what waits for them knows no op.
                      std::this_thread::sleep_for(std::chrono::milliseconds(300));
                      board_.report({rank, false, {}, silence, {}});
                    }});
  }

  /// Once an op has failed: messages in flight end, and collective calls have a moment to.
  void give_up() {
    in_flight_.give_up();
    std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      auto const first = board_.first();
      on_failure_(stretto::host::describe(first), first.in_op);
    }).detach();
  }

  sc::communicator make(std::string const& name, int rank, int size, group* also = nullptr) {
    if (size == 1) return {};
    auto const made = groups_.make(name, rank, size);
    if (also) *also = made;
    return {made, in_flight_};
  }

  /// A group for each way of messages that touches this rank, in one order on all ranks.
  void add_routes(rank_place const& place, options const& o) {
    std::set<stretto::message_route> routes;
    for (auto const how : all_policies)
      if (goes_with_pipeline(o, how) && (o.compare || how == o.how)) {
        auto const found = routes_of(plan_of(o, how).facts());
        routes.insert(found.begin(), found.end());
      }
    for (auto const& each : routes) {
      if (each.from != place.pipeline_rank() && each.to != place.pipeline_rank()) continue;
      auto const name = "pipeline/" + std::to_string(place.expert_rank()) + "/" + std::to_string(each.from) +
                        "/" + std::to_string(each.to) + (each.gradient ? "/gradients" : "/activations");
      peers_.peers.add(each, groups_.make(name, each.from == place.pipeline_rank() ? 0 : 1, 2));
    }
  }

  std::function<void(std::string const&, bool)> on_failure_;
  sc::waiting in_flight_;
  stretto::host::failure_board board_;
  sc::gloo_groups groups_;
  group all_group_;
  sc::communicator all_, rows_, replicas_;
  process_peers peers_;
};

class gloo_processes : public processes {
public:
  gloo_processes(store_handle store, rank_place const& place, std::string const& address, options const& o,
                 std::function<void(std::string const&, bool)> on_failure)
      : store_(std::move(store)), place_(place), deadline_(deadline_of(o)),
        links_(store_, place, address, o, std::move(on_failure)) {}

  rank_place place() const override { return place_; }
  rank_links& links() override { return links_; }
  void leave() override { meet(store_, "done", place_.ep * place_.pp, deadline_); }

  std::string told(std::string const& problem, bool names_op) override {
    return within(std::chrono::milliseconds(600),
                  [store = store_, problem, names_op] {
                    if (names_op) store->compareSet("failure", {}, bytes_of(problem));
                    store->wait({"failure"}, std::chrono::milliseconds(500));
                    return text_of(store->get("failure"));
                  })
        .value_or(problem);
  }

private:
  store_handle store_;
  rank_place place_;
  std::chrono::milliseconds deadline_;
  process_links links_;
};

} // namespace

std::optional<rank_place> place_in_launch(options const& o) {
  auto const here = read_environment();
  if (!here) return std::nullopt;
  if (o.ep * o.pp != here->world_size)
    throw input_error("--ep " + std::to_string(o.ep) + " times --pp " + std::to_string(o.pp) + " is " +
                      std::to_string(o.ep * o.pp) + " ranks and WORLD_SIZE is " +
                      std::to_string(here->world_size) + "; start as many processes, or change the flags");
  for (auto const link : {o.link_gbps, o.link_us})
    if (link > 0)
      throw input_error(
          "a modelled link is for ranks that are threads; leave out --link-gbps and --link-us, or unset RANK "
          "and WORLD_SIZE");
  return rank_place{o.ep, o.pp, here->rank};
}

std::unique_ptr<processes> join_processes(options const& o, std::uint64_t text,
                                          std::function<void(std::string const&, bool)> on_failure) {
  auto const place = place_in_launch(o).value();
  auto const here = *read_environment();
  // A process that has gone is an error of the call, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  silence_torch();
  check_address(here);
  struct start {
    store_handle store;
    std::string problem;
  };
  // Its own waits end at the deadline; calls to a store whose process is silent do not.
  auto const opened = std::make_shared<std::atomic<bool>>(false);
  auto const started = within(deadline_of(o) + std::chrono::seconds(2), [here, o, text, opened] {
    try {
      auto store = open_store(here, deadline_of(o));
      *opened = true;
      claim_rank(*store, here);
      agree(store, here, o, text);
      return start{std::move(store), {}};
    } catch (std::exception const& problem) {
      return start{{}, problem.what()};
    }
  });
  // Attempts to connect to an address that belongs to nobody may end after the deadline.
  if (!started && here.rank == 0 && !here.store_is_served && !*opened) throw no_way_to_itself(here);
  if (!started) throw no_answer(here, deadline_of(o));
  if (!started->problem.empty()) throw input_error(started->problem);
  return std::make_unique<gloo_processes>(started->store, place, here.address, o, std::move(on_failure));
}

} // namespace train_moe
