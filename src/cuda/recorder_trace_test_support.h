// SPDX-License-Identifier: Apache-2.0
//
// What the tests of device_trace ask of a trace.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/recorder_test_support.h"
#include "trace/trace.h"

namespace gapless::made_trace {

inline uint32_t lane_of(const Trace& trace, std::string_view name) {
  for (uint32_t lane = 0; lane < trace.lanes.size(); ++lane) {
    if (trace.lanes[lane].name == name) return lane;
  }
  return kNoIndex;
}

inline uint64_t finding_count(const Trace& trace, std::string_view code) {
  uint64_t count = 0;
  for (const Finding& finding : trace.findings) {
    if (finding.code == code) count += finding.count;
  }
  return count;
}

inline std::string_view property_of(const Trace& trace, std::string_view key) {
  for (const Property& property : trace.properties) {
    if (property.key == key) return property.value;
  }
  return "(none)";
}

inline int64_t time_of(const Trace& trace, size_t row, TaskTime time) {
  return trace.tasks.at(time)[row];
}

inline void expect_near(int64_t value_ns, int64_t truth_ns, const char* what) {
  EXPECT_LE(std::abs(value_ns - truth_ns), kMadeTickNs)
      << what << ": " << value_ns << " and " << truth_ns;
}

// Of hand_made_recording(), by place in a step; times since the step began.
struct HandMadeTask {
  uint32_t lane;
  int64_t ready_ns;
  int64_t receive_ns;
  int64_t start_ns;
  int64_t end_ns;
};
inline constexpr size_t kHandMadeStepTasks = 8;
inline void expect_hand_made_tasks(const Trace& trace,
                                   const HandMadeTask (&truths)[kHandMadeStepTasks]) {
  ASSERT_EQ(trace.tasks.size(), 2 * kHandMadeStepTasks);
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    SCOPED_TRACE(row);
    const size_t place = trace.tasks.id[row] - 1;
    const HandMadeTask& truth = truths[place % kHandMadeStepTasks];
    const int64_t step_ns =
        1'000'000 + static_cast<int64_t>(place / kHandMadeStepTasks) * kHandMadeStepNs;
    EXPECT_EQ(trace.tasks.lane[row], truth.lane);
    expect_near(time_of(trace, row, TaskTime::kReady), step_ns + truth.ready_ns, "ready");
    expect_near(time_of(trace, row, TaskTime::kReceive), step_ns + truth.receive_ns, "receive");
    expect_near(time_of(trace, row, TaskTime::kStart), step_ns + truth.start_ns, "start");
    expect_near(time_of(trace, row, TaskTime::kEnd), step_ns + truth.end_ns, "end");
  }
}

// Tasks of one lane follow each other; spans do on all lanes, of which some may be left out.
inline void expect_no_overlap(const Trace& trace, std::string_view left_out = "") {
  std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    ASSERT_LE(time_of(trace, row, TaskTime::kStart), time_of(trace, row, TaskTime::kEnd));
    ranges[trace.tasks.lane[row]].push_back(
        {time_of(trace, row, TaskTime::kStart), time_of(trace, row, TaskTime::kEnd)});
  }
  for (size_t row = 0; row < trace.spans.size(); ++row) {
    ASSERT_LE(trace.spans.begin_ns[row], trace.spans.end_ns[row]);
    if (trace.lanes[trace.spans.lane[row]].name == left_out) continue;
    ranges[trace.spans.lane[row]].push_back({trace.spans.begin_ns[row], trace.spans.end_ns[row]});
  }
  for (auto& [lane, of_lane] : ranges) {
    std::sort(of_lane.begin(), of_lane.end());
    for (size_t i = 1; i < of_lane.size(); ++i) {
      ASSERT_GE(of_lane[i].first, of_lane[i - 1].second) << trace.lanes[lane].name;
    }
  }
}

}  // namespace gapless::made_trace
