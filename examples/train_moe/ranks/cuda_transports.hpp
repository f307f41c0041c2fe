#pragma once

#include "rank_transport.hpp"

#include <memory>

namespace train_moe {

// One source each. Whether the options go with it has been seen to.

/// Ranks are threads on one GPU: rows go through host memory, by copy engines.
std::unique_ptr<rank_transport> make_staged_transport(transport_parts const& of);

/// Ranks are threads, each on a GPU of its own or several on one: rows are pushed into each other's memory by copy engines.
std::unique_ptr<rank_transport> make_peer_transport(transport_parts const& of);
/// The same for ranks that are processes of one host.
std::unique_ptr<rank_transport> make_process_transport(transport_parts const& of);

/// Ranks are threads as over peers, and each keeps its rows.
std::unique_ptr<rank_transport> make_kept_transport(transport_parts const& of);

/// One GPU a rank: rows and messages go through NCCL.
std::unique_ptr<rank_transport> make_nccl_transport(transport_parts const& of);
/// Matrix products that this thread issues leave the other multiprocessors alone.
void use_multiprocessors(int count);
/// Whether this program is linked with NCCL.
bool has_nccl();

} // namespace train_moe
