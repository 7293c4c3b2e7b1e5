// SPDX-License-Identifier: Apache-2.0

#include "runtime/replay.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/test_graphs.h"

namespace gapless {
namespace {

using Numbers = std::vector<int64_t>;

// Arguments: from, to. Scalars: what to add.
void add_scalar_kernel(TaskContext& context) {
  const int64_t* const from = context.data<int64_t>(0);
  int64_t* const to = context.data<int64_t>(1);
  const int64_t count = context.argument(0).view.shape[0];
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] + context.scalar(0);
}

// Arguments: rows. Each block adds 1 + its number to all of its row.
void add_to_row_kernel(TaskContext& context) {
  const int64_t columns = context.argument(0).view.shape[1];
  int64_t* const row = context.data<int64_t>(0) + context.block_index() * columns;
  for (int64_t i = 0; i < columns; ++i) row[i] += 1 + context.block_index();
  if (context.block_count() != context.argument(0).view.shape[0]) context.fail("wrong block count");
}

// Scalars: a MeetingPoint, a Journal, a number. Returns when all parts are inside at once.
void meet_kernel(TaskContext& context) {
  MeetingPoint& point = object_at<MeetingPoint>(context, 0);
  point.meet();
  object_at<Journal>(context, 1).note(context.scalar(2) * 100 + context.block_index());
  point.meet();
}
std::vector<Scalar> meet(MeetingPoint& point, Journal& journal, int64_t number) {
  return {pointer_to(point), pointer_to(journal), Scalar::fixed(number)};
}

// Scalars: a MeetingPoint, a Journal. Writes down which part of which cluster it is.
void meet_in_cluster_kernel(TaskContext& context) {
  object_at<MeetingPoint>(context, 0).meet();
  object_at<Journal>(context, 1)
      .note(context.block_index() * 10 + static_cast<int64_t>(context.role()));
}

// Scalars: a Journal.
void note_worker_kernel(TaskContext& context) {
  object_at<Journal>(context, 0).note(context.worker_index());
}

// Scalars: where to write, what to write.
void set_kernel(TaskContext& context) { object_at<int64_t>(context, 0) = context.scalar(1); }

TEST(Replay, RunsAChainInOrder) {
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    Replay replay = must(Replay::prepare(*device, make_chain(journal, 5)));
    EXPECT_EQ(must(replay.run()).run_count, 5u);
    EXPECT_EQ(journal.entries(), (Numbers{0, 1, 2, 3, 4}));
  }
}

TEST(Replay, RunsADiamondInOrder) {
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    Replay replay = must(Replay::prepare(*device, make_diamond(journal)));
    must(replay.run());
    EXPECT_EQ(journal.sorted(), (Numbers{0, 1, 2, 3}));
    EXPECT_EQ(journal.entries().front(), 0);
    EXPECT_EQ(journal.entries().back(), 3);
  }
}

TEST(Replay, RunsAGraphWithoutTasks) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Replay replay = must(Replay::prepare(*device, TestGraph().finish()));
  const StepSummary summary = must(replay.run());
  EXPECT_EQ(summary.run_count, 0u);
  EXPECT_EQ(summary.skipped_count, 0u);
}

TEST(Replay, ATaskWithoutCodeRunsNothing) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  TestGraph graph;
  const TaskId empty = graph.add({.name = "empty", .run = nullptr});
  graph.add({.scalars = note(journal, 1), .after = {empty}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  must(replay.run());
  EXPECT_EQ(journal.entries(), Numbers{1});
}

TEST(Replay, RunsAThousandStepsInARow) {
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    Replay replay = must(Replay::prepare(*device, make_diamond(journal)));
    for (int step = 0; step < 1000; ++step) ASSERT_EQ(must(replay.run()).run_count, 4u);
    const Numbers entries = journal.entries();
    ASSERT_EQ(entries.size(), 4000u);
    for (size_t step = 0; step < 1000; ++step) {
      ASSERT_EQ(entries[step * 4], 0) << "step " << step;
      ASSERT_EQ(entries[step * 4 + 3], 3) << "step " << step;
    }
  }
}

