// SPDX-License-Identifier: Apache-2.0

#include "model/kv_page_pool.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

KvPagePool make_pool(int page_count, int max_sequences = 8, int max_sequence_pages = 8) {
  return KvPagePool::create({.page_count = page_count,
                             .page_tokens = 16,
                             .max_sequences = max_sequences,
                             .max_sequence_pages = max_sequence_pages})
      .value();
}

void append_tokens(KvPagePool& pool, int sequence, int count) {
  for (int i = 0; i < count; ++i) ASSERT_TRUE(pool.append(sequence));
}

TEST(KvPagePool, GivesOutPagesAsASequenceGrows) {
  KvPagePool pool = make_pool(3);
  const int sequence = pool.add_sequence().value();
  EXPECT_EQ(pool.append(sequence).value(), (KvSlot{.page = 0, .token = 0}));
  append_tokens(pool, sequence, 14);
  EXPECT_EQ(pool.append(sequence).value(), (KvSlot{.page = 0, .token = 15}));
  EXPECT_EQ(pool.append(sequence).value(), (KvSlot{.page = 1, .token = 0}));
  EXPECT_EQ(pool.length(sequence), 17);
  EXPECT_EQ(pool.free_page_count(), 1);
  pool.release(sequence);
  EXPECT_EQ(pool.free_page_count(), 3);
  EXPECT_EQ(pool.sequence_count(), 0);
  EXPECT_FALSE(pool.is_live(sequence));
}

TEST(KvPagePool, CopiesTheLastPageForTheFirstWhoAppends) {
  KvPagePool pool = make_pool(4);
  const int first = pool.add_sequence().value();
  append_tokens(pool, first, 20);
  const int second = pool.fork(first, 20).value();
  EXPECT_EQ(pool.free_page_count(), 2) << "a fork takes no page";
  EXPECT_EQ(pool.holder_count(0), 2);
  EXPECT_EQ(pool.append(first).value(), (KvSlot{.page = 2, .token = 4, .copy_from = 1}));
  EXPECT_EQ(pool.append(second).value(), (KvSlot{.page = 1, .token = 4}))
      << "the page has one holder left";
  EXPECT_EQ(pool.holder_count(0), 2) << "full pages stay shared";
  pool.release(first);
  EXPECT_EQ(pool.holder_count(0), 1);
  EXPECT_EQ(pool.free_page_count(), 2);
}

TEST(KvPagePool, SharesFullPagesWithoutACopy) {
  KvPagePool pool = make_pool(4);
  const int first = pool.add_sequence().value();
  append_tokens(pool, first, 16);
  const int second = pool.fork(first, 16).value();
  EXPECT_EQ(pool.append(first).value(), (KvSlot{.page = 1, .token = 0}));
  EXPECT_EQ(pool.append(second).value(), (KvSlot{.page = 2, .token = 0}));
}

TEST(KvPagePool, SharesAPrefixThatEndsInsideAPage) {
  KvPagePool pool = make_pool(6);
  const int first = pool.add_sequence().value();
  append_tokens(pool, first, 40);
  const int second = pool.fork(first, 18).value();
  EXPECT_EQ(pool.pages(second).size(), 2u);
  EXPECT_EQ(pool.append(second).value(), (KvSlot{.page = 3, .token = 2, .copy_from = 1}));
  EXPECT_EQ(pool.append(first).value(), (KvSlot{.page = 2, .token = 8}));
  EXPECT_EQ(pool.fork(first, 0).value(), 2);
  EXPECT_EQ(pool.length(2), 0);
}

TEST(KvPagePool, SaysWhatIsFull) {
  KvPagePool pool = make_pool(2, 2, 2);
  const int first = pool.add_sequence().value();
  const int second = pool.add_sequence().value();
  EXPECT_EQ(pool.add_sequence().error().message,
            "kv cache: all 2 sequences are in use; release one, or make the cache for more");
  append_tokens(pool, first, 32);
  EXPECT_EQ(pool.append(first).error().message,
            "kv cache: sequence 0 has 32 tokens, the most that its 2 pages of 16 tokens hold; ask "
            "for a longer context");
  EXPECT_EQ(pool.append(second).error().message,
            "kv cache: no page is left for token 0 of sequence 1: 2 pages of 16 tokens are in use "
            "by 2 sequences; release one, or make the cache larger");
  EXPECT_EQ(pool.length(second), 0);
  pool.truncate(first, 16);
  EXPECT_TRUE(pool.append(second));
}

