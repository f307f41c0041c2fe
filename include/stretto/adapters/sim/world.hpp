#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/sim/program.hpp>

#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Where executors run on the simulator: the lanes of all ranks, their memory, and one thread that runs their ops in the order
/// that it is told.
namespace stretto {
inline namespace v0 {
namespace sim {

/// What went wrong in a step: the kind of trouble, and in words the op.
struct failure : std::runtime_error {
  trouble kind;
  failure(trouble found, std::string const& words) : std::runtime_error(words), kind(found) {}
};

/// All that the ranks of one program share. Ops are collected until every rank has issued its step; then they run, each as a
/// whole. One world runs at a time on a thread.
class world {
public:
  using order_of = std::function<numbered<int>(graph const&)>;

  explicit world(int ranks = 1, transport how = transport::rendezvous)
      : ranks_(ranks), how_(how), graph_(ranks * lane_count) {}
  world(world const&) = delete;
  world& operator=(world const&) = delete;

  /// The order of the steps to come; without one, as issued.
  void run_in(order_of chosen) { order_ = std::move(chosen); }

  /// Runs one step of all ranks: each callable issues one rank's and drains its lanes. Left by an exception, whoever threw it,
  /// the world is ready for another step.
  void step(std::vector<std::function<void()>> const& of_ranks) {
    waiting_ = &of_ranks, next_ = 1;
    try {
      of_ranks[0]();
      waiting_ = nullptr;
    } catch (...) {
      waiting_ = nullptr;
      forget();
      throw;
    }
  }

  // For the adapters.

  template <class Task> int add(int rank, lane on, op_label const& label, Task const& task) {
    static_assert(std::is_trivially_copyable_v<Task> && sizeof(Task) <= sizeof(queued::bytes));
    int const number = graph_.add(rank * lane_count + static_cast<int>(on));
    queued q{rank, label, nullptr, {}};
    std::memcpy(q.bytes, &task, sizeof(Task));
    q.call = [](void* bytes) { (*static_cast<Task*>(bytes))(); };
    tasks_.push_back(q);
    if (is_message(label) && label.layer >= 0)
      (is_send(on) ? sent_ : received_)[{label.what == pass::backward, label.layer, label.microbatch}] =
          number;
    return number;
  }
  void after(int later, int earlier) { graph_.after(later, earlier); }
  /// Which step is being issued.
  int turn() const { return turn_; }

  /// Lets the next rank issue; the last one runs what all have issued.
  void drain() {
    if (waiting_ != nullptr && next_ < static_cast<int>(waiting_->size())) {
      int const mine = next_++;
      (*waiting_)[static_cast<std::size_t>(mine)]();
    } else if (tasks_.size() > 0) {
      run_all();
    }
  }

  struct storage {
    double content = 0;
    unsigned turn = 0; ///< how often it was handed out and went back
    int owner = -1, handles = 0;
  };
  /// Storage from the memory of the lane whose op is running.
  int take(double content) {
    int block = -1;
    std::vector<int>* const free = running_ < 0 ? nullptr : &free_[lane_of(running_)];
    if (free != nullptr && !free->empty()) {
      block = free->back();
      free->pop_back();
    } else {
      block = blocks_.size();
      blocks_.push_back({});
    }
    blocks_[block].content = content;
    blocks_[block].owner = running_ < 0 ? -1 : lane_of(running_);
    return block;
  }
  /// To the lane that took it, for the next op of that lane that needs some.
  void give_back(int block) {
    storage& s = blocks_[block];
    ++s.turn;
    if (s.owner >= 0) free_[s.owner].push_back(block);
  }
  storage& at(int block) { return blocks_[block]; }
  void complain(trouble what) {
    if (found_ == trouble::none) found_ = what, culprit_ = running_;
  }

  static world*& current() {
    static thread_local world* one = nullptr;
    return one;
  }

private:
  struct queued {
    int rank;
    op_label label;
    void (*call)(void*);
    alignas(std::max_align_t) unsigned char bytes[64];
  };

  int lane_of(int task) const {
    return tasks_[task].rank * lane_count + static_cast<int>(tasks_[task].label.on);
  }

  void run_all() {
    join_messages();
    bool const runs = graph_.close();
    int stuck = 0;
    while (!runs && !graph_.is_stuck(stuck)) ++stuck;
    std::exception_ptr thrown;
    if (runs)
      run_in_order(thrown);
    else
      complain(trouble::hang);
    trouble const what = std::exchange(found_, trouble::none);
    std::string const words =
        what == trouble::none ? "" : name_of(what) + (": " + words_of(runs ? culprit_ : stuck));
    forget();
    if (thrown) std::rethrow_exception(thrown);
    if (what != trouble::none) throw failure(what, words);
  }
  /// What was issued, whether or not it ran.
  void forget() {
    ++turn_;
    tasks_.clear(), sent_.clear(), received_.clear();
    graph_ = graph(ranks_ * lane_count);
    found_ = trouble::none, culprit_ = -1;
  }
  void run_in_order(std::exception_ptr& thrown) {
    numbered<int> const order = order_ ? order_(graph_) : graph_.in_order();
    world* const before = std::exchange(current(), this);
    for (int leader : order)
      // A message is there before it is taken.
      for (int const sends : {1, 0})
        for (int t : graph_.members(leader)) {
          if (is_send(tasks_[t].label.on) != (sends == 1) || thrown || found_ != trouble::none) continue;
          running_ = t;
          try {
            tasks_[t].call(tasks_[t].bytes);
          } catch (...) {
            thrown = std::current_exception();
          }
        }
    running_ = -1;
    current() = before;
  }
  void join_messages() {
    for (auto const& [name, receive] : received_) {
      auto const send = sent_.find(name);
      if (send == sent_.end())
        graph_.after(receive, receive);
      else if (how_ == transport::rendezvous)
        graph_.join(send->second, receive);
      else
        graph_.after(receive, send->second);
    }
    for (auto const& [name, send] : sent_)
      if (received_.find(name) == received_.end() && how_ == transport::rendezvous) graph_.after(send, send);
  }
  std::string words_of(int task) const {
    if (task < 0) return "outside of any op";
    op_label const& l = tasks_[task].label;
    return std::string(letter_of(l.what)) + '.' + (is_message(l) ? "message" : stretto::name_of(l.phase)) +
           " of layer " + std::to_string(l.layer) + ", microbatch " + std::to_string(l.microbatch) + ", on " +
           stretto::name_of(l.on) + " of rank " + std::to_string(tasks_[task].rank);
  }

  int ranks_;
  transport how_;
  sim::graph graph_;
  order_of order_;
  numbered<queued> tasks_;
  std::map<std::tuple<bool, int, int>, int> sent_, received_;
  std::vector<std::function<void()>> const* waiting_ = nullptr;
  int next_ = 0, turn_ = 0;
  numbered<storage> blocks_;
  std::map<int, std::vector<int>> free_;
  int running_ = -1, culprit_ = -1;
  trouble found_ = trouble::none;
};

} // namespace sim
} // namespace v0
} // namespace stretto
