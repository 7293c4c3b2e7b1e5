// SPDX-License-Identifier: Apache-2.0

#include "formats/slice_arrows.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace gapless {

// The arrow being put together.
struct SliceArrows::Chain {
  std::vector<uint32_t> place;  // by slice: its number in order of time
  std::vector<uint32_t> slices;

  void sort() {
    std::sort(slices.begin(), slices.end(),
              [this](uint32_t a, uint32_t b) { return place[a] < place[b]; });
    slices.erase(std::unique(slices.begin(), slices.end()), slices.end());
  }
};

SliceArrows::SliceArrows(const SliceLayout& layout) {
  const Trace& trace = layout.trace;
  if (trace.flows.size() == 0 && trace.edges.size() == 0) return;
  const size_t slice_limit = trace.spans.size() + trace.tasks.size();
  Chain chain{std::vector<uint32_t>(slice_limit), {}};
  uint32_t place = 0;
  layout.visit_in_time([&](uint32_t slice, int64_t, int64_t) { chain.place[slice] = place++; });
  add_flows(layout, chain);
  add_edges(layout, chain);
  index_by_slice(slice_limit);
}

namespace {

// By task without a slice that others wait for: of the tasks with a slice that it waits for, the
// one that ended last.
std::vector<uint32_t> last_joined_tasks(const Trace& trace) {
  std::vector<bool> is_awaited(trace.tasks.size(), false);
  for (const uint32_t producer : trace.edges.producer) is_awaited[producer] = true;
  std::vector<uint32_t> last(trace.tasks.size(), kNoIndex);
  const std::vector<int64_t>& end_ns = trace.tasks.at(TaskTime::kEnd);
  for (size_t i = 0; i < trace.edges.size(); ++i) {
    const uint32_t producer = trace.edges.producer[i];
    const uint32_t consumer = trace.edges.consumer[i];
    if (is_drawn(trace.tasks, consumer) || !is_drawn(trace.tasks, producer)) continue;
    if (!is_awaited[consumer]) continue;
    uint32_t& known = last[consumer];
    if (known == kNoIndex || end_ns[producer] > end_ns[known]) known = producer;
  }
  return last;
}

}  // namespace

// Ends the arrow that `chain` holds, if it can be drawn.
void SliceArrows::close(Chain& chain) {
  chain.sort();
  if (chain.slices.size() < 2) {
    if (!chain.slices.empty()) ++lost_count_;
    chain.slices.clear();
    return;
  }
  ++arrow_count_;
  for (size_t i = 0; i < chain.slices.size(); ++i) {
    const FlowPhase phase = i == 0                         ? FlowPhase::kOut
                            : i + 1 == chain.slices.size() ? FlowPhase::kIn
                                                           : FlowPhase::kStep;
    points_.push_back({chain.slices[i], arrow_count_, phase});
  }
  chain.slices.clear();
}

// Points with one id: each out begins an arrow and an in ends it. A point after the end belongs to
// another arrow from the same out, so that one out may have several ins.
void SliceArrows::add_flows(const SliceLayout& layout, Chain& chain) {
  const FlowColumns& flows = layout.trace.flows;
  std::vector<uint32_t> order(flows.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&flows](uint32_t a, uint32_t b) { return flows.id[a] < flows.id[b]; });

  uint32_t out_slice = kNoIndex;
  bool is_closed = false;
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t point = order[i];
    const FlowPhase phase = static_cast<FlowPhase>(flows.phase[point]);
    const bool is_other_id = i == 0 || flows.id[point] != flows.id[order[i - 1]];
    if (is_other_id || phase == FlowPhase::kOut) {
      close(chain);
      out_slice = kNoIndex;
      is_closed = false;
    }
    if (flows.span[point] == kNoIndex) {
      ++lost_count_;
      continue;
    }
    if (is_closed && out_slice != kNoIndex) chain.slices.push_back(out_slice);
    is_closed = phase == FlowPhase::kIn;
    if (phase == FlowPhase::kOut) out_slice = flows.span[point];
    chain.slices.push_back(flows.span[point]);
    if (is_closed) close(chain);
  }
  close(chain);
}

// A task without a slice that joins others (the blocks of one task) is passed through: the arrow
// begins at the one of them that ended last, which is what the consumer waited for.
void SliceArrows::add_edges(const SliceLayout& layout, Chain& chain) {
  const Trace& trace = layout.trace;
  const std::vector<uint32_t> last_joined = last_joined_tasks(trace);
  for (size_t i = 0; i < trace.edges.size(); ++i) {
    uint32_t producer = trace.edges.producer[i];
    const uint32_t consumer = trace.edges.consumer[i];
    if (!is_drawn(trace.tasks, producer)) producer = last_joined[producer];
    if (!is_drawn(trace.tasks, consumer) && last_joined[consumer] != kNoIndex) continue;
    if (producer == kNoIndex || !is_drawn(trace.tasks, consumer)) {
      ++lost_count_;
      continue;
    }
    chain.slices = {layout.span_count + producer, layout.span_count + consumer};
    close(chain);
  }
}

// A counting sort: within a slice the points stay in the order of their arrows.
void SliceArrows::index_by_slice(size_t slice_limit) {
  GAPLESS_CHECK(points_.size() < kNoIndex);
  first_.assign(slice_limit + 1, 0);
  for (const ArrowPoint& point : points_) ++first_[point.slice + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<uint32_t> next = first_;
  std::vector<ArrowPoint> sorted(points_.size());
  for (const ArrowPoint& point : points_) sorted[next[point.slice]++] = point;
  points_ = std::move(sorted);
}

}  // namespace gapless
