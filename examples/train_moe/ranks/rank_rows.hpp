#pragma once

#include <cstddef>
#include <stdexcept>

namespace train_moe {

/// Rows between the ranks of a run, wherever its tensors lie: one type, so that there is one model for every device.
class rank_rows {
public:
  virtual ~rank_rows() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void exchange_counts(int const* send_rows, int* counts) = 0;
  virtual void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                          std::size_t row_bytes) = 0;
  /// See `stretto::torch::part_exchange`.
  virtual bool moves_parts() const { return false; }
  virtual void all_to_all_parts(void const* /*send*/, int const* /*send_rows*/, void* /*receive*/,
                                int const* /*receive_rows*/, std::size_t /*row_bytes*/, int /*parts*/,
                                bool /*sorted*/) {
    throw std::logic_error("this exchange moves no parts of rows");
  }
  virtual bool rows_on_device() const = 0;
  /// Whether a call may be captured into a graph as long as its counts stay the same.
  virtual bool capturable() const { return false; }
  /// The exchange of host memory among the same ranks.
  virtual rank_rows& host() = 0;
  /// How long its calls took, as far as that is measured. Read it while no call is in progress.
  virtual double seconds() = 0;
};

} // namespace train_moe
