// SPDX-License-Identifier: Apache-2.0
//
// Goal: a trace that went through a swimlane file is the same trace, for what such a file carries.
// Method: executions with known causes are written in each generation, read, and reported on.

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "formats/swimlane_test_support.h"
#include "report/step_report.h"

namespace gapless {
namespace {

constexpr std::array<SwimlaneGeneration, 3> kGenerations = {
    SwimlaneGeneration::kPerf, SwimlaneGeneration::kL2, SwimlaneGeneration::kChip};

// Cube and vector levels in turn.
MadeOptions made_options(uint64_t seed) {
  MadeOptions options;
  options.seed = seed;
  options.core_counts = {0, 3, 5};
  options.scheduler_count = 2;
  options.kernels = {{.name = "matmul", .core_class = CoreClass::kCube, .sigma = 0.3},
                     {.name = "softmax", .core_class = CoreClass::kVector, .mean_ns = 4'000},
                     {.name = "a \"quoted\" name", .core_class = CoreClass::kVector}};
  options.level_count = 24;
  options.min_width = 1;
  options.max_width = 9;
  options.long_edge_every = 5;
  options.overheads = {.completion = {40, 900},
                       .dispatch = {100, 700},
                       .propagation = {200, 800},
                       .setup = {100, 600},
                       .submit_interval_ns = 700};
  return options;
}

// All times are whole cycles of 20 ns.
MadeOptions cycle_options() {
  MadeOptions options = made_options(1);
  for (MadeKernel& kernel : options.kernels) kernel.sigma = 0.0;
  options.overheads = {.completion = {400, 400},
                       .dispatch = {300, 300},
                       .propagation = {620, 620},
                       .setup = {480, 480},
                       .submit_interval_ns = 700};
  return options;
}

// The levels are joined: each is written as one task of several blocks.
MadeOptions block_options(uint64_t seed) {
  MadeOptions options = made_options(seed);
  options.edges_per_task = 0;
  options.long_edge_every = 0;
  options.overheads.submit_interval_ns = 0;
  return options;
}

Trace round_trip(const Trace& trace, const SwimlaneTextOptions& options) {
  Result<Trace> read = read_swimlane_text(swimlane_text(trace, options));
  EXPECT_TRUE(read.has_value()) << read.error().message;
  return read ? std::move(*read) : Trace{};
}

std::vector<std::string> warnings_of(const Trace& trace) {
  std::vector<std::string> texts;
  for (const Finding& finding : trace.findings) {
    if (finding.severity != Severity::kInfo) texts.push_back(finding.text);
  }
  return texts;
}

// The trace without what the format has no place for: ready, the step, and in the oldest
// generation receive.
Trace carried(Trace trace, SwimlaneGeneration generation) {
  const auto clear = [&trace](TaskTime time) {
    std::vector<int64_t>& times = trace.tasks.time_ns[static_cast<size_t>(time)];
    std::fill(times.begin(), times.end(), kAbsent);
  };
  clear(TaskTime::kReady);
  if (generation == SwimlaneGeneration::kPerf) clear(TaskTime::kReceive);
  trace.spans = {};
  return trace;
}

int64_t first_start_ns(const Trace& trace) {
  int64_t first_ns = kMaxTimeNs;
  for (const int64_t start_ns : trace.tasks.at(TaskTime::kStart)) {
    if (start_ns != kAbsent) first_ns = std::min(first_ns, start_ns);
  }
  return first_ns;
}

// Cores in the order of their lanes, which is how the file numbers them.
std::vector<int> core_numbers(const Trace& trace) {
  std::vector<int> numbers;
  int next = 0;
  for (const Lane& lane : trace.lanes) {
    const bool is_core = lane.kind == LaneKind::kCubeCore || lane.kind == LaneKind::kVectorCore;
    numbers.push_back(is_core ? next++ : -1);
  }
  return numbers;
}

// Rows told apart by core and start, and a join by the first of its producers.
std::vector<std::string> row_keys(const Trace& trace) {
  const std::vector<int> cores = core_numbers(trace);
  const int64_t first_ns = first_start_ns(trace);
  std::vector<std::string> keys(trace.tasks.size());
  for (size_t row = 0; row < keys.size(); ++row) {
    const int64_t start_ns = trace.tasks.at(TaskTime::kStart)[row];
    if (start_ns == kAbsent) continue;
    keys[row] = fmt::format("{} {:012}", cores[trace.tasks.lane[row]], start_ns - first_ns);
  }
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    std::string& key = keys[trace.edges.consumer[edge]];
    const bool is_join = trace.tasks.at(TaskTime::kStart)[trace.edges.consumer[edge]] == kAbsent;
    const std::string of_producer = "join " + keys[trace.edges.producer[edge]];
    if (is_join && (key.empty() || of_producer < key)) key = of_producer;
  }
  return keys;
}

using TaskFacts = std::tuple<std::string, std::string, std::array<int64_t, kTaskTimeCount>>;

std::multiset<TaskFacts> task_facts(const Trace& trace) {
  const std::vector<std::string> keys = row_keys(trace);
  const int64_t first_ns = first_start_ns(trace);
  std::multiset<TaskFacts> facts;
  for (size_t row = 0; row < keys.size(); ++row) {
    std::array<int64_t, kTaskTimeCount> times;
    for (size_t time = 0; time < times.size(); ++time) {
      const int64_t time_ns = trace.tasks.time_ns[time][row];
      const bool is_join = trace.tasks.at(TaskTime::kStart)[row] == kAbsent;
      times[time] = time_ns == kAbsent || is_join ? kAbsent : time_ns - first_ns;
    }
    facts.emplace(keys[row], trace.names[trace.tasks.kernel[row]], times);
  }
  return facts;
}

std::multiset<std::tuple<std::string, std::string, uint8_t>> edge_facts(const Trace& trace) {
  const std::vector<std::string> keys = row_keys(trace);
  std::multiset<std::tuple<std::string, std::string, uint8_t>> facts;
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    facts.emplace(keys[trace.edges.producer[edge]], keys[trace.edges.consumer[edge]],
                  trace.edges.kind[edge]);
  }
  return facts;
}

void expect_same_report(const Trace& read, const Trace& original) {
  const Result<StepReport> of_read = make_step_report(read, "read");
  const Result<StepReport> of_original = make_step_report(original, "original");
  ASSERT_TRUE(of_read.has_value()) << of_read.error().message;
  ASSERT_TRUE(of_original.has_value()) << of_original.error().message;
  EXPECT_EQ(of_read->bubbles.cause_ns, of_original->bubbles.cause_ns);
  EXPECT_EQ(of_read->bubbles.core_ns, of_original->bubbles.core_ns);
  EXPECT_EQ(of_read->bubbles.busy_ns, of_original->bubbles.busy_ns);
  EXPECT_EQ(of_read->bubbles.missing, of_original->bubbles.missing);
  EXPECT_EQ(of_read->tasks->edge_count(), of_original->tasks->edge_count());
  EXPECT_EQ(of_read->kernel_names, of_original->kernel_names);
  EXPECT_GT(of_read->bubbles.busy_ns, 0);
}

TEST(SwimlaneRoundTrip, KeepsTasksTimesEdgesKernelsAndTheReport) {
  for (const SwimlaneGeneration generation : kGenerations) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const Trace original = carried(make_execution(made_options(seed)).trace, generation);
      const Trace read = round_trip(
          original, {.generation = generation, .ticks_per_second = 1'000'000'000, .level = 4});
      EXPECT_TRUE(warnings_of(read).empty()) << warnings_of(read).front();
      EXPECT_EQ(task_facts(read), task_facts(original));
      EXPECT_EQ(edge_facts(read), edge_facts(original));
      expect_same_report(read, original);
    }
  }
}

TEST(SwimlaneRoundTrip, KeepsTheBlocksOfTasks) {
  for (const SwimlaneGeneration generation : kGenerations) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const Trace original = carried(make_execution(block_options(seed)).trace, generation);
      const Trace read = round_trip(
          original, {.generation = generation, .ticks_per_second = 1'000'000'000, .level = 4});
      EXPECT_TRUE(warnings_of(read).empty()) << warnings_of(read).front();
      EXPECT_EQ(read.edges.size(), original.edges.size());
      EXPECT_EQ(task_facts(read), task_facts(original));
      EXPECT_EQ(edge_facts(read), edge_facts(original));
      expect_same_report(read, original);
    }
  }
}

TEST(SwimlaneRoundTrip, LosesNothingToCyclesOfTwentyNanoseconds) {
  const Trace original = carried(make_execution(cycle_options()).trace, SwimlaneGeneration::kChip);
  const Trace read = round_trip(original, {.ticks_per_second = 50'000'000});
  EXPECT_EQ(task_facts(read), task_facts(original));
  expect_same_report(read, original);
}

TEST(SwimlaneRoundTrip, IsOffByLessThanACycle) {
  const Trace original = make_execution(made_options(3)).trace;
  const Trace exact = round_trip(original, {.ticks_per_second = 1'000'000'000});
  const Trace coarse = round_trip(original, {.ticks_per_second = 50'000'000});
  ASSERT_EQ(coarse.tasks.size(), exact.tasks.size());
  for (size_t time = 0; time < kTaskTimeCount; ++time) {
    for (size_t row = 0; row < exact.tasks.size(); ++row) {
      const int64_t exact_ns = exact.tasks.time_ns[time][row];
      const int64_t coarse_ns = coarse.tasks.time_ns[time][row];
      EXPECT_EQ(coarse_ns == kAbsent, exact_ns == kAbsent);
      if (exact_ns != kAbsent) {
        EXPECT_EQ(coarse_ns, exact_ns / 20 * 20);
      }
    }
  }
}

TEST(SwimlaneRoundTrip, HasAsManyTimesAsTheLevelRecords) {
  const Trace original = make_execution(made_options(2)).trace;
  for (int level = 1; level <= 4; ++level) {
    const Trace read = round_trip(original, {.level = level});
    EXPECT_TRUE(warnings_of(read).empty()) << level << ": " << warnings_of(read).front();
    const auto has = [&read](TaskTime time) { return read.tasks.at(time)[0] != kAbsent; };
    EXPECT_TRUE(has(TaskTime::kStart));
    EXPECT_TRUE(has(TaskTime::kReceive));
    EXPECT_EQ(has(TaskTime::kDispatch), level >= 2);
    EXPECT_EQ(has(TaskTime::kSubmit), level >= 4);
    EXPECT_EQ(read.spans.size() > 0, level >= 3);
    const Result<StepReport> report = make_step_report(read, "read");
    ASSERT_TRUE(report.has_value()) << report.error().message;
  }
}

}  // namespace
}  // namespace gapless
