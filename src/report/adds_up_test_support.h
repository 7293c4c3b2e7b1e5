// SPDX-License-Identifier: Apache-2.0
//
// What every report of a step must hold, to the nanosecond.

#pragma once

#include <cstdint>
#include <numeric>

#include <gtest/gtest.h>

#include "report/step_report.h"

namespace gapless {

// Busy time and idle time by cause are all of the core time, and kernels all of what is busy.
inline void expect_report_adds_up(const StepReport& report) {
  const int64_t window_ns = report.kernels.window_ns();
  const int64_t core_count = static_cast<int64_t>(report.core_names.size());
  const int64_t idle_ns =
      std::accumulate(report.bubbles.cause_ns.begin(), report.bubbles.cause_ns.end(), int64_t{0});
  EXPECT_EQ(report.bubbles.busy_ns + idle_ns, core_count * window_ns);
  EXPECT_EQ(report.bubbles.idle_ns, idle_ns);
  EXPECT_EQ(report.kernels.busy_ns, report.bubbles.busy_ns);
  int64_t self_ns = 0;
  for (const KernelTime& kernel : report.kernels.kernels) self_ns += kernel.self_ns;
  EXPECT_EQ(self_ns, report.kernels.busy_ns);
}

}  // namespace gapless
