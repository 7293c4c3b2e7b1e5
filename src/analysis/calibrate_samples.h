// SPDX-License-Identifier: Apache-2.0
//
// What the calibration collects from the steps of a trace before it fits anything: differences of
// times, by what they stand for in the simulated machine.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace gapless {

inline constexpr uint64_t kFewestSamples = 5;  // fewer say nothing

// Quartiles, each the smaller of two where it lies between.
struct Spread {
  uint64_t count = 0;
  int64_t least = 0;
  int64_t lower = 0;
  int64_t median = 0;
  int64_t upper = 0;
};

class Samples {
 public:
  void add(int64_t value) { values_.push_back(value); }
  bool has_enough() const { return values_.size() >= kFewestSamples; }
  uint64_t count() const { return values_.size(); }
  Spread spread() const;
  // The median; where times are multiples of a tick, the mean of what lies within a tick of it,
  // which is closer than a tick to what was measured.
  int64_t middle(int64_t tick_ns) const;
  double mean() const;
  const std::vector<int64_t>& values() const { return values_; }

 private:
  std::vector<int64_t> values_;
};

// Between two submits.
struct SubmitSample {
  int64_t gap_ns = 0;
  int64_t producer_count = 0;
  int64_t depth = 0;  // tasks from the oldest that is not complete to this one
};

// A poll that saw ends. Where another such poll follows at once, `cost_ns` has that in it.
struct HitSample {
  int64_t cost_ns = 0;
  int64_t end_count = 0;
  int64_t edge_count = 0;  // consumers that were told
  bool is_followed = false;
};

// A phase in which a thread polled all its running cores and saw ends.
struct SweepSample {
  int64_t span_ns = 0;
  int64_t poll_count = 0;
  int64_t end_count = 0;
  int64_t edge_count = 0;
};

struct CalibrationSamples {
  int64_t tick_ns = 0;  // greatest common divisor of all times; 0: there is only one

  Samples propagation;  // dispatch to receive, on an idle core
  Samples setup;        // receive to start, there
  Samples first_setup;  // the same for the first task of a core
  Samples handoff;      // dispatch to start on an idle core, where receive is not recorded
  Samples switches;     // from an end to the start of what waited on the core
  Samples wait;         // from when an end can be seen until it was
  uint64_t early_finish_count = 0;  // finishes before that
  uint64_t dispatched_count = 0;    // tasks with a dispatch, after another on their core
  uint64_t pending_count = 0;       // ... that came before that other had ended
  uint64_t held_back_count = 0;     // ... that came after it, though ready before it started
  uint64_t early_count = 0;         // dispatched before it was ready

  std::vector<SubmitSample> submits;

  bool has_poll_spans = false;   // so that a complete phase begins with the poll that saw the end
  uint64_t phase_count = 0;      // complete and dispatch phases
  uint64_t odd_phase_count = 0;  // ... whose number of records is not that of the times within
  Samples poll;                  // begin of such a phase to the finish
  std::vector<HitSample> hits;
  std::vector<SweepSample> sweeps;
  Samples first_dispatch;  // from taking a task from a queue to its first dispatch
  Samples next_dispatch;   // from a dispatch to the next of the same task
  Samples loop;            // from a dispatch phase to the next complete phase, of those after it

  std::map<std::string, Samples> kernels;
  int64_t bytes = 0;  // of all tasks
  int64_t window_ns = 0;
};

struct RecordedStep;

// Each adds what one step tells.
void add_core_samples(const Trace& trace, const RecordedStep& step, CalibrationSamples& samples);
void add_submit_samples(const RecordedStep& step, CalibrationSamples& samples);
void add_kernel_samples(const Trace& trace, const RecordedStep& step, CalibrationSamples& samples);
void add_phase_samples(const Trace& trace, const RecordedStep& step, CalibrationSamples& samples);

std::vector<uint32_t> scheduler_lanes(const Trace& trace);

// When a task's last record was seen to end, by task of the step's graph; kAbsent: not recorded.
std::vector<int64_t> finish_times(const RecordedStep& step);

}  // namespace gapless
