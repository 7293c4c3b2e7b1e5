// SPDX-License-Identifier: Apache-2.0
//
// One kernel table at a time: every header, every kind of cell, every way in which a row can be
// wrong. "Row 7" in a comment is a row of the robustness table. Several files, their order and
// what is no table at all are in ascend_csv_files_test.cc.

#include "formats/ascend_csv.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/ascend_csv_test_support.h"

namespace gapless {
namespace {

constexpr int64_t kStartNs = 1764246877073569640;

// The table of one row with these cells under header H8.
CaptureTable one_row(const AscendRowCells& cells) {
  return ascend_table(ascend_text("H8", {cells}));
}

// What becomes of such a row beside a good one: the code of the finding.
std::string dropped_as(const AscendRowCells& cells) {
  AscendRowCells good;
  good.start = "1";
  const CaptureTable table = ascend_table(ascend_text("H8", {good, cells}));
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.dropped_count, 1u);
  EXPECT_EQ(table.sources[0].row_count, 2u);
  return finding_codes(table.findings);
}

// Row 8.
TEST(AscendCsv, ReadsTheHeadersOfAllYears) {
  for (const auto& [name, header] : kAscendHeaders) {
    const CaptureTable table = ascend_table(ascend_text(name, {AscendRowCells{}}));
    ASSERT_EQ(table.size(), 1u) << name;
    EXPECT_EQ(table.start_ns[0], kStartNs) << name;
    EXPECT_EQ(table.duration_ns[0], 61220) << name;
    EXPECT_EQ(text_at(table, table.name[0]), "aclnnMatmul_MatMulCommon_MatMulV2") << name;
    EXPECT_EQ(text_at(table, table.type[0]), "MatMulV2") << name;
    EXPECT_EQ(text_at(table, table.core[0]), "AI_CORE") << name;
    const auto has = [&header = header](std::string_view column) {
      return header.find(column) != std::string::npos;
    };
    EXPECT_EQ(table.device[0], has("Device_id") ? 0 : -1) << name;
    EXPECT_EQ(table.stream[0], has("Stream ID") ? 148 : CaptureTable::kNoStream) << name;
    EXPECT_EQ(table.task[0], has("Task ID") ? 11051u : kNoIndex) << name;
    EXPECT_EQ(text_at(table, table.step[0]), has("Step I") ? "50" : "(none)") << name;
    const std::string_view shapes = has("Input Shapes") ? "16,5120;5120,768" : "(none)";
    EXPECT_EQ(text_at(table, table.input_shapes[0]), shapes) << name;
    EXPECT_EQ(table.kind[0], KernelKind::kCompute) << name;
    EXPECT_EQ(table.sources[0].header, header) << name;
    EXPECT_EQ(finding_codes(table.findings), "") << name;
  }
}

// Row 14: 16 digits of microseconds and ticks of 20 ns, each of which a double would lose.
TEST(AscendCsv, KeepsEveryNanosecondOfSixteenDigits) {
  std::vector<AscendRowCells> rows(200);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t ns = 4503599627370497 * 1000 + static_cast<int64_t>(i) * 20;
    std::string digits = std::to_string(ns);
    rows[i].start = digits.insert(digits.size() - 3, ".") + "\t";
    rows[i].duration = "0.020";
  }
  const CaptureTable table = ascend_table(ascend_text("H9", rows));
  ASSERT_EQ(table.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(table.start_ns[i], 4503599627370497000 + static_cast<int64_t>(i) * 20);
    ASSERT_EQ(table.duration_ns[i], 20);
  }
}

// Row 3.
TEST(AscendCsv, TrimsNumbersQuotedOrNot) {
  for (const std::string start : {"1764246877073569.640\t", "\"1764246877073569.640\t\"",
                                  " 1764246877073569.64 ", "\t1764246877073569.6400"}) {
    const CaptureTable table =
        one_row({.start = start, .device = " 3\t", .stream = "\"148\t\"", .step = "50 "});
    ASSERT_EQ(table.size(), 1u) << start;
    EXPECT_EQ(table.start_ns[0], kStartNs) << start;
    EXPECT_EQ(table.device[0], 3);
    EXPECT_EQ(table.stream[0], 148);
    EXPECT_EQ(text_at(table, table.step[0]), "50");
  }
}

