#pragma once

#include <cuda_runtime_api.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace layer_pairs {

/// Clock and power of a GPU while something runs, by the management library of the driver; nothing where it is missing.
class power_watch {
public:
  struct summary {
    int samples = 0;
    double median_mhz = 0, least_mhz = 0, most_mhz = 0;
    double median_watts = 0, most_watts = 0;
    double capped_part = 0; ///< of the samples: the clock was held down by the power cap
  };

  explicit power_watch(int device) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    char address[32] = {};
    if (!library_ || cudaDeviceGetPCIBusId(address, sizeof address, device) != cudaSuccess) return;
    auto const start = find<int (*)()>("nvmlInit_v2");
    auto const open = find<int (*)(char const*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    clock_ = find<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    power_ = find<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
    reasons_ = find<int (*)(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!start || !open || !clock_ || !power_ || !reasons_ || start() != 0 || open(address, &gpu_) != 0)
      return;
    thread_ = std::thread([this] {
      while (!stops_) {
        sample();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }
  power_watch(power_watch const&) = delete;
  power_watch& operator=(power_watch const&) = delete;
  ~power_watch() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// Of the time since the last call.
  summary take() {
    std::vector<one> all;
    {
      std::lock_guard const lock(mutex_);
      all.swap(samples_);
    }
    summary sum;
    sum.samples = static_cast<int>(all.size());
    if (all.empty()) return sum;
    auto const by = [&](double one::*what, double part) {
      std::sort(all.begin(), all.end(), [&](one const& a, one const& b) { return a.*what < b.*what; });
      return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))].*what;
    };
    sum.least_mhz = by(&one::mhz, 0), sum.median_mhz = by(&one::mhz, 0.5), sum.most_mhz = by(&one::mhz, 1);
    sum.median_watts = by(&one::watts, 0.5), sum.most_watts = by(&one::watts, 1);
    for (auto const& each : all) sum.capped_part += each.capped / static_cast<double>(all.size());
    return sum;
  }

private:
  struct one {
    double mhz, watts, capped;
  };
  static constexpr int multiprocessor_clock = 1;
  static constexpr unsigned long long power_cap = 4;

  template <class Function> Function find(char const* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void sample() {
    unsigned mhz = 0, milliwatts = 0;
    unsigned long long reasons = 0;
    if (clock_(gpu_, multiprocessor_clock, &mhz) != 0 || power_(gpu_, &milliwatts) != 0 ||
        reasons_(gpu_, &reasons) != 0)
      return;
    std::lock_guard const lock(mutex_);
    samples_.push_back({static_cast<double>(mhz), milliwatts * 1e-3, (reasons & power_cap) != 0 ? 1.0 : 0.0});
  }

  void* library_ = nullptr;
  void* gpu_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  std::atomic<bool> stops_{false};
  std::mutex mutex_;
  std::vector<one> samples_;
  std::thread thread_;
};

} // namespace layer_pairs
