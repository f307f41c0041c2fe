#include "own_cores.hpp"

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <vector>

#include <sched.h>

namespace train_moe {
namespace {

/// Main's, so that it is the same whoever asks: threads of ranks have kept to theirs.
std::vector<std::size_t> const& cores_of_process() {
  static std::vector<std::size_t> const cores =
      cores_by([](std::size_t bytes, cpu_set_t* may) { return ::sched_getaffinity(0, bytes, may); });
  return cores;
}

} // namespace

std::vector<std::size_t> cores_by(std::function<int(std::size_t bytes, cpu_set_t* cores)> const& affinity) {
  // Linux knows 8192 cores at most today.
  constexpr std::size_t most_sets = 64;
  for (std::size_t sets = 1; sets <= most_sets; sets *= 2) {
    core_set may(sets);
    if (affinity(bytes_of(may), may.data()) == 0) {
      std::vector<std::size_t> found;
      for (std::size_t core = 0; core < sets * CPU_SETSIZE; ++core)
        if (CPU_ISSET_S(core, bytes_of(may), may.data())) found.push_back(core);
      return found;
    }
    if (errno != EINVAL) break;
  }
  throw std::system_error(errno, std::generic_category(), "the cores of this process");
}

core_set set_of(std::vector<std::size_t> const& cores) {
  core_set made(cores.empty() ? 1 : cores.back() / CPU_SETSIZE + 1);
  for (auto const core : cores) CPU_SET_S(core, bytes_of(made), made.data());
  return made;
}

int usable_cores() { return static_cast<int>(cores_of_process().size()); }

void keep_to_own_cores(int part, int parts, core_user user) {
  auto const& cores = cores_of_process();
  auto const share = [&](int of) {
    return static_cast<std::ptrdiff_t>(static_cast<std::size_t>(of) * cores.size() /
                                       static_cast<std::size_t>(parts));
  };
  auto first = share(part), end = share(part + 1);
  if (user == core_user::compute) end = first + 1;
  if (user == core_user::other && end - first > 1) ++first;
  auto const mine = set_of({cores.begin() + first, cores.begin() + end});
  if (::sched_setaffinity(0, bytes_of(mine), mine.data()) != 0)
    throw std::system_error(errno, std::generic_category(), "keeping a rank to its cores");
}

} // namespace train_moe
