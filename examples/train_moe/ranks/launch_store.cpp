#include "launch_store.hpp"

#include "agreement.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <c10/util/Logging.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <netdb.h>
#include <sys/socket.h>

namespace train_moe {
namespace {

namespace sc = stretto::c10d;

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
    auto const start = std::chrono::steady_clock::now();
    try {
      store->wait({key}, deadline);
    } catch (std::exception const&) {
      // A wait that ends before its time lost the store.
      if (std::chrono::steady_clock::now() - start < deadline * 9 / 10) throw;
      throw input_error("rank " + std::to_string(rank) + " of " + std::to_string(here.world_size) +
                        " did not come within " + seconds_of(deadline) + "; start it, or lower WORLD_SIZE");
    }
    all.push_back(text_of(store->get(key)));
  }
  // Where the store lives in rank 0, that stays until all have read.
  meet(store, "read", here.world_size, deadline);
  if (auto const problem = difference_of(all); !problem.empty()) throw input_error(problem);
}

} // namespace

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

std::optional<sc::environment> read_environment() {
  try {
    return sc::read_environment();
  } catch (std::invalid_argument const& problem) {
    throw input_error(problem.what());
  }
}

store_handle join_launch(sc::environment const& here, options const& o, std::uint64_t text) {
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
    } catch (input_error const& problem) {
      return start{{}, problem.what()};
    } catch (std::exception const&) {
      return start{{},
                   (here.store_is_served ? "the launcher's store at " : "rank 0 at ") + here.address + ":" +
                       std::to_string(here.port) +
                       " ended while this rank joined it; see what it says itself, and start all again"};
    }
  });
  // Attempts to connect to an address that belongs to nobody may end after the deadline.
  if (!started && here.rank == 0 && !here.store_is_served && !*opened) throw no_way_to_itself(here);
  if (!started) throw no_answer(here, deadline_of(o));
  if (!started->problem.empty()) throw input_error(started->problem);
  return started->store;
}

} // namespace train_moe
