#pragma once

#include "model/config.hpp"

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace train_moe {

/// Input that cannot be served: one sentence that says what is wrong and how to mend it.
struct input_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What ends a run on every rank alike: one sentence that says what happened and how to mend it.
struct run_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class policy : unsigned char { autograd, serial, two_stream_1f1b, split_dw };
inline constexpr policy all_policies[] = {policy::autograd, policy::serial, policy::two_stream_1f1b,
                                          policy::split_dw};
char const* name_of(policy which);

/// How ranks on GPUs reach each other. `usual`: staged for threads, nccl for processes. `none`: not at all, to see what a step
/// without communication takes.
enum class transport_kind : unsigned char { usual, staged, peer, nccl, none };

/// As they are given.
char const* name_of(transport_kind which);
char const* name_of(device_kind which);
char const* name_of(number_type which);

struct options;
/// That of `--attention`.
char const* name_of_attention(options const& o);
/// What `capacity` comes to, 0 if there is none. No expert needs more slots than there are tokens.
int slots_of(options const& o);

struct options {
  std::filesystem::path text;
  policy how = policy::split_dw;
  bool compare = false;

  int ep = 2;
  int pp = 1;
  std::string pipeline; ///< empty: the policy's own
  int chunks = 0; ///< of a pipeline rank; 0: the pipeline's own number
  int microbatches = 4;
  int steps = 200;
  int batch = 2; ///< sequences of one microbatch on one rank
  model_config model;
  /// Slots of an expert for the choices of one rank in a microbatch, to how many there would be if all experts were chosen
  /// equally often; 0: as many as there are choices.
  double capacity = 0;
  bool graph = false; ///< a step is captured once and then replayed
  bool repeatable = true; ///< otherwise gradients of attention may be summed in an order of chance

  transport_kind transport = transport_kind::usual; ///< on GPUs
  /// Thread blocks that an exchange of NCCL may take; 0: a usual number, of which compute knows nothing.
  int comm_ctas = 0;

  double learning_rate = 4e-3;
  double clip = 1.0;
  bool own_cores = false; ///< of each rank, where ranks are threads
  double link_gbps = 0;
  double link_us = 0;
  int deadline = 30; ///< seconds that a rank waits for another

  std::filesystem::path json;
  std::filesystem::path trace;
  std::filesystem::path svg;
  /// Whether somebody looks at the single ops of a step.
  bool shows_ops() const { return compare || !trace.empty() || !svg.empty(); }
};

/// How the ranks of a run on GPUs reach each other.
inline transport_kind transport_of(options const& o, bool are_processes) {
  if (o.transport != transport_kind::usual) return o.transport;
  return are_processes ? transport_kind::nccl : transport_kind::staged;
}

/// What to train, or nothing where the command line only asked for help, which has then been printed.
/// Throws `input_error`.
std::optional<options> parse_options(int argc, char const* const* argv);

} // namespace train_moe
