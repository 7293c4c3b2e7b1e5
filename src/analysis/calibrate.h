// SPDX-License-Identifier: Apache-2.0
//
// Calibration: the parameters of a simulated device that a recorded trace gives away.
//
// Each latency of the machine (docs/simulator.md) is the difference of two recorded times under
// some condition: from dispatch to receive where the core had nothing to do is the propagation.
// The middle of all such differences is the fit; quartiles tell how far that can be believed. What
// the trace does not tell, or tells fewer than kFewestSamples times, stays as the base profile has
// it, with the reason. docs/calibration.md lists every estimate. Costs a few passes over the tasks,
// and where only a replay can tell the polling, some sixty simulations of the step.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/calibrate_samples.h"
#include "analysis/recorded_graph.h"
#include "analysis/replay_span.h"
#include "analysis/step_tasks.h"
#include "base/result.h"
#include "sim/device_profile.h"
#include "trace/trace.h"

namespace gapless {

struct ParameterFit {
  std::string_view key;  // of profile_parameters()
  int64_t before = 0;
  int64_t value = 0;  // as before where it is not fitted
  bool is_fitted = false;
  Spread spread = {};  // of the samples; none for what is counted
  std::string note;    // what was measured, or why it is not known
};

struct KernelFit {
  std::string kernel;
  int64_t before_mean_ns = kAbsent;  // kAbsent: the base does not list it
  int64_t mean_ns = 0;
  int64_t sigma_ns = 0;
  Spread spread = {};          // of the runs: blocks of mixed tasks count once
  uint64_t outlier_count = 0;  // runs that were left out
};

struct Calibration {
  DeviceProfile profile;
  std::vector<ParameterFit> parameters;  // all, in the order of profile_parameters()
  std::vector<KernelFit> kernels;        // sorted by name; empty: not asked for
};

// A step with its graph. The trace and the step's tasks must outlive it.
struct RecordedStep {
  const StepTasks* tasks = nullptr;
  RecordedGraph recorded;
};

struct CalibrationArgs {
  const Trace& trace;
  std::span<const RecordedStep> steps;
  const DeviceProfile& base;
  std::string source;  // the trace's name, for the profile's sources
  std::string name;    // of the profile; empty: the base's with "-fitted"
  bool has_kernels = true;
};

// Error when no task ran.
Result<Calibration> calibrate(const CalibrationArgs& args);

// How long a simulated device takes for the recorded step. A few nanoseconds can decide which core
// a long task meets, and with it the whole step: so it is run again with run times that differ by
// less than a tick, which nobody could have recorded.
inline constexpr uint64_t kReplayCount = 9;
struct ReplayLengths {
  int64_t recorded_runs_ns = 0;  // with run times as recorded
  int64_t least_ns = 0;          // of that and the others
  int64_t median_ns = 0;
  int64_t most_ns = 0;
};

// Recorded and simulated steps are measured between the same two times.
struct ReplayCheck {
  ReplaySpan span;
  int64_t recorded_ns = 0;
  ReplayLengths before;                  // on the base
  ReplayLengths after;                   // on the fitted profile
  std::optional<ReplayLengths> kernels;  // there, with its kernels' means and sigmas
  double error(int64_t simulated_ns) const {
    return recorded_ns == 0
               ? 0.0
               : static_cast<double>(simulated_ns - recorded_ns) / static_cast<double>(recorded_ns);
  }
};

// Error when the tasks have no edges, so that any order would do, or do not run on the base.
Result<ReplayCheck> check_calibration(const Trace& trace, const RecordedStep& step,
                                      const DeviceProfile& base, const Calibration& calibration);

}  // namespace gapless
