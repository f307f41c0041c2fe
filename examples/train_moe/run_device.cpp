#include "run_device.hpp"

#include "memory.hpp"
#include "ranks/own_cores.hpp"
#include "trainer.hpp"

#include <stretto/adapters/host/clock.hpp>
#include <stretto/adapters/torch/threads.hpp>

#include <stdexcept>
#include <string>

namespace train_moe {
namespace {

/// Rows and messages of host memory.
class host_transport : public rank_transport {
public:
  explicit host_transport(rank_links& links) : rows_(links.rows()), peers_(links.peers()) {}
  rank_rows& rows() override { return rows_; }
  stage_peers& peers() override { return peers_; }

private:
  timed_exchange<rank_communicator> rows_;
  stage_peers& peers_;
};

class cpu : public run_device {
public:
  void prepare(options const& o, std::optional<rank_place> const&) const override {
    if (o.own_cores && usable_cores() < 2 * o.ep * o.pp)
      throw input_error("--own-cores takes two cores a rank, and " + std::to_string(o.ep * o.pp) +
                        " ranks may use " + std::to_string(usable_cores()) +
                        "; lower --pp or --ep, or leave it out");
    count_tensor_memory();
  }
  void start_rank(options const& o, rank_place const& place) const override {
    stretto::torch::use_one_thread();
    if (o.own_cores) keep_to_own_cores(place.rank, o.pp * o.ep);
  }
  void finish() const override {}
  std::unique_ptr<rank_transport> make_transport(transport_parts const& of) const override {
    return std::make_unique<host_transport>(of.links);
  }
  std::unique_ptr<step_runner> make_step(policy how, step_parts const& of) const override {
    switch (how) {
    case policy::autograd:
      return make_autograd_step(of);
    case policy::serial:
      return make_serial_step(of);
    case policy::two_stream_1f1b:
      return make_two_stream_step(of);
    case policy::split_dw:
      break;
    }
    return make_split_step(of);
  }
  double now_us() const override { return stretto::host::now_us(); }
  std::size_t live_bytes() const override { return live_tensor_bytes(); }
  std::size_t peak_bytes() const override { return peak_tensor_bytes(); }
  void restart_peak() const override { train_moe::restart_peak(); }
};

} // namespace

run_device const& cpu_device() {
  static cpu const device;
  return device;
}
run_device const*& cuda_device() {
  static run_device const* device = nullptr;
  return device;
}
run_device const& device_of(device_kind device) {
  if (device == device_kind::cpu) return cpu_device();
  if (!cuda_device()) throw std::logic_error("this program is not linked with CUDA");
  return *cuda_device();
}

bool serves(device_kind device) { return device == device_kind::cpu || cuda_device(); }
void prepare(options const& o, std::optional<rank_place> const& place) {
  device_of(o.model.device).prepare(o, place);
}

} // namespace train_moe
