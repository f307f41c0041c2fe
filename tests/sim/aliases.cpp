#include "sim/network.hpp"

#include <stretto/check/releases.hpp>
#include <stretto/pipelines/one_f_one_b.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace stretto;
using toy::hidden, toy::residual, toy::tokens, toy::expert_in, toy::parameter;

namespace {

template <bool Told, class... Pairs> struct told { using aliases = values<Pairs...>; };
template <class... Pairs> struct told<false, Pairs...> {};

/// Hands the output of the layer before on as the residual.
template <bool Told> struct Branch : Phase<attn>, told<Told, hidden, residual> {
  using reads = values<hidden>;
  using writes = values<tokens, residual>;
  using saves = values<>;
  using saved = double;
  parameter* w;
  explicit Branch(parameter* p) : w(p) {}
  void forward(auto& io) {
    io.saved() = double(io[hidden{}]);
    io[tokens{}] = std::sin(io.saved() * w->weight);
    io[residual{}] = io[hidden{}];
  }
  void backward_input(auto& io) {
    double const slope = std::cos(io.saved() * w->weight);
    io.grad(hidden{}) = double(io.grad(tokens{})) * slope * w->weight + double(io.grad(residual{}));
  }
  void backward_weight(auto& io) {
    w->gradient += double(io.grad(tokens{})) * std::cos(io.saved() * w->weight) * io.saved();
  }
};
/// The exchange of one rank: what comes in goes on.
template <bool Told> struct Exchange : Phase<dispatch>, told<Told, tokens, expert_in> {
  using reads = values<tokens>;
  using writes = values<expert_in>;
  using saves = values<>;
  void forward(auto& io) { io[expert_in{}] = io[tokens{}]; }
  void backward(auto& io) { io.grad(tokens{}) = double(io.grad(expert_in{})); }
};
struct Experts : Phase<mlp> {
  using reads = values<expert_in, residual>;
  using writes = values<hidden>;
  using saves = values<expert_in>;
  parameter* w;
  explicit Experts(parameter* p) : w(p) {}
  void forward(auto& io) {
    double const x(io[expert_in{}]);
    io[hidden{}] = double(io[residual{}]) + x * x * w->weight;
  }
  void backward_input(auto& io) {
    io.grad(expert_in{}) = 2 * double(io[expert_in{}]) * w->weight * double(io.grad(hidden{}));
    io.grad(residual{}) = double(io.grad(hidden{}));
  }
  void backward_weight(auto& io) {
    double const x(io[expert_in{}]);
    w->gradient += x * x * double(io.grad(hidden{}));
  }
};
struct EmbedLayer : Block<toy::Embed> {};
template <bool Told> struct Layer : Block<Branch<Told>, Detach, Exchange<Told>, Detach, Experts> {};
struct HeadLayer : Block<toy::Head> {};
template <bool Told> struct Model : Blocks<EmbedLayer, Layer<Told>, HeadLayer> {};

/// Two layers, of one rank or of one each, between embedding and head.
template <bool Told> struct network : sim_test::network<Model<Told>> {
  using base = sim_test::network<Model<Told>>;
  using base::losses, base::parameters, base::ranks;
  network(int count, int microbatches) : base(count, microbatches) {
    ranks.front().add(layer<EmbedLayer>(toy::Embed(&parameters[0])));
    for (std::size_t l = 0; l < 2; ++l)
      (l == 0 ? ranks.front() : ranks.back())
          .add(layer<Layer<Told>>(Branch<Told>(&parameters[1 + 2 * l]), Exchange<Told>(),
                                  Experts(&parameters[2 + 2 * l])));
    ranks.back().add(layer<HeadLayer>(toy::Head(&parameters[5], losses.data())));
  }
};

/// What an adversary says of a step over shared storage; empty: nothing is wrong.
template <bool Told, class... Policies> std::string attacked(int ranks, int microbatches) {
  network<true> in_series(1, microbatches);
  network<Told> net(ranks, microbatches);
  return sim_test::attacked<Schedule<Model<Told>, Policies...>>(
      net, microbatches, sim_test::in_order<Schedule<Model<true>, Serial>>(in_series, microbatches));
}

} // namespace

