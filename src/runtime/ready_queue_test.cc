// SPDX-License-Identifier: Apache-2.0

#include "runtime/ready_queue.h"

#include <atomic>
#include <cstddef>
#include <latch>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

std::vector<QueueLink> links_with_levels(const std::vector<uint16_t>& levels) {
  std::vector<QueueLink> links(levels.size());
  for (size_t i = 0; i < levels.size(); ++i) links[i].level = levels[i];
  return links;
}

std::vector<QueueLink> links_of_one_level(size_t count) {
  return links_with_levels(std::vector<uint16_t>(count, 5));
}

std::vector<uint32_t> numbers(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> tasks;
  for (uint32_t task = begin; task < end; ++task) tasks.push_back(task);
  return tasks;
}

// The tasks in the order in which their blocks are handed out.
std::vector<uint32_t> pop_all(ReadyQueue& queue) {
  std::vector<uint32_t> tasks;
  Taken taken;
  while (queue.pop(taken)) tasks.push_back(taken.task);
  return tasks;
}

class ReadyQueueTest : public ::testing::Test {
 protected:
  void attach(std::vector<QueueLink> links, bool shared = true) {
    links_ = std::move(links);
    queue_.attach(links_.data(), shared);
    thief_.attach(links_.data(), shared);
  }

  std::vector<QueueLink> links_;
  ReadyQueue queue_;
  ReadyQueue thief_;
  Taken taken_;
};

TEST_F(ReadyQueueTest, TakesTheHighestLevelFirst) {
  for (const bool shared : {false, true}) {
    attach(links_with_levels({3, 1000, 64, 63, 1023, 0}), shared);
    queue_.push(numbers(0, 6));
    EXPECT_EQ(pop_all(queue_), (std::vector<uint32_t>{4, 1, 2, 3, 0, 5}));
  }
}

TEST_F(ReadyQueueTest, KeepsTheOrderWithinALevel) {
  attach(links_of_one_level(6));
  queue_.push(std::vector<uint32_t>{3, 1, 5});
  queue_.push(std::vector<uint32_t>{0, 4});
  EXPECT_EQ(pop_all(queue_), (std::vector<uint32_t>{3, 1, 5, 0, 4}));
}

TEST_F(ReadyQueueTest, TakesABetterTaskThatCameLater) {
  attach(links_with_levels({5, 5, 9}));
  queue_.push(numbers(0, 2));
  ASSERT_TRUE(queue_.pop(taken_));
  EXPECT_EQ(taken_.task, 0u);
  queue_.push(numbers(2, 3));
  EXPECT_EQ(pop_all(queue_), (std::vector<uint32_t>{2, 1}));
}

TEST_F(ReadyQueueTest, AnEmptyQueueHasNothing) {
  for (const bool shared : {false, true}) {
    attach(links_of_one_level(1), shared);
    EXPECT_FALSE(queue_.pop(taken_));
    queue_.push({});
    EXPECT_EQ(queue_.size(), 0u);
    EXPECT_FALSE(queue_.pop(taken_));
  }
  EXPECT_FALSE(queue_.steal(taken_, thief_));
}

TEST_F(ReadyQueueTest, HandsOutBlocksOneByOne) {
  attach(links_of_one_level(2));
  links_[0].block_count = 3;
  queue_.push(numbers(0, 2));
  for (int32_t block = 0; block < 3; ++block) {
    EXPECT_EQ(queue_.size(), 2u) << "the task stays until its last block is taken";
    ASSERT_TRUE(queue_.pop(taken_));
    EXPECT_EQ(taken_.task, 0u);
    EXPECT_EQ(taken_.block, block);
  }
  EXPECT_EQ(queue_.size(), 1u);
  EXPECT_EQ(pop_all(queue_), (std::vector<uint32_t>{1}));
  EXPECT_EQ(queue_.size(), 0u);
}

TEST_F(ReadyQueueTest, ABetterTaskComesBetweenTwoBlocks) {
  attach(links_with_levels({5, 9}));
  links_[0].block_count = 2;
  queue_.push(numbers(0, 1));
  ASSERT_TRUE(queue_.pop(taken_));
  queue_.push(numbers(1, 2));
  ASSERT_TRUE(queue_.pop(taken_));
  EXPECT_EQ(taken_.task, 1u);
  ASSERT_TRUE(queue_.pop(taken_));
  EXPECT_EQ(taken_.task, 0u);
  EXPECT_EQ(taken_.block, 1);
}

TEST_F(ReadyQueueTest, ATaskBeginsWithBlockZeroEachTime) {
  attach(links_of_one_level(1));
  links_[0].block_count = 2;
  for (int time = 0; time < 3; ++time) {
    queue_.push(numbers(0, 1));
    ASSERT_TRUE(queue_.pop(taken_));
    EXPECT_EQ(taken_.block, 0);
    ASSERT_TRUE(queue_.pop(taken_));
    EXPECT_EQ(taken_.block, 1);
    EXPECT_FALSE(queue_.pop(taken_));
  }
}

TEST_F(ReadyQueueTest, IsEmptyAfterAttach) {
  attach(links_of_one_level(3));
  queue_.push(numbers(0, 3));
  queue_.attach(links_.data(), true);
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_FALSE(queue_.pop(taken_));
}

