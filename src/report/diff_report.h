// SPDX-License-Identifier: Apache-2.0
//
// DiffReport: two steps side by side, what makes the one longer than the other, and whether that is
// more than noise. What `gapless diff` prints; A is the first, B the second.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/device_time.h"
#include "analysis/diff.h"
#include "base/result.h"
#include "report/step_report.h"
#include "trace/trace.h"

namespace gapless {

// A trace and the report of the step that is compared. Both must live as long as the input.
struct ReportedTrace {
  const Trace& trace;
  const StepReport& report;
};

struct DiffReport {
  Both<std::string> source;
  Both<size_t> step;  // which of the trace's
  // Where all cores of both are streams of one device: its time is what is compared.
  std::optional<Both<DeviceTime>> device;
  StepDiff diff;  // its warnings, and what else makes the traces hard to compare
  std::string verdict;
};

Result<DiffReport> make_diff_report(const ReportedTrace& first, const ReportedTrace& second,
                                    const DiffOptions& options = {});

// A line of an account. All lines of one add up to the two steps and their difference.
struct AccountLine {
  std::string name;
  Both<double> ns;
  const KernelDiff* kernel = nullptr;  // none: a cause of bubbles, or a part of the path
  double difference_ns() const { return ns.second - ns.first; }
};
// Core time over cores: of each kernel, and idle by cause. The largest difference first; lines that
// are zero on both sides are left out.
std::vector<AccountLine> core_time_account(const StepDiff& diff);
// The observed path: run time of each kernel, and gaps by part.
std::vector<AccountLine> path_account(const StepDiff& diff);

// The time of the two devices by what they did, in the order of DeviceTime.
std::vector<AccountLine> device_account(const Both<DeviceTime>& device);

// One screen; `top` lines of each account.
std::string diff_text(const DiffReport& report, size_t top = 8);
std::string diff_json(const DiffReport& report);

// "+1.250 ms", "-3 ns", "0 ns".
std::string format_difference(double nanoseconds);

}  // namespace gapless
