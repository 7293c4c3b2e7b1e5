// SPDX-License-Identifier: Apache-2.0
//
// Synthetic captures through files: what is made, written and read back has the same rows in the
// same order, whatever the header, the order in the file and what stands there twice.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/capture_file_order.h"
#include "analysis/synthetic_capture.h"
#include "base/temporary_directory.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_csv_writer.h"

namespace gapless {
namespace {

SyntheticCapture made(const CaptureOptions& options) {
  Result<SyntheticCapture> capture = make_synthetic_capture(options);
  EXPECT_TRUE(capture.has_value());
  return capture ? *std::move(capture) : SyntheticCapture{};
}

CaptureTable read(const std::vector<std::string>& paths) {
  Result<CaptureTable> table = read_ascend_csv(paths);
  EXPECT_TRUE(table.has_value()) << (table ? "" : table.error().message);
  return table ? *std::move(table) : CaptureTable{};
}

std::string_view text(const CaptureTable& table, uint32_t name) {
  return name == kNoIndex ? std::string_view("(none)") : table.names[name];
}

// Of files with all columns.
void expect_same_rows(const CaptureTable& read, const CaptureTable& made) {
  ASSERT_EQ(read.size(), made.size());
  EXPECT_EQ(read.start_ns, made.start_ns);
  EXPECT_EQ(read.duration_ns, made.duration_ns);
  EXPECT_EQ(read.device, made.device);
  EXPECT_EQ(read.stream, made.stream);
  EXPECT_EQ(read.task, made.task);
  EXPECT_EQ(read.kind, made.kind);
  for (size_t row = 0; row < made.size(); ++row) {
    EXPECT_EQ(text(read, read.name[row]), text(made, made.name[row]));
    EXPECT_EQ(text(read, read.type[row]), text(made, made.type[row]));
    EXPECT_EQ(text(read, read.step[row]), text(made, made.step[row]));
    EXPECT_EQ(text(read, read.core[row]), text(made, made.core[row]));
    EXPECT_EQ(text(read, read.input_shapes[row]), text(made, made.input_shapes[row]));
    EXPECT_EQ(text(read, read.output_shapes[row]), text(made, made.output_shapes[row]));
  }
}

TEST(SyntheticCaptureFile, IsReadBackAsItWasMade) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("kernel_details.csv");
  for (const CaptureModel& model : capture_models()) {
    for (const PassPhase phase : {PassPhase::kDecode, PassPhase::kPrefill}) {
      const SyntheticCapture capture = made({.model = std::string(model.name),
                                             .phase = phase,
                                             .pass_count = 2,
                                             .passes_per_step = 1});
      ASSERT_TRUE(write_ascend_csv(capture.table, path, {.header = 9}));
      const CaptureTable table = read({path});
      expect_same_rows(table, capture.table);
      EXPECT_EQ(table.dropped_count, 0u);
      EXPECT_EQ(table.order_break_count, 0u);
    }
  }
}

TEST(SyntheticCaptureFile, IsReadBackFromAnyOrder) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("kernel_details.csv");
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const SyntheticCapture capture = made({.seed = seed,
                                           .pass_count = 2,
                                           .device_count = 2,
                                           .first_device = 9,
                                           .starts_mid_pass = true,
                                           .passes_per_step = 1});
    const FileOrder order = make_file_order(capture.table, {.seed = seed,
                                                            .block_rows = 700,
                                                            .order_break_count = 6,
                                                            .duplicate_count = 40,
                                                            .repeated_header_count = 3});
    ASSERT_TRUE(write_ascend_csv(
        capture.table, path,
        {.header = 8, .rows = order.rows, .headers_before = order.headers_before}));
    const CaptureTable table = read({path});
    expect_same_rows(table, capture.table);
    EXPECT_EQ(table.dropped_count, 40u);
    EXPECT_GE(table.order_break_count, 6u);
  }
}

TEST(SyntheticCaptureFile, IsReadBackFromSlices) {
  const TemporaryDirectory directory;
  const SyntheticCapture capture = made({.pass_count = 3, .passes_per_step = 1});
  const Result<std::vector<std::string>> slices =
      write_ascend_slices(capture.table, directory.path("mindstudio_profiler_output"),
                          {.header = 9, .naming = AscendNaming::kOpSummary}, 1000);
  ASSERT_TRUE(slices.has_value());
  ASSERT_EQ(slices->size(), 3u);
  expect_same_rows(read({slices->rbegin(), slices->rend()}), capture.table);
}

TEST(SyntheticCaptureFile, HasTypesThatCanBeMadeOfNames) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("kernel_details.csv");
  const SyntheticCapture capture = made({.pass_count = 1});
  ASSERT_TRUE(write_ascend_csv(capture.table, path, {.header = 3, .has_types = false}));
  const CaptureTable table = read({path});
  ASSERT_EQ(table.size(), capture.table.size());
  EXPECT_TRUE(table.types_derived);
  uint32_t anchors = 0;
  for (size_t row = 0; row < table.size(); ++row) {
    if (capture.is_anchor[row] == 0) continue;
    ++anchors;
    EXPECT_EQ(text(table, table.type[row]), "FusedInferAttentionScore");
  }
  EXPECT_EQ(anchors, 64u);
}

}  // namespace
}  // namespace gapless
