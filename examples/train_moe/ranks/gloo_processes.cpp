#include "../run_plan.hpp"
#include "launch_store.hpp"
#include "processes.hpp"
#include "pulse.hpp"
#include "rank_links.hpp"

#include <stretto/adapters/c10d.hpp>
#include <stretto/adapters/c10d/gloo.hpp>

#include <chrono>
#include <csignal>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/resource.h>

namespace train_moe {
namespace {

namespace sc = stretto::c10d;

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
      on_failure_(stretto::describe(first), first.in_op);
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

/// Groups take a socket for each pair of ranks, and shells start programs with few.
void allow_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

/// A sentence where nearly as many files are open as may be.
std::string few_open_files() {
  constexpr rlim_t enough = 16;
  rlimit files{};
  std::error_code problem;
  std::filesystem::directory_iterator const open("/proc/self/fd", problem);
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return {};
  // Where there are none left that cannot be read either.
  auto const count = problem ? files.rlim_cur : static_cast<rlim_t>(std::distance(begin(open), end(open)));
  if (files.rlim_cur >= count + enough) return {};
  return "ranks cannot be joined with " + std::to_string(files.rlim_cur) +
         " open files at most; raise ulimit -n";
}

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
  if (o.own_cores)
    throw input_error("--own-cores shares the cores of a process among its ranks; leave it out, or unset "
                      "RANK and WORLD_SIZE");
  return rank_place{o.ep, o.pp, here->rank};
}

std::unique_ptr<processes> join_processes(options const& o, std::uint64_t text,
                                          std::function<void(std::string const&, bool)> on_failure) {
  auto const place = place_in_launch(o).value();
  auto const here = *read_environment();
  // A process that has gone is an error of the call, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  allow_open_files();
  auto store = join_launch(here, o, text);
  try {
    return std::make_unique<gloo_processes>(store, place, here.address, o, std::move(on_failure));
  } catch (std::exception const& problem) {
    std::string const what = problem.what();
    if (what.find("raise ulimit -n") != std::string::npos) throw;
    // Libraries have other words for it, and for a rank that has ended.
    if (auto const few = few_open_files(); !few.empty()) throw std::runtime_error(few + ": " + what);
    throw std::runtime_error(
        "rank " + std::to_string(place.rank) +
        " could not be joined with the others; see what they say themselves, and start all "
        "again: " +
        what);
  }
}

} // namespace train_moe
