// SPDX-License-Identifier: Apache-2.0
//
// Overlaps whose shares can be seen, and sums that hold for every execution.

#include "analysis/roofline.h"

#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "analysis/whatif_test_support.h"

namespace gapless {
namespace {

Roofline measure(const Trace& trace, TimeRange window, const RoofLimits& limits = {}) {
  const StepTasks tasks = make_step_tasks(trace, window);
  std::optional<Roofline> roofline = measure_roofline(tasks, trace, limits);
  EXPECT_TRUE(roofline.has_value());
  return roofline.value_or(Roofline{});
}

KernelRoof kernel_named(const Roofline& roofline, const Trace& trace, std::string_view name) {
  for (const KernelRoof& kernel : roofline.kernels) {
    if (kernel.kernel != kNoIndex && trace.names[kernel.kernel] == name) return kernel;
  }
  ADD_FAILURE() << "no kernel " << name;
  return {};
}

double wall_sum(const Roofline& roofline) {
  double sum_ns = 0.0;
  for (const KernelRoof& kernel : roofline.kernels) sum_ns += kernel.wall_ns;
  return sum_ns;
}

// "read" alone from 0 to 100, both from 100 to 200, "math" alone from 200 to 400.
Trace overlapping_trace() {
  Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 200, .kernel = "read"},
                            {.core = 1, .start_ns = 100, .end_ns = 400, .kernel = "math"}},
                           2);
  trace.tasks.bytes = {3000, 100};
  trace.tasks.flops = {10, 50'000};
  return trace;
}

