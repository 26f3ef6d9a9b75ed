// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A third party's attention (here: plain loops) through rectangles, merged by the bodies on the twin.
#include <seqpar/cuda/by_rectangles.hpp>
#include <tests/kernel/harness.hpp>

#include "tests/cuda/plain_sdpa.hpp"
#include "tests/cuda_on_cpu/twin.hpp"

using namespace seqpar;
using namespace seqpar::test;

namespace {

/// What the kernels of a test did.
struct tally {
  std::uint64_t seed = 1;
  int asked = 0, ran = 0, launched = 0, fallen_back = 0;
  index_t refused_rows = -1;  ///< the third party refuses rectangles of so many rows
  bool prepares = true;       ///< it is shown the call before
};
tally& seen() {
  static tally t;
  return t;
}

struct on_twin {
  template <class Body>
  cudaError_t launch(index_t work, const typename Body::params& p) const {
    ++seen().launched;
    twin::run<Body>(std::min<index_t>(work, 3), p, {.seed = seen().seed++});
    return cudaSuccess;
  }
};

struct plain_sdpa {
  static constexpr index_t workspace_bytes = 64;
  template <class T>
  void prepare(const cuda::sdpa_call<T>& c, const on_twin&) {
    REQUIRE(!c.q.pointer);
    if (c.q.tokens() != seen().refused_rows) prepared.add(c);
  }
  template <class T>
  bool ready(const cuda::sdpa_call<T>& c, const on_twin&) const {
    ++seen().asked;
    return prepared.has(c);
  }
  template <class T>
  status run(const cuda::sdpa_call<T>& c, const on_twin&) const {
    ++seen().ran;
    REQUIRE(c.workspace.pointer);
    attend_plainly(c);
    return {};
  }
  prepared_calls prepared;
};

struct fallback : host_reference<float> {
  template <class Call, class Mask, class Exec>
  status forward(const Call& call, const Mask& mask, const Exec&) const {
    ++seen().fallen_back;
    host_reference<float>::forward(call, mask);
    return {};
  }
};

/// The rows' positions, read off the tables.
runs runs_of(const key_table& keys) {
  runs rows;
  for (const key_tile& t : keys.tiles)
    for (std::int32_t i = 0; i < t.rows; ++i) rows.push_back({keys.position_of(t, i), 1, 1});
  return rows;
}

/// A kernel of the harness: the rectangles are found on the spot.
struct through_rectangles : host_reference<float> {
  template <class T, class Out, class Mask>
  void forward(forward_call<T, Out> call, const Mask& mask) const {
    const heads_view<float> asked = call.lse;  // strided; here dense
    std::vector<float> lse(static_cast<std::size_t>(call.q.batch() * call.q.heads() * call.q.tokens()));
    call.lse = dense_heads(lse.data(), asked.shape);
    using kernel = cuda::by_rectangles<plain_sdpa, fallback>;
    const index_t dim = call.segments.empty() ? call.out.dim() : call.segments[0].v.dim();
    const exact_space workspace(
        kernel::workspace_bytes(call.q.batch(), call.q.heads(), call.q.tokens(), call.q.dim(), dim));
    call.workspace = workspace.get();
    kernel by;
    std::vector<std::optional<std::vector<rectangle>>> lists;
    for (const auto& s : call.segments) lists.push_back(rectangles(call.queries, runs_of(s.table), by.most_rectangles));
    std::optional<status> said;
    if constexpr (std::is_same_v<Mask, by_intervals>) {
      const auto listed = [&](std::size_t i) { return lists[i] ? &*lists[i] : nullptr; };
      if (seen().prepares) prepare(by, call, listed);
      said = by.forward_by(call, listed, on_twin{});
    }
    if (!said) said = by.forward(call, mask, on_twin{});
    CHECK(said->ok());
    if (call.out_kind == state_out::carry) return;
    for (index_t b = 0; b < call.q.batch(); ++b)
      for (index_t h = 0; h < call.q.heads(); ++h)
        for (index_t i = 0; i < call.q.tokens(); ++i) asked.at(b, h, i) = call.lse.at(b, h, i);
  }

