#pragma once

#include <stretto/lower.hpp>

#include <string>

/// Diagnoses of flat tables as sentences.
namespace stretto {
inline namespace v0 {
namespace detail {

/// "F.mlp (Experts) of layer 3, microbatch 2, on comm".
template <class S> std::string describe(op const& o) {
  if (o.is_message())
    return std::string("the message of microbatch ") + std::to_string(o.microbatch) + " on lane " + name_of(o.on);
  block_facts const& f = *facts_at<typename S::model>(o.block, std::make_integer_sequence<int, S::model::count>{});
  int const phase = f.first_phase_of(o.node);
  text const name = f.phase_name[phase];
  return std::string(letter_of(o.what)) + '.' + name_of(f.kind[phase]) + " (" +
         std::string(name.begin, static_cast<unsigned>(name.size)) + ") of layer " + std::to_string(o.layer) +
         ", microbatch " + std::to_string(o.microbatch) + ", on " + name_of(o.on);
}

template <class S> std::string explain(diagnosis const& d, flat_table const& table) {
  std::string all = rule_of(d.what).sentence;
  if (d.at >= 0) all += ": " + describe<S>(table.ops[static_cast<unsigned>(d.at)]);
  if (d.other >= 0) all += "; " + describe<S>(table.ops[static_cast<unsigned>(d.other)]);
  return all;
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
