// SPDX-License-Identifier: Apache-2.0

#include "report/page_lanes.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>
#include <utility>

namespace gapless {
namespace {

struct FoundSpan {
  int64_t begin_ns = 0;  // cut at the window
  int64_t end_ns = 0;
  uint32_t lane = 0;
  uint32_t row = 0;  // of the trace's spans, which are in order of time
};

// A span of no length is inside when its time is.
std::vector<FoundSpan> gather_spans(const Trace& trace, const StepTasks& tasks) {
  std::vector<bool> is_core(trace.lanes.size(), false);
  for (uint32_t core = 0; core < tasks.core_count(); ++core) is_core[tasks.lane(core)] = true;
  const TimeRange window = tasks.window();
  const SpanColumns& spans = trace.spans;
  std::vector<FoundSpan> found;
  for (uint32_t row = 0; row < spans.size(); ++row) {
    const int64_t begin_ns = spans.begin_ns[row];
    const int64_t end_ns = spans.end_ns[row];
    if (is_core[spans.lane[row]] || begin_ns >= window.end_ns) continue;
    if (end_ns <= window.begin_ns && begin_ns < window.begin_ns) continue;
    found.push_back({.begin_ns = std::max(begin_ns, window.begin_ns) - window.begin_ns,
                     .end_ns = std::min(end_ns, window.end_ns) - window.begin_ns,
                     .lane = spans.lane[row],
                     .row = row});
  }
  return found;
}

void keep_longest(std::vector<FoundSpan>& spans, uint64_t max_spans) {
  if (spans.size() <= max_spans) return;
  const auto is_longer = [](const FoundSpan& a, const FoundSpan& b) {
    const int64_t a_ns = a.end_ns - a.begin_ns;
    const int64_t b_ns = b.end_ns - b.begin_ns;
    return a_ns != b_ns ? a_ns > b_ns : a.row < b.row;
  };
  const auto middle = spans.begin() + static_cast<ptrdiff_t>(max_spans);
  std::nth_element(spans.begin(), middle, spans.end(), is_longer);
  spans.resize(max_spans);
}

// Of two that are cut to the same, the one that began first is the outer one.
void sort_spans(std::vector<FoundSpan>& spans) {
  std::sort(spans.begin(), spans.end(), [](const FoundSpan& a, const FoundSpan& b) {
    if (a.lane != b.lane) return a.lane < b.lane;
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    return a.end_ns != b.end_ns ? a.end_ns > b.end_ns : a.row < b.row;
  });
}

// Gives each span of a lane the smallest depth that is free when it begins. Where spans nest these
// are the depths of the nesting; where they overlap in long chains they need as many as overlap at
// once, and not one more for each link.
class DepthFinder {
 public:
  uint32_t place(int64_t begin_ns, int64_t end_ns) {
    while (!open_.empty() && open_.top().first <= begin_ns) {
      free_.push(open_.top().second);
      open_.pop();
    }
    uint32_t depth = depth_count_;
    if (free_.empty()) {
      ++depth_count_;
    } else {
      depth = free_.top();
      free_.pop();
    }
    open_.push({end_ns, depth});
    return depth;
  }

 private:
  template <typename T>
  using SmallestFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;

  SmallestFirst<std::pair<int64_t, uint32_t>> open_;  // end, depth
  SmallestFirst<uint32_t> free_;
  uint32_t depth_count_ = 0;
};

}  // namespace

PageLanes find_page_lanes(const Trace& trace, const StepTasks& tasks, uint64_t max_spans) {
  std::vector<FoundSpan> found = gather_spans(trace, tasks);
  const size_t found_count = found.size();
  keep_longest(found, max_spans);
  sort_spans(found);
  PageLanes page;
  page.spans_left_out = found_count - found.size();
  page.spans.reserve(found.size());
  DepthFinder depths;
  for (const FoundSpan& span : found) {
    if (page.lanes.empty() || page.lanes.back().lane != span.lane) {
      page.lanes.push_back({.lane = span.lane});
      depths = DepthFinder();
    }
    ++page.lanes.back().span_count;
    page.spans.push_back(
        {.begin_ns = span.begin_ns,
         .end_ns = span.end_ns,
         .name = trace.spans.name[span.row],
         .depth = std::min(depths.place(span.begin_ns, span.end_ns), kMaxSpanDepth)});
  }
  return page;
}

}  // namespace gapless
