#pragma once

#include "ranks/rank_rows.hpp"
#include "ranks/rank_types.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace train_moe {

/// Adds the gradients of replicated parameters up over the ranks, in rank order: where they are, so over `rows` if those of
/// this device go that way, and over `ranks` in host memory. Collective.
void reduce_replicated(std::vector<model_parameter> const& parameters, rank_communicator& ranks,
                       rank_rows& rows);

/// Norm of the gradient of the whole model: squares in the accumulators' type, sums in double, in the order of the layers
/// and experts of the whole model, so that the result does not depend on how they are spread over ranks. Collective over all
/// ranks.
double global_norm(std::vector<model_parameter> const& parameters, rank_communicator& ranks);

/// Hash of one gradient of one expert rank. Experts have one each.
struct gradient_hash {
  std::string name;
  int rank;
  std::uint64_t hash;
};
std::vector<gradient_hash> hash_gradients(std::vector<model_parameter> const& parameters, int rank);

/// Of all gradients of all ranks, in the order of their names and ranks: 16 hexadecimal digits.
std::string digest_of(std::vector<gradient_hash> hashes);

} // namespace train_moe