TEST(Roofline, WhereTwoKernelsOverlapEachIsChargedHalf) {
  const Trace trace = overlapping_trace();
  const Roofline roofline = measure(trace, {0, 500});
  EXPECT_EQ(roofline.running_ns, 400);
  EXPECT_EQ(roofline.bytes, 3100);
  EXPECT_EQ(roofline.flops, 50'010);
  EXPECT_EQ(roofline.limit_ns, 0.0) << "no limit is known";
  ASSERT_EQ(roofline.kernels.size(), 2u);
  EXPECT_EQ(trace.names[roofline.kernels[0].kernel], "math") << "the largest first";

  const KernelRoof read = kernel_named(roofline, trace, "read");
  EXPECT_EQ(read.wall_ns, 150.0);
  EXPECT_EQ(read.run_ns, 200);
  EXPECT_EQ(read.mean_concurrency, 1.5);
  EXPECT_EQ(read.task_count, 1u);
  EXPECT_EQ(read.unknown_count, 0u);
  EXPECT_EQ(read.bytes_per_second(), 20e9);
  const KernelRoof math = kernel_named(roofline, trace, "math");
  EXPECT_EQ(math.wall_ns, 250.0);
  EXPECT_DOUBLE_EQ(math.mean_concurrency, 4.0 / 3.0);
  EXPECT_EQ(math.flops_per_second(), 200e9);
}

// Four cores stream 1,000 bytes each in 100 ns: together they move 40 bytes a nanosecond.
TEST(Roofline, TasksOfOneKernelMoveTheirBytesTogether) {
  std::vector<HandTask> list;
  for (uint32_t core = 0; core < 4; ++core) {
    list.push_back({.core = core, .start_ns = 50, .end_ns = 150});
  }
  Trace trace = hand_trace(list, 4);
  trace.tasks.bytes.assign(4, 1000);
  const Roofline roofline = measure(trace, {0, 200});
  ASSERT_EQ(roofline.kernels.size(), 1u);
  EXPECT_EQ(roofline.kernels[0].wall_ns, 100.0);
  EXPECT_EQ(roofline.kernels[0].run_ns, 400);
  EXPECT_EQ(roofline.kernels[0].mean_concurrency, 4.0);
  EXPECT_EQ(roofline.kernels[0].bytes_per_second(), 40e9);
  EXPECT_EQ(roofline.kernels[0].flops_per_second(), 0.0) << "nobody counted them";
}

TEST(Roofline, AMomentIsDividedByTheNumberOfRunningTasks) {
  Trace trace = hand_trace({{.core = 0, .start_ns = 0, .end_ns = 120, .kernel = "a"},
                            {.core = 1, .start_ns = 0, .end_ns = 120, .kernel = "a"},
                            {.core = 2, .start_ns = 0, .end_ns = 120, .kernel = "b"},
                            {.core = 2, .start_ns = 200, .end_ns = 210, .kernel = "b"}},
                           3);
  trace.tasks.flops = {1, 1, 1, 1};
  const Roofline roofline = measure(trace, {0, 300});
  EXPECT_NEAR(kernel_named(roofline, trace, "a").wall_ns, 80.0, 1e-9);
  EXPECT_NEAR(kernel_named(roofline, trace, "b").wall_ns, 50.0, 1e-9);
  EXPECT_EQ(roofline.running_ns, 130) << "not the time in which nothing ran";
}

TEST(Roofline, LimitsSayWhatAKernelIsBoundBy) {
  const Trace trace = overlapping_trace();
  const RoofLimits limits = {.bytes_per_second = 40e9, .flops_per_second = 250e9};
  const Roofline roofline = measure(trace, {0, 500}, limits);
  const KernelRoof read = kernel_named(roofline, trace, "read");
  EXPECT_DOUBLE_EQ(read.limit_ns(limits), 75.0) << "3,000 bytes at 40 a nanosecond";
  EXPECT_DOUBLE_EQ(read.share_of_limit(limits), 0.5);
  EXPECT_TRUE(read.is_memory_bound(limits));
  const KernelRoof math = kernel_named(roofline, trace, "math");
  EXPECT_DOUBLE_EQ(math.limit_ns(limits), 200.0) << "50,000 operations at 250 a nanosecond";
  EXPECT_DOUBLE_EQ(math.share_of_limit(limits), 0.8);
  EXPECT_FALSE(math.is_memory_bound(limits));
  EXPECT_DOUBLE_EQ(roofline.limit_ns, 275.0);
}

TEST(Roofline, LimitsThatAreNotKnownDoNotBind) {
  const Trace trace = overlapping_trace();
  const Roofline roofline = measure(trace, {0, 500});
  const KernelRoof read = kernel_named(roofline, trace, "read");
  const RoofLimits none;
  EXPECT_EQ(read.limit_ns(none), 0.0);
  EXPECT_EQ(read.share_of_limit(none), 0.0);
  EXPECT_FALSE(read.is_memory_bound(none));
  const RoofLimits memory = {.bytes_per_second = 1e9};
  EXPECT_TRUE(kernel_named(roofline, trace, "math").is_memory_bound(memory));
  const RoofLimits compute = {.flops_per_second = 1e9};
  EXPECT_FALSE(read.is_memory_bound(compute));
  EXPECT_DOUBLE_EQ(read.limit_ns(compute), 10.0);
}

TEST(Roofline, AKernelMayHaveALimitOfItsOwn) {
  const Trace trace = overlapping_trace();
  const RoofLimits limits = {.flops_per_second = 250e9,
                             .kernels = {{trace.names.find("math"), 500e9}}};
  const Roofline roofline = measure(trace, {0, 500}, limits);
  EXPECT_DOUBLE_EQ(kernel_named(roofline, trace, "math").limit_ns(limits), 100.0);
  EXPECT_DOUBLE_EQ(kernel_named(roofline, trace, "read").limit_ns(limits), 0.04);
  EXPECT_DOUBLE_EQ(roofline.limit_ns, 100.04);
}

TEST(Roofline, ThereIsNoneWithoutCosts) {
  Trace trace = overlapping_trace();
  trace.tasks.bytes.clear();
  trace.tasks.flops.clear();
  EXPECT_FALSE(measure_roofline(make_step_tasks(trace, {0, 500}), trace, {}).has_value());
  trace.tasks.bytes = {3000, kAbsent};
  const StepTasks math_only = make_step_tasks(trace, {200, 500});
  ASSERT_EQ(math_only.task_count(), 1u);
  EXPECT_FALSE(measure_roofline(math_only, trace, {}).has_value())
      << "the task with bytes is outside";
}

TEST(Roofline, TasksWithoutCostsAreCounted) {
  Trace trace = overlapping_trace();
  trace.tasks.bytes = {3000, kAbsent};
  trace.tasks.flops = {kAbsent, kAbsent};
  const Roofline roofline = measure(trace, {0, 500});
  EXPECT_EQ(kernel_named(roofline, trace, "read").unknown_count, 0u);
  const KernelRoof math = kernel_named(roofline, trace, "math");
  EXPECT_EQ(math.unknown_count, 1u);
  EXPECT_EQ(math.bytes, 0);
  EXPECT_EQ(math.wall_ns, 250.0) << "it took its share of the time all the same";
}

TEST(Roofline, OfTasksThatAreCutThePartInsideCounts) {
  const Trace trace = overlapping_trace();
  const Roofline roofline = measure(trace, {50, 300});
  const KernelRoof read = kernel_named(roofline, trace, "read");
  EXPECT_EQ(read.bytes, 2250) << "150 of 200 ns";
  EXPECT_EQ(read.wall_ns, 100.0);
  const KernelRoof math = kernel_named(roofline, trace, "math");
  EXPECT_EQ(math.flops, 33'333) << "200 of 300 ns";
}

TEST(Roofline, TasksOfNoLengthOrNoKernelDoNoHarm) {
  Trace trace = hand_trace({{.core = 0, .start_ns = 10, .end_ns = 10, .kernel = "none"},
                            {.core = 0, .start_ns = 10, .end_ns = 20},
                            {.core = 1, .start_ns = 15, .end_ns = 15, .kernel = "none"}},
                           2);
  trace.tasks.kernel[1] = kNoIndex;
  trace.tasks.bytes = {5, 6, 7};
  const Roofline roofline = measure(trace, {0, 100}, {.bytes_per_second = 1e9});
  ASSERT_EQ(roofline.kernels.size(), 2u);
  EXPECT_EQ(roofline.kernels[0].kernel, kNoIndex);
  EXPECT_EQ(roofline.kernels[0].wall_ns, 10.0);
  const KernelRoof none = kernel_named(roofline, trace, "none");
  EXPECT_EQ(none.wall_ns, 0.0);
  EXPECT_EQ(none.bytes, 12);
  EXPECT_EQ(none.bytes_per_second(), 0.0);
  EXPECT_EQ(none.mean_concurrency, 0.0);
  EXPECT_EQ(none.share_of_limit({.bytes_per_second = 1e9}), 0.0);
}

TEST(Roofline, SumsStopAtTheLargestNumber) {
  std::vector<HandTask> list;
  for (int64_t i = 0; i < 20; ++i) list.push_back({.core = 0, .start_ns = i, .end_ns = i + 1});
  Trace trace = hand_trace(list, 1);
  trace.tasks.bytes.assign(20, static_cast<int64_t>(kMaxTaskCost));
  EXPECT_EQ(measure(trace, {0, 20}).bytes, std::numeric_limits<int64_t>::max());
}

// Costs that differ from row to row, and some rows without.
void add_costs(Trace& trace) {
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    const int64_t cost = static_cast<int64_t>(row * 2654435761u % 100'000);
    trace.tasks.bytes.push_back(row % 7 == 0 ? kAbsent : cost);
    trace.tasks.flops.push_back(row % 7 == 0 || row % 5 == 0 ? kAbsent : 3 * cost);
  }
}

MadeOptions random_options(uint64_t seed) {
  MadeOptions options;
  options.seed = seed;
  options.core_counts = {static_cast<uint32_t>(1 + seed % 9), 0, 0};
  options.kernels = {{.name = "a", .mean_ns = 900, .sigma = 1.0},
                     {.name = "b", .mean_ns = 3000, .sigma = 0.3},
                     {.name = "c", .mean_ns = 100, .sigma = 2.0}};
  options.level_count = 30;
  options.max_width = 12;
  options.edges_per_task = static_cast<uint32_t>(seed % 4);
  options.overheads = {.dispatch = {0, 50}, .propagation = {0, 200}};
  return options;
}

TEST(Roofline, SharesAddUpToTheTimeInWhichAnythingRan) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    MadeExecution made = make_execution(random_options(seed));
    add_costs(made.trace);
    const StepTasks tasks = make_step_tasks(made.trace, made.window);
    const Roofline roofline = measure(made.trace, made.window);

    // Every moment on its own: which tasks run in it.
    std::vector<uint16_t> running(static_cast<size_t>(tasks.window_ns()));
    int64_t bytes = 0;
    int64_t run_ns = 0;
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      const int64_t begin = tasks.start_ns(task) - made.window.begin_ns;
      const int64_t end = tasks.end_ns(task) - made.window.begin_ns;
      for (int64_t t = begin; t < end; ++t) ++running[static_cast<size_t>(t)];
      const int64_t cost = made.trace.tasks.bytes[tasks.row(task)];
      if (cost != kAbsent) bytes += cost;
      run_ns += end - begin;
    }
    int64_t running_ns = 0;
    for (const uint16_t count : running) running_ns += count > 0 ? 1 : 0;
    EXPECT_EQ(roofline.running_ns, running_ns);
    EXPECT_NEAR(wall_sum(roofline), static_cast<double>(running_ns), 1e-6);
    EXPECT_EQ(roofline.bytes, bytes);
    EXPECT_EQ(
        std::accumulate(roofline.kernels.begin(), roofline.kernels.end(), int64_t{0},
                        [](int64_t sum, const KernelRoof& kernel) { return sum + kernel.run_ns; }),
        run_ns);

    // One kernel's share and concurrency, moment by moment.
    const KernelRoof first = kernel_named(roofline, made.trace, "a");
    double wall_ns = 0.0;
    double together_ns = 0.0;
    uint32_t unknown_count = 0;
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      if (tasks.kernel(task) != first.kernel) continue;
      for (int64_t t = tasks.start_ns(task); t < tasks.end_ns(task); ++t) {
        const double count = running[static_cast<size_t>(t - made.window.begin_ns)];
        wall_ns += 1.0 / count;
        together_ns += count;
      }
      if (made.trace.tasks.bytes[tasks.row(task)] == kAbsent) ++unknown_count;
    }
    EXPECT_NEAR(first.wall_ns, wall_ns, 1e-6 * wall_ns);
    EXPECT_NEAR(first.mean_concurrency, together_ns / static_cast<double>(first.run_ns), 1e-9);
    EXPECT_EQ(first.unknown_count, unknown_count);
  }
}

