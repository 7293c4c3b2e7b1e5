// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a replay says an overhead costs is what it does cost.
// Method: made executions can run again without one overhead, by the scheduler that made them. The
// replay knows only the trace. Gains must agree within half a point of the makespan.
//
// Where they do not, the truth itself must be a matter of chance: it moves by more than half a
// point when all run times are changed by up to 0.01 %, and what the replay says lies within that.
// Such is the nature of list schedules, and no replay can know which way chance went.

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/made_execution.h"
#include "analysis/whatif.h"
#include "analysis/whatif_test_support.h"
#include "base/test_effort.h"

namespace gapless {
namespace {

constexpr double kPoints = 0.5;

struct Share {
  const char* name;
  WhatIf change;
  int64_t MadeTruth::*true_ns;
};

const std::array<Share, 5>& shares() {
  static const std::array<Share, 5> list = {
      Share{"completion", {.zero_completion = true}, &MadeTruth::zero_completion_ns},
      Share{"scheduler", {.zero_scheduler = true}, &MadeTruth::zero_dispatch_ns},
      Share{"hand-off", {.zero_handoff = true}, &MadeTruth::zero_handoff_ns},
      Share{"submit", {.zero_submit = true}, &MadeTruth::zero_submit_ns},
      Share{"all",
            {.zero_completion = true,
             .zero_scheduler = true,
             .zero_handoff = true,
             .zero_submit = true},
            &MadeTruth::zero_all_ns}};
  return list;
}

double gain_points(int64_t makespan_ns, int64_t without_ns) {
  return 100.0 * (1.0 - static_cast<double>(without_ns) / static_cast<double>(makespan_ns));
}

double true_points(const MadeTruth& truth, const Share& share) {
  return gain_points(truth.makespan_ns, truth.*share.true_ns);
}

bool is_chance(const MadeOptions& options, const Share& share, double points) {
  MadeOptions jittered = options;
  jittered.jitter = 1e-4;
  double low = true_points(make_execution(options).truth, share);
  double high = low;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    jittered.jitter_seed = seed;
    const double other = true_points(make_execution(jittered).truth, share);
    low = std::min(low, other);
    high = std::max(high, other);
  }
  return high - low > kPoints && points > low - kPoints && points < high + kPoints;
}

// How many shares were a matter of chance.
int expect_truth(const MadeOptions& options) {
  const MadeExecution made = make_execution(options);
  const StepTasks tasks = make_step_tasks(made.trace, made.window);
  const int64_t replayed_ns = expect_value(replay_tasks(tasks, {})).makespan_ns;
  EXPECT_NEAR(static_cast<double>(replayed_ns) / static_cast<double>(made.truth.makespan_ns), 1.0,
              0.005);
  int chance_count = 0;
  for (const Share& share : shares()) {
    const int64_t without_ns = expect_value(replay_tasks(tasks, share.change)).makespan_ns;
    const double points = gain_points(replayed_ns, without_ns);
    const double truth = true_points(made.truth, share);
    if (std::abs(points - truth) <= kPoints) continue;
    ++chance_count;
    EXPECT_TRUE(is_chance(options, share, points))
        << share.name << ": " << points << " instead of " << truth << " points";
  }
  return chance_count;
}

class MadeMachines : public testing::TestWithParam<size_t> {};

TEST_P(MadeMachines, CostWhatTheReplaySays) {
  for (uint64_t seed = 1; seed <= test_effort(12); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EXPECT_EQ(expect_truth(made_machines(seed)[GetParam()]), 0) << "none of these is chance";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MadeMachines, testing::Range<size_t>(0, kMadeMachineCount));

// Uniform in 0 .. top, both ends by chance.
MadeDelay draw_delay(std::mt19937_64& random, int64_t top) {
  const int64_t a = static_cast<int64_t>(random() % static_cast<uint64_t>(top));
  const int64_t b = static_cast<int64_t>(random() % static_cast<uint64_t>(top));
  return {std::min(a, b), std::max(a, b)};
}

void draw_cores_and_kernels(std::mt19937_64& random, MadeOptions& options) {
  const uint64_t kinds = random() % 3;  // any; cube and vector; all three
  const auto draw_count = [&random] {
    return static_cast<uint32_t>(1 + random() % (uint64_t{2} << random() % 5));
  };
  options.core_counts = {kinds != 1 ? draw_count() : 0, kinds != 0 ? draw_count() : 0,
                         kinds != 0 ? draw_count() : 0};
  const double sigma = std::array<double, 4>{0.0, 0.1, 0.5, 1.0}[random() % 4];
  const size_t kernel_count = 1 + random() % 5;
  options.kernels.clear();
  for (size_t i = 0; i < kernel_count; ++i) {
    const size_t core_class = kinds == 0 ? 0 : kinds == 1 ? 1 + i % 2 : i % 3;
    options.kernels.push_back({"kernel " + std::to_string(i), static_cast<CoreClass>(core_class),
                               static_cast<int64_t>(3'000 + random() % 60'000), sigma});
  }
}

// From one core to a hundred, from chains to waves, from 0.1 to 30 us of overhead a task.
MadeOptions draw_machine(uint64_t seed) {
  std::mt19937_64 random(seed);
  MadeOptions options;
  options.seed = seed;
  draw_cores_and_kernels(random, options);
  options.scheduler_count = static_cast<uint32_t>(random() % 5);
  options.has_fixed_cores = random() % 5 == 0;
  const uint64_t width = uint64_t{1} << random() % 8;
  options.min_width = static_cast<uint32_t>(1 + random() % width);
  options.max_width = options.min_width + static_cast<uint32_t>(random() % width);
  options.level_count = std::clamp(4'000U / options.max_width, 60U, 300U);
  options.edges_per_task = static_cast<uint32_t>(random() % 6);
  options.long_edge_every = random() % 2 == 0 ? 0 : static_cast<uint32_t>(random() % 12);
  const int64_t top_ns = int64_t{256} << random() % 7;
  options.overheads.completion = draw_delay(random, top_ns);
  options.overheads.dispatch = draw_delay(random, top_ns / 4);
  options.overheads.propagation = draw_delay(random, top_ns);
  options.overheads.setup = draw_delay(random, top_ns);
  if (random() % 3 == 0) {
    options.overheads.submit_interval_ns = static_cast<int64_t>(random() % 3'000);
  }
  return options;
}

class DrawnMachines : public testing::TestWithParam<uint64_t> {};

TEST_P(DrawnMachines, CostWhatTheReplaySays) {
  constexpr uint32_t kCount = 40;
  const uint32_t count = test_effort(kCount);
  int chance_count = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t seed = GetParam() * kCount + i + 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    chance_count += expect_truth(draw_machine(seed));
  }
  EXPECT_LE(chance_count, static_cast<int>(count / 5)) << "of " << 5 * count << " shares";
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnMachines, testing::Range<uint64_t>(0, 10));

TEST(DecodeSteps, CostWhatTheReplaySays) {
  if (kSanitized) GTEST_SKIP() << "38 k tasks take too long under a sanitizer";
  EXPECT_EQ(expect_truth(narrow_decode_options()), 0);
  EXPECT_EQ(expect_truth(wide_decode_options()), 0);
}

}  // namespace
}  // namespace gapless
