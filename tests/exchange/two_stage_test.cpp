// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Images are dealt by count or cost; their rows and the text arrive where the layout wants them, and gradients go back.
#include <doctest/doctest.h>

#include <array>
#include <barrier>
#include <limits>
#include <random>

#include <seqpar/exchange/two_stage.hpp>
#include <seqpar/layout/laws.hpp>
#include <tests/exchange/ranks.hpp>

using namespace exchange_test;

namespace {

using list = std::vector<index_t>;
list items(const item_deal& deal, int rank) {
  const auto all = deal.items_of(rank);
  return {all.begin(), all.end()};
}

/// Two images and three videos of 0 to 5 rows a frame between texts, some of no rows; one item is never shown. With
/// `again`, a part of them is shown twice.
assembly some_sequence(unsigned seed, bool again) {
  std::minstd_rand draw(seed * 77 + 1);
  const auto below = [&](index_t n) { return static_cast<index_t>(draw() % static_cast<unsigned>(n)); };
  list rows;
  for (int i = 0; i < 14; ++i) rows.push_back(below(6));
  assembly s(rows);
  s.text(below(7)).item(3).text(below(4)).items(5, 3).text(below(3)).item(0).items(10, 2).text(0).items(1, 2);
  s.text(below(9)).items(8, 2).text(below(5)).items(12, 1).item(4);
  if (again) s.items(8, 2).text(below(3)).item(3);
  return s;
}
list first_rows(const assembly& s) {
  list first(1, 0);
  for (index_t i = 0; i < s.item_count(); ++i) first.push_back(first.back() + s.rows_of(i));
  return first;
}

/// One element of row `row` of item `item`, of the text where item is −1.
double element_of(index_t item, index_t row, index_t e, index_t b) {
  return noise(item * 64 + row, e, b);
}

}  // namespace

TEST_CASE("by count, the first ranks get one more, and a rank may get none") {
  const item_deal deal = deal_items(index_t{11}, 4);
  CHECK(items(deal, 0) == list{0, 1, 2});
  CHECK(items(deal, 2) == list{6, 7, 8});
  CHECK(items(deal, 3) == list{9, 10});
  CHECK(deal.imbalance() == doctest::Approx(3 / 2.75));
  const item_deal few = deal_items(index_t{2}, 4);
  CHECK(items(few, 1) == list{1});
  CHECK(few.count_of(2) + few.count_of(3) == 0);
  CHECK(deal_items(index_t{0}, 3).imbalance() == 1);
}

TEST_CASE(
    "by cost, the costliest goes first to the rank with least load; the greatest load is at most 4/3 of the best") {
  const item_deal deal = deal_items(std::vector<double>{1, 7, 2, 6, 3, 5, 4}, 3);
  CHECK(items(deal, 0) == list{0, 1, 2});  // 7; 2, then 1 on equal terms
  CHECK(items(deal, 1) == list{3, 4});
  CHECK(items(deal, 2) == list{5, 6});
  CHECK(deal.load_of(0) == 10);
  CHECK(deal.load_of(1) == 9);
  CHECK(deal.imbalance() == doctest::Approx(10 / (28 / 3.)));
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (index_t n : {0, 1, 4, 6}) {
      std::vector<double> costs;
      for (index_t i = 0; i < n; ++i) costs.push_back(std::floor(std::exp(2 * noise(i, ranks)) * 10));
      const item_deal by_cost = deal_items(costs, ranks);
      CHECK(broken_layout_law(by_cost) == nullptr);
      double greatest = 0, best = std::numeric_limits<double>::infinity();
      for (int r = 0; r < ranks; ++r) greatest = std::max(greatest, by_cost.load_of(r));
      const auto deals = static_cast<index_t>(std::pow(ranks, n));
      for (index_t d = 0; d < deals; ++d) {
        std::vector<double> loads(static_cast<std::size_t>(ranks), 0.);
        index_t digits = d;
        for (double cost : costs) {
          loads[static_cast<std::size_t>(digits % ranks)] += cost;
          digits /= ranks;
        }
        best = std::min(best, *std::max_element(loads.begin(), loads.end()));
      }
      CHECK(greatest <= (4. / 3 - 1. / (3 * ranks)) * best + 1e-9);
    }
  CHECK(items(deal_items(std::vector<double>(5, 0.), 3), 1) == list{1, 4});  // free items are spread, too
}

