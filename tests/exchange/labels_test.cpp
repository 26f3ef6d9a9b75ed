// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The label of a token is the next token of its document, wherever either lies; and positions of a shard.
#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <random>

#include <seqpar/exchange/labels.hpp>
#include <seqpar/layout/appended.hpp>
#include <seqpar/mask/documents.hpp>
#include <tests/exchange/ranks.hpp>
#include <tests/support/layouts.hpp>

using namespace exchange_test;
using seqpar::test::swapped;

namespace {

constexpr index_t ignore = -100;
using lists = std::vector<std::vector<index_t>>;

/// Labels of tokens `first` + global number, of all ranks.
template <class L>
lists labels_of(const L& layout, index_t first = 0, const std::vector<index_t>& bounds = {}, index_t offset = 1) {
  lists all(static_cast<std::size_t>(layout.rank_count()));
  on_ranks(layout.rank_count(), [&](const team_type& team, flight_record&) {
    auto labels = plan_neighbours(team, layout, offset, {.row_bytes = sizeof(index_t)}, bounds);
    const host_memory memory = prepared(labels);
    const int me = team.index();
    std::vector<index_t> tokens, &mine = all[static_cast<std::size_t>(me)];
    for (index_t i = 0; i < layout.count_of(me); ++i) tokens.push_back(first + layout.global_of(me, i));
    mine.assign(tokens.size(), -7);
    check(labels.forward(tokens.data(), mine.data(), ignore, memory, on_host{}));
  });
  return all;
}

struct score {
  int right = 0, wrong = 0, missing = 0;
  friend bool operator==(score, score) = default;
};

/// S − 1 tokens have a label; missing: it is not there, whether another is or none.
template <class L, class Label>
score score_of(const L& layout, Label&& label) {
  score s;
  for (int r = 0; r < layout.rank_count(); ++r)
    for (index_t i = 0; i < layout.count_of(r); ++i) {
      const index_t token = layout.global_of(r, i), got = label(r, i);
      const bool has_label = token + 1 < layout.token_count();
      s.right += has_label && got == token + 1;
      s.wrong += got != ignore && !(has_label && got == token + 1);
      s.missing += has_label && got != token + 1;
    }
  return s;
}

template <class L>
std::vector<index_t> positions(const L& layout, int rank) {
  std::vector<index_t> p(static_cast<std::size_t>(layout.count_of(rank)));
  positions_of(layout, rank, std::span(p));
  return p;
}
template <class L>
std::vector<index_t> positions(const L& layout, int rank, const std::vector<index_t>& bounds) {
  std::vector<index_t> p(static_cast<std::size_t>(layout.count_of(rank)), -1);
  positions_of(layout, rank, std::span(p), bounds);
  return p;
}

}  // namespace

TEST_CASE("the last token of a shard gets the first token of the next one as its label [G1]") {
  CHECK(labels_of(contiguous{.tokens = 8, .ranks = 2}, 10) == lists{{11, 12, 13, 14}, {15, 16, 17, ignore}});
}

TEST_CASE("labels follow the global order under zigzag [G2]") {
  CHECK(labels_of(zigzag{.tokens = 8, .ranks = 2}, 10) == lists{{11, 12, 17, ignore}, {13, 14, 15, 16}});
}

TEST_CASE("the last token of a document has no label, however the documents are told [G3]") {
  const std::vector<index_t> bounds = pack({3, 3});
  CHECK(labels_of(contiguous{.tokens = 6, .ranks = 2}, 10, bounds) == lists{{11, 12, ignore}, {14, 15, ignore}});
  CHECK(labels_of(contiguous{.tokens = 6, .ranks = 3}, 10, bounds) == lists{{11, 12}, {ignore, 14}, {15, ignore}});
  CHECK(labels_of(striped{.tokens = 6, .ranks = 2}, 10, bounds) == lists{{11, ignore, 15}, {12, 14, ignore}});
  const per_document<contiguous> dealt{bounds, contiguous{.tokens = 6, .ranks = 3}};
  CHECK(labels_of(dealt, 10) == lists{{11, 14}, {12, 15}, {ignore, ignore}});
}