TEST(AscendCsv, TakesStampsOfAnyNumberOfDecimals) {
  EXPECT_EQ(one_row({.start = "1699529622790614.8"}).start_ns[0], 1699529622790614800);
  EXPECT_EQ(one_row({.start = "1695115378713661"}).start_ns[0], 1695115378713661000);
  EXPECT_EQ(one_row({.start = "1000000.000"}).start_ns[0], 1000000000);
}

// Durations of old files have four decimals. They are rounded half away from zero, as all decimals
// here are, and the findings say how many.
TEST(AscendCsv, RoundsDurationsOfFourDecimals) {
  const CaptureTable table =
      ascend_table(ascend_text("H5", {{.start = "1", .duration = "496.8508"},
                                      {.start = "2", .duration = "0.0005"},
                                      {.start = "3", .duration = "0.0015"},
                                      {.start = "4", .duration = "0.0004"},
                                      {.start = "5", .duration = "6.5400"}}));
  EXPECT_EQ(table.duration_ns, (std::vector<int64_t>{496851, 1, 2, 0, 6540}));
  EXPECT_EQ(finding_count(table.findings, "rounded-durations"), 4u);
}

// Row 4.
TEST(AscendCsv, TakesShapesOutOfAllTheirQuotes) {
  const auto shapes = [](const std::string& cell) {
    const CaptureTable table = one_row({.input_shapes = cell});
    return std::string(text_at(table, table.input_shapes[0]));
  };
  EXPECT_EQ(shapes("\"\"\"1,4096,1024;1024\"\"\""), "1,4096,1024;1024");
  EXPECT_EQ(shapes("\"1,4096;1024\""), "1,4096;1024");
  EXPECT_EQ(shapes("\"\"\";;\"\"\""), ";;") << "three scalars";
  EXPECT_EQ(shapes("\"\"\"\"\"\""), "") << "one scalar";
  EXPECT_EQ(shapes("\"[[1,1024],[1024,4096]]\""), "1,1024;1024,4096");
  EXPECT_EQ(shapes("N/A"), "(none)");
  EXPECT_EQ(shapes(""), "(none)");
}

// Row 5.
TEST(AscendCsv, LetsANameHoldALineBreak) {
  const CaptureTable table = ascend_table(ascend_text(
      "H8", {{.name = "\"two\nlines\""}, {.name = "next", .start = "1764246877073600"}}));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(text_at(table, table.name[0]), "two\nlines");
  EXPECT_EQ(text_at(table, table.name[1]), "next");
}

// Row 5: a quote that should not be there must not swallow the rows behind it.
TEST(AscendCsv, ReadsLineByLineWhereQuotesAreBroken) {
  const auto row = [](const std::string& name, const std::string& start) {
    AscendRowCells cells{.name = name, .start = start};
    if (name != "\"odd") cells.input_shapes = cells.output_shapes = "N/A";
    return cells;
  };
  const CaptureTable table = ascend_table(
      ascend_text("H8", {row("\"odd", "100"), row("\"begin", "200"), row("end\"", "300"),
                         row("x", "400"), row("\"last", "500"), row("y", "600")}));
  ASSERT_EQ(table.size(), 6u);
  for (const auto& [number, name] :
       {std::pair(0, "\"odd"), {1, "\"begin"}, {2, "end\""}, {4, "\"last"}, {5, "y"}}) {
    EXPECT_EQ(text_at(table, table.name[static_cast<size_t>(number)]), name);
  }
  EXPECT_EQ(finding_count(table.findings, "broken-quotes"), 2u);
}

// Row 6: the last cells are missing.
TEST(AscendCsv, TakesMissingLastCellsAsNotSaid) {
  const std::string& header = kAscendHeaders.at("H8");
  std::string row = ascend_row(header, {});
  row.resize(row.rfind(','));
  const CaptureTable table = ascend_table(header + "\n" + row + "\n");
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(finding_count(table.findings, "rows-padded"), 1u);
}