TEST_CASE("a deal is a layout of items: scatter sends frames to their encoders") {
  const item_deal deal = deal_items(std::vector<double>{5, 1, 1, 4, 2}, 3);
  on_ranks(3, [&](const team_type& team, flight_record&) {
    auto frames = plan_scatter(team, deal, 1, {.row_bytes = 2 * sizeof(float)});
    const host_memory memory = prepared(frames);
    const std::vector<float> all = {0, 10, 1, 11, 2, 12, 3, 13, 4, 14};
    std::vector<float> mine(static_cast<std::size_t>(deal.count_of(team.index()) * 2));
    check(frames.forward(team.index() == 1 ? all.data() : nullptr, mine.data(), memory, on_host{}));
    for (index_t i = 0; i < deal.count_of(team.index()); ++i)
      require(at(mine, 2 * i + 1) == static_cast<float>(10 + deal.global_of(team.index(), i)), "a frame");
  });
}

TEST_CASE("an assembly counts its tokens and tells where each comes from") {
  assembly s({2, 0, 3});
  s.text(2).item(2).items(0, 2).text(1);
  CHECK(s.token_count() == 8);
  CHECK(s.text_rows() == 3);
  using source = assembly::source;
  const source want[] = {{-1, 0}, {-1, 1}, {2, 0}, {2, 1}, {2, 2}, {0, 0}, {0, 1}, {-1, 2}};
  for (index_t t = 0; t < 8; ++t) CHECK(s.source_of(t) == want[t]);
}