TEST_CASE("of S - 1 labels all are right and none is wrong, where a shift inside each shard loses or spoils some") {
  const auto compare = [](const auto& layout, score inside_a_shard) {
    CHECK(score_of(layout, [&](int r, index_t i) {
            return i + 1 < layout.count_of(r) ? layout.global_of(r, i + 1) : ignore;
          }) == inside_a_shard);
    const lists all = labels_of(layout);
    CHECK(score_of(layout, [&](int r, index_t i) { return at(all[static_cast<std::size_t>(r)], i); }) ==
          score{15, 0, 0});
  };
  compare(contiguous{.tokens = 16, .ranks = 4}, {12, 0, 3});
  compare(zigzag{.tokens = 16, .ranks = 4}, {9, 3, 6});
  compare(striped{.tokens = 16, .ranks = 4}, {0, 12, 15});
}

TEST_CASE("clean and noisy copies are sequences of their own, with documents of one copy or of both") {
  const paired<zigzag> pair{zigzag{.tokens = 4, .ranks = 2}};  // 0 3 | 4 7 and 1 2 | 5 6
  CHECK(labels_of(pair) == lists{{1, ignore, 5, ignore}, {2, 3, 6, 7}});
  CHECK(labels_of(pair, 0, pack({2, 2})) == lists{{1, ignore, 5, ignore}, {ignore, 3, ignore, 7}});
  CHECK(labels_of(pair, 0, pack({2, 4, 2})) == lists{{1, ignore, 5, ignore}, {ignore, 3, ignore, 7}});
  const std::vector<index_t> bounds = pack({1, 3});
  const paired<per_document<contiguous>> both{{bounds, contiguous{.tokens = 4, .ranks = 2}}};
  // rank 0: 0 | 1 2, rank 1: 3
  CHECK(labels_of(both) == lists{{ignore, 2, 3, ignore, 6, 7}, {ignore, ignore}});
}

