// SPDX-License-Identifier: Apache-2.0

#include "graph/tensor_map.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr BufferId kBuffer{1};

// "d3 o5": what the task waits for, sorted and without repeats; d for data, o for order.
std::string waits_for(TensorMap& map, uint64_t task, std::initializer_list<Argument> arguments) {
  std::vector<Dependency> found;
  map.access(task, std::span<const Argument>(arguments.begin(), arguments.size()), found);
  std::vector<std::string> texts;
  for (const Dependency& dependency : found) {
    texts.push_back(
        fmt::format("{}{}", dependency.kind == EdgeKind::kData ? 'd' : 'o', dependency.task));
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return fmt::format("{}", fmt::join(texts, " "));
}

View whole() { return dense_view(kBuffer, DType::kF32, {8, 16}); }
View rows(int64_t begin, int64_t count) { return slice(whole(), 0, begin, count); }
View columns(int64_t begin, int64_t count) { return slice(whole(), 1, begin, count); }

TEST(TensorMap, MakesReadersWaitForTheWriter) {
  TensorMap map;
  EXPECT_EQ(waits_for(map, 1, {out(whole())}), "");
  EXPECT_EQ(waits_for(map, 2, {in(whole())}), "d1");
  EXPECT_EQ(waits_for(map, 3, {in(whole())}), "d1");
}

TEST(TensorMap, MakesAWriterWaitForTheReadersOnly) {
  TensorMap map;
  waits_for(map, 1, {out(whole())});
  waits_for(map, 2, {in(whole())});
  waits_for(map, 3, {in(whole())});
  EXPECT_EQ(waits_for(map, 4, {out(whole())}), "o2 o3");
  EXPECT_EQ(waits_for(map, 5, {out(whole())}), "o4");
}

TEST(TensorMap, MakesAnUpdateWaitForBoth) {
  TensorMap map;
  waits_for(map, 1, {out(whole())});
  EXPECT_EQ(waits_for(map, 2, {inout(whole())}), "d1");
  waits_for(map, 3, {in(whole())});
  EXPECT_EQ(waits_for(map, 4, {inout(whole())}), "d2 o3");
}

TEST(TensorMap, KeepsDisjointPartsApart) {
  TensorMap map;
  waits_for(map, 1, {out(columns(0, 8))});
  EXPECT_EQ(waits_for(map, 2, {out(columns(8, 8))}), "");
  EXPECT_EQ(waits_for(map, 3, {in(columns(4, 4))}), "d1");
  EXPECT_EQ(waits_for(map, 4, {in(columns(6, 4))}), "d1 d2");
  EXPECT_EQ(waits_for(map, 5, {in(rows(3, 1))}), "d1 d2");
}

TEST(TensorMap, SeesOneWriteOfAllInPlaceOfItsParts) {
  TensorMap map;
  for (uint64_t i = 0; i < 8; ++i) waits_for(map, i, {out(rows(static_cast<int64_t>(i), 1))});
  EXPECT_EQ(waits_for(map, 8, {inout(whole())}), "d0 d1 d2 d3 d4 d5 d6 d7");
  EXPECT_EQ(waits_for(map, 9, {inout(whole())}), "d8");
  EXPECT_EQ(waits_for(map, 10, {in(rows(3, 1))}), "d9");
  EXPECT_EQ(waits_for(map, 11, {out(whole())}), "o10 o9");
}

TEST(TensorMap, DoesNotRepeatWhatAnEarlierWriteWaitedFor) {
  TensorMap map;
  waits_for(map, 1, {out(whole())});
  waits_for(map, 2, {in(whole())});
  EXPECT_EQ(waits_for(map, 3, {out(columns(0, 4))}), "o2");
  EXPECT_EQ(waits_for(map, 4, {out(columns(0, 4))}), "o3");
  EXPECT_EQ(waits_for(map, 5, {in(columns(0, 4))}), "d4");
  EXPECT_EQ(waits_for(map, 6, {in(columns(1, 2))}), "d4");
  waits_for(map, 7, {in(whole())});
  EXPECT_EQ(waits_for(map, 8, {out(columns(0, 4))}), "o5 o6 o7");
}

TEST(TensorMap, KnowsBytesByAnyShapeAndType) {
  TensorMap map;
  waits_for(map, 1, {out(rows(0, 4))});
  EXPECT_EQ(waits_for(map, 2, {in(dense_view(kBuffer, DType::kBf16, {192}))}), "d1");
  const View second_half = slice(dense_view(kBuffer, DType::kU8, {512}), 0, 256, 256);
  EXPECT_EQ(waits_for(map, 3, {out(second_half)}), "o2");
}

TEST(TensorMap, NeverMakesATaskWaitForItself) {
  TensorMap map;
  EXPECT_EQ(waits_for(map, 1, {in(rows(0, 4)), out(rows(2, 4)), inout(whole())}), "");
  EXPECT_EQ(waits_for(map, 1, {inout(whole())}), "");
  EXPECT_EQ(waits_for(map, 2, {in(whole()), out(whole())}), "d1 o1");
  EXPECT_EQ(waits_for(map, 3, {in(whole())}), "d2");
}

TEST(TensorMap, KeepsBuffersApart) {
  TensorMap map;
  waits_for(map, 1, {out(whole())});
  EXPECT_EQ(waits_for(map, 2, {in(dense_view(BufferId{2}, DType::kF32, {8, 16}))}), "");
}

TEST(TensorMap, IgnoresViewsThatTouchNothing) {
  TensorMap map;
  waits_for(map, 1, {out(whole())});
  EXPECT_EQ(waits_for(map, 2, {inout(rows(2, 0)), in(rows(1, 1))}), "d1");
  EXPECT_EQ(map.stats().node_count, 2u);
}

TEST(TensorMap, ForgetsABufferAndOnlyThat) {
  TensorMap map;
  const View other = dense_view(BufferId{2}, DType::kU8, {64});
  waits_for(map, 1, {out(rows(0, 2)), out(columns(0, 4)), in(rows(0, 1)), out(other)});
  map.forget(kBuffer);
  EXPECT_EQ(map.stats().node_count, 1u);
  EXPECT_EQ(waits_for(map, 2, {inout(whole()), in(rows(0, 2))}), "");
  EXPECT_EQ(waits_for(map, 3, {in(other)}), "d1");
  map.forget(BufferId{77});
  EXPECT_EQ(map.stats().node_count, 3u);
}

TEST(TensorMap, ComparesAKnownViewWithNobody) {
  TensorMap map;
  for (int round = 0; round < 10; ++round) {
    for (int64_t i = 0; i < 16; ++i) waits_for(map, 1, {inout(columns(i, 1))});
  }
  EXPECT_EQ(map.stats().created_count, 16u);
  EXPECT_LE(map.stats().compared_count, 16u * 15u / 2);
}

TEST(TensorMap, ComparesFewOfManySlices) {
  TensorMap map;
  const View wide = dense_view(kBuffer, DType::kBf16, {16, 10000 * 256});
  for (int64_t i = 0; i < 10000; ++i) {
    EXPECT_EQ(waits_for(map, 1, {out(slice(wide, 1, 256 * i, 256))}), "");
  }
  EXPECT_EQ(map.stats().node_count, 10000u);
  EXPECT_LE(map.stats().compared_count, 100u);
  EXPECT_EQ(waits_for(map, 2, {in(slice(wide, 1, 256 * 77, 256))}), "d1");
}

TEST(TensorMap, IsMovedWithAllItKnows) {
  TensorMap map;
  waits_for(map, 1, {out(whole())});
  TensorMap moved = std::move(map);
  EXPECT_EQ(waits_for(moved, 2, {in(rows(0, 1))}), "d1");
}

bool is_at_least(const void* owner, uint64_t task) {
  return task >= *static_cast<const uint64_t*>(owner);
}

TEST(TensorMap, HoldsOnlyReadersThatMayBeAwaited) {
  uint64_t first_live = 0;
  TensorMap map(is_at_least, &first_live);
  waits_for(map, 1, {out(whole())});
  uint64_t settled_bytes = 0;
  for (uint64_t task = 2; task < 100000; ++task) {
    first_live = task < 10 ? 0 : task - 10;
    waits_for(map, task, {in(whole())});
    if (task == 1000) settled_bytes = map.stats().memory_bytes;
  }
  EXPECT_EQ(map.stats().memory_bytes, settled_bytes);
  std::vector<Dependency> found;
  const Argument write = out(whole());
  map.access(100000, {&write, 1}, found);
  EXPECT_LT(found.size(), 32u);
  EXPECT_GE(found.size(), 10u);
}

TEST(TensorMap, HoldsOnlyViewsThatMayBeAwaited) {
  uint64_t first_live = 0;
  TensorMap map(is_at_least, &first_live);
  uint64_t settled_bytes = 0;
  const View large = dense_view(kBuffer, DType::kU8, {1 << 20});
  waits_for(map, 0, {in(slice(large, 0, 0, 1 << 19))});  // of which all below are neighbours
  for (uint64_t task = 1; task < 200000; ++task) {
    first_live = task < 100 ? 0 : task - 100;
    waits_for(map, task, {out(slice(large, 0, static_cast<int64_t>(task), 2))});
    if (task == 20000) settled_bytes = map.stats().memory_bytes;
    if (task == 20000) {
      EXPECT_GT(map.stats().swept_count, 10000u);
    }
  }
  EXPECT_EQ(map.stats().memory_bytes, settled_bytes);
  EXPECT_LE(map.stats().node_count, 4096u);
  EXPECT_EQ(waits_for(map, 200000, {in(slice(large, 0, 199999, 1))}), "d199999");
  EXPECT_EQ(waits_for(map, 200001, {in(slice(large, 0, 199998, 2))}), "d199998 d199999");
}

TEST(TensorMap, RemembersAllWithoutAFilter) {
  TensorMap map;
  const View large = dense_view(kBuffer, DType::kU8, {20000});
  for (int64_t i = 0; i < 20000; ++i) waits_for(map, 1, {out(slice(large, 0, i, 1))});
  EXPECT_EQ(map.stats().node_count, 20000u);
  EXPECT_EQ(map.stats().swept_count, 0u);
  EXPECT_EQ(waits_for(map, 2, {in(slice(large, 0, 0, 1))}), "d1");
}

// The owner makes a task live only after the map has seen it.
TEST(TensorMap, KeepsAReaderThatIsNotLiveYet) {
  uint64_t live_count = 0;  // tasks below are live
  const TensorMap::IsLive is_live = [](const void* owner, uint64_t task) {
    return task < *static_cast<const uint64_t*>(owner);
  };
  TensorMap map(is_live, &live_count);
  const View view = dense_view(BufferId{0}, DType::kF32, {8});
  const Argument read = in(view);
  const Argument write = out(view);
  std::vector<Dependency> found;
  for (uint64_t task = 0; task < 40; ++task) {
    map.access(task, {&read, 1}, found);
    live_count = task + 1;
  }
  EXPECT_TRUE(found.empty());
  map.access(40, {&write, 1}, found);
  EXPECT_EQ(found.size(), 40u);
}

// A chain on the whole buffer does not go over ten thousand slices again and again.
TEST(TensorMap, DropsSlicesThatWereCoveredTwice) {
  TensorMap map;
  const View whole = dense_view(BufferId{0}, DType::kU8, {10000});
  std::vector<Dependency> found;
  uint64_t task = 0;
  for (int64_t i = 0; i < 10000; ++i) {
    const Argument part = out(slice(whole, 0, i, 1));
    map.access(task++, {&part, 1}, found);
  }
  EXPECT_TRUE(found.empty());
  const Argument all = inout(whole);
  map.access(task++, {&all, 1}, found);
  EXPECT_EQ(found.size(), 10000u);
  EXPECT_EQ(map.stats().node_count, 10001u);
  found.clear();
  map.access(task++, {&all, 1}, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].task, task - 2);
  EXPECT_EQ(map.stats().node_count, 1u);

  // A slice that comes back waits for the whole, and the whole for the slice.
  const Argument part = inout(slice(whole, 0, 17, 1));
  found.clear();
  map.access(task++, {&part, 1}, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].task, task - 2);
  found.clear();
  map.access(task++, {&all, 1}, found);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].task, task - 2);
}

}  // namespace
}  // namespace gapless
