// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks (frames, chunks) are causal; inside a block everybody sees everybody.
#pragma once

#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/detail/band.hpp>
#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

/// allows(q, k) = k div block ≤ q div block. The last block may be short.
struct block_causal {
  extent block;

  static constexpr int max_intervals = 1;
  SEQPAR_HD constexpr bool allows(index_t q, index_t k) const { return k / block <= q / block; }
  SEQPAR_HD constexpr interval band(index_t q) const { return {0, (q / block + 1) * block}; }
  SEQPAR_HD constexpr interval_pair key_intervals(index_t q) const { return make_intervals(band(q)); }
  constexpr cover covers(interval q, interval k) const { return detail::band_covers(*this, q, k); }
  template <class F>
  constexpr void reach(interval q, F&& f) const {
    detail::band_reach(*this, q, f);
  }
  constexpr flaw problem() const {
    if (block < 1) return {"block_causal: block counts tokens; give 1 or more", block};
    return {};
  }
  friend constexpr bool operator==(block_causal, block_causal) = default;
};

}  // namespace v0_1
}  // namespace seqpar
