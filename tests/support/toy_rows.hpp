#pragma once

#include "support/toy.hpp"

#include <string>

/// Tables in words and as graphs, for tests that say what a policy must do.
namespace toy {

/// "F.attn on compute".
template <class Model> std::string name_of_row(st::op const& o) {
  if (o.is_port()) return o.on == st::lane::forward_port ? "forward port" : "backward port";
  if (o.is_message()) return std::string(name_of(o.on)) + (o.is_forward() ? " F" : " B");
  st::block_facts const& f =
      *st::detail::facts_at<Model>(o.block, std::make_integer_sequence<int, Model::count>{});
  return std::string(letter_of(o.what)) + "." + name_of(f.kind[f.first_phase_of(o.node)]);
}

/// The rows on one lane, in order.
template <class Model> std::vector<std::string> names_on(st::lane on, st::op const* ops, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i)
    if (ops[i].on == on) names.push_back(name_of_row<Model>(ops[i]));
  return names;
}
/// The rows of all lanes, in host order, without ports.
template <class Model> std::vector<std::string> names_of(st::op const* ops, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i)
    if (!ops[i].is_port()) names.push_back(name_of_row<Model>(ops[i]));
  return names;
}
template <class Model> int find_row(std::string const& name, st::op const* ops, int count) {
  for (int i = 0; i < count; ++i)
    if (name_of_row<Model>(ops[i]) == name) return i;
  return -1;
}

/// "F.mlp after F.dispatch": every wait of the table, in order.
template <class Model> std::vector<std::string> waits_of(st::op const* ops, int count) {
  std::vector<std::string> waits;
  for (int i = 0; i < count; ++i)
    for (int w : ops[i].wait)
      if (w >= 0) waits.push_back(name_of_row<Model>(ops[i]) + " after " + name_of_row<Model>(ops[w]));
  return waits;
}

/// Whether row `later` runs after row `earlier` in every execution: by lane order and waits.
inline bool runs_after(int later, int earlier, st::op const* ops) {
  if (later == earlier) return true;
  for (int i = later - 1; i >= 0; --i) {
    bool direct = ops[i].on == ops[later].on;
    for (int w : ops[later].wait) direct = direct || w == i;
    if (direct && runs_after(i, earlier, ops)) return true;
  }
  return false;
}

} // namespace toy
