// SPDX-License-Identifier: Apache-2.0

#include "graph/region_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include <gtest/gtest.h>

namespace gapless {
namespace {

int pick(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

std::vector<uint32_t> insert(RegionIndex& index, uint32_t node, BufferId buffer,
                             const Region& region) {
  std::vector<uint32_t> nodes;
  index.insert(node, buffer, region, nodes);
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

// Asks by entering a region for a moment.
std::vector<uint32_t> found_nodes(RegionIndex& index, BufferId buffer, const Region& region) {
  constexpr uint32_t kAsking = 100000;
  std::vector<uint32_t> nodes = insert(index, kAsking, buffer, region);
  index.remove(kAsking);
  return nodes;
}

// Rows, columns, tiles and single elements of a buffer, and parts that ignore its shape.
Region random_region(std::mt19937& random, BufferId buffer) {
  const View whole = dense_view(buffer, DType::kU8, {40, 96});
  View view = whole;
  const int kind = pick(random, 0, 5);
  if (kind == 0) {
    const int begin = pick(random, 0, 3000);
    return region_of(slice(dense_view(buffer, DType::kU8, {3840}), 0, begin, pick(random, 1, 800)));
  }
  if (kind == 1) {
    view.shape = {pick(random, 1, 4), pick(random, 1, 4), pick(random, 1, 30), 0};
    view.strides = {pick(random, 1, 700), pick(random, 1, 90), pick(random, 1, 5), 0};
    view.rank = 3;
    view.offset = pick(random, 0, 1000);
    return region_of(view);
  }
  const int row = pick(random, 0, 39);
  const int column = pick(random, 0, 95);
  const bool all_rows = kind == 2;
  const bool all_columns = kind == 3;
  return region_of(tile(whole, {.row = all_rows ? 0 : row,
                                .rows = all_rows ? 40 : pick(random, 1, 40 - row),
                                .column = all_columns ? 0 : column,
                                .columns = all_columns ? 96 : pick(random, 1, 96 - column)}));
}

// Goal: find() reports all that overlap, each once, of the asked buffer, whatever came and went.
// Method: the same regions in a std::map, compared one by one.
TEST(RegionIndex, FindsAllThatOverlapWhateverCameAndWent) {
  size_t found_count = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    RegionIndex index;
    std::map<uint32_t, std::pair<uint32_t, Region>> held;
    for (int step = 0; step < 600; ++step) {
      const BufferId buffer{static_cast<uint32_t>(pick(random, 0, 2)) << 18};
      const uint32_t node = static_cast<uint32_t>(pick(random, 0, 150));
      const Region region = random_region(random, buffer);
      if (held.contains(node)) {
        index.remove(node);
        held.erase(node);
      } else {
        insert(index, node, buffer, region);
        held[node] = {buffer.id, region};
      }
      const Region asked = random_region(random, buffer);
      const std::vector<uint32_t> nodes = found_nodes(index, buffer, asked);
      found_count += nodes.size();
      ASSERT_EQ(std::adjacent_find(nodes.begin(), nodes.end()), nodes.end());
      for (const auto& [number, entry] : held) {
        const bool is_found = std::binary_search(nodes.begin(), nodes.end(), number);
        if (entry.first != buffer.id) {
          ASSERT_FALSE(is_found);
          continue;
        }
        ASSERT_TRUE(is_found || !overlaps(entry.second, asked)) << "seed " << seed;
        ASSERT_EQ(index.region(number), entry.second);
      }
      for (const uint32_t number : nodes) ASSERT_TRUE(held.contains(number));
    }
  }
  EXPECT_GT(found_count, 1000u);
}

TEST(RegionIndex, LooksAtFewOfManyDisjointSlices) {
  constexpr int64_t kCount = 10000;
  const BufferId buffer{3};
  const View whole = dense_view(buffer, DType::kBf16, {16, 100 * kCount});
  RegionIndex index;
  for (int64_t i = 0; i < kCount; ++i) {
    const Region region = region_of(slice(whole, 1, 100 * i, 100));
    ASSERT_TRUE(found_nodes(index, buffer, region).empty());
    insert(index, static_cast<uint32_t>(i), buffer, region);
  }
  const Region two = region_of(slice(whole, 1, 100 * 5000 + 50, 100));
  EXPECT_EQ(found_nodes(index, buffer, two), (std::vector<uint32_t>{5000, 5001}));
  const Region row = region_of(slice(whole, 0, 3, 1));
  EXPECT_EQ(found_nodes(index, buffer, row).size(), static_cast<size_t>(kCount));
}

// Fills a square of `side` x `side` tiles and asks for random windows of it.
void check_tiles(int side) {
  constexpr int kTile = 10;
  const BufferId buffer{3};
  const View whole = dense_view(buffer, DType::kF32, {side * kTile, side * kTile});
  RegionIndex index;
  for (int i = 0; i < side * side; ++i) {
    const Tile part{i / side * kTile, kTile, i % side * kTile, kTile};
    ASSERT_TRUE(
        insert(index, static_cast<uint32_t>(i), buffer, region_of(tile(whole, part))).empty());
  }
  std::mt19937 random(1);
  const int most = std::min(100, side * kTile / 2);
  for (int i = 0; i < 2000; ++i) {
    const Tile asked{.row = pick(random, 0, side * kTile - most),
                     .rows = pick(random, 1, most),
                     .column = pick(random, 0, side * kTile - most),
                     .columns = pick(random, 1, most)};
    std::vector<uint32_t> expected;
    for (int64_t row = asked.row / kTile; row * kTile < asked.row + asked.rows; ++row) {
      int64_t column = asked.column / kTile;
      for (; column * kTile < asked.column + asked.columns; ++column) {
        expected.push_back(static_cast<uint32_t>(row * side + column));
      }
    }
    ASSERT_EQ(found_nodes(index, buffer, region_of(tile(whole, asked))), expected);
  }
}

TEST(RegionIndex, FindsTheTilesOfAWindowAndNoOthers) {
  for (const int side : {3, 7, 8, 11, 16, 100}) {
    check_tiles(side);
    if (HasFatalFailure()) return;
  }
}

TEST(RegionIndex, GivesBackTheNodesOfABufferThatGoes) {
  RegionIndex index;
  const View one = dense_view(BufferId{1}, DType::kU8, {64});
  for (uint32_t i = 0; i < 64; ++i) insert(index, i, BufferId{1}, region_of(slice(one, 0, i, 1)));
  insert(index, 64, BufferId{2}, region_of(one));
  std::vector<uint32_t> nodes;
  index.remove_buffer(BufferId{1}, nodes);
  std::sort(nodes.begin(), nodes.end());
  ASSERT_EQ(nodes.size(), 64u);
  EXPECT_EQ(nodes.front(), 0u);
  EXPECT_EQ(nodes.back(), 63u);
  EXPECT_TRUE(found_nodes(index, BufferId{1}, region_of(one)).empty());
  EXPECT_EQ(found_nodes(index, BufferId{2}, region_of(one)), std::vector<uint32_t>{64});
  nodes.clear();
  index.remove_buffer(BufferId{1}, nodes);
  EXPECT_TRUE(nodes.empty());
}

TEST(RegionIndex, KeepsIdsOfOneIndexApart) {
  RegionIndex index;
  const BufferId stale{5};
  const BufferId successor{5 + (1u << BufferId::kIndexBits)};
  const Region region = region_of(dense_view(stale, DType::kU8, {64}));
  insert(index, 0, stale, region);
  insert(index, 1, successor, region);
  EXPECT_EQ(found_nodes(index, stale, region), std::vector<uint32_t>{0});
  EXPECT_EQ(found_nodes(index, successor, region), std::vector<uint32_t>{1});
}

TEST(RegionIndex, ReusesItsMemory) {
  RegionIndex index;
  uint64_t after_first_bytes = 0;
  for (int round = 0; round < 50; ++round) {
    const View whole = dense_view(BufferId{7}, DType::kU8, {8, 4096});
    for (uint32_t i = 0; i < 256; ++i) {
      insert(index, i, BufferId{7}, region_of(slice(whole, 1, 16 * i, 16)));
    }
    std::vector<uint32_t> nodes;
    index.remove_buffer(BufferId{7}, nodes);
    if (round == 0) after_first_bytes = index.memory_bytes();
  }
  EXPECT_EQ(index.memory_bytes(), after_first_bytes);
}

}  // namespace
}  // namespace gapless
