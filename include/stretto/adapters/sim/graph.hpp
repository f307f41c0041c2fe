#pragma once

#include <stretto/detail/cxx20.hpp>

#include <algorithm>
#include <cstddef>
#include <queue>
#include <utility>
#include <vector>

/// What may run when: tasks on in-order lanes, the tasks that each comes after, and orders that keep to all of that.
namespace stretto {
inline namespace v0 {
namespace sim {

/// A vector that is indexed by int.
template <class Item> class numbered {
public:
  numbered() = default;
  explicit numbered(int count, Item const& item = Item()) : items_(static_cast<std::size_t>(count), item) {}
  Item& operator[](int i) { return items_[static_cast<std::size_t>(i)]; }
  Item const& operator[](int i) const { return items_[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(items_.size()); }
  void push_back(Item const& item) { items_.push_back(item); }
  void assign(int count, Item const& item) { items_.assign(static_cast<std::size_t>(count), item); }
  void clear() { items_.clear(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  friend bool operator==(numbered const&, numbered const&) = default;

private:
  std::vector<Item> items_;
};

/// Tasks are added in issue order; `close` says whether all of them can run. Tasks that are joined run as one: both ends of
/// a rendezvous, or all members of a collective.
class graph {
public:
  explicit graph(int lanes) : last_(lanes, -1) {}

  /// A task behind all that was added to this lane before.
  int add(int lane) {
    int const task = lane_of_.size();
    lane_of_.push_back(lane);
    leader_.push_back(task);
    if (last_[lane] >= 0) after(task, last_[lane]);
    last_[lane] = task;
    return task;
  }
  void after(int later, int earlier) { edges_.emplace_back(later, earlier); }
  void join(int first, int second) {
    int const one = leader(first), other = leader(second);
    leader_[(std::max)(one, other)] = (std::min)(one, other);
  }

  /// Whether every task can run. Which ones are stuck does not depend on the order in which the others run.
  bool close() {
    int const count = lane_of_.size();
    members_ = rows(count);
    for (int t = 0; t < count; ++t) members_.count(leader(t));
    members_.open();
    for (int t = 0; t < count; ++t) members_.add(leader(t), t);
    earlier_ = rows(count), later_ = rows(count);
    for (auto const& [to, from] : edges_)
      if (leader(to) != leader(from)) earlier_.count(leader(to)), later_.count(leader(from));
    earlier_.open(), later_.open();
    // Two tasks that must run at once and one after the other never run.
    numbered<int> missing(count, 0);
    for (auto const& [to, from] : edges_) {
      int const late = leader(to), early = leader(from);
      ++missing[late];
      if (late == early) continue;
      earlier_.add(late, early), later_.add(early, late);
    }
    std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
    for (int t = 0; t < count; ++t)
      if (leader(t) == t && missing[t] == 0) ready.push(t);
    order_.clear();
    place_.assign(count, -1);
    while (!ready.empty()) {
      int const t = ready.top();
      ready.pop();
      place_[t] = order_.size();
      order_.push_back(t);
      for (int l : later_[t])
        if (--missing[l] == 0) ready.push(l);
    }
    for (int t = 0; t < count; ++t)
      if (place_[leader(t)] < 0) return false;
    return true;
  }

  int size() const { return lane_of_.size(); }
  /// The lanes that have a task.
  numbered<int> used_lanes() const {
    numbered<int> used;
    for (int lane = 0; lane < last_.size(); ++lane)
      if (last_[lane] >= 0) used.push_back(lane);
    return used;
  }
  bool is_stuck(int task) const { return place_[leader(task)] < 0; }
  /// The tasks that run together with a leader, itself first.
  auto members(int leader) const { return members_[leader]; }

  // Orders of the leaders. Every one of them keeps what the graph says, and takes the rest as far as that allows.

  /// As issued.
  numbered<int> const& in_order() const { return order_; }
  /// With `task` before everything that need not come before it.
  numbered<int> early(int task) const {
    numbered<char> first(size(), 0);
    mark_earlier(leader(task), first);
    return marked_first(first);
  }
  /// With `task` after everything that need not come after it.
  numbered<int> late(int task) const {
    numbered<char> first(size(), 1);
    first[leader(task)] = 0;
    for (int t : order_)
      for (int e : earlier_[t])
        if (first[e] == 0) first[t] = 0;
    return marked_first(first);
  }
  /// With one lane as far ahead of the others as it can go.
  numbered<int> ahead(int lane) const {
    numbered<char> done(size(), 0);
    numbered<int> result;
    for (int t = 0; t < size(); ++t) {
      if (lane_of_[t] != lane || done[leader(t)] != 0) continue;
      numbered<char> need(size(), 0);
      mark_earlier(leader(t), need);
      for (int e : order_)
        if (need[e] != 0 && done[e] == 0) done[e] = 1, result.push_back(e);
    }
    for (int t : order_)
      if (done[t] == 0) result.push_back(t);
    return result;
  }
  /// With one lane as far behind as it can be.
  numbered<int> behind(int lane) const {
    numbered<int> level(size(), 0), result = order_;
    numbered<char> on_lane(size(), 0);
    for (int t : order_) {
      for (int m : members_[t]) on_lane[t] = on_lane[t] != 0 || lane_of_[m] == lane ? 1 : 0;
      for (int e : earlier_[t]) level[t] = (std::max)(level[t], level[e]);
      level[t] += on_lane[t];
    }
    std::sort(result.begin(), result.end(), [&](int a, int b) {
      return level[a] != level[b]       ? level[a] < level[b]
             : on_lane[a] != on_lane[b] ? on_lane[a] > on_lane[b]
                                        : place_[a] < place_[b];
    });
    return result;
  }
  /// Calls `act(order)` with every order there is, if there are no more than `most`; says whether it did.
  template <class Act> bool each_order(int most, Act&& act) const {
    numbered<int> missing(size(), 0), ready, taken;
    for (int t : order_)
      for ([[maybe_unused]] int e : earlier_[t]) ++missing[t];
    for (int t : order_)
      if (missing[t] == 0) ready.push_back(t);
    std::vector<numbered<int>> all;
    if (!extend(missing, ready, taken, most, all)) return false;
    for (numbered<int> const& order : all)
      if (!act(order)) break;
    return true;
  }

private:
  /// Lists of tasks, one for each task, in one array.
  class rows {
  public:
    rows() = default;
    explicit rows(int count) : first_(count + 1, 0) {}
    void count(int row) { ++first_[row + 1]; }
    void open() {
      for (int r = 1; r < first_.size(); ++r) first_[r] += first_[r - 1];
      items_.assign(first_[first_.size() - 1], 0);
      next_ = first_;
    }
    void add(int row, int item) { items_[next_[row]++] = item; }
    struct range {
      int const *first, *last;
      int const* begin() const { return first; }
      int const* end() const { return last; }
    };
    range operator[](int row) const {
      int const* const all = items_.size() == 0 ? nullptr : &*items_.begin();
      return {all + first_[row], all + first_[row + 1]};
    }

  private:
    numbered<int> first_, next_, items_;
  };

  int leader(int task) const {
    while (leader_[task] != task) task = leader_[task];
    return task;
  }
  void mark_earlier(int task, numbered<char>& marked) const {
    std::vector<int> open = {task};
    marked[task] = 1;
    while (!open.empty()) {
      int const t = open.back();
      open.pop_back();
      for (int e : earlier_[t])
        if (marked[e] == 0) marked[e] = 1, open.push_back(e);
    }
  }
  numbered<int> marked_first(numbered<char> const& first) const {
    numbered<int> result;
    for (int const wanted : {1, 0})
      for (int t : order_)
        if ((first[t] != 0 ? 1 : 0) == wanted) result.push_back(t);
    return result;
  }
  bool extend(numbered<int>& missing, numbered<int> const& ready, numbered<int>& taken, int most,
              std::vector<numbered<int>>& all) const {
    if (ready.size() == 0) {
      all.push_back(taken);
      return static_cast<int>(all.size()) <= most;
    }
    for (int chosen : ready) {
      numbered<int> next, so_far = taken;
      for (int t : ready)
        if (t != chosen) next.push_back(t);
      for (int l : later_[chosen])
        if (--missing[l] == 0) next.push_back(l);
      so_far.push_back(chosen);
      bool const fits = extend(missing, next, so_far, most, all);
      for (int l : later_[chosen]) ++missing[l];
      if (!fits) return false;
    }
    return true;
  }

  numbered<int> last_, lane_of_, leader_, order_, place_;
  std::vector<std::pair<int, int>> edges_;
  rows members_, earlier_, later_;
};

} // namespace sim
} // namespace v0
} // namespace stretto
