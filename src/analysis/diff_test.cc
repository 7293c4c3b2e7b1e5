// SPDX-License-Identifier: Apache-2.0

#include "analysis/diff.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/diff_test_support.h"
#include "analysis/made_execution.h"
#include "analysis/whatif_test_support.h"
#include "base/mix_bits.h"

namespace gapless {
namespace {

const KernelDiff& kernel_of(const StepDiff& diff, const std::string& name) {
  for (const KernelDiff& kernel : diff.kernels) {
    if (kernel.name == name) return kernel;
  }
  ADD_FAILURE() << "no kernel " << name;
  return diff.kernels.front();
}

std::string error_of(const HeldSide& first, const HeldSide& second, const DiffOptions& options) {
  const Result<StepDiff> diff = diff_steps(first.side(), second.side(), options);
  return diff ? "" : diff.error().message;
}

template <typename Array>
int64_t sum_of(const Array& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// gate 0 .. 40 on core 0, up 0 .. 40 on core 1, down 50 .. 60 on core 0: 60 ns on two cores.
HeldSide two_matmuls() {
  return hold_side(
      hand_trace({{.core = 0, .start_ns = 0, .end_ns = 40, .kernel = "gate"},
                  {.core = 1, .start_ns = 0, .end_ns = 40, .kernel = "up"},
                  {.core = 0, .start_ns = 50, .end_ns = 60, .producers = {0, 1}, .kernel = "down"}},
                 2),
      {0, 60});
}

// gate_up 0 .. 30 on both cores, down 35 .. 45 on core 0 and 35 .. 40 on core 1: 45 ns.
HeldSide one_matmul() {
  return hold_side(
      hand_trace({{.core = 0, .start_ns = 0, .end_ns = 30, .kernel = "gate_up"},
                  {.core = 1, .start_ns = 0, .end_ns = 30, .kernel = "gate_up"},
                  {.core = 0, .start_ns = 35, .end_ns = 45, .producers = {0, 1}, .kernel = "down"},
                  {.core = 1, .start_ns = 35, .end_ns = 40, .producers = {0, 1}, .kernel = "down"}},
                 2),
      {0, 45});
}

TEST(DiffSteps, JoinsWhatTheMapSaysBecameOne) {
  const DiffOptions options = {.map = {{"gate", "gate_up"}, {"up", "gate_up"}}};
  const StepDiff diff = diff_of(two_matmuls(), one_matmul(), options);
  EXPECT_EQ(diff.difference_ns(), -15);
  ASSERT_EQ(diff.kernels.size(), 2U);
  const KernelDiff& joined = diff.kernels.front();
  EXPECT_EQ(joined.name, "gate_up");
  EXPECT_EQ(joined.second_name, "");
  EXPECT_EQ(joined.first_names, (std::vector<std::string>{"gate", "up"}));
  EXPECT_EQ(joined.match, KernelMatch::kMap);
  EXPECT_EQ(joined.count.first, 2);
  EXPECT_EQ(joined.run_ns.first, 80);
  EXPECT_EQ(joined.run_ns.second, 60);
  EXPECT_EQ(joined.wall_effect_ns(diff.core_count), -10.0);
  EXPECT_EQ(joined.count_effect_ns(), 0.0);
  EXPECT_EQ(joined.mean_effect_ns(), -20.0);
  EXPECT_EQ(joined.path_ns.first, 40);
  EXPECT_EQ(joined.path_ns.second, 30);
}

TEST(DiffSteps, SplitsCountFromMean) {
  const StepDiff diff = diff_of(two_matmuls(), one_matmul());
  const KernelDiff& down = kernel_of(diff, "down");
  EXPECT_EQ(down.match, KernelMatch::kName);
  EXPECT_EQ(down.mean_ns().first, 10.0);
  EXPECT_EQ(down.mean_ns().second, 7.5);
  EXPECT_EQ(down.count_effect_ns(), 10.0) << "one more at the first's 10";
  EXPECT_EQ(down.mean_effect_ns(), -5.0) << "two that are 2.5 shorter";
  EXPECT_EQ(down.wall_effect_ns(diff.core_count), 2.5);
}

TEST(DiffSteps, KernelsWithoutAMatchStandAlone) {
  const StepDiff diff = diff_of(two_matmuls(), one_matmul());
  ASSERT_EQ(diff.kernels.size(), 4U);
  EXPECT_EQ(diff.kernels[0].name, "gate_up") << "the largest effect first, 30 a core";
  EXPECT_EQ(diff.kernels[0].match, KernelMatch::kOnlySecond);
  EXPECT_EQ(diff.kernels[0].count_effect_ns(), 60.0) << "all of it is count";
  EXPECT_EQ(diff.kernels[1].name, "gate") << "20 a core, before up by name";
  EXPECT_EQ(diff.kernels[2].name, "up");
  EXPECT_EQ(diff.kernels[2].match, KernelMatch::kOnlyFirst);
  EXPECT_EQ(diff.kernels[2].count_effect_ns(), -40.0);
  EXPECT_EQ(diff.kernels[2].mean_effect_ns(), 0.0);
  EXPECT_EQ(diff.kernels[3].name, "down");
}

TEST(DiffSteps, OtherNamesOfTheSameKernelAreKept) {
  const HeldSide first =
      hold_side(hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .kernel = "aic_fa_incore_0"},
                            {.core = 0, .start_ns = 10, .end_ns = 20, .kernel = "aic_fa_incore_1"},
                            {.core = 0, .start_ns = 20, .end_ns = 30, .kernel = "silu"}},
                           1),
                {0, 30});
  const HeldSide second =
      hold_side(hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .kernel = "fa_kernel"},
                            {.core = 0, .start_ns = 10, .end_ns = 20, .kernel = "ns::fa"},
                            {.core = 0, .start_ns = 20, .end_ns = 25, .kernel = "silu_kernel"}},
                           1),
                {0, 25});
  const StepDiff diff = diff_of(first, second);
  const KernelDiff& silu = kernel_of(diff, "silu");
  EXPECT_EQ(silu.second_name, "silu_kernel");
  EXPECT_EQ(silu.match, KernelMatch::kNormalised);
  const KernelDiff& fa = kernel_of(diff, "fa");
  EXPECT_EQ(fa.second_name, "fa_kernel+ns::fa");
  EXPECT_EQ(fa.count.first, 2);
  EXPECT_EQ(fa.run_ns.second, 20);
}

