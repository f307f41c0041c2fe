#include "cuda_transports.hpp"
#include "device_rows.hpp"
#include "exchange_settings.hpp"

#include <stretto/adapters/cuda/process_exchange.hpp>

namespace train_moe {
namespace {

using stretto::torch_cuda::current_stream;

class process_transport : public rank_transport {
public:
  explicit process_transport(transport_parts const& of)
      : rows_(of.links.rows(), of.how == policy::autograd, current_stream{}, exchange_settings(of)) {}

  rank_rows& rows() override { return rows_; }
  /// There is one pipeline rank.
  stage_peers& peers() override { return peers_; }

private:
  device_rows<stretto::cuda::process_exchange<rank_communicator, current_stream>> rows_;
  no_stage_peers peers_;
};

} // namespace

std::unique_ptr<rank_transport> make_process_transport(transport_parts const& of) {
  return std::make_unique<process_transport>(of);
}

} // namespace train_moe
