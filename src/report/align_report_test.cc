// SPDX-License-Identifier: Apache-2.0

#include "report/align_report.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gapless {
namespace {

AlignedSide side_of(const std::string& source, std::vector<AlignEntry> entries) {
  AlignedSide side;
  side.side.source = source;
  side.side.entries = std::move(entries);
  return side;
}

AlignEntry entry(const std::string& type, double count, int64_t total_ns,
                 const std::string& shape = "") {
  return {.type = type, .shape = shape, .count = count, .total_ns = total_ns};
}

AlignReport report_of(AlignedSide measured, AlignedSide model, const AlignOptions& options = {},
                      const KernelMap& map = {}) {
  Result<AlignReport> report =
      make_align_report(std::move(measured), std::move(model), options, map);
  EXPECT_TRUE(report.has_value()) << (report ? "" : report.error().message);
  return report ? *std::move(report) : AlignReport();
}

// One row of each status.
AlignReport small_report() {
  AlignedSide measured = side_of(
      "k.csv",
      {entry("MatMul", 10, 600'000), entry("Attention", 4, 300'000), entry("Sort", 1, 100'000)});
  measured.passes = "3 of 5 passes: decode, 4 Attention each";
  measured.wall_ns = 1'500'000.0;
  measured.side.merged_count = 2;
  measured.side.wrapper_count = 1;
  measured.warnings = {"one row has no start"};
  return report_of(std::move(measured),
                   side_of("m.csv", {entry("MatMul", 10, 600'000), entry("Attention", 3, 225'000),
                                     entry("Cast", 2, 10'000)}));
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST(AlignReport, SaysTheWholeInOneScreen) {
  const std::string expected =
      "the model has 835.000 us for 1.000 ms of measured kernel time a pass: ratio "
      "0.835, below 0.85..1.15; the largest difference is Sort (-100.000 us, not "
      "modelled); counts differ in 1 of 2 types: Attention 4 -> 3\n"
      "\n"
      "measured        k.csv, 3 of 5 passes: decode, 4 Attention each; 2 rows left out "
      "that tell of a collective again; 1 wrapper on the AI CPU left out\n"
      "model           m.csv\n"
      "ratio           0.835 of all kernels (M6), 0.835 without collectives, 0.917 of "
      "what both sides have\n"
      "times           sums of kernel times, as if one ran after the other; the wall "
      "time of a measured pass, 1.500 ms, is in no ratio\n"
      "\n"
      "TYPE       STATUS     SHARE    MEASURED       MODEL    ERROR   COUNT    ERROR     "
      "               EACH   ERROR\n"
      "MatMul     HIT       60.0 %  600.000 us  600.000 us   +0.0 %      10   +0.0 %  "
      "60.000 us -> 60.000 us  +0.0 %\n"
      "Attention  PARTIAL   30.0 %  300.000 us  225.000 us  -25.0 %  4 -> 3  -25.0 %  "
      "75.000 us -> 75.000 us  +0.0 %\n"
      "Sort       MISS      10.0 %  100.000 us        0 ns        -       1        -     "
      "         100.000 us       -\n"
      "Cast       EXTRA      0.0 %        0 ns   10.000 us        -       2        -     "
      "           5.000 us       -\n"
      "pass                100.0 %    1.000 ms  835.000 us  -16.5 %\n"
      "\n"
      "STATUS   TYPES    MEASURED   SHARE       MODEL   SHARE  MEANING\n"
      "HIT          1  600.000 us  60.0 %  600.000 us  71.9 %  count and time agree\n"
      "PARTIAL      1  300.000 us  30.0 %  225.000 us  26.9 %  both have it, count or "
      "time does not agree\n"
      "MISS         1  100.000 us  10.0 %        0 ns   0.0 %  measured, not modelled\n"
      "EXTRA        1        0 ns   0.0 %   10.000 us   1.2 %  modelled, not measured\n"
      "\n"
      "note            k.csv: one row has no start\n";
  EXPECT_EQ(align_text(small_report()), expected);
}

TEST(AlignReport, JoinsWhatIsBeyondTheTop) {
  const std::string text = align_text(small_report(), 2);
  EXPECT_FALSE(has(text, "Sort    "));
  EXPECT_TRUE(has(text, "2 others             10.0 %  100.000 us   10.000 us  -90.0 %")) << text;
  EXPECT_TRUE(has(align_text(small_report(), 3), "1 other"));
}

TEST(AlignReport, SaysThatErrorsCancel) {
  const AlignReport report = report_of(side_of("k", {entry("A", 1, 1'000), entry("B", 1, 1'000)}),
                                       side_of("m", {entry("A", 1, 500), entry("B", 1, 1'500)}));
  EXPECT_TRUE(report.alignment.is_close);
  EXPECT_TRUE(has(report.verdict,
                  "within 0.85..1.15 because errors cancel: row by row the sides are 50.0 % apart"))
      << report.verdict;
  EXPECT_TRUE(has(report.verdict, "counts agree in all 2 types that both sides have"));
}

TEST(AlignReport, SaysAboveAndNoDifferenceAndNothing) {
  EXPECT_TRUE(
      has(report_of(side_of("k", {entry("A", 1, 10)}), side_of("m", {entry("A", 1, 20)})).verdict,
          "ratio 2.000, above 0.85..1.15"));
  EXPECT_TRUE(
      has(report_of(side_of("k", {entry("A", 1, 10)}), side_of("m", {entry("A", 1, 10)})).verdict,
          "no type differs in time"));
  EXPECT_EQ(report_of(side_of("k", {}), side_of("m", {entry("A", 1, 10)})).verdict,
            "nothing was measured that a model could be held to");
}

TEST(AlignReport, NamesAtMostThreeCountsThatDiffer) {
  std::vector<AlignEntry> measured;
  std::vector<AlignEntry> model;
  for (const char* type : {"A", "B", "C", "D"}) {
    measured.push_back(entry(type, 64, 100));
    model.push_back(entry(type, 63.5, 100));
  }
  const AlignReport report = report_of(side_of("k", measured), side_of("m", model));
  EXPECT_TRUE(has(report.verdict,
                  "counts differ in 4 of 4 types: A 64 -> 63.50, B 64 -> 63.50, "
                  "C 64 -> 63.50, ..."))
      << report.verdict;
}

TEST(AlignReport, ShowsShapesLast) {
  const AlignReport report =
      report_of(side_of("k", {entry("A", 1, 1'000, "1,2;3,4")}),
                side_of("m", {entry("A", 1, 2'000, "1,2;3,4")}), {.by_shape = true});
  const std::string text = align_text(report);
  EXPECT_TRUE(has(text, "SHAPE\n"));
  EXPECT_TRUE(has(text, "  1,2;3,4\n"));
  EXPECT_TRUE(has(report.verdict, "A (+1.000 us, shape 1,2;3,4)")) << report.verdict;
}

TEST(AlignReport, ShowsCompositesWithoutErrorsOfCounts) {
  const AlignReport report =
      report_of(side_of("k", {entry("Transpose", 62, 600), entry("BatchMatMul", 61, 400)}),
                side_of("m", {entry("Both", 61, 1'000)}), {},
                {{"Transpose", "Both"}, {"BatchMatMul", "Both"}});
  EXPECT_TRUE(has(align_text(report), "Transpose+BatchMatMul = Both  HIT"));
  EXPECT_TRUE(has(align_text(report), "123 -> 61      -     -      -")) << align_text(report);
  EXPECT_TRUE(has(report.verdict, "no counts can be compared"));
  ASSERT_EQ(report.notes.size(), 1u);
}

TEST(AlignReport, PassesErrorsOn) {
  EXPECT_FALSE(make_align_report(side_of("k", {}), side_of("m", {}), {}, {{"A", "B"}}).has_value());
}

TEST(AlignReport, HasEverythingAsJson) {
  const AlignReport report = small_report();
  const nlohmann::json json = nlohmann::json::parse(align_json(report));
  EXPECT_EQ(json["verdict"], report.verdict);
  EXPECT_DOUBLE_EQ(json["ratio"], 0.835);
  EXPECT_EQ(json["is_close"], false);
  EXPECT_EQ(json["measured"]["source"], "k.csv");
  EXPECT_DOUBLE_EQ(json["measured"]["wall_ns"], 1'500'000.0);
  EXPECT_EQ(json["measured"]["merged_count"], 2);
  EXPECT_FALSE(json["model"].contains("wall_ns"));
  ASSERT_EQ(json["rows"].size(), 4u);
  EXPECT_EQ(json["rows"][1]["type"], "Attention");
  EXPECT_EQ(json["rows"][1]["status"], "PARTIAL");
  EXPECT_DOUBLE_EQ(json["rows"][1]["count_error"], -0.25);
  EXPECT_EQ(json["rows"][0]["model_type"], "MatMul");
  double measured_ns = 0.0;
  for (const nlohmann::json& status : json["by_status"])
    measured_ns += double(status["measured_ns"]);
  EXPECT_DOUBLE_EQ(measured_ns, json["measured_ns"]);
  EXPECT_EQ(json["by_status"]["EXTRA"]["row_count"], 1);
  EXPECT_EQ(json["notes"][0], "k.csv: one row has no start");
  EXPECT_DOUBLE_EQ(json["options"]["time_tolerance"], 0.15);
}

}  // namespace
}  // namespace gapless