TEST_CASE(
    "every token arrives in any layout; bytes are the wanted remote visual rows, text costs none; the adjoint is "
    "the transpose") {
  int turn = 0;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (unsigned seed = 0; seed < 3; ++seed) {
      ++turn;
      const assembly sequence = some_sequence(seed + static_cast<unsigned>(ranks), turn % 2 == 0);
      const index_t n = sequence.token_count(), batch = 1 + turn % 2, columns = 1 + turn % 3 / 2, dim = 2;
      const list first = first_rows(sequence);
      std::vector<double> costs;
      for (index_t i = 0; i < sequence.item_count(); ++i) costs.push_back(static_cast<double>(sequence.rows_of(i) % 4));
      const item_deal by_cost = deal_items(costs, ranks), by_count = deal_items(sequence.item_count(), ranks);
      const std::vector<int> on_last(costs.size(), ranks - 1);  // the others encode nothing
      const any_layout deals[] = {any_layout(by_cost), any_layout(by_count),
                                  any_layout(item_deal(on_last, costs, ranks)),
                                  any_layout(striped{.tokens = sequence.item_count(), .ranks = ranks})};
      const layouts every(n, ranks);
      const std::size_t count = every.all().size();
      std::vector<std::array<double, 2>> products(count * static_cast<std::size_t>(ranks));
      std::vector<std::vector<double>> text_sums(count * static_cast<std::size_t>(ranks));
      on_ranks(
          ranks,
          [&](const team_type& team, flight_record& record) {
            const int me = team.index();
            for (std::size_t l = 0; l < count; ++l) {
              const any_layout& layout = every.all()[l];
              const any_layout& deal = deals[l % 4];
              auto plan = plan_two_stage(team, sequence, deal, layout,
                                         {.row_bytes = columns * dim * static_cast<index_t>(sizeof(double)),
                                          .batch = batch,
                                          .columns = columns});
              const host_memory memory = prepared(plan);
              const index_t width = columns * dim, rows = layout.count_of(me);
              std::vector<std::pair<index_t, index_t>> own;  // item, row
              for (index_t i = 0; i < deal.count_of(me); ++i)
                for (index_t row = 0; row < sequence.rows_of(deal.global_of(me, i)); ++row)
                  own.push_back({deal.global_of(me, i), row});
              require(plan.visual_rows() == static_cast<index_t>(own.size()) && plan.rows() == rows, "rows");
              std::vector<double> visual, text, out(static_cast<std::size_t>(batch * rows * width), -7);
              for (index_t b = 0; b < batch; ++b) {
                for (const auto& [item, row] : own)
                  for (index_t e = 0; e < width; ++e) visual.push_back(element_of(item, row, e, b));
                for (index_t row = 0; row < sequence.text_rows(); ++row)
                  for (index_t e = 0; e < width; ++e) text.push_back(element_of(-1, row, e, b));
              }
              index_t sent = 0, received = 0;
              for (index_t t = 0; t < n; ++t)
                if (const auto from = sequence.source_of(t); from.item >= 0) {
                  const int owner = deal.place_of(from.item).rank, wanter = layout.place_of(t).rank;
                  sent += owner == me && wanter != me;
                  received += owner != me && wanter == me;
                }
              const index_t row_bytes = width * batch * 8;
              const index_t bytes = bytes_sent_by(
                  record, [&] { return plan.forward(visual.data(), text.data(), out.data(), memory, on_host{}); });
              require(bytes == sent * row_bytes && plan.bytes_sent() == bytes, layout.name() + ": bytes sent");
              require(plan.bytes_received() == received * row_bytes, layout.name() + ": bytes received");

              std::vector<double> d_out, d_visual(visual.size(), -7), d_text(text.size(), -7);
              for (index_t b = 0; b < batch; ++b)
                for (index_t i = 0; i < rows; ++i)
                  for (index_t e = 0; e < width; ++e) d_out.push_back(noise(layout.global_of(me, i), e, b + 90));
              const index_t back = bytes_sent_by(record, [&] {
                return plan.adjoint<double>(d_out.data(), d_visual.data(), d_text.data(), memory, on_host{});
              });
              require(back == received * row_bytes, layout.name() + ": bytes of the adjoint");
              auto& [left, right] = products[l * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(me)];
              for (index_t b = 0; b < batch; ++b)
                for (index_t i = 0; i < rows; ++i)
                  for (index_t e = 0; e < width; ++e) {
                    const auto from = sequence.source_of(layout.global_of(me, i));
                    const index_t j = (b * rows + i) * width + e;
                    require(at(out, j) == element_of(from.item, from.row, e, b), layout.name() + ": value");
                    left += at(out, j) * at(d_out, j);
                  }
              for (std::size_t i = 0; i < visual.size(); ++i) right += visual[i] * d_visual[i];
              for (std::size_t i = 0; i < text.size(); ++i) right += text[i] * d_text[i];
              text_sums[l * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(me)] = d_text;
              // a visual row's gradient is the sum over its tokens
              index_t j = 0;
              for (index_t b = 0; b < batch; ++b)
                for (const auto& [item, row] : own)
                  for (index_t e = 0; e < width; ++e, ++j) {
                    double sum = 0;
                    for (index_t t = 0; t < n; ++t)
                      if (sequence.source_of(t) == assembly::source{item, row}) sum += noise(t, e, b + 90);
                    require(std::abs(at(d_visual, j) - sum) <= 1e-14, layout.name() + ": gradient of an item");
                  }
            }
          },
          static_cast<std::uint64_t>(turn));
      for (std::size_t l = 0; l < count; ++l) {
        double left = 0, right = 0;
        for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
          left += products[l * static_cast<std::size_t>(ranks) + r][0];
          right += products[l * static_cast<std::size_t>(ranks) + r][1];
        }
        CHECK(std::abs(left - right) <= 1e-12);
        // over ranks, the text's gradients add up to the gradient of the text
        const index_t width = columns * dim;
        for (index_t t = 0; t < n; ++t)
          if (const auto from = sequence.source_of(t); from.item < 0)
            for (index_t b = 0; b < batch; ++b)
              for (index_t e = 0; e < width; ++e) {
                double sum = 0;
                for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
                  sum += at(text_sums[l * static_cast<std::size_t>(ranks) + r],
                            (b * sequence.text_rows() + from.row) * width + e);
                if (sum != noise(t, e, b + 90)) FAIL_CHECK("gradient of text row " << from.row);
              }
      }
    }
}

