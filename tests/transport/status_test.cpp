// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What messages are made of: words, numbers, and the numbers that a status carries.
#include <doctest/doctest.h>

#include <type_traits>

#include <seqpar/memory.hpp>
#include <seqpar/transport/self.hpp>
#include <seqpar/transport/threads.hpp>

using namespace seqpar;

namespace {

static_assert(std::is_trivially_copyable_v<status> && sizeof(status) <= 48);
static_assert(std::is_nothrow_copy_constructible_v<status> && std::is_nothrow_default_constructible_v<status>);
constexpr status known{errc::memory_too_small, "text; remedy", 3, "subject", {8, 6, " bytes"}};
static_assert(known.wanted() == 8 && known.given() == 6 && status{}.given() == no_number);

std::string thrown_by(const auto& body) {
  try {
    run_ranks(2, body);
  } catch (const error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE(
    "a sentence is its words in order: letters, integers of any size and sign, extents, flaws with their number") {
  const index_t least = (std::numeric_limits<index_t>::min)();
  CHECK(detail::sentence({"a ", std::string("b"), 0, " ", index_t{-7}, " ", extent(9)}) == "a b0 -7 9");
  CHECK(detail::sentence({least}) == "-9223372036854775808");
  CHECK(detail::sentence({"x: ", flaw("below 1; give 1", -2)}) == "x: below 1; give 1, got -2");
  CHECK(detail::sentence({"x: ", flaw("no table")}) == "x: no table");
  CHECK(detail::sentence({}).empty());
  CHECK(std::string(detail::invalid("plan", {"n is ", 4}).what()) == "[seqpar] plan: n is 4");
  CHECK(std::string(detail::invalid("plan", "no n").what()) == "[seqpar] plan: no n");
}

TEST_CASE("a status tells its numbers behind its subject, and none when it has none") {
  CHECK(known.message() == "[seqpar] text; remedy: subject (8 bytes wanted, 6 given) (rank 3)");
  CHECK(known.words() == "text; remedy: subject (8 bytes wanted, 6 given)");
  CHECK(status(errc::invalid_argument, "text", {.given = -1, .unit = " tokens"}).words() == "text (-1 tokens given)");
  CHECK(status(errc::invalid_argument, "text", {0, 0}).words() == "text (0 wanted, 0 given)");
  CHECK(status(errc::invalid_argument, "text", 1).words() == "text");
  CHECK(status(errc::invalid_argument, "text", -1, "q").message() == "[seqpar] text: q");
  CHECK(status().message() == "[seqpar] ok");
}

TEST_CASE("of memory that is too small the kind is told, with the bytes asked for and given; null has none") {
  const memory_sizes asked{.tables = 64, .scratch = 128, .exchange = 192, .saved = 256};
  const host_memory own(asked);
  struct kind {
    region memory::*at;
    const char* said;
  };
  for (const auto& [at, said] : {kind{&memory::tables, "tables (64 bytes wanted, 63 given)"},
                                 {&memory::scratch, "scratch (128 bytes wanted, 127 given)"},
                                 {&memory::exchange, "exchange (192 bytes wanted, 191 given)"},
                                 {&memory::saved, "saved (256 bytes wanted, 255 given)"}}) {
    memory given = own;
    --(given.*at).bytes;
    const std::string words = check_memory(given, asked).words();
    CHECK(words ==
          std::string("memory: a region is smaller than the plan asked for; give plan.memory() bytes: ") + said);
    (given.*at).pointer = nullptr;
    CHECK(check_memory(given, asked).given() == 0);
  }
  CHECK(check_memory(own, asked).ok());
}

TEST_CASE("a message of other bytes is a status with both sizes, over threads and to oneself") {
  const auto sizes = [](const status& s) { return s.message().substr(s.message().find(" (")); };
  char data[16] = {};
  const auto send_and_receive = [&](auto t, int to, int from) {
    auto g = t.group();
    g.reserve(1, 1);
    if (to >= 0) g.send(dense_block(data, 5), to);
    if (from >= 0) g.recv(dense_block(data + 8, 4), from);
    const status s = t.launch(g, on_host{});
    return s.ok() ? t.wait(g, on_host{}) : s;
  };
  CHECK(sizes(send_and_receive(self{}, 0, 0)) == " (4 bytes wanted, 5 given) (rank 0)");
  std::string said[2];
  run_ranks(2, [&](threads::transport t) {
    said[t.rank()] = sizes(t.rank() == 1 ? send_and_receive(t, 0, -1) : send_and_receive(t, -1, 1));
  });
  for (const std::string& s : said) CHECK(s == " (4 bytes wanted, 5 given) (rank 1)");
}

TEST_CASE("what is thrown inside a run reaches the report of every rank, and run_ranks throws it") {
  std::string report[2];
  const std::string thrown = thrown_by([&](threads::transport t) {
    const auto body = [&]() -> status {
      if (t.rank() == 1) throw std::runtime_error("planted");
      return {};
    };
    const status s = detail::told_to_peers(t, "test: the kernel threw", body);
    while (t.check().ok()) std::this_thread::yield();
    report[t.rank()] = t.report();
    check(s);
  });
  for (const std::string& r : report) CHECK(r == "rank 1 gave up: test: the kernel threw: planted");
  CHECK(thrown == "[seqpar] rank 1: test: the kernel threw: planted");
}
