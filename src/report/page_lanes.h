// SPDX-License-Identifier: Apache-2.0
//
// The lanes of the page that are not cores: orchestrator, schedulers and threads, with their spans
// in the window. Costs a sort of these spans.

#pragma once

#include <cstdint>
#include <vector>

#include "analysis/step_tasks.h"
#include "trace/trace.h"

namespace gapless {

// So that depths are bytes.
inline constexpr uint32_t kMaxSpanDepth = 255;

struct PageSpan {
  int64_t begin_ns = 0;  // since the window's begin; cut at the window
  int64_t end_ns = 0;
  uint32_t name = kNoIndex;  // of the trace's names
  uint32_t depth = 0;        // 0: outermost; kMaxSpanDepth: there or deeper
};

struct PageLane {
  uint32_t lane = 0;  // of the trace
  uint32_t span_count = 0;
};

struct PageLanes {
  std::vector<PageLane> lanes;  // those that have spans, as in the trace
  std::vector<PageSpan> spans;  // by lane, begin, the longer first
  uint64_t spans_left_out = 0;
};

// Of more than `max_spans` the longest stay. A span lies as deep as it must so that it covers no
// other: spans that nest lie below the one around them, and so does the later of two that overlap.
PageLanes find_page_lanes(const Trace& trace, const StepTasks& tasks, uint64_t max_spans);

}  // namespace gapless
