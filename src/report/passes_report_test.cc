// SPDX-License-Identifier: Apache-2.0

#include "report/passes_report.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/passes_test_support.h"

namespace gapless {
namespace {

using nlohmann::json;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string text_of(const MadeCapture& capture, const PassesOptions& options = {}, size_t top = 0) {
  return passes_text(capture.input(), make_passes_report(capture.input(), options), options, top);
}

json json_of(const MadeCapture& capture, const PassesOptions& options = {}) {
  return json::parse(
      passes_json(capture.input(), make_passes_report(capture.input(), options), options));
}

// The first cells of the lines of the table of passes.
std::vector<std::string> listed_passes(const std::string& text) {
  std::vector<std::string> labels;
  bool in_table = false;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find("PASS  PHASE") != std::string::npos) {
      in_table = true;
    } else if (line.empty()) {
      in_table = false;
    } else if (in_table) {
      const size_t first = line.find_first_not_of(' ');
      labels.push_back(line.substr(first, line.find(' ', first) - first));
    }
  }
  return labels;
}

TEST(PassSpread, IsTheLowerMedianWithItsDeviation) {
  const PassSpread odd = spread_of({30, 10, 20});
  EXPECT_EQ(odd.median, 20);
  EXPECT_EQ(odd.least, 10);
  EXPECT_EQ(odd.most, 30);
  EXPECT_EQ(odd.deviation, 10);
  const PassSpread even = spread_of({1, 2, 100, 101});
  EXPECT_EQ(even.median, 2);
  EXPECT_EQ(even.deviation, 1);
  EXPECT_EQ(spread_of({}).median, 0);
}

TEST(PassesReport, SaysInOneSentenceWhatThereIs) {
  MadeCapture capture = made_passes({100, 120, 110});
  capture.found.candidates = {
      {.type = capture.found.anchor, .count = 3, .score = 1.0, .reason = "3 in even distances"}};
  const PassesReport report = make_passes_report(capture.input(), {});
  EXPECT_EQ(report.verdict,
            "3 passes of NPU 0, all whole: 1 Attention a pass (3 in even distances); 3 decode; a "
            "decode pass of 16 tokens takes 110.000 us, in which something runs for 108.000 us, "
            "and kernels add up to 109.000 us (medians of 3)");
}

TEST(PassesReport, LeavesCutPassesOutOfTheStatistics) {
  MadeCapture capture = made_passes({10, 100, 120, 20});
  capture.found.passes.front().is_cut_at_start = true;
  capture.found.passes.back().is_cut_at_end = true;
  PassesOptions options;
  const PassesReport whole = make_passes_report(capture.input(), options);
  ASSERT_EQ(whole.groups.size(), 1u);
  EXPECT_EQ(whole.groups[0].passes, (std::vector<size_t>{1, 2}));
  EXPECT_TRUE(has(whole.verdict, "4 passes of NPU 0, 2 whole and 2 cut"));
  EXPECT_TRUE(has(text_of(capture), "cut at start"));
  EXPECT_TRUE(has(text_of(capture), "cut at end"));
  options.with_cut = true;
  EXPECT_EQ(make_passes_report(capture.input(), options).groups[0].passes.size(), 4u);
}

TEST(PassesReport, WithoutAWholePassHasNoStatistics) {
  MadeCapture capture = made_passes({10});
  capture.found.passes[0].is_cut_at_end = true;
  capture.found.anchors_per_pass = 0;
  const PassesReport report = make_passes_report(capture.input(), {});
  EXPECT_TRUE(report.groups.empty());
  EXPECT_FALSE(report.lost_permyriad.has_value());
  EXPECT_TRUE(has(report.verdict, "1 pass of NPU 0, which is cut: Attention as anchors; none is"));
  EXPECT_EQ(listed_passes(text_of(capture)), std::vector<std::string>{"0"});
}

