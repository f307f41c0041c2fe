#pragma once

#include <stretto/adapters/torch/unchecked_tensors.hpp>
#include <stretto/adapters/torch/untrained_leaf.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

namespace detail {

/// Whether the graph that a phase built, or the phase itself, holds a value that the phase does not name in its `saves`.
///
/// An operation that saves a leaf or an input holds the tensor itself, one that saves its output or a view holds the storage
/// by another tensor, so both are counted (torch/csrc/autograd/saved_variable.cpp). Counts of a leaf's storage are left out:
/// other readers, on other lanes, share it. What is missed thereby, a leaf saved through `detach`, is seen by `release`, which
/// keeps such storage.
class held_values {
public:
  using value = phase_value<at::Tensor>;

  held_values(value const* values, int count)
      : values_(values), count_(count), before_(static_cast<std::size_t>(count)) {
    for (int i = 0; i < count; ++i)
      if (!values[i].is_written && values[i].what->defined()) before(i) = count_of(*values[i].what);
  }

  /// After forward: the first value that is held and not named, or null.
  value const* find() const {
    for (int i = 0; i < count_; ++i) {
      value const& each = values_[i];
      if (each.is_saved || !each.what->defined()) continue;
      if (each.is_written ? written_is_held(*each.what) : read_is_held(i)) return &each;
    }
    return nullptr;
  }

private:
  struct counts {
    std::size_t tensor = 0, storage = 0;
    bool accumulates = false;
  };

  static counts count_of(at::Tensor const& t) {
    return {t.use_count(), t.has_storage() ? t.storage().use_count() : 0, has_accumulator(t)};
  }
  /// A graph that ends at a leaf holds it, whether or not it is saved.
  static bool has_accumulator(at::Tensor const& t) {
    return t.is_leaf() && t.requires_grad() &&
           ::torch::autograd::impl::try_get_grad_accumulator(t) != nullptr;
  }
  static bool is_view_of(at::Tensor const& t, at::TensorBase const& base) {
    return t.is_view() && t._base().is_same(base);
  }
  static bool share_storage(at::Tensor const& a, at::Tensor const& b) {
    return a.has_storage() && b.has_storage() &&
           a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
  }
  template <class Act> void each_of(bool written, Act&& f) const {
    for (int i = 0; i < count_; ++i)
      if (values_[i].is_written == written && values_[i].what->defined()) f(*values_[i].what);
  }

  bool read_is_held(int i) const {
    at::Tensor const& read = *values_[i].what;
    counts const now = count_of(read);
    std::size_t tensors = before(i).tensor + (now.accumulates && !before(i).accumulates);
    each_of(true, [&](at::Tensor const& out) { tensors += out.is_same(read) || is_view_of(out, read); });
    if (now.tensor > tensors) return true;
    return values_[i].is_inside_node && now.storage > before(i).storage + new_tensors_on(read);
  }

  bool written_is_held(at::Tensor const& out) const {
    bool is_handed_on = false;
    each_of(false,
            [&](at::Tensor const& read) { is_handed_on |= out.is_same(read) || share_storage(out, read); });
    if (is_handed_on) return false; // Whoever read it is asked.
    std::size_t tensors = has_accumulator(out), of_base = 0;
    each_of(true, [&](at::Tensor const& other) {
      tensors += other.is_same(out) || is_view_of(other, out);
      of_base += out.is_view() && (is_view_of(other, out._base()) || other.is_same(out._base()));
    });
    if (out.use_count() > tensors || (out.is_view() && out._base().use_count() > of_base)) return true;
    return out.has_storage() && out.storage().use_count() > new_tensors_on(out);
  }

  /// How many tensors on this storage the phase wrote, their bases among them.
  std::size_t new_tensors_on(at::Tensor const& storage) const {
    std::set<at::TensorImpl const*> found;
    each_of(true, [&](at::Tensor const& out) {
      if (!share_storage(out, storage)) return;
      found.insert(out.unsafeGetTensorImpl());
      if (out.is_view()) found.insert(out._base().unsafeGetTensorImpl());
    });
    // What was there before is counted there.
    each_of(false, [&](at::Tensor const& read) { found.erase(read.unsafeGetTensorImpl()); });
    return found.size();
  }

  counts& before(int i) { return before_[static_cast<std::size_t>(i)]; }
  counts const& before(int i) const { return before_[static_cast<std::size_t>(i)]; }

  value const* values_;
  int count_;
  std::vector<counts> before_;
};

inline std::string string_of(stretto::detail::text name) {
  return {name.begin, static_cast<std::size_t>(name.size)};
}
inline std::string sizes_of(at::Tensor const& t) {
  std::string all;
  for (auto const size : t.sizes()) all += (all.empty() ? "" : ", ") + std::to_string(size);
  return "[" + all + "]";
}

} // namespace detail

