#pragma once

namespace train_moe {

/// Lets the model run the kernels of this program, if it was built with any. Before the first run.
void use_kernels();

} // namespace train_moe