TEST_CASE("neighbours at any distance in every layout: values, bytes and adjoint, empty shards included [G1]") {
  int turn = 0;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t n : {0, 1, 5, 12, 23}) {
      const layouts every(n, ranks);
      const std::vector<index_t> packed = pack({n / 3, 0, n / 4, n - n / 3 - n / 4});
      const std::size_t count = every.all().size();
      std::vector<std::array<double, 2>> products(count * 7 * static_cast<std::size_t>(ranks));
      ++turn;
      on_ranks(
          ranks,
          [&](const team_type& team, flight_record& record) {
            std::size_t k = static_cast<std::size_t>(team.index());
            for (std::size_t l = 0; l < count; ++l)
              for (const auto& turn_of : {std::pair<index_t, bool>{1, false},
                                          {1, true},
                                          {-1, false},
                                          {-2, true},
                                          {5, false},
                                          {0, true},
                                          {40, false}}) {
                const index_t offset = turn_of.first;
                const bool cut = turn_of.second;
                const any_layout& layout = every.all()[l];
                const std::vector<index_t> bounds = cut ? packed : std::vector<index_t>{};
                const std::string name = layout.name() + ", offset " + std::to_string(offset);
                const int me = team.index();
                const index_t batch = 1 + turn % 2, rows = layout.count_of(me);
                auto plan =
                    plan_neighbours(team, layout, offset, {.row_bytes = 2 * sizeof(double), .batch = batch}, bounds);
                const host_memory memory = prepared(plan);
                const auto document_of = [&](index_t g) {
                  return cut ? std::upper_bound(bounds.begin(), bounds.end(), g) - bounds.begin() : 0;
                };
                const auto neighbour_of = [&](index_t g) {
                  const index_t to = g + offset;
                  return to >= 0 && to < n && document_of(to) == document_of(g) ? to : -1;
                };
                index_t sent = 0, ignored = 0;
                for (index_t g = 0; g < n; ++g)
                  if (const index_t to = neighbour_of(g); to >= 0)
                    sent += layout.place_of(to).rank == me && layout.place_of(g).rank != me;
                std::vector<double> x, y(static_cast<std::size_t>(batch * rows * 2), -7), dy, dx(y.size(), -7);
                for (index_t b = 0; b < batch; ++b)
                  for (index_t i = 0; i < rows; ++i)
                    for (index_t e = 0; e < 2; ++e) {
                      x.push_back(noise(layout.global_of(me, i), e, b));
                      dy.push_back(noise(layout.global_of(me, i), e, b + 50));
                    }
                const index_t bytes =
                    bytes_sent_by(record, [&] { return plan.forward(x.data(), y.data(), -100., memory, on_host{}); });
                require(bytes == sent * batch * 16 && plan.bytes_sent() == bytes, name + ": bytes");
                check(plan.adjoint<double>(dy.data(), dx.data(), memory, on_host{}));
                for (index_t b = 0; b < batch; ++b)
                  for (index_t i = 0; i < rows; ++i)
                    for (index_t e = 0; e < 2; ++e) {
                      const index_t g = layout.global_of(me, i), to = neighbour_of(g), j = (b * rows + i) * 2 + e;
                      require(at(y, j) == (to < 0 ? -100. : noise(to, e, b)), name + ": value");
                      ignored += to < 0 && b == 0 && e == 0;
                      if (to >= 0) products[k][0] += at(y, j) * at(dy, j);
                      products[k][1] += at(x, j) * at(dx, j);
                    }
                require(plan.ignored_rows() == ignored, name + ": number of ignored rows");
                k += static_cast<std::size_t>(ranks);
              }
          },
          static_cast<std::uint64_t>(turn));
      for (std::size_t k = 0; k < products.size(); k += static_cast<std::size_t>(ranks)) {
        double ax_y = 0, x_aty = 0;
        for (int r = 0; r < ranks; ++r) {
          ax_y += products[k + static_cast<std::size_t>(r)][0];
          x_aty += products[k + static_cast<std::size_t>(r)][1];
        }
        CHECK(std::abs(ax_y - x_aty) <= 1e-12);
      }
    }
}

TEST_CASE("strided rows and columns: every element of an ignored row is set, nothing beside it") {
  on_ranks(2, [](const team_type& team, flight_record&) {
    const contiguous layout{.tokens = 5, .ranks = 2};
    auto plan = plan_successors(team, layout, {.row_bytes = 6, .batch = 2, .columns = 3});
    const host_memory memory = prepared(plan);
    const index_t rows = plan.rows();
    std::vector<std::int16_t> in, out(64, 55);
    for (int b = 0; b < 2; ++b)
      for (index_t i = 0; i < rows; ++i)
        for (int c = 0; c < 3; ++c)
          in.push_back(static_cast<std::int16_t>(b * 1000 + c * 100 + layout.global_of(team.index(), i)));
    // columns 3 elements apart, rows 10, items 31
    check(plan.forward(in.data(), row_buffer(out.data(), 20, 62, 6), std::int16_t{-1}, memory, on_host{}));
    std::vector<std::int16_t> want(64, 55);
    for (index_t b = 0; b < 2; ++b)
      for (index_t i = 0; i < rows; ++i)
        for (index_t c = 0; c < 3; ++c) {
          const index_t next = layout.global_of(team.index(), i) + 1;
          want[static_cast<std::size_t>(b * 31 + i * 10 + c * 3)] =
              static_cast<std::int16_t>(next == 5 ? -1 : b * 1000 + c * 100 + next);
        }
    require(out == want, "values");
  });
}

