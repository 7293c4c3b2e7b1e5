// SPDX-License-Identifier: Apache-2.0

#include "formats/row_text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "base/test_effort.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_csv_test_support.h"
#include "formats/ascend_csv_writer.h"

namespace gapless {
namespace {

CaptureTable read_paths(const std::vector<std::string>& paths, bool keep_duplicates = false) {
  Result<CaptureTable> table = read_ascend_csv(paths, {.keep_duplicates = keep_duplicates});
  EXPECT_TRUE(table.has_value()) << (table ? "" : table.error().message);
  return table ? std::move(*table) : CaptureTable{};
}

std::string text_of(const std::string& path) {
  Result<std::string> text = read_text_file(path);
  return text ? std::move(*text) : "(" + text.error().message + ")";
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
            static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

std::vector<uint32_t> rows_in_file_order(const CaptureTable& table) {
  std::vector<uint32_t> rows(table.size());
  std::iota(rows.begin(), rows.end(), 0u);
  std::sort(rows.begin(), rows.end(), [&table](uint32_t a, uint32_t b) {
    return std::pair(table.source[a], table.text_offset[a]) <
           std::pair(table.source[b], table.text_offset[b]);
  });
  return rows;
}

std::string written(const CaptureTable& table, const std::vector<uint32_t>& rows) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out.csv");
  const Result<uint64_t> bytes = write_row_text(table, rows, path);
  if (!bytes) return "(" + bytes.error().message + ")";
  std::string text = text_of(path);
  EXPECT_EQ(*bytes, text.size());
  return text;
}

std::string error_of(const CaptureTable& table, const std::vector<uint32_t>& rows) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out.csv");
  const Result<uint64_t> bytes = write_row_text(table, rows, path);
  EXPECT_FALSE(std::filesystem::exists(path));
  return bytes ? "no error" : bytes.error().message;
}

// Kernels and collectives of two devices with shapes and steps, in the order of their start.
CaptureTable made_table(uint32_t row_count, uint64_t seed) {
  std::mt19937_64 random(seed);
  CaptureTable table;
  const auto id = [&table](std::string_view text) { return table.names.intern(text); };
  int64_t start_ns = 1'764'246'877'073'569'640;
  for (uint32_t i = 0; i < row_count; ++i) {
    const bool is_collective = random() % 5 == 0;
    KernelRow row;
    row.start_ns = start_ns;
    row.duration_ns = static_cast<int64_t>(random() % 5000) * 20;
    row.device = static_cast<int32_t>(i * 2 / row_count);
    row.stream = is_collective ? -1 : static_cast<int32_t>(random() % 4);
    row.task = is_collective ? kNoIndex : i % 7;
    row.name = id(is_collective ? "hcom_allReduce__503_" + std::to_string(i) + "_1"
                                : "aclnnMatmul_MatMulCommon_MatMulV2");
    row.type = id(is_collective ? "hcom_allReduce_" : "MatMulV2");
    row.core = id(is_collective ? "COMMUNICATION" : "AI_CORE");
    row.input_shapes = is_collective ? kNoIndex : id("16,5120;5120,768;;");
    row.output_shapes = is_collective ? kNoIndex : id("16,768");
    row.step = id(std::to_string(50 + i / 4));
    row.kind = is_collective ? KernelKind::kCollective : KernelKind::kCompute;
    table.append(row);
    start_ns += row.duration_ns + 20;
  }
  return table;
}

// What rows are, whatever numbers their texts have.
std::vector<std::string> row_keys(const CaptureTable& table, const std::vector<uint32_t>& rows) {
  std::vector<std::string> keys;
  for (const uint32_t row : rows) {
    keys.push_back(
        fmt::format("{} {} {} {} {} {} {}", table.device[row], table.start_ns[row],
                    table.duration_ns[row], table.stream[row], text_at(table, table.name[row]),
                    text_at(table, table.input_shapes[row]), text_at(table, table.step[row])));
  }
  return keys;
}

std::vector<AscendWriteOptions> all_quirks() {
  std::vector<AscendWriteOptions> quirks(10);
  quirks[1].start_style = AscendStartStyle::kQuotedTab;
  quirks[2].start_style = AscendStartStyle::kPlain;
  quirks[3].triple_quotes = false;
  quirks[4].trims_zeros = true;
  quirks[5].carriage_returns = false;
  quirks[6].byte_order_mark = true;
  quirks[7].ends_with_line_break = false;
  quirks[8].naming = AscendNaming::kOpSummary;
  quirks[9].naming = AscendNaming::kMixed;
  return quirks;
}

class RowTextOfHeader : public testing::TestWithParam<int> {};

TEST_P(RowTextOfHeader, IsWrittenBackByteForByteWithEveryQuirk) {
  const TemporaryDirectory directory;
  const CaptureTable made = made_table(12, 1);
  const std::string path = directory.path("k.csv");
  for (AscendWriteOptions options : all_quirks()) {
    options.header = GetParam();
    ASSERT_TRUE(write_ascend_csv(made, path, options).has_value());
    const CaptureTable table = read_paths({path}, true);
    ASSERT_EQ(table.size(), made.size());
    std::string expected = text_of(path);
    if (!options.ends_with_line_break) expected += options.carriage_returns ? "\r\n" : "\n";
    ASSERT_EQ(written(table, rows_in_file_order(table)), expected);
    write_gzip(directory.path("k.csv.gz"), text_of(path));
    const CaptureTable packed = read_paths({directory.path("k.csv.gz")}, true);
    ASSERT_EQ(written(packed, rows_in_file_order(packed)), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Headers, RowTextOfHeader, testing::Range(0, kAscendHeaderCount));

TEST(RowText, WritesSubsetsInAnyOrderThatReadAsThoseRows) {
  const TemporaryDirectory directory;
  std::mt19937_64 random(7);
  for (uint32_t round = 0; round < test_effort(30); ++round) {
    const CaptureTable made = made_table(40, round);
    const std::string path = directory.path("k.csv");
    AscendWriteOptions options = all_quirks()[round % 10];
    options.header = 8 + static_cast<int>(round % 3);
    ASSERT_TRUE(write_ascend_csv(made, path, options).has_value());
    const bool is_packed = round % 2 == 1;
    if (is_packed) write_gzip(directory.path("k.gz"), text_of(path));
    const CaptureTable table = read_paths({is_packed ? directory.path("k.gz") : path});
    std::vector<uint32_t> rows;
    for (uint32_t row = 0; row < table.size(); ++row) {
      if (random() % 3 != 0) rows.push_back(row);
    }
    if (rows.empty()) continue;
    std::vector<uint32_t> shuffled = rows;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    ASSERT_TRUE(write_row_text(table, shuffled, directory.path("out.csv")).has_value());
    const CaptureTable again = read_paths({directory.path("out.csv")});
    std::vector<uint32_t> all(again.size());
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(row_keys(again, all), row_keys(table, rows));
  }
}

TEST(RowText, WritesARowAsOftenAsItIsWanted) {
  const TemporaryDirectory directory;
  const std::string text = ascend_text("H9", {{.start = "10.5"}, {.start = "20.5"}}, "\n");
  ASSERT_TRUE(write_text_file(directory.path("k.csv"), text).has_value());
  write_gzip(directory.path("k.gz"), text);
  const std::string& header = kAscendHeaders.at("H9");
  const std::string first = ascend_row(header, {.start = "10.5"}) + "\n";
  const std::string second = ascend_row(header, {.start = "20.5"}) + "\n";
  for (const std::string name : {"k.csv", "k.gz"}) {
    const CaptureTable table = read_paths({directory.path(name)});
    EXPECT_EQ(written(table, {1, 0, 1}), header + "\n" + second + first + second) << name;
    EXPECT_EQ(written(table, {}), header + "\n") << name;
  }
}

TEST(RowText, KeepsNamesOverSeveralLinesAndLeavesOutRepeatedHeaders) {
  const TemporaryDirectory directory;
  const std::string& header = kAscendHeaders.at("H8");
  const std::string a =
      ascend_row(header, {.name = "\"two\r\nlines, \"\"quoted\"\"\"", .start = "1"});
  const std::string b = ascend_row(header, {.start = "2"});
  const std::string text = "\r\n" + header + "\r\n" + a + "\r\n" + header + "\r\n\r\n" + b + "\r\n";
  ASSERT_TRUE(write_text_file(directory.path("k.csv"), text).has_value());
  const CaptureTable table = read_paths({directory.path("k.csv")});
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(written(table, {0, 1}), header + "\r\n" + a + "\r\n" + b + "\r\n");
}

TEST(RowText, JoinsSlicesWithOneHeaderAndRefusesTwo) {
  const TemporaryDirectory directory;
  const std::string a = directory.path("a.csv");
  const std::string b = directory.path("b.csv");
  const std::string c = directory.path("c.csv");
  ASSERT_TRUE(write_text_file(a, ascend_text("H8", {{.start = "1"}, {.start = "3"}})).has_value());
  ASSERT_TRUE(write_text_file(b, ascend_text("H8", {{.start = "2"}}, "\n")).has_value());
  ASSERT_TRUE(write_text_file(c, ascend_text("H9", {{.start = "4"}})).has_value());
  const CaptureTable table = read_paths({a, b, c});
  ASSERT_EQ(table.size(), 4u);
  const std::string& header = kAscendHeaders.at("H8");
  EXPECT_EQ(written(table, {0, 1, 2}), header + "\r\n" + ascend_row(header, {.start = "1"}) +
                                           "\r\n" + ascend_row(header, {.start = "2"}) + "\n" +
                                           ascend_row(header, {.start = "3"}) + "\r\n");
  const std::string message = error_of(table, {1, 3});
  EXPECT_TRUE(message.starts_with(b + " and " + c + ": ")) << message;
  EXPECT_NE(message.find("headers differ"), std::string::npos) << message;
}

// One file in which the header changes is two sources.
TEST(RowText, TakesTheHeaderThatFitsTheRows) {
  const TemporaryDirectory directory;
  const std::string text =
      ascend_text("H8", {{.start = "1"}}) + ascend_text("H9", {{.start = "2"}});
  ASSERT_TRUE(write_text_file(directory.path("k.csv"), text).has_value());
  const CaptureTable table = read_paths({directory.path("k.csv")});
  ASSERT_EQ(table.sources.size(), 2u);
  EXPECT_EQ(written(table, {0}), ascend_text("H8", {{.start = "1"}}));
  EXPECT_EQ(written(table, {1}), ascend_text("H9", {{.start = "2"}}));
  EXPECT_NE(error_of(table, {0, 1}).find("headers differ"), std::string::npos);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(RowText, FindsThatAFileChanged) {
  const TemporaryDirectory directory;
  const std::string text = ascend_text("H8", {{.start = "10"}, {.start = "20"}});
  const std::vector<std::string> changed = {
      replaced(text, "61.220", "061.220"),     // everything behind it moved
      replaced(text, "61.220", "61.230"),      // another duration
      replaced(text, "Model ID", "Model No"),  // another header
      "\xef\xbb\xbf" + text,
      text.substr(0, text.size() - 20),
      "",
      text.substr(3)};
  for (const std::string name : {"k.csv", "k.gz"}) {
    const std::string path = directory.path(name);
    const auto write = [&](const std::string& content) {
      if (name == "k.gz") return write_gzip(path, content);
      ASSERT_TRUE(write_text_file(path, content).has_value());
    };
    write(text);
    const CaptureTable table = read_paths({path});
    ASSERT_EQ(table.size(), 2u);
    ASSERT_EQ(written(table, {0, 1}), text);
    for (size_t i = 0; i < changed.size(); ++i) {
      write(changed[i]);
      const std::string message = error_of(table, {0, 1});
      EXPECT_TRUE(message.starts_with(path + ": changed since it was read: ")) << i << message;
    }
    std::filesystem::remove(path);
    EXPECT_NE(error_of(table, {0}).find(path), std::string::npos);
  }
}

// Only the last row may lose its line end and still be whole.
TEST(RowText, FindsThatAFileWasCutAnywhere) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("k.csv");
  const std::string text =
      ascend_text("H0", {{.name = "a", .start = "10"}, {.name = "b", .start = "20"}});
  ASSERT_TRUE(write_text_file(path, text).has_value());
  const CaptureTable table = read_paths({path});
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    std::ofstream(path, std::ios::binary) << text.substr(0, bytes);
    const Result<uint64_t> result =
        write_row_text(table, std::vector<uint32_t>{0, 1}, directory.path("out.csv"));
    EXPECT_EQ(result.has_value(), bytes + 2 >= text.size()) << bytes;
    if (result) {
      EXPECT_EQ(text_of(directory.path("out.csv")), text);
    } else {
      EXPECT_NE(result.error().message.find("changed since it was read"), std::string::npos);
    }
  }
}

TEST(RowText, NeedsATableWithText) {
  CaptureTable table = made_table(3, 1);
  table.format = "ascend-db";
  table.sources.emplace_back().path = "k.db";
  EXPECT_EQ(error_of(table, {0}),
            "k.db: rows of ascend-db have no text of their own; only those of CSV tables can be "
            "written as they stand");
}

}  // namespace
}  // namespace gapless