TEST_CASE("a sequence of text alone moves nothing, one of images alone needs no text, an empty one is fine") {
  on_ranks(3, [](const team_type& team, flight_record& record) {
    const auto run = [&](const assembly& s) {
      auto plan = plan_two_stage(team, s, deal_items(s.item_count(), 3), zigzag{.tokens = s.token_count(), .ranks = 3},
                                 {.row_bytes = sizeof(float)});
      const host_memory memory = prepared(plan);
      std::vector<float> visual(static_cast<std::size_t>(plan.visual_rows()), 2),
          text(static_cast<std::size_t>(plan.text_rows()), 1), out(static_cast<std::size_t>(plan.rows()), -1);
      const index_t bytes = bytes_sent_by(
          record, [&] { return plan.forward(visual.data(), text.data(), out.data(), memory, on_host{}); });
      check(plan.adjoint<float>(out.data(), visual.data(), text.data(), memory, on_host{}));
      for (float x : out) require(x > 0, "a token is missing");
      return bytes;
    };
    require(run(assembly({4, 4}).text(11)) == 0, "text moves");
    run(assembly({4, 5, 1}).items(0, 3));
    run(assembly({}));
    run(assembly({0, 0}).items(0, 2).text(2));
  });
}

TEST_CASE("no rank has a full copy: forward needs no memory beside its rows, the adjoint only what it sums") {
  on_ranks(4, [](const team_type& team, flight_record&) {
    assembly s(list(64, 16));
    s.text(100).items(0, 64).text(28);
    const zigzag layout{.tokens = s.token_count(), .ranks = 4};
    const auto forward =
        plan_two_stage(team, s, deal_items(index_t{64}, 4), layout, {.row_bytes = 64, .passes = forward_only});
    require(forward.memory() == memory_sizes{}, "forward takes memory");
    const auto both = plan_two_stage(team, s, deal_items(index_t{64}, 4), layout, {.row_bytes = 64});
    // rows sent and an fp32 sum for each 16-bit element of the own ones
    require(both.memory().scratch == both.bytes_sent() + both.visual_rows() * 64 * 2, "the adjoint's scratch");
  });
}

TEST_CASE("the gradients of images and text are the slopes of one global scalar [H1]") {
  constexpr int ranks = 3;
  const assembly s = assembly({2, 1, 2}).text(2).items(1, 2).text(1).item(0).item(1).text(1);
  const item_deal deal = deal_items(std::vector<double>{0, 1, 9}, ranks);
  const zigzag layout{.tokens = s.token_count(), .ranks = ranks};
  // x of rank r: its visual rows; behind them, on every rank, the text, whose replicas are variables of their own
  ranks_values x(ranks), d(ranks);
  for (int r = 0; r < ranks; ++r) {
    index_t n = s.text_rows();
    for (index_t i : deal.items_of(r)) n += s.rows_of(i);
    for (index_t i = 0; i < n; ++i) x[static_cast<std::size_t>(r)].push_back(noise(r, i));
  }
  const auto scalar = [&](const ranks_values& in, ranks_values* gradient) {
    std::vector<double> parts(ranks);
    on_ranks(ranks, [&](const team_type& team, flight_record&) {
      const auto me = static_cast<std::size_t>(team.index());
      auto plan = plan_two_stage(team, s, deal, layout, {.row_bytes = sizeof(double)});
      const host_memory memory = prepared(plan);
      std::vector<double> out(static_cast<std::size_t>(plan.rows())), d_out, d_in(in[me].size());
      const auto visual = static_cast<std::size_t>(plan.visual_rows());
      check(plan.forward(in[me].data(), in[me].data() + visual, out.data(), memory, on_host{}));
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double w = static_cast<double>(1 + layout.global_of(team.index(), static_cast<index_t>(i)));
        parts[me] += w * std::sin(out[i]);
        d_out.push_back(w * std::cos(out[i]));
      }
      check(plan.adjoint<double>(d_out.data(), d_in.data(), d_in.data() + visual, memory, on_host{}));
      if (gradient) (*gradient)[me] = d_in;
    });
    return parts[0] + parts[1] + parts[2];
  };
  scalar(x, &d);
  CHECK(no_gradient_of([&](const ranks_values& v) { return scalar(v, nullptr); }, x, d) == "");
}