TEST_F(ReadyQueueTest, StealTakesHalf) {
  attach(links_of_one_level(8));
  queue_.push(numbers(0, 8));
  ASSERT_TRUE(queue_.steal(taken_, thief_));
  EXPECT_EQ(taken_.task, 0u);
  EXPECT_EQ(thief_.size(), 3u);
  EXPECT_EQ(queue_.size(), 4u);
  EXPECT_EQ(pop_all(thief_), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(pop_all(queue_), (std::vector<uint32_t>{4, 5, 6, 7}));
}

TEST_F(ReadyQueueTest, StealTakesTheOnlyTask) {
  attach(links_of_one_level(1));
  queue_.push(numbers(0, 1));
  ASSERT_TRUE(queue_.steal(taken_, thief_));
  EXPECT_EQ(taken_.task, 0u);
  EXPECT_EQ(thief_.size(), 0u);
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_FALSE(queue_.steal(taken_, thief_));
}

TEST_F(ReadyQueueTest, StealTakesAtMost64) {
  attach(links_of_one_level(1000));
  queue_.push(numbers(0, 1000));
  ASSERT_TRUE(queue_.steal(taken_, thief_));
  EXPECT_EQ(thief_.size(), 63u);
  EXPECT_EQ(queue_.size(), 936u);
}

TEST_F(ReadyQueueTest, StealLeavesLowerLevels) {
  attach(links_with_levels({1, 1, 1, 1, 9, 9}));
  queue_.push(numbers(0, 6));
  ASSERT_TRUE(queue_.steal(taken_, thief_));
  EXPECT_EQ(taken_.task, 4u);
  EXPECT_EQ(pop_all(thief_), (std::vector<uint32_t>{5}));
  EXPECT_EQ(pop_all(queue_), (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST_F(ReadyQueueTest, StealTakesOneBlockOfATaskOfMany) {
  attach(links_of_one_level(4));
  links_[0].block_count = 8;
  queue_.push(numbers(0, 4));
  ASSERT_TRUE(queue_.steal(taken_, thief_));
  EXPECT_EQ(taken_.task, 0u);
  EXPECT_EQ(taken_.block, 0);
  EXPECT_EQ(thief_.size(), 0u);
  EXPECT_EQ(queue_.size(), 4u);
  ASSERT_TRUE(queue_.pop(taken_));
  EXPECT_EQ(taken_.task, 0u);
  EXPECT_EQ(taken_.block, 1);
}

TEST_F(ReadyQueueTest, StealMovesNoTaskOfManyBlocks) {
  attach(links_of_one_level(8));
  links_[2].block_count = 2;
  queue_.push(numbers(0, 8));
  ASSERT_TRUE(queue_.steal(taken_, thief_));
  EXPECT_EQ(taken_.task, 0u);
  EXPECT_EQ(pop_all(thief_), (std::vector<uint32_t>{1}));
  EXPECT_EQ(pop_all(queue_), (std::vector<uint32_t>{2, 2, 3, 4, 5, 6, 7}));
}

// Goal: whoever takes a block, it is taken exactly once. Method: one owner pushes in portions and
// pops, three thieves steal from it and from each other; every seventh task has three blocks.
TEST(ReadyQueueThreads, EveryBlockIsTakenOnce) {
  constexpr uint32_t kTaskCount = 20000;
  constexpr size_t kThreadCount = 4;
  constexpr uint32_t kPortion = 50;
  std::vector<QueueLink> links(kTaskCount);
  int64_t block_total = 0;
  for (uint32_t i = 0; i < kTaskCount; ++i) {
    links[i].level = static_cast<uint16_t>(i % 3 * 300);
    links[i].block_count = i % 7 == 0 ? 3 : 1;
    block_total += links[i].block_count;
  }
  const std::unique_ptr<ReadyQueue[]> queues = std::make_unique<ReadyQueue[]>(kThreadCount);
  for (size_t i = 0; i < kThreadCount; ++i) queues[i].attach(links.data(), true);
  std::vector<std::atomic<int32_t>> taken_counts(kTaskCount);
  std::vector<std::atomic<int32_t>> block_sums(kTaskCount);
  std::atomic<int64_t> left = block_total;
  std::latch all_are_there(kThreadCount);
  const auto work = [&](size_t self) {
    const std::vector<uint32_t> all = numbers(0, self == 0 ? kTaskCount : 0);
    std::span<const uint32_t> unpushed = all;
    all_are_there.arrive_and_wait();
    while (left.load() > 0) {
      if (!unpushed.empty()) {
        queues[self].push(unpushed.first(kPortion));
        unpushed = unpushed.subspan(kPortion);
      }
      Taken taken;
      bool found = queues[self].pop(taken);
      for (size_t i = 1; i < kThreadCount && !found; ++i) {
        found = queues[(self + i) % kThreadCount].steal(taken, queues[self]);
      }
      if (!found) {
        std::this_thread::yield();
        continue;
      }
      taken_counts[taken.task].fetch_add(1);
      block_sums[taken.task].fetch_add(taken.block);
      left.fetch_sub(1);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreadCount; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < kTaskCount; ++i) {
    ASSERT_EQ(taken_counts[i].load(), links[i].block_count) << "task " << i;
    ASSERT_EQ(block_sums[i].load(), links[i].block_count == 3 ? 0 + 1 + 2 : 0) << "task " << i;
  }
  for (size_t i = 0; i < kThreadCount; ++i) EXPECT_EQ(queues[i].size(), 0u);
}

}  // namespace
}  // namespace gapless
