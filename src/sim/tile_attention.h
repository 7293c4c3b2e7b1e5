// SPDX-License-Identifier: Apache-2.0
//
// Paged attention as many small tasks: what keeps the schedulers busy and the cores idle.
//
// Each page of each row is four tasks: scores (cube), softmax (vector), values (cube) and the
// update of the row's result (vector), which waits for that of the page before. With the defaults
// it stands for paged attention Case1 of simpler: 65,536 tasks in a window of 19.55 ms in which a
// cube core runs for 2.8 ms (aSim). Those two figures are published; the four tasks a page and
// their equal times are inferred from them: 24 x 2.8 ms over 32,768 cube tasks is 2.05 us.

#pragma once

#include <cstdint>

#include "base/result.h"
#include "sim/sim_graph.h"

namespace gapless {

struct TileAttentionArgs {
  int64_t rows = 256;  // sequence and head group
  int64_t pages = 64;  // of a row
  int64_t run_ns = 2050;
  int64_t sigma_ns = 100;
};

// Error when a number is out of range.
Result<SimGraph> make_tile_attention_graph(const TileAttentionArgs& args = {});

}  // namespace gapless
