// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums over ranks are the same on all of them; a mean is one over tokens; gradients are those of one global scalar.
#include <doctest/doctest.h>

#include <barrier>
#include <limits>

#include <seqpar/exchange/labels.hpp>
#include <seqpar/exchange/sums.hpp>
#include <tests/exchange/ranks.hpp>

using namespace exchange_test;

namespace {

/// Σ over ranks in their order, as all_reduce must make it.
template <class T>
T sum_over(int ranks, index_t e, T (*part)(int, index_t)) {
  sum_type<T> sum(0);
  for (int r = 0; r < ranks; ++r) sum += static_cast<sum_type<T>>(part(r, e));
  return T(sum);
}
template <class T>
T part_of(int rank, index_t e) {
  if constexpr (std::same_as<T, index_t>)
    return (index_t{1} << 54) + rank * 1000 + e;  // no double would do
  else if constexpr (std::same_as<T, double>)
    return noise(rank, e);
  else
    return T(static_cast<float>(noise(rank, e)));
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void check_all_reduce() {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (index_t n : {0, 1, 2, 7}) {
      std::vector<T> want;
      for (index_t e = 0; e < n; ++e) want.push_back(sum_over<T>(ranks, e, part_of<T>));
      for (std::uint64_t seed = 1; seed <= 3; ++seed)
        on_ranks(
            ranks,
            [&](const team_type& team, flight_record& record) {
              auto plan = plan_all_reduce<T>(team, n);
              const host_memory memory = prepared(plan);
              std::vector<T> in, out(static_cast<std::size_t>(n));
              for (index_t e = 0; e < n; ++e) in.push_back(part_of<T>(team.index(), e));
              const std::vector<T> kept = in;
              const index_t bytes =
                  bytes_sent_by(record, [&] { return plan.forward(in, std::span(out), memory, on_host{}); });
              require(bytes == (ranks - 1) * n * static_cast<index_t>(sizeof(T)), "bytes");
              require(same_bits(out, want) && same_bits(in, kept), "the sum");
              check(plan.forward(in, std::span(in), memory, on_host{}));  // in place
              require(same_bits(in, want), "the sum in place");
            },
            seed);
    }
}

/// Losses of each rank, −1: not valid. The mean, and d loss on every rank.
struct mean_result {
  mean value;
  ranks_values gradient;
};
constexpr double invalid = -1;

template <class T>
mean_result mean_of(const ranks_values& losses, gradient convention = gradient::replicated,
                    const std::vector<double>& d_mean = {}) {
  const int ranks = static_cast<int>(losses.size());
  std::vector<mean> means(losses.size());
  ranks_values gradients(losses.size());
  on_ranks(ranks, [&](const team_type& team, flight_record& record) {
    const auto me = static_cast<std::size_t>(team.index());
    auto plan = plan_token_mean(team, {.convention = convention});
    const host_memory memory = prepared(plan);
    const auto valid = [&](index_t i) { return at(losses[me], i) != invalid; };
    std::vector<T> mine, d(losses[me].size(), T(7));
    // what does not count may be anything
    for (double l : losses[me])
      mine.push_back(l == invalid ? T(std::numeric_limits<float>::quiet_NaN()) : T(static_cast<float>(l)));
    check(plan.template forward<T>(mine, valid, means[me], memory, on_host{}));
    const index_t bytes = bytes_sent_by(record, [&] {
      return plan.template adjoint<T>(d_mean.empty() ? 1 : d_mean[me], means[me], valid, std::span(d), memory,
                                      on_host{});
    });
    require(bytes == (convention == gradient::sum ? (ranks - 1) * 16 : 0), "bytes of the adjoint");
    for (const T& x : d) gradients[me].push_back(static_cast<double>(x));
  });
  for (const mean& m : means) {
    CHECK(m.value == means[0].value);
    CHECK(m.count == means[0].count);
  }
  return {means[0], gradients};
}

}  // namespace

TEST_CASE("all_reduce gives every rank the same bits: the sum in the order of the ranks, whatever comes first") {
  check_all_reduce<float>();
  check_all_reduce<bfloat16>();
  check_all_reduce<float16>();
  check_all_reduce<double>();
  check_all_reduce<index_t>();
}

TEST_CASE("reduce_scatter gives each row of the sum to its owner in every layout, and its adjoint is the gather [H1]") {
  for (int ranks : {1, 3, 4, 8})
    for (index_t n : {0, 2, 13}) {
      const layouts every(n, ranks);
      for (const any_layout& layout : every.all()) {
        std::vector<double> left(static_cast<std::size_t>(ranks)), right(left);
        on_ranks(ranks, [&](const team_type& team, flight_record& record) {
          auto plan = plan_reduce_scatter<double>(team, layout, {.row_bytes = 2 * sizeof(double)});
          const host_memory memory = prepared(plan);
          const int me = team.index();
          const index_t rows = layout.count_of(me);
          std::vector<double> x, y(static_cast<std::size_t>(2 * rows)), dy, dx(static_cast<std::size_t>(2 * n));
          for (index_t i = 0; i < 2 * n; ++i) x.push_back(noise(me, i));
          for (index_t i = 0; i < 2 * rows; ++i) dy.push_back(noise(me, i, 9));
          const index_t bytes =
              bytes_sent_by(record, [&] { return plan.forward(x.data(), y.data(), memory, on_host{}); });
          require(bytes == (n - rows) * 16 && bytes == plan.bytes_sent(), "bytes");
          check(plan.adjoint(dy.data(), dx.data(), memory, on_host{}));
          for (index_t i = 0; i < rows; ++i)
            for (index_t e = 0; e < 2; ++e) {
              double sum = 0;
              for (int r = 0; r < ranks; ++r) sum += noise(r, 2 * layout.global_of(me, i) + e);
              require(at(y, 2 * i + e) == sum, layout.name());
            }
          for (std::size_t i = 0; i < y.size(); ++i) left[static_cast<std::size_t>(me)] += y[i] * dy[i];
          for (std::size_t i = 0; i < x.size(); ++i) right[static_cast<std::size_t>(me)] += x[i] * dx[i];
        });
        double difference = 0;
        for (std::size_t r = 0; r < left.size(); ++r) difference += left[r] - right[r];
        CHECK(std::abs(difference) <= 1e-12);
      }
    }
}

TEST_CASE("a rank without a valid token takes part, and no valid token at all gives 0 [G4]") {
  const ranks_values none = {{invalid}, {invalid, invalid}, {}, {1, 2, 3, 4, 5}};
  for (const mean_result& m : {mean_of<float>(none), mean_of<double>(none)}) {
    CHECK(m.value.value == 3);
    CHECK(m.value.count == 5);
    CHECK(m.value.weight() == 1. / 5);
    CHECK(m.gradient[0] == std::vector<double>{0});
    CHECK(m.gradient[1] == std::vector<double>{0, 0});
    for (double g : m.gradient[3]) CHECK(g == doctest::Approx(0.2).epsilon(1e-7));
  }
  const mean_result empty = mean_of<float>({{invalid}, {}, {invalid, invalid}, {}});
  CHECK(empty.value.value == 0);
  CHECK(empty.value.count == 0);
  CHECK(empty.value.weight() == 0);
  CHECK(empty.gradient == ranks_values{{0}, {}, {0, 0}, {}});
}

TEST_CASE("the mean is over tokens, not over the means of ranks [G5]") {
  const mean_result m = mean_of<bfloat16>({{2, 4, 6}, {8}});
  CHECK(m.value.value == 5);
  CHECK(m.gradient == ranks_values{{0.25, 0.25, 0.25}, {0.25}});
  const mean_result one = mean_of<double>({{invalid, 3}, {invalid}});  // one valid token: its weight is 1
  CHECK(one.value.value == 3);
  CHECK(one.gradient == ranks_values{{0, 1}, {0}});
}

TEST_CASE("gradients are the slopes of one global scalar, under both conventions [H1]") {
  const auto f = [](double y, double w) { return w * std::sin(y) + 0.5 * y * y; };
  const auto df = [](double y, double w) { return w * std::cos(y) + y; };
  constexpr int ranks = 3;
  const striped layout{.tokens = 5, .ranks = ranks};
  ranks_values x(ranks);
  for (int r = 0; r < ranks; ++r)
    for (index_t i = 0; i < layout.count_of(r); ++i) x[static_cast<std::size_t>(r)].push_back(noise(r, i));

  // Runs a plan forward and, where d is asked for, its adjoint. The scalar sums f over the ranks that use a value for
  // themselves (weights differ), or takes rank 0's where all use it alike.
  const auto scalar_of = [&](gradient convention, auto plan_of, auto run, const ranks_values& in, ranks_values* d) {
    std::vector<double> parts(ranks);
    on_ranks(ranks, [&](const team_type& team, flight_record&) {
      auto plan = plan_of(team);
      const host_memory memory = prepared(plan);
      const auto me = static_cast<std::size_t>(team.index());
      const double w = convention == gradient::sum ? 1 + static_cast<double>(me) : 1;
      std::vector<double> d_in(in[me].size());
      parts[me] = run(plan, in[me], d_in, w, memory);
      if (d) (*d)[me] = d_in;
    });
    return convention == gradient::sum ? parts[0] + parts[1] + parts[2] : parts[0];
  };
  const auto use = [&](const std::vector<double>& y, std::vector<double>& dy, double w) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += f(y[i], w + static_cast<double>(i));
      dy.push_back(df(y[i], w + static_cast<double>(i)));
    }
    return sum;
  };
  const auto check_slopes = [&](gradient convention, auto plan_of, auto run, const ranks_values& in) {
    ranks_values d(ranks);
    scalar_of(convention, plan_of, run, in, &d);
    CHECK(no_gradient_of([&](const ranks_values& v) { return scalar_of(convention, plan_of, run, v, nullptr); }, in,
                         d) == "");
  };

  for (gradient convention : {gradient::sum, gradient::replicated}) {
    CAPTURE(static_cast<int>(convention));
    // gather to all
    check_slopes(
        convention,
        [&](const team_type& team) {
          return plan_gather(team, layout, {.row_bytes = sizeof(double), .convention = convention});
        },
        [&](auto& plan, const std::vector<double>& in, std::vector<double>& d_in, double w, const memory& m) {
          std::vector<double> y(5), dy;
          check(plan.forward(in.data(), y.data(), m, on_host{}));
          const double sum = use(y, dy, w);
          check(plan.template adjoint<double>(dy.data(), d_in.data(), m, on_host{}));
          return sum;
        },
        x);
    // all_reduce
    check_slopes(
        convention, [&](const team_type& team) { return plan_all_reduce<double>(team, 2, {.convention = convention}); },
        [&](auto& plan, const std::vector<double>& in, std::vector<double>& d_in, double w, const memory& m) {
          std::vector<double> y(2), dy;
          check(plan.forward(in, std::span(y), m, on_host{}));
          const double sum = use(y, dy, w);
          check(plan.adjoint(dy, std::span(d_in), m, on_host{}));
          return sum;
        },
        {{0.3, -0.2}, {0.9, 0.1}, {-0.4, 0.8}});
    // the token mean; the third rank has no valid token
    check_slopes(
        convention, [&](const team_type& team) { return plan_token_mean(team, {.convention = convention}); },
        [&](auto& plan, const std::vector<double>& in, std::vector<double>& d_in, double w, const memory& m) {
          const auto valid = [&](index_t i) { return in.size() > 1 && i != 1; };
          mean y;
          std::vector<double> dy;
          check(plan.template forward<double>(in, valid, y, m, on_host{}));
          const double sum = use({y.value}, dy, w);
          check(plan.template adjoint<double>(dy[0], y, valid, std::span(d_in), m, on_host{}));
          return sum;
        },
        {{0.3, -0.2, 0.5}, {0.9, 0.1}, {-0.4}});
  }
  // what one rank wants has one gradient: reshard
  check_slopes(
      gradient::sum,
      [&](const team_type& team) {
        return plan_reshard(team, layout, zigzag{.tokens = 5, .ranks = ranks}, {.row_bytes = sizeof(double)});
      },
      [&](auto& plan, const std::vector<double>& in, std::vector<double>& d_in, double w, const memory& m) {
        std::vector<double> y(static_cast<std::size_t>(plan.wanted_rows())), dy;
        check(plan.forward(in.data(), y.data(), m, on_host{}));
        const double sum = use(y, dy, w);
        check(plan.template adjoint<double>(dy.data(), d_in.data(), m, on_host{}));
        return sum;
      },
      x);
}

