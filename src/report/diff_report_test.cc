// SPDX-License-Identifier: Apache-2.0

#include "report/diff_report.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analysis/made_execution.h"
#include "analysis/whatif_test_support.h"
#include "trace/capture_table_test_support.h"
#include "trace/capture_trace.h"

namespace gapless {
namespace {

using nlohmann::json;

struct Side {
  Trace trace;
  StepReport report;
  ReportedTrace reported() const { return {trace, report}; }
};

Side side_of(Trace trace, const std::string& source) {
  StepReport report = make_step_report(trace, source).value();
  return {std::move(trace), std::move(report)};
}

DiffReport diff_of(const Side& first, const Side& second, const DiffOptions& options = {}) {
  return expect_value(make_diff_report(first.reported(), second.reported(), options));
}

// Two kernels in turn on four cores, with overheads.
MadeOptions made_options(int64_t gate_up_ns, int64_t dispatch_ns = 300) {
  MadeOptions options;
  options.kernels = {{.name = "gate_up", .mean_ns = gate_up_ns},
                     {.name = "silu", .mean_ns = 2'000}};
  options.level_widths = std::vector<uint32_t>(12, 8);
  options.overheads.dispatch = {dispatch_ns, dispatch_ns};
  return options;
}

Side made_side(int64_t gate_up_ns, int64_t dispatch_ns = 300) {
  return side_of(make_execution(made_options(gate_up_ns, dispatch_ns)).trace, "made.gapless");
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool has_note(const DiffReport& report, std::string_view part) {
  for (const std::string& note : report.diff.warnings) {
    if (has(note, part)) return true;
  }
  return false;
}

TEST(DiffVerdict, NamesTheKernelThatIsToBlame) {
  const DiffReport report = diff_of(made_side(10'000), made_side(20'000));
  EXPECT_TRUE(has(report.verdict, "B takes ")) << report.verdict;
  EXPECT_TRUE(has(report.verdict, " more (+")) << report.verdict;
  EXPECT_TRUE(has(report.verdict,
                  "one step each: nobody can say how much of it is noise): most of "
                  "it is gate_up (+"))
      << report.verdict;
  const DiffReport back = diff_of(made_side(20'000), made_side(10'000));
  EXPECT_TRUE(has(back.verdict, " less (-")) << back.verdict;
  EXPECT_TRUE(has(back.verdict, "most of it is gate_up (-")) << back.verdict;
}

TEST(DiffVerdict, NamesTheBubblesThatAreToBlame) {
  const DiffReport report = diff_of(made_side(4'000, 0), made_side(4'000, 3'000));
  EXPECT_TRUE(has(report.verdict, "most of it is scheduler bubbles (+")) << report.verdict;
}

TEST(DiffVerdict, SaysWhatSpeaksAgainstTheDifference) {
  // B's kernel is faster by more than its dispatch is slower.
  const DiffReport report = diff_of(made_side(20'000, 0), made_side(8'000, 1'500));
  EXPECT_TRUE(has(report.verdict, "most of it is gate_up (-")) << report.verdict;
  EXPECT_TRUE(has(report.verdict, ", against it scheduler bubbles (+")) << report.verdict;
}

TEST(DiffVerdict, HasAnIntervalWithSeveralSteps) {
  Side first = made_side(10'000);
  Side second = made_side(20'000);
  const int64_t first_ns = first.report.kernels.window_ns();
  const int64_t second_ns = second.report.kernels.window_ns();
  first.report.step_lengths = {first_ns - 9, first_ns, first_ns, first_ns + 2, first_ns + 7};
  second.report.step_lengths = {second_ns - 1, second_ns, second_ns,
                                second_ns,     second_ns, second_ns + 70};
  const DiffReport report = diff_of(first, second);
  EXPECT_TRUE(has(report.verdict, " over 5 and 6 steps): most of it is gate_up")) << report.verdict;
  EXPECT_TRUE(has(report.verdict, ", 95 % ")) << report.verdict;
  second.report.step_lengths.resize(3);
  EXPECT_TRUE(has(diff_of(first, second).verdict,
                  " over 5 and 3 steps, which are too few to tell it from noise): "));
}

TEST(DiffVerdict, SaysNoiseWhereTheIntervalHoldsOne) {
  Side first = made_side(10'000);
  Side second = made_side(10'100);
  first.report.step_lengths = {90'000, 100'000, 110'000, 120'000, 130'000};
  second.report.step_lengths = {92'000, 101'000, 111'000, 119'000, 131'000};
  const DiffReport report = diff_of(first, second);
  EXPECT_TRUE(report.verdict.starts_with("no difference beyond noise: B takes ")) << report.verdict;
  EXPECT_TRUE(has(report.verdict, "of these two steps, ")) << report.verdict;
}

TEST(DiffVerdict, OfTheSameTraceSaysSo) {
  const Side side = made_side(10'000);
  const DiffReport report = diff_of(side, side);
  EXPECT_TRUE(report.verdict.starts_with("A and B both take ")) << report.verdict;
  EXPECT_TRUE(report.diff.warnings.empty());
}

TEST(DiffVerdict, ChosenStepsThatContradictTheMediansAreNoted) {
  Side first = made_side(10'000);
  Side second = made_side(20'000);
  first.report.step_lengths.assign(6, 200'000);
  second.report.step_lengths.assign(6, 100'000);
  EXPECT_TRUE(has_note(diff_of(first, second), "the other way than the medians of all steps"));
}

TEST(DiffAccounts, LinesAddUpToTheStepsWithOtherCoreCounts) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MadeOptions first_options = made_options(10'000);
    MadeOptions second_options = made_options(12'000);
    first_options.seed = seed;
    second_options.seed = seed + 100;
    second_options.core_counts = {static_cast<uint32_t>(1 + seed % 7), 0, 0};
    second_options.kernels.front().name = "gate_up_kernel";
    const DiffReport report = diff_of(side_of(make_execution(first_options).trace, "a"),
                                      side_of(make_execution(second_options).trace, "b"));
    for (const std::vector<AccountLine>& lines :
         {core_time_account(report.diff), path_account(report.diff)}) {
      Both<double> sum;
      for (const AccountLine& line : lines) {
        sum.first += line.ns.first;
        sum.second += line.ns.second;
      }
      EXPECT_NEAR(sum.first, static_cast<double>(report.diff.makespan_ns.first), 1e-6);
      EXPECT_NEAR(sum.second, static_cast<double>(report.diff.makespan_ns.second), 1e-6);
      for (size_t i = 1; i < lines.size(); ++i)
        EXPECT_GE(std::abs(lines[i - 1].difference_ns()), std::abs(lines[i].difference_ns()));
    }
  }
}

TEST(DiffText, HasVerdictAccountsAndASumInEach) {
  const DiffReport report = diff_of(made_side(10'000), made_side(20'000));
  const std::string text = diff_text(report, 2);
  EXPECT_TRUE(text.starts_with(report.verdict + "\n\nA               made.gapless, step 0 of 1: "));
  for (const char* part : {"\nB               made.gapless", "\nCORE TIME / CORES ", " others ",
                           "\nCRITICAL PATH ", "\ngate_up ", "\nstep "})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "FOCUS")) << "only where it was asked for";
  EXPECT_FALSE(has(diff_text(report, 100), " others"));
}

TEST(DiffText, FitsOnAScreen) {
  const std::string text = diff_text(diff_of(made_side(10'000), made_side(20'000)));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 45);
}

TEST(DiffText, ShowsOtherNamesAndJoinedOnes) {
  const Side first =
      side_of(hand_trace({{.core = 0, .start_ns = 0, .end_ns = 10, .kernel = "gate"},
                          {.core = 0, .start_ns = 10, .end_ns = 20, .kernel = "up"},
                          {.core = 0, .start_ns = 20, .end_ns = 30, .kernel = "fa\n"}},
                         1),
              "a");
  const Side second =
      side_of(hand_trace({{.core = 0, .start_ns = 0, .end_ns = 15, .kernel = "gate_up"},
                          {.core = 0, .start_ns = 15, .end_ns = 16, .kernel = "aic_silu"}},
                         1),
              "b");
  const DiffOptions options = {
      .map = {{"gate", "gate_up"}, {"up", "gate_up"}, {"fa\n", "aic_silu"}}};
  const std::string text = diff_text(diff_of(first, second, options));
  EXPECT_TRUE(has(text, "\ngate+up -> gate_up ")) << text;
  EXPECT_TRUE(has(text, "\nfa\\x0a -> aic_silu ")) << "control characters are made visible" << text;
  EXPECT_TRUE(has(text, "2 -> 1")) << text;
}

// 1,263 us a core alone and 548 us in a layer: what a person asks of attention kernels.
TEST(DiffText, TellsAloneFromInTheLayer) {
  const Side alone =
      side_of(hand_trace({{.core = 0, .start_ns = 0, .end_ns = 1'263'000, .kernel = "fa_fused"},
                          {.core = 1, .start_ns = 0, .end_ns = 1'263'000, .kernel = "fa_fused"}},
                         2),
              "alone.gapless");
  const Side layer = side_of(
      hand_trace(
          {{.core = 0, .start_ns = 0, .end_ns = 500'000, .kernel = "proj"},
           {.core = 1, .start_ns = 0, .end_ns = 600'000, .kernel = "proj"},
           {.core = 0, .start_ns = 500'000, .end_ns = 1'048'000, .kernel = "fa_fused_kernel"},
           {.core = 1, .start_ns = 600'000, .end_ns = 1'148'000, .kernel = "fa_fused_kernel"}},
          2),
      "layer.gapless");
  const std::string text =
      diff_text(diff_of(alone, layer, {.focuses = {{"attention", {"fa_fused"}}}}));
  EXPECT_TRUE(has(text,
                  "\nattention: 1.263 ms of core time per core alone in A, 548.000 us among other "
                  "kernels in B (-56.6 %); from its first start to its last end a core is idle for "
                  "0 ns in A and for 50.000 us in B: 50.000 us filled by other kernels, 100.000 us "
                  "new\n"))
      << text;
  EXPECT_TRUE(has(text, "\nFOCUS ")) << text;
  EXPECT_TRUE(has(text, "behind other kernels             0 ns  100.000 us  +100.000 us")) << text;
  const std::string missing =
      diff_text(diff_of(alone, layer, {.focuses = {{"projection", {"proj"}}}}));
  EXPECT_TRUE(has(missing, "\nprojection: A has none of it\n")) << missing;
}

TEST(DiffNotes, SayWhatMakesTracesHardToCompare) {
  Side first = made_side(10'000);
  Side second = made_side(10'000);
  first.trace.properties = {{"dtype", "bf16"}, {"pid", "1"}, {"host", "same"}, {"only", "here"}};
  second.trace.properties = {{"pid", "2"}, {"dtype", "a8w8"}, {"host", "same"}};
  second.trace.format = "tracr";
  second.trace.lanes[second.report.tasks->lane(0)].kind = LaneKind::kCubeCore;
  for (int i = 0; i < 6; ++i)
    second.trace.findings.push_back({Severity::kWarning, "cut-short", "cut short"});
  second.trace.findings.push_back({Severity::kInfo, "fine", "nothing to see"});
  const DiffReport report = diff_of(first, second);
  EXPECT_TRUE(has_note(report, "A and B differ in dtype (bf16 and a8w8)"));
  EXPECT_TRUE(has_note(report, "and B as tracr"));
  EXPECT_TRUE(has_note(report, "the kinds of cores differ: 4 worker in A, 3 worker + 1 cube in B"));
  EXPECT_TRUE(has_note(report, "B: cut short"));
  EXPECT_TRUE(has_note(report, "B: 2 more findings"));
  EXPECT_FALSE(has_note(report, "nothing to see"));
  EXPECT_FALSE(has_note(report, "pid"));
  EXPECT_FALSE(has_note(report, "only"));
  EXPECT_TRUE(
      has(diff_text(report), "\nnote            A and B differ in dtype (bf16 and a8w8)\n"));
}

TEST(DiffJson, HasTheSameFiguresExactly) {
  const DiffReport report =
      diff_of(made_side(10'000), made_side(20'000), {.focuses = {{"matmul", {"gate_up"}}}});
  const json parsed = json::parse(diff_json(report));
  EXPECT_EQ(parsed["verdict"], report.verdict);
  EXPECT_EQ(parsed["difference_ns"], report.diff.difference_ns());
  EXPECT_EQ(parsed["second"]["makespan_ns"], report.diff.makespan_ns.second);
  EXPECT_FALSE(parsed["ratio"].contains("low"));
  double core_time = 0.0;
  int64_t path_ns = 0;
  for (const json& kernel : parsed["kernels"]) {
    core_time += kernel["wall_effect_ns"].get<double>();
    path_ns +=
        kernel["path_ns"]["second"].get<int64_t>() - kernel["path_ns"]["first"].get<int64_t>();
  }
  for (const json& cause : parsed["causes"]) core_time += cause["wall_effect_ns"].get<double>();
  for (const json& part : parsed["path_parts"])
    if (part["part"] != "run") path_ns += part["difference_ns"].get<int64_t>();
  EXPECT_NEAR(core_time, static_cast<double>(report.diff.difference_ns()), 1e-6);
  EXPECT_EQ(path_ns, report.diff.difference_ns());
  const json& focus = parsed["focuses"][0];
  EXPECT_EQ(focus["name"], "matmul");
  for (const char* side : {"first", "second"})
    EXPECT_EQ(focus[side]["exposed_ns"].get<int64_t>() + focus[side]["hidden_ns"].get<int64_t>(),
              focus[side]["union_ns"]);
}

TEST(FormatDifference, HasASign) {
  EXPECT_EQ(format_difference(1'250'000.4), "+1.250 ms");
  EXPECT_EQ(format_difference(-3.0), "-3 ns");
  EXPECT_EQ(format_difference(0.2), "0 ns");
  EXPECT_EQ(format_difference(-0.2), "0 ns");
}

// Streams are queues: what the device did is compared, not why they waited.
TEST(DiffStreams, ComparesTheTimeOfTheDevice) {
  const auto side = [](int64_t collective_ns) {
    return side_of(trace_of(table_of({{0, 100, 1},
                                      {100, collective_ns, 2, KernelKind::kFragment, 0, "hcom_a"},
                                      {1000, 50, 1}})),
                   "k.csv");
  };
  const DiffReport report = diff_of(side(200), side(500));
  ASSERT_TRUE(report.device.has_value());
  Both<double> sums;
  for (const AccountLine& line : device_account(*report.device)) {
    sums = {sums.first + line.ns.first, sums.second + line.ns.second};
  }
  EXPECT_EQ(sums.first, 1050.0);
  EXPECT_EQ(sums.second, 1050.0);
  EXPECT_TRUE(has(diff_text(report), "communicating alone"));
  EXPECT_FALSE(has(diff_text(report), "CRITICAL PATH"));
  EXPECT_FALSE(has(diff_text(report), "bubbles"));
  EXPECT_EQ(json::parse(diff_json(report))["device"][1]["second_ns"], 500);
}

TEST(DiffStreams, BlamesWhatTheDeviceDidLonger) {
  const auto side = [](int64_t collective_ns) {
    return side_of(trace_of(table_of({{0, 100, 1},
                                      {100, collective_ns, 2, KernelKind::kFragment, 0, "hcom_a"},
                                      {100 + collective_ns, 50, 1}})),
                   "k.csv");
  };
  const DiffReport report = diff_of(side(200), side(500));
  EXPECT_TRUE(has(report.verdict, "most of it is communicating alone (+300 ns)")) << report.verdict;
}

}  // namespace
}  // namespace gapless
