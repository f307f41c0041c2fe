#pragma once

#include "ranks/rank_transport.hpp"
#include "ranks/rank_types.hpp"
#include "steps/step_runner.hpp"

#include <cstddef>
#include <memory>
#include <optional>

namespace train_moe {

/// What of a run depends on where its tensors lie.
class run_device {
public:
  virtual ~run_device() = default;
  /// Before the first run; `place` is that of a process, nothing where the ranks are threads. Throws `input_error` if this
  /// machine cannot serve it.
  virtual void prepare(options const& o, std::optional<rank_place> const& place) const = 0;
  /// On the thread of a rank, before anything else.
  virtual void start_rank(options const& o, rank_place const& place) const = 0;
  /// Returns when the device has done what this thread gave it.
  virtual void finish() const = 0;
  virtual std::unique_ptr<rank_transport> make_transport(transport_parts const& of) const = 0;
  /// What multiplies the rows of experts.
  virtual expert_linears expert_linear() const { return expert_linears_of_torch; }
  virtual std::unique_ptr<step_runner> make_step(policy how, step_parts const& of) const = 0;
  /// What the time of its ops is measured from, as `host::now_us`.
  virtual double now_us() const = 0;
  /// Of all tensors of all ranks of this process.
  virtual std::size_t live_bytes() const = 0;
  virtual std::size_t peak_bytes() const = 0;
  virtual void restart_peak() const = 0;
};

run_device const& cpu_device();
/// Null in programs that are not linked with CUDA: those that are set it before `main`.
run_device const*& cuda_device();

run_device const& device_of(device_kind device);

} // namespace train_moe