TEST_CASE("sums refuse what they cannot be: plans alike on all ranks, runs before anything is posted") {
  std::vector<errc> codes(2, errc::ok);
  std::barrier meet(2);
  run_ranks(2, [&](threads::transport world) {
    const mesh team = ring(world);
    require(!try_plan_all_reduce<float>(team, -1), "negative counts are taken");
    const zigzag layout{.tokens = 8, .ranks = 2};
    require(!try_plan_reduce_scatter<float>(team, layout, {.row_bytes = 4, .convention = gradient::replicated}),
            "a replicated reduce_scatter is taken");
    require(!try_plan_reduce_scatter<float>(team, layout, {.row_bytes = 4, .passes = forward_only}),
            "a reduce_scatter without its pass is taken");
    auto plan = plan_all_reduce<float>(team, 2);
    const host_memory memory = prepared(plan);
    std::vector<float> x(world.rank() == 0 ? 3 : 2);
    meet.arrive_and_wait();
    codes[static_cast<std::size_t>(world.rank())] = plan.forward(x, std::span(x), memory, on_host{}).code();
  });
  CHECK(codes == std::vector<errc>{errc::invalid_argument, errc::peer_failed});
  std::vector<std::string> texts(2);
  run_ranks(2, [&](threads::transport world) {
    auto plan = plan_all_reduce<float>(ring(world), 2 + world.rank());
    const host_memory memory(plan.memory());
    try {
      plan.prepare(memory, on_host{});
    } catch (const error& e) {
      texts[static_cast<std::size_t>(world.rank())] = e.what();
    }
  });
  CHECK(texts[0] == texts[1]);
  CHECK(texts[0].find("plan_all_reduce: ranks disagree on the number of elements") != std::string::npos);
}

