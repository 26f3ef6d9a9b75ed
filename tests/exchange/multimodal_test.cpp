// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From frames to a loss and back to the encoder, on any number of ranks as on one.
#include <doctest/doctest.h>

#include <seqpar/exchange/labels.hpp>
#include <seqpar/exchange/sums.hpp>
#include <seqpar/exchange/two_stage.hpp>
#include <seqpar/transport/threads.hpp>
#include <tests/exchange/ranks.hpp>

using seqpar::on_host;

namespace {

constexpr seqpar::index_t ignore = -100;

/// A tower and a model that need no explaining: an image's row is scale · pixel, the loss of a token is
/// (row − label / (1 + position))².
struct step {
  double scale;
  seqpar::mean loss{};
  double d_scale = 0;  ///< on every rank

  void run(const seqpar::threads::transport& world, const std::vector<double>& costs, const seqpar::assembly& sequence,
           const std::vector<seqpar::index_t>& bounds) {
    std::vector<double> pixels;
    // [snippet]
    const auto team = seqpar::ring(world);
    const seqpar::zigzag layout{.tokens = sequence.token_count(), .ranks = team.size()};
    const auto encoders = seqpar::deal_items(costs, team.size());  // stage 1: which rank encodes which image

    auto embed = seqpar::plan_two_stage(team, sequence, encoders, layout, {.row_bytes = sizeof(double)});
    auto shift = seqpar::plan_successors(team, layout, {.row_bytes = sizeof(seqpar::index_t)}, bounds);
    auto average = seqpar::plan_token_mean(team);
    auto add = seqpar::plan_all_reduce<double>(team, 1);
    const seqpar::host_memory m1(embed.memory()), m2(shift.memory()), m3(average.memory()), m4(add.memory());
    embed.prepare(m1, on_host{});
    shift.prepare(m2, on_host{});
    average.prepare(m3, on_host{});
    add.prepare(m4, on_host{});

    for (seqpar::index_t image : encoders.items_of(team.index())) load(sequence, image, pixels);
    std::vector<double> visual = encode(pixels);               // this rank's images only
    std::vector<double> text = embed_text(embed.text_rows());  // all of it, on every rank
    std::vector<double> rows(size(embed.rows())), d_rows(rows.size());
    check(embed.forward(visual.data(), text.data(), rows.data(), m1, on_host{}));  // stage 2

    std::vector<seqpar::index_t> tokens = ids_of(layout, team.index()), labels(tokens.size()), time(tokens.size());
    check(shift.forward(tokens.data(), labels.data(), ignore, m2, on_host{}));
    seqpar::positions_of(layout, team.index(), std::span(time), bounds);

    const std::vector<double> losses = losses_of(rows, labels, time);
    const auto valid = [&](seqpar::index_t i) { return labels[size(i)] != ignore; };
    check(average.forward<double>(losses, valid, loss, m3, on_host{}));

    std::vector<double> d_losses(losses.size()), d_visual(visual.size()), d_text(text.size());
    check(average.adjoint<double>(1, loss, valid, std::span(d_losses), m3, on_host{}));
    for (std::size_t i = 0; i < rows.size(); ++i) d_rows[i] = d_losses[i] * slope(rows[i], labels[i], time[i]);
    check(embed.adjoint<double>(d_rows.data(), d_visual.data(), d_text.data(), m1, on_host{}));
    std::vector<double> d_weights = encode_adjoint(pixels, d_visual);  // every rank has the weights: sum over ranks
    check(add.forward(d_weights, std::span(d_weights), m4, on_host{}));
    // [/snippet]
    d_scale = d_weights[0];
  }

  static std::size_t size(seqpar::index_t n) { return static_cast<std::size_t>(n); }
  static void load(const seqpar::assembly& sequence, seqpar::index_t image, std::vector<double>& pixels) {
    for (seqpar::index_t row = 0; row < sequence.rows_of(image); ++row)
      pixels.push_back(exchange_test::noise(image, row));
  }
  std::vector<double> encode(std::vector<double> pixels) const {
    for (double& p : pixels) p *= scale;
    return pixels;
  }
  static std::vector<double> encode_adjoint(const std::vector<double>& pixels, const std::vector<double>& d) {
    double sum = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i) sum += pixels[i] * d[i];
    return {sum};
  }
  static std::vector<double> embed_text(seqpar::index_t rows) {
    std::vector<double> text;
    for (seqpar::index_t row = 0; row < rows; ++row) text.push_back(exchange_test::noise(row, 77));
    return text;
  }
  static std::vector<seqpar::index_t> ids_of(const seqpar::zigzag& layout, int rank) {
    std::vector<seqpar::index_t> ids;
    for (seqpar::index_t i = 0; i < layout.count_of(rank); ++i) ids.push_back(layout.global_of(rank, i) % 5);
    return ids;
  }
  static double error_of(double row, seqpar::index_t label, seqpar::index_t time) {
    return row - static_cast<double>(label) / static_cast<double>(1 + time);
  }
  static double slope(double row, seqpar::index_t label, seqpar::index_t time) {
    return 2 * error_of(row, label, time);
  }
  static std::vector<double> losses_of(const std::vector<double>& rows, const std::vector<seqpar::index_t>& labels,
                                       const std::vector<seqpar::index_t>& time) {
    std::vector<double> losses;
    for (std::size_t i = 0; i < rows.size(); ++i)
      losses.push_back(error_of(rows[i], labels[i], time[i]) * error_of(rows[i], labels[i], time[i]));
    return losses;
  }
};

}  // namespace

TEST_CASE("frames to loss to the encoder's gradient: any number of ranks as one, and its slope") {
  const std::vector<double> costs = {1, 4, 2, 2};
  auto sequence = seqpar::assembly({2, 5, 3, 3});
  sequence.text(3).item(1).text(2).items(2, 2).text(1).item(0).text(4);
  const std::vector<seqpar::index_t> bounds = {0, 11, sequence.token_count()};
  const auto run = [&](int ranks, double scale) {
    std::vector<step> steps(static_cast<std::size_t>(ranks), step{scale});
    seqpar::run_ranks(ranks, [&](seqpar::threads::transport world) {
      steps[static_cast<std::size_t>(world.rank())].run(world, costs, sequence, bounds);
    });
    for (const step& s : steps) {
      CHECK(s.loss.value == steps[0].loss.value);
      CHECK(s.d_scale == steps[0].d_scale);
    }
    return steps[0];
  };
  const step one = run(1, 0.7);
  CHECK(one.loss.count == sequence.token_count() - 2);
  const double h = 1e-5, up = run(1, 0.7 + h).loss.value, down = run(1, 0.7 - h).loss.value;
  CHECK(one.d_scale == doctest::Approx((up - down) / (2 * h)).epsilon(1e-8));
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const step many = run(ranks, 0.7);
    CHECK(many.loss.count == one.loss.count);
    CHECK(many.loss.value == doctest::Approx(one.loss.value).epsilon(1e-14));
    CHECK(many.d_scale == doctest::Approx(one.d_scale).epsilon(1e-14));
  }
}