TEST_CASE("rotary positions of a shard are global; those of documents restart; copies share theirs [G6]") {
  using list = std::vector<index_t>;
  const zigzag folded{.tokens = 16, .ranks = 4};
  CHECK(positions(folded, 0) == list{0, 1, 14, 15});
  CHECK(positions(folded, 1) == list{2, 3, 12, 13});
  CHECK(positions(folded, 2) == list{4, 5, 10, 11});
  CHECK(positions(folded, 3) == list{6, 7, 8, 9});
  for (index_t r = 0; r < 4; ++r)
    CHECK(positions(striped{.tokens = 16, .ranks = 4}, static_cast<int>(r)) == list{r, r + 4, r + 8, r + 12});
  const std::vector<index_t> bounds = pack({6, 10});
  CHECK(positions(folded, 0, bounds) == list{0, 1, 8, 9});
  CHECK(positions(folded, 2, bounds) == list{4, 5, 4, 5});
  CHECK(positions(folded, 3, bounds) == list{0, 1, 2, 3});
  CHECK(positions(per_document<zigzag>{bounds, folded}, 0) == list{0, 0, 1, 9});
  CHECK(positions(per_document<zigzag>{bounds, folded}, 0, bounds) == list{0, 0, 1, 9});
  const paired<zigzag> pair{zigzag{.tokens = 8, .ranks = 4}};
  CHECK(positions(pair, 1) == list{1, 6, 1, 6});
  CHECK(positions(pair, 1, pack({5, 3})) == list{1, 1, 1, 1});
  std::vector<float> as_numbers(4);
  positions_of(folded, 3, std::span(as_numbers));
  CHECK(as_numbers == std::vector<float>{6, 7, 8, 9});
}

TEST_CASE("documents pass through every layout that contains another: labels end and positions restart there [G6]") {
  const std::vector<index_t> once = pack({5, 0, 6, 1}), twice = pack({5, 6, 1, 5, 6, 1}), grown = pack({5, 6, 5});
  const per_document<zigzag> dealt{once, {.tokens = 0, .ranks = 2}};
  const contiguous members{.tokens = 0, .ranks = 2};
  const auto check_documents = [](const auto& layout, const std::vector<index_t>& bounds) {
    CAPTURE(bounds.size());
    REQUIRE(layout.token_count() == bounds.back());
    const auto document = [&](index_t g) { return std::upper_bound(bounds.begin(), bounds.end(), g); };
    const lists labels = labels_of(layout);
    for (int r = 0; r < layout.rank_count(); ++r) {
      const std::vector<index_t> place = positions(layout, r);
      for (index_t i = 0; i < layout.count_of(r); ++i) {
        const index_t g = layout.global_of(r, i);
        CHECK(at(place, i) == g - *(document(g) - 1));
        CHECK(at(labels[static_cast<std::size_t>(r)], i) == (g + 1 == *document(g) ? ignore : g + 1));
      }
    }
  };
  check_documents(dealt, once);
  check_documents(paired<per_document<zigzag>>{dealt}, twice);
  check_documents(nested{dealt, members}, once);
  check_documents(nested{paired<per_document<zigzag>>{dealt}, members, axis::ring}, twice);
  check_documents(paired<nested<per_document<zigzag>, contiguous>>{nested{dealt, members}}, twice);
  check_documents(appended{dealt, 4, 2}, grown);
  check_documents(paired<appended<per_document<zigzag>>>{appended{dealt, 4}}, pack({5, 6, 5, 5, 6, 5}));
  check_documents(reordered{swapped{6, 9}, dealt}, once);
  check_documents(nested{reordered{swapped{6, 9}, dealt}, members}, once);
  // Bounds of one copy serve both also where a mesh deals the copies.
  const nested mesh_of_copies{paired<zigzag>{{.tokens = 6, .ranks = 2}}, members};
  const std::vector<index_t> one = pack({2, 4}), both = pack({2, 4, 2, 4});
  CHECK(labels_of(mesh_of_copies, 0, one) == labels_of(mesh_of_copies, 0, both));
  CHECK(labels_of(mesh_of_copies, 0, pack({2, 6, 4})) == labels_of(mesh_of_copies, 0, both));
  CHECK(positions(mesh_of_copies, 1, one) == positions(mesh_of_copies, 1, both));
}