// Goal: joins over many tasks, whose ends are counted together, lose nothing. Method: every task of
// a layer waits for all of the layer before, so a task that starts early finds the sum too small.
TEST(Replay, JoinsOverManyTasksAreCountedExactly) {
  constexpr int kLayers = 6;
  constexpr int kWidth = 40;
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    TestGraph graph;
    std::vector<TaskId> last;
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<TaskId> present;
      for (int i = 0; i < kWidth; ++i) {
        present.push_back(graph.add({.scalars = note(journal, layer), .after = last}));
      }
      last = present;
    }
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    for (int step = 0; step < 5; ++step) {
      journal.clear();
      ASSERT_EQ(must(replay.run()).run_count, uint64_t{kLayers * kWidth});
      ASSERT_EQ(journal.entries(), journal.sorted()) << "a task ran before its layer";
    }
  }
}

TEST(Replay, EveryBlockWritesItsRowOnce) {
  constexpr int32_t kRows = 50;
  constexpr int64_t kColumns = 3;
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    std::vector<int64_t> memory(kRows * kColumns, 0);
    TestGraph graph;
    const BufferId rows = graph.add_buffer({.name = "rows",
                                            .kind = BufferKind::kExternal,
                                            .bytes = kRows * kColumns * 8,
                                            .data = memory.data()});
    graph.add({.name = "add_to_row",
               .run = add_to_row_kernel,
               .arguments = {inout(dense_view(rows, DType::kS64, {kRows, kColumns}))},
               .block_count = kRows});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_EQ(must(replay.run()).run_count, uint64_t{kRows});
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t column = 0; column < kColumns; ++column) {
          ASSERT_EQ(memory[static_cast<size_t>(row * kColumns + column)], step * (row + 1));
        }
      }
    }
  }
}

TEST(Replay, WhatFollowsManyBlocksWaitsForAll) {
  const std::unique_ptr<CpuDevice> device = make_device(3);
  Journal journal;
  TestGraph graph;
  const TaskId many = graph.add({.scalars = note(journal, 1), .block_count = 20});
  graph.add({.scalars = note(journal, 2), .after = {many}, .block_count = 20});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (int step = 0; step < 20; ++step) {
    journal.clear();
    EXPECT_EQ(must(replay.run()).run_count, 40u);
    EXPECT_EQ(journal.entries(), journal.sorted());
    EXPECT_EQ(journal.count(1), 20);
  }
}

// The blocks of a gang wait for each other: it would hang if one of them had no worker.
TEST(Replay, TheBlocksOfAGangRunTogether) {
  for (const int worker_count : {2, 3, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    MeetingPoint point(worker_count);
    Journal journal;
    TestGraph graph;
    graph.add({.name = "meet",
               .run = meet_kernel,
               .scalars = meet(point, journal, 0),
               .block_count = worker_count,
               .gang = true});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    for (int step = 0; step < 5; ++step) {
      journal.clear();
      EXPECT_EQ(must(replay.run()).run_count, static_cast<uint64_t>(worker_count));
      Numbers blocks;
      for (int i = 0; i < worker_count; ++i) blocks.push_back(i);
      EXPECT_EQ(journal.sorted(), blocks);
    }
  }
}

TEST(Replay, SeveralGangsAndOrdinaryTasksRunAtOnce) {
  constexpr int kGangs = 6;
  const std::unique_ptr<CpuDevice> device = make_device(4);
  Journal journal;
  std::vector<std::unique_ptr<MeetingPoint>> points;
  TestGraph graph;
  std::vector<TaskId> all;
  for (int i = 0; i < kGangs; ++i) {
    const int32_t block_count = 2 + i % 3;
    points.push_back(std::make_unique<MeetingPoint>(block_count));
    all.push_back(graph.add({.name = "meet",
                             .run = meet_kernel,
                             .scalars = meet(*points.back(), journal, i),
                             .block_count = block_count,
                             .gang = true}));
    for (int j = 0; j < 5; ++j) all.push_back(graph.add({.scalars = note(journal, 1000)}));
  }
  graph.add({.scalars = note(journal, 2000), .after = all});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (int step = 0; step < 10; ++step) {
    journal.clear();
    EXPECT_EQ(must(replay.run()).run_count, uint64_t{2 * (2 + 3 + 4) + kGangs * 5 + 1});
    EXPECT_EQ(journal.count(1000), kGangs * 5);
    EXPECT_EQ(journal.entries().back(), 2000);
    for (int gang = 0; gang < kGangs; ++gang) {
      for (int block = 0; block < 2 + gang % 3; ++block) {
        EXPECT_EQ(journal.count(gang * 100 + block), 1) << "gang " << gang << " block " << block;
      }
    }
  }
}

TEST(Replay, GangsInAChainRunOneAfterTheOther) {
  const std::unique_ptr<CpuDevice> device = make_device(3);
  Journal journal;
  MeetingPoint point(3);
  TestGraph graph;
  std::vector<TaskId> last;
  for (int i = 0; i < 10; ++i) {
    last = {graph.add({.name = "meet",
                       .run = meet_kernel,
                       .scalars = meet(point, journal, i),
                       .after = last,
                       .block_count = 3,
                       .gang = true})};
  }
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  must(replay.run());
  const Numbers entries = journal.entries();
  ASSERT_EQ(entries.size(), 30u);
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i] / 100, static_cast<int64_t>(i / 3));
  }
}

