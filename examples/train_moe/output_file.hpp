#pragma once

#include <filesystem>
#include <functional>
#include <ostream>

namespace train_moe {

/// A file that appears whole or not at all: written under another name beside its place, then renamed.
class output_file {
public:
  /// Throws `input_error` when `path` cannot be written later; leaves nothing behind. An empty path is no file.
  output_file(char const* flag, std::filesystem::path path);

  explicit operator bool() const { return !path_.empty(); }
  /// Throws `std::runtime_error` when writing fails; what was there before stays then.
  void write(std::function<void(std::ostream&)> const& content) const;

private:
  std::filesystem::path temporary() const;

  char const* flag_;
  std::filesystem::path path_;
  /// Something like /dev/stdout, which cannot be replaced.
  bool in_place_ = false;
};

} // namespace train_moe