TEST_CASE(
    "costs, items, rows and tokens that make no sense are refused while planning, with the same words everywhere") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double wrong : {-1., nan, inf}) {
    const auto deal = try_deal_items(std::vector<double>{1, wrong}, 2);
    REQUIRE(!deal.ok());
    CHECK(std::string(deal.failure().what()).find("deal_items: the cost of item 1 is") != std::string::npos);
  }
  CHECK(std::string(try_deal_items(std::vector<double>{1, 1e308, 1e308}, 2).failure().what()) ==
        "[seqpar] deal_items: the costs up to item 2 have an infinite sum; give them in a larger unit");
  CHECK(!try_deal_items(index_t{-1}, 2).ok());
  CHECK(!try_deal_items(index_t{3}, 0).ok());
  CHECK(!try_deal_items(std::vector<double>{1}, 0).ok());

  std::vector<std::vector<std::string>> texts(2);
  on_ranks(2, [&](const team_type& team, flight_record&) {
    const item_deal deal = deal_items(index_t{2}, 2);
    const auto refused = [&](const assembly& s, const item_deal& d, const contiguous& layout,
                             const exchange_options& options) {
      const auto plan = try_plan_two_stage(team, s, d, layout, options);
      require(!plan, "taken");
      texts[static_cast<std::size_t>(team.index())].push_back(plan.failure().what());
    };
    const contiguous five{.tokens = 5, .ranks = 2};
    const auto good = assembly({2, 1}).text(2).items(0, 2);
    const exchange_options options{.row_bytes = 4};
    require(static_cast<bool>(try_plan_two_stage(team, good, deal, five, options)), "the good one is refused");
    refused(good, deal_items(index_t{3}, 2), five, options);
    refused(good, deal_items(index_t{2}, 3), five, options);
    refused(good, deal, {.tokens = 6, .ranks = 2}, options);
    refused(good, deal, {.tokens = 5, .ranks = 3}, options);
    refused(assembly({2, 1}).text(3).item(2).item(0), deal, five, options);
    refused(assembly({2, 1}).text(3).item(-1).item(0), deal, five, options);
    refused(assembly({2, 1}).text(6).text(-1), deal, five, options);
    refused(assembly({2, 1}).text(5).items(0, -1), deal, five, options);
    refused(assembly({2, -1}).text(3).item(0), deal, five, options);
    refused(good, deal, five, {.row_bytes = 0});
    refused(good, deal, five, {.row_bytes = 4, .columns = 3});
    refused(good, deal, five, {.row_bytes = 4, .convention = gradient::replicated});
    refused(good, deal, five, {.row_bytes = 4, .placement = placement::in_place});
  });
  CHECK(texts[0] == texts[1]);
  CHECK(texts[0][2] ==
        "[seqpar] plan_two_stage: the parts add up to 5 tokens, the layout has 6; let the layout deal the assembled "
        "sequence");
}

