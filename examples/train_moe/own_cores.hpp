#pragma once

namespace train_moe {

/// The cores that this process may use.
int usable_cores();

/// A rank, or of its threads the one that computes, which has the first core of the share to itself, or another: cores of a machine
/// that is shared differ in speed, so that ops take the same time in all runs only where they keep to one.
enum class core_user { rank, compute, other };

/// The calling thread, and those that it starts from now on, keep to the share of part `part` of `parts`: the scheduler then never
/// puts two ranks on one core while another is idle. `parts` is at most `usable_cores()`; a share of one core is for all of a rank.
void keep_to_own_cores(int part, int parts, core_user user = core_user::rank);

} // namespace train_moe
