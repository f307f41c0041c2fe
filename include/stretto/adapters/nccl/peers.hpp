#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/nccl/communicator.hpp>
#include <stretto/detail/landings.hpp>
#include <stretto/message_tensors.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// What goes ahead of a message by way of the hosts.
struct message_head {
  message about{};
  bool is_there = false; ///< false: an empty tensor, of which nothing follows
  tensor_head content{};
};

/// Messages between pipeline ranks by NCCL: a `peer_adapter` for tensors in device memory. `Heads` is a `peer_adapter` over
/// the hosts of the same ranks whose tensors are `message_head`s (`host::peers<message_head>`, say): a receive waits on the host
/// until the send has been issued, never until its elements are there. Elements are received on the current stream
/// (`Current`). What is sent is copied there and leaves on a stream of its route, so that a send never waits for its receive and
/// its storage may go back right behind it.
template <message_tensors Tensors, peer_adapter Heads, stream_source Current> class peers {
public:
  using tensor = typename Tensors::tensor;

  /// `rank` is the own one in the pipeline.
  peers(int rank, Heads& heads, Tensors tensors = {}, Current current = {})
      : rank_(rank), heads_(heads), tensors_(std::move(tensors)), current_(std::move(current)) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = device;
    check(cudaMemPoolCreate(&pool_.handle, &wanted), "cudaMemPoolCreate");
    auto keep = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool_.handle, cudaMemPoolAttrReleaseThreshold, &keep),
          "cudaMemPoolSetAttribute");
    // Else taking memory could make a lane wait for a send that waits for its receive.
    int never = 0;
    check(cudaMemPoolSetAttribute(pool_.handle, cudaMemPoolReuseAllowInternalDependencies, &never),
          "cudaMemPoolSetAttribute");
  }
  peers(peers const&) = delete;
  peers& operator=(peers const&) = delete;
  /// When everything that was sent has left.
  ~peers() = default;

  /// Before the first message, each route with a communicator of its own. In `over` rank 0 sends and rank 1 receives.
  void add(message_route const& along, communicator& over) { ways_.try_emplace(along, over); }

  void send(message const& about, tensor const& content) {
    way& to = way_of({rank_, about.peer, about.gradient});
    message_head head{.about = about};
    tensor const sent = tensors_.is_empty(content) ? tensor{} : tensors_.contiguous(content);
    if (!tensors_.is_empty(sent)) {
      tensors_.describe(sent, head.content);
      head.is_there = true;
    }
    heads_.send(to.next(about), head);
    if (head.content.bytes == 0) return;
    cudaStream_t const here = current_.current();
    void* copy = nullptr;
    auto const bytes = head.content.bytes;
    check(cudaMallocFromPoolAsync(&copy, bytes, pool_.handle, here), "cudaMallocFromPoolAsync");
    check(cudaMemcpyAsync(copy, tensors_.data(sent), bytes, cudaMemcpyDeviceToDevice, here),
          "cudaMemcpyAsync");
    if (about.gradient) to.keep(sent, here);
    to.ordered.order(here, to.stream.get());
    to.over.group("send", to.stream.get(), [&](ncclComm_t comm) {
      check(ncclSend(copy, bytes, ncclUint8, 1, comm, to.stream.get()), "ncclSend");
    });
    check(cudaFreeAsync(copy, to.stream.get()), "cudaFreeAsync");
  }

  tensor receive(message const& about) {
    way& from = way_of({about.peer, rank_, about.gradient});
    for (auto each = from.early.begin(); each != from.early.end(); ++each)
      if (is_same(each->first, about)) {
        tensor found = std::move(each->second);
        from.early.erase(each);
        return found;
      }
    for (;;) {
      message_head const head = heads_.receive(from.next(about));
      tensor content = head.is_there ? fetch(from, head.content) : tensor{};
      if (is_same(head.about, about)) return content;
      from.early.emplace_back(head.about, std::move(content));
    }
  }

private:
  struct memory_pool {
    memory_pool() = default;
    memory_pool(memory_pool const&) = delete;
    memory_pool& operator=(memory_pool const&) = delete;
    ~memory_pool() {
      if (handle) static_cast<void>(cudaMemPoolDestroy(handle));
    }
    cudaMemPool_t handle = nullptr;
  };
  using landings = stretto::detail::landings<tensor, tensor_head, mark>;

  struct way {
    explicit way(communicator& along) : over(along) {}

    /// Heads of a route come in the order of its sends, whatever is asked for first: they are called by their number.
    message next(message const& about) {
      number = (number + 1) % (1 << 20);
      return {about.gradient, 0, number, 0, about.peer};
    }

    /// A gradient is dropped right behind its send, and its memory belongs to another lane: it stays until it is copied.
    void keep(tensor const& sent, cudaStream_t here) {
      while (!kept.empty() && kept.front().copied->is_over()) kept.pop_front();
      kept.push_back({sent, std::make_unique<mark>()});
      kept.back().copied->record(here);
    }
    struct kept_tensor {
      tensor sent;
      std::unique_ptr<mark> copied;
    };

    communicator& over;
    std::deque<kept_tensor> kept{};
    side_stream stream{};
    mark ordered{};
    int number = 0;
    std::deque<std::pair<message, tensor>> early{}; ///< came before they were asked for
  };

  static bool is_same(message const& a, message const& b) {
    return a.gradient == b.gradient && a.stage == b.stage && a.microbatch == b.microbatch &&
           a.chain == b.chain;
  }

  tensor fetch(way& from, tensor_head const& head) {
    if (head.bytes == 0) return tensors_.make(head);
    cudaStream_t const here = current_.current();
    tensor const content = landings_->land(
        tensors_, head, here, 0, [current = current_](auto& place) { place.left.record(current.current()); });
    from.over.group("receive", here, [&](ncclComm_t comm) {
      check(ncclRecv(tensors_.data(content), head.bytes, ncclUint8, 0, comm, here), "ncclRecv");
    });
    return content;
  }

  way& way_of(message_route const& along) {
    auto const found = ways_.find(along);
    if (found == ways_.end())
      throw std::logic_error("nccl::peers has no communicator from rank " + std::to_string(along.from) +
                             " to rank " + std::to_string(along.to));
    return found->second;
  }

  int rank_;
  Heads& heads_;
  Tensors tensors_;
  Current current_;
  memory_pool pool_;
  std::shared_ptr<landings> landings_ = std::make_shared<landings>();
  std::map<message_route, way> ways_;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