TEST_CASE("a deal by hand is refused where an owner is no rank, a cost is missing or makes no sense") {
  const auto said = [](std::vector<int> owners, std::vector<double> costs, int ranks) {
    try {
      return items(item_deal(owners, costs, ranks), 0).empty() ? std::string("empty") : std::string("dealt");
    } catch (const error& e) {
      return std::string(e.what());
    }
  };
  const std::string at = "[seqpar] item_deal: ";
  CHECK(said({1, 0}, {3, 4}, 2) == "dealt");
  CHECK(said({}, {}, 1) == "empty");
  CHECK(said({1, 2}, {3, 4}, 2) == at + "item 1 goes to rank 2, which is not one of 2 ranks");
  CHECK(said({-1, 0}, {3, 4}, 2) == at + "item 0 goes to rank -1, which is not one of 2 ranks");
  CHECK(said({0, 0}, {3}, 2) == at + "2 owners and 1 costs; give one of each to every item");
  CHECK(said({0}, {3, 4}, 2) == at + "1 owners and 2 costs; give one of each to every item");
  CHECK(said({}, {}, 0) == at + "ranks must be at least 1, got 0");
  CHECK(said({0, 0}, {3, -4}, 2) == at + "the cost of item 1 is -4.000000; give finite costs of 0 or more");
  CHECK(said({0}, {std::numeric_limits<double>::quiet_NaN()}, 2).starts_with(at + "the cost of item 0 is "));
  CHECK(said({0, 0}, {1e308, 1e308}, 2).starts_with(at + "the costs up to item 1 have an infinite sum"));
}

TEST_CASE("parts beyond all numbers are a wrong part, whatever is added to them") {
  constexpr index_t most = std::numeric_limits<index_t>::max();
  CHECK(assembly({2, 1}).items(1, 1).problem() == "");
  CHECK(assembly({2, 1}).items(2, 0).problem() == "");
  CHECK(assembly({2, 1}).items(1, most).problem() ==
        "items 1 and on, 9223372036854775807 of them, which are not all among the 2 items");
  for (auto [first, count] : {std::pair<index_t, index_t>{most, 1}, {1, 2}, {-1, 1}, {0, -1}, {most, most}})
    CHECK(assembly({2, 1}).items(first, count).problem().starts_with("items "));
  const auto huge = assembly({}).text(most).text(most);
  CHECK(huge.problem() == "a part of 9223372036854775807 rows");
  CHECK(huge.text_rows() == 0);
}

TEST_CASE("ranks that were told other sequences or deals hear of it before anything moves") {
  const auto complaint = [](auto sequence_of, auto deal_of) {
    std::vector<std::string> texts(3);
    run_ranks(3, [&](threads::transport world) {
      auto plan = plan_two_stage(ring(world), sequence_of(world.rank()), deal_of(world.rank()),
                                 zigzag{.tokens = 6, .ranks = 3}, {.row_bytes = 4});
      const host_memory memory(plan.memory());
      try {
        plan.prepare(memory, on_host{});
      } catch (const error& e) {
        texts[static_cast<std::size_t>(world.rank())] = e.what();
      }
    });
    CHECK(texts[0] == texts[1]);
    CHECK(texts[0] == texts[2]);
    return texts[0];
  };
  const auto same = [](int) { return assembly({1, 2, 1}).text(2).items(0, 3); };
  const auto even = [](int) { return deal_items(index_t{3}, 3); };
  CHECK(complaint(
            [](int r) {
              return r == 1 ? assembly({1, 2, 1}).items(0, 3).text(2) : assembly({1, 2, 1}).text(2).items(0, 3);
            },
            even)
            .find("disagree on the parts of the sequence") != std::string::npos);
  CHECK(complaint(same, [](int r) {
          return r == 2 ? deal_items(std::vector<double>{1, 2, 3}, 3) : deal_items(index_t{3}, 3);
        }).find("disagree on the deal of items") != std::string::npos);
  CHECK(complaint(same, even) == "");
}

