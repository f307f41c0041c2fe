#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace train_moe {

/// SplitMix64's output function: well mixed bits from any number; no two numbers give the same.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Goes on hashing from `hash`. Every step can be undone, so a single flipped bit always changes the result.
inline std::uint64_t hash_bytes(std::uint64_t hash, void const* data, std::size_t bytes) {
  auto const* from = static_cast<unsigned char const*>(data);
  for (; bytes >= sizeof hash; bytes -= sizeof hash, from += sizeof hash) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    hash = mixed(hash ^ word);
  }
  for (; bytes > 0; --bytes) hash = mixed(hash ^ *from++);
  return hash;
}
inline std::uint64_t hash_text(std::uint64_t hash, std::string_view text) {
  return mixed(hash_bytes(hash, text.data(), text.size()) ^ text.size());
}

} // namespace train_moe
