#pragma once

namespace train_moe {

/// How gradients of attention are summed: in one order always, or, faster, in an order of chance, so that no two runs give
/// the same bits.
enum class attention_sums : unsigned char { repeatable, any_order };

/// Lets the model attend by cuDNN where sequences are long. Before the first run.
void use_gpu_attention(attention_sums how);

} // namespace train_moe
