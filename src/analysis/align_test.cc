// SPDX-License-Identifier: Apache-2.0

#include "analysis/align.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/align_passes.h"

namespace gapless {
namespace {

AlignSide side_of(std::vector<AlignEntry> entries, double pass_count = 1.0) {
  AlignSide side;
  side.source = "side";
  side.pass_count = pass_count;
  side.entries = std::move(entries);
  return side;
}

AlignEntry entry(const std::string& type, double count, int64_t total_ns,
                 const std::string& shape = "") {
  return {.type = type, .shape = shape, .count = count, .total_ns = total_ns};
}

Alignment aligned(const AlignSide& measured, const AlignSide& model,
                  const AlignOptions& options = {}, const KernelMap& map = {}) {
  Result<Alignment> result = align(measured, model, options, map);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result ? *std::move(result) : Alignment();
}

const AlignRow& row_of(const Alignment& alignment, std::string_view type,
                       std::string_view shape = "") {
  static const AlignRow kNone;
  for (const AlignRow& row : alignment.rows) {
    if (row.type == type && row.shape == shape) return row;
  }
  ADD_FAILURE() << "no row " << type << " " << shape;
  return kNone;
}

bool warns(const std::vector<std::string>& warnings, std::string_view part) {
  return std::any_of(warnings.begin(), warnings.end(), [part](const std::string& warning) {
    return warning.find(part) != std::string::npos;
  });
}

std::string csv_error(const std::string& text) {
  const Result<AlignSide> side = align_side_of_csv(text, "m.csv", true);
  return side ? "no error" : side.error().message;
}

AlignSide csv_side(const std::string& text, bool by_shape = true) {
  Result<AlignSide> side = align_side_of_csv(text, "m.csv", by_shape);
  EXPECT_TRUE(side.has_value()) << (side ? "" : side.error().message);
  return side ? *std::move(side) : AlignSide();
}

TEST(Align, TellsTheFourStatusesApart) {
  const AlignSide measured = side_of({entry("MatMul", 10, 10'000), entry("Attention", 4, 8'000),
                                      entry("Norm", 4, 400), entry("Sort", 1, 600)});
  const AlignSide model = side_of({entry("MatMul", 10, 11'000), entry("Attention", 3, 6'000),
                                   entry("Norm", 4, 800), entry("Cast", 2, 200)});
  const Alignment alignment = aligned(measured, model);
  EXPECT_EQ(row_of(alignment, "MatMul").status, AlignStatus::kHit);
  EXPECT_NEAR(row_of(alignment, "MatMul").mean_error, 0.1, 1e-12);
  const AlignRow& attention = row_of(alignment, "Attention");
  EXPECT_EQ(attention.status, AlignStatus::kPartial) << "one of four is not there";
  EXPECT_NEAR(attention.count_error, -0.25, 1e-12);
  EXPECT_NEAR(attention.time_error, -0.25, 1e-12);
  EXPECT_NEAR(attention.mean_error, 0.0, 1e-12);
  EXPECT_EQ(row_of(alignment, "Norm").status, AlignStatus::kPartial) << "twice the time";
  EXPECT_EQ(row_of(alignment, "Sort").status, AlignStatus::kMiss);
  EXPECT_EQ(row_of(alignment, "Sort").time_error, 0.0);
  EXPECT_EQ(row_of(alignment, "Cast").status, AlignStatus::kExtra);
  EXPECT_EQ(align_status_name(AlignStatus::kExtra), "EXTRA");
}

TEST(Align, AddsUpRatiosAndShares) {
  AlignSide measured = side_of(
      {entry("MatMul", 10, 6'000), entry("hcom_allReduce_", 2, 3'000), entry("Sort", 1, 1'000)});
  measured.entries[1].is_collective = true;
  const AlignSide model = side_of(
      {entry("MatMul", 10, 5'400), entry("hcom_allReduce_", 2, 1'500), entry("Cast", 1, 300)});
  const Alignment alignment = aligned(measured, model);
  EXPECT_DOUBLE_EQ(alignment.measured_ns, 10'000);
  EXPECT_DOUBLE_EQ(alignment.model_ns, 7'200);
  EXPECT_DOUBLE_EQ(alignment.ratio, 0.72);
  EXPECT_FALSE(alignment.is_close);
  EXPECT_DOUBLE_EQ(alignment.compute.ratio(), 5'700.0 / 7'000.0);
  EXPECT_DOUBLE_EQ(alignment.matched.ratio(), 6'900.0 / 9'000.0);
  EXPECT_NEAR(alignment.row_error, (600 + 1'500 + 1'000 + 300) / 10'000.0, 1e-12);
  EXPECT_DOUBLE_EQ(alignment.hit_share, 0.6);
  EXPECT_DOUBLE_EQ(alignment.partial_share, 0.3);
  EXPECT_DOUBLE_EQ(alignment.miss_share, 0.1);
  EXPECT_EQ(alignment.by_status[3].row_count, 1u);
  EXPECT_DOUBLE_EQ(alignment.by_status[3].model_ns, 300);
  ASSERT_EQ(alignment.rows.size(), 4u);
  EXPECT_EQ(alignment.rows[0].type, "MatMul") << "the largest first";
  EXPECT_EQ(alignment.rows[3].type, "Cast");
  EXPECT_DOUBLE_EQ(alignment.rows[0].share, 0.6);
}

TEST(Align, IsCloseFromOneLimitToTheOther) {
  const AlignSide measured = side_of({entry("MatMul", 1, 1'000)});
  for (const auto& [model_ns, is_close] :
       {std::pair(849, false), {850, true}, {1'150, true}, {1'151, false}}) {
    EXPECT_EQ(aligned(measured, side_of({entry("MatMul", 1, model_ns)})).is_close, is_close)
        << model_ns;
  }
}

TEST(Align, DividesByThePassesOfEachSide) {
  const Alignment alignment = aligned(side_of({entry("MatMul", 30, 3'000)}, 3.0),
                                      side_of({entry("MatMul", 20, 2'000)}, 2.0));
  EXPECT_EQ(alignment.rows[0].status, AlignStatus::kHit);
  EXPECT_DOUBLE_EQ(alignment.rows[0].measured_count, 10);
  EXPECT_DOUBLE_EQ(alignment.measured_ns, 1'000);
  EXPECT_DOUBLE_EQ(alignment.ratio, 1.0);
  const Result<Alignment> none = align(side_of({}, 0.0), side_of({}), {});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "side: 0 passes; must be more than 0");
}

TEST(Align, AllowsWhatTheTolerancesAllow) {
  const AlignSide measured = side_of({entry("MatMul", 64, 64'000)});
  const AlignSide model = side_of({entry("MatMul", 63, 63'000)});
  EXPECT_EQ(aligned(measured, model).rows[0].status, AlignStatus::kPartial);
  EXPECT_TRUE(aligned(measured, model).rows[0].is_count_off());
  EXPECT_EQ(aligned(measured, model, {.count_tolerance = 0.02}).rows[0].status, AlignStatus::kHit);
  const AlignSide slower = side_of({entry("MatMul", 64, 80'000)});
  EXPECT_EQ(aligned(measured, slower).rows[0].status, AlignStatus::kPartial);
  EXPECT_EQ(aligned(measured, slower, {.time_tolerance = 0.25}).rows[0].status, AlignStatus::kHit);
}

TEST(Align, ComparesShapesWithinATypeThatIsNamedOtherwise) {
  const AlignSide measured = side_of(
      {entry("muls_add_kernel_1", 2, 200, "1,2"), entry("muls_add_kernel_1", 3, 300, "3,4")});
  const AlignSide model =
      side_of({entry("muls_add_kernel", 2, 200, "1,2"), entry("muls_add_kernel", 1, 50, "5,6")});
  const Alignment alignment = aligned(measured, model, {.by_shape = true});
  ASSERT_EQ(alignment.rows.size(), 3u);
  EXPECT_EQ(row_of(alignment, "muls_add_kernel_1", "1,2").status, AlignStatus::kHit);
  EXPECT_EQ(row_of(alignment, "muls_add_kernel_1", "1,2").model_type, "muls_add_kernel");
  EXPECT_EQ(row_of(alignment, "muls_add_kernel_1", "3,4").status, AlignStatus::kMiss);
  EXPECT_EQ(row_of(alignment, "muls_add_kernel_1", "5,6").status, AlignStatus::kExtra);
  EXPECT_EQ(aligned(measured, model).rows.size(), 1u) << "shapes are only told apart when asked";
}

TEST(Align, ComparesATypeAsAWholeWhereOneSideHasNoShapes) {
  const AlignSide measured =
      side_of({entry("MatMul", 2, 200, "1,2"), entry("MatMul", 3, 300, "3,4")});
  const Alignment alignment =
      aligned(measured, side_of({entry("MatMul", 5, 500)}), {.by_shape = true});
  ASSERT_EQ(alignment.rows.size(), 1u);
  EXPECT_EQ(alignment.rows[0].status, AlignStatus::kHit);
  EXPECT_TRUE(warns(alignment.warnings, "1 type has shapes on one side only"));
}

TEST(Align, JudgesACompositeByTimeAlone) {
  const AlignSide measured =
      side_of({entry("Transpose", 62, 1'000, "1,2"), entry("BatchMatMulV2", 61, 500, "3,4")});
  const AlignSide model = side_of({entry("TransposeBatchMatMul", 61, 1'550, "5,6")});
  const KernelMap map = {{"Transpose", "TransposeBatchMatMul"},
                         {"BatchMatMulV2", "TransposeBatchMatMul"}};
  const Alignment alignment = aligned(measured, model, {.by_shape = true}, map);
  ASSERT_EQ(alignment.rows.size(), 1u);
  const AlignRow& row = alignment.rows[0];
  EXPECT_EQ(row.type, "Transpose+BatchMatMulV2");
  EXPECT_EQ(row.model_type, "TransposeBatchMatMul");
  EXPECT_TRUE(row.is_composite);
  EXPECT_EQ(row.status, AlignStatus::kHit);
  EXPECT_EQ(row.count_error, 0.0);
  EXPECT_FALSE(row.is_count_off());
  EXPECT_TRUE(warns(alignment.warnings, "counts of different types are not comparable"));
}

TEST(Align, AddsUpCountsOfVariantsOfOneKernel) {
  const AlignSide measured =
      side_of({entry("rope_kernel_0", 60, 600), entry("rope_kernel_1", 4, 40)});
  const Alignment alignment = aligned(measured, side_of({entry("rope", 64, 640)}));
  ASSERT_EQ(alignment.rows.size(), 1u);
  EXPECT_FALSE(alignment.rows[0].is_composite);
  EXPECT_EQ(alignment.rows[0].status, AlignStatus::kHit);
  EXPECT_DOUBLE_EQ(alignment.rows[0].measured_count, 64);
}

TEST(Align, RefusesAMapThatNamesWhatIsNotThere) {
  const AlignSide side = side_of({entry("MatMul", 1, 1)});
  EXPECT_FALSE(align(side, side, {}, {{"Nothing", "MatMul"}}).has_value());
  EXPECT_FALSE(align(side, side, {}, {{"MatMul", "Nothing"}}).has_value());
}

TEST(Align, HasNoRatioOfNothing) {
  const Alignment alignment = aligned(side_of({}), side_of({entry("MatMul", 1, 5)}));
  EXPECT_EQ(alignment.ratio, 0.0);
  EXPECT_FALSE(alignment.is_close);
  EXPECT_EQ(alignment.rows[0].share, 0.0);
  const Alignment zero =
      aligned(side_of({entry("MatMul", 1, 0)}), side_of({entry("MatMul", 1, 5)}));
  EXPECT_EQ(zero.rows[0].status, AlignStatus::kPartial) << "no time cannot be within 15 % of 5 ns";
}

// Goal: rows lose and double nothing. Method: sums over rows and statuses against sums of entries,
// and a side against itself.
TEST(Align, AddsUpToBothSidesWhateverTheyAre) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto below = [&random](int limit) {
      return static_cast<int>(random() % static_cast<uint32_t>(limit));
    };
    const auto make_side = [&below] {
      std::vector<AlignEntry> entries;
      for (int i = below(20); i > 0; --i) {
        AlignEntry made = entry(std::string(1, static_cast<char>('a' + below(8))), 1 + below(9),
                                below(5'000), std::to_string(below(3)));
        made.is_collective = below(4) == 0;
        entries.push_back(made);
      }
      return side_of(entries, 1.0 + below(3));
    };
    const auto total = [](const AlignSide& side) {
      int64_t ns = 0;
      for (const AlignEntry& one : side.entries) ns += one.total_ns;
      return static_cast<double>(ns) / side.pass_count;
    };
    const AlignSide measured = make_side();
    const AlignSide model = make_side();
    const AlignOptions options = {.by_shape = round % 2 == 0};
    const Alignment alignment = aligned(measured, model, options);
    EXPECT_NEAR(alignment.measured_ns, total(measured), 1e-6);
    EXPECT_NEAR(alignment.model_ns, total(model), 1e-6);
    double by_status = 0.0;
    for (const AlignSum& sum : alignment.by_status) by_status += sum.measured_ns;
    EXPECT_NEAR(by_status, total(measured), 1e-6);
    if (total(measured) > 0.0) {
      EXPECT_NEAR(alignment.hit_share + alignment.partial_share + alignment.miss_share, 1.0, 1e-9);
    }
    const Alignment same = aligned(measured, measured, options);
    for (const AlignRow& row : same.rows) EXPECT_EQ(row.status, AlignStatus::kHit) << row.type;
    const Alignment swapped = aligned(model, measured, options);
    EXPECT_EQ(swapped.rows.size(), alignment.rows.size());
    EXPECT_EQ(swapped.by_status[2].row_count, alignment.by_status[3].row_count);
  }
}

TEST(AlignShapes, AreOneSpelling) {
  for (const char* text :
       {"16,5120;5120,768", "\"\"\"16,5120;5120,768\"\"\"", " 16, 5120 ; 5120, 768 ",
        "[[16,5120],[5120,768]]", "[[16, 5120], [5120, 768]]", "(16,5120),(5120,768)",
        "16x5120;5120x768", "16,5120;;5120,768;;", ";16,5120;N/A;5120,768"}) {
    EXPECT_EQ(normalised_shapes(text), "16,5120;5120,768") << text;
  }
  for (const char* text : {"", "N/A", "\"\"", ";;", "[]", "[[],[]]", "None"}) {
    EXPECT_EQ(normalised_shapes(text), "") << text;
  }
  EXPECT_EQ(normalised_shapes("[16,5120]"), "16,5120");
  EXPECT_EQ(normalised_shapes("4096"), "4096");
}

// Two collectives, the first with a kernel that tells of it again, and a wrapper.
CaptureTable small_table() {
  CaptureTable table;
  table.sources.emplace_back();
  table.sources.back().path = "k.csv";
  const auto add = [&table](std::string_view type, int64_t duration_ns, KernelKind kind,
                            std::string_view shapes) {
    KernelRow row;
    row.start_ns = static_cast<int64_t>(table.size()) * 1'000;
    row.duration_ns = duration_ns;
    row.name = table.names.intern("name of a row");
    if (!type.empty()) row.type = table.names.intern(type);
    if (!shapes.empty()) row.input_shapes = table.names.intern(shapes);
    row.kind = kind;
    table.append(row);
  };
  add("MatMul", 100, KernelKind::kCompute, "1,2;");
  add("MatMul", 110, KernelKind::kCompute, "1,2");
  add("MatMul", 50, KernelKind::kCompute, "");
  add("hcom_allReduce_", 70, KernelKind::kCollective, "");
  add("hcom_allReduce_", 69, KernelKind::kFragment, "");
  add("hcom_allReduce_", 80, KernelKind::kFragment, "");
  add("hcom_allReduce_", 900, KernelKind::kAiCpuCollective, "");
  add("", 5, KernelKind::kCompute, "");
  return table;
}

CollectiveRows small_collectives() {
  CollectiveRows collectives;
  collectives.counted_by = {0, 1, 2, 3, 3, 5, kNoIndex, 7};
  return collectives;
}

TEST(AlignSide, CountsACollectiveOnceAndNoWrapper) {
  const CaptureTable table = small_table();
  const std::vector<uint32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7};
  const AlignSide side = align_side_of(table, rows, small_collectives(), false);
  ASSERT_EQ(side.entries.size(), 3u);
  EXPECT_EQ(side.source, "k.csv");
  EXPECT_EQ(side.entries[0].type, "MatMul");
  EXPECT_EQ(side.entries[0].count, 3.0);
  EXPECT_EQ(side.entries[0].total_ns, 260);
  EXPECT_FALSE(side.entries[0].is_collective);
  EXPECT_EQ(side.entries[1].type, "hcom_allReduce_");
  EXPECT_EQ(side.entries[1].count, 2.0);
  EXPECT_EQ(side.entries[1].total_ns, 150);
  EXPECT_TRUE(side.entries[1].is_collective);
  EXPECT_EQ(side.entries[2].type, "name of a row") << "where no type is known";
  EXPECT_EQ(side.merged_count, 1u);
  EXPECT_EQ(side.wrapper_count, 1u);
}

TEST(AlignSide, TakesOnlyTheRowsAndTellsShapesApart) {
  const CaptureTable table = small_table();
  const std::vector<uint32_t> rows = {0, 1, 2};
  const AlignSide side = align_side_of(table, rows, small_collectives(), true);
  ASSERT_EQ(side.entries.size(), 2u);
  EXPECT_EQ(side.entries[0].shape, "1,2");
  EXPECT_EQ(side.entries[0].total_ns, 210) << "two spellings of one shape";
  EXPECT_EQ(side.entries[1].shape, "");
}

TEST(AlignCsv, ReadsColumnsInAnyOrder) {
  const AlignSide side = csv_side(
      "Count,\"Input Shapes\",TIME_US,Type,remark\r\n"
      "192,\"16,5120;5120,768\",20.6,MatMulV2,x\r\n"
      "# a comment\r\n\r\n"
      "91.5,N/A,0.0015,hcom_allReduce_,\"two\nlines\"\r\n");
  ASSERT_EQ(side.entries.size(), 2u);
  EXPECT_EQ(side.entries[0].type, "MatMulV2");
  EXPECT_EQ(side.entries[0].shape, "16,5120;5120,768");
  EXPECT_EQ(side.entries[0].total_ns, 192 * 20'600);
  EXPECT_EQ(side.entries[0].count, 192.0);
  EXPECT_EQ(side.entries[1].total_ns, 183) << "2 ns, 91.5 times";
  EXPECT_TRUE(side.entries[1].is_collective);
  EXPECT_TRUE(side.has_counts);
}

TEST(AlignCsv, KnowsTotalsAndLinesOfSingleKernels) {
  const AlignSide totals = csv_side("\xef\xbb\xbftype,total_us\nMatMul,12.345\n");
  EXPECT_EQ(totals.entries.at(0).total_ns, 12'345);
  EXPECT_FALSE(totals.has_counts);
  const AlignSide lines = csv_side("type,duration_us\nMatMul,1\nMatMul,3\n");
  EXPECT_TRUE(lines.has_counts);
  const AlignSide measured = side_of({entry("MatMul", 2, 4'000)});
  EXPECT_EQ(aligned(measured, lines).rows[0].status, AlignStatus::kHit);
  const Alignment by_time = aligned(side_of({entry("MatMul", 99, 12'000)}), totals);
  EXPECT_EQ(by_time.rows[0].status, AlignStatus::kHit) << "counts are not known";
  EXPECT_TRUE(warns(by_time.warnings, "m.csv has no counts"));
  const AlignSide statistics =
      csv_side("OP Type,Core Type,Count,Total Time(us),Avg Time(us)\nAdd,AIV,4,8.0,2.0\n");
  EXPECT_EQ(statistics.entries.at(0).total_ns, 8'000) << "totals go before means";
}

TEST(AlignCsv, LeavesOutShapesWhenNotAskedForThem) {
  const AlignSide side = csv_side("type,shape,us\nA,\"1,2\",1\n", false);
  EXPECT_EQ(side.entries.at(0).shape, "");
}

TEST(AlignCsv, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(csv_error(""), "m.csv: empty; must begin with a header like type,shape,us,count");
  EXPECT_EQ(csv_error("type,us\n"), "m.csv: a header and no kernels");
  EXPECT_EQ(csv_error("kind,us\nA,1\n"),
            "m.csv:1: no column is called type; a header looks like type,shape,us,count");
  EXPECT_EQ(csv_error("type,ms\nA,1\n"),
            "m.csv:1: no column is called us or total_us; a header looks like type,shape,us,count");
  EXPECT_EQ(csv_error("us,type,time_us\n"),
            "m.csv:1: columns 1 and 3 (us and time_us) say the same thing");
  EXPECT_EQ(csv_error("type,shape,us\nA,1,2;3,4,5\n"),
            "m.csv:2: 5 cells; the header has 3 (a shape with commas stands in quotes)");
  EXPECT_EQ(csv_error("type,us,count\nA,1,1\nB,2\n"), "m.csv:3: 2 cells; the header has 3");
  EXPECT_EQ(csv_error("type,us\nA,\"1\n"), "m.csv:2: a quote is opened and never closed");
  EXPECT_EQ(csv_error("type,us\nA,fast\n"),
            "m.csv:2: column 2 is \"fast\"; must be a number from 0 on");
  EXPECT_EQ(csv_error("type,us\n\n#\nA,-1\n"),
            "m.csv:4: column 2 is \"-1\"; must be a number from 0 on");
  EXPECT_EQ(csv_error("type,us,count\nA,1,\n"),
            "m.csv:2: column 3 is \"\"; must be a number from 0 on");
  EXPECT_EQ(csv_error("type,us\n ,1\n"), "m.csv:2: the type is empty");
  EXPECT_EQ(csv_error("type,total_us,count\nA,1,0\n"), "m.csv:2: A of count 0 takes 1000 ns");
  EXPECT_EQ(csv_error("type,us,count\nA,9e15,1e10\n"),
            "m.csv:2: the times add up to 9e+19 s, which is too much");
}

TEST(AlignCsv, SurvivesBeingCutAtEveryByte) {
  const std::string text =
      "type,shape,us,count\nMatMulV2,\"16,5120;5120,768\",20.6,192\nAdd,,1,2\n";
  size_t read_count = 0;
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    const Result<AlignSide> side = align_side_of_csv(text.substr(0, bytes), "m.csv", true);
    if (side) {
      ++read_count;
      EXPECT_LE(side->entries.size(), 2u);
    } else {
      EXPECT_EQ(side.error().message.rfind("m.csv:", 0), 0u) << side.error().message;
    }
  }
  EXPECT_GT(read_count, 0u);
  EXPECT_EQ(csv_side(text).entries.size(), 2u);
}

TEST(AlignCsv, IsKnownByItsHeader) {
  EXPECT_TRUE(looks_like_align_csv("type,shape,us,count\n"));
  EXPECT_TRUE(looks_like_align_csv("\xef\xbb\xbf# predicted\n\nCount,Type,total_us"));
  EXPECT_TRUE(looks_like_align_csv("type,ms\n")) << "so that its reader can say what is missing";
  EXPECT_FALSE(looks_like_align_csv("type\n"));
  EXPECT_FALSE(looks_like_align_csv("{\"type\": 1, \"us\": 2}"));
  EXPECT_FALSE(looks_like_align_csv("shape,count\n"));
  EXPECT_FALSE(looks_like_align_csv(""));
}

// Passes of `anchor_counts`; the first and the last are cut.
FoundPasses found_of(CaptureTable& table, const std::vector<uint32_t>& anchor_counts) {
  FoundPasses found;
  found.anchor = table.names.intern("FlashAttention");
  for (uint32_t i = 0; i < anchor_counts.size(); ++i)
    found.passes.push_back({.device = 0, .index = i, .anchor_count = anchor_counts[i]});
  found.passes.front().is_cut_at_start = true;
  found.passes.back().is_cut_at_end = true;
  return found;
}

std::vector<PassSummary> summaries_of(const std::vector<PassPhase>& phases) {
  std::vector<PassSummary> summaries(phases.size());
  for (size_t i = 0; i < phases.size(); ++i) summaries[i].phase.phase = phases[i];
  return summaries;
}

constexpr PassPhase kD = PassPhase::kDecode;
constexpr PassPhase kP = PassPhase::kPrefill;

TEST(AlignPasses, AreTheWholeOnesOfTheCommonestKind) {
  CaptureTable table;
  const FoundPasses found = found_of(table, {3, 4, 4, 4, 4, 2, 1});
  std::vector<PassSummary> summaries = summaries_of({kD, kD, kP, kD, kD, kD, kD});
  const PassChoice choice = choose_passes(table, found, summaries, {}).value();
  EXPECT_EQ(choice.passes, (std::vector<uint32_t>{1, 3, 4}));
  EXPECT_EQ(choice.text, "3 of 7 passes: decode, 4 FlashAttention each");
  EXPECT_TRUE(choice.warnings.empty());
  summaries[3].outlier = "a wall time of 9 ms";
  summaries[1].phase.tokens = 16;
  summaries[4].phase.tokens = 128;
  const PassChoice warned = choose_passes(table, found, summaries, {}).value();
  EXPECT_TRUE(warns(warned.warnings, "1 of the 3 passes is unlike the others"));
  EXPECT_TRUE(warns(warned.warnings, "16 to 128 tokens"));
  summaries[1].phase.is_dummy = true;
  EXPECT_EQ(choose_passes(table, found, summaries, {}).value().passes,
            (std::vector<uint32_t>{3, 4}));
}

TEST(AlignPasses, AreNoneWhereNoneIsWhole) {
  CaptureTable table;
  const FoundPasses found = found_of(table, {3, 3});
  EXPECT_TRUE(choose_passes(table, found, summaries_of({kD, kD}), {}).value().passes.empty());
}

TEST(AlignPasses, AreTheOneOfTheNumberOnEveryDevice) {
  CaptureTable table;
  FoundPasses found = found_of(table, {4, 4, 4});
  const std::vector<PassSummary> summaries = summaries_of({kD, kD, kD});
  const PassChoice cut = choose_passes(table, found, summaries, 2).value();
  EXPECT_EQ(cut.passes, std::vector<uint32_t>{2});
  EXPECT_TRUE(warns(cut.warnings, "begins or ends within pass 2"));
  const Result<PassChoice> none = choose_passes(table, found, summaries, 3);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "no pass 3; passes 0 to 2 were found");
  found.passes[2].device = 1;
  found.passes[2].index = 1;
  const PassChoice both = choose_passes(table, found, summaries, 1).value();
  EXPECT_EQ(both.passes, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(both.text, "pass 1: decode, 4 FlashAttention; mean of 2 devices");
}

TEST(AlignPasses, CountsDevices) {
  CaptureTable table;
  EXPECT_EQ(device_count_of(table), 1u);
  for (const int32_t device : {0, 0, 3}) {
    KernelRow row;
    row.device = device;
    table.append(row);
  }
  EXPECT_EQ(device_count_of(table), 2u);
}

}  // namespace
}  // namespace gapless