TEST(Replay, AGangOfOneBlockIsAnOrdinaryTask) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  TestGraph graph;
  graph.add({.scalars = note(journal, 7), .gang = true});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  must(replay.run());
  EXPECT_EQ(journal.entries(), Numbers{7});
}

TEST(Replay, AGangLargerThanTheDeviceIsRefused) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  TestGraph graph;
  graph.add({.scalars = note(journal, 1), .block_count = 3, .gang = true});
  EXPECT_EQ(text_of(Replay::prepare(*device, graph.finish())),
            "task 0 (note): a gang of 3 blocks, but cpu has 2 cores for kind any");
}

// The three parts of a mixed block meet inside the kernel, block after block.
TEST(Replay, AMixedTaskTakesAClusterABlock) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  MeetingPoint point(3);
  Journal journal;
  TestGraph graph;
  graph.add({.name = "meet_in_cluster",
             .run = meet_in_cluster_kernel,
             .scalars = {pointer_to(point), pointer_to(journal)},
             .core = CoreKind::kMixed,
             .block_count = 2});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (int step = 0; step < 5; ++step) {
    journal.clear();
    EXPECT_EQ(must(replay.run()).run_count, 6u);
    EXPECT_EQ(journal.sorted(), (Numbers{1, 2, 3, 11, 12, 13}));
  }
}

TEST(Replay, AMixedGangTakesSeveralClustersTogether) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(2);
  MeetingPoint point(6);
  Journal journal;
  TestGraph graph;
  const TaskId first = graph.add({.name = "meet_in_cluster",
                                  .run = meet_in_cluster_kernel,
                                  .scalars = {pointer_to(point), pointer_to(journal)},
                                  .core = CoreKind::kMixed,
                                  .block_count = 2,
                                  .gang = true});
  graph.add({.scalars = note(journal, 99), .after = {first}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  must(replay.run());
  EXPECT_EQ(journal.sorted(), (Numbers{1, 2, 3, 11, 12, 13, 99}));
  EXPECT_EQ(journal.entries().back(), 99);
}

TEST(Replay, AMixedTaskWithoutClustersRunsWhole) {
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    MeetingPoint point(1);
    Journal journal;
    TestGraph graph;
    graph.add({.name = "meet_in_cluster",
               .run = meet_in_cluster_kernel,
               .scalars = {pointer_to(point), pointer_to(journal)},
               .core = CoreKind::kMixed});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    EXPECT_EQ(must(replay.run()).run_count, 1u);
    EXPECT_EQ(journal.entries(), Numbers{static_cast<int64_t>(MixedRole::kWhole)});
  }
}

TEST(Replay, TasksOfAKindRunOnWorkersOfThatKind) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(2);
  Journal cube;
  Journal vector;
  Journal any;
  TestGraph graph;
  std::vector<TaskId> last;
  for (int i = 0; i < 20; ++i) {
    const TaskId a = graph.add({.name = "note_worker",
                                .run = note_worker_kernel,
                                .scalars = {pointer_to(cube)},
                                .after = last,
                                .core = CoreKind::kCube,
                                .block_count = 1 + i % 2});
    const TaskId b = graph.add({.name = "note_worker",
                                .run = note_worker_kernel,
                                .scalars = {pointer_to(vector)},
                                .after = last,
                                .core = CoreKind::kVector,
                                .block_count = 1 + i % 3});
    graph.add({.name = "note_worker",
               .run = note_worker_kernel,
               .scalars = {pointer_to(any)},
               .after = {a}});
    last = {a, b};
  }
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (int step = 0; step < 5; ++step) must(replay.run());
  EXPECT_EQ(cube.entries().size(), 5u * 30u);
  for (const int64_t worker : cube.entries()) EXPECT_EQ(worker % 3, 0);
  EXPECT_EQ(vector.entries().size(), 5u * 39u);
  for (const int64_t worker : vector.entries()) EXPECT_NE(worker % 3, 0);
  EXPECT_EQ(any.entries().size(), 5u * 20u);
}

