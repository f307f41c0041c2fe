#include "cuda_transports.hpp"
#include "device_rows.hpp"
#include "exchange_settings.hpp"
#include "plain_messages.hpp"

#include <stretto/adapters/cuda/process_exchange.hpp>
#include <stretto/adapters/cuda/process_peers.hpp>

namespace train_moe {
namespace {

namespace cuda = stretto::cuda;
using stretto::torch_cuda::current_stream;
using stretto::torch_cuda::message_tensors;

class process_peers : public stage_peers {
public:
  process_peers(rank_communicator all, stage_peers& hosts, cuda::exchange_options const& settings)
      : letters_(hosts), peers_(all, letters_, message_tensors{}, current_stream{}, settings) {}
  void send(stretto::message const& about, at::Tensor const& content) override {
    peers_.send(about, content);
  }
  at::Tensor receive(stretto::message const& about) override { return peers_.receive(about); }

private:
  using letters = plain_messages<cuda::process_letter>;
  letters letters_;
  cuda::process_peers<message_tensors, letters, current_stream> peers_;
};

class process_transport : public rank_transport {
public:
  explicit process_transport(transport_parts const& of)
      : all_(of.links.all()),
        rows_(of.links.rows(), of.how == policy::autograd, current_stream{}, exchange_settings(of)) {
    if (of.place.pp > 1)
      peers_ = std::make_unique<process_peers>(of.links.all(), of.links.peers(), exchange_settings(of));
    else
      peers_ = std::make_unique<no_stage_peers>();
  }

  rank_rows& rows() override { return rows_; }
  stage_peers& peers() override { return *peers_; }
  /// A graph that waits for others on the GPU could keep memory from being made or mapped, which their captures take.
  void step_was_captured() override { all_.barrier(); }
  void step_was_launched() override { rows_.exchange().note_launch(); }

private:
  rank_communicator all_;
  device_rows<cuda::process_exchange<rank_communicator, current_stream>> rows_;
  std::unique_ptr<stage_peers> peers_;
};

} // namespace

std::unique_ptr<rank_transport> make_process_transport(transport_parts const& of) {
  try {
    return std::make_unique<process_transport>(of);
  } catch (cuda::no_peer_access const& problem) {
    throw input_error(std::string("--comm peer: ") + problem.what() + "; say --comm nccl");
  }
}

} // namespace train_moe
