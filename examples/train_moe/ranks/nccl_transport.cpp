#include "../run_plan.hpp"
#include "cuda_transports.hpp"
#include "device_rows.hpp"
#include "plain_messages.hpp"

#include <stretto/adapters/host/failure.hpp>
#include <stretto/adapters/nccl.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace train_moe {
namespace {

namespace nccl = stretto::nccl;
using stretto::torch_cuda::current_stream;

using head_messages = plain_messages<nccl::message_head>;

class nccl_peers : public stage_peers {
public:
  nccl_peers(int pipeline_rank, stage_peers& hosts) : heads_(hosts), peers(pipeline_rank, heads_) {}
  void send(stretto::message const& about, at::Tensor const& content) override { peers.send(about, content); }
  at::Tensor receive(stretto::message const& about) override { return peers.receive(about); }

private:
  head_messages heads_;

public:
  nccl::peers<stretto::torch_cuda::message_tensors, head_messages, current_stream> peers;
};

class nccl_transport : public rank_transport {
public:
  explicit nccl_transport(transport_parts const& of)
      : all_(of.links.all()), session_(all_, settings_of(of)),
        watchdog_(session_, of.links.board(), of.place.rank),
        rows_(of.links.rows(), of.how == policy::autograd,
              connected(of.place.pipeline_rank(), rows_options(of.o.comm_ctas))),
        peers_(of.place.pipeline_rank(), of.links.peers()) {
    if (of.o.comm_ctas > 0) use_multiprocessors(nccl::sm_target(ctas_of_rows(of.o)));
    // Every route is one meeting of all ranks, in one order; those of all pipelines are made at once.
    for (auto const& each : routes_of(of.plan.facts())) {
      bool const sends = each.from == of.place.pipeline_rank(),
                 receives = each.to == of.place.pipeline_rank();
      // The sender is rank 0, wherever it stands.
      auto* const along =
          session_.split(sends || receives ? of.place.expert_rank() : -1, route_options, sends ? 0 : 1);
      if (along == nullptr) continue;
      along->connect(/*both_ways=*/false);
      peers_.peers.add(each, *along);
    }
  }

  rank_rows& rows() override { return rows_; }
  stage_peers& peers() override { return peers_; }
  /// A graph that waits for others on the GPU could keep memory from being made or mapped, which their captures take.
  void step_was_captured() override { all_.barrier(); }
  void step_was_launched() override {
    session_.entrance().calls.note("a captured step", current_stream{}.current());
  }

private:
  // A group without the own rows takes half of what it may; a message has little to carry and much time.
  static nccl::communicator_options rows_options(int given) {
    return {.most_ctas = given > 0 ? given : 16, .name = "rows"};
  }
  static constexpr nccl::communicator_options route_options{.most_ctas = 4, .name = "messages"};

  static nccl::session_options settings_of(transport_parts const& of) {
    return {std::chrono::seconds(of.o.deadline), [&board = of.links.board()] { return board.failed(); },
            std::chrono::seconds((std::max)(of.o.deadline, 60))};
  }
  /// As many rows as a microbatch has on average.
  int ctas_of_rows(options const& o) {
    auto const& m = o.model;
    int const each = o.batch * m.sequence * m.top_k / o.ep;
    std::vector<int> const rows(static_cast<std::size_t>(o.ep), each);
    auto const type =
        at::TensorOptions(at::kCUDA).dtype(m.type == number_type::bf16 ? at::kBFloat16 : at::kFloat);
    auto const out = at::empty({each * o.ep, m.hidden}, type), in = at::empty_like(out);
    auto& over = *rows_over_;
    nccl::side_stream stream;
    current_stream const current;
    auto const here = current.enter(stream.get());
    return over.ctas_of(
        [&](cudaStream_t) {
          rows_.all_to_all(out.data_ptr(), rows.data(), in.data_ptr(), rows.data(),
                           static_cast<std::size_t>(m.hidden * out.element_size()));
        },
        stream.get());
  }
  nccl::communicator& connected(int color, nccl::communicator_options const& how) {
    auto& made = *session_.split(color, how);
    made.connect();
    rows_over_ = &made;
    return made;
  }

  rank_communicator all_;
  nccl::session session_;
  nccl::communicator* rows_over_ = nullptr;
  nccl::watchdog<stretto::host::failure_board> watchdog_;
  device_rows<nccl::rows<rank_communicator, current_stream>> rows_;
  nccl_peers peers_;
};

} // namespace

std::unique_ptr<rank_transport> make_nccl_transport(transport_parts const& of) {
  try {
    return std::make_unique<nccl_transport>(of);
  } catch (nccl::error const& problem) {
    if (problem.code != ncclInvalidUsage) throw;
    std::string const text = problem.what();
    bool const may_share = text.find("NCCL_HOSTID=") != std::string::npos;
    throw input_error(text + (may_share ? ", as sh examples/launch.sh --share-gpu does" : ""));
  }
}

bool has_nccl() { return true; }

} // namespace train_moe
