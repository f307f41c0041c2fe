#pragma once

#include <stretto/adapters/nccl/communicator.hpp>
#include <stretto/adapters/nccl/host_exchange.hpp>
#include <stretto/adapters/nccl/settings.hpp>
#include <stretto/detail/waiting_time.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace nccl {

struct session_options {
  /// How long a call may take from when it is issued.
  stretto::detail::waiting_milliseconds deadline = std::chrono::seconds(30);
  /// Whether the ranks have failed otherwise; asked while one waits for others.
  std::function<bool()> given_up{};
  /// How long ranks wait for each other to be joined and connected, which lasts where a GPU is shared.
  stretto::detail::waiting_milliseconds joining = std::chrono::seconds(120);
};

/// One rank's part in NCCL: all of its communicators, which are made together and given up together. It belongs to the device
/// that was current when it was made. Nothing of NCCL blocks without a deadline: the ranks are joined by a communicator
/// that does not block, and those that carry rows are split from it. Those block, since a call of one that does not starts a
/// thread (nccl 2.28: group.cc).
class session {
public:
  /// Collective over `ranks`, an exchange of host memory, of which it keeps a copy. Throws `error` with one sentence, on every
  /// rank, where NCCL cannot join them as they are: see `problem_among`.
  template <host_exchange Host>
  explicit session(Host& ranks, session_options options = {})
      : options_(std::move(options)), gate_(options_.deadline, options_.joining), rank_(ranks.rank()) {
    check(cudaGetDevice(&device_), "cudaGetDevice");
    gather_ = [ranks](std::string const& mine) mutable { return gather_texts(ranks, mine); };
    std::vector<rank_settings> all;
    for (auto const& each : gather_(settings_here().text())) all.push_back(rank_settings::of_text(each));
    if (auto const problem = problem_among(all); !problem.empty()) throw error(problem);
    ncclUniqueId id{};
    if (rank_ == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::vector<ncclUniqueId> ids(all.size());
    ranks.all_gather(&id, 1, ids.data());
    auto config = config_of({});
    config.blocking = 0;
    check(ncclCommInitRankConfig(&root_, ranks.ranks(), ids[0], rank_, &config), "ncclCommInitRankConfig");
    try {
      wait_until_ready("ncclCommInitRankConfig");
    } catch (...) {
      abort("the ranks could not be joined");
      throw;
    }
  }
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  /// After the last call of all ranks has ended.
  ~session() {
    // Ranks that fail do not wait for each other.
    if (std::uncaught_exceptions() > exceptions_) abort("the rank has failed");
    if (aborted_.exchange(true)) return;
    gate_.close("the session has ended");
    auto const ended = apart([all = handles()] {
      for (auto const each : all) static_cast<void>(ncclCommDestroy(each));
    });
    static_cast<void>(ended.wait_for(options_.deadline));
  }

  int rank() const noexcept { return rank_; }
  int device() const noexcept { return device_; }
  gate& entrance() noexcept { return gate_; }

  /// Collective over all ranks of the session: ranks that say the same `color` get a communicator, in the order of `key` and
  /// among equals of their ranks. Null for those that say a negative color.
  communicator* split(int color, communicator_options const& options = {}, int key = 0) {
    require_same(gather_(std::to_string(color) + " " + options.text()));
    auto config = config_of(options);
    auto& made = [this]() -> ncclComm_t& {
      std::lock_guard const lock(list_mutex_);
      return made_->emplace_back(nullptr);
    }();
    // Until it is in the list, so that nobody frees it meanwhile.
    gate::pass const inside(gate_, "ncclCommSplit", options_.joining);
    check(ncclCommSplit(root_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &made, &config), "ncclCommSplit");
    wait_until_ready("ncclCommSplit");
    if (color < 0) return nullptr;
    if (made == nullptr) throw error("ncclCommSplit made no communicator", ncclInternalError);
    std::lock_guard const lock(list_mutex_);
    return &communicators_.emplace_back(gate_, options_.given_up, made);
  }

  /// What NCCL has noticed by itself, such as a connection that closed; `ncclSuccess` if nothing. Any thread.
  ncclResult_t noticed() {
    std::lock_guard const lock(list_mutex_);
    // Behind the lock: `abort` closes the gate before it frees them.
    if (!gate_.is_open()) return ncclSuccess;
    for (auto const& each : communicators_)
      if (auto const found = state_of(each.handle()); found != ncclSuccess && found != ncclInProgress)
        return found;
    return ncclSuccess;
  }

  /// Ends every call of every communicator of this rank, so that streams become idle; they are of no use after. Any
  /// thread, and once. Flags of all are set before the first is waited for, since calls of one may stand behind those of another.
  void abort(std::string why) {
    gate_.close(std::move(why));
    if (aborted_.exchange(true)) return;
    auto const alone = std::make_shared<std::promise<void>>();
    auto const ended = apart([all = handles(), nobody_inside = alone->get_future().share()] {
      static_cast<void>(ncclGroupStart());
      for (auto const each : all) static_cast<void>(ncclCommAbort(each));
      nobody_inside.wait();
      static_cast<void>(ncclGroupEnd());
    });
    constexpr std::chrono::seconds patience(5);
    gate_.wait_until_empty(patience);
    alone->set_value();
    static_cast<void>(ended.wait_for((std::min<std::chrono::milliseconds>)(options_.deadline, patience)));
  }

private:
  std::vector<ncclComm_t> handles() {
    std::lock_guard const lock(list_mutex_);
    std::vector<ncclComm_t> all;
    for (auto each = made_->rbegin(); each != made_->rend(); ++each)
      if (auto const comm = std::atomic_ref(*each).load(); comm != nullptr) all.push_back(comm);
    return all;
  }

  /// NCCL frees communicators when the ranks that it was connected to have closed their side and graphs with its calls are
  /// gone: for a rank that has stopped it would wait for ever. What has not ended in time is left to the end of the process.
  template <class Work> std::future<void> apart(Work work) const {
    auto const promised = std::make_shared<std::promise<void>>();
    auto ended = promised->get_future();
    std::thread([work = std::move(work), device = device_, promised, kept = made_] {
      static_cast<void>(cudaSetDevice(device));
      work();
      promised->set_value();
    }).detach();
    return ended;
  }

  static ncclConfig_t config_of(communicator_options const& options) {
    if (options.most_ctas < 0 || (options.most_ctas & (options.most_ctas - 1)) != 0)
      throw error("communicator_options::most_ctas is " + std::to_string(options.most_ctas) +
                  " and must be a power of two or 0: NCCL would take the next one above");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (options.most_ctas > 0) config.maxCTAs = options.most_ctas;
    if (options.cluster_size > 0) config.cgaClusterSize = options.cluster_size;
    config.commName = options.name;
    return config;
  }

  /// Ranks of one color with different options would not find together.
  static void require_same(std::vector<std::string> const& all) {
    auto const color_of = [](std::string const& text) { return text.substr(0, text.find(' ')); };
    for (std::size_t b = 1; b < all.size(); ++b)
      for (std::size_t a = 0; a < b; ++a)
        if (color_of(all[a]) == color_of(all[b]) && all[a] != all[b] && all[a][0] != '-')
          throw error("ranks " + std::to_string(a) + " and " + std::to_string(b) +
                      " ask for different communicators: " + all[a].substr(all[a].find(' ') + 1) + " and " +
                      all[b].substr(all[b].find(' ') + 1) + "; give all ranks of one color the same options");
  }

  static ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t found = ncclSuccess;
    auto const asked = ncclCommGetAsyncError(comm, &found);
    return asked == ncclSuccess ? found : asked;
  }

  void wait_until_ready(char const* what) {
    auto const end = clock::now() + options_.joining;
    for (;;) {
      auto const state = state_of(root_);
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) check(state, what);
      gate_.require_open();
      if (options_.given_up && options_.given_up())
        throw error(std::string(what) + ": the ranks have given up", ncclRemoteError);
      if (clock::now() > end)
        throw error(std::string(what) + ": a rank did not come within " +
                        std::to_string(options_.joining.count() / 1000) + " s",
                    ncclRemoteError);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  session_options const options_;
  std::function<std::vector<std::string>(std::string const&)> gather_;
  gate gate_;
  int const rank_;
  int const exceptions_ = std::uncaught_exceptions();
  int device_ = 0;
  std::mutex list_mutex_;
  std::atomic<bool> aborted_{false};
  /// First that of all ranks. Written by threads of NCCL, maybe when a call has been given up: kept until all have ended.
  std::shared_ptr<std::deque<ncclComm_t>> const made_ = std::make_shared<std::deque<ncclComm_t>>(1);
  ncclComm_t& root_ = made_->front();
  std::deque<communicator> communicators_;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
