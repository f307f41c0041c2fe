#include <stretto/adapters/cublas.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <limits>

namespace {

using stretto::cublas::detail::alignment_of;
using stretto::cublas::detail::rounded_columns;
using stretto::cublas::detail::rounded_inner;

} // namespace

TEST_CASE("row counts are rounded up to few numbers, none of them far away", "[cuda]") {
  CHECK(rounded_columns(1) == 8);
  CHECK(rounded_columns(8) == 8);
  CHECK(rounded_columns(2041) == 2048);
  CHECK(rounded_columns(4097) == 4112);
  CHECK(rounded_inner(1) == 64);
  CHECK(rounded_inner(65) == 128);
  CHECK(rounded_inner(4096) == 4096);
  CHECK(rounded_inner(4097) == 4224);
  constexpr std::int64_t most = (std::numeric_limits<int>::max)();
  CHECK(rounded_columns(most) == most);
  auto const numbers_of = [](std::int64_t (*rounded)(std::int64_t), std::int64_t least, std::int64_t parts) {
    std::int64_t before = 0, numbers = 0;
    for (std::int64_t count = 1; count <= 20000; ++count) {
      auto const now = rounded(count);
      REQUIRE(now >= count);
      REQUIRE(now >= before);
      REQUIRE((now - count < least || parts * (now - count) < count));
      REQUIRE(rounded(now) == now);
      numbers += now != before;
      before = now;
    }
    return numbers;
  };
  CHECK(numbers_of(rounded_columns, 8, 256) < 1100);
  CHECK(numbers_of(rounded_inner, 64, 32) < 150);
}

TEST_CASE("matrices of one array are aligned alike, wherever they begin", "[cuda]") {
  alignas(64) static unsigned char const memory[4096]{};
  for (std::size_t const row : {2u, 6u, 8u, 48u, 512u})
    for (std::size_t const start : {0u, 2u, 8u, 16u})
      for (std::size_t first = 0; first < 4; ++first)
        CHECK(alignment_of(memory + start + first * row, row) == alignment_of(memory + start, row));
  CHECK(alignment_of(memory, 512) == 16);
  CHECK(alignment_of(memory, 48) == 16);
  CHECK(alignment_of(memory + 8, 512) == 8);
  CHECK(alignment_of(memory, 6) == 2);
}