TEST_CASE("storage that a phase hands on lives as long as any name of it is needed",
          "[sim][aliases][megatron-23]") {
  CHECK(attacked<true, Serial>(1, 2) == "");
  CHECK(attacked<true, TwoStream1F1B>(1, 3) == "");
  CHECK(attacked<true, TwoStream1F1B, SplitDW>(1, 4) == "");
  // What it hands on may have come from another rank.
  CHECK(attacked<true, TwoStream1F1B, SplitDW>(2, 4) == "");
  CHECK(attacked<true, Serial, OneFOneB>(2, 3) == "");
}

TEST_CASE("a phase that does not say what it hands on is caught", "[sim][aliases][megatron-23]") {
  CHECK(attacked<false, Serial>(1, 2).find("given back") != std::string::npos);
  CHECK(attacked<false, TwoStream1F1B, SplitDW>(1, 2).find("given back") != std::string::npos);
}

TEST_CASE("the table knows an alias by the storage behind it", "[aliases]") {
  block_facts const& f = dataflow_of<Layer<true>>::value;
  chain_facts const& chain = chain_of<Model<true>>::value;
  int const x = f.find_root(detail::id_of<expert_in>()), t = f.find_root(detail::id_of<tokens>());
  REQUIRE((x >= 0 && t >= 0));
  CHECK(f.leaf_root[f.root_alias[x]] == t);
  cell_access const exchange = access_of(f, chain, 1, pass::forward),
                    experts = access_of(f, chain, 2, pass::forward);
  CHECK((exchange.writes & cells::root(x)) == 0);
  CHECK(exchange.aliases == cells::root(x));
  CHECK((experts.reads & (cells::root(x) | cells::root(t))) == cells::root(t));
  CHECK((access_of(f, chain, 2, pass::backward_weight).reads & cells::root(t)) != 0);

  network<true> net(1, 2);
  struct Step : Schedule<Model<true>, TwoStream1F1B, SplitDW> {};
  plan const all = proved_plan<Step::rank_plan>(1, 2, 0);
  detail::chain_layout const layout(all.facts(), 0, net.ranks[0]);
  flat_table const table =
      detail::lower<Step>(detail::place_steps(all, lower_messages(all), 0), net.ranks[0], layout).table;
  detail::sequence<release> const releases = detail::plan_releases<Step>(table, layout, net.ranks[0]);
  int const count = static_cast<int>(table.ops.size());
  auto const found = [&](detail::sequence<release> const& changed) {
    return check_releases(table.ops.data(), count, table.groups, table.layers, changed);
  };
  CHECK_FALSE(found(releases));
  for (int row = 0; row < count; ++row) {
    op const& o = table.ops[static_cast<std::size_t>(row)];
    if (o.what != pass::forward || o.touches.aliases != cells::root(x)) continue;
    // The input goes back behind its last reader of that name, on the other lane; and the output is no storage.
    for (int const v : {t, x}) {
      detail::sequence<release> early = releases;
      auto const changed = [&](release const& r) {
        return r.group == o.group && r.cell == cells::first_root + v;
      };
      early.shrink(std::remove_if(early.begin(), early.end(), changed) - early.begin());
      early.push_back({row, o.group, cells::first_root + v});
      diagnosis const wrong = found(early);
      CHECK(wrong.what == (v == x ? fault::read_after_release : fault::race));
    }
  }
}

namespace {

struct copy_out : value {};
struct Ends : Phase<attn> {
  using reads = values<hidden>;
  using writes = values<copy_out>;
  using aliases = values<hidden, copy_out>;
};
struct EndsLayer : Block<Ends> {};

} // namespace

TEST_CASE("an alias does not leave its block", "[aliases]") {
  diagnosis const wrong = check_block(dataflow_of<EndsLayer>::value, 3);
  CHECK(wrong.what == fault::aliased_wrongly);
  CHECK((wrong.block == 3 && wrong.at == 0 && wrong.cell == 0));
  CHECK_FALSE(check_block(dataflow_of<Layer<true>>::value, 0));
}
