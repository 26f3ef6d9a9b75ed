// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows and blocks that see nothing, and scores that are extreme.
#include <tests/attention/cases.hpp>

namespace seqpar::test {
namespace {

std::vector<float> repeated(float value, index_t count) {
  return std::vector<float>(static_cast<std::size_t>(count), value);
}
/// One head, one channel, scale 1.
attention_case scalars(any_mask mask, std::vector<float> q, std::vector<float> k, std::vector<float> v) {
  const auto n = static_cast<index_t>(q.size());
  attention_case c{.tokens = n, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 1}, .mask = std::move(mask)};
  c.options.scale = 1.f;
  c.kv_tokens = static_cast<index_t>(k.size());
  c.inputs = tensors{std::move(q), std::move(k), std::move(v), filled(tag::dout, n), {}};
  c.ranks = {1, 2, 4};
  return c;
}

struct rows_2_and_5_see_nothing {
  bool allows(index_t q, index_t k) const { return k <= q && q != 2 && q != 5; }
};
struct rows_2_and_5_in_intervals {
  bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
  interval_pair key_intervals(index_t q) const {
    return q == 2 || q == 5 ? interval_pair{} : make_intervals({0, q + 1});
  }
};

const golden a9{0.99662909, 16.21093612, -0.14135505, 0.02378033, 1.98456623};
const golden s8f{0.25382004, 34.19949915, -0.20599733, -0.01865335, 0.69784760};

}  // namespace

TEST_CASE("ranks that hold no key change no bit of what the others' keys give, however many there are [A1] [A2]") {
  const attention_case c{.tokens = 8,
                         .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4},
                         .mask = see_all,
                         .sums = s8f,
                         .ranks = {1, 2, 4, 5},
                         .kv_deal = all_to_the_first};
  const problem alone = c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct);
  const outcome<float> reference = run_problem<float>(alone, recipe_tensors(alone));
  check_everywhere(c, [&](const problem&, const outcome<float>& got) {
    const bool same = same_bits(got.out, reference.out) && same_bits(got.lse, reference.lse);
    return same ? std::string() : std::string("out or lse differ from those of one rank");
  });
}

TEST_CASE("fewer keys than ranks give the definition, and a query without keys gives 0, −∞ and no gradient [A3]") {
  attention_case one{.tokens = 1, .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4}, .mask = see_all};
  one.kv_tokens = 2;
  one.ranks = {1, 2, 4, 8};
  const auto golden_rows = [](const problem&, const outcome<float>& got) {
    const bool right =
        std::abs(wsum(got.out) + 0.63473322) < 2e-5 && std::abs(sum_of_finite(got.lse) - 1.78508515) < 2e-5;
    return right ? std::string() : std::string("the published sums do not come out");
  };
  check_everywhere(one, golden_rows);

  const std::vector<index_t> queries{0, 1, 2}, keys{0, 2, 2};  // the second document has a query and no key
  attention_case two = one;
  two.tokens = 2;
  two.mask = any_mask(documents{queries, keys}, "two documents");
  check_everywhere(two, [&](const problem& p, const outcome<float>& got) {
    const bool empty = all_are(rows_of(got.out, 8, 1, 1), 0) && all_are(rows_of(got.dq, 8, 1, 1), 0) &&
                       std::isinf(got.lse[1]) && got.lse[1] < 0 && std::isinf(got.lse[3]) && got.lse[3] < 0;
    return empty ? golden_rows(p, got) : std::string("the second document is not empty");
  });
  two.mask = any_mask(valid{.keys = 0}, "no keys");
  check_everywhere(two, [&](const problem&, const outcome<float>& got) {
    const bool none = all_are(got.out, 0) && all_are(got.dq, 0) && all_are(got.dk, 0) && all_are(got.dv, 0) &&
                      all_are(got.lse, -std::numeric_limits<double>::infinity());
    return none ? std::string() : std::string("something came of nothing");
  });
}

