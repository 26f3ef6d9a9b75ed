// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <examples/support/arguments.hpp>
#include <examples/support/patches.hpp>
#include <examples/support/svg.hpp>
#include <examples/support/table.hpp>

#include <doctest/doctest.h>

#include <cmath>

namespace {

demo::arguments parse(std::vector<const char*> words) {
  words.insert(words.begin(), "demo");
  return demo::parse_arguments(static_cast<int>(words.size()), words.data());
}

int times(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("Patches are the frame's samples in order, luma then cb then cr, brought to mean 0 and variance 1") {
  demo::video v = demo::moving_scene(22, 10, 3);  // 5 × 2 patches of side 4; 2 columns and 2 rows are dropped
  const demo::patches p = demo::cut_patches(v, 4);
  CHECK(p.rows == 2);
  CHECK(p.columns == 5);
  CHECK(p.features == 24);
  CHECK(p.tokens() == 30);
  REQUIRE(p.values.size() == 30 * 24);
  REQUIRE(p.brightness.size() == 30);
  const std::size_t token = 10 * 2 + 5 + 3;  // frame 2, row 1, column 3
  std::vector<double> want;
  for (std::size_t y = 4; y < 8; ++y)
    for (std::size_t x = 12; x < 16; ++x) want.push_back(v.frames[2].luma[y * 22 + x]);
  for (const auto* plane : {&v.frames[2].cb, &v.frames[2].cr})
    for (std::size_t y = 2; y < 4; ++y)
      for (std::size_t x = 6; x < 8; ++x) want.push_back((*plane)[y * 11 + x]);
  double mean = 0, variance = 0;
  for (double x : want) mean += x / 24;
  for (double x : want) variance += (x - mean) * (x - mean) / 24;
  for (std::size_t f = 0; f < 24; ++f)
    CHECK(double{p.values[token * 24 + f]} == doctest::Approx((want[f] - mean) / std::sqrt(variance + 1)));
}

TEST_CASE("Patches that do not fit are refused") {
  const demo::video v = demo::moving_scene(16, 8, 1);
  for (int side : {0, -2, 3, 10, 18}) CHECK_THROWS_AS(demo::cut_patches(v, side), demo::bad_input);
}

TEST_CASE("Projection is linear, fixed by its seed, and of variance about 1") {
  const demo::patches p = demo::cut_patches(demo::moving_scene(64, 64, 8), 8);
  const std::vector<float> q = demo::project(p, 32, 1), again = demo::project(p, 32, 1), k = demo::project(p, 32, 2);
  CHECK(q == again);
  CHECK(q != k);
  double squares = 0;
  for (float x : q) squares += double{x} * double{x};
  const double variance = squares / static_cast<double>(q.size());
  CHECK(variance > 0.3);
  CHECK(variance < 3);
  CHECK(demo::uniform(1, 0) == doctest::Approx(0.53260350));
}

TEST_CASE("Arguments are read in both spellings, and defaults stand") {
  const demo::arguments none = parse({});
  CHECK(none.ranks == 8);
  CHECK(none.video.empty());
  CHECK_FALSE(none.help);
  const demo::arguments a = parse({"--video", "a b.y4m", "--ranks=3", "--frames", "7", "--out=pictures"});
  CHECK(a.video == "a b.y4m");
  CHECK(a.ranks == 3);
  CHECK(a.frames == 7);
  CHECK(a.out == "pictures");
  CHECK(parse({"--help"}).help);
}

TEST_CASE("Bad arguments are refused with the argument in the message") {
  CHECK_THROWS_WITH_AS(parse({"--rank", "3"}), "unknown argument `--rank`", demo::bad_arguments);
  CHECK_THROWS_WITH_AS(parse({"clip.y4m"}), "unknown argument `clip.y4m`", demo::bad_arguments);
  CHECK_THROWS_WITH_AS(parse({"--ranks"}), "--ranks needs a value", demo::bad_arguments);
  CHECK_THROWS_WITH_AS(parse({"--video="}), "--video needs a value", demo::bad_arguments);
  for (const char* text : {"0", "-1", "65", "8x", "eight", " 8", "99999999999999999999"})
    CHECK_THROWS_WITH_AS(parse({"--ranks", text}), doctest::Contains("--ranks takes a number from 1 to 64"),
                         demo::bad_arguments);
}

TEST_CASE("A table's columns line up and its numbers end together") {
  demo::table t({"case", "bytes"});
  t.add({"ring", demo::bytes_text(640)});
  t.add({"4×2", demo::bytes_text(3'565'158)});
  t.add({"short"});
  CHECK(t.text() ==
        "case     bytes\n"
        "--------------\n"
        "ring     640 B\n"
        "4×2    3.4 MiB\n"
        "short\n");
  CHECK(demo::count_text(1234567) == "1 234 567");
  CHECK(demo::count_text(-123) == "-123");
  CHECK(demo::count_text(999) == "999");
  CHECK(demo::count_text(1, "frame") == "1 frame");
  CHECK(demo::count_text(1000, "frame") == "1 000 frames");
}

TEST_CASE("A picture has every rank's colour in strip, mask and legend, however long the sequence") {
  for (seqpar::index_t tokens : {16, 2048, 100'000}) {
    demo::picture_text text{"striped & <causal>", "", {}, 2, 4, {0.0f, 0.5f, 1.0f}};
    const std::string s = demo::draw_picture(
        text, tokens, 8, [](seqpar::index_t g) { return static_cast<int>(g % 8); },
        [](seqpar::index_t q, seqpar::index_t k) { return k <= q; });
    CAPTURE(tokens);
    for (int r = 0; r < 8; ++r) CHECK(times(s, demo::colour_of(r).text()) == 3);
    CHECK(times(s, "striped &amp; &lt;causal&gt;") == 1);
    CHECK(times(s, "NaN") == 0);
    CHECK(s.size() < 2'000'000);
  }
}

TEST_CASE("A mask cell is drawn exactly where the mask allows") {
  demo::picture_text text{"", "", {}, 1, 1, {}};
  const std::string s = demo::draw_picture(
      text, 3, 2, [](seqpar::index_t g) { return g == 1 ? 1 : 0; },
      [](seqpar::index_t q, seqpar::index_t k) { return k <= q; });
  CHECK(times(s, "d=\"M0 0h1v1h-1zM0 2h3v1h-3z\"") == 1);  // rank 0: queries 0 and 2
  CHECK(times(s, "d=\"M0 1h2v1h-2z\"") == 1);              // rank 1: query 1
}

TEST_CASE("A picture without frames has no headline for them, and its subtitle as many lines as it says") {
  const auto draw = [](demo::picture_text text) {
    return demo::draw_picture(
        text, 8, 1, [](seqpar::index_t) { return 0; }, [](seqpar::index_t, seqpar::index_t) { return true; });
  };
  CHECK(times(draw({"", "", {}, 2, 2, {}}), "on the frames") == 1);
  const std::string s = draw({"", "above\nbelow", {}, 0, 0, {}});
  CHECK(times(s, "on the frames") == 0);
  CHECK(times(s, ">above<") == 1);
  CHECK(times(s, ">below<") == 1);
}

TEST_CASE("No rank is grey") {
  for (int r = 0; r < 40; ++r) {
    const demo::colour c = demo::colour_of(r);
    CHECK(std::max({c.r, c.g, c.b}) - std::min({c.r, c.g, c.b}) >= 16);
  }
}

TEST_CASE("Pictures of nothing and of one token are drawn") {
  for (seqpar::index_t tokens : {0, 1}) {
    const std::string s = demo::draw_picture(
        {}, tokens, 1, [](seqpar::index_t) { return 0; }, [](seqpar::index_t, seqpar::index_t) { return true; });
    CHECK(times(s, "</svg>") == 1);
    CHECK(times(s, "nan") + times(s, "inf") == 0);
  }
}