TEST(DiffSteps, ATraceAgainstItselfHasNoDifference) {
  const HeldSide side = hold_side(make_execution({}));
  const StepDiff diff = diff_of(side, side, {.focuses = {{"all", {"kernel"}}}});
  EXPECT_EQ(diff.difference_ns(), 0);
  EXPECT_EQ(diff.ratio.value, 1.0);
  for (const KernelDiff& kernel : diff.kernels) {
    EXPECT_EQ(kernel.wall_effect_ns(diff.core_count), 0.0);
    EXPECT_EQ(kernel.count_effect_ns(), 0.0);
    EXPECT_EQ(kernel.mean_effect_ns(), 0.0);
  }
  EXPECT_EQ(diff.focuses.front().filled_ns, 0.0);
  EXPECT_EQ(diff.focuses.front().gone_ns, 0.0);
  EXPECT_TRUE(diff.warnings.empty());
}

MadeOptions random_options(uint64_t seed) {
  auto draw = [seed, place = uint64_t{0}](uint64_t limit) mutable {
    return mix_bits(seed * 1000 + place++) % limit;
  };
  MadeOptions options;
  options.seed = seed;
  const bool has_kinds = draw(2) == 0;
  const uint32_t cores = static_cast<uint32_t>(1 + draw(6));
  options.core_counts = {has_kinds ? 0 : cores, has_kinds ? cores : 0, has_kinds ? cores * 2 : 0};
  const CoreClass one = has_kinds ? CoreClass::kCube : CoreClass::kAny;
  const CoreClass two = has_kinds ? CoreClass::kVector : CoreClass::kAny;
  const std::vector<MadeKernel> pool = {
      {.name = "gate_up", .core_class = one, .mean_ns = 9'000, .sigma = 0.3},
      {.name = draw(2) == 0 ? "silu" : "silu_kernel", .core_class = two, .mean_ns = 3'000},
      {.name = "down", .core_class = one, .mean_ns = 7'000, .sigma = 0.5},
      {.name = draw(2) == 0 ? "norm" : "rmsnorm", .core_class = two, .mean_ns = 1'000},
  };
  options.kernels.assign(pool.begin(), pool.begin() + 2 + static_cast<int64_t>(draw(3)));
  options.level_count = static_cast<uint32_t>(4 + draw(20));
  options.max_width = static_cast<uint32_t>(1 + draw(12));
  options.edges_per_task = static_cast<uint32_t>(draw(4));
  options.scheduler_count = static_cast<uint32_t>(draw(3));
  options.overheads = {.completion = {0, static_cast<int64_t>(draw(900))},
                       .dispatch = {0, static_cast<int64_t>(draw(500))},
                       .propagation = {0, static_cast<int64_t>(draw(300))},
                       .setup = {0, static_cast<int64_t>(draw(300))}};
  return options;
}

// Goal: nothing is lost between two steps, whatever they are. Method: the accounts of pairs of
// random executions against the difference of the windows.
TEST(DiffSteps, BothAccountsAddUpToTheDifference) {
  int same_core_count = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const HeldSide first = hold_side(make_execution(random_options(2 * seed)));
    const HeldSide second = hold_side(make_execution(random_options(2 * seed + 1)));
    const StepDiff diff = diff_of(first, second);
    double core_time = 0.0;
    int64_t core_time_ns = sum_of(diff.cause_ns.second) - sum_of(diff.cause_ns.first);
    int64_t path_ns = 0;
    Both<int64_t> run_ns;
    for (const KernelDiff& kernel : diff.kernels) {
      core_time += kernel.wall_effect_ns(diff.core_count);
      const int64_t difference_ns = kernel.run_ns.second - kernel.run_ns.first;
      core_time_ns += difference_ns;
      EXPECT_NEAR(kernel.count_effect_ns() + kernel.mean_effect_ns(),
                  static_cast<double>(difference_ns), 1e-6);
      path_ns += kernel.path_ns.second - kernel.path_ns.first;
      run_ns.first += kernel.run_ns.first;
      run_ns.second += kernel.run_ns.second;
    }
    EXPECT_EQ(run_ns.first, diff.busy_ns.first);
    EXPECT_EQ(run_ns.second, diff.busy_ns.second);
    for (int cause = 0; cause < kBubbleCauseCount; ++cause)
      core_time += diff.cause_effect_ns(static_cast<BubbleCause>(cause));
    EXPECT_NEAR(core_time, static_cast<double>(diff.difference_ns()), 1e-6) << "seed " << seed;
    for (size_t part = 1; part < kPathPartCount; ++part)
      path_ns += diff.path_part_ns.second[part] - diff.path_part_ns.first[part];
    EXPECT_EQ(path_ns, diff.difference_ns()) << "seed " << seed;
    if (diff.core_count.first != diff.core_count.second) continue;
    ++same_core_count;
    EXPECT_EQ(core_time_ns, diff.difference_ns() * int64_t{diff.core_count.first});
  }
  EXPECT_GT(same_core_count, 5);
}

// Attention alone: 2 cores, fa 0 .. 40 and 0 .. 60, merge 70 .. 80 on core 0.
HeldSide alone() {
  return hold_side(
      hand_trace(
          {{.core = 0, .start_ns = 0, .end_ns = 40, .kernel = "fa"},
           {.core = 1, .start_ns = 0, .end_ns = 60, .kernel = "fa"},
           {.core = 0, .start_ns = 70, .end_ns = 80, .producers = {0, 1}, .kernel = "merge"}},
          2),
      {0, 80});
}

// In a layer: proj first, the same fa at half the time, and other work in its holes.
HeldSide in_layer() {
  return hold_side(
      hand_trace(
          {{.core = 0, .start_ns = 0, .end_ns = 100, .kernel = "proj"},
           {.core = 0, .start_ns = 100, .end_ns = 120, .producers = {0}, .kernel = "fa_kernel"},
           {.core = 1, .start_ns = 100, .end_ns = 130, .producers = {0}, .kernel = "fa_kernel"},
           {.core = 0, .start_ns = 120, .end_ns = 132, .producers = {0}, .kernel = "gate"},
           {.core = 1, .start_ns = 135, .end_ns = 140, .producers = {1, 2}, .kernel = "merge"}},
          2),
      {0, 140});
}

TEST(Focus, SaysWhatIsHiddenAndWhatIsGone) {
  const StepDiff diff = diff_of(alone(), in_layer(), {.focuses = {{"attention", {"fa", "merge"}}}});
  ASSERT_EQ(diff.focuses.size(), 1U);
  const FocusDiff& focus = diff.focuses.front();
  const FocusTimes& first = focus.times.first;
  EXPECT_EQ(first.task_count, 3);
  EXPECT_EQ(first.run_ns, 110);
  EXPECT_EQ(first.union_ns, 70);
  EXPECT_EQ(first.exposed_ns, 70);
  EXPECT_EQ(first.hidden_ns, 0);
  EXPECT_EQ(first.path_ns, 70);
  EXPECT_EQ(first.extent_ns, 80);
  EXPECT_EQ(first.other_run_ns, 0);
  EXPECT_EQ(first.idle_ns, 50);
  const FocusTimes& second = focus.times.second;
  EXPECT_EQ(second.task_count, 3) << "fa_kernel is fa";
  EXPECT_EQ(second.run_ns, 55);
  EXPECT_EQ(second.union_ns, 35);
  EXPECT_EQ(second.hidden_ns, 10) << "gate ran in 120 .. 130";
  EXPECT_EQ(second.exposed_ns, 25);
  EXPECT_EQ(second.extent_ns, 40);
  EXPECT_EQ(second.other_run_ns, 12);
  EXPECT_EQ(second.idle_ns, 13);
  EXPECT_EQ(focus.filled_ns, 6.0);
  EXPECT_EQ(focus.gone_ns, 12.5) << "of 25 idle a core 6.5 are left, and gate fills 6";
}

TEST(Focus, KernelsAreFoundByNameBeforeNormalisedName) {
  const HeldSide first =
      hold_side(hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .kernel = "fa"},
                            {.core = 0, .start_ns = 10, .end_ns = 30, .kernel = "fa_1"}},
                           1),
                {0, 30});
  const auto run_ns = [&](const std::string& name) {
    return diff_of(first, first, {.focuses = {{"f", {name}}}}).focuses.front().times.first.run_ns;
  };
  EXPECT_EQ(run_ns("fa"), 10);
  EXPECT_EQ(run_ns("fa_1"), 20);
  EXPECT_EQ(run_ns("FA"), 30) << "neither has the name, both have its normalised form";
}

