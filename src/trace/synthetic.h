// SPDX-License-Identifier: Apache-2.0
//
// Traces made up for tests and benchmarks: any number of lanes, spans, tasks, flows, counters and
// instants. The same options give the same trace on every machine.

#pragma once

#include <cstdint>

#include "trace/trace.h"

namespace gapless {

struct SyntheticOptions {
  uint64_t seed = 1;
  int64_t first_time_ns = 1'700'000'000'000'000'000;
  uint32_t device_count = 1;  // lanes are spread over them in blocks

  // Lanes with spans, and how the spans lie on them.
  uint32_t lane_count = 4;
  uint32_t spans_per_lane = 100;
  uint32_t nesting_depth = 1;  // 1: no span lies in another
  bool overlapping = false;    // spans overlap without nesting; nesting_depth is not used
  bool ties = false;           // some have no length, many touch, begin or end together

  // What the spans carry.
  uint32_t name_count = 16;
  bool unicode_names = false;
  bool values = false;
  bool categories = false;
  bool args = false;

  uint32_t flow_count = 0;     // arrows between two spans; every fourth has a step between
  uint32_t counter_count = 0;  // samples, of two counters on every lane
  uint32_t instant_count = 0;

  // Tasks with all seven times, on lanes of their own after the others. Each task waits for up to
  // `edges_per_task` earlier ones.
  uint32_t task_lane_count = 0;
  uint32_t task_count = 0;
  uint32_t edges_per_task = 0;
};

Trace make_synthetic_trace(const SyntheticOptions& options);

}  // namespace gapless
