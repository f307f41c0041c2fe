#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace train_moe {

/// Bytes to train on and bytes that training never sees.
///
/// All regular files are taken in the order of their paths, one behind the other, and cut into blocks; every tenth
/// block is held out. Links to folders are not followed.
class corpus {
public:
  /// Throws `input_error` when there is nothing to read or too little for sequences of `sequence` bytes.
  corpus(std::filesystem::path const& text, int sequence);

  std::size_t training_bytes() const { return training_.size(); }
  std::size_t held_out_bytes() const { return held_out_.size(); }
  /// Of all bytes: two ranks that read the same have the same.
  std::uint64_t digest() const;

  /// `sequence + 1` consecutive bytes of training data at a place that depends on the arguments alone: number
  /// `which` of the sequences of microbatch `microbatch`, all ranks counted, in step `step`.
  std::span<unsigned char const> training(std::uint64_t seed, int step, int microbatch, int which) const;
  /// `sequence + 1` consecutive bytes of held-out data: number `which` of `count` windows spread over all of it.
  std::span<unsigned char const> held_out(int which, int count) const;

  /// Cross-entropy in nats per byte of those `count` windows under counts of pairs of bytes in the training data, the
  /// simplest model of text that is worth beating. Counts are smoothed by adding 0.1.
  double bigram_loss(int count) const;

private:
  std::size_t sequence_;
  std::size_t block_;
  std::vector<unsigned char> training_;
  std::vector<unsigned char> held_out_;
};

} // namespace train_moe
