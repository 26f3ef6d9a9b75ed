// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Everything that needs only a C++20 compiler, room by room.
#pragma once

#include <seqpar/config.hpp>
#include <seqpar/error.hpp>
#include <seqpar/memory.hpp>
#include <seqpar/types.hpp>
#include <seqpar/version.hpp>
#include <seqpar/views.hpp>

#include <seqpar/layout/appended.hpp>
#include <seqpar/layout/concept.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/explain.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/laws.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/pieces.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>

#include <seqpar/mask/block_causal.hpp>
#include <seqpar/mask/causal.hpp>
#include <seqpar/mask/combine.hpp>
#include <seqpar/mask/concept.hpp>
#include <seqpar/mask/documents.hpp>
#include <seqpar/mask/explain.hpp>
#include <seqpar/mask/first_keys.hpp>
#include <seqpar/mask/full.hpp>
#include <seqpar/mask/intervals.hpp>
#include <seqpar/mask/laws.hpp>
#include <seqpar/mask/prefix_lm.hpp>
#include <seqpar/mask/teacher_forcing.hpp>
#include <seqpar/mask/valid.hpp>
#include <seqpar/mask/window.hpp>

#include <seqpar/transport/concept.hpp>
#include <seqpar/transport/explain.hpp>
#include <seqpar/transport/laws.hpp>
#include <seqpar/transport/recorder.hpp>
#include <seqpar/transport/self.hpp>
#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>

#include <seqpar/space/block.hpp>
#include <seqpar/space/copy.hpp>

#include <seqpar/communicator/mesh.hpp>
#include <seqpar/communicator/process_grid.hpp>

#include <seqpar/exchange/box_view.hpp>
#include <seqpar/exchange/broadcast.hpp>
#include <seqpar/exchange/cache.hpp>
#include <seqpar/exchange/carry.hpp>
#include <seqpar/exchange/exchange.hpp>
#include <seqpar/exchange/gather.hpp>
#include <seqpar/exchange/halo.hpp>
#include <seqpar/exchange/holding.hpp>
#include <seqpar/exchange/item_deal.hpp>
#include <seqpar/exchange/labels.hpp>
#include <seqpar/exchange/reshard.hpp>
#include <seqpar/exchange/root_windows.hpp>
#include <seqpar/exchange/route.hpp>
#include <seqpar/exchange/scatter.hpp>
#include <seqpar/exchange/sums.hpp>
#include <seqpar/exchange/two_stage.hpp>
#include <seqpar/exchange/window_exchange.hpp>
#include <seqpar/exchange/windows.hpp>

#include <seqpar/kernel/concept.hpp>
#include <seqpar/kernel/explain.hpp>
#include <seqpar/kernel/host_fast.hpp>
#include <seqpar/kernel/host_reference.hpp>
#include <seqpar/kernel/tables.hpp>
#include <seqpar/kernel/transpose.hpp>

#include <seqpar/attention/decode.hpp>
#include <seqpar/attention/merge_tree.hpp>
#include <seqpar/attention/plan.hpp>
#include <seqpar/attention/state.hpp>
