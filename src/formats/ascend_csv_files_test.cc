// SPDX-License-Identifier: Apache-2.0
//
// Kernel tables as files: encodings and line ends, slices and devices, their order, duplicates,
// what is no table, and the way back to the bytes. "Row 7" in a comment is a row of the robustness
// table.

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_csv_test_support.h"
#include "trace/capture_trace.h"

namespace gapless {
namespace {

std::vector<AscendRowCells> rows_at(const std::vector<std::string>& starts) {
  std::vector<AscendRowCells> rows;
  for (const std::string& start : starts) rows.push_back({.start = start});
  return rows;
}

// The texts as files, read as one capture.
Result<CaptureTable> read_files(const std::vector<std::string>& texts,
                                const AscendCsvOptions& options = {}) {
  const TemporaryDirectory directory;
  std::vector<std::string> paths;
  for (const std::string& text : texts) {
    paths.push_back(directory.path(std::to_string(paths.size())));
    EXPECT_TRUE(write_text_file(paths.back(), text).has_value());
  }
  return read_ascend_csv(paths, options);
}

std::vector<int64_t> starts_us(const CaptureTable& table) {
  std::vector<int64_t> starts;
  for (const int64_t ns : table.start_ns) starts.push_back(ns / 1000);
  return starts;
}

std::string utf16(std::string_view text, bool is_big_endian) {
  std::string wide = is_big_endian ? "\xfe\xff" : "\xff\xfe";
  for (const char c : text) wide += is_big_endian ? std::string{'\0', c} : std::string{c, '\0'};
  return wide;
}

// Row 1.
TEST(AscendCsvFiles, PassesOverAByteOrderMark) {
  const CaptureTable table = ascend_table("\xef\xbb\xbf" + ascend_text("H8", {AscendRowCells{}}));
  ASSERT_EQ(table.size(), 1u);
  EXPECT_TRUE(table.sources[0].has_byte_order_mark);
  EXPECT_EQ(table.sources[0].header, kAscendHeaders.at("H8"));
}

// Row 1.
TEST(AscendCsvFiles, ExplainsUtf16) {
  for (const bool is_big_endian : {false, true}) {
    const std::string text = utf16(ascend_text("H8", {AscendRowCells{}}), is_big_endian);
    EXPECT_TRUE(looks_like_ascend_csv(text));
    EXPECT_EQ(ascend_error(text), "k.csv: UTF-16 text; run `iconv -f UTF-16 -t UTF-8` on it first");
  }
}

// Row 2.
TEST(AscendCsvFiles, TakesAnyLineEnd) {
  const std::vector<AscendRowCells> rows = rows_at({"1", "2", "3"});
  std::string mixed = ascend_text("H8", rows, "\r\n");
  mixed.replace(mixed.find("\r\n"), 2, "\n");
  std::string unfinished = ascend_text("H8", rows, "\n");
  unfinished.pop_back();
  for (const std::string& text : {ascend_text("H8", rows, "\r\n"), ascend_text("H8", rows, "\n"),
                                  mixed, unfinished, ascend_text("H8", rows, "\r\n") + "\r\n"}) {
    const CaptureTable table = ascend_table(text);
    EXPECT_EQ(starts_us(table), (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(table.dropped_count, 0u);
  }
  EXPECT_EQ(ascend_table(ascend_text("H8", rows, "\r\n")).sources[0].line_end, "\r\n");
  EXPECT_EQ(ascend_table(ascend_text("H8", rows, "\n")).sources[0].line_end, "\n");
}

TEST(AscendCsvFiles, DropsTheRowInWhichAFileStops) {
  std::string text = ascend_text("H8", rows_at({"1", "2"}));
  text.resize(text.size() - 40);
  const CaptureTable table = ascend_table(text);
  EXPECT_EQ(starts_us(table), std::vector<int64_t>{1});
  EXPECT_EQ(finding_codes(table.findings), "row-cut-short ");
}

// Row 13.
TEST(AscendCsvFiles, ExplainsOtherSeparators) {
  std::string text = ascend_text("H0", {AscendRowCells{.start = "1736413971558972"}});
  std::replace(text.begin(), text.end(), ',', ';');
  EXPECT_TRUE(looks_like_ascend_csv(text));
  EXPECT_EQ(ascend_error(text),
            "k.csv: columns are separated by ';', as a spreadsheet saves them; separate them by "
            "',' and write decimals with '.'");
  std::replace(text.begin(), text.end(), ';', '\t');
  EXPECT_NE(ascend_error(text).find("separated by a tab,"), std::string::npos);
}

// Row 40.
TEST(AscendCsvFiles, ExplainsLfsPointers) {
  const std::string text =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 467330\n";
  EXPECT_TRUE(looks_like_lfs_pointer(text));
  EXPECT_EQ(ascend_error(text),
            "k.csv: a git-lfs pointer in the place of the file (size 467330 bytes); run `git lfs "
            "pull` in its repository first");
}

TEST(AscendCsvFiles, ExplainsWhatIsNoTable) {
  EXPECT_EQ(ascend_error(""), "k.csv: empty; a kernel table begins with a header");
  EXPECT_EQ(ascend_error("\n\n"), "k.csv: empty; a kernel table begins with a header");
  EXPECT_EQ(ascend_error("OP Type,Count,Duration(us)\nx,1,2\n"),
            "k.csv: no kernel table: its first line has no column Name, Start Time(us); it begins "
            "with \"OP Type,Count,Duration(us)\"");
  EXPECT_EQ(ascend_error("PK\x03\x04zzzz"),
            "k.csv: a zip archive or a spreadsheet; unpack it, or export the CSV file again");
  const Result<CaptureTable> missing = read_ascend_csv(std::vector<std::string>{"/nowhere/k.csv"});
  EXPECT_EQ(missing.error().message, "/nowhere/k.csv: cannot open: No such file or directory");
  EXPECT_FALSE(read_ascend_csv(std::vector<std::string>{}).has_value());
}

TEST(AscendCsvFiles, TakesATableOfNoRows) {
  const CaptureTable table = ascend_table(ascend_text("H8", {}));
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(finding_codes(table.findings), "no-rows ");
}

// Row 15: blocks in any order, as slices are put together.
TEST(AscendCsvFiles, PutsRowsInOrderAndCountsTheBreaks) {
  const CaptureTable table =
      ascend_table(ascend_text("H8", rows_at({"50", "60", "10", "20", "30", "5", "60"})));
  EXPECT_EQ(starts_us(table), (std::vector<int64_t>{5, 10, 20, 30, 50, 60}));
  EXPECT_EQ(table.order_break_count, 2u);
  EXPECT_EQ(finding_count(table.findings, "order-breaks"), 2u);
  EXPECT_EQ(finding_count(table.findings, "duplicate-rows"), 1u) << "60 is there twice";
}

// Row 16: the exporter sorts devices as texts; a block of another device is no break.
TEST(AscendCsvFiles, KeepsDevicesApart) {
  const CaptureTable table = ascend_table(ascend_text("H9", {{.start = "10", .device = "10"},
                                                             {.start = "20", .device = "10"},
                                                             {.start = "11", .device = "2"},
                                                             {.start = "21", .device = "2"}}));
  EXPECT_EQ(table.device, (std::vector<int32_t>{2, 2, 10, 10}));
  EXPECT_EQ(starts_us(table), (std::vector<int64_t>{11, 21, 10, 20}));
  EXPECT_EQ(table.order_break_count, 0u);
}

// Rows 15 and 44: slices that were given in any order.
TEST(AscendCsvFiles, MergesSlices) {
  const Result<CaptureTable> table = read_files({ascend_text("H9", rows_at({"30", "40"})),
                                                 ascend_text("H9", rows_at({"10", "20"})),
                                                 ascend_text("H9", rows_at({"50", "60"}))});
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(starts_us(*table), (std::vector<int64_t>{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(table->source, (std::vector<uint32_t>{1, 1, 0, 0, 2, 2}));
  ASSERT_EQ(table->sources.size(), 3u);
  EXPECT_EQ(table->sources[2].row_count, 2u);
  EXPECT_EQ(finding_codes(table->findings), "order-breaks ");
}

// Rows that start together stay in the order of the files.
TEST(AscendCsvFiles, BreaksTiesByTheOrderOfFiles) {
  const Result<CaptureTable> table =
      read_files({ascend_text("H9", {{.name = "b", .start = "5"}, {.name = "a", .start = "5"}}),
                  ascend_text("H9", {{.name = "c", .start = "5"}, {.name = "a", .start = "5"}})});
  ASSERT_TRUE(table.has_value());
  std::string names;
  for (const uint32_t name : table->name) names += text_at(*table, name);
  EXPECT_EQ(names, "bac");
}

// Row 17: files of several ranks have the same time and no device.
TEST(AscendCsvFiles, WarnsOfFilesThatAreNoSlices) {
  const Result<CaptureTable> table = read_files(
      {ascend_text("H7", rows_at({"10", "30"})), ascend_text("H7", rows_at({"20", "40"}))});
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(finding_count(table->findings, "files-overlap"), 1u);
  const Result<CaptureTable> of_rank =
      read_files({ascend_text("H7", rows_at({"10"}))}, {.default_device = 5});
  EXPECT_EQ(of_rank->device[0], 5);
}

// Row 43.
TEST(AscendCsvFiles, WarnsOfFilesOfDifferentTimes) {
  const Result<CaptureTable> table =
      read_files({ascend_text("H7", rows_at({"1000000"})),
                  ascend_text("H7", rows_at({"1764246877073569.640"}))});
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(finding_count(table->findings, "files-apart"), 1u);
}

// Row 22.
TEST(AscendCsvFiles, DropsRowsThatAreThereTwice) {
  const std::string text = ascend_text("H9", rows_at({"10", "20", "30"}));
  const Result<CaptureTable> table = read_files({text, text});
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(starts_us(*table), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(table->source, (std::vector<uint32_t>{0, 0, 0})) << "the first is kept";
  EXPECT_EQ(table->dropped_count, 3u);
  EXPECT_EQ(finding_count(table->findings, "duplicate-rows"), 3u);
  EXPECT_EQ(read_files({text, text}, {.keep_duplicates = true})->size(), 6u);
}

// Row 22: one difference is enough.
TEST(AscendCsvFiles, KeepsRowsThatDiffer) {
  const CaptureTable table = ascend_table(ascend_text("H8", {{},
                                                             {.name = "other"},
                                                             {.duration = "61.240"},
                                                             {.device = "1"},
                                                             {.stream = "2"},
                                                             {.task = "11052"},
                                                             {.context = "3"},
                                                             {.context = "4"}}));
  EXPECT_EQ(table.size(), 8u);
  EXPECT_EQ(table.dropped_count, 0u);
}

// Row 23.
TEST(AscendCsvFiles, PassesOverRepeatedHeaders) {
  const std::string text =
      ascend_text("H8", rows_at({"10"})) + "\xef\xbb\xbf" + ascend_text("H8", rows_at({"20"}));
  const CaptureTable table = ascend_table(text);
  EXPECT_EQ(starts_us(table), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(table.sources.size(), 1u);
  EXPECT_EQ(table.sources[0].row_count, 2u);
  EXPECT_EQ(finding_codes(table.findings), "repeated-header ");
}

// Row 23: files of different years put together.
TEST(AscendCsvFiles, FollowsAHeaderThatChanges) {
  const std::string text = ascend_text("H0", rows_at({"10"})) + ascend_text("H8", rows_at({"20"}));
  const CaptureTable table = ascend_table(text);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table.stream[table.device[0] == 0 ? 0 : 1], 148);
  ASSERT_EQ(table.sources.size(), 2u);
  EXPECT_EQ(table.sources[0].header, kAscendHeaders.at("H0"));
  EXPECT_EQ(table.sources[1].header, kAscendHeaders.at("H8"));
  EXPECT_EQ(finding_codes(table.findings), "changed-header ");
}

// Row 23: a column that only the second header has comes first in it.
TEST(AscendCsvFiles, TakesALongerHeaderForAnother) {
  const std::string text = ascend_text("H0", rows_at({"10"})) + ascend_text("H1", rows_at({"20"}));
  const CaptureTable table = ascend_table(text);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(text_at(table, table.step[1]), "50");
  EXPECT_EQ(text_at(table, table.type[1]), "MatMulV2");
}

std::string gzip(std::string_view text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(text.size() + 1024, '\0');
  std::string input(text);
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// Row 39, as far as it concerns tables.
TEST(AscendCsvFiles, ReadsGzipWithOffsetsOfTheUnpackedText) {
  const std::string packed = gzip(ascend_text("H8", rows_at({"10", "20"})));
  const Result<CaptureTable> table = read_files({packed});
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(starts_us(*table), (std::vector<int64_t>{10, 20}));
  EXPECT_TRUE(table->sources[0].is_compressed);
  EXPECT_EQ(finding_codes(table->findings), "");
}

TEST(AscendCsvFiles, SaysWhereDamagedGzipStops) {
  std::string packed = gzip(ascend_text("H8", std::vector<AscendRowCells>(500)));
  packed.resize(packed.size() - 9);
  const Result<CaptureTable> table = read_files({packed});
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(finding_count(table->findings, "cut-short"), 1u);
}

// Goal: every record can be found again and written out byte for byte, and every one is accounted
// for.
// Method: files of random headers, line ends, orders and faults; the text at each row's place must
// be a record of the file that holds the row's own start.
TEST(AscendCsvFiles, KnowsThePlaceOfEveryRow) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    auto header = kAscendHeaders.begin();
    std::advance(header, random() % kAscendHeaders.size());
    std::vector<AscendRowCells> rows(random() % 40);
    for (AscendRowCells& row : rows) {
      row.start = std::to_string(1 + random() % 50) + (random() % 2 == 0 ? "\t" : ".000");
      if (random() % 10 == 0) row.start = "N/A";
      if (random() % 10 == 0) row.name = "a,b";
      if (random() % 10 == 0) row.name = "\"quoted, name\"";
      row.device = std::to_string(random() % 3);
      row.task = std::to_string(random() % 2);
    }
    rows.push_back({.start = "77"});
    const std::string text = ascend_text(header->first, rows, random() % 2 == 0 ? "\r\n" : "\n");
    const CaptureTable table = ascend_table(text);
    ASSERT_EQ(table.sources[0].row_count, table.size() + table.dropped_count);
    ASSERT_EQ(table.sources[0].row_count, rows.size());
    for (size_t row = 0; row < table.size(); ++row) {
      const std::string record = text.substr(table.text_offset[row], table.text_bytes[row]);
      const CaptureTable alone = ascend_table(table.sources[0].header + "\n" + record + "\n");
      ASSERT_EQ(alone.size(), 1u) << record;
      ASSERT_EQ(alone.start_ns[0], table.start_ns[row]);
      ASSERT_EQ(alone.device[0], table.device[row]);
      ASSERT_EQ(text_at(alone, alone.name[0]), text_at(table, table.name[row]));
      const char next = text[table.text_offset[row] + table.text_bytes[row]];
      ASSERT_TRUE(next == '\r' || next == '\n');
    }
  }
}

// Wherever a file stops, the rows before that place are read, and the last is whole or dropped.
TEST(AscendCsvFiles, CanBeCutAnywhere) {
  const std::string header = kAscendHeaders.at("H5") + "\r\n";
  const std::string whole = ascend_text("H5", rows_at({"10", "20", "30"}));
  const CaptureTable uncut = ascend_table(whole);
  for (size_t size = header.size(); size < whole.size(); ++size) {
    const std::string text = whole.substr(0, size);
    const size_t line_count =
        static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) - 1;  // of rows
    const Result<CaptureTable> table = read_ascend_text(text);
    if (!table) {
      ASSERT_EQ(line_count, 0u) << table.error().message;
      continue;
    }
    ASSERT_GE(table->size(), line_count) << size;
    ASSERT_EQ(table->sources[0].row_count, table->size() + table->dropped_count) << size;
    for (size_t row = 0; row < table->size(); ++row) {
      ASSERT_EQ(table->start_ns[row], uncut.start_ns[row]) << size;
      ASSERT_EQ(table->duration_ns[row], uncut.duration_ns[row]) << size;
    }
  }
}

// A byte that changed can cost its own line and the next, and nothing goes uncounted.
TEST(AscendCsvFiles, SurvivesAnyChangedByte) {
  const std::string header = kAscendHeaders.at("H5") + "\r\n";
  const std::string whole = ascend_text("H5", rows_at({"10", "20", "30", "40"}));
  for (size_t i = header.size(); i < whole.size(); i += 2) {
    for (const char byte : {'"', ',', '\n', '\xff'}) {
      std::string text = whole;
      text[i] = byte;
      const Result<CaptureTable> table = read_ascend_text(text);
      ASSERT_TRUE(table.has_value()) << i << " " << table.error().message;
      ASSERT_EQ(table->sources[0].row_count, table->size() + table->dropped_count) << i;
      ASSERT_GE(table->size(), 2u) << i << " " << byte;
    }
  }
}

// Row 46: offsets go beyond 4 GiB, and a file larger than the window is read in pieces.
TEST(AscendCsvFiles, ReadsBeyondOneWindow) {
  using Offset = decltype(CaptureTable::text_offset)::value_type;
  static_assert(std::numeric_limits<Offset>::max() > uint64_t{1} << 40);
  const std::string& header = kAscendHeaders.at("H9");
  std::string text = header + "\r\n";
  constexpr size_t kRows = 20000;  // three windows of 1 MiB
  const std::string row = ascend_row(header, {.start = "@"});
  const size_t place = row.find('@');
  for (size_t i = 0; i < kRows; ++i) {
    text += row.substr(0, place) + std::to_string(1764246877073569 + i) + row.substr(place + 1);
    text += "\r\n";
  }
  uint64_t done = 0;
  const CaptureTable table =
      ascend_table(text, {.progress = [&done](uint64_t bytes, uint64_t) { done = bytes; }});
  ASSERT_EQ(table.size(), kRows);
  EXPECT_EQ(table.start_ns.back(), (1764246877073569 + int64_t{kRows} - 1) * 1000);
  EXPECT_EQ(table.order_break_count, 0u);
  EXPECT_EQ(done, text.size());
  EXPECT_EQ(table.names.size(), 5u) << "texts that repeat are kept once";
}

TEST(AscendCsvFiles, BecomesATrace) {
  const Trace trace =
      trace_of(ascend_table(ascend_text("H9", {{.start = "10", .duration = "20"},
                                               {.start = "15", .duration = "20", .stream = "62"},
                                               {.name = "hcom_allReduce__503_0_1",
                                                .type = "hcom_allReduce_",
                                                .core = "COMMUNICATION",
                                                .start = "31",
                                                .stream = "N/A",
                                                .task = "N/A"}})));
  EXPECT_EQ(trace.format, "ascend-csv");
  ASSERT_EQ(trace.lanes.size(), 3u);
  EXPECT_EQ(trace.lanes[0].name, "Stream 148");
  EXPECT_EQ(trace.lanes[2].name, "Communication");
  EXPECT_EQ(trace.tasks.at(TaskTime::kEnd)[0], 30000);
  EXPECT_EQ(trace.names[trace.tasks.kernel[2]], "hcom_allReduce_");
}

}  // namespace
}  // namespace gapless