// Row 6: a cell in the middle is missing, so that all behind it stand in the wrong column.
TEST(AscendCsv, DropsRowsThatLackACellInTheMiddle) {
  const std::string& header = kAscendHeaders.at("H8");
  const std::string good = ascend_row(header, {.start = "5"});
  std::string row = ascend_row(header, {});
  const std::string duration = "61.220,";
  row.erase(row.find(duration), duration.size());
  const CaptureTable table = ascend_table(header + "\n" + good + "\n" + row + "\n");
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(finding_codes(table.findings), "rows-shifted ");
}

// Row 6: more cells than columns.
TEST(AscendCsv, DoesNotReadColumnsBehindACellTooMany) {
  const std::string& header = kAscendHeaders.at("H8");
  const std::string good = ascend_row(header, {.start = "5"});
  std::string row = ascend_row(header, {.input_shapes = "16,5120;5120,768"});
  const CaptureTable table = ascend_table(header + "\n" + good + ",,\n" + row + "\n");
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(text_at(table, table.input_shapes[0]), "16,5120;5120,768") << "empty cells at the end";
  EXPECT_EQ(table.duration_ns[1], 61220);
  EXPECT_EQ(table.input_shapes[1], kNoIndex);
  EXPECT_EQ(finding_codes(table.findings), "rows-tail-ignored ");
}

// Row 7.
TEST(AscendCsv, JoinsNamesThatACommaCut) {
  for (const std::string header : {"H0", "H4", "H8", "H12"}) {
    const CaptureTable table =
        ascend_table(ascend_text(header, {{.name = "Foo(1,2,3)"}, {.start = "1764246877073600"}}));
    ASSERT_EQ(table.size(), 2u) << header;
    EXPECT_EQ(text_at(table, table.name[0]), "Foo(1,2,3)") << header;
    EXPECT_EQ(text_at(table, table.type[0]), "MatMulV2") << header;
    EXPECT_EQ(table.start_ns[0], kStartNs) << header;
    EXPECT_EQ(finding_codes(table.findings), "rows-name-joined ") << header;
  }
}

// Row 7: nothing fits, wherever the comma is taken to be.
TEST(AscendCsv, DropsLongRowsThatItCannotTellApart) {
  EXPECT_EQ(dropped_as({.core = "A,I", .start = "x"}), "rows-too-long ");
}

// Rows 9 and 10.
TEST(AscendCsv, MakesTypesOfNamesWhereThereAreNone) {
  const std::string text =
      ascend_text("H0", {{.name = "trans_Cast_19", .type = "N/A", .core = "N/A"},
                         {.name = "hcom_allReduce__503_0_1",
                          .type = "N/A",
                          .core = "HCCL",
                          .start = "1764246877073600"},
                         {.name = "N/A", .type = "", .start = "1764246877073700"}});
  const CaptureTable table = ascend_table(text);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(text_at(table, table.type[0]), "Cast");
  EXPECT_EQ(text_at(table, table.core[0]), "(none)");
  EXPECT_EQ(text_at(table, table.type[1]), "hcom_allReduce_");
  EXPECT_EQ(table.kind[1], KernelKind::kCollective);
  EXPECT_EQ(text_at(table, table.type[2]), "(none)") << "there is no name to make one of";
  EXPECT_TRUE(table.types_derived);
  EXPECT_EQ(finding_count(table.findings, "types-derived"), 2u);
}

// Row 9: no such column at all.
TEST(AscendCsv, NeedsOnlyANameAStartAndADuration) {
  const CaptureTable table = ascend_table("Name,Start Time(us),Duration(us)\nConv2D17,5.5,1\n");
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(text_at(table, table.type[0]), "Conv2D");
  EXPECT_EQ(table.start_ns[0], 5500);
}

// Row 11: not said is not zero.
TEST(AscendCsv, TellsNotSaidFromZero) {
  const CaptureTable zero = one_row({.device = "0", .stream = "0", .task = "0", .step = "0"});
  EXPECT_EQ(zero.device[0], 0);
  EXPECT_EQ(zero.stream[0], 0);
  EXPECT_EQ(zero.task[0], 0u);
  EXPECT_EQ(text_at(zero, zero.step[0]), "0");
  for (const std::string cell : {"N/A", "", "NaN", "-", "inf"}) {
    const CaptureTable table =
        one_row({.core = cell, .device = cell, .stream = cell, .task = cell, .step = cell});
    EXPECT_EQ(table.device[0], CaptureTable::kNoDevice) << cell;
    EXPECT_EQ(table.stream[0], CaptureTable::kNoStream) << cell;
    EXPECT_EQ(table.task[0], kNoIndex) << cell;
    EXPECT_EQ(table.step[0], kNoIndex) << cell;
    EXPECT_EQ(table.core[0], kNoIndex) << cell;
    EXPECT_EQ(dropped_as({.start = cell}), "no-start ") << cell;
    EXPECT_EQ(dropped_as({.duration = cell}), "no-duration ") << cell;
  }
}

