// SPDX-License-Identifier: Apache-2.0

#include "model/byte_pairs.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

// Byte b has id b.
ByteIds plain_byte_ids() {
  ByteIds ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) ids[byte] = static_cast<int32_t>(byte);
  return ids;
}

BytePairs make_pairs(const std::vector<Merge>& merges) {
  Result<BytePairs> pairs = BytePairs::make(plain_byte_ids(), merges);
  EXPECT_TRUE(pairs.has_value());
  return std::move(pairs).value();
}

std::vector<int32_t> ids_of(const BytePairs& pairs, std::string_view word) {
  BytePairs::Workspace work;
  std::vector<int32_t> ids;
  pairs.append_ids(word, work, ids);
  return ids;
}

// As the definition says: find the best pair, the leftmost of it, merge, start again.
std::vector<int32_t> merge_by_definition(const std::vector<Merge>& merges,
                                         const std::string& word) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) ranks[{merges[i].left, merges[i].right}] = i;
  std::vector<int32_t> ids;
  for (const char c : word) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best_rank = found->second;
      best = i;
    }
    if (best_rank == merges.size()) return ids;
    ids[best] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Pieces of a few letters, each made of two earlier ones. Several pairs may make the same piece.
std::vector<Merge> random_merges(std::mt19937& random, size_t count) {
  std::map<int32_t, std::string> pieces;
  std::map<std::string, int32_t> ids;
  for (int32_t id = 'a'; id <= 'd'; ++id) {
    pieces[id] = std::string(1, static_cast<char>(id));
    ids[pieces[id]] = id;
  }
  std::vector<int32_t> known = {'a', 'b', 'c', 'd'};
  std::map<std::pair<int32_t, int32_t>, bool> used;
  std::vector<Merge> merges;
  while (merges.size() < count) {
    const int32_t left = known[random() % known.size()];
    const int32_t right = known[random() % known.size()];
    if (std::exchange(used[{left, right}], true)) continue;
    const std::string piece = pieces[left] + pieces[right];
    const auto [place, is_new] = ids.emplace(piece, static_cast<int32_t>(256 + ids.size()));
    if (is_new) known.push_back(place->second);
    pieces[place->second] = piece;
    merges.push_back({left, right, place->second});
  }
  return merges;
}

TEST(BytePairs, WithoutMergesABytesIsAnId) {
  const BytePairs pairs = make_pairs({});
  EXPECT_EQ(ids_of(pairs, "a\xff"), (std::vector<int32_t>{'a', 255}));
  EXPECT_TRUE(ids_of(pairs, "").empty());
}

TEST(BytePairs, EarlierMergesGoFirst) {
  // "bc" before "ab": the letter b goes to the right.
  const BytePairs pairs = make_pairs({{'b', 'c', 256}, {'a', 'b', 257}, {'a', 256, 258}});
  EXPECT_EQ(ids_of(pairs, "ab"), (std::vector<int32_t>{257}));
  EXPECT_EQ(ids_of(pairs, "abc"), (std::vector<int32_t>{258}));
  EXPECT_EQ(ids_of(pairs, "abbc"), (std::vector<int32_t>{257, 256}));
}

TEST(BytePairs, OfEqualPairsTheLeftmostGoesFirst) {
  const BytePairs pairs = make_pairs({{'a', 'a', 256}, {256, 256, 257}});
  EXPECT_EQ(ids_of(pairs, "aaa"), (std::vector<int32_t>{256, 'a'}));
  EXPECT_EQ(ids_of(pairs, "aaaaa"), (std::vector<int32_t>{257, 'a'}));
}

TEST(BytePairs, MergeAsTheDefinitionSays) {
  std::mt19937 random(11);
  for (uint32_t round = 0; round < test_effort(400); ++round) {
    const std::vector<Merge> merges = random_merges(random, 1 + random() % 30);
    const BytePairs pairs = make_pairs(merges);
    for (int words = 0; words < 10; ++words) {
      std::string word;
      for (size_t i = 0; i < random() % 40; ++i) word += "abcde"[random() % 5];
      ASSERT_EQ(ids_of(pairs, word), merge_by_definition(merges, word)) << word;
    }
  }
}

TEST(BytePairs, AWorkspaceCarriesNothingOver) {
  std::mt19937 random(13);
  const std::vector<Merge> merges = random_merges(random, 20);
  const BytePairs pairs = make_pairs(merges);
  BytePairs::Workspace work;
  for (const char* word : {"abcdabcdabcd", "a", "", "ddccbbaa", "ab"}) {
    std::vector<int32_t> ids = {-1};
    pairs.append_ids(word, work, ids);
    std::vector<int32_t> expected = merge_by_definition(merges, word);
    expected.insert(expected.begin(), -1);
    EXPECT_EQ(ids, expected) << word;
  }
}

// A search for the best pair from the front after each merge would take 10^11 steps.
TEST(BytePairs, AMegabyteOfOneLetterIsAWordLikeAnyOther) {
  std::vector<Merge> merges = {{'a', 'a', 256}};
  for (int32_t id = 256; id < 265; ++id) merges.push_back({id, id, id + 1});
  const size_t bytes = test_effort(1 << 20);
  const std::vector<int32_t> ids = ids_of(make_pairs(merges), std::string(bytes, 'a'));
  const size_t whole = bytes / 1024;
  ASSERT_GE(ids.size(), whole);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 265), static_cast<std::ptrdiff_t>(whole));
}

TEST(BytePairs, APairMayBeThereOnce) {
  const std::vector<Merge> merges = {{1, 2, 300}, {2, 1, 301}, {1, 2, 302}};
  const Result<BytePairs> pairs = BytePairs::make(plain_byte_ids(), merges);
  ASSERT_FALSE(pairs.has_value());
  EXPECT_EQ(pairs.error().message, "merge 2 is the same as merge 0");
}

}  // namespace
}  // namespace gapless
