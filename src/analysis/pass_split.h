// SPDX-License-Identifier: Apache-2.0
//
// The row at which the next pass begins, within an interval that is known to hold the place.
//
// In the order of trust: behind the last kernel that samples, and what its stream does after it
// when that stream does nothing else; where the kernels begin that lead to the next anchor in the
// places that were found so; of a draft, at the embedding; where the largest gap is, by the median
// over all intervals of the same kernels, if it is several times the next; where the kernels begin
// with which the capture begins; at the largest gap. Never behind an embedding. So no gap is needed
// as long as some passes sample, or one begins the capture.

#pragma once

#include <cstdint>
#include <vector>

#include "analysis/pass_signature.h"
#include "trace/capture_table.h"

namespace gapless {

// What an interval leads to.
enum class Boundary : uint8_t { kNone = 0, kPass = 1, kDraft = 2 };

struct BoundarySplits {
  std::vector<uint32_t> rows;  // by interval: the first of the next pass; kNoIndex: no boundary
  uint32_t by_gap_count = 0;   // intervals that only the gap could tell
  // The first kernels of the capture are the last of those that lead to a first anchor: the pass
  // began before. The same for the last, if they sample.
  bool begins_late = false;
  bool ends_early = false;
};

// `boundaries` is by interval. `begins_whole`: the capture begins with kernels of no layer.
BoundarySplits split_boundaries(const CaptureTable& table, const KernelKeys& keys,
                                const AnchorIntervals& intervals,
                                const std::vector<Boundary>& boundaries, bool begins_whole);

}  // namespace gapless
