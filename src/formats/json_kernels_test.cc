// SPDX-License-Identifier: Apache-2.0

#include "formats/json_kernels.h"

#include <cstdio>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <zlib.h>

#include "formats/json_kernels_test_support.h"

namespace gapless {
namespace {

TEST(JsonKernels, Row36ReadsAListThatIsCutShort) {
  std::string text = ascend_text();
  text.pop_back();
  const CaptureTable unclosed = json_table(text);
  EXPECT_EQ(unclosed.size(), 3u);
  EXPECT_EQ(count_of(unclosed, "unclosed-list"), 1u);
  const CaptureTable cut = json_table(text + ",{\"ph\": \"X\", \"na");
  EXPECT_EQ(cut.size(), 3u);
  EXPECT_EQ(count_of(cut, "cut-short"), 1u);
}

TEST(JsonKernels, Row37ReadsListsAndWrappedLists) {
  const CaptureTable bare = json_table(bare_list(kKinetoEvents));
  const CaptureTable in_object = json_table(wrapped(kKinetoEvents));
  EXPECT_EQ(bare.size(), 2u);
  EXPECT_EQ(bare.start_ns, in_object.start_ns);
  EXPECT_EQ(bare.launch_ns, in_object.launch_ns);
  std::string ascend = ascend_text();
  const CaptureTable wrapped_ascend = json_table("{\"traceEvents\": " + ascend + "}");
  EXPECT_EQ(wrapped_ascend.start_ns, json_table(ascend).start_ns);
}

TEST(JsonKernels, Row38ReadsTimesThatAreTextOrNumbers) {
  for (const std::string_view ts :
       {"\"1736408883688177.930\"", "1736408883688177.930", "1736408883688177930e-3"}) {
    const CaptureTable table = json_table(fmt::format(
        R"([{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 1, "ts": {}, "dur": 1}}])",
        ts));
    ASSERT_EQ(table.size(), 1u) << ts;
    EXPECT_EQ(table.start_ns[0], 1'736'408'883'688'177'930) << ts;
  }
}

TEST(JsonKernels, IsEmptyForATraceOfSomethingElse) {
  const CaptureTable table = json_table(R"([
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "browser"}},
    {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 5, "dur": 1},
    {"ph": "X", "name": "more", "pid": 2, "tid": 1, "ts": 5, "dur": 1},
    {"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 9}, {}])");
  EXPECT_EQ(table.size(), 0u);
  EXPECT_TRUE(table.findings.empty());
  EXPECT_EQ(table.dropped_count, 0u);
  EXPECT_EQ(json_table("[]").size(), 0u);
}

TEST(JsonKernels, SaysInOneSentenceWhyAFileIsNone) {
  EXPECT_EQ(json_error(""), "t.json: is empty");
  EXPECT_EQ(json_error("hello"), "t.json: not JSON: it begins with byte 0x68");
  EXPECT_EQ(json_error("{\"a\": 1}"),
            "t.json: is JSON but has no list of trace events (\"traceEvents\")");
  EXPECT_EQ(json_error("[1, 2]"),
            "t.json: is JSON but has no list of trace events (\"traceEvents\")");
  EXPECT_EQ(json_error("{\"a\": "), "t.json: cut short at byte 6, before its first trace event");
  EXPECT_EQ(json_error("[@"), "t.json: damaged at byte 1, before its first trace event");
}

TEST(JsonKernels, ReadsUpToTheDamage) {
  const CaptureTable table =
      json_table("[" + kineto_kernel("a", 5, 1) + "," + kineto_kernel("b", 6, 2) + ", oops]");
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(count_of(table, "damaged"), 1u);
  EXPECT_EQ(count_of(json_table("[" + kineto_kernel("a", 5, 1) + "] []"), "trailing-bytes"), 1u);
  EXPECT_EQ(count_of(json_table("[" + kineto_kernel("a", 5, 1) + ", 7]"), "not-an-event"), 1u);
}

TEST(JsonKernels, GivesARowLessNeverMoreForEveryByteLess) {
  for (const std::string& text : {ascend_text(), wrapped(kKinetoEvents)}) {
    size_t before = 0;
    for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
      const Result<CaptureTable> table =
          read_json_kernels(json_stream(std::string_view(text).substr(0, bytes)));
      if (!table) {
        ASSERT_EQ(before, 0u);
        ASSERT_NE(table.error().message.find("t.json: "), std::string::npos);
        continue;
      }
      expect_sound_timeline(*table);
      ASSERT_GE(table->size(), before) << bytes;
      before = table->size();
      const bool is_whole = bytes == text.size();
      ASSERT_EQ(count_of(*table, "cut-short") + count_of(*table, "unclosed-list"),
                is_whole ? 0u : 1u)
          << bytes;
    }
    EXPECT_GT(before, 1u);
  }
}

TEST(JsonKernels, ReadsCompressedFiles) {
  const std::string path = testing::TempDir() + "/json_kernels_test.json.gz";
  const std::string text = ascend_text();
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
            static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
  Result<InputStream> input = InputStream::open_file(path);
  ASSERT_TRUE(input.has_value());
  const Result<CaptureTable> table = read_json_kernels(std::move(*input));
  std::remove(path.c_str());
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->start_ns, json_table(text).start_ns);
  EXPECT_EQ(table->sources[0].path, path);
}

}  // namespace
}  // namespace gapless
