#include "corpus.hpp"

#include "hash.hpp"
#include "options.hpp"

#include "../shared/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

namespace train_moe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest = std::size_t{256} << 20;
constexpr std::size_t usual_block = 4096;
constexpr std::size_t held_out_every = 10;

std::string shown(fs::path const& path) { return examples::shown_path(path.string()); }

void append_file(std::vector<unsigned char>& bytes, fs::path const& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(std::fopen(path.c_str(), "rb"), &std::fclose);
  char buffer[1 << 16];
  std::size_t got = 0;
  if (file)
    while (bytes.size() < largest && (got = std::fread(buffer, 1, sizeof buffer, file.get())) > 0)
      bytes.insert(bytes.end(), buffer, buffer + got);
  if (!file || std::ferror(file.get()))
    throw input_error(
        fmt::format("--text: cannot read {}: {}; make it readable or name another file or folder",
                    shown(path), std::strerror(errno)));
}

std::vector<fs::path> files_below(fs::path const& folder) {
  std::vector<fs::path> files;
  try {
    for (auto const& entry : fs::recursive_directory_iterator(folder))
      // Where a link leads is not asked: one to itself leads to an error.
      if (!entry.is_symlink() && entry.is_regular_file()) files.push_back(entry.path());
  } catch (fs::filesystem_error const& error) {
    throw input_error(fmt::format("--text: cannot read {}: {}; make it readable or name another folder",
                                  shown(error.path1().empty() ? folder : error.path1()),
                                  error.code().message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<unsigned char> read_all(fs::path const& text) {
  std::error_code problem;
  auto const status = fs::status(text, problem);
  if (status.type() == fs::file_type::not_found)
    throw input_error(fmt::format("--text: there is no file or folder {}; check the path", shown(text)));
  if (problem)
    throw input_error(
        fmt::format("--text: cannot read {}: {}; make it readable or name another file or folder",
                    shown(text), problem.message()));
  std::vector<unsigned char> bytes;
  if (fs::is_regular_file(status)) {
    append_file(bytes, text);
  } else if (fs::is_directory(status)) {
    auto const files = files_below(text);
    if (files.empty())
      throw input_error(
          fmt::format("--text: there are no files in {}; name a folder with some text", shown(text)));
    for (auto const& file : files)
      if (bytes.size() < largest) append_file(bytes, file);
  } else {
    throw input_error(
        fmt::format("--text: {} is neither a file nor a folder; name one of these", shown(text)));
  }
  if (bytes.empty()) throw input_error(fmt::format("--text: {} is empty; name some text", shown(text)));
  bytes.resize(std::min(bytes.size(), largest));
  return bytes;
}

} // namespace

corpus::corpus(fs::path const& text, int sequence) : sequence_(static_cast<std::size_t>(sequence)) {
  auto const bytes = read_all(text);
  auto const window = sequence_ + 1;
  if (bytes.size() < held_out_every * window)
    throw input_error(
        fmt::format("--text: {} has {} bytes, but sequences of {} need at least {}; name more text or "
                    "make --seq smaller",
                    shown(text), bytes.size(), sequence_, held_out_every * window));
  block_ = std::max(window, std::min(usual_block, bytes.size() / held_out_every));
  for (std::size_t start = 0, block = 0; start < bytes.size(); start += block_, ++block) {
    auto const end = std::min(start + block_, bytes.size());
    auto const held = block % held_out_every == held_out_every - 1 && end - start == block_;
    auto& part = held ? held_out_ : training_;
    part.insert(part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(start),
                bytes.begin() + static_cast<std::ptrdiff_t>(end));
  }
}

std::span<unsigned char const> corpus::training(std::uint64_t seed, int step, int microbatch,
                                                int which) const {
  std::uint64_t place = mixed(seed);
  for (int const each : {step, microbatch, which}) place = mixed(place ^ static_cast<std::uint64_t>(each));
  return std::span(training_).subspan(place % (training_.size() - sequence_), sequence_ + 1);
}

std::span<unsigned char const> corpus::held_out(int which, int count) const {
  auto const in_block = (block_ - 1) / sequence_;
  auto const windows = held_out_.size() / block_ * in_block;
  auto const window = static_cast<std::size_t>(which) * windows / static_cast<std::size_t>(count);
  return std::span(held_out_).subspan(window / in_block * block_ + window % in_block * sequence_,
                                      sequence_ + 1);
}

std::uint64_t corpus::digest() const {
  return hash_bytes(hash_bytes(training_.size(), training_.data(), training_.size()), held_out_.data(),
                    held_out_.size());
}

double corpus::bigram_loss(int count) const {
  std::vector<double> pairs(256 * 256, 0.1);
  for (std::size_t i = 1; i < training_.size(); ++i)
    pairs[training_[i - 1] * std::size_t{256} + training_[i]] += 1;
  std::vector<double> totals(256);
  for (std::size_t i = 0; i < pairs.size(); ++i) totals[i / 256] += pairs[i];
  double sum = 0;
  for (int which = 0; which < count; ++which) {
    auto const bytes = held_out(which, count);
    for (std::size_t i = 1; i < bytes.size(); ++i)
      sum -= std::log(pairs[bytes[i - 1] * std::size_t{256} + bytes[i]] / totals[bytes[i - 1]]);
  }
  return sum / (static_cast<double>(count) * static_cast<double>(sequence_));
}

} // namespace train_moe
