// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where tensors lie: batches, strides, the order of lse, rows that nobody writes, sizes of memory.
#include <tests/attention/rank.hpp>

namespace seqpar::test {
namespace {

const golden s8c_b2{1.27813368, 43.50406940, 0.02719684, 0.12447931, 1.69665609};

attention_case of(index_t tokens, index_t heads, index_t dim, index_t batch, any_mask mask) {
  return {.tokens = tokens,
          .shape = {.batch = batch, .heads = heads, .kv_heads = heads, .head_dim = dim},
          .mask = std::move(mask)};
}

template <class T>
std::string all_finite(const problem&, const outcome<T>& got) {
  for (const auto* x : {&got.out, &got.dq, &got.dk, &got.dv})
    for (const T e : *x)
      if (!std::isfinite(static_cast<float>(e))) return "an element of a result is not finite";
  return "";
}

}  // namespace

TEST_CASE("a batch of two is two sequences: the all-to-all does not mix items with tokens [E1]") {
  attention_case c = of(8, 2, 4, 2, see_past);
  c.sums = s8c_b2;
  c.ranks = {1, 2, 4, 8};
  check_everywhere(c);
  // item by item the batch gives what each sequence gives alone
  const problem both = c.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2}, schedule::direct);
  const tensors in = recipe_tensors(both);
  const outcome<float> got = run_problem<float>(both, in);
  attention_case single = of(8, 2, 4, 1, see_past);
  const problem one = single.at(in_zigzag, 4, {.ring = 2, .all_to_all = 2}, schedule::direct);
  for (int item = 0; item < 2; ++item) {
    const auto half = [&](const std::vector<float>& x) {
      const auto n = static_cast<std::ptrdiff_t>(x.size() / 2);
      return std::vector<float>(x.begin() + item * n, x.begin() + (item + 1) * n);
    };
    const outcome<float> alone = run_problem<float>(one, {half(in.q), half(in.k), half(in.v), half(in.dout), {}});
    CHECK(same_bits(alone.out, half(got.out)));
    CHECK(same_bits(alone.lse, half(got.lse)));
    CHECK(same_bits(alone.dq, half(got.dq)));
    CHECK(same_bits(alone.dk, half(got.dk)));
    CHECK(same_bits(alone.dv, half(got.dv)));
  }
}

TEST_CASE(
    "swapped axes, slices of packed tensors and padded rows give the packed copy's bits, nothing beside them [E2]") {
  attention_case c = of(9, 3, 5, 2, see_past);
  c.with_dlse = true;
  const tensors in = recipe_tensors(c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
  for (const strides how : {strides::heads_first, strides::packed_qkv, strides::padded}) {
    c.memory = how;
    check_everywhere(c, [&](const problem& p, const outcome<float>& got) {
      problem dense = p;
      dense.memory = strides::dense;
      return same_bits(got, run_problem<float>(dense, in)) ? std::string() : std::string("strides changed a bit");
    });
  }
}

TEST_CASE(
    "q, k, v as slices of one tensor and out in a fourth slice are no overlap; sharing an element is one [E2] [E4]") {
  run_ranks(1, [](threads::transport world) {
    attention_case c = of(6, 2, 4, 1, see_past);
    const problem p = c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct);
    rank_run rank(world, p);
    rank.prepare();
    std::vector<float> packed(6 * 4 * 8);
    const auto slice = [&](index_t i) {
      return rows_view<float>{packed.data() + i * 8, {1, 6, 2, 4}, {6 * 32, 32, 4, 1}};
    };
    for (index_t t = 0; t < 6; ++t)
      for (index_t i = 0; i < 8; ++i) {
        slice(0).row(0, t, 0)[i] = rank.q[static_cast<std::size_t>(t * 8 + i)];
        slice(1).row(0, t, 0)[i] = rank.k[static_cast<std::size_t>(t * 8 + i)];
        slice(2).row(0, t, 0)[i] = rank.v[static_cast<std::size_t>(t * 8 + i)];
      }
    check(rank.forward());
    rank.f = {.q = slice(0), .k = slice(1), .v = slice(2), .out = slice(3), .lse = rank.f.lse};
    check(rank.forward());
    for (index_t t = 0; t < 6; ++t)
      if (std::memcmp(slice(3).row(0, t, 0), rank.out.data() + t * 8, 32) != 0) throw std::runtime_error("other bits");
    rank.f.out.pointer -= 1;  // the last value of v's slice
    if (rank.forward().code() != errc::overlapping_buffers) throw std::runtime_error("the overlap was not seen");
  });
}

