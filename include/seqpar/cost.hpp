// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attention will cost, before it runs: traffic, work, memory, time, and which layout to take. Not in seqpar.hpp.
#pragma once

#include <seqpar/cost/balanced.hpp>
#include <seqpar/cost/choose.hpp>
#include <seqpar/cost/dealt.hpp>
#include <seqpar/cost/machine.hpp>
#include <seqpar/cost/needs.hpp>
#include <seqpar/cost/paper.hpp>
#include <seqpar/cost/pieces.hpp>
#include <seqpar/cost/timeline.hpp>
#include <seqpar/cost/traffic.hpp>
#include <seqpar/cost/visits.hpp>
#include <seqpar/cost/weigh.hpp>
#include <seqpar/cost/work.hpp>
