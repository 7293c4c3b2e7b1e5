// SPDX-License-Identifier: Apache-2.0
//
// Which workers run the tasks of a stream: blocks, gangs, clusters, and workers that have parked.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/stream.h"
#include "runtime/stream_test_support.h"

namespace gapless {
namespace {

constexpr std::array<int, 3> kWorkerCounts = {1, 2, 4};

// Arguments: rows. Each block adds 1 + its number to all of its row.
void add_to_row_kernel(TaskContext& context) {
  const int64_t columns = context.argument(0).view.shape[1];
  int64_t* const row = context.data<int64_t>(0) + context.block_index() * columns;
  for (int64_t i = 0; i < columns; ++i) row[i] += 1 + context.block_index();
}

// Scalars: a MeetingPoint, a Journal. Returns when all parts are inside at once.
void meet_kernel(TaskContext& context) {
  object_at<MeetingPoint>(context, 0).meet();
  object_at<Journal>(context, 1)
      .note(context.block_index() * 10 + static_cast<int64_t>(context.role()));
}
std::vector<Scalar> meet(MeetingPoint& point, Journal& journal) {
  return {pointer_to(point), pointer_to(journal)};
}

// Scalars: an atomic counter.
void count_kernel(TaskContext& context) {
  object_at<std::atomic<int64_t>>(context, 0).fetch_add(1, std::memory_order_relaxed);
}

// Scalars: a Journal.
void note_worker_kernel(TaskContext& context) {
  object_at<Journal>(context, 0).note(context.worker_index());
}

// ---- Blocks, gangs, clusters.

TEST(StreamWorkers, EveryBlockRunsOnce) {
  constexpr int32_t kBlocks = 37;
  for (const int worker_count : kWorkerCounts) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(kBlocks * 8, 0);
    TestStream stream(*device);
    const View flat = stream.share("x", x);
    const View rows = dense_view(flat.buffer, DType::kS64, {kBlocks, 8});
    for (int i = 0; i < 20; ++i) {
      stream.add({.name = "add_to_row",
                  .run = add_to_row_kernel,
                  .arguments = {inout(rows)},
                  .block_count = kBlocks});
    }
    const StreamSummary summary = stream.wait();
    EXPECT_EQ(summary.task_count, 20u);
    EXPECT_EQ(summary.run_count, 20u * kBlocks);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], 20 * static_cast<int64_t>(1 + i / 8)) << "element " << i;
    }
  }
}

TEST(StreamWorkers, TheBlocksOfAGangRunTogether) {
  for (const int worker_count : {2, 3, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    for (int32_t blocks = 2; blocks <= worker_count; ++blocks) {
      SCOPED_TRACE(testing::Message() << blocks << " of " << worker_count);
      MeetingPoint point(blocks);
      Journal journal;
      TestStream stream(*device);
      for (int i = 0; i < 10; ++i) {
        stream.add({.name = "meet",
                    .run = meet_kernel,
                    .scalars = meet(point, journal),
                    .block_count = blocks,
                    .gang = true});
      }
      EXPECT_EQ(stream.wait().run_count, 10u * static_cast<uint64_t>(blocks));
      for (int32_t block = 0; block < blocks; ++block) EXPECT_EQ(journal.count(block * 10), 10);
    }
  }
}

// The thread that submits is one of the gang's workers: it has to leave its submitting for it.
TEST(StreamWorkers, TheSubmittingThreadTakesPartInAGangOfAllWorkers) {
  const std::unique_ptr<CpuDevice> device = make_device(3);
  MeetingPoint point(3);
  Journal journal;
  std::atomic<int64_t> counted = 0;
  TestStream stream(*device, small_rings());
  for (int i = 0; i < 20; ++i) {
    stream.add({.name = "meet",
                .run = meet_kernel,
                .scalars = meet(point, journal),
                .block_count = 3,
                .gang = true});
    for (int j = 0; j < 20; ++j) {
      stream.add({.name = "count", .run = count_kernel, .scalars = {pointer_to(counted)}});
    }
  }
  stream.wait();
  EXPECT_EQ(counted.load(), 400);
  for (const int64_t block : {0, 10, 20}) EXPECT_EQ(journal.count(block), 20);
}

TEST(StreamWorkers, AGangOfAllWorkersRunsBeforeAnybodyWaits) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  MeetingPoint point(2);
  Journal journal;
  TestStream stream(*device);
  stream.add({.name = "meet",
              .run = meet_kernel,
              .scalars = meet(point, journal),
              .block_count = 2,
              .gang = true});
  EXPECT_GE(journal.entries().size(), 1u) << "this thread's block has run";
  stream.wait();
  EXPECT_EQ(journal.sorted(), (Numbers{0, 10}));
}

TEST(StreamWorkers, GangsWaitForTheirProducersAndAreWaitedFor) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(2, 1);
  MeetingPoint point(2);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  int64_t expected = 1;
  // Each block keeps to its own element, between two meetings of both.
  const auto meet_and_mix = [](TaskContext& context) {
    object_at<MeetingPoint>(context, 0).meet();
    int64_t& number = context.data<int64_t>(0)[context.block_index()];
    number = mixed(number, -1);
    object_at<MeetingPoint>(context, 0).meet();
  };
  for (int64_t i = 0; i < 30; ++i) {
    stream.add(mix_task(xs, i));
    stream.add({.name = "meet_and_mix",
                .run = meet_and_mix,
                .scalars = {pointer_to(point)},
                .arguments = {inout(xs)},
                .block_count = 2,
                .gang = true});
    expected = mixed(mixed(expected, i), -1);
  }
  stream.wait();
  EXPECT_EQ(x, Numbers(2, expected));
}

