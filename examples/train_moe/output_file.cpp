#include "output_file.hpp"

#include "options.hpp"

#include "../shared/words.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace train_moe {

namespace fs = std::filesystem;

namespace {

/// Gone at the end of its scope, unless it has another name by then, and when a signal ends the process before.
class unfinished_file {
public:
  explicit unfinished_file(fs::path path) : path_(std::move(path)) {
    name_ = path_.c_str();
    struct sigaction action {};
    action.sa_handler = end;
    for (int const signal : ends)
      if (handler_of(signal) == SIG_DFL) ::sigaction(signal, &action, nullptr);
  }
  unfinished_file(unfinished_file const&) = delete;
  unfinished_file& operator=(unfinished_file const&) = delete;
  ~unfinished_file() {
    for (int const signal : ends)
      if (handler_of(signal) == end) std::signal(signal, SIG_DFL);
    name_ = nullptr;
    std::error_code problem;
    fs::remove(path_, problem);
  }

private:
  using handler = void (*)(int);
  static constexpr int ends[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

  static handler handler_of(int signal) {
    struct sigaction found {};
    ::sigaction(signal, nullptr, &found);
    return found.sa_handler;
  }
  static void end(int signal) {
    if (char const* const name = name_) ::unlink(name);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }

  static inline std::atomic<char const*> name_ = nullptr;
  fs::path path_;
};

} // namespace

output_file::output_file(char const* flag, fs::path path) : flag_(flag), path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code problem;
  auto const status = fs::status(path_, problem);
  if (fs::is_directory(status))
    throw input_error(
        fmt::format("{}: {} is a folder; name a file in it", flag_, examples::shown_path(path_.string())));
  if (!fs::exists(status) && fs::is_symlink(fs::symlink_status(path_, problem)))
    throw input_error(fmt::format("{}: {} is a link that leads to no file; name a file", flag_,
                                  examples::shown_path(path_.string())));
  in_place_ = fs::exists(status) && !fs::is_regular_file(status);
  if (in_place_) return;
  // A link stays a link to what is replaced.
  if (auto const resolved = fs::canonical(path_, problem); !problem) path_ = resolved;
  std::ofstream probe(temporary());
  auto const reason = errno;
  if (!probe)
    throw input_error(
        fmt::format("{}: cannot write {}: {}; name a file in a folder that exists and is writable", flag_,
                    examples::shown_path(path_.string()), std::strerror(reason)));
  probe.close();
  fs::remove(temporary(), problem);
}

fs::path output_file::temporary() const {
  auto name = path_;
  name += fmt::format(".partial.{}", ::getpid());
  return name;
}

void output_file::write(std::function<void(std::ostream&)> const& content) const {
  if (path_.empty()) return;
  auto const place = in_place_ ? path_ : temporary();
  std::optional<unfinished_file> unfinished;
  if (!in_place_) unfinished.emplace(place);
  std::error_code problem;
  std::ofstream out(place, std::ios::binary);
  if (out) content(out);
  out.close();
  if (out && !in_place_) fs::rename(place, path_, problem);
  if (out && !problem) return;
  auto const reason = problem ? problem.message() : std::string(std::strerror(errno));
  throw std::runtime_error(
      fmt::format("{}: writing {} failed: {}", flag_, examples::shown_path(path_.string()), reason));
}

} // namespace train_moe
