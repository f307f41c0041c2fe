#include <shared/numbers.hpp>
#include <shared/schedule_names.hpp>
#include <shared/step_picture.hpp>
#include <shared/table.hpp>
#include <shared/words.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

using namespace examples;

namespace {

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

} // namespace

TEST_CASE("the nearest known word, whatever its case, or none", "[examples]") {
  std::vector<std::string> const policies{"serial", "two_stream_1f1b", "split_dw"};
  CHECK(nearest("split-dw", policies) == "split_dw");
  CHECK(nearest("two_stream", policies) == "two_stream_1f1b");
  CHECK(nearest("SERIAL", policies) == "serial");
  CHECK(nearest("qqqqqqq", policies).empty());
  CHECK(nearest(std::string(100'000, 'x'), policies).empty());
  CHECK(nearest("", policies).empty());
  CHECK(nearest("serial", {}).empty());
  std::vector<std::string> const short_ones{"f32", "bf16"};
  CHECK(nearest("f16", short_ones) == "bf16");
}

TEST_CASE("schedules by other spellings and by the names that others give them", "[examples]") {
  std::vector<std::string> const pipelines{"serial", "one_f_one_b", "zero_bubble_v"};
  CHECK(schedule_name("Serial", pipelines) == "serial");
  CHECK(schedule_name("zero-bubble V", pipelines) == "zero_bubble_v");
  CHECK(schedule_name("1F1B", pipelines) == "one_f_one_b");
  CHECK(schedule_name("ZBV", pipelines) == "zero_bubble_v");
  // Known to others, and not among these.
  CHECK(schedule_name("vpp", pipelines) == "vpp");
  CHECK(schedule_name("1f1b!", pipelines) == "1f1b!");
  CHECK(schedule_name("", pipelines).empty());
  CHECK(schedule_name("serial", {}) == "serial");
  CHECK(schedule_name(std::string(100'000, '_'), pipelines) == std::string(100'000, '_'));
}

TEST_CASE("words that a user typed stay in one line and whole in their last character", "[examples]") {
  CHECK(shown("a\nb\x1b[31m\x7f") == "a?b?[31m?");
  CHECK(shown("\xff\xc3\xe2\x82 \xed\xa0\x80 \xc0\x80 \xf5\x80\x80\x80 \u20ac\U0001f600") ==
        "???? ??? ?? ???? \u20ac\U0001f600");
  CHECK(shown("\u009b\u2028\u202e\u2066|\u00a0\u2027\u202f") == "????|\u00a0\u2027\u202f");
  CHECK(shown(std::string(60, 'x')) == std::string(60, 'x'));
  CHECK(shown(std::string(61, 'x')) == std::string(60, 'x') + "...");
  CHECK(shown(std::string(59, 'x') + "\u00e9\u00e9") == std::string(59, 'x') + "...");
  CHECK(shown_path("/\u00e9/" + std::string(200, 'x')) == "/\u00e9/" + std::string(200, 'x'));
  CHECK(listed(std::vector<std::string>{"a", "b"}) == "a, b");
  CHECK(counted(1, "rank", "ranks") == "1 rank");
  CHECK(counted(0, "rank", "ranks") == "0 ranks");
}

TEST_CASE("tables are aligned, numbers short", "[examples]") {
  std::vector<std::vector<std::string>> const rows{{"policy", "ms"}, {"a", "1234"}};
  CHECK(aligned(rows) == "policy    ms\na       1234\n");
  CHECK(aligned(rows, true) == "policy    ms\n------------\na       1234\n");
  CHECK(short_number(1.5) == "1.5");
  CHECK(short_number(-0.0001) == "0");
  CHECK(round_step(3) == 5);
  CHECK(round_step(0.06) == 0.1);
}

TEST_CASE("a picture of a step draws what took time, the ops of each rank on two lanes", "[examples]") {
  using stretto::lane;
  auto const op = [](stretto::phase_kind phase, stretto::pass what, lane on, double start, double end) {
    return drawn_op{{{phase, what, on, 0, 7}, 0, start, end}, 1};
  };
  step_band const band{20,
                       {op(stretto::attn, stretto::pass::forward, lane::compute, 0, 10),
                        op(stretto::dispatch, stretto::pass::forward, lane::comm, 10, 20),
                        op(stretto::mlp, stretto::pass::backward_weight, lane::compute, 10, 10),
                        op(stretto::attn, stretto::pass::forward, lane::send_lower, 10, 20)}};
  std::string const drawn = draw_svg({"a title", {"a note"}, "ms", 40, 2, {{band}, {band, band}}});
  CHECK(count(drawn, "F.attn L0 mb7: 0 to 10 ms</title>") == 3);
  CHECK(count(drawn, "F.dispatch L0 mb7: 10 to 20 ms</title>") == 3);
  CHECK(count(drawn, "<title>") == 6);
  CHECK(count(drawn, ">F forward<") == 1);
  CHECK(count(drawn, ">W weight gradients<") == 0);
  CHECK(count(drawn, ">second chunk<") == 1);
  CHECK(count(drawn, ">a title<") == 1);
  CHECK(count(drawn, ">a note<") == 1);
  CHECK(count(drawn, ">rank 1<") == 1);
}
