#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// What a program should look at before its first lane.
struct machine {
  cudaError_t problem = cudaSuccess; ///< of asking for the GPUs
  int gpus = 0;
  int driver =
      0; ///< the newest CUDA that the driver serves, 1000 * major + 10 * minor; 0: there is no driver
  int runtime = 0; ///< the CUDA that the program was built for
};

inline machine look_at_machine() {
  machine found;
  found.problem = cudaGetDeviceCount(&found.gpus);
  // Else a later call would find it again.
  static_cast<void>(cudaGetLastError());
  static_cast<void>(cudaDriverGetVersion(&found.driver));
  static_cast<void>(cudaRuntimeGetVersion(&found.runtime));
  return found;
}

namespace detail {

inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

} // namespace detail

/// Why nothing can run on `gpus` GPUs, with the remedy; empty if it can.
inline std::string why_not_ready(machine const& here, int gpus = 1) {
  auto const built_for = "this program was built for CUDA " + detail::version_text(here.runtime);
  if (here.driver == 0)
    return built_for + " and there is no NVIDIA driver; install one, or run where there is a GPU";
  if (here.problem == cudaErrorInsufficientDriver)
    return built_for + " and the driver serves " + detail::version_text(here.driver) +
           " at most; install a newer driver, or build with an older CUDA toolkit";
  if (here.problem == cudaErrorNoDevice || (here.problem == cudaSuccess && here.gpus == 0)) {
    char const* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return std::string("there is no GPU that CUDA can use") +
           (visible ? std::string("; CUDA_VISIBLE_DEVICES is '") + visible + "': name one, or unset it"
                    : std::string("; look at nvidia-smi"));
  }
  if (here.problem != cudaSuccess)
    return std::string("CUDA does not start: ") + cudaGetErrorString(here.problem) + " (" +
           cudaGetErrorName(here.problem) + "); look at nvidia-smi";
  if (here.gpus < gpus)
    return std::to_string(gpus) + " GPUs are asked for and there " +
           (here.gpus == 1 ? "is 1" : "are " + std::to_string(here.gpus)) + "; ask for fewer";
  return {};
}

/// What is wrong with `setting`, the text of CUDA_DEVICE_MAX_CONNECTIONS or null, for a process that uses so many streams of a
/// GPU; empty if nothing is. Streams that share one of its hardware queues wait for each other. Without the variable there
/// are 8 queues, and never more than 32.
inline std::string why_lanes_serialize(char const* setting, int streams) {
  int queues = 8;
  if (setting) {
    auto const [end, problem] = std::from_chars(setting, setting + std::strlen(setting), queues);
    if (problem != std::errc{} || *end != '\0' || queues < 1)
      return std::string("CUDA_DEVICE_MAX_CONNECTIONS is '") + setting +
             "', which is no number from 1 to 32; set it to 32";
  }
  if (queues >= streams || queues >= 32) return {};
  return "CUDA_DEVICE_MAX_CONNECTIONS is " +
         (setting ? std::to_string(queues) : std::string("not set, so 8")) +
         ", and with fewer queues than the " + std::to_string(streams) +
         " streams lanes wait for each other; set it to 32 before the program starts";
}

} // namespace cuda
} // namespace v0
} // namespace stretto
