#include "unit/agreement.hpp"

#include <stretto/check/explain.hpp>

#include <algorithm>
#include <set>

using namespace stretto;
using toy::Model;

namespace {

using Split = Schedule<Model, TwoStream1F1B, SplitDW>;

/// The table of a step over an embedding, an expert layer, a dense one and a head.
flat_table step_table() {
  toy::network<Model> net("EMDH", 4);
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  executor run(Split{}, backend{numbers, lanes}, net.layers, sizes{.microbatches = 4});
  return run.table();
}

} // namespace

TEST_CASE("a race is told with both ops, their blocks and what they meet in", "[explain]") {
  flat_table const good = step_table();
  REQUIRE_FALSE(good.check());
  std::set<std::string> met;
  for (std::size_t i = 0; i < good.ops.size(); ++i)
    for (int l = 0; l < lane_count; ++l) {
      if (good.ops[i].wait[l] < 0) continue;
      flat_table broken = good;
      broken.ops[i].wait[l] = -1;
      diagnosis const d = broken.check();
      if (d.what != fault::race) continue;
      std::string const text = detail::explain<Split>(d, broken).str();
      INFO(text);
      CHECK(text.starts_with("stretto[E02]: an op touches a value that another lane uses"));
      CHECK(text.ends_with("; let the program derive the wait"));
      std::size_t const first = text.find(": ", 20), second = text.find(", and ", first),
                        remedy = text.find(';');
      REQUIRE((first < second && second < remedy));
      std::string const at = text.substr(first + 2, second - first - 2);
      std::string const other = text.substr(second + 6, remedy - second - 6);
      for (std::string const& op : {at, other}) {
        CHECK(op.find("Layer) of layer ") != std::string::npos);
        CHECK(op.find(", microbatch ") != std::string::npos);
        CHECK((op.find(", on compute") != std::string::npos || op.find(", on comm") != std::string::npos));
      }
      met.insert(at.substr(at.rfind(", at ") + 5));
    }
  // Values, gradients, and what only the library knows by name.
  CAPTURE(met.size());
  CHECK(met.contains("expert_in"));
  CHECK(met.contains("the gradient of expert_in"));
  CHECK(met.size() >= 4);
}

TEST_CASE("order and lifetime are told with what is missing", "[explain]") {
  flat_table table = step_table();
  auto const swapped = [&table](pass what, pass with) {
    for (std::size_t i = 0; i < table.ops.size(); ++i)
      for (std::size_t j = i + 1; j < table.ops.size(); ++j) {
        op &a = table.ops[i], &b = table.ops[j];
        if (a.what != what || b.what != with || a.layer != b.layer || a.node != b.node ||
            a.microbatch != b.microbatch)
          continue;
        flat_table broken = table;
        std::swap(broken.ops[i].touches, broken.ops[j].touches);
        std::swap(broken.ops[i].what, broken.ops[j].what);
        return detail::explain<Split>(broken.check(), broken).str();
      }
    return std::string();
  };
  std::string const early = swapped(pass::backward_input, pass::backward_weight);
  CHECK(early.find("stretto[E04]") == 0);
  CHECK(early.find("what backward_input keeps for backward_weight; name input(...)") != std::string::npos);
  std::string const backwards = swapped(pass::forward, pass::backward_input);
  CHECK(backwards.find("stretto[E01]") == 0);
  // What a later op hands over is a matter of order, what none does of a layer.
  flat_table later = table, alone = table;
  auto const first_of = [&table](int layer) {
    for (std::size_t i = 0; i < table.ops.size(); ++i)
      if (table.ops[i].layer == layer) return i;
    return table.ops.size();
  };
  REQUIRE((first_of(0) < first_of(1) && first_of(1) < table.ops.size()));
  std::swap(later.ops[first_of(0)], later.ops[first_of(1)]);
  for (op& o : later.ops) std::fill(o.wait, o.wait + lane_count, -1);
  CHECK(detail::explain<Split>(later.check(), later).str().find("stretto[E01]") == 0);
  for (op& o : alone.ops)
    if (o.layer == 0 && o.is_forward()) o.touches.next_writes = 0;
  std::string const missing = detail::explain<Split>(alone.check(), alone).str();
  INFO(missing);
  CHECK(missing.find("stretto[E66]") == 0);
  CHECK(missing.find(", at hidden; add a layer before it") != std::string::npos);
}