TEST_CASE("lse is [batch][heads][tokens] or whatever its strides say, with three different extents [E3]") {
  attention_case c = of(5, 3, 4, 2, see_past);
  c.ranks = {2, 3};
  for (const strides how : {strides::dense, strides::heads_first}) {  // the latter with lse [batch][tokens][heads]
    c.memory = how;
    check_everywhere(c);
  }
}

TEST_CASE(
    "an output on an input, on another output or on the plan's memory is refused by the name of the overlap [E4]") {
  std::vector<std::string> faults;
  run_ranks(1, [&](threads::transport world) {
    attention_case c = of(4, 2, 4, 1, see_past);
    rank_run rank(world, c.at(contiguously, 1, {.ring = 1, .all_to_all = 1}, schedule::direct));
    rank.prepare();
    const auto forward = rank.f;
    const auto backward = rank.b;
    const auto refused = [&](const char* what, const status& s) {
      if (s.code() != errc::overlapping_buffers || std::string(s.text()).find("overlap") == std::string::npos)
        faults.push_back(std::string(what) + ": " + s.message());
      rank.f = forward;
      rank.b = backward;
      check(world.recover());
    };
    rank.f.out.pointer = rank.q.data();
    refused("out on q", rank.forward());
    rank.f.out.pointer = rank.v.data() + 3;
    refused("out on a part of v", rank.forward());
    rank.f.lse.pointer = rank.out.data() + 31;
    refused("lse on out", rank.forward());
    rank.f.out.pointer = static_cast<float*>(rank.given.scratch.pointer);
    refused("out in scratch", rank.forward());
    rank.f.q.pointer = static_cast<float*>(rank.given.tables.pointer);
    refused("q in tables", rank.forward());
    rank.b.dk.pointer = rank.dv.data();
    refused("dk on dv", rank.backward());
    rank.b.dq.pointer = rank.q.data();
    refused("dq on q", rank.backward());
    rank.b.dv.pointer = rank.out.data();
    refused("dv on out", rank.backward());
    rank.b.dout.pointer = rank.dq.data() + 1;
    refused("dout on dq", rank.backward());
    check(rank.forward());
    check(rank.backward());
    rank.b.k = rank.b.q;  // inputs may be the same
    check(rank.backward());
  });
  for (const std::string& fault : faults) FAIL_CHECK(fault);
}

TEST_CASE("every element of a result is written, also of rows that see nothing, in memory full of NaN [E5]") {
  // the harness gives memory, outputs and gradients full of NaN and checks what is beside them
  attention_case c = of(11, 2, 4, 1, see_past);
  check_everywhere(c, all_finite<float>);
  c = of(16, 2, 4, 1, any_mask(all_of{causal{}, valid{.queries = 14, .keys = 14}}, "14 of 16, causal"));
  check_everywhere(c, all_finite<float>);
  c = of(8, 7, 4, 1, see_past);
  check_everywhere(c, all_finite<float>);
  const std::vector<index_t> queries{0, 3, 3, 6}, keys{0, 2, 4, 6};
  c = of(6, 1, 4, 1, any_mask(documents{queries, keys}, "documents"));
  check_everywhere(c, all_finite<float>);
  c = of(6, 2, 3, 2, any_mask(valid{.keys = 0}, "nothing"));
  check_everywhere(c, all_finite<float>);
  check_everywhere<bfloat16>(c, all_finite<bfloat16>);
}

TEST_CASE("exchange memory is as large on every rank, and all kinds are multiples of the alignment") {
  attention_case c = of(13, 6, 5, 1, any_mask(window{.left = 4, .right = 0}, "window"));
  c.shape.kv_heads = 2;
  c.ranks = {1, 2, 3, 4, 6, 8};
  for (const reuse again : {reuse::resend, reuse::saved}) {
    c.options.reuse = again;
    check_everywhere(c, [](const problem&, const outcome<float>& got) {
      for (const memory_sizes& n : got.memory) {
        if (n.exchange != got.memory.front().exchange) return std::string("exchange differs between ranks");
        for (index_t bytes : {n.tables, n.scratch, n.exchange, n.saved})
          if (bytes % memory_alignment != 0) return std::string("a size is no multiple of the alignment");
      }
      return std::string();
    });
  }
}

TEST_CASE("gradients may be added to what is there, in fp32 and in bfloat16") {
  attention_case c = of(9, 4, 5, 2, see_past);
  c.shape.kv_heads = 2;
  c.options.gradients = write::add;
  check_everywhere(c);
  check_everywhere<bfloat16>(c);
}

}  // namespace seqpar::test
