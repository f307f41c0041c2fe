#pragma once

#include <stretto/adapters/sim/attack.hpp>
#include <stretto/adapters/sim/world.hpp>

/// What an executor takes: tensors, lanes and peers of one rank of a simulated world.
namespace stretto {
inline namespace v0 {
namespace sim {

/// A tensor of one number (of a world that outlives it), in storage of the lane that made it. Reading one that is empty, or whose storage went back, is
/// noted as trouble and gives no number.
class tensor {
public:
  tensor() = default;
  tensor(double content) : in_(world::current()) {
    if (in_ == nullptr)
      throw std::logic_error("sim: a tensor is made outside of a step; make it inside of a phase");
    block_ = in_->take(content), turn_ = in_->at(block_).turn;
    hold();
  }
  tensor(tensor const& other) : in_(other.in_), block_(other.block_), turn_(other.turn_) { hold(); }
  tensor(tensor&& other) noexcept { swap(other); }
  tensor& operator=(tensor other) noexcept {
    swap(other);
    return *this;
  }
  ~tensor() {
    if (!lives()) return;
    if (--in_->at(block_).handles == 0) in_->give_back(block_);
  }

  explicit operator double() const {
    if (lives()) return in_->at(block_).content;
    if (world* const now = world::current())
      now->complain(empty() ? trouble::nothing_there : trouble::given_back);
    return std::numeric_limits<double>::quiet_NaN();
  }
  bool empty() const { return in_ == nullptr; }
  /// The storage goes back, whoever else has a name for it.
  void release() {
    if (!lives()) return;
    in_->at(block_).handles = 0;
    in_->give_back(block_);
  }

private:
  bool lives() const { return in_ != nullptr && in_->at(block_).turn == turn_; }
  void hold() {
    if (lives()) ++in_->at(block_).handles;
  }
  void swap(tensor& other) noexcept {
    std::swap(in_, other.in_), std::swap(block_, other.block_), std::swap(turn_, other.turn_);
  }
  world* in_ = nullptr;
  int block_ = -1;
  unsigned turn_ = 0;
};

/// The tensors of an executor on the simulator: a `tensor_adapter`.
struct tensors {
  using tensor = sim::tensor;
  struct context {};
  tensor detach(tensor const& t) const { return t; }
  void release(tensor& t) const { t.release(); }
  void add(tensor& sum, tensor const& t) const {
    if (t.empty()) return;
    sum = sum.empty() ? t : tensor(double(sum) + double(t));
  }
};

/// The lanes of one rank of a `world`, which runs what is issued here: a `lane_adapter`.
class lanes {
public:
  struct event {
    int task = -1, turn = -1;
  };
  lanes(world& in, int rank) : in_(&in), rank_(rank) {}

  template <class Task> void run(lane on, op_label const& label, Task task) {
    begin_step();
    op_label named = label;
    named.on = on;
    int const number = in_->add(rank_, on, named, task);
    state& mine = of(on);
    for (int earlier : mine.waits) in_->after(number, earlier);
    mine.waits.clear();
    mine.last = number;
  }
  void record(lane on, event& e) {
    begin_step();
    e = {of(on).last, in_->turn()};
    // Behind a wait it stands for what the lane waits for as well.
    if (!of(on).waits.empty()) {
      run(on, {attn, pass::forward, on, -1, -1}, [] {});
      e.task = of(on).last;
    }
  }
  void wait(lane on, event const& e) {
    begin_step();
    if (e.task >= 0 && e.turn == in_->turn()) of(on).waits.push_back(e.task);
  }
  void drain() { in_->drain(); }

private:
  struct state {
    int last = -1;
    std::vector<int> waits;
  };
  state& of(lane on) { return lanes_[static_cast<int>(on)]; }
  /// What an earlier drain has seen run needs no waiting for.
  void begin_step() {
    if (std::exchange(turn_, in_->turn()) == in_->turn()) return;
    for (state& one : lanes_) one = {};
  }

  world* in_;
  int rank_, turn_ = -1;
  state lanes_[lane_count];
};

/// Messages between the ranks of a world, which sees to it that each is sent before it is received.
class peers {
public:
  using tensor = sim::tensor;
  using mail = std::map<std::tuple<bool, int, int, int>, tensor>;
  explicit peers(mail& shared) : mail_(&shared) {}
  void send(message const& m, tensor const& t) const {
    (*mail_)[{m.gradient, m.stage, m.microbatch, m.chain}] = t.empty() ? tensor{} : tensor(double(t));
  }
  tensor receive(message const& m) const {
    return std::move((*mail_)[{m.gradient, m.stage, m.microbatch, m.chain}]);
  }

private:
  mail* mail_;
};

static_assert(tensor_adapter<tensors> && lane_adapter<lanes> && peer_adapter<peers>);

/// Runs `step` (which runs one step of all ranks and returns what must not depend on the order) as issued and against it:
/// each of up to `most_rows` ops as early as it can be, each lane ahead of the others and behind them. Returns what went wrong
/// first; empty if nothing did.
template <class Step>
std::string attack(world& of, Step&& step, std::invoke_result_t<Step&> const& expected,
                   adversary const& how = {}) {
  std::string wrong;
  auto const passes = [&](world::order_of const& order) {
    of.run_in(order);
    try {
      if (step() != expected) wrong = name_of(trouble::other_values);
    } catch (failure const& found) {
      wrong = found.what();
    }
    of.run_in({});
    return wrong.empty();
  };
  int tasks = 0;
  numbered<int> lanes;
  if (passes([&](graph const& all) {
        tasks = all.size(), lanes = all.used_lanes();
        return all.in_order();
      }))
    against(lanes, tasks, how, passes);
  return wrong;
}

} // namespace sim
} // namespace v0
} // namespace stretto