TEST(StreamWorkers, AGangOfOneBlockIsAnOrdinaryTask) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  TestStream stream(*device);
  stream.add({.scalars = note(journal, 1), .gang = true});
  EXPECT_EQ(stream.wait().run_count, 1u);
  EXPECT_EQ(journal.count(1), 1);
}

TEST(StreamWorkers, AMixedTaskTakesAClusterABlock) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  MeetingPoint point(3);
  Journal journal;
  TestStream stream(*device);
  for (int i = 0; i < 10; ++i) {
    stream.add({.name = "meet",
                .run = meet_kernel,
                .scalars = meet(point, journal),
                .core = CoreKind::kMixed,
                .block_count = 2});
  }
  EXPECT_EQ(stream.wait().run_count, 60u);
  for (const int64_t part : {1, 2, 3, 11, 12, 13}) EXPECT_EQ(journal.count(part), 10);
}

TEST(StreamWorkers, AMixedGangTakesAllClustersTogether) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(2);
  MeetingPoint point(6);
  Journal journal;
  TestStream stream(*device);
  for (int i = 0; i < 5; ++i) {
    stream.add({.name = "meet",
                .run = meet_kernel,
                .scalars = meet(point, journal),
                .core = CoreKind::kMixed,
                .block_count = 2,
                .gang = true});
  }
  EXPECT_EQ(stream.wait().run_count, 30u);
  EXPECT_EQ(journal.entries().size(), 30u);
}

TEST(StreamWorkers, TasksOfAKindRunOnWorkersOfThatKind) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(2);
  Journal cubes, vectors;
  TestStream stream(*device, small_rings());
  for (int i = 0; i < 200; ++i) {
    stream.add({.name = "note_worker",
                .run = note_worker_kernel,
                .scalars = {pointer_to(cubes)},
                .core = CoreKind::kCube});
    stream.add({.name = "note_worker",
                .run = note_worker_kernel,
                .scalars = {pointer_to(vectors)},
                .core = CoreKind::kVector});
  }
  EXPECT_EQ(stream.wait().run_count, 400u);
  EXPECT_EQ(cubes.count(0) + cubes.count(3), 200);
  EXPECT_EQ(vectors.count(0) + vectors.count(3), 0);
  EXPECT_EQ(vectors.entries().size(), 200u);
}

// ---- Parking.

// Workers park as soon as they find nothing; each round must wake them.
TEST(StreamWorkers, ParkedWorkersAreWoken) {
  const std::unique_ptr<CpuDevice> device =
      must(CpuDevice::create({.worker_count = 4, .park_after_ns = 0}));
  std::atomic<int64_t> counted = 0;
  TestStream stream(*device, small_rings());
  for (int round = 1; round <= 200; ++round) {
    stream.add({.name = "count", .run = count_kernel, .scalars = {pointer_to(counted)}});
    stream.wait();
    EXPECT_EQ(counted.load(), round);
    std::this_thread::sleep_for(std::chrono::microseconds(round % 4 * 100));
  }
}

// Without the parked ones a gang of all workers would never meet.
TEST(StreamWorkers, ParkedWorkersAreWokenForAGang) {
  const std::unique_ptr<CpuDevice> device =
      must(CpuDevice::create({.worker_count = 3, .park_after_ns = 0}));
  MeetingPoint point(3);
  Journal journal;
  TestStream stream(*device, small_rings());
  for (int round = 0; round < 20; ++round) {
    stream.add({.name = "meet",
                .run = meet_kernel,
                .scalars = meet(point, journal),
                .block_count = 3,
                .gang = true});
    stream.wait();
    std::this_thread::sleep_for(std::chrono::microseconds(round % 4 * 100));
  }
  EXPECT_EQ(journal.count(0), 20);
}

// Here only a parked worker can run the task: this thread waits without working.
TEST(StreamWorkers, AParkedWorkerRunsATaskThatNobodyWaitsFor) {
  const std::unique_ptr<CpuDevice> device =
      must(CpuDevice::create({.worker_count = 2, .park_after_ns = 0}));
  TestStream stream(*device, small_rings());
  for (int round = 0; round < 100; ++round) {
    Gate gate;
    stream.add(open_task(gate));
    gate.wait();
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round));
  }
  EXPECT_EQ(stream.wait().run_count, 100u);
}

TEST(StreamWorkers, WorkersThatWereIdleForLongTakeABurst) {
  const std::unique_ptr<CpuDevice> device = make_device(4);
  std::atomic<int64_t> counted = 0;
  TestStream stream(*device);
  for (int burst = 1; burst <= 3; ++burst) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int i = 0; i < 5000; ++i) {
      stream.add({.name = "count", .run = count_kernel, .scalars = {pointer_to(counted)}});
    }
    stream.wait();
    EXPECT_EQ(counted.load(), burst * 5000);
  }
}

}  // namespace
}  // namespace gapless
