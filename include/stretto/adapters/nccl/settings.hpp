#pragma once

#include <stretto/adapters/nccl/error.hpp>

#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" char** environ;

namespace stretto {
inline namespace v0 {
namespace nccl {

/// What of a rank decides whether NCCL can join it to others. Travels as text.
struct rank_settings {
  int header = NCCL_VERSION_CODE; ///< that the program was compiled with
  int loaded = 0; ///< that it runs with
  std::string process; ///< ranks of one process have the same
  std::string gpu; ///< of all GPUs on all machines
  std::string gpu_name; ///< for sentences
  int gpus = 0; ///< that this process sees
  std::string visible_gpus; ///< CUDA_VISIBLE_DEVICES
  std::string host_id; ///< NCCL_HOSTID: ranks with different ones are on different machines to NCCL
  std::map<std::string, std::string> variables; ///< NCCL_*, those that all ranks must set alike

  std::string text() const {
    std::ostringstream out;
    out << header << '\n' << loaded << '\n' << gpus << '\n';
    for (auto const* each : {&process, &gpu, &gpu_name, &visible_gpus, &host_id}) out << *each << '\n';
    for (auto const& [name, value] : variables) out << name << '=' << value << '\n';
    return out.str();
  }
  static rank_settings of_text(std::string const& text) {
    std::istringstream in(text);
    std::string line;
    auto const next = [&] { return std::getline(in, line) ? line : std::string(); };
    rank_settings found;
    for (auto* each : {&found.header, &found.loaded, &found.gpus}) *each = std::atoi(next().c_str());
    for (auto* each : {&found.process, &found.gpu, &found.gpu_name, &found.visible_gpus, &found.host_id})
      *each = next();
    while (std::getline(in, line))
      if (auto const equals = line.find('='); equals != std::string::npos)
        found.variables[line.substr(0, equals)] = line.substr(equals + 1);
    return found;
  }
};

/// `2.28.9`
inline std::string version_text(int code) {
  int const base = code < 10000 ? 1000 : 10000;
  return std::to_string(code / base) + "." + std::to_string(code % base / 100) + "." +
         std::to_string(code % 100);
}
constexpr int major_of(int version) { return version < 10000 ? version / 1000 : version / 10000; }

/// NCCL_* as this process has them, without those that are a rank's or a machine's own business.
inline std::map<std::string, std::string> shared_variables() {
  constexpr std::array own = {"NCCL_HOSTID",     "NCCL_DEBUG",         "NCCL_CONF_FILE", "NCCL_TOPO_",
                              "NCCL_GRAPH_DUMP", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA",    "NCCL_COMM_ID"};
  std::map<std::string, std::string> found;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    std::string const entry = *each;
    auto const equals = entry.find('=');
    if (entry.rfind("NCCL_", 0) != 0 || equals == std::string::npos) continue;
    bool is_own = false;
    for (char const* const prefix : own) is_own = is_own || entry.rfind(prefix, 0) == 0;
    auto value = entry.substr(equals + 1);
    for (char& letter : value)
      if (letter == '\n') letter = ' ';
    if (!is_own) found[entry.substr(0, equals)] = value;
  }
  return found;
}

/// A name of this process, by chance its own.
inline std::string const& process_name() {
  static std::string const name = [] {
    std::random_device chance;
    std::string made;
    for (int i = 0; i < 4; ++i) made += std::to_string(chance()) + ".";
    return made;
  }();
  return name;
}

/// Of this process and its current GPU.
inline rank_settings settings_here() {
  rank_settings mine;
  check(ncclGetVersion(&mine.loaded), "ncclGetVersion");
  mine.process = process_name();
  int device = 0;
  check(cudaGetDeviceCount(&mine.gpus), "cudaGetDeviceCount");
  check(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp facts{};
  check(cudaGetDeviceProperties(&facts, device), "cudaGetDeviceProperties");
  constexpr char const* digits = "0123456789abcdef";
  for (char const each : facts.uuid.bytes) {
    mine.gpu += digits[static_cast<unsigned char>(each) / 16];
    mine.gpu += digits[static_cast<unsigned char>(each) % 16];
  }
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
  mine.gpu_name = std::string(facts.name) + " at " + bus.data();
  if (char const* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) mine.visible_gpus = visible;
  if (char const* const id = std::getenv("NCCL_HOSTID")) mine.host_id = id;
  mine.variables = shared_variables();
  return mine;
}

namespace detail {

inline std::string value_of(rank_settings const& of, std::string const& variable) {
  auto const found = of.variables.find(variable);
  return found == of.variables.end() ? "does not set it" : "has '" + found->second.substr(0, 60) + "'";
}

inline std::string different_variable(std::vector<rank_settings> const& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    for (auto const* side : {&ranks[rank], &ranks[0]})
      for (auto const& [name, value] : side->variables)
        if (value_of(ranks[rank], name) != value_of(ranks[0], name))
          return name + " differs: rank 0 " + value_of(ranks[0], name) + ", rank " + std::to_string(rank) +
                 " " + value_of(ranks[rank], name) + "; give all ranks one environment";
  return {};
}

inline std::string shared_gpu(std::vector<rank_settings> const& ranks) {
  for (std::size_t b = 1; b < ranks.size(); ++b)
    for (std::size_t a = 0; a < b; ++a) {
      auto const &first = ranks[a], &second = ranks[b];
      if (first.gpu != second.gpu) continue;
      std::string const both = "ranks " + std::to_string(a) + " and " + std::to_string(b) +
                               " are both on the GPU " + second.gpu_name +
                               ", and NCCL takes one rank a GPU: ";
      if (first.process == second.process)
        return both + "give each a GPU of its own, or make them processes, which may share one";
      // NCCL would not talk over its network between ranks that it finds on one machine.
      if (first.host_id.empty() || second.host_id.empty() || first.host_id == second.host_id)
        return both + "give each a GPU of its own (rank " + std::to_string(b) + " sees " +
               std::to_string(second.gpus) +
               (second.visible_gpus.empty() ? std::string()
                                            : ", since CUDA_VISIBLE_DEVICES is " + second.visible_gpus) +
               "), or let them share it: set NCCL_HOSTID=<rank> NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo";
    }
  return {};
}

} // namespace detail

/// Why NCCL cannot join these ranks, as one sentence with the remedy; empty if it can. The same on every rank.
inline std::string problem_among(std::vector<rank_settings> const& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    auto const& one = ranks[rank];
    auto const who = "rank " + std::to_string(rank);
    if (major_of(one.loaded) != major_of(one.header) || one.loaded < one.header)
      return who + " runs with NCCL " + version_text(one.loaded) + " and was compiled with " +
             version_text(one.header) +
             "; put the library that goes with the header first in LD_LIBRARY_PATH";
    if (one.loaded != ranks[0].loaded)
      return who + " runs with NCCL " + version_text(one.loaded) + " and rank 0 with " +
             version_text(ranks[0].loaded) + "; give all ranks one version";
  }
  auto const different = detail::different_variable(ranks);
  return different.empty() ? detail::shared_gpu(ranks) : different;
}

} // namespace nccl
} // namespace v0
} // namespace stretto
