// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Verbs measured over thread ranks: compiled once, for exchange_bench and collectives.
#pragma once

#include <bench/support/verbs.hpp>

namespace seqpar::bench {

/// Every ask in turn; rank 0 tells. Plain is memcpy: the thread of every rank copies as many bytes as the rank gets.
void measure_threads(const std::vector<ask>& asks, const effort& e,
                     const std::function<void(const ask&, const figures&)>& tell);

}  // namespace seqpar::bench