TEST(KvPagePool, FailsToCopyWithoutChangingAnything) {
  KvPagePool pool = make_pool(1);
  const int first = pool.add_sequence().value();
  append_tokens(pool, first, 3);
  const int second = pool.fork(first, 3).value();
  EXPECT_FALSE(pool.append(second));
  EXPECT_EQ(pool.holder_count(0), 2);
  EXPECT_EQ(pool.length(second), 3);
  pool.release(first);
  EXPECT_EQ(pool.append(second).value(), (KvSlot{.page = 0, .token = 3}));
}

TEST(KvPagePool, RefusesShapesItCannotServe) {
  const auto error_of = [](const KvPagePoolShape& shape) {
    const Result<KvPagePool> pool = KvPagePool::create(shape);
    return pool ? "(no error)" : pool.error().message;
  };
  KvPagePoolShape shape{
      .page_count = 4, .page_tokens = 256, .max_sequences = 1, .max_sequence_pages = 4};
  EXPECT_EQ(error_of(shape), "(no error)");
  shape.page_tokens = 24;
  EXPECT_EQ(error_of(shape),
            "kv cache: pages of 24 tokens; it must be a multiple of 16 from 16 to 256");
  shape.page_tokens = 16;
  shape.page_count = 0;
  EXPECT_EQ(error_of(shape), "kv cache: page count 0; it must be from 1 to 268435456");
  shape.page_count = 4;
  shape.max_sequences = -1;
  EXPECT_EQ(error_of(shape), "kv cache: sequence count -1; it must be from 1 to 65536");
  shape.max_sequences = 65536;
  shape.max_sequence_pages = 1 << 20;
  EXPECT_EQ(error_of(shape),
            "kv cache: 65536 sequences of up to 1048576 pages of 16 tokens; ask for fewer or "
            "shorter sequences");
}

