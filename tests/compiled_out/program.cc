// SPDX-License-Identifier: Apache-2.0
//
// Compiled twice, with and without INSTRUMENTED, and compared as machine code: see CMakeLists.txt.

#include <cstdint>

#ifdef INSTRUMENTED
#define ENABLE_TRACR
#include "gapless/trace.h"
#include "gapless/tracr.h"
#endif

int64_t work(int64_t input);

int64_t work(int64_t input) {
#ifdef INSTRUMENTED
  GAPLESS_TRACE_SCOPE("work");
  GAPLESS_TRACE_COUNTER("input", input);
  gapless::span_begin(gapless::NameId{1}, 2);
  gapless::switch_to(gapless::LaneId{1}, gapless::NameId{2});
  gapless::task_event(gapless::TaskTime::kStart, gapless::LaneId{1}, 3);
  gapless::flow_out(4);
  INSTRUMENTATION_MARK_SET(0, 1, 2);
#endif
  const int64_t result = input * 3 + 1;
#ifdef INSTRUMENTED
  INSTRUMENTATION_MARK_RESET(0);
  gapless::task_edge(1, 2);
  gapless::task_cost(3, 4, 5);
  gapless::set_property("input", "known");
  gapless::instant(gapless::NameId{1});
  gapless::span_end();
#endif
  return result;
}
