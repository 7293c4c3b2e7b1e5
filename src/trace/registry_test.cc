// SPDX-License-Identifier: Apache-2.0

#include "trace/registry.h"

#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(Registry, NamesAreInternedOnce) {
  Registry registry;
  bool is_new = false;
  EXPECT_EQ(registry.intern_name("a", &is_new), 0);
  EXPECT_TRUE(is_new);
  EXPECT_EQ(registry.intern_name("b", &is_new), 1);
  EXPECT_EQ(registry.intern_name("a", &is_new), 0);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(registry.names().size(), 2u);
}

TEST(Registry, AllNamesBeyondTheLimitShareOne) {
  Registry registry;
  bool is_new = false;
  for (uint32_t i = 0; i < 65'534; ++i) {
    ASSERT_EQ(registry.intern_name("name " + std::to_string(i), &is_new), i);
  }
  EXPECT_EQ(registry.intern_name("one too many", &is_new), 65'534);
  EXPECT_TRUE(is_new) << "the shared one is written to the file once";
  EXPECT_EQ(registry.names().back(), "(more than 65534 names)");
  EXPECT_EQ(registry.intern_name("and another", &is_new), 65'534);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(registry.intern_name("one too many", &is_new), 65'534);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(registry.intern_name("name 17", &is_new), 17) << "those before it are still found";
  EXPECT_EQ(registry.names().size(), 65'535u) << "0xffff stays free: it means no name";
}

TEST(Registry, AllLanesBeyondTheLimitShareOne) {
  Registry registry;
  for (uint32_t i = 0; i < 65'534; ++i) {
    ASSERT_EQ(registry.add_lane({"lane", LaneKind::kThread, 0, 0}), i);
  }
  EXPECT_EQ(registry.add_lane({"x", LaneKind::kThread, 0, 0}), 65'534);
  EXPECT_EQ(registry.add_lane({"y", LaneKind::kThread, 0, 0}), 65'534);
  EXPECT_EQ(registry.lanes().size(), 65'535u);
  EXPECT_EQ(registry.lanes().back().name, "(more than 65534 lanes)");
}

TEST(Registry, TextsAreCutSoThatAnEntryFitsAChunk) {
  Registry registry;
  bool is_new = false;
  const std::string text(10'000, 't');
  EXPECT_EQ(registry.intern_name(text, &is_new), 0);
  EXPECT_EQ(registry.names()[0].size(), 4096u);
  EXPECT_EQ(registry.intern_name(text + "more", &is_new), 0) << "equal after the cut";
  EXPECT_FALSE(is_new);
  EXPECT_EQ(registry.add_lane({text, LaneKind::kSm, 0, 5}), 0);
  EXPECT_EQ(registry.lanes()[0].name.size(), 4096u);
  registry.rename_lane(0, text + text);
  EXPECT_EQ(registry.lanes()[0].name.size(), 4096u);
  registry.rename_lane(0, "short");
  EXPECT_EQ(registry.lanes()[0].name, "short");
  EXPECT_EQ(registry.lanes()[0].kind, LaneKind::kSm);
  EXPECT_EQ(registry.lanes()[0].number, 5);
}

TEST(Registry, DeviceZeroIsTheProcess) {
  Registry registry;
  bool is_new = true;
  EXPECT_EQ(registry.intern_device("", &is_new), 0u);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(registry.intern_device("gpu 0", &is_new), 1u);
  EXPECT_TRUE(is_new);
  EXPECT_EQ(registry.intern_device("gpu 0", &is_new), 1u);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(registry.devices().size(), 2u);
}

TEST(Registry, OfAPropertyTheLastValueHolds) {
  Registry registry;
  ASSERT_NE(registry.set_property("model", "a"), nullptr);
  ASSERT_NE(registry.set_property("host", "h"), nullptr);
  EXPECT_EQ(registry.set_property("model", "a"), nullptr) << "nothing has changed";
  ASSERT_NE(registry.set_property("model", "b"), nullptr);
  ASSERT_EQ(registry.properties().size(), 2u);
  EXPECT_EQ(registry.properties()[0].key, "model");
  EXPECT_EQ(registry.properties()[0].value, "b");
}

// A zero byte is what parts key and value in the file.
TEST(Registry, PropertiesAreCutToWhatAnEntryHolds) {
  Registry registry;
  EXPECT_EQ(registry.set_property("", "value"), nullptr);
  EXPECT_EQ(registry.set_property(std::string_view("\0key", 4), "value"), nullptr);
  ASSERT_NE(registry.set_property(std::string_view("key\0rest", 8), "v"), nullptr);
  EXPECT_EQ(registry.properties()[0].key, "key");
  const std::string text(10'000, 't');
  const RegisteredProperty* const cut = registry.set_property(text, text);
  ASSERT_NE(cut, nullptr);
  EXPECT_EQ(cut->key.size(), 4096u);
  EXPECT_EQ(cut->value.size(), 4096u);
}

}  // namespace
}  // namespace gapless