TEST(AscendCsv, TakesNumbersThatAreNoneAsNotSaid) {
  const CaptureTable table = one_row({.device = "host", .stream = "3000000000", .task = "1.5"});
  EXPECT_EQ(table.device[0], CaptureTable::kNoDevice);
  EXPECT_EQ(table.stream[0], CaptureTable::kNoStream);
  EXPECT_EQ(table.task[0], kNoIndex);
  EXPECT_EQ(finding_count(table.findings, "odd-numbers"), 1u);
}

// Row 12.
TEST(AscendCsv, DropsStampsThatASpreadsheetRounded) {
  EXPECT_EQ(dropped_as({.start = "1.73641E+15"}), "start-exponent ");
  EXPECT_EQ(dropped_as({.start = "1.73641e15"}), "start-exponent ");
  EXPECT_EQ(ascend_error(ascend_text("H8", {{.start = "1.73641E+15"}})),
            "k.csv: none of the 1 rows can be used: 1 rows have a start such as 1.73641E+15: a "
            "spreadsheet has rounded it");
  EXPECT_EQ(one_row({.duration = "5E-2"}).duration_ns[0], 50) << "which loses nothing";
}

// Row 13.
TEST(AscendCsv, RefusesNumbersWithCommas) {
  for (const std::string time : {"\"1736413971558972,912\"", "\"1,736,413,971,558,972.912\""}) {
    EXPECT_EQ(ascend_error(ascend_text("H8", {{.start = time}})),
              "k.csv: record 2 has the time " + time +
                  "; write decimals with '.' and nothing between thousands");
    EXPECT_NE(ascend_error(ascend_text("H8", {{.duration = time}})), "no error");
  }
}

// Rows 14 and 25.
TEST(AscendCsv, DropsTimesThatCannotBe) {
  EXPECT_EQ(dropped_as({.start = "0"}), "start-not-positive ");
  EXPECT_EQ(dropped_as({.start = "-5.000"}), "start-not-positive ");
  EXPECT_EQ(dropped_as({.start = "5000000000000000.000"}), "time-out-of-range ");
  EXPECT_EQ(dropped_as({.start = "99999999999999999999"}), "not-a-number ");
  EXPECT_EQ(dropped_as({.duration = "4611686018427387.904"}), "time-out-of-range ");
  EXPECT_EQ(dropped_as({.duration = "-0.001"}), "duration-negative ");
  EXPECT_EQ(dropped_as({.start = "soon"}), "not-a-number ");
  EXPECT_EQ(dropped_as({.duration = "1.2.3"}), "not-a-number ");
}

// Row 25.
TEST(AscendCsv, KeepsRowsOfNoDuration) {
  const CaptureTable table = one_row({.duration = "0"});
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.duration_ns[0], 0);
}

// Row 24: the wait is never looked at.
TEST(AscendCsv, IgnoresTheWaitColumn) {
  for (const std::string wait : {"-17.5", "1e300", "N/A", "99999999999999999999", "x"}) {
    const CaptureTable table =
        ascend_table(kAscendHeaders.at("H0") + "\nCast,Cast,AI_CORE,5,1," + wait + ",0\n");
    ASSERT_EQ(table.size(), 1u) << wait;
    EXPECT_EQ(finding_codes(table.findings), "") << wait;
  }
}

// Row 21.
TEST(AscendCsv, KeepsRowsWithoutCounters) {
  const CaptureTable table = ascend_table(ascend_text("H8", {{.core = "AI_CPU", .start = "1"},
                                                             {.core = "DSA_SQE", .start = "2"},
                                                             {.core = "DVPP", .start = "3"}}));
  EXPECT_EQ(table.kind, (std::vector<KernelKind>{KernelKind::kAiCpu, KernelKind::kCompute,
                                                 KernelKind::kCompute}));
}

