// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport that moves one piece of memory at a time, where an exchange hands over strided blocks.
// expect: [seqpar] exchanges post strided blocks; a transport with access contiguous_only must pack them itself and say
// strided
#include <seqpar/exchange/gather.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/transport/self.hpp>

struct one_piece : seqpar::self {
#ifdef TWIN
  static constexpr auto access = seqpar::transport_access::strided;
#else
  static constexpr auto access = seqpar::transport_access::contiguous_only;
#endif
};

int main() {
  auto plan =
      seqpar::plan_gather(seqpar::ring(one_piece{}), seqpar::contiguous{.tokens = 8, .ranks = 1}, {.row_bytes = 4});
  const float in[8] = {};
  float out[8];
  return plan.forward(in, out, seqpar::memory{}, seqpar::on_host{}).ok();
}