/// `unchecked_tensors` that look, after the forward of every phase, at what it wrote, and throw `std::logic_error` naming the
/// phase where
/// - a value that it says it writes is empty;
/// - it used a tensor that asks for a gradient which backward would not make (`find_untrained_leaf`; in a node that runs
///   forward again the step ends in backward, and names the op);
/// - it holds a value that it does not name in its `saves`: the storage would go back before backward. Values that are named
///   and not held cost memory only and are not reported.
/// And before backward at objectives: one that is more than a number, or from which no gradient would come, is refused.
class checked_tensors : public unchecked_tensors {
public:
  template <class Run>
  void check_forward(stretto::detail::text phase, phase_value<at::Tensor> const* values, int count,
                     Run&& run) const {
    detail::held_values const held(values, count);
    run();
    std::string const subject = "phase " + detail::string_of(phase);
    for (int i = 0; i < count; ++i)
      if (values[i].is_written && !values[i].what->defined()) {
        std::string const name = detail::string_of(values[i].name);
        throw std::logic_error(subject + " declares '" + name +
                               "' in its `writes` and left it empty; assign io[" + name + "{}]");
      }
    std::vector<at::Tensor const*> written, read;
    for (int i = 0; i < count; ++i) (values[i].is_written ? written : read).push_back(values[i].what);
    if (node_context* const node = node_in_progress().context)
      refuse_untrained(subject, written, read, *node);
    if (auto const* lie = held.find())
      throw std::logic_error(
          subject + " keeps '" + detail::string_of(lie->name) + "', which it " +
          (lie->is_written ? "writes" : "reads") +
          " and does not save: its storage would go back before backward; name it in the phase's `saves`");
  }

  /// A node that runs forward again is not looked at in forward, whose graph it drops.
  template <class... Phases>
  void backward(context& node, gradient_request<at::Tensor> const& request, Phases&... phases) const {
    refuse_objective(request);
    refuse_untrained(node, request);
    unchecked_tensors::backward(node, request, phases...);
  }
  template <class... Phases>
  void backward_input(context& node, gradient_request<at::Tensor> const& request, Phases&... phases) const {
    refuse_objective(request);
    refuse_untrained(node, request);
    unchecked_tensors::backward_input(node, request, phases...);
  }

private:
  /// What a phase reads asks for a gradient, frozen weights or not, so an objective without a graph was cut off from it.
  static void refuse_objective(gradient_request<at::Tensor> const& request) {
    bool reads = false;
    for (int i = 0; i < request.leaf_count; ++i)
      reads |= request.leaves[i].defined() && request.leaves[i].requires_grad();
    for (int i = 0; i < request.root_count; ++i) {
      at::Tensor const& root = request.roots[i];
      if (!request.root_is_objective || !request.root_is_objective[i] || !root.defined()) continue;
      if (root.numel() != 1)
        throw std::logic_error(
            "an objective has the sizes " + detail::sizes_of(root) +
            " and is no single number, from which backward starts; write its mean or its sum");
      if (reads && !root.requires_grad())
        throw std::logic_error(
            "an objective does not depend on what its layer reads, so nothing would be learned; "
            "make it from io[...] without detach(), item() or a NoGradGuard");
    }
  }
  static void refuse_untrained(context& node, gradient_request<at::Tensor> const& request) {
    std::vector<at::Tensor const*> written, read;
    for (int i = 0; i < request.root_count; ++i) written.push_back(&request.roots[i]);
    for (int i = 0; i < request.leaf_count; ++i) read.push_back(&request.leaves[i]);
    refuse_untrained("a phase", written, read, node);
  }
  static void refuse_untrained(std::string const& subject, std::vector<at::Tensor const*> const& written,
                               std::vector<at::Tensor const*> const& read, node_context& node) {
    at::Tensor const leaf = detail::find_untrained_leaf(written, read, node);
    if (leaf.defined())
      throw std::logic_error(
          subject + " uses a tensor of sizes " + detail::sizes_of(leaf) +
          " that asks for a gradient and is no stretto::torch::parameter used by value() in this forward: "
          "its gradient would never be made; hold it as a parameter and call value() in every forward, or "
          "detach() it");
  }
};

static_assert(autograd_tensor_adapter<checked_tensors> && checks_phases<checked_tensors>);
static_assert(!checks_phases<unchecked_tensors>);

} // namespace torch
} // namespace v0
} // namespace stretto
