#pragma once

#include "stage_peers.hpp"

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace train_moe {

/// Letters that are plain bytes, as messages of host memory.
template <class Letter> class plain_messages {
public:
  using tensor = Letter;
  static_assert(std::is_trivially_copyable_v<Letter>);
  explicit plain_messages(stage_peers& over) : over_(over) {}

  void send(stretto::message const& about, Letter const& letter) {
    auto const bytes = at::empty({static_cast<std::int64_t>(sizeof letter)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &letter, sizeof letter);
    over_.send(about, bytes);
  }
  Letter receive(stretto::message const& about) {
    Letter letter;
    std::memcpy(&letter, over_.receive(about).const_data_ptr(), sizeof letter);
    return letter;
  }

private:
  stage_peers& over_;
};

} // namespace train_moe