TEST_CASE("sums of other element types are told apart before data moves, whatever their sizes [J6]") {
  const auto text_of = [](auto mine, auto others) {
    std::vector<std::string> texts(2);
    run_ranks(2, [&](threads::transport world) {
      const mesh team = ring(world);
      const auto prepare = [&](auto plan) {
        const host_memory memory(plan.memory());
        const failure f = plan.try_prepare(memory, on_host{});
        texts[static_cast<std::size_t>(world.rank())] = f ? f->what() : "no error";
      };
      if (world.rank() == 0)
        prepare(mine(team));
      else
        prepare(others(team));
    });
    CHECK(texts[0] == texts[1]);
    return texts[0];
  };
  const auto all = []<class T>(T) { return [](const auto& team) { return plan_all_reduce<T>(team, 3); }; };
  const auto scattered = []<class T>(T) {
    return [](const auto& team) {
      return plan_reduce_scatter<T>(team, zigzag{.tokens = 8, .ranks = 2}, {.row_bytes = 4});
    };
  };
  const char* told = "ranks disagree on the element type";
  CHECK(text_of(all(float16{}), all(bfloat16{})).find(told) != std::string::npos);
  CHECK(text_of(all(double{}), all(index_t{})).find(told) != std::string::npos);
  CHECK(text_of(scattered(float16{}), scattered(bfloat16{})).find(told) != std::string::npos);
}

