// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_goals.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr const char* kH200 = "NVIDIA H200";

bool is_met(const CudaGoals& goals, const CudaFigures& figures) {
  const std::vector<CudaVerdict> verdicts = judge(goals, figures, kH200);
  return verdicts.size() == 1 && verdicts[0].met;
}

TEST(CudaGoals, ARowWithoutGoalsHasNoVerdict) {
  const std::vector<CudaVerdict> verdicts = judge({}, {.median_us = 1.0}, kH200);
  EXPECT_TRUE(verdicts.empty());
  EXPECT_EQ(verdict_text(verdicts), "");
  EXPECT_EQ(goal_count_text(verdicts), "");
  EXPECT_EQ(verdict_json(verdicts), nlohmann::ordered_json::array());
}

TEST(CudaGoals, ATimeAndAShareMayBeReachedExactly) {
  EXPECT_TRUE(is_met({.max_us = 66.0}, {.median_us = 66.0}));
  EXPECT_FALSE(is_met({.max_us = 66.0}, {.median_us = 66.01}));
  EXPECT_TRUE(is_met({.min_share = 0.75}, {.share = 0.75}));
  EXPECT_FALSE(is_met({.min_share = 0.75}, {.share = 0.7499}));
}

TEST(CudaGoals, ACostIsToStayBelow) {
  EXPECT_TRUE(is_met({.max_tasks_cost = 0.01}, {.tasks_cost = 0.0099}));
  EXPECT_TRUE(is_met({.max_tasks_cost = 0.01}, {.tasks_cost = -0.002}));
  EXPECT_FALSE(is_met({.max_tasks_cost = 0.01}, {.tasks_cost = 0.01}));
}

TEST(CudaGoals, TimesAreOfAnH200Only) {
  const CudaGoals goals = {.max_us = 66.0, .min_share = 0.9};
  const std::vector<CudaVerdict> other = judge(goals, {.median_us = 80.0, .share = 0.95}, "A100");
  for (const char* name : {"NVIDIA GH200 480GB", "NVIDIA H200 MIG 1g.18gb", "NVIDIA H200 NVL"})
    EXPECT_EQ(judge({.max_us = 66.0}, {.median_us = 63.0}, name).size(), 0u) << name;
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].goal, ">= 90 % of the ceiling");
  EXPECT_EQ(judge(goals, {}, kH200).size(), 2u);
}

TEST(CudaGoals, SaysWhichAreMissed) {
  const std::vector<CudaVerdict> verdicts =
      judge({.max_us = 170.0, .min_share = 0.85, .max_tasks_cost = 0.01},
            {.median_us = 154.36, .share = 0.8, .tasks_cost = 0.0074}, kH200);
  EXPECT_EQ(verdict_text(verdicts),
            "  goal <= 170.00 us: met  goal >= 85 % of the ceiling: MISSED"
            "  goal tasks recorded for < 1 %: met");
  EXPECT_EQ(goal_count_text(verdicts), "2 of 3 goals met");
  EXPECT_EQ(verdict_json(verdicts).dump(), R"([{"goal":"<= 170.00 us","met":true},)"
                                           R"({"goal":">= 85 % of the ceiling","met":false},)"
                                           R"({"goal":"tasks recorded for < 1 %","met":true}])");
}

}  // namespace
}  // namespace gapless