TEST_CASE("a null or shared buffer is refused before anything is posted, and the peers hear of it") {
  std::vector<errc> codes(2, errc::ok);
  std::barrier meet(2);
  run_ranks(2, [&](threads::transport world) {
    auto plan = plan_two_stage(ring(world), assembly({2, 2}).text(2).items(0, 2), deal_items(index_t{2}, 2),
                               striped{.tokens = 6, .ranks = 2}, {.row_bytes = 4});
    const host_memory memory = prepared(plan);
    std::vector<float> visual(2), text(2), out(3);
    meet.arrive_and_wait();
    const status s = world.rank() == 0 ? plan.forward(visual.data(), out.data() + 1, out.data(), memory, on_host{})
                                       : plan.forward(visual.data(), text.data(), out.data(), memory, on_host{});
    codes[static_cast<std::size_t>(world.rank())] = s.code();
  });
  CHECK(codes == std::vector<errc>{errc::overlapping_buffers, errc::peer_failed});
}

TEST_CASE("results that overlap themselves, each other or scratch in text rows, too, are refused before posting") {
  std::vector<recorded_message> nothing_moves;
  const mesh team = ring(recorder(0, 1, nothing_moves));
  auto plan = plan_two_stage(team, assembly({1}).item(0).text(2), deal_items(index_t{1}, 1),
                             contiguous{.tokens = 3, .ranks = 1}, {.row_bytes = 8});
  scratch_room room;
  const memory given = room.memory(plan.memory());
  plan.prepare(given, on_host{});
  const auto at = [&](index_t from_scratch, index_t row = 8) { return row_buffer(room.at(from_scratch), row); };
  const row_buffer out = at(-200), visual = at(-100), text = at(-60);
  const auto forward = [&](const row_buffer& v, const row_buffer& t, const row_buffer& o) {
    const status s = plan.forward(v, t, o, given, on_host{});
    if (!s.ok()) CHECK(room.untouched());
    return s.code();
  };
  const auto adjoint = [&](const row_buffer& o, const row_buffer& v, const row_buffer& t) {
    const status s = plan.adjoint<float>(o, v, t, given, on_host{});
    if (!s.ok()) CHECK(room.untouched());
    return s.code();
  };
  constexpr errc overlap = errc::overlapping_buffers;
  CHECK(forward(visual, text, at(-200, 4)) == overlap);
  CHECK(forward(visual, text, at(-16)) == overlap);  // row 2, of text, is scratch
  CHECK(forward(visual, at(-8), out) == overlap);
  CHECK(forward(visual, at(-184), out) == overlap);
  CHECK(adjoint(out, visual, at(-60, 4)) == overlap);
  CHECK(adjoint(out, visual, at(-8)) == overlap);
  CHECK(adjoint(at(-16), visual, text) == overlap);
  CHECK(adjoint(out, visual, at(-104)) == overlap);
  CHECK(adjoint(out, visual, at(-184)) == overlap);
  CHECK(forward(text, text, out) == errc::ok);  // inputs may be one buffer
  CHECK(forward(visual, at(-60, 4), out) == errc::ok);
  CHECK(adjoint(out, visual, text) == errc::ok);
}

TEST_CASE("what all ranks work out alone about images and text agrees, message by message [J7]") {
  std::minstd_rand draw(19);
  for (int tuple = 0; tuple < 500; ++tuple) {
    const int ranks = 1 + static_cast<int>(draw() % 8);
    const assembly sequence = some_sequence(static_cast<unsigned>(draw() % 1000), draw() % 2 == 0);
    const layouts every(sequence.token_count(), ranks);
    const any_layout& layout = every.all()[draw() % every.all().size()];
    std::vector<double> costs;
    for (index_t i = 0; i < sequence.item_count(); ++i) costs.push_back(static_cast<double>(draw() % 5));
    const item_deal deal = draw() % 2 == 0 ? deal_items(costs, ranks) : deal_items(sequence.item_count(), ranks);
    CHECK(differing_posts(
              ranks,
              [&](const auto& team) {
                return plan_two_stage(team, sequence, deal, layout, {.row_bytes = 8, .check = agreement::trusted});
              },
              [&](const auto& plan, const host_memory& memory) {
                std::vector<double> visual(200), text(200), out(200);
                check(plan.forward(visual.data(), text.data(), out.data(), memory, on_host{}));
                check(plan.template adjoint<double>(out.data(), visual.data(), text.data(), memory, on_host{}));
              }) == "");
  }
}
