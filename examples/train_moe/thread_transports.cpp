#include "cuda_transports.hpp"
#include "device_rows.hpp"
#include "exchange_settings.hpp"

#include <cstring>
#include <memory>
#include <utility>

namespace train_moe {
namespace {

namespace cuda = stretto::cuda;
using stretto::torch_cuda::current_stream;
using stretto::torch_cuda::message_tensors;

/// Letters as messages of host memory: threads of one process need no more than the address. Those that a failed step has
/// left stay behind.
class letter_messages {
public:
  using tensor = cuda::letter<at::Tensor>;
  explicit letter_messages(stage_peers& over) : over_(over) {}

  void send(stretto::message const& about, tensor const& content) {
    auto held = std::make_unique<tensor>(content);
    tensor* const address = held.get();
    auto const bytes = at::empty({static_cast<std::int64_t>(sizeof address)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &address, sizeof address);
    over_.send(about, bytes);
    static_cast<void>(held.release());
  }
  tensor receive(stretto::message const& about) {
    tensor* address = nullptr;
    std::memcpy(&address, over_.receive(about).const_data_ptr(), sizeof address);
    return std::move(*std::unique_ptr<tensor>(address));
  }

private:
  stage_peers& over_;
};

class thread_peers : public stage_peers {
public:
  explicit thread_peers(stage_peers& hosts)
      : letters_(hosts), peers_(letters_, message_tensors{}, current_stream{}, cuda::hand_on_turn) {}
  void send(stretto::message const& about, at::Tensor const& content) override {
    peers_.send(about, content);
  }
  at::Tensor receive(stretto::message const& about) override { return peers_.receive(about); }

private:
  letter_messages letters_;
  cuda::peers<message_tensors, letter_messages, current_stream> peers_;
};

template <class Exchange> class thread_transport : public rank_transport {
public:
  explicit thread_transport(transport_parts const& of)
      : rows_(of.links.rows(), of.how == policy::autograd, current_stream{}, exchange_settings(of)),
        peers_(of.links.peers()) {}

  rank_rows& rows() override { return rows_; }
  stage_peers& peers() override { return peers_; }
  bool shares_capture() const override { return rows_.ranks() > 1; }

private:
  device_rows<Exchange> rows_;
  thread_peers peers_;
};

} // namespace

std::unique_ptr<rank_transport> make_staged_transport(transport_parts const& of) {
  return std::make_unique<thread_transport<cuda::staged_exchange<rank_communicator, current_stream>>>(of);
}

std::unique_ptr<rank_transport> make_peer_transport(transport_parts const& of) {
  return std::make_unique<thread_transport<cuda::peer_exchange<rank_communicator, current_stream>>>(of);
}

} // namespace train_moe