TEST(Replay, ATaskWhosePredicateDoesNotHoldIsSkipped) {
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    int64_t length = 0;
    TestGraph graph;
    const TaskId first = graph.add({.scalars = note(journal, 0)});
    const TaskId sometimes = graph.add({.scalars = note(journal, 1),
                                        .after = {first},
                                        .block_count = 2,
                                        .predicate = {&length, Comparison::kGreater, 10}});
    graph.add({.scalars = note(journal, 2), .after = {sometimes}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    StepSummary summary = must(replay.run());
    EXPECT_EQ(journal.entries(), (Numbers{0, 2}));
    EXPECT_EQ(summary.run_count, 2u);
    EXPECT_EQ(summary.skipped_count, 1u);
    length = 11;
    journal.clear();
    summary = must(replay.run());
    EXPECT_EQ(journal.entries(), (Numbers{0, 1, 1, 2}));
    EXPECT_EQ(summary.skipped_count, 0u);
  }
}

TEST(Replay, AStepMaySkipAllItsTasks) {
  for (const int worker_count : {1, 3}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    const int64_t never = 0;
    TestGraph graph;
    std::vector<TaskId> last;
    for (int i = 0; i < 10; ++i) {
      last = {graph.add({.scalars = note(journal, i), .after = last, .predicate = {&never}})};
    }
    graph.add({.scalars = note(journal, 10),
               .block_count = worker_count,
               .gang = true,
               .predicate = {&never}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    for (int step = 0; step < 3; ++step) {
      const StepSummary summary = must(replay.run());
      EXPECT_EQ(summary.run_count, 0u);
      EXPECT_EQ(summary.skipped_count, 11u);
    }
    EXPECT_EQ(journal.entries(), Numbers{});
  }
}

TEST(Replay, APredicateMayBeWrittenInTheSameStep) {
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    int64_t chosen = -1;
    int64_t choice = 0;
    TestGraph graph;
    const TaskId choose = graph.add({.name = "set",
                                     .run = set_kernel,
                                     .scalars = {pointer_to(chosen), Scalar::read_from(&choice)}});
    for (int64_t i = 0; i < 3; ++i) {
      graph.add({.scalars = note(journal, i),
                 .after = {choose},
                 .predicate = {&chosen, Comparison::kEqual, i}});
    }
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    for (choice = 0; choice < 3; ++choice) {
      journal.clear();
      EXPECT_EQ(must(replay.run()).skipped_count, 2u);
      EXPECT_EQ(journal.entries(), Numbers{choice});
    }
  }
}

TEST(Replay, ScalarsAreReadInEachStep) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  int64_t source = 0;
  int64_t result = 0;
  TestGraph graph;
  graph.add({.name = "set",
             .run = set_kernel,
             .scalars = {pointer_to(result), Scalar::read_from(&source)}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (const int64_t value : {5, -3, 1000}) {
    source = value;
    must(replay.run());
    EXPECT_EQ(result, value);
  }
}

// y = x + 1 + 2 + ... + 8 through seven intermediates, of which only two live at a time.
TEST(Replay, IntermediatesShareMemoryAndResultsAreRight) {
  constexpr int64_t kCount = 100;
  constexpr int kTasks = 8;
  std::vector<int64_t> x(kCount);
  std::vector<int64_t> y(kCount);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int64_t>(i);
  TestGraph graph;
  BufferId from = graph.add_buffer(
      {.name = "x", .kind = BufferKind::kExternal, .bytes = kCount * 8, .data = x.data()});
  const BufferId last = graph.add_buffer(
      {.name = "y", .kind = BufferKind::kExternal, .bytes = kCount * 8, .data = y.data()});
  for (int i = 1; i <= kTasks; ++i) {
    const BufferId to =
        i == kTasks ? last : graph.add_buffer({.name = "step", .bytes = kCount * 8});
    graph.add({.name = "add_scalar",
               .run = add_scalar_kernel,
               .scalars = {Scalar::fixed(i)},
               .arguments = {in(vector_view(from, kCount)), out(vector_view(to, kCount))}});
    from = to;
  }
  const Graph made = graph.finish();
  for (const int worker_count : {1, 2}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Replay replay = must(Replay::prepare(*device, made));
    EXPECT_EQ(replay.memory_plan().sum_bytes, 7 * 832) << "800 bytes, rounded up to 64";
    EXPECT_EQ(replay.memory_plan().peak_bytes, 2 * 832);
    for (int step = 0; step < 3; ++step) {
      y.assign(kCount, 0);
      must(replay.run());
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], x[i] + 36);
    }
  }
}

TEST(Replay, KnowsWhereBuffersLie) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  int64_t own = 0;
  TestGraph graph;
  const BufferId bound =
      graph.add_buffer({.name = "bound", .kind = BufferKind::kExternal, .bytes = 8, .data = &own});
  const BufferId between = graph.add_buffer({.name = "between", .bytes = 8});
  const BufferId unused = graph.add_buffer({.name = "unused", .bytes = 8});
  graph.add({.name = "empty",
             .run = nullptr,
             .arguments = {in(vector_view(bound, 1)), out(vector_view(between, 1))}});
  const Replay replay = must(Replay::prepare(*device, graph.finish()));
  EXPECT_EQ(replay.address(bound), reinterpret_cast<std::byte*>(&own));
  EXPECT_NE(replay.address(between), nullptr);
  EXPECT_EQ(replay.address(unused), nullptr);
  EXPECT_EQ(replay.address(BufferId{77}), nullptr);
  EXPECT_EQ(replay.graph().task_count(), 1u);
}

