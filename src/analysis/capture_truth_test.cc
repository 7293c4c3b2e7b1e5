// SPDX-License-Identifier: Apache-2.0

#include "analysis/capture_truth.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gapless {
namespace {

TEST(CaptureTruth, SaysEverythingAboutThePasses) {
  const Result<SyntheticCapture> capture = make_synthetic_capture(
      {.pass_count = 3, .draft_count = 1, .dummy_permille = 300, .starts_mid_pass = true});
  ASSERT_TRUE(capture.has_value());
  const nlohmann::json json = nlohmann::json::parse(capture_truth_json(*capture));
  ASSERT_EQ(json["passes"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const MadePass& pass = capture->passes[i];
    const nlohmann::json& entry = json["passes"][i];
    EXPECT_EQ(entry["index"], i);
    EXPECT_EQ(entry["phase"], std::string(pass_phase_name(pass.shape.phase)));
    EXPECT_EQ(entry["dummy"], pass.shape.is_dummy);
    EXPECT_EQ(entry["cut_at_start"], i == 0);
    EXPECT_EQ(entry["cut_at_end"], false);
    EXPECT_EQ(entry["rows"], pass.row_count);
    EXPECT_EQ(entry["anchors"], pass.anchor_count);
    EXPECT_EQ(entry["draft_anchors"], 1);
    EXPECT_EQ(entry["wall_ns"].get<int64_t>(), pass.wall_ns());
    EXPECT_EQ(entry["sum_ns"].get<int64_t>(), pass.sum_ns());
    EXPECT_EQ(entry["union_ns"].get<int64_t>(), pass.union_ns);
  }
  EXPECT_EQ(json["row_starts_ns"].get<std::vector<int64_t>>(), capture->table.start_ns);
  EXPECT_EQ(json["row_passes"].get<std::vector<uint32_t>>(), capture->pass_of_row);
}

}  // namespace
}  // namespace gapless