// Rows 18, 19, 20 and 35: all are kept, and told apart.
TEST(AscendCsv, KeepsEveryAccountOfACollective) {
  const CaptureTable table = ascend_table(ascend_text("H9", {{.name = "hcom_allReduce__503_0_1",
                                                              .type = "hcom_allReduce_",
                                                              .core = "COMMUNICATION",
                                                              .start = "1",
                                                              .stream = "N/A",
                                                              .task = "N/A"},
                                                             {.name = "AivKernel",
                                                              .type = "hcom_allReduce_",
                                                              .core = "COMMUNICATION",
                                                              .start = "2",
                                                              .stream = "149"},
                                                             {.name = "AivKernel",
                                                              .type = "hcom_allReduce_",
                                                              .core = "COMMUNICATION",
                                                              .start = "900",
                                                              .stream = "149"},
                                                             {.name = "allgatherAicpuKernel",
                                                              .type = "allgatherAicpuKernel",
                                                              .core = "AI_CPU",
                                                              .start = "1000",
                                                              .stream = "99"}}));
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table.kind,
            (std::vector<KernelKind>{KernelKind::kCollective, KernelKind::kFragment,
                                     KernelKind::kFragment, KernelKind::kAiCpuCollective}));
  EXPECT_EQ(finding_count(table.findings, "collectives-repeated"), 3u);
}

// Row 28: a task number that came again is another task.
TEST(AscendCsv, DoesNotTakeTheTaskNumberForAKey) {
  const CaptureTable table = ascend_table(
      ascend_text("H8", {{.start = "1", .task = "65535"}, {.start = "2", .task = "65535"}}));
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.dropped_count, 0u);
}

// Row 29.
TEST(AscendCsv, TakesInvalidNumbersAsAbsent) {
  const CaptureTable table =
      one_row({.device = "4294967295", .stream = "4294967295", .task = "4294967295"});
  EXPECT_EQ(table.device[0], CaptureTable::kNoDevice);
  EXPECT_EQ(table.stream[0], CaptureTable::kNoStream);
  EXPECT_EQ(table.task[0], kNoIndex);
  EXPECT_EQ(one_row({.stream = "-1"}).stream[0], CaptureTable::kNoStream);
  EXPECT_EQ(finding_codes(table.findings), "");
}

// Row 30.
TEST(AscendCsv, KeepsRowsOutsideOfAllSteps) {
  const CaptureTable table =
      ascend_table(ascend_text("H8", {{.start = "1", .step = ""}, {.start = "2", .step = "7"}}));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table.step[0], kNoIndex);
  EXPECT_EQ(text_at(table, table.step[1]), "7");
  EXPECT_EQ(finding_count(table.findings, "rows-outside-steps"), 1u);
}

// Row 47.
TEST(AscendCsv, TakesBytesAsTheyAre) {
  const std::string name = "\xd6\xd0\xce\xc4/\xff\x01 op\"s";
  const CaptureTable table = one_row({.name = name});
  EXPECT_EQ(text_at(table, table.name[0]), name);
}

// Row 45: sums are exact, so that they can be held against those of step_trace_time.csv.
TEST(AscendCsv, GivesExactSums) {
  std::vector<AscendRowCells> rows(1000);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].start = std::to_string(1764246877073569 + static_cast<int64_t>(i));
    rows[i].duration = "231.290";
  }
  const CaptureTable table = ascend_table(ascend_text("H9", rows));
  EXPECT_EQ(kernel_sums(table)[0].duration_ns, 231290000);
}

// Row 13: decimal commas without quotes make two cells of one.
TEST(AscendCsv, RefusesATableWhoseRowsAllHaveMoreCells) {
  const std::string text =
      "Name,Type,Start Time(us),Duration(us)\na,A,1000,250,5,125\nb,B,2000,250,6,125\n";
  const Result<CaptureTable> table = read_ascend_csv(
      InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "commas.csv"));
  ASSERT_FALSE(table.has_value());
  EXPECT_NE(table.error().message.find("decimal commas"), std::string::npos)
      << table.error().message;
}

}  // namespace
}  // namespace gapless
