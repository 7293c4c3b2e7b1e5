// SPDX-License-Identifier: Apache-2.0
//
// The rows of a swimlane file of simpler, as they stand in it.
//
// Three generations: "tasks" in microseconds (l2_perf_records, perf_swimlane), and rows of cycles
// under l2_swimlane_level or chip_swimlane_level. All become the same rows here; a time is in ticks
// of `ticks_per_second`, and kAbsent where the file has 0, which stands for "not recorded". What
// cannot be used is counted in the builder.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/input_stream.h"
#include "base/result.h"
#include "trace/trace.h"
#include "trace/trace_builder.h"

namespace gapless {

enum class SwimlaneCoreType : uint8_t { kCube, kVector, kUnknown };

// One run of a kernel on one core.
struct SwimlaneTask {
  uint64_t token = 0;        // ring << 32 | number; of several runs the same
  uint64_t register_id = 0;  // with the core: which run it is
  int64_t receive = kAbsent;
  int64_t start = kAbsent;
  int64_t end = kAbsent;
  int64_t dispatch = kAbsent;
  int64_t finish = kAbsent;
  int64_t function_id = -1;  // -1: not in this file
  uint32_t core = 0;
};

// What a scheduler wrote down of a run.
struct SwimlaneDispatch {
  uint64_t register_id = 0;
  int64_t dispatch = kAbsent;
  int64_t finish = kAbsent;
  uint32_t core = 0;
};

struct SwimlanePhase {
  int64_t begin = kAbsent;
  int64_t end = kAbsent;
  uint64_t token = 0;  // of what was submitted
  uint32_t thread = 0;
  uint32_t name = kNoIndex;  // of the builder's names
  uint32_t value = kNoValue;
  bool has_token = false;
  bool is_in_cycles = false;
};

struct SwimlaneEdge {
  uint64_t producer = 0;
  uint64_t consumer = 0;
  EdgeKind kind = EdgeKind::kData;
};

struct SwimlaneRecords {
  bool is_in_cycles = false;  // not so in the oldest generation
  int64_t level = 0;          // 1 to 4; 0: the file does not say
  uint64_t ticks_per_second = 1'000'000'000;
  std::map<uint32_t, SwimlaneCoreType> core_types;
  std::vector<SwimlaneTask> tasks;
  std::vector<SwimlaneDispatch> dispatches;  // not yet joined with the tasks
  std::vector<SwimlanePhase> scheduler_phases;
  std::vector<SwimlanePhase> orchestrator_phases;
  std::vector<SwimlaneEdge> edges;  // of the oldest generation
};

// Error when it is no such file, or its times cannot be understood. A file that is cut short or
// damaged further on gives the rows before that place and a finding.
Result<SwimlaneRecords> read_swimlane_records(InputStream& input, const Progress& progress,
                                              TraceBuilder& builder);

}  // namespace gapless
