#include <stretto/block.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace stretto;

namespace {

struct hidden : value {};
struct tokens : value {};
struct loss : objective {};
struct rows : metadata {
  using type = int;
};
struct untyped : metadata {};
struct immovable : metadata {
  struct type {
    type() = default;
    type(type const&) = delete;
  };
};
struct stranger {};
struct declared_only;

template <class Reads, class Writes> struct Listing : Phase<attn> {
  using reads = Reads;
  using writes = Writes;
  void forward(auto&) {}
};
template <class Saves> struct Saving : Listing<values<hidden>, values<tokens, rows>> { using saves = Saves; };
struct Last final : Phase<attn> {};
struct KindOnly {
  static constexpr phase_kind kind = attn;
};

struct Abstract : Listing<values<>, values<>> {
  virtual ~Abstract() = default;
  virtual void run() = 0;
};
struct fixed_limit {
  static constexpr long in_flight = 2;
};
struct member_limit {
  int in_flight = 2;
};
struct named_limit {
  static constexpr char const* in_flight = "2";
};
template <class Communicator> struct Limited : Listing<values<>, values<>> {
  using communicator = Communicator;
};
struct LimitedItself : Listing<values<>, values<>> {
  int in_flight = 2;
};
struct Weighty : Listing<values<>, values<>> {
  bool has_weights = true;
};
template <class Kept> struct Keeping : Listing<values<>, values<>> { using saved = Kept; };
union Either {
  [[maybe_unused]] static constexpr phase_kind kind = attn;
  [[maybe_unused]] static constexpr bool has_weights = true;
  using reads = values<>;
  using writes = values<>;
};

template <class Item> detail::item_finding check() { return detail::check_item<Item>(); }

} // namespace

TEST_CASE("items of a block are phases and cuts", "[items]") {
  CHECK(check<Detach>().what == fault::none);
  CHECK(check<Listing<values<>, values<>>>().what == fault::none);
  CHECK(check<stranger>().what == fault::not_a_phase);
  CHECK(check<KindOnly>().what == fault::not_a_phase);
  CHECK(check<Last>().what == fault::not_a_phase);
  CHECK(check<int>().what == fault::not_a_phase);
  using plain = Listing<values<>, values<>>;
  CHECK(check<plain const>().what == fault::not_a_phase);
  CHECK(check<plain volatile>().what == fault::not_a_phase);
  CHECK(check<plain&>().what == fault::not_a_phase);
  CHECK(check<Either>().what == fault::not_a_phase);
  CHECK(check<Abstract>().what == fault::not_a_phase);
}

TEST_CASE("what a phase says of itself in numbers is constant", "[items]") {
  CHECK(check<Limited<fixed_limit>>().what == fault::none);
  CHECK(check<Limited<member_limit>>().what == fault::no_constant);
  CHECK(check<Limited<named_limit>>().what == fault::no_constant);
  CHECK(check<Limited<stranger>>().what == fault::no_constant);
  CHECK(check<LimitedItself>().what == fault::no_constant);
  CHECK(check<Weighty>().what == fault::no_constant);
}

TEST_CASE("what a phase keeps can be made empty", "[items]") {
  CHECK(check<Keeping<int>>().what == fault::none);
  CHECK(check<Keeping<rows>>().what == fault::none);
  CHECK(check<Keeping<int const>>().what == fault::unfit_saved);
  CHECK(check<Keeping<int&>>().what == fault::unfit_saved);
  CHECK(check<Keeping<int[2]>>().what == fault::unfit_saved);
  CHECK(check<Keeping<void>>().what == fault::unfit_saved);
  CHECK(check<Keeping<declared_only>>().what == fault::unfit_saved);
  CHECK(check<Keeping<Abstract>>().what == fault::unfit_saved);
}

TEST_CASE("what a phase lists are values", "[items]") {
  CHECK(check<Listing<values<hidden, rows>, values<loss>>>().what == fault::none);
  auto const foreign = check<Listing<values<hidden>, values<tokens, stranger>>>();
  CHECK((foreign.what == fault::not_a_value && foreign.list == 1 && foreign.at == 1));
  CHECK(check<Listing<values<declared_only>, values<>>>().what == fault::not_a_value);
  auto const bare = check<Listing<hidden, values<>>>();
  CHECK((bare.what == fault::not_a_value && bare.list == 0 && bare.at == -1));
  auto const referred = check<Listing<values<>, values<tokens>&>>();
  CHECK((referred.what == fault::not_a_value && referred.list == 1 && referred.at == -1));
  CHECK(check<Saving<tokens>>().what == fault::not_a_value);
  CHECK(check<Listing<values<untyped>, values<>>>().what == fault::metadata_without_type);
  CHECK(check<Listing<values<>, values<hidden, immovable>>>().what == fault::metadata_without_type);
}

TEST_CASE("a phase saves what it has", "[items]") {
  CHECK(check<Saving<values<>>>().what == fault::none);
  CHECK(check<Saving<values<rows, hidden>>>().what == fault::none);
  auto const wrong = check<Saving<values<hidden, loss>>>();
  CHECK((wrong.what == fault::saves_unlisted && wrong.list == 2 && wrong.at == 1));
}

template <class... Items> using items_check = detail::items_check<detail::item_list<Items...>>;

TEST_CASE("no phase and no block type stands twice in a list", "[items]") {
  using First = Listing<values<>, values<hidden>>;
  using Second = Listing<values<hidden>, values<tokens>>;
  CHECK(items_check<First, Detach, Second, Detach>::what == fault::none);
  CHECK(items_check<First, Detach, Second, First>::what == fault::phase_twice);
  CHECK(items_check<First, Detach, Second, First>::item == 3);
  CHECK(items_check<First, First, stranger>::what == fault::not_a_phase);

  struct Layer : Block<First> {};
  struct Other : Block<First> {};
  CHECK(detail::blocks_check<Layer, Other>::what == fault::none);
  CHECK(detail::blocks_check<Layer, Other, Layer>::what == fault::block_twice);
  CHECK(detail::blocks_check<Layer, stranger, Layer>::what == fault::not_a_block);
  CHECK(detail::blocks_check<>::what == fault::not_a_block);

  struct Carrier : Block<Second> {
    using carries = values<hidden>;
  };
  struct Bare : Block<Second> {
    using carries = hidden;
  };
  CHECK(detail::blocks_check<Layer, Carrier>::what == fault::none);
  CHECK(detail::blocks_check<Layer, Carrier, Bare>::what == fault::not_a_value);
  CHECK(detail::blocks_check<Layer, Carrier, Bare>::item == 2);
}
