// SPDX-License-Identifier: Apache-2.0
//
// Executions made up for tests, with known causes: a list scheduler runs a layered graph of tasks
// in virtual time, with overheads that are chosen, and writes the trace of it.
//
// Random numbers belong to tasks and are drawn before anything runs. So the same tasks can run
// again without one overhead, and what that overhead costs is known and not estimated. The same
// options give the same nanoseconds on every machine. Costs a few heap operations a task.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/step_tasks.h"
#include "trace/trace.h"

namespace gapless {

struct MadeKernel {
  std::string name;
  CoreClass core_class = CoreClass::kAny;
  int64_t mean_ns = 10'000;  // of the run times, which are lognormal
  double sigma = 0.0;        // of their logarithm; 0: all the same
};

// Uniform from low to high, both included.
struct MadeDelay {
  int64_t low_ns = 0;
  int64_t high_ns = 0;
};

struct MadeOverheads {
  MadeDelay completion = {};   // from a task's end until the scheduler sees it
  MadeDelay dispatch = {};     // before it is dispatched: each scheduler does one after another
  MadeDelay propagation = {};  // from dispatch to receive
  MadeDelay setup = {};        // from receive to start
  // The orchestrator hands in a task, and the next one so much later.
  int64_t submit_interval_ns = 0;
};

struct MadeOptions {
  uint64_t seed = 1;
  int64_t begin_ns = 1'000'000;  // of the step
  std::array<uint32_t, kCoreClassCount> core_counts = {4, 0, 0};
  // 0: there is none; workers take tasks themselves, as on a CPU: receive is dispatch.
  uint32_t scheduler_count = 1;
  // Each task has its core before it is ready, and waits for that one while others are free.
  bool has_fixed_cores = false;

  // Level i has level_widths[i] tasks of kernel i, i modulo the number of kernels. Without widths:
  // level_count levels with min_width to max_width tasks.
  std::vector<MadeKernel> kernels = {{.name = "kernel"}};
  std::vector<uint32_t> level_widths = {};
  uint32_t level_count = 10;
  uint32_t min_width = 1;
  uint32_t max_width = 8;
  // Each task waits for up to so many of the level before; 0: for all of them, through a join row
  // where there are several.
  uint32_t edges_per_task = 2;
  // One task in so many waits for one of any earlier level too; 0: none.
  uint32_t long_edge_every = 0;
  // Run times are changed so that they add up to this; 0: they stay as drawn.
  int64_t total_run_ns = 0;
  // Each run time is then made longer or shorter by up to this share of it, by chance and
  // jitter_seed: to see how much of a makespan is chance. All else stays as drawn.
  double jitter = 0.0;
  uint64_t jitter_seed = 1;

  MadeOverheads overheads = {};
};

struct MadeTruth {
  int64_t makespan_ns = 0;
  // Of the same tasks without one overhead, and without any.
  int64_t zero_completion_ns = 0;
  int64_t zero_dispatch_ns = 0;
  int64_t zero_handoff_ns = 0;  // propagation and setup
  int64_t zero_submit_ns = 0;
  int64_t zero_all_ns = 0;
  int64_t run_ns = 0;            // the sum of all run times
  int64_t longest_chain_ns = 0;  // of run times
};

struct MadeExecution {
  Trace trace;       // all seven times, edges, and the orchestrator's "step" span
  TimeRange window;  // the step: from its begin to the last end
  MadeTruth truth;
};

MadeExecution make_execution(const MadeOptions& options);

// The counts of pypto-lib issue 665: 38,705 tasks on 24 cube and 48 vector cores, 45 us a run, 61
// us from dispatch to finish, about 356 ms in all: 4.9 cores are busy.
MadeOptions narrow_decode_options();

// 38,560 tasks on the same cores, about six edges a task, 48 to 96 tasks a level.
MadeOptions wide_decode_options();

}  // namespace gapless
