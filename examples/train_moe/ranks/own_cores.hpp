#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <sched.h>

namespace train_moe {

/// Sets of cores side by side, as `sched_getaffinity` and CPU_SET_S take them where a machine has more cores than fit one set.
using core_set = std::vector<cpu_set_t>;
inline std::size_t bytes_of(core_set const& cores) { return cores.size() * sizeof(cpu_set_t); }

/// The numbers of the cores that `affinity` says, in ascending order; it is `sched_getaffinity` of this thread or stands for it,
/// and refuses a set that is smaller than what the machine may have. Throws `std::system_error`.
std::vector<std::size_t> cores_by(std::function<int(std::size_t bytes, cpu_set_t* cores)> const& affinity);

/// Room for the last of `cores`, which are in ascending order, and these in it.
core_set set_of(std::vector<std::size_t> const& cores);

/// The cores that this process may use.
int usable_cores();

/// A rank, or of its threads the one that computes, which has the first core of the share to itself, or another: cores of a machine
/// that is shared differ in speed, so that ops take the same time in all runs only where they keep to one.
enum class core_user { rank, compute, other };

/// The calling thread, and those that it starts from now on, keep to the share of part `part` of `parts`: the scheduler then never
/// puts two ranks on one core while another is idle. `parts` is at most `usable_cores()`; a share of one core is for all of a rank.
void keep_to_own_cores(int part, int parts, core_user user = core_user::rank);

} // namespace train_moe