TEST(KvPagePool, WritesThePageTableOfABatch) {
  KvPagePool pool = make_pool(8);
  const int first = pool.add_sequence().value();
  const int second = pool.add_sequence().value();
  const int empty = pool.add_sequence().value();
  append_tokens(pool, first, 17);
  append_tokens(pool, second, 1);
  const std::vector<int> batch = {second, first, empty};
  std::vector<int32_t> table(9, -1);
  std::vector<int32_t> lengths(3, -1);
  pool.write_page_table(batch, table, 3, lengths);
  EXPECT_EQ(table, (std::vector<int32_t>{2, 0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(lengths, (std::vector<int32_t>{1, 17, 0}));
}

// A cache of numbers in place of keys and values, kept as the pool says, beside plain copies of
// what each sequence has been given.
class PoolModel {
 public:
  PoolModel(int page_count, int max_sequences, int max_sequence_pages)
      : pool_(make_pool(page_count, max_sequences, max_sequence_pages)),
        memory_(static_cast<size_t>(page_count), std::vector<int>(16, -1)) {}

  void step(std::mt19937& random) {
    const uint64_t action = random() % 100;
    if (sequences_.empty() || action < 6) {
      add();
    } else if (action < 12) {
      fork(pick(random), random);
    } else if (action < 18) {
      const int sequence = pick(random);
      pool_.release(sequence);
      sequences_.erase(sequence);
    } else if (action < 22) {
      truncate(pick(random), random);
    } else {
      const int sequence = pick(random);
      for (uint64_t count = random() % 12; count > 0; --count) append(sequence);
    }
  }

  void expect_sound() const {
    std::vector<int> holders(memory_.size(), 0);
    for (const auto& [sequence, tokens] : sequences_) {
      ASSERT_EQ(pool_.length(sequence), std::ssize(tokens));
      const std::span<const int32_t> pages = pool_.pages(sequence);
      ASSERT_EQ(pages.size(), (tokens.size() + 15) / 16);
      EXPECT_EQ(std::set<int32_t>(pages.begin(), pages.end()).size(), pages.size());
      for (const int32_t page : pages) ++holders[static_cast<size_t>(page)];
      for (size_t i = 0; i < tokens.size(); ++i) {
        ASSERT_EQ(memory_[static_cast<size_t>(pages[i / 16])][i % 16], tokens[i]);
      }
    }
    int free_count = 0;
    for (size_t page = 0; page < holders.size(); ++page) {
      ASSERT_EQ(pool_.holder_count(static_cast<int>(page)), holders[page]);
      free_count += holders[page] == 0 ? 1 : 0;
    }
    EXPECT_EQ(pool_.free_page_count(), free_count);
    EXPECT_EQ(pool_.sequence_count(), std::ssize(sequences_));
  }

  void release_all() {
    for (const auto& [sequence, tokens] : sequences_) pool_.release(sequence);
    sequences_.clear();
  }

  int refused_count() const { return refused_count_; }
  int copy_count() const { return copy_count_; }
  int free_page_count() const { return pool_.free_page_count(); }

 private:
  int pick(std::mt19937& random) const {
    return std::next(sequences_.begin(), static_cast<int>(random() % sequences_.size()))->first;
  }

  void add() {
    const Result<int> sequence = pool_.add_sequence();
    ASSERT_EQ(sequence.has_value(), std::ssize(sequences_) < pool_.shape().max_sequences);
    if (!sequence) return;
    ASSERT_FALSE(sequences_.contains(*sequence));
    sequences_[*sequence] = {};
  }

  void fork(int source, std::mt19937& random) {
    std::vector<int> tokens = sequences_[source];
    if (random() % 2 == 0) tokens.resize(random() % (tokens.size() + 1));
    const Result<int> sequence = pool_.fork(source, static_cast<int>(tokens.size()));
    ASSERT_EQ(sequence.has_value(), std::ssize(sequences_) < pool_.shape().max_sequences);
    if (sequence) sequences_[*sequence] = tokens;
  }

  void truncate(int sequence, std::mt19937& random) {
    std::vector<int>& tokens = sequences_[sequence];
    tokens.resize(random() % (tokens.size() + 1));
    pool_.truncate(sequence, static_cast<int>(tokens.size()));
  }

  void append(int sequence) {
    const int64_t room = pool_.appendable_tokens(sequence);
    const Result<KvSlot> slot = pool_.append(sequence);
    ASSERT_EQ(slot.has_value(), room > 0);
    if (!slot) {
      ++refused_count_;
      return;
    }
    ASSERT_EQ(pool_.appendable_tokens(sequence), room - 1);
    ASSERT_EQ(pool_.holder_count(slot->page), 1) << "written by one holder only";
    std::vector<int>& page = memory_[static_cast<size_t>(slot->page)];
    if (slot->token == 0 || slot->copy_from >= 0) page.assign(page.size(), -1);
    if (slot->copy_from >= 0) {
      ++copy_count_;
      const std::vector<int>& from = memory_[static_cast<size_t>(slot->copy_from)];
      std::copy(from.begin(), from.begin() + slot->token, page.begin());
    }
    page[static_cast<size_t>(slot->token)] = ++next_value_;
    sequences_[sequence].push_back(next_value_);
  }

  KvPagePool pool_;
  std::vector<std::vector<int>> memory_;       // [page][token]
  std::map<int, std::vector<int>> sequences_;  // what each should hold
  int next_value_ = 0;
  int refused_count_ = 0;
  int copy_count_ = 0;
};

// Goal: no sequence ever sees another's tokens, and no page is lost. Method: random calls on pools
// of several sizes (too small ones among them), contents and counts compared after each.
TEST(KvPagePool, KeepsEverySequenceApartUnderRandomUse) {
  int refused_count = 0;
  int copy_count = 0;
  for (const int page_count : {1, 5, 24, 100}) {
    std::mt19937 random(static_cast<uint32_t>(page_count));
    PoolModel model(page_count, 6, 9);
    const uint32_t rounds = test_effort(10000);
    for (uint32_t round = 0; round < rounds; ++round) {
      model.step(random);
      model.expect_sound();
      if (testing::Test::HasFatalFailure()) return;
    }
    refused_count += model.refused_count();
    copy_count += model.copy_count();
    model.release_all();
    EXPECT_EQ(model.free_page_count(), page_count) << "everything comes back";
  }
  EXPECT_GT(refused_count, 50) << "the test must reach full pools";
  EXPECT_GT(copy_count, 20) << "the test must reach copies";
}

}  // namespace
}  // namespace gapless