TEST(PassesReport, GroupsByPhaseTokensAndAnchors) {
  MadeCapture capture = made_passes({10, 20, 30, 40, 50, 60, 70, 80});
  capture.summaries[0].phase.phase = PassPhase::kPrefill;
  capture.summaries[1].phase.tokens = 4096;
  capture.found.passes[2].anchor_count = 2;
  for (const size_t i : {3u, 4u, 5u}) capture.summaries[i].phase.is_dummy = true;
  const PassesReport report = make_passes_report(capture.input(), {});
  ASSERT_EQ(report.groups.size(), 5u);
  EXPECT_EQ(report.groups[0].passes, (std::vector<size_t>{6, 7}));
  EXPECT_EQ(report.groups[0].median_pass, 6u);
  EXPECT_EQ(report.groups[0].wall_ns.median, 70'000);
  EXPECT_EQ(report.groups[1].passes, std::vector<size_t>{0});
  EXPECT_EQ(report.groups[3].passes, std::vector<size_t>{2});
  // There are more dummies than anything else, and yet nobody asks for them first.
  EXPECT_TRUE(report.groups[4].is_dummy);
  EXPECT_EQ(report.groups[4].median_pass, 4u);
  EXPECT_TRUE(has(report.verdict, "4 decode, 3 dummy and 1 prefill"));
}

TEST(PassesReport, ListsAFewPassesAndOfManyTheEndsAndTheOddOnes) {
  EXPECT_EQ(listed_passes(text_of(made_passes({1000, 1001, 1002}))),
            (std::vector<std::string>{"0", "1", "2"}));
  MadeCapture many = made_passes(std::vector<int64_t>(40, 1000));
  many.summaries[20].outlier = "wall 9 ms against 1 ms";
  EXPECT_EQ(listed_passes(text_of(many)),
            (std::vector<std::string>{"0", "1", "2", "...", "20", "...", "37", "38", "39"}));
  EXPECT_TRUE(has(text_of(many), "outlier: wall 9 ms against 1 ms"));
  EXPECT_EQ(listed_passes(text_of(many, {}, 2)), (std::vector<std::string>{"0", "1", "..."}));
}

TEST(PassesReport, NamesThePassesOfSeveralDevices) {
  MadeCapture capture;
  for (const int32_t device : {3, 5}) {
    for (int64_t i = 0; i < 2; ++i) {
      capture.add_row({"Attention", i * 1000, 500}, device);
      capture.add_pass(summary_of(PassPhase::kDecode, 1, 5'000), 1, device);
    }
  }
  const PassesReport report = make_passes_report(capture.input(), {});
  EXPECT_TRUE(has(report.verdict, "4 passes of NPU 3 and NPU 5"));
  EXPECT_EQ(listed_passes(text_of(capture)),
            (std::vector<std::string>{"3:0", "3:1", "5:0", "5:1"}));
  // The last pass of one device has no neighbour on the other.
  EXPECT_FALSE(make_pass_detail(capture.input(), 1, capture.full_window(1)).gap_after_ns);
  EXPECT_FALSE(make_pass_detail(capture.input(), 2, capture.full_window(2)).gap_before_ns);
}

TEST(PassesReport, SaysWhatWasMergedAndLost) {
  MadeCapture capture = made_passes({100, 100, 100});
  capture.collectives.summary_count = 390;
  capture.collectives.fragment_count = 396;
  capture.collectives.merged_count = 390;
  capture.collectives.merged_ns = 30'000'000;
  capture.collectives.lone_fragment_count = 6;
  capture.collectives.wrapper_count = 129;
  capture.anchor_summaries[0].lost_share = 0.10;
  capture.anchor_summaries[1].lost_share = 0.12;
  capture.anchor_summaries[2].lost_share = 0.15;
  capture.table.dropped_count = 5;
  const std::string text = text_of(capture);
  EXPECT_TRUE(has(text,
                  "interval: 390 collectives and 396 kernels of them, 390 merged (30.000 ms that "
                  "would count twice), 6 kernels without a collective, 0 collectives without a "
                  "kernel; 129 wrappers on the AI CPU in no sum"))
      << text;
  EXPECT_TRUE(has(text,
                  "full; the window from first to last anchor would lose 12.0 % of a pass's sum in "
                  "the median (10.0 % to 15.0 %)"))
      << text;
  EXPECT_TRUE(has(text, "3 kept, 5 dropped"));
}

TEST(PassesReport, HoldsTheBeliefAgainstWhatWasFound) {
  const MadeCapture capture = made_passes({100, 100});
  PassesOptions options;
  EXPECT_FALSE(has(text_of(capture, options), "--layers"));
  options.search.layers = 1;
  EXPECT_TRUE(has(text_of(capture, options), "--layers 1: as found"));
  options.search.layers = 2;
  EXPECT_TRUE(has(text_of(capture, options), "--layers 2, but 1 were found"));
  options.search.method = PassMethod::kCount;
  EXPECT_TRUE(has(text_of(capture, options), "--layers 2: passes were counted off, not found"));
}

TEST(PassesReport, ShowsConfidenceWaitsAndFindings) {
  MadeCapture capture = made_passes({100, 100});
  EXPECT_FALSE(has(text_of(capture), "TRANSIT"));
  capture.summaries[0].phase.confidence = 0.6;
  capture.summaries[1].phase.phase.reset();
  capture.summaries[1].wait_ns = 7'000;
  capture.found.findings = {{.severity = Severity::kWarning, .code = "odd", .text = "one\x1b odd"}};
  capture.table.findings.assign(6, {.code = "rows", .text = "a row"});
  const std::string text = text_of(capture);
  EXPECT_TRUE(has(text, "decode (0.6)"));
  EXPECT_TRUE(has(text, "unknown"));
  EXPECT_TRUE(has(text, "7.000 us        -"));
  EXPECT_TRUE(has(text, "warning         odd: one\\x1b odd"));
  EXPECT_TRUE(has(text, "2 more of rows (--json lists them)"));
  EXPECT_EQ(json_of(capture)["findings"].size(), 7u);
}

// A collective with its kernel and a wrapper between two attentions, and a pass behind it.
MadeCapture made_detail() {
  MadeCapture capture;
  capture.add_row({"Attention", 1'000, 300});
  capture.add_row({"MatMul", 1'200, 400, 7});
  capture.add_row({"hcom_allReduce_", 1'700, 200, -1, KernelKind::kCollective});
  capture.add_row({"hcom_allReduce_", 1'710, 180, 9, KernelKind::kFragment});
  capture.add_row({"reduceAicpuKernel", 1'720, 9'000, 99, KernelKind::kAiCpuCollective});
  capture.add_row({"Attention", 2'000, 100});
  capture.add_pass(summary_of(PassPhase::kDecode, 1, 5'000), 2);
  capture.add_row({"Attention", 2'050, 100});
  capture.add_pass(summary_of(PassPhase::kDecode, 1, 5'000), 1);
  return capture;
}

TEST(PassDetail, CountsEachCollectiveOnceAndWrappersNever) {
  const MadeCapture capture = made_detail();
  const PassDetail detail = make_pass_detail(capture.input(), 0, capture.full_window(0));
  ASSERT_EQ(detail.kernels.size(), 4u);
  EXPECT_EQ(detail.kernels[0].type, "Attention");
  EXPECT_EQ(detail.kernels[0].count, 2u);
  EXPECT_EQ(detail.kernels[0].sum_ns, 400);
  EXPECT_EQ(detail.kernels[0].least_ns, 100);
  EXPECT_EQ(detail.kernels[0].most_ns, 300);
  EXPECT_EQ(detail.kernels[1].type, "MatMul");
  EXPECT_EQ(detail.kernels[2].type, "hcom_allReduce_");
  EXPECT_EQ(detail.kernels[2].count, 1u);
  EXPECT_EQ(detail.kernels[2].sum_ns, 200);
  EXPECT_EQ(detail.kernels[2].merged_count, 1u);
  EXPECT_TRUE(detail.kernels[2].is_collective);
  EXPECT_TRUE(detail.kernels[3].is_wrapper);
  EXPECT_EQ(detail.kernels[3].sum_ns, 9'000);
  ASSERT_EQ(detail.streams.size(), 5u);
  EXPECT_EQ(detail.streams[0].stream, CaptureTable::kNoStream);
  EXPECT_EQ(detail.streams[3].stream, 9);
  EXPECT_EQ(detail.streams[3].row_count, 1u);
  EXPECT_EQ(detail.streams[3].counted_count, 0u);
}

TEST(PassDetail, KnowsTheGapsToItsNeighbours) {
  const MadeCapture capture = made_detail();
  const PassDetail first = make_pass_detail(capture.input(), 0, capture.full_window(0));
  EXPECT_FALSE(first.gap_before_ns);
  EXPECT_EQ(first.gap_after_ns, -50);  // the wrapper runs far longer, but it only waits
  const PassDetail second = make_pass_detail(capture.input(), 1, capture.full_window(1));
  EXPECT_EQ(second.gap_before_ns, -50);
  EXPECT_FALSE(second.gap_after_ns);
}

TEST(PassDetail, SaysWhatThePassConsistsOf) {
  MadeCapture capture = made_detail();
  capture.summaries[0].phase.evidence = "1 token of 1 sequence in Attention";
  const PassesReport report = make_passes_report(capture.input(), {});
  const PassDetail detail = make_pass_detail(capture.input(), 0, capture.full_window(0));
  const std::string text = pass_detail_text(capture.input(), report, detail, {}, 1);
  EXPECT_TRUE(has(text, "pass 0 of NPU 0: decode, 2 anchors\n")) << text;
  EXPECT_TRUE(has(text, "full: 1000 to 10720 ns"));
  EXPECT_TRUE(has(text, "evidence        1 token of 1 sequence in Attention"));
  EXPECT_TRUE(has(text, "no pass before it, overlaps the pass behind it by 50 ns"));
  EXPECT_TRUE(has(text, "2 others"));
  EXPECT_TRUE(has(text, "in no sum"));
  const std::string all = pass_detail_text(capture.input(), report, detail, {}, 0);
  EXPECT_FALSE(has(all, "others"));
  EXPECT_TRUE(has(all, "1 more merged"));
}

TEST(PassDetail, TellsDraftsFromTheMainPass) {
  MadeCapture capture;
  capture.add_row({"Attention", 0, 100});
  capture.add_row({"MatMul", 50, 100, 7});
  capture.add_row({"Attention", 200, 30});
  capture.add_row({"MatMul", 240, 20});
  capture.found.draft_of_row = {0, 0, 1, 1};
  capture.found.is_anchor = {1, 0, 2, 0};
  ForwardPass& pass = capture.add_pass(summary_of(PassPhase::kSpeculative, 2, 5'000), 1);
  pass.draft_count = 1;
  pass.draft_anchor_count = 1;
  PassesOptions options;
  options.with_drafts = true;
  const PassesReport report = make_passes_report(capture.input(), options);
  ASSERT_EQ(report.drafts.size(), 1u);
  ASSERT_EQ(report.drafts[0].size(), 2u);
  const DraftPart& main = report.drafts[0][0];
  EXPECT_EQ(main.sum_ns, 200);
  EXPECT_EQ(main.union_ns, 150);
  EXPECT_EQ(main.wall_ns, 150);
  const DraftPart& draft = report.drafts[0][1];
  EXPECT_EQ(draft.anchor_count, 1u);
  EXPECT_EQ(draft.row_count, 2u);
  EXPECT_EQ(draft.union_ns, 50);
  EXPECT_EQ(draft.wall_ns, 60);
  const std::string text = text_of(capture, options);
  EXPECT_TRUE(has(text, "draft 1")) << text;
  EXPECT_TRUE(has(text, "1+1"));
  EXPECT_FALSE(has(text_of(capture), "draft 1"));
}

TEST(PassesJson, HasExactTimesAndNullsForWhatIsNotKnown) {
  MadeCapture capture = made_passes({100, 120});
  capture.summaries[1].phase.tokens = -1;
  capture.summaries[1].phase.phase.reset();
  const json all = json_of(capture);
  EXPECT_EQ(all["passes"].size(), 2u);
  EXPECT_EQ(all["passes"][0]["first_start_ns"], 1'764'246'877'073'569'640);
  EXPECT_EQ(all["passes"][0]["wall_ns"], 100'000);
  EXPECT_EQ(all["passes"][0]["sum_ns"], 99'000);
  EXPECT_EQ(all["passes"][0]["phase"], "decode");
  EXPECT_TRUE(all["passes"][1]["phase"].is_null());
  EXPECT_TRUE(all["passes"][1]["tokens"].is_null());
  EXPECT_TRUE(all["passes"][1]["wait_ns"].is_null());
  EXPECT_EQ(all["anchor"]["type"], "Attention");
  EXPECT_TRUE(all["anchor"]["believed"].is_null());
  EXPECT_EQ(all["groups"].size(), 2u);
  EXPECT_FALSE(all.contains("detail"));
  const PassesReport report = make_passes_report(capture.input(), {});
  const PassDetail detail = make_pass_detail(capture.input(), 1, capture.full_window(1));
  const json one = json::parse(pass_detail_json(capture.input(), report, detail, {}));
  EXPECT_EQ(one["pass"]["index"], 1);
  EXPECT_EQ(one["pass"]["window"]["begin_ns"], capture.table.start_ns[1]);
  EXPECT_EQ(one["pass"]["gap_before_ns"], 10'000);
  EXPECT_EQ(one["pass"]["kernels"][0]["count"], 1);
}

// Goal: nothing is lost or counted twice on the way into the tables.
// Method: random rows and passes; whatever they are, parts add up to the whole.
TEST(PassesReport, PartsAddUpOverRandomCaptures) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t end) { return static_cast<int64_t>(random() % end); };
    constexpr std::string_view kTypes[] = {"Attention", "MatMul", "Add", "Cast"};
    MadeCapture capture;
    int64_t start_ns = 0;
    const int64_t pass_count = 1 + below(30);
    for (int64_t i = 0; i < pass_count; ++i) {
      capture.add_row({"hcom_allReduce_", start_ns, 50, -1, KernelKind::kCollective});
      capture.add_row({"hcom_allReduce_", start_ns, 40, 9, KernelKind::kFragment});
      for (int64_t k = below(20); k >= 0; --k) {
        start_ns += below(100);
        capture.add_row({kTypes[below(4)], start_ns, below(200), static_cast<int32_t>(below(3)),
                         below(10) == 0 ? KernelKind::kAiCpuCollective : KernelKind::kCompute});
      }
      ForwardPass& pass = capture.add_pass(
          summary_of(static_cast<PassPhase>(below(4)), 1 + below(3), 3'000 + below(100)), 1);
      pass.is_cut_at_end = below(8) == 0;
      start_ns += 1'000;
    }
    const PassesReport report = make_passes_report(capture.input(), {});
    std::multiset<size_t> grouped;
    for (const PassGroup& group : report.groups) {
      grouped.insert(group.passes.begin(), group.passes.end());
      EXPECT_EQ(capture.summaries[group.median_pass].wall_ns, group.wall_ns.median);
      EXPECT_LE(group.wall_ns.least, group.wall_ns.median);
      EXPECT_GE(group.wall_ns.most, group.wall_ns.median);
    }
    EXPECT_EQ(grouped.size(), report.whole_count);
    EXPECT_EQ(std::set<size_t>(grouped.begin(), grouped.end()).size(), grouped.size());
    EXPECT_EQ(report.rows_in_passes, capture.table.size());
    for (size_t i = 0; i < capture.found.passes.size(); ++i) {
      const PassDetail detail = make_pass_detail(capture.input(), i, capture.full_window(i));
      uint64_t rows = 0;
      int64_t kernel_ns = 0;
      for (const PassKernel& kernel : detail.kernels) {
        rows += kernel.count + kernel.merged_count;
        if (!kernel.is_wrapper) kernel_ns += kernel.sum_ns;
      }
      uint64_t stream_rows = 0;
      int64_t stream_ns = 0;
      for (const PassStream& stream : detail.streams) {
        stream_rows += stream.row_count;
        stream_ns += stream.sum_ns;
      }
      EXPECT_EQ(rows, detail.window.rows.size());
      EXPECT_EQ(stream_rows, detail.window.rows.size());
      EXPECT_EQ(kernel_ns, stream_ns);
    }
    EXPECT_EQ(json_of(capture)["passes"].size(), capture.found.passes.size());
  }
}

}  // namespace
}  // namespace gapless
