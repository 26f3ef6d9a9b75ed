// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <examples/support/y4m.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <sstream>

namespace {

std::string frame_of(int bytes, int first, const std::string& parameters = "") {
  std::string s = "FRAME" + parameters + "\n";
  for (int i = 0; i < bytes; ++i) s += static_cast<char>(first + i);
  return s;
}

demo::video read(const std::string& text, int most = 0) {
  std::istringstream in(text);
  return demo::read_y4m(in, "clip", most);
}

/// The message with which `text` is refused, or "" if it is not.
std::string refusal(const std::string& text, int most = 0) {
  try {
    read(text, most);
  } catch (const demo::bad_input& e) {
    return e.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("A Y4M's planes are luma, cb, cr, in that order and size") {
  const demo::video v = read("YUV4MPEG2 W4 H2 F25:1 Ip A1:1 C420\n" + frame_of(12, 0) + frame_of(12, 100));
  CHECK(v.width == 4);
  CHECK(v.height == 2);
  REQUIRE(v.frames.size() == 2);
  CHECK(v.frames[0].luma == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(v.frames[0].cb == std::vector<std::uint8_t>{8, 9});
  CHECK(v.frames[0].cr == std::vector<std::uint8_t>{10, 11});
  CHECK(v.frames[1].luma.front() == 100);
  CHECK(v.frames[1].cr.back() == 111);
}

TEST_CASE("Headers of any order, with unknown and missing parameters, are read") {
  for (const char* header : {"YUV4MPEG2 W4 H2 F12:1 Ip A3:4 C420jpeg XYSCSS=420JPEG XCOLORRANGE=LIMITED",
                             "YUV4MPEG2 H2 W4", "YUV4MPEG2 C420mpeg2 H2 W4 It", "YUV4MPEG2  W4  H2 C420paldv ",
                             "YUV4MPEG2 W4 H2 XYSCSS=420MPEG2", "YUV4MPEG2 W4 H2 XW9 XH9 XC444"}) {
    CAPTURE(header);
    const demo::video v = read(std::string(header) + "\n" + frame_of(12, 0, " Ip XA=b"));
    CHECK(v.width == 4);
    CHECK(v.height == 2);
    CHECK(v.frames.size() == 1);
  }
}

TEST_CASE("Only the frames asked for are read, so damage behind them is not met") {
  const std::string text = "YUV4MPEG2 W4 H2\n" + frame_of(12, 0) + frame_of(12, 1) + "garbage";
  CHECK(read(text, 1).frames.size() == 1);
  CHECK(read(text, 2).frames.size() == 2);
  CHECK(says(refusal(text, 3), "frame 3 does not begin with FRAME"));
  CHECK(says(refusal(text), "frame 3 does not begin with FRAME"));
}

TEST_CASE("A newline in the samples does not end a frame") {
  const demo::video v = read("YUV4MPEG2 W4 H2\n" + frame_of(12, '\n' - 3) + frame_of(12, 50));
  REQUIRE(v.frames.size() == 2);
  CHECK(v.frames[0].luma[3] == '\n');
}

TEST_CASE("Every way of being no Y4M is told apart and named") {
  CHECK(says(refusal(""), "not a Y4M"));
  CHECK(says(refusal("RIFF....AVI "), "not a Y4M"));
  CHECK(says(refusal("YUV4MPEG W4 H2\n" + frame_of(12, 0)), "not a Y4M"));
  CHECK(says(refusal("YUV4MPEG22 W4 H2\n" + frame_of(12, 0)), "not a Y4M"));
  CHECK(says(refusal("YUV4MPEG2 W4 H2"), "header is truncated"));
  CHECK(says(refusal("YUV4MPEG2 " + std::string(5000, 'X')), "header is truncated"));
  CHECK(says(refusal("YUV4MPEG2 H2\n" + frame_of(12, 0)), "no width"));
  CHECK(says(refusal("YUV4MPEG2 W4\n" + frame_of(12, 0)), "no height"));
  CHECK(says(refusal("YUV4MPEG2 W4 H2\n"), "no frames"));
}

TEST_CASE("Odd sizes are refused with the crop that mends them") {
  CHECK(says(refusal("YUV4MPEG2 W5 H2\n" + frame_of(18, 0)), "5x2, an odd size"));
  CHECK(says(refusal("YUV4MPEG2 W161 H91\n"), "crop=160:90"));
  CHECK(says(refusal("YUV4MPEG2 W1 H90\n"), "at least 2x2"));  // no crop mends it
}

TEST_CASE("Other samplings and depths are refused by name") {
  for (const char* chroma : {"444", "422", "411", "mono", "420p10", "420p16", "444alpha"}) {
    const std::string text = refusal("YUV4MPEG2 W4 H2 C" + std::string(chroma) + "\n" + frame_of(64, 0));
    CHECK(says(text, std::string(chroma) + ", not 8-bit 4:2:0"));
  }
  CHECK(says(refusal("YUV4MPEG2 W4 H2 XYSCSS=444\n" + frame_of(24, 0)), "444, not 8-bit 4:2:0"));
}

TEST_CASE("A truncated frame is named with what it has") {
  const std::string whole = "YUV4MPEG2 W4 H2\n" + frame_of(12, 0) + frame_of(12, 0);
  for (std::size_t missing = 1; missing <= 12; ++missing) {
    const std::string text = refusal(whole.substr(0, whole.size() - missing));
    CHECK(says(text, "frame 2 is truncated: it has " + std::to_string(12 - missing) + " of 12 bytes"));
  }
  CHECK(says(refusal(whole.substr(0, whole.size() - 13)), "frame 2 is truncated: it has 0 of 12 bytes"));
  CHECK(says(refusal(whole.substr(0, whole.size() - 15)), "frame 2 does not begin with FRAME"));
}

TEST_CASE("Sizes that are no sizes are refused before anything is allocated") {
  for (const char* field : {"W0", "W-4", "W", "W4x", "W1e9", "W99999999999999999999", "W2147483646", "W16386"})
    CHECK(says(refusal("YUV4MPEG2 " + std::string(field) + " H2\n"), "the header's " + std::string(field)));
  CHECK(says(refusal("YUV4MPEG2 W4 H-2\n"), "the header's H-2"));
  // The largest legal size: 400 MB a frame, of which three bytes are there.
  CHECK(says(refusal("YUV4MPEG2 W16384 H16384\nFRAME\nabc"), "it has 3 of 402653184 bytes"));
}

TEST_CASE("A file is read as a stream is, and one that is not there is named") {
  const std::string path = "seqpar_y4m_test.y4m";
  {
    std::ofstream out(path, std::ios::binary);
    out << "YUV4MPEG2 W4 H2\n" << frame_of(12, 7);
  }
  CHECK(demo::read_y4m_file(path).frames.at(0).luma[0] == 7);
  std::remove(path.c_str());
  CHECK_THROWS_WITH_AS(demo::read_y4m_file(path), doctest::Contains("seqpar_y4m_test.y4m: cannot be read"),
                       demo::bad_input);
  CHECK_THROWS_AS(demo::read_y4m_file("."), demo::bad_input);
}

TEST_CASE("The made scene has the size asked for and moves") {
  for (const auto& [w, h] : {std::pair{64, 48}, std::pair{16, 16}, std::pair{2, 2}}) {
    const demo::video v = demo::moving_scene(w, h, 9);
    REQUIRE(v.frames.size() == 9);
    for (const demo::picture& p : v.frames) {
      CHECK(p.luma.size() == static_cast<std::size_t>(w * h));
      CHECK(p.cb.size() == static_cast<std::size_t>(w * h / 4));
      CHECK(p.cr.size() == static_cast<std::size_t>(w * h / 4));
    }
    if (w > 2) CHECK(v.frames[0].luma != v.frames[1].luma);
  }
}