TEST_CASE("an order that takes documents apart leaves labels and positions to bounds") {
  const std::vector<index_t> bounds = pack({3, 5});
  const reordered apart{swapped{1, 6}, per_document<zigzag>{bounds, {.tokens = 8, .ranks = 2}}};
  std::string said;
  try {
    positions(apart, 0);
  } catch (const error& e) {
    said = e.what();
  }
  CHECK(said ==
        "[seqpar] positions_of: the layout's documents do not follow one another in the global order; give bounds");
  for (int r = 0; r < 2; ++r) {
    const std::vector<index_t> place = positions(apart, r, bounds);
    for (index_t i = 0; i < apart.count_of(r); ++i) {
      const index_t g = apart.global_of(r, i);
      CHECK(at(place, i) == (g < 3 ? g : g - 3));
    }
  }
}

TEST_CASE("rotating the rows of a shard by its positions is rotating the gathered sequence [G6]") {
  const auto rotated = [](double x, double y, index_t position, double out[2]) {
    const double angle = 0.3 * static_cast<double>(position);
    out[0] = x * std::cos(angle) - y * std::sin(angle);
    out[1] = x * std::sin(angle) + y * std::cos(angle);
  };
  const layouts every(17, 3);
  const std::vector<index_t> bounds = pack({6, 11});
  on_ranks(3, [&](const team_type& team, flight_record&) {
    for (const any_layout& layout : every.all()) {
      auto gather = plan_gather(team, layout, {.row_bytes = 2 * sizeof(double)});
      const host_memory memory = prepared(gather);
      const int me = team.index();
      const std::vector<index_t> p = positions(layout, me, bounds);
      std::vector<double> shard(p.size() * 2), all(34);
      for (std::size_t i = 0; i < p.size(); ++i) {
        const index_t g = layout.global_of(me, static_cast<index_t>(i));
        rotated(noise(g), noise(g, 1), p[i], &shard[2 * i]);
      }
      check(gather.forward(shard.data(), all.data(), memory, on_host{}));
      for (index_t g = 0; g < 17; ++g) {
        double want[2];
        rotated(noise(g), noise(g, 1), g < 6 ? g : g - 6, want);
        require(at(all, 2 * g) == want[0] && at(all, 2 * g + 1) == want[1], layout.name());
      }
    }
  });
}

TEST_CASE(
    "wrong documents, places and sizes are refused while planning, alike on all ranks; wrong types before posting") {
  on_ranks(2, [](const team_type& team, flight_record&) {
    const zigzag layout{.tokens = 8, .ranks = 2};
    const exchange_options options{.row_bytes = 8};
    for (const std::vector<index_t>& bounds : {std::vector<index_t>{0, 9}, {1, 8}, {0, 5, 3, 8}, {0, 7}, {0}}) {
      const auto plan = try_plan_neighbours(team, layout, 1, options, bounds);
      require(!plan && plan.failure().code() == errc::invalid_argument, "bounds are taken");
    }
    require(!try_plan_neighbours(team, layout, 1, {.row_bytes = 0}), "no bytes are taken");
    require(!try_plan_neighbours(team, layout, unbounded + 1, options), "the offset is taken");
    require(!try_plan_neighbours(team, layout, 1, {.row_bytes = 8, .placement = placement::in_place}), "in place");
    const zigzag three{.tokens = 8, .ranks = 3};
    const auto says = [](const auto& plan, const char* verb) {
      require(!plan && std::string(plan.failure().what()).starts_with(std::string("[seqpar] ") + verb + ": the layout"),
              std::string(verb) + ": three ranks are taken, or another verb is named");
    };
    says(try_plan_neighbours(team, three, 1, options), "plan_neighbours");
    says(try_plan_successors(team, three, options), "plan_successors");
  });
  std::vector<errc> codes(2, errc::ok);
  std::barrier meet(2);
  run_ranks(2, [&](threads::transport world) {
    auto plan = plan_successors(ring(world), zigzag{.tokens = 8, .ranks = 2}, {.row_bytes = 8});
    const host_memory memory = prepared(plan);
    std::vector<index_t> in(4), out(4);
    meet.arrive_and_wait();
    const status s = world.rank() == 0 ? plan.forward(in.data(), out.data(), -100, memory, on_host{})  // an int
                                       : plan.forward(in.data(), out.data(), ignore, memory, on_host{});
    codes[static_cast<std::size_t>(world.rank())] = s.code();
  });
  CHECK(codes == std::vector<errc>{errc::invalid_argument, errc::peer_failed});
}

