// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_header.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/ascend_csv_test_support.h"

namespace gapless {
namespace {

std::optional<AscendHeader> header_of(std::string_view line) {
  const std::vector<CsvField> cells = split_cells(line, ',');
  return parse_ascend_header(cells);
}

// Row 8.
TEST(AscendHeader, KnowsTheHeadersOfAllYears) {
  for (const auto& [name, line] : kAscendHeaders) {
    const std::optional<AscendHeader> header = header_of(line);
    ASSERT_TRUE(header.has_value()) << name;
    EXPECT_TRUE(header->has(AscendColumn::kType)) << name;
    EXPECT_TRUE(header->has(AscendColumn::kCore)) << name;
    EXPECT_EQ(header->repeated_count, 0u) << name;
    const bool has_step = line.starts_with("Step I");
    EXPECT_EQ(header->has(AscendColumn::kStep), has_step) << name;
    EXPECT_EQ(header->has(AscendColumn::kDevice), line.find("Device_id") != std::string::npos);
    EXPECT_EQ(header->has(AscendColumn::kStream), line.find("Stream ID") != std::string::npos);
    EXPECT_EQ(header->has(AscendColumn::kInputShapes), line.find("Input S") != std::string::npos);
    EXPECT_TRUE(looks_like_ascend_csv(line)) << name;
  }
}

// Row 8: A and B names mixed, as wrappers do.
TEST(AscendHeader, TakesNamesOfBothTools) {
  const std::optional<AscendHeader> header =
      header_of("Op Name,Type,Task Type,Start Time(us),Task Duration(us)");
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->place(AscendColumn::kName), 0u);
  EXPECT_EQ(header->place(AscendColumn::kCore), 2u);
  EXPECT_EQ(header->place(AscendColumn::kStart), 3u);
  EXPECT_EQ(header->place(AscendColumn::kDuration), 4u);
}

TEST(AscendHeader, IgnoresCaseSpacesQuotesAndAByteOrderMark) {
  const std::optional<AscendHeader> header =
      header_of("\xef\xbb\xbf\"NAME\", start time (us) ,DURATION(US),device id");
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->place(AscendColumn::kName), 0u);
  EXPECT_EQ(header->place(AscendColumn::kDevice), 3u);
}

TEST(AscendHeader, TakesTheFirstOfTwoColumnsThatSayTheSame) {
  const std::optional<AscendHeader> header =
      header_of("Name,Start Time(us),Task Start Time(us),Duration(us)");
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->place(AscendColumn::kStart), 1u);
  EXPECT_EQ(header->repeated_count, 1u);
}

TEST(AscendHeader, IsNoneOfTheOtherFilesBesideIt) {
  for (const std::string_view line :
       {"Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage",
        "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)",
        "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us)",
        "kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)",
        "Device_id,Stream Id,Task Id,Hit Rate,Victim Rate,Op Name", "", "Name", "{\"a\": 1}"}) {
    EXPECT_FALSE(header_of(line).has_value()) << line;
    EXPECT_FALSE(looks_like_ascend_csv(line)) << line;
  }
}

TEST(AscendHeader, FindsOtherSeparators) {
  EXPECT_EQ(foreign_separator("Name;Type;Start Time(us);Duration(us)"), ';');
  EXPECT_EQ(foreign_separator("Name\tStart Time(us)\tDuration(us)"), '\t');
  EXPECT_EQ(foreign_separator("Name,Start Time(us),Duration(us)"), 0);
  EXPECT_EQ(foreign_separator(""), 0);
}

TEST(AscendHeader, LooksAtTheFirstLineOnly) {
  EXPECT_TRUE(looks_like_ascend_csv("\r\n\nName,Start Time(us),Duration(us)\r\nx,1,2\r\n"));
  EXPECT_FALSE(looks_like_ascend_csv("hello\nName,Start Time(us),Duration(us)\n"));
}

}  // namespace
}  // namespace gapless