TEST_CASE("a sum does not lie in its own scratch, nor half upon what it comes from [E4]") {
  std::vector<recorded_message> log;
  const mesh team = ring(recorder(0, 1, log));
  auto plan = plan_all_reduce<double>(team, 3);
  const host_memory own = prepared(plan);
  const seqpar::memory memory = own;
  std::vector<double> x{1, 2, 3};
  double* inside = static_cast<double*>(memory.scratch.pointer) + 1;
  CHECK(plan.forward(x, std::span(inside, 3), memory, on_host{}).code() == errc::overlapping_buffers);
  CHECK(plan.forward(std::span<const double>(inside, 3), x, memory, on_host{}).code() == errc::overlapping_buffers);

  auto replicated = plan_all_reduce<double>(team, 3, {.convention = gradient::replicated});
  const host_memory other = prepared(replicated);
  std::vector<double> y{1, 2, 3, 4};
  const std::span<const double> from(y.data(), 3);
  CHECK(replicated.adjoint(from, std::span(y.data() + 1, 3), other, on_host{}).code() == errc::overlapping_buffers);
  CHECK(plan.forward(from, std::span(y.data() + 1, 3), memory, on_host{}).code() == errc::overlapping_buffers);
  check(replicated.adjoint(from, std::span(y.data(), 3), other, on_host{}));
  CHECK(y == std::vector<double>{1, 2, 3, 4});

  auto loss = plan_token_mean(team);
  CHECK(loss.try_prepare(host_memory({.scratch = loss.memory().scratch - memory_alignment}), on_host{}).has_value());
}

TEST_CASE("sizes beyond 2^62 bytes are refused while planning, however they are come by [D3]") {
  std::vector<recorded_message> log;
  const mesh team = ring(recorder(0, 1, log));
  for (index_t rows : {(index_t{1} << 62) + 5, std::numeric_limits<index_t>::max()}) {
    CHECK_FALSE(try_plan_broadcast(team, rows, 0, {.row_bytes = 8}).ok());
    CHECK_FALSE(try_plan_all_reduce<double>(team, rows).ok());
  }
  CHECK_FALSE(try_plan_all_reduce<double>(team, index_t{1} << 62).ok());
  const contiguous long_one{.tokens = index_t{1} << 62, .ranks = 1};
  CHECK_FALSE(try_plan_reshard(team, long_one, long_one, {.row_bytes = 1}).ok());
  for (index_t offset : {index_t{1} << 62, -(index_t{1} << 62)})
    CHECK_FALSE(try_plan_neighbours(team, long_one, offset, {.row_bytes = 1}).ok());
}