TEST(Focus, AnUnknownKernelIsAnErrorOfTheCommandLine) {
  const Result<StepDiff> diff = diff_steps(alone().side(), in_layer().side(),
                                           {.focuses = {{"attention", {"fa", "softmax"}}}});
  ASSERT_FALSE(diff);
  EXPECT_EQ(diff.error().code, ErrorCode::kUsage);
  EXPECT_EQ(diff.error().message, "focus attention: neither step has a kernel called softmax");
}

TEST(ParseFocus, TakesANameAndKernels) {
  const FocusSpec focus = expect_value(parse_focus("attention=fa_fused+online_softmax"));
  EXPECT_EQ(focus.name, "attention");
  EXPECT_EQ(focus.kernels, (std::vector<std::string>{"fa_fused", "online_softmax"}));
  EXPECT_EQ(expect_value(parse_focus("a=b=c")).kernels, std::vector<std::string>{"b=c"});
  for (const char* text : {"", "fa", "=fa", "a=", "a=fa+", "a=+fa", "a=fa++merge"}) {
    const Result<FocusSpec> wrong = parse_focus(text);
    ASSERT_FALSE(wrong) << text;
    EXPECT_EQ(wrong.error().code, ErrorCode::kUsage);
    EXPECT_EQ(wrong.error().message, std::string("focus ") + text +
                                         "; must look like NAME=KERNEL or NAME=KERNEL+KERNEL+...");
  }
}