TEST_CASE("a label that is no class is a local error of which the peers hear") {
  std::vector<errc> codes(2, errc::ok);
  std::barrier meet(2);
  run_ranks(2, [&](threads::transport world) {
    const mesh team = ring(world);
    auto plan = plan_successors(team, contiguous{.tokens = 4, .ranks = 2}, {.row_bytes = 8});
    const host_memory memory = prepared(plan);
    std::vector<index_t> labels = {ignore, 4}, out(2);
    if (world.rank() == 1) labels = {0, 5};
    meet.arrive_and_wait();
    status s = check_labels(team, std::span<const index_t>(labels), 5, ignore);
    if (s.ok()) s = plan.forward(labels.data(), out.data(), ignore, memory, on_host{});
    codes[static_cast<std::size_t>(world.rank())] = s.code();
  });
  CHECK(codes == std::vector<errc>{errc::peer_failed, errc::invalid_argument});
}

TEST_CASE(
    "labels of every integer type: the least and the greatest class pass, what lies beside them is told to peers") {
  const auto told = [](auto label, index_t classes, auto ignored) {
    using T = decltype(label);
    std::vector<status> got(2);
    std::barrier meet(2);
    run_ranks(2, [&](threads::transport world) {
      flight_record record(world.rank(), world.size());
      const mesh team = ring(traced_threads(world, record));
      auto plan = plan_successors(team, contiguous{.tokens = 4, .ranks = 2}, {.row_bytes = sizeof(T)});
      const host_memory memory = prepared(plan);
      std::vector<T> labels(2, ignored), out(2);
      if (world.rank() == 1) labels[1] = label;
      const index_t before = record.messages(direction::send);
      meet.arrive_and_wait();
      status s = check_labels(team, std::span<const T>(labels), classes, static_cast<T>(ignored));
      if (s.ok()) s = plan.forward(labels.data(), out.data(), static_cast<T>(ignored), memory, on_host{});
      if (world.rank() == 1 && !s.ok()) require(record.messages(direction::send) == before, "something was posted");
      got[static_cast<std::size_t>(world.rank())] = s;
    });
    if (got[0].ok() && got[1].ok()) return true;
    CHECK(got[1].code() == errc::invalid_argument);
    CHECK(got[0].code() == errc::peer_failed);
    CHECK(got[0].rank() == 1);
    return false;
  };
  const auto of_type = [&]<class T>(T ignored) {
    constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    CHECK(told(T{99}, 100, ignored));
    CHECK(told(ignored, 100, ignored));
    CHECK_FALSE(told(T{100}, 100, ignored));
    CHECK_FALSE(told(static_cast<T>(most - 1), 100, ignored));
    CHECK(told(T{0}, 1, ignored));
    CHECK(told(T{99}, index_t{1} << 40, ignored));
    CHECK_FALSE(told(T{0}, 0, ignored));
    if (least < 0) CHECK_FALSE(told(static_cast<T>(least + 1), 100, ignored));
    const index_t greatest = std::cmp_less(most, std::numeric_limits<index_t>::max())
                                 ? static_cast<index_t>(most)
                                 : std::numeric_limits<index_t>::max();
    CHECK(told(static_cast<T>(greatest - 1), greatest, ignored));
  };
  of_type(std::int8_t{-100});
  of_type(std::int16_t{-100});
  of_type(std::int32_t{-100});
  of_type(std::int64_t{-100});
  of_type(std::uint8_t{255});
  of_type(std::uint16_t{65535});
  of_type(std::uint32_t{4294967295u});
  of_type(std::numeric_limits<std::uint64_t>::max());
  CHECK_FALSE(told(std::uint64_t{1} << 63, std::numeric_limits<index_t>::max(), std::uint64_t{7}));
}

