// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_step_trace.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "formats/ascend_folder_test_support.h"

namespace gapless {
namespace {

StepTrace trace_of_text(std::string_view text) {
  Result<StepTrace> trace = read_step_trace(stream_of_text(text, "s.csv"));
  EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
  return trace ? std::move(*trace) : StepTrace{};
}

// The two steps checked against a step trace of this text.
CaptureTable checked(std::string_view text, const std::string& header = "H8") {
  CaptureTable table = ascend_table(ascend_text(header, two_steps()));
  check_step_trace(trace_of_text(text), "ascend.", table);
  return table;
}

std::string lines(std::string_view rows) {
  return std::string(kStepTraceHeader) + std::string(rows);
}

TEST(StepTrace, ReadsSumsOfDoublesAsNanoseconds) {
  const StepTrace trace =
      trace_of_text(lines("0,50,231290.09999999995,1e-3,,420174.26,-0.0005,\n"));
  EXPECT_EQ(trace.unread_count, 1u) << "eleven columns, eight cells";
  const StepTrace whole =
      trace_of_text(lines("-1,50,231290.09999999995,1e-3,,420174.26,0.0005,2,0,0,3\n"));
  ASSERT_EQ(whole.rows.size(), 1u);
  const StepTraceRow& row = whole.rows[0];
  EXPECT_FALSE(row.device.has_value()) << "-1 is no device";
  EXPECT_EQ(row.step, "50");
  EXPECT_EQ(row.at(StepTime::kComputing), 231'290'100);
  EXPECT_EQ(row.at(StepTime::kNotOverlapped), 1);
  EXPECT_FALSE(row.at(StepTime::kOverlapped).has_value());
  EXPECT_EQ(row.at(StepTime::kCommunication), 420'174'260);
  EXPECT_EQ(row.at(StepTime::kFree), 1) << "half away from zero";
  EXPECT_EQ(row.at(StepTime::kPreparing), 3000);
}

TEST(StepTrace, ReadsOldHeadersAndByteOrderMarks) {
  const std::string old =
      "\xef\xbb\xbfStep,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\r\n"
      ",30,5,0,5,0";
  EXPECT_TRUE(looks_like_step_trace(old));
  const StepTrace trace = trace_of_text(old);
  ASSERT_EQ(trace.rows.size(), 1u);
  EXPECT_EQ(trace.rows[0].step, "");
  EXPECT_EQ(trace.rows[0].at(StepTime::kCommunication), 5000);
}

TEST(StepTrace, KnowsWhatIsNone) {
  for (const std::string_view text :
       {"", "Step,Computing", "Name,Start Time(us),Duration(us)",
        "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free"}) {
    EXPECT_FALSE(looks_like_step_trace(text)) << text;
    const Result<StepTrace> trace = read_step_trace(stream_of_text(text, "s.csv"));
    ASSERT_FALSE(trace.has_value()) << text;
    EXPECT_TRUE(trace.error().message.starts_with("s.csv: no step trace: ")) << text;
  }
}

TEST(StepTrace, AgreesWithEveryStep) {
  const CaptureTable table = checked(two_steps_trace());
  ASSERT_NE(find_finding(table, "step-trace-agrees"), nullptr) << finding_codes(table.findings);
  EXPECT_EQ(find_finding(table, "step-trace-agrees")->count, 2u);
  EXPECT_EQ(finding_text(table, "step-trace-agrees"),
            "s.csv: 2 of 2 sums are those of the rows: computing 30.000 us against 30.000 us of 2 "
            "kernels, communication 5.000 us against 5.000 us of 1 collectives, computing + not "
            "overlapped + free 35.000 us against stage + bubble 35.000 us");
  EXPECT_EQ(property_of(table, "ascend.step_trace.computing_ns"), "60000");
  EXPECT_EQ(property_of(table, "ascend.step_trace.communication_ns"), "12000");
  EXPECT_EQ(property_of(table, "ascend.step_trace.free_ns"), "5000");
  EXPECT_EQ(property_of(table, "ascend.step_trace.bubble_ns"), "2000");
}

TEST(StepTrace, ComparesTheWholeWhereTheTableHasNoSteps) {
  for (const std::string_view rows :
       {"0,,60,12,0,12,5,75,2,12,1\n", "0,50,30,5,0,5,0,35,0,5,1\n0,51,30,7,0,7,5,40,2,7,1\n"}) {
    const CaptureTable table = checked(lines(rows), "H9");
    ASSERT_NE(find_finding(table, "step-trace-agrees"), nullptr) << rows;
    EXPECT_EQ(find_finding(table, "step-trace-agrees")->count, 1u);
  }
  const CaptureTable unnamed = checked(lines("0,,60,12,0,12,5,75,2,12,1\n"));
  EXPECT_NE(find_finding(unnamed, "step-trace-agrees"), nullptr) << "the table has steps";
}

// Row 45.
TEST(StepTrace, SaysWhatDiffers) {
  const CaptureTable computing =
      checked(lines("0,50,30,5,0,5,0,35,0,5,1\n0,51,31.1,7,0,7,5,41.1,2,7,1\n"));
  ASSERT_NE(find_finding(computing, "step-trace-differs"), nullptr);
  EXPECT_EQ(find_finding(computing, "step-trace-differs")->severity, Severity::kWarning);
  EXPECT_EQ(find_finding(computing, "step-trace-differs")->count, 1u);
  EXPECT_TRUE(finding_text(computing, "step-trace-differs")
                  .starts_with("s.csv: 1 of 2 sums are those of the rows: computing 31.100 us "
                               "against 30.000 us of 1 kernels, communication 7.000 us"));
  const CaptureTable communication = checked(lines("0,50,30,5,0,12,0,35,0,5,1\n"));
  EXPECT_NE(find_finding(communication, "step-trace-differs"), nullptr);
  const CaptureTable stage = checked(lines("0,50,30,5,0,5,0,37,0,5,1\n"));
  EXPECT_NE(find_finding(stage, "step-trace-differs"), nullptr);
  const CaptureTable step = checked(lines("0,52,30,5,0,5,0,35,0,5,1\n"));
  EXPECT_NE(find_finding(step, "step-trace-differs"), nullptr) << "no rows of that step";
}

TEST(StepTrace, AllowsOneNanosecondARowAndOneMicrosecond) {
  const CaptureTable within = checked(lines("0,50,31.002,5,0,6.001,0,36.002,0,5,1\n"));
  EXPECT_NE(find_finding(within, "step-trace-agrees"), nullptr);
  const CaptureTable beyond = checked(lines("0,50,31.003,5,0,5,0,36.003,0,5,1\n"));
  EXPECT_NE(find_finding(beyond, "step-trace-differs"), nullptr);
}

// Kernels of two streams at the same time are one in the profiler's overlap analysis.
TEST(StepTrace, TakesTheUnionForTheSumToo) {
  std::vector<AscendRowCells> rows = {{.start = "1000", .duration = "10"},
                                      {.start = "1005", .duration = "10", .stream = "149"}};
  CaptureTable table = ascend_table(ascend_text("H8", rows));
  check_step_trace(trace_of_text(lines("0,50,15,0,0,0,0,15,0,0,0\n")), "ascend.", table);
  EXPECT_NE(find_finding(table, "step-trace-agrees"), nullptr);
}

TEST(StepTrace, KeepsDevicesApart) {
  std::vector<AscendRowCells> rows = two_steps("0");
  for (AscendRowCells& row : two_steps("3")) rows.push_back(row);
  CaptureTable table = ascend_table(ascend_text("H8", rows));
  const std::string both =
      two_steps_trace() + "3,50,30,5,0,5,0,35,0,5,1\n3,51,30,7,0,7,5,40,2,7,1\n";
  check_step_trace(trace_of_text(both), "ascend.", table);
  ASSERT_NE(find_finding(table, "step-trace-agrees"), nullptr);
  EXPECT_EQ(find_finding(table, "step-trace-agrees")->count, 4u);
  CaptureTable other = ascend_table(ascend_text("H8", rows));
  check_step_trace(trace_of_text(lines("5,50,30,5,0,5,0,35,0,5,1\n")), "ascend.", other);
  EXPECT_NE(find_finding(other, "step-trace-differs"), nullptr) << "there is no device 5";
}

TEST(StepTrace, CountsLinesThatAreNoSteps) {
  const CaptureTable table = checked(
      lines("0,50,30,5,0,5,0,35,0,5,1\nx,51,1,1,1,1,1,1,1,1,1\n0,51,a,7,0,7,5,40,2,7,1\n\n"));
  EXPECT_EQ(finding_count(table.findings, "step-trace-unread"), 2u);
  EXPECT_EQ(finding_count(table.findings, "step-trace-agrees"), 1u);
}

TEST(StepTrace, SurvivesHugeNumbers) {
  const CaptureTable table = checked(
      lines("0,50,4611686018427387.9,4611686018427387,0,5,4611686018427387,4611686018427387,"
            "4611686018427387,5,1\n0,50,-4611686018427387,0,0,9e99,0,0,0,0,0\n"));
  EXPECT_EQ(finding_count(table.findings, "step-trace-differs"), 1u);
  EXPECT_EQ(finding_count(table.findings, "step-trace-unread"), 1u);
}

TEST(StepTrace, ReadsFilesCutAtEveryByte) {
  const std::string text = two_steps_trace();
  for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
    const std::string cut = text.substr(0, bytes);
    Result<StepTrace> trace = read_step_trace(stream_of_text(cut, "s.csv"));
    if (!trace) {
      EXPECT_LT(bytes, kStepTraceHeader.size());
      continue;
    }
    EXPECT_LE(trace->rows.size() + trace->unread_count, 2u);
    CaptureTable table = ascend_table(ascend_text("H8", two_steps()));
    check_step_trace(*trace, "ascend.", table);
    const uint64_t said = finding_count(table.findings, "step-trace-agrees") +
                          finding_count(table.findings, "step-trace-differs");
    EXPECT_EQ(said > 0, !trace->rows.empty());
  }
}

}  // namespace
}  // namespace gapless
