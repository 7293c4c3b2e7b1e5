// SPDX-License-Identifier: Apache-2.0

#include "cli/nearest_name.h"

#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("info", "info"), 0u);
  EXPECT_EQ(edit_distance("", "info"), 4u);
  EXPECT_EQ(edit_distance("inof", "info"), 1u) << "a swap is one edit";
  EXPECT_EQ(edit_distance("jsom", "json"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestName, FindsTheTypingErrorAndNothingFarAway) {
  const std::vector<std::string> names = {"info", "convert", "record", "completion"};
  EXPECT_EQ(nearest_name("inof", names), "info");
  EXPECT_EQ(nearest_name("recrod", names), "record");
  EXPECT_EQ(nearest_name("comp", names), "completion");
  EXPECT_EQ(nearest_name("xyz", names), std::nullopt);
  EXPECT_EQ(nearest_name("info", {}), std::nullopt);
}

}  // namespace
}  // namespace gapless