TEST(Roofline, OnOneCoreAShareIsTheRunTime) {
  MadeOptions options = random_options(5);
  options.core_counts = {1, 0, 0};
  MadeExecution made = make_execution(options);
  add_costs(made.trace);
  for (const KernelRoof& kernel : measure(made.trace, made.window).kernels) {
    EXPECT_NEAR(kernel.wall_ns, static_cast<double>(kernel.run_ns), 1e-6);
    EXPECT_DOUBLE_EQ(kernel.mean_concurrency, 1.0);
  }
}

TEST(RecordedLimits, AreProperties) {
  Trace trace = overlapping_trace();
  trace.properties = {
      {"limit.bytes_per_second", "2.5e11"},    {"limit.flops_per_second", "1000000000000"},
      {"limit.flops_per_second.math", "4e12"}, {"limit.flops_per_second.not here", "5e12"},
      {"limit.flops_per_secondary", "6"},      {"limits", "7"}};
  const RoofLimits limits = recorded_limits(trace);
  EXPECT_EQ(limits.bytes_per_second, 250e9);
  EXPECT_EQ(limits.flops_per_second, 1e12);
  ASSERT_EQ(limits.kernels.size(), 1u);
  EXPECT_EQ(limits.flops_per_second_of(trace.names.find("math")), 4e12);
  EXPECT_EQ(limits.flops_per_second_of(trace.names.find("read")), 1e12);
  EXPECT_EQ(limits.flops_per_second_of(kNoIndex), 1e12);
}

