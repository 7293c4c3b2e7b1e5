// SPDX-License-Identifier: Apache-2.0
//
// The kernel times of what the runtime records: a small replay, step by step.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/kernel_times.h"
#include "base/temporary_directory.h"
#include "gapless/trace.h"
#include "runtime/replay.h"
#include "runtime/test_graphs.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

// "wide" with five blocks, then "last"; one task between them is skipped.
Graph make_graph(Journal& journal, const int64_t& never) {
  TestGraph graph;
  const TaskId wide = graph.add({.name = "wide", .scalars = note(journal, 1), .block_count = 5});
  const TaskId skipped = graph.add(
      {.name = "skipped", .scalars = note(journal, 2), .after = {wide}, .predicate = {&never}});
  graph.add({.name = "last", .scalars = note(journal, 3), .after = {skipped}});
  return graph.finish();
}

Trace record_steps(Replay& replay, int step_count) {
  const TemporaryDirectory directory;
  RecorderOptions options;
  options.path = directory.path("replay.gapless");
  EXPECT_TRUE(start_recording(options)) << recording_error();
  for (int step = 0; step < step_count; ++step) must(replay.run());
  EXPECT_EQ(stop_recording().dropped_count, 0u);
  return must(read_trace_file(options.path));
}

TEST(RecordedKernelTimes, HaveEveryBlockOfEveryStep) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  const int64_t never = 0;
  Replay replay = must(Replay::prepare(*device, make_graph(journal, never)));
  const Trace trace = record_steps(replay, 3);
  const std::vector<StepWindow> steps = step_windows(trace);
  ASSERT_EQ(steps.size(), 3u);
  for (const StepWindow& step : steps) {
    const KernelTimes times = must(kernel_times(trace, {.window = step.window}));
    std::map<std::string, int64_t> run_counts;
    for (const KernelTime& kernel : times.kernels) {
      run_counts[std::string(kernel_name(trace, kernel))] = kernel.run_count;
      EXPECT_EQ(kernel.cut_count, 0) << "a step holds its tasks";
      EXPECT_EQ(kernel.self_ns, kernel.sum_ns) << "a worker runs one task at a time";
    }
    EXPECT_EQ(run_counts, (std::map<std::string, int64_t>{{"wide", 5}, {"last", 1}}));
    EXPECT_EQ(times.unfinished_count, 0);
    EXPECT_EQ(times.lanes.size(), 2u) << "both workers, whoever ran the tasks";
    EXPECT_EQ(times.busy_ns + times.idle_ns, 2 * times.window_ns());
    EXPECT_GT(times.busy_ns, 0);
    EXPECT_LE(times.average_busy_lanes(), 2.0);
  }
  // The steps are all there is.
  const KernelTimes whole = must(kernel_times(trace, {.window = time_range(trace)}));
  int64_t run_count = 0;
  for (const LaneTime& lane : whole.lanes) run_count += lane.run_count;
  EXPECT_EQ(run_count, 3 * 6);
}

}  // namespace
}  // namespace gapless
