#pragma once

namespace train_moe {

/// The cores that this process may use.
int usable_cores();

/// The calling thread, and those that it starts from now on, keep to the share of part `part` of `parts`: the scheduler then never
/// puts two ranks on one core while another is idle. `parts` is at most `usable_cores()`.
void keep_to_own_cores(int part, int parts);

} // namespace train_moe
