#include "cuda_transports.hpp"
#include "device_rows.hpp"
#include "exchange_settings.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
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

/// In place of an exchange of rows a copy of as many bytes on the same GPU: what a step takes without communication. Counts
/// are exchanged, so that the experts' work is the same.
class kept_rows {
public:
  static constexpr bool capturable = true;

  kept_rows(rank_communicator between, current_stream, cuda::exchange_options const&) : between_(between) {}
  int rank() const { return between_.rank(); }
  int ranks() const { return between_.ranks(); }
  void exchange_counts(int const* send_rows, int* counts) { between_.exchange_counts(send_rows, counts); }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    all_to_all_parts(send, send_rows, receive, receive_rows, row_bytes, 1, true);
  }
  static constexpr bool moves_parts() { return true; }
  void all_to_all_parts(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                        std::size_t row_bytes, int parts, bool /*sorted*/) {
    auto const bytes_of = [&](int const* rows) {
      return row_bytes * std::accumulate(rows, rows + ranks() * parts, std::size_t{0});
    };
    auto const given = bytes_of(send_rows), wanted = bytes_of(receive_rows);
    auto* const to = static_cast<std::byte*>(receive);
    auto const here = current_stream{}.current();
    if (given == 0) cuda::check(cudaMemsetAsync(to, 0, wanted, here), "cudaMemsetAsync");
    // Again from the start where more should come than is there.
    for (std::size_t at = 0; given > 0 && at < wanted; at += given)
      cuda::check(
          cudaMemcpyAsync(to + at, send, std::min(given, wanted - at), cudaMemcpyDeviceToDevice, here),
          "cudaMemcpyAsync");
  }

private:
  rank_communicator between_;
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

std::unique_ptr<rank_transport> make_kept_transport(transport_parts const& of) {
  return std::make_unique<thread_transport<kept_rows>>(of);
}

} // namespace train_moe
