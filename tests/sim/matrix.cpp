#include "matrix.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <sstream>

namespace sim_test {

using stretto::fault, stretto::sim::trouble;

void matrix::add(counts& to, verdict const& v, bool equivalent) {
  bool const refused = v.refused != fault::none, caught = v.caught != trouble::none;
  ++to.tried;
  to.refused += refused, to.caught += caught, to.strict += refused && !caught;
  to.legal += !refused && !caught && !equivalent;
  to.equivalent += !refused && !caught && equivalent;
}

void matrix::enter(std::string const& kind, std::string const& policy, std::string const& pipeline,
                   verdict const& v, bool equivalent, bool may_be_strict) {
  auto const keep = [](std::vector<std::string>& names, std::string const& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  keep(kinds_, kind);
  for (std::string const& row : {policy.empty() ? policy : "policy | `" + policy + '`',
                                 pipeline.empty() ? pipeline : "pipeline | `" + pipeline + '`'}) {
    if (row.empty()) continue;
    keep(rows_, row);
    add(of_kind_[kind][row], v, equivalent);
  }
  add(of_kind_[kind]["all"], v, equivalent);
  bool const refused = v.refused != fault::none, caught = v.caught != trouble::none;
  if (caught == refused || (refused && may_be_strict)) return;
  disagreements_.push_back(kind + ", " + policy + ", " + pipeline + ": the checker says " +
                           (refused ? stretto::rule_of(v.refused).name : "nothing") + ", the simulator " +
                           name_of(v.caught));
}

void matrix::require_agreement() const {
  for (std::string const& one : disagreements_) UNSCOPED_INFO(one);
  CHECK(disagreements_.size() == 0);
}

std::string matrix::page() const {
  std::ostringstream out;
  auto const line = [&out](std::string const& name, counts const& n) {
    out << "| " << name << " | " << n.tried << " | " << n.refused << " | " << n.caught << " | " << n.strict
        << " | " << n.legal << " | " << n.equivalent << " |\n";
  };
  char const* const columns = " | tried | refused | caught | strict | legal | equivalent |\n";
  out << "\n| mutation" << columns << "|---|--:|--:|--:|--:|--:|--:|\n";
  for (std::string const& kind : kinds_) line(kind, of_kind_.at(kind).at("all"));
  out << "\nOf " << waits_ << " waits of the tables that were mutated " << implied_
      << " are surplus: other waits imply them.\n";
  for (std::string const& kind : kinds_) {
    auto const& rows = of_kind_.at(kind);
    out << "\n## " << kind << "\n\n| | " << columns << "|---|---|--:|--:|--:|--:|--:|--:|\n";
    for (char const* const of : {"policy", "pipeline"})
      for (std::string const& name : rows_)
        if (auto const at = rows.find(name); at != rows.end() && name.rfind(of, 0) == 0)
          line(name, at->second);
  }
  return out.str();
}

} // namespace sim_test
