#include "cuda_transports.hpp"
#include "device_rows.hpp"

namespace train_moe {
namespace {

class staged_transport : public rank_transport {
public:
  explicit staged_transport(transport_parts const& of) : rows_(of.links.rows(), of.how == policy::autograd) {}

  rank_rows& rows() override { return rows_; }
  /// There is one pipeline rank.
  stage_peers& peers() override { return peers_; }

private:
  device_rows<stretto::cuda::staged_exchange<rank_communicator, stretto::torch_cuda::current_stream>> rows_;
  no_stage_peers peers_;
};

} // namespace

std::unique_ptr<rank_transport> make_staged_transport(transport_parts const& of) {
  return std::make_unique<staged_transport>(of);
}

} // namespace train_moe
