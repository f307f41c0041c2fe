#pragma once

#include "../options.hpp"

#include <stretto/adapters/c10d/environment.hpp>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace train_moe {

/// Where the processes of a launch find each other.
using store_handle = c10::intrusive_ptr<::c10d::Store>;

inline std::vector<std::uint8_t> bytes_of(std::string const& text) { return {text.begin(), text.end()}; }
inline std::string text_of(std::vector<std::uint8_t> const& bytes) { return {bytes.begin(), bytes.end()}; }
inline std::string seconds_of(std::chrono::milliseconds time) {
  return std::to_string(time.count() / 1000) + " s";
}
inline std::chrono::milliseconds deadline_of(options const& o) { return std::chrono::seconds(o.deadline); }

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
void meet(store_handle const& store, std::string const& where, int ranks, std::chrono::milliseconds deadline);

/// What the environment says of this launch, as torchrun sets it. Throws `input_error`.
std::optional<stretto::c10d::environment> read_environment();

/// The store of the launch, once all ranks are there and agree on `o` and the digest `text`. Throws `input_error`, on every rank.
store_handle join_launch(stretto::c10d::environment const& here, options const& o, std::uint64_t text);

} // namespace train_moe
