#include "sim/matrix.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

TEST_CASE("every mutant is refused and caught, or gives the same values; the page tells how many",
          "[mutations]") {
  sim_test::matrix all;
  mutate_bodies(all);
  mutate_tables(all);
  mutate_calls(all);
  mutate_messages(all);
  std::string const counted = all.page();
  std::cout << counted;
  all.require_agreement();
  CHECK(all.waits() > 1000);
  CHECK(all.implied() * 50 <= all.waits());
  if (!sim_test::tries_all) {
    WARN(
        "without optimization a part of the mutants is tried; the page, which tells of all, is not compared");
    return;
  }
  std::filesystem::path const page =
      std::filesystem::path(__FILE__).parent_path() / "../../docs/mutations.md";
  std::string const mark = "<!-- counted by the tests -->\n";
  std::stringstream read;
  read << std::ifstream(page).rdbuf();
  std::string text = read.str();
  INFO(page << " lacks the line " << mark << "or cannot be read from here: run it through meson test");
  std::size_t const at = text.find(mark);
  REQUIRE(at != std::string::npos);
  std::string const kept = text.substr(0, at + mark.size());
  if (std::getenv("STRETTO_WRITE_DOCS") != nullptr)
    std::ofstream(page) << kept << counted;
  else
    // STRETTO_WRITE_DOCS=1 writes the page anew.
    CHECK((text == kept + counted));
}