TEST(Replay, AnArenaThatIsTooSmallIsRefused) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestGraph graph;
  const BufferId large = graph.add_buffer({.name = "large", .bytes = 4096});
  graph.add({.name = "empty", .run = nullptr, .arguments = {out(vector_view(large, 512))}});
  EXPECT_EQ(text_of(Replay::prepare(*device, graph.finish(), {.memory = {.arena_bytes = 1024}})),
            "buffer 'large' has 4096 bytes, but cpu has an arena of 1024 bytes");
}

TEST(Replay, TheLongerRemainingPathRunsFirst) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  TestGraph graph;
  graph.add({.scalars = note(journal, 1)});
  const TaskId middle = graph.add({.scalars = note(journal, 2)});
  graph.add({.scalars = note(journal, 20), .after = {middle}});
  const TaskId longest = graph.add({.scalars = note(journal, 3)});
  const TaskId next = graph.add({.scalars = note(journal, 30), .after = {longest}});
  graph.add({.scalars = note(journal, 31), .after = {next}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  must(replay.run());
  EXPECT_LT(journal.position(3), journal.position(2));
  EXPECT_LT(journal.position(2), journal.position(1));
}

TEST(Replay, ACostlyTaskRunsFirst) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  TestGraph graph;
  graph.add({.scalars = note(journal, 1), .cost = {.bytes = 10}});
  graph.add({.scalars = note(journal, 2), .cost = {.bytes = 1000}});
  graph.add({.scalars = note(journal, 3), .cost = {.bytes = 100}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  must(replay.run());
  EXPECT_EQ(journal.entries(), (Numbers{2, 3, 1}));
}

TEST(Replay, CanBeMoved) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  Replay first = must(Replay::prepare(*device, make_chain(journal, 2)));
  must(first.run());
  Replay second = std::move(first);
  must(second.run());
  EXPECT_EQ(journal.entries(), (Numbers{0, 1, 0, 1}));
}

// Two threads use one device. Whoever finds it in use tries again; each gets the summary of its own
// step.
TEST(Replay, TwoThreadsTakeTurnsOnADevice) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  const auto run_many = [&device](int task_count, int step_count, std::atomic<int>& wrong) {
    Journal journal;
    Replay replay = must(Replay::prepare(*device, make_chain(journal, task_count)));
    for (int step = 0; step < step_count;) {
      const Result<StepSummary> summary = replay.run();
      if (!summary.has_value()) {
        std::this_thread::yield();
        continue;
      }
      if (summary->run_count != static_cast<uint64_t>(task_count)) wrong.fetch_add(1);
      ++step;
    }
    if (journal.entries().size() != static_cast<size_t>(task_count * step_count))
      wrong.fetch_add(1);
  };
  std::atomic<int> wrong = 0;
  std::thread other([&] { run_many(7, 300, wrong); });
  run_many(3, 300, wrong);
  other.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace gapless
