// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_bench_rows.h"

#include <string>

#include <gtest/gtest.h>

#include "base/file.h"

namespace gapless {
namespace {

constexpr const char* kH200 = "NVIDIA H200";

std::string new_path(const char* name) {
  std::string path = testing::TempDir() + "/cuda_bench_rows_" + name + ".json";
  static_cast<void>(std::remove(path.c_str()));
  return path;
}

nlohmann::ordered_json document_at(const std::string& path) {
  const Result<std::string> text = read_text_file(path);
  return text ? nlohmann::ordered_json::parse(*text) : nlohmann::ordered_json();
}

// A benchmark that somebody ends, or a row that fails, does not lose the rows before.
TEST(CudaBenchRows, AreInTheFileAsSoonAsTheyAreThere) {
  const std::string path = new_path("soon");
  CudaBenchRows rows(kH200, 4.5, path);
  testing::internal::CaptureStdout();
  ASSERT_TRUE(rows.add("a line", {{"what", "a \"read\""}, {"median_us", 1.5}}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a line\n");
  const nlohmann::ordered_json document = document_at(path);
  EXPECT_EQ(document["gpu"], kH200);
  EXPECT_EQ(document["ceiling_tb_s"], 4.5);
  EXPECT_EQ(document["rows"].dump(), R"([{"what":"a \"read\"","median_us":1.5}])");
}

TEST(CudaBenchRows, SayWhatBecameOfTheirGoals) {
  const std::string path = new_path("goals");
  CudaBenchRows rows(kH200, 4.5, path);
  testing::internal::CaptureStdout();
  ASSERT_TRUE(rows.add("a", {{"what", "a"}}, {.max_us = 66.0}, {.median_us = 63.0}));
  ASSERT_TRUE(rows.add("b", {{"what", "b"}}, {.min_share = 0.75}, {.share = 0.64}));
  ASSERT_TRUE(rows.add("c", {{"what", "c"}}));
  ASSERT_TRUE(rows.finish());
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "a  goal <= 66.00 us: met\n"
            "b  goal >= 75 % of the ceiling: MISSED\n"
            "c\n"
            "1 of 2 goals met\n");
  const nlohmann::ordered_json written = document_at(path)["rows"];
  ASSERT_EQ(written.size(), 3u);
  EXPECT_EQ(written[0]["goals"].dump(), R"([{"goal":"<= 66.00 us","met":true}])");
  EXPECT_FALSE(written[2].contains("goals"));
}

TEST(CudaBenchRows, WithoutAFileAreOnlyPrinted) {
  CudaBenchRows rows(kH200, 4.5, "");
  testing::internal::CaptureStdout();
  ASSERT_TRUE(rows.add("a line", {{"what", "a"}}));
  ASSERT_TRUE(rows.finish());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a line\n") << "no goals, nothing to count";
}

// What is no file gets the whole once, at the end.
TEST(CudaBenchRows, GoToADeviceInTheEnd) {
  CudaBenchRows rows(kH200, 4.5, "/dev/full");
  testing::internal::CaptureStdout();
  EXPECT_TRUE(rows.add("a line", {{"what", "a"}}));
  const Result<void> finished = rows.finish();
  testing::internal::GetCapturedStdout();
  ASSERT_FALSE(finished);
  EXPECT_TRUE(finished.error().message.starts_with("/dev/full: ")) << finished.error().message;
}

TEST(CudaBenchRows, SayWhereTheyCannotBeWritten) {
  CudaBenchRows rows(kH200, 4.5, "/nowhere/rows.json");
  testing::internal::CaptureStdout();
  const Result<void> added = rows.add("a line", {{"what", "a"}});
  testing::internal::GetCapturedStdout();
  ASSERT_FALSE(added);
  EXPECT_TRUE(added.error().message.starts_with("/nowhere/rows.json")) << added.error().message;
}

}  // namespace
}  // namespace gapless