TEST(DiffSteps, AMapThatNamesWhatIsNotThereIsAnError) {
  EXPECT_EQ(error_of(two_matmuls(), one_matmul(), {.map = {{"gaet", "gate_up"}}}),
            "the map says gaet = gate_up, but the first step has no kernel gaet");
}

TEST(DiffSteps, AStepWithoutCoresIsAnError) {
  const HeldSide empty = hold_side(hand_trace({}, 0), {0, 10});
  EXPECT_EQ(error_of(two_matmuls(), empty, {}),
            "the second step has no cores, so there is no core time to compare");
}

TEST(DiffSteps, TheRatioIsOfTheMediansOfAllSteps) {
  const HeldSide first = two_matmuls();
  const HeldSide second = one_matmul();
  const StepDiff alone = diff_of(first, second);
  EXPECT_EQ(alone.ratio.value, 0.75);
  EXPECT_FALSE(alone.has_interval);
  EXPECT_EQ(alone.step_count.first, 1U);
  const StepDiff few =
      expect_value(diff_steps(first.side({60, 61, 59, 60, 60}), second.side({45, 46, 44, 48})));
  EXPECT_FALSE(few.has_interval) << "four are too few";
  EXPECT_EQ(few.ratio.value, 45.5 / 60);
  const StepDiff many = expect_value(
      diff_steps(first.side({60, 61, 59, 60, 60, 62}), second.side({45, 46, 44, 48, 43})));
  EXPECT_TRUE(many.has_interval);
  EXPECT_EQ(many.ratio.value, 0.75);
  EXPECT_LT(many.ratio.low, 0.75);
  EXPECT_GT(many.ratio.high, 0.75);
  EXPECT_LT(many.ratio.high, 0.82);
}

TEST(DiffSteps, SaysWhatMakesStepsHardToCompare) {
  const HeldSide two = two_matmuls();
  const HeldSide three = hold_side(
      hand_trace({{.core = 2, .start_ns = 0, .end_ns = 80, .kernel = "gate"}}, 3), {0, 60});
  const StepDiff diff = diff_of(two, three);
  const auto has = [&diff](const std::string& text) {
    return std::find(diff.warnings.begin(), diff.warnings.end(), text) != diff.warnings.end();
  };
  EXPECT_EQ(diff.warnings.front(), "A has 2 cores and B has 3: core time is compared per core");
  EXPECT_TRUE(has("B: no edges: the critical path only follows tasks of one core"));
  EXPECT_TRUE(has("B: 1 tasks reach beyond the step: only their part in it counts"));
  for (const std::string& missing : two.bubbles.missing) {
    const bool is_of_both = std::find(three.bubbles.missing.begin(), three.bubbles.missing.end(),
                                      missing) != three.bubbles.missing.end();
    EXPECT_TRUE(has((is_of_both ? "A and B: " : "A: ") + missing)) << missing;
  }
  EXPECT_FALSE(two.bubbles.missing.empty());
}

}  // namespace
}  // namespace gapless
