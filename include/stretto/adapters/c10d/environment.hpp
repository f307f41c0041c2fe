#pragma once

#include <stretto/detail/cxx20.hpp>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace stretto {
inline namespace v0 {
namespace c10d {

/// Where a process stands among the processes of a launch, as torchrun tells it.
struct environment {
  int rank = 0;
  int world_size = 1;
  std::string address = "127.0.0.1";
  int port = 29500;
  std::string launch; ///< tells launches apart that meet on one port by mistake; may be empty
  /// The launcher serves the store at address and port: rank 0 connects as all others do, and does not listen.
  bool store_is_served = false;
  /// How often the launcher has started anew: in a store that it serves each time has keys of its own.
  int attempt = 0;
};

namespace detail {

/// The whole number in an environment variable; `std::invalid_argument` says what it may be.
inline int number_in(char const* name, int least, int most) {
  char const* const text = std::getenv(name);
  std::string const word = text ? text : "";
  int value = 0;
  auto const [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (problem == std::errc{} && end == word.data() + word.size() && value >= least && value <= most)
    return value;
  throw std::invalid_argument(std::string(name) + " must be a whole number from " + std::to_string(least) +
                              " to " + std::to_string(most) + ", not '" + word.substr(0, 60) + "'");
}

} // namespace detail

/// Reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and torchrun's TORCHELASTIC_RUN_ID, _USE_AGENT_STORE and _RESTART_COUNT;
/// nothing where neither RANK nor WORLD_SIZE is set. Throws `std::invalid_argument`, one sentence, if they do not go together.
/// Source of the last two: torch/distributed/rendezvous.py, `_create_c10d_store`.
inline std::optional<environment> read_environment() {
  char const* const rank = std::getenv("RANK");
  char const* const size = std::getenv("WORLD_SIZE");
  if (rank == nullptr && size == nullptr) return std::nullopt;
  if (rank == nullptr || size == nullptr)
    throw std::invalid_argument(
        std::string(rank ? "RANK is set and WORLD_SIZE" : "WORLD_SIZE is set and RANK") +
        " is not; set both to run as one of several processes, or neither");
  environment found;
  constexpr int most = 1 << 16;
  found.world_size = detail::number_in("WORLD_SIZE", 1, most);
  found.rank = detail::number_in("RANK", 0, most);
  if (found.rank >= found.world_size)
    throw std::invalid_argument("RANK " + std::to_string(found.rank) + " is beyond WORLD_SIZE " +
                                std::to_string(found.world_size) + "; ranks count from 0");
  if (char const* const address = std::getenv("MASTER_ADDR"); address != nullptr && *address != 0)
    found.address = address;
  if (std::getenv("MASTER_PORT") != nullptr) found.port = detail::number_in("MASTER_PORT", 1, 65535);
  if (char const* const launch = std::getenv("TORCHELASTIC_RUN_ID")) found.launch = launch;
  char const* const served = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  found.store_is_served = served != nullptr && std::string_view(served) == "True";
  if (found.store_is_served && std::getenv("TORCHELASTIC_RESTART_COUNT") != nullptr)
    found.attempt = detail::number_in("TORCHELASTIC_RESTART_COUNT", 0, 1 << 30);
  return found;
}

} // namespace c10d
} // namespace v0
} // namespace stretto
