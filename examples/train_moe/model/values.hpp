#pragma once

#include "row_way.hpp"

#include <stretto/value.hpp>

namespace train_moe {

struct hidden : stretto::value {}; ///< [tokens, hidden], between layers
struct residual : stretto::value {}; ///< [tokens, hidden], what the experts' output is added to
struct weights : stretto::value {}; ///< [tokens, top_k], of the chosen experts; without a gradient
/// [sorted rows, 1], the logarithms of these weights. Their gradient comes from the experts, as if rows were weighed there: it is
/// made of what the experts' products have anyway, and no row that came back is kept for it.
struct log_weights : stretto::value {};
struct sorted_rows : stretto::value {}; ///< [tokens * top_k or all slots, hidden], by expert
struct arrived_rows : stretto::value {}; ///< [rows from all ranks, hidden], by local expert and source rank
struct arrived_log_weights : stretto::value {}; ///< [arrived rows, 1], for the gradient: no content
struct expert_rows : stretto::value {}; ///< the same places, after the experts
struct loss : stretto::objective {}; ///< this microbatch's share of the step's mean loss

/// Where the router sends rows.
struct routing : stretto::metadata {
  using type = row_way;
};

/// What the exchange knows after the dispatch.
template <class Comm> struct exchange : stretto::metadata { using type = typename Comm::handle; };

} // namespace train_moe
