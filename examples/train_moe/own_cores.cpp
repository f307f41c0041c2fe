#include "own_cores.hpp"

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <vector>

#include <sched.h>

namespace train_moe {
namespace {

/// In ascending order. Main's, so that it is the same whoever asks: threads of ranks have kept to theirs.
std::vector<std::size_t> const& cores_of_process() {
  static std::vector<std::size_t> const cores = [] {
    cpu_set_t may{};
    if (::sched_getaffinity(0, sizeof may, &may) != 0)
      throw std::system_error(errno, std::generic_category(), "the cores of this process");
    std::vector<std::size_t> found;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &may)) found.push_back(core);
    return found;
  }();
  return cores;
}

} // namespace

int usable_cores() { return static_cast<int>(cores_of_process().size()); }

void keep_to_own_cores(int part, int parts, core_user user) {
  auto const& cores = cores_of_process();
  auto const share = [&](int of) {
    return static_cast<std::size_t>(of) * cores.size() / static_cast<std::size_t>(parts);
  };
  std::size_t first = share(part), end = share(part + 1);
  if (user == core_user::compute) end = first + 1;
  if (user == core_user::other && end - first > 1) ++first;
  cpu_set_t mine{};
  for (std::size_t at = first; at < end; ++at) CPU_SET(cores[at], &mine);
  if (::sched_setaffinity(0, sizeof mine, &mine) != 0)
    throw std::system_error(errno, std::generic_category(), "keeping a rank to its cores");
}

} // namespace train_moe