TEST(RecordedLimits, WhatIsGivenHoldsInstead) {
  Trace trace = overlapping_trace();
  trace.properties = {{"limit.bytes_per_second", "1e9"},
                      {"limit.flops_per_second", "2e9"},
                      {"limit.flops_per_second.math", "3e9"},
                      {"limit.flops_per_second.read", "4e9"}};
  const uint32_t math = trace.names.find("math");
  const uint32_t read = trace.names.find("read");
  const RoofLimits bytes = recorded_limits(trace, {.bytes_per_second = 5e9});
  EXPECT_EQ(bytes.bytes_per_second, 5e9);
  EXPECT_EQ(bytes.flops_per_second, 2e9);
  EXPECT_EQ(bytes.flops_per_second_of(math), 3e9);
  const RoofLimits flops = recorded_limits(trace, {.flops_per_second = 6e9});
  EXPECT_EQ(flops.bytes_per_second, 1e9);
  EXPECT_EQ(flops.flops_per_second_of(math), 6e9);
  const RoofLimits kernel = recorded_limits(trace, {.kernels = {{math, 7e9}}});
  EXPECT_EQ(kernel.flops_per_second_of(math), 7e9);
  EXPECT_EQ(kernel.flops_per_second_of(read), 4e9);
}

TEST(RecordedLimits, WhatIsNoNumberAboveZeroIsPassedOver) {
  for (const char* text : {"", "fast", "0", "-1", "nan", "inf", "1e999", "5 GB/s", " 5"}) {
    Trace trace = overlapping_trace();
    trace.properties = {{"limit.bytes_per_second", text},
                        {"limit.flops_per_second", text},
                        {"limit.flops_per_second.math", text}};
    const RoofLimits limits = recorded_limits(trace);
    EXPECT_EQ(limits.bytes_per_second, 0.0) << text;
    EXPECT_EQ(limits.flops_per_second, 0.0) << text;
    EXPECT_TRUE(limits.kernels.empty()) << text;
  }
  EXPECT_EQ(recorded_limits(Trace()).bytes_per_second, 0.0);
}

}  // namespace
}  // namespace gapless
