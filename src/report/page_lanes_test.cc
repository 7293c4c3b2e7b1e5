// SPDX-License-Identifier: Apache-2.0

#include "report/page_lanes.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/whatif_test_support.h"

namespace gapless {
namespace {

constexpr TimeRange kWindow = {.begin_ns = 1'000, .end_ns = 2'000};

struct HandSpan {
  uint32_t lane = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// One core, lane 0, that runs throughout the window, and threads 1 to 3.
Trace trace_of(const std::vector<HandSpan>& spans) {
  Trace trace = hand_trace(
      {{.core = 0, .start_ns = 1'000, .end_ns = 2'000}}, 4,
      {LaneKind::kWorker, LaneKind::kOrchestrator, LaneKind::kScheduler, LaneKind::kThread});
  for (const HandSpan& span : spans) {
    trace.spans.begin_ns.push_back(span.begin_ns);
    trace.spans.end_ns.push_back(span.end_ns);
    trace.spans.lane.push_back(span.lane);
    trace.spans.name.push_back(trace.names.intern(std::to_string(trace.spans.size())));
    trace.spans.value.push_back(kNoValue);
  }
  return trace;
}

PageLanes lanes_of(const Trace& trace, uint64_t max_spans = 1'000'000) {
  return find_page_lanes(trace, make_step_tasks(trace, kWindow), max_spans);
}

std::vector<uint32_t> depths_of(const std::vector<HandSpan>& spans) {
  std::vector<uint32_t> depths;
  for (const PageSpan& span : lanes_of(trace_of(spans)).spans) depths.push_back(span.depth);
  return depths;
}

TEST(PageLanes, HaveSpansOfTheWindowCutAtItsEnds) {
  const PageLanes page = lanes_of(trace_of({{1, 0, 999},           // before
                                            {1, 500, 1'000},       // ends where the window begins
                                            {1, 900, 1'100},       // cut
                                            {1, 1'200, 1'300},     // inside
                                            {3, 1'900, 2'100},     // cut
                                            {2, 2'000, 2'100},     // after
                                            {0, 1'100, 1'200}}));  // on a core
  ASSERT_EQ(page.lanes.size(), 2u);
  EXPECT_EQ(page.lanes[0].lane, 1u);
  EXPECT_EQ(page.lanes[0].span_count, 2u);
  EXPECT_EQ(page.lanes[1].lane, 3u);
  EXPECT_EQ(page.lanes[1].span_count, 1u);
  ASSERT_EQ(page.spans.size(), 3u);
  EXPECT_EQ(page.spans[0].begin_ns, 0);
  EXPECT_EQ(page.spans[0].end_ns, 100);
  EXPECT_EQ(page.spans[1].begin_ns, 200);
  EXPECT_EQ(page.spans[1].end_ns, 300);
  EXPECT_EQ(page.spans[2].begin_ns, 900);
  EXPECT_EQ(page.spans[2].end_ns, 1'000);
  EXPECT_EQ(page.spans_left_out, 0u);
}

TEST(PageLanes, HaveSpansOfNoLengthWhoseTimeIsInside) {
  const PageLanes page =
      lanes_of(trace_of({{1, 999, 999}, {1, 1'000, 1'000}, {1, 1'500, 1'500}, {1, 2'000, 2'000}}));
  ASSERT_EQ(page.spans.size(), 2u);
  EXPECT_EQ(page.spans[0].begin_ns, 0);
  EXPECT_EQ(page.spans[1].begin_ns, 500);
  EXPECT_EQ(page.spans[1].end_ns, 500);
}

TEST(PageLanes, AreAsDeepAsSpansNest) {
  EXPECT_EQ(depths_of({{1, 1'000, 1'900},
                       {1, 1'000, 1'400},
                       {1, 1'100, 1'200},
                       {1, 1'200, 1'300},
                       {1, 1'500, 1'600},
                       {1, 1'900, 1'950},
                       {2, 1'100, 1'200}}),
            (std::vector<uint32_t>{0, 1, 2, 2, 1, 0, 0}));
}

TEST(PageLanes, PutTheLaterOfTwoThatOverlapBelow) {
  EXPECT_EQ(depths_of({{1, 1'000, 1'200}, {1, 1'100, 1'300}, {1, 1'150, 1'400}}),
            (std::vector<uint32_t>{0, 1, 2}));
}

TEST(PageLanes, DoNotBecomeDeeperWithEachLinkOfAChain) {
  EXPECT_EQ(depths_of({{1, 1'000, 1'200}, {1, 1'100, 1'300}, {1, 1'200, 1'400}, {1, 1'300, 1'500}}),
            (std::vector<uint32_t>{0, 1, 0, 1}));
}

TEST(PageLanes, TakeTheOneThatBeganFirstForTheOuterWhenBothAreCut) {
  const Trace trace = trace_of({{1, 100, 3'000}, {1, 200, 2'900}});
  const PageLanes page = lanes_of(trace);
  ASSERT_EQ(page.spans.size(), 2u);
  EXPECT_EQ(trace.names[page.spans[0].name], "1");
  EXPECT_EQ(page.spans[0].depth, 0u);
  EXPECT_EQ(page.spans[1].depth, 1u);
}

TEST(PageLanes, EndAtTheDeepestThatIsDrawn) {
  const std::vector<HandSpan> spans(300, {1, 1'000, 2'000});
  const std::vector<uint32_t> depths = depths_of(spans);
  EXPECT_EQ(depths[255], 255u);
  EXPECT_EQ(depths[299], 255u);
}

TEST(PageLanes, KeepTheLongestSpansAndCountTheOthers) {
  const Trace trace = trace_of({{1, 1'000, 1'001},
                                {1, 1'100, 1'150},
                                {2, 1'100, 1'102},
                                {2, 1'200, 1'290},
                                {3, 1'300, 1'301}});
  const PageLanes page = lanes_of(trace, 2);
  EXPECT_EQ(page.spans_left_out, 3u);
  ASSERT_EQ(page.lanes.size(), 2u);
  EXPECT_EQ(page.lanes[0].lane, 1u);
  EXPECT_EQ(page.lanes[1].lane, 2u);
  ASSERT_EQ(page.spans.size(), 2u);
  EXPECT_EQ(page.spans[0].end_ns - page.spans[0].begin_ns, 50);
  EXPECT_EQ(page.spans[1].end_ns - page.spans[1].begin_ns, 90);
}

// No two spans of a lane at one depth have a moment in common, and the depth of a span is at most
// the number of those that are open when it begins.
TEST(PageLanes, NeverCoverOneSpanWithAnother) {
  std::mt19937 random(7);
  std::vector<HandSpan> spans;
  for (int i = 0; i < 200; ++i) {
    const int64_t begin_ns = 1'000 + static_cast<int64_t>(random() % 1'000);
    spans.push_back({1, begin_ns, begin_ns + static_cast<int64_t>(random() % 60)});
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const HandSpan& a, const HandSpan& b) { return a.begin_ns < b.begin_ns; });
  const PageLanes page = lanes_of(trace_of(spans));
  ASSERT_EQ(page.spans.size(), spans.size());
  for (size_t i = 0; i < page.spans.size(); ++i) {
    uint32_t open_count = 0;
    for (size_t j = 0; j < i; ++j) {
      if (page.spans[j].end_ns <= page.spans[i].begin_ns) continue;
      ++open_count;
      EXPECT_NE(page.spans[j].depth, page.spans[i].depth) << j << " and " << i;
    }
    EXPECT_LE(page.spans[i].depth, open_count);
  }
}

}  // namespace
}  // namespace gapless
