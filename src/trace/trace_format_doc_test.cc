// SPDX-License-Identifier: Apache-2.0
//
// The example of docs/trace-format.md is a real file: its bytes are those built here, and they are
// read as the page says.

#include <charconv>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "trace/metadata_log.h"
#include "trace/raw_file_builder.h"
#include "trace/trace.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

std::string example_file() {
  RawFileBuilder file;
  file.add_chunk({.writer = 0, .sequence = 0},
                 encode_record({RecordKind::kSpanBegin, 1100, 0, 0, 7}) +
                     encode_record({RecordKind::kSpanEnd, 1600, 0}));
  ClockBody clock = {};
  clock.source = ClockSource::kTsc;
  clock.invariant = 1;
  clock.ticks_per_second = 2'000'000'000;
  LaneBody lane = {};
  lane.number = 4711;
  std::string metadata = encode_device(0, 4711, "demo") + encode_clock(clock) +
                         encode_anchor({1000, 0}) + encode_anchor({3000, 1000}) +
                         encode_lane(0, lane, "main") + encode_name(0, "work");
  const uint64_t end_bytes = encode_end({}).size();
  const uint64_t file_bytes =
      file.bytes().size() + sizeof(ChunkHeader) + metadata.size() + end_bytes;
  metadata += encode_end({file_bytes, 2});
  file.add_chunk({.type = ChunkType::kMetadata}, metadata);
  return file.bytes();
}

std::string page() {
  const std::filesystem::path here = std::filesystem::absolute(__FILE__).parent_path();
  Result<std::string> text = read_text_file((here / "../../docs/trace-format.md").string());
  EXPECT_TRUE(text.has_value()) << text.error().message;
  return text ? *std::move(text) : "";
}

// The bytes of the lines "0040  47 43 48 4b  a comment" between ```hexdump and ```.
std::string bytes_of_example() {
  std::istringstream lines(page());
  std::string line;
  std::string bytes;
  bool inside = false;
  while (std::getline(lines, line)) {
    if (line.starts_with("```")) inside = line == "```hexdump";
    if (!inside || line.starts_with("```")) continue;
    EXPECT_EQ(line.substr(0, 6), fmt::format("{:04x}  ", bytes.size())) << line;
    for (size_t at = 6; at + 2 <= line.size() && line[at] != ' '; at += 3) {
      uint8_t byte = 0;
      const auto [stop, error] = std::from_chars(line.data() + at, line.data() + at + 2, byte, 16);
      EXPECT_TRUE(error == std::errc() && stop == line.data() + at + 2) << line;
      bytes.push_back(static_cast<char>(byte));
    }
  }
  return bytes;
}

std::string hex_dump(const std::string& bytes) {
  std::string dump;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (at % 8 == 0) dump += fmt::format("\n{:04x} ", at);
    dump += fmt::format(" {:02x}", static_cast<unsigned char>(bytes[at]));
  }
  return dump;
}

TEST(TraceFormatPage, TheExampleIsARealFile) {
  EXPECT_TRUE(bytes_of_example() == example_file())
      << "the bytes should be:" << hex_dump(example_file());
}

TEST(TraceFormatPage, TheExampleIsReadAsThePageSays) {
  const Result<Trace> trace = read_trace_bytes(as_bytes(example_file()), "example");
  ASSERT_TRUE(trace.has_value());
  EXPECT_TRUE(trace->findings.empty());
  ASSERT_EQ(trace->spans.size(), 1u);
  EXPECT_EQ(trace->spans.begin_ns[0], 50);
  EXPECT_EQ(trace->spans.end_ns[0], 300);
  EXPECT_EQ(trace->spans.value[0], 7u);
  EXPECT_EQ(trace->names[trace->spans.name[0]], "work");
  EXPECT_EQ(trace->lanes[0].name, "main");
}

// The page lists every column with its numbers: "| 1.1 | spans.begin_ns | int64 |".
TEST(TraceFormatPage, ListsEveryColumnWithItsWidth) {
  const std::string text = page();
  const Trace trace;
  for_each_column(trace, [&text](int table, int column, const auto& values) {
    const size_t at = text.find(fmt::format("\n| {}.{} |", table, column));
    ASSERT_NE(at, std::string::npos) << table << "." << column << " is not on the page";
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    const std::string width = fmt::format("{} |", 8 * sizeof(values[0]));
    EXPECT_NE(line.find(width), std::string::npos) << line << " should say " << width;
  });
}

}  // namespace
}  // namespace gapless