TEST_CASE(
    "results that overlap themselves or scratch in a row without a neighbour are refused before they are written") {
  std::vector<recorded_message> nothing_moves;
  const mesh team = ring(recorder(0, 1, nothing_moves));
  const auto answer = [&](index_t batch, index_t from_scratch, index_t row, index_t item, bool back) {
    auto plan = plan_successors(team, contiguous{.tokens = 2, .ranks = 1}, {.row_bytes = 8, .batch = batch});
    scratch_room room;
    const memory given = room.memory(plan.memory());
    plan.prepare(given, on_host{});
    const std::vector<double> other(static_cast<std::size_t>(2 * batch), 3);
    const row_buffer result(room.at(from_scratch), row, item);
    const status s = back ? plan.adjoint<double>(other.data(), result, given, on_host{})
                          : plan.forward(other.data(), result, 5., given, on_host{});
    if (!s.ok()) CHECK(room.untouched());
    return s.code();
  };
  constexpr index_t apart = -200;
  for (bool back : {false, true}) {
    CHECK(answer(1, apart, 8, 16, back) == errc::ok);
    CHECK(answer(1, apart, 4, 16, back) == errc::overlapping_buffers);  // row 1, the last token, lies on row 0
    CHECK(answer(2, apart, 8, 16, back) == errc::ok);
    CHECK(answer(2, apart, 16, 8, back) == errc::ok);  // items side by side
    CHECK(answer(2, apart, 8, 8, back) == errc::overlapping_buffers);
    CHECK(answer(1, -8, 8, 16, back) == errc::overlapping_buffers);  // row 1 is scratch
    CHECK(answer(1, -16, 8, 16, back) == errc::ok);
  }
}

TEST_CASE("what all ranks work out alone about neighbours agrees, message by message [J7]") {
  std::minstd_rand draw(17);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  for (int tuple = 0; tuple < 500; ++tuple) {
    const int ranks = 1 + static_cast<int>(below(8));
    const index_t n = below(50), offset = below(2) == 0 ? 1 : below(21) - 10, cut = below(n + 1);
    const layouts every(n, ranks);
    const any_layout& layout = every.all()[draw() % every.all().size()];
    const std::vector<index_t> bounds = below(2) == 0 ? pack({cut, n - cut}) : std::vector<index_t>{};
    CHECK(differing_posts(
              ranks,
              [&](const auto& team) {
                return plan_neighbours(team, layout, offset, {.row_bytes = 8, .check = agreement::trusted}, bounds);
              },
              [&](const auto& plan, const host_memory& memory) {
                std::vector<double> x(50), y(50);
                check(plan.forward(x.data(), y.data(), 0., memory, on_host{}));
                check(plan.template adjoint<double>(y.data(), x.data(), memory, on_host{}));
              }) == "");
  }
}

TEST_CASE("positions of a layout with a problem, and of a rank that it does not have, are refused by name") {
  std::vector<index_t> out(4);
  const auto said = [&](const zigzag& layout, int rank) -> std::string {
    try {
      positions_of(layout, rank, std::span(out));
    } catch (const error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(said({.tokens = 8, .ranks = 2, .granule = 0}, 0).starts_with("[seqpar] positions_of: the layout: "));
  CHECK(said({.tokens = 8, .ranks = 2}, 2) == "[seqpar] positions_of: rank 2 is not one of 2");
  CHECK(said({.tokens = 8, .ranks = 2}, -1) == "[seqpar] positions_of: rank -1 is not one of 2");
}