 private:
  /// As a plan shows it: without the caller's tensors.
  template <class Kernel, class T, class Out, class Listed>
  static void prepare(Kernel& by, forward_call<T, Out> call, const Listed& listed) {
    std::vector<kv_segment<T>> segments(call.segments.begin(), call.segments.end());
    for (kv_segment<T>& s : segments) s.k.pointer = s.v.pointer = nullptr;
    call.segments = segments;
    call.q.pointer = nullptr;
    call.out.pointer = nullptr;
    call.lse.pointer = nullptr;
    by.prepare_by(call, listed, on_twin{});
  }
};

/// Out rounded once, and the parts to T: half a unit of T of their terms.
template <class Out, class T, class M>
tally check(const inputs<T>& in, const dealing& d, const M& mask, index_t refused_rows = -1, bool prepares = true) {
  seen() = {seen().seed, 0, 0, 0, 0, refused_rows, prepares};
  const dense_result want = dense_of(in, d, mask);
  const outputs<Out> got = run_kernel<through_rectangles, Out>(in, d, mask);
  verdict v;
  for (std::size_t i = 0; i < got.out.size(); ++i)
    v.see(static_cast<index_t>(i), static_cast<double>(got.out[i]), want.out[i],
          bound<Out>(want.out[i], want.out_magnitude[i]) + roundoff<T> + smallest<T>);  // |v| ≤ 1, weights sum to 1
  CHECK(v);
  CHECK(compare(got.lse, want.lse, want.lse_magnitude));
  return seen();
}

const dense_shape shape{2, 48, 48, 4, 2, 8, 16};
dealing in_two_pieces() {
  return {{{0, 12, 1}, {36, 12, 1}, {12, 24, 1}}, {{{0, 12, 1}, {36, 12, 1}}, {{12, 24, 1}}}};
}

}  // namespace

TEST_CASE("one rectangle that is the whole call is the third party's own answer") {
  for (const auto& mask : {full_mask(), causal_mask(), causal_mask(0, 5)}) {
    dealing d = in_order(shape);
    const tally did = check<bfloat16>(recipe_inputs<bfloat16>(shape), d, mask);
    CHECK(did.ran == 1);
    CHECK(did.launched == 0);
    CHECK(did.fallen_back == 0);
  }
}

TEST_CASE("rectangles of several segments and calls are merged, whatever the strides") {
  for (const bool heads_first : {false, true})
    for (const auto& mask : {full_mask(), causal_mask(), causal_mask(0, 7), causal_mask(-3)}) {
      dealing d = in_two_pieces();
      d.strides = {heads_first, 8};
      CHECK(check<float16>(recipe_inputs<float16>(shape), d, mask).fallen_back == 0);
      d.cuts = {1};  // the state is carried
      CHECK(check<bfloat16>(recipe_inputs<bfloat16>(shape), d, mask).fallen_back == 0);
      CHECK(check<float>(recipe_inputs<bfloat16>(shape), d, mask).fallen_back == 0);
    }
}

TEST_CASE("rows that see nothing are 0 and −∞") {
  const auto even_documents = interval_form{[](index_t q) {
    return q / 8 % 2 == 0 ? make_intervals({q / 8 * 8, q + 1}) : interval_pair{};
  }};
  CHECK(check<bfloat16>(recipe_inputs<bfloat16>(shape), in_two_pieces(), even_documents).fallen_back == 0);
  // One rectangle, of fewer rows than the call.
  CHECK(check<bfloat16>(recipe_inputs<bfloat16>(shape), in_order(shape), causal_mask(-3)).ran == 1);
  const auto nothing = interval_form{[](index_t) { return interval_pair{}; }};
  const tally did = check<bfloat16>(recipe_inputs<bfloat16>(shape), in_order(shape), nothing);
  CHECK(did.ran == 0);
  CHECK(did.fallen_back == 0);
}

TEST_CASE(
    "what the third party refuses or was not prepared for, and what falls into too many rectangles, is the fallback's, "
    "whole") {
  const inputs<bfloat16> in = recipe_inputs<bfloat16>(shape);
  const tally refused = check<bfloat16>(in, in_two_pieces(), causal_mask(), 12);
  CHECK(refused.ran == 0);
  CHECK(refused.launched == 0);
  CHECK(refused.fallen_back == 1);
  const tally unprepared = check<bfloat16>(in, in_two_pieces(), causal_mask(), -1, false);
  CHECK(unprepared.ran == 0);
  CHECK(unprepared.fallen_back == 1);
  const auto comb = interval_form{[](index_t q) { return make_intervals({q % 2 * 5, 20}); }};
  CHECK(check<bfloat16>(in, in_order(shape), comb).fallen_back == 1);
  CHECK(check<float>(recipe_inputs<float>(shape), in_order(shape), causal_mask()).fallen_back == 1);
  CHECK(check<bfloat16>(in, in_order(shape), functor_form{[](index_t q, index_t k) { return k <= q; }}).fallen_back ==
        1);
}