TEST_CASE("keys that nobody may see change no bit, whatever they and the memory for them held [A4]") {
  attention_case c{.tokens = 8,
                   .shape = {.heads = 2, .kv_heads = 1, .head_dim = 4},
                   .mask = any_mask(valid{.keys = 3}, "three keys")};
  const tensors plain = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  for (float poison : {1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    tensors in = plain;
    std::fill(in.k.begin() + 3 * 4, in.k.end(), poison);
    std::fill(in.v.begin() + 3 * 4, in.v.end(), poison);
    c.inputs = in;
    check_everywhere(c, [&](const problem& p, const outcome<float>& got) {
      if (!all_are(rows_of(got.dk, 4, 3, 5), 0) || !all_are(rows_of(got.dv, 4, 3, 5), 0))
        return std::string("a key that nobody sees has a gradient");
      return same_bits(got, run_problem<float>(p, plain)) ? std::string() : std::string("a bit changed");
    });
  }
}

TEST_CASE("the running maximum starts at −∞, so that scores near −200 count in whatever order blocks come [A5]") {
  attention_case c = scalars(see_past, repeated(1, 4), {-200, -201, -202, -203}, {1, 2, 3, 4});
  const auto see = [](const problem&, const outcome<float>& got) {
    return literal_fault(got.out, {1, 1.26894142, 1.42478962, 1.50734727}) +
           literal_fault(got.lse, {-200, -199.68673831, -199.59239404, -199.55981030});
  };
  check_everywhere(c, see);
  c.kv_deal = backwards;  // every rank's own block is the last that it may see, and that of the first ones masked
  check_everywhere(c, see);
}

TEST_CASE("no score is too low to count: a softmax has no finite stand-in for −∞ [A6]") {
  attention_case low{.tokens = 4, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 128}, .mask = see_all};
  low.kv_tokens = 64;
  low.widened = 4;
  low.ranks = {1, 2, 4};
  const problem p = low.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct);
  tensors in = recipe_tensors(p);
  in.q = repeated(1, 4 * 128);
  in.k = repeated(-2.45e5f / 128, 64 * 128);
  std::fill_n(in.k.begin(), 128, -2.40e5f / 128);
  low.inputs = in;
  check_everywhere(low, [&](const problem&, const outcome<float>& got) {
    for (index_t i = 0; i < 4; ++i)
      if (!same_bits(rows_of(got.out, 128, i, 1), rows_of(in.v, 128, 0, 1))) return std::string("out is not v_0");
    for (float l : got.lse)
      if (std::abs(static_cast<double>(l) + 21213.2034) > case_bound(21213.2034)) return std::string("wrong lse");
    return std::string();
  });

  const attention_case masked = scalars(any_mask(valid{.keys = 1}, "one key"), {-20000, 0}, {1, 0}, {1, 100});
  check_everywhere(masked, [](const problem&, const outcome<float>& got) {
    return all_are(got.out, 1) ? std::string() : std::string("a masked key was seen");
  });
}

TEST_CASE("a score of 1000 beside one of 0 gives lse 1000, its value, and gradients of 0, in either order [A7]") {
  for (const bool last : {true, false}) {
    const std::vector<float> k = last ? std::vector<float>{0, 1000} : std::vector<float>{1000, 0};
    attention_case c = scalars(see_all, {1, 1}, k, {1, 2});
    const auto see = [&](const problem&, const outcome<float>& got) {
      const bool right =
          all_are(got.lse, 1000) && all_are(got.out, last ? 2 : 1) && all_are(got.dq, 0) && all_are(got.dk, 0);
      return right ? std::string() : std::string("not exact");
    };
    check_everywhere(c, see);
    c.kv_deal = backwards;
    check_everywhere(c, see);
  }
}

TEST_CASE("lse is the natural logarithm: with equal scores that of the number of keys, and out their mean [A8]") {
  attention_case c{.tokens = 8, .shape = {.heads = 1, .kv_heads = 1, .head_dim = 4}, .mask = see_past};
  const problem p = c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct);
  tensors in = recipe_tensors(p);
  in.q = repeated(0, 32);
  c.inputs = in;
  c.ranks = {1, 2, 4, 8};
  std::vector<double> lse, mean;
  for (std::size_t i = 0; i < 8; ++i) {
    lse.push_back(std::log(static_cast<double>(i + 1)));
    for (std::size_t d = 0; d < 4; ++d) {
      double sum = 0;
      for (std::size_t j = 0; j <= i; ++j) sum += static_cast<double>(in.v[j * 4 + d]);
      mean.push_back(sum / static_cast<double>(i + 1));
    }
  }
  check_everywhere(c, [&](const problem&, const outcome<float>& got) {
    return literal_fault(got.lse, lse) + literal_fault(got.out, mean);
  });
}

TEST_CASE("rows that see nothing give 0 and −∞ and poison no gradient, by intervals and by a functor [A9]") {
  attention_case c{.tokens = 8,
                   .shape = {.heads = 2, .kv_heads = 2, .head_dim = 4},
                   .mask = any_mask(rows_2_and_5_in_intervals{}, "rows 2 and 5 masked, intervals"),
                   .sums = a9};
  c.ranks = {1, 2, 4};
  const auto see = [](const problem&, const outcome<float>& got) {
    for (index_t row : {2, 5})
      if (!all_are(rows_of(got.out, 8, row, 1), 0) || !all_are(rows_of(got.dq, 8, row, 1), 0) ||
          !std::isinf(got.lse[static_cast<std::size_t>(row)]))
        return std::string("a masked row is not empty");
    return std::string();
  };
  check_everywhere(c, see);
  c.mask = any_mask(rows_2_and_5_see_nothing{}, "rows 2 and 5 masked, functor");
  check_everywhere(c, see);
}

}  // namespace seqpar::test
