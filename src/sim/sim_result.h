// SPDX-License-Identifier: Apache-2.0
//
// SimResult: everything that happened on the simulated device, in nanoseconds since it began.

#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace gapless {

// What one core did for one block. Times are kAbsent until they happened.
struct SimRecord {
  int64_t dispatch_ns = kAbsent;
  int64_t receive_ns = kAbsent;
  int64_t start_ns = kAbsent;
  int64_t end_ns = kAbsent;
  int64_t finish_ns = kAbsent;  // a scheduler saw the end
  uint32_t task = 0;
  uint32_t core = kNoIndex;  // cube cores by cluster, then vector cores by cluster
};

struct SimTaskTimes {
  int64_t submit_ns = kAbsent;
  int64_t ready_ns = kAbsent;
  int64_t finish_ns = kAbsent;  // the last record was seen
};

enum class SimPhase : uint8_t { kComplete = 0, kDispatch = 1, kGang = 2, kDummy = 3, kEarly = 4 };
inline constexpr int kSimPhaseCount = 5;

// What a scheduler thread did; between two of these it polled, or waited for a core to poll.
struct SimPhaseSpan {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  SimPhase phase = SimPhase::kComplete;
  uint32_t record_count = 0;  // ends seen, or records dispatched
};

struct SimResult {
  // Of a task one after another: block by block, in a block the cube core first.
  std::vector<SimRecord> records;
  std::vector<uint64_t> record_begins;  // [task + 1]
  std::vector<SimTaskTimes> tasks;
  std::vector<std::vector<SimPhaseSpan>> phases;  // by scheduler thread, in order of time
  int64_t makespan_ns = 0;                        // until the last end was seen
  int64_t submitted_ns = 0;                       // until the last task was submitted
  int64_t window_wait_ns = 0;  // the orchestrator stood still because its window was full
  uint64_t pending_count = 0;  // records that were dispatched into a pending slot
  uint64_t event_count = 0;    // that the simulation took
};

}  // namespace gapless
