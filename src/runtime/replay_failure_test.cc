// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a step when a task fails or somebody cancels it, and of the step after that.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/replay.h"
#include "runtime/test_graphs.h"

namespace gapless {
namespace {

using Numbers = std::vector<int64_t>;

// Scalars: a Journal, the number of the block that fails; -1: none.
void fail_in_block_kernel(TaskContext& context) {
  object_at<Journal>(context, 0).note(context.block_index());
  if (context.block_index() == context.scalar(1)) {
    context.fail("block {} is bad", context.block_index());
    context.fail("a second complaint is not heard");
  }
}

// Scalars: a Journal, the role that fails.
void fail_in_role_kernel(TaskContext& context) {
  object_at<Journal>(context, 0).note(static_cast<int64_t>(context.role()));
  if (static_cast<int64_t>(context.role()) == context.scalar(1)) context.fail("a bad role");
}

// Scalars: a MeetingPoint. Fails together with all others.
void meet_and_fail_kernel(TaskContext& context) {
  object_at<MeetingPoint>(context, 0).meet();
  context.fail("all fail");
}

// Scalars: a Journal, a number, where the replay is, whether to cancel it.
void note_or_cancel_kernel(TaskContext& context) {
  note_kernel(context);
  if (context.scalar(3) != 0) object_at<Replay*>(context, 2)->cancel();
}

// Scalars: a Journal, a number, a gate to open, a gate to wait for.
void note_and_wait_kernel(TaskContext& context) {
  note_kernel(context);
  object_at<Gate>(context, 2).open();
  object_at<Gate>(context, 3).wait();
}

// Arguments: one that is only read. Writes it all the same.
void write_input_kernel(TaskContext& context) { context.tensor<int64_t>(0).store(7, 0); }

TEST(ReplayFailure, SuccessorsDoNotRunAndOthersDo) {
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    int64_t must_fail = 1;
    TestGraph graph;
    const TaskId first = graph.add({.scalars = note(journal, 0)});
    const TaskId bad = graph.add({.name = "bad",
                                  .run = note_or_fail_kernel,
                                  .scalars = note_or_fail(journal, 1, must_fail),
                                  .after = {first}});
    const TaskId next = graph.add({.scalars = note(journal, 2), .after = {bad}});
    graph.add({.scalars = note(journal, 3), .after = {next}});
    const TaskId independent = graph.add({.scalars = note(journal, 4), .after = {first}});
    graph.add({.scalars = note(journal, 5), .after = {independent}});
    graph.add({.scalars = note(journal, 6), .after = {next, independent}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    EXPECT_EQ(text_of(replay.run()),
              "task 1 (bad): it was told to fail (1 failed, 3 after them did not run)");
    EXPECT_EQ(journal.sorted(), (Numbers{0, 1, 4, 5}));

    must_fail = 0;
    journal.clear();
    EXPECT_EQ(must(replay.run()).run_count, 7u);
    EXPECT_EQ(journal.sorted(), (Numbers{0, 1, 2, 3, 4, 5, 6}));
  }
}

TEST(ReplayFailure, AFailingStepMayBeRepeated) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  int64_t must_fail = 0;
  TestGraph graph;
  const TaskId bad = graph.add(
      {.name = "bad", .run = note_or_fail_kernel, .scalars = note_or_fail(journal, 0, must_fail)});
  const TaskId left = graph.add({.scalars = note(journal, 1), .after = {bad}});
  const TaskId right = graph.add({.scalars = note(journal, 2), .after = {bad}});
  graph.add({.scalars = note(journal, 3), .after = {left, right}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (int step = 0; step < 200; ++step) {
    must_fail = step % 3 == 0 ? 1 : 0;
    journal.clear();
    const Result<StepSummary> summary = replay.run();
    ASSERT_EQ(summary.has_value(), must_fail == 0) << "step " << step;
    ASSERT_EQ(journal.entries().size(), must_fail == 0 ? 4u : 1u) << "step " << step;
  }
}

TEST(ReplayFailure, TheFirstFailureIsTheOneThatIsTold) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  const int64_t must_fail = 1;
  TestGraph graph;
  graph.add({.name = "second",
             .run = note_or_fail_kernel,
             .scalars = note_or_fail(journal, 2, must_fail),
             .cost = {.bytes = 1}});
  graph.add({.name = "first",
             .run = note_or_fail_kernel,
             .scalars = note_or_fail(journal, 1, must_fail),
             .cost = {.bytes = 1000}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  EXPECT_EQ(text_of(replay.run()),
            "task 1 (first): it was told to fail (2 failed, 0 after them did not run)");
  EXPECT_EQ(journal.entries(), (Numbers{1, 2}));
}

TEST(ReplayFailure, AFailingBlockIsNamedAndTheOthersRun) {
  for (const int worker_count : {1, 3}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    int64_t bad_block = 3;
    TestGraph graph;
    const TaskId spmd = graph.add({.name = "spmd",
                                   .run = fail_in_block_kernel,
                                   .scalars = {pointer_to(journal), Scalar::read_from(&bad_block)},
                                   .block_count = 8});
    graph.add({.scalars = note(journal, 100), .after = {spmd}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    EXPECT_EQ(text_of(replay.run()),
              "task 0 (spmd), block 3 of 8: block 3 is bad (1 failed, 1 after them did not run)");
    EXPECT_EQ(journal.sorted(), (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
    bad_block = -1;
    journal.clear();
    must(replay.run());
    EXPECT_EQ(journal.entries().back(), 100);
  }
}

TEST(ReplayFailure, AFailingBlockOfAGangIsNamed) {
  const std::unique_ptr<CpuDevice> device = make_device(3);
  Journal journal;
  int64_t bad_block = 1;
  TestGraph graph;
  const TaskId gang = graph.add({.name = "gang",
                                 .run = fail_in_block_kernel,
                                 .scalars = {pointer_to(journal), Scalar::read_from(&bad_block)},
                                 .block_count = 3,
                                 .gang = true});
  const TaskId next =
      graph.add({.scalars = note(journal, 100), .after = {gang}, .block_count = 2, .gang = true});
  graph.add({.scalars = note(journal, 101), .after = {next}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  EXPECT_EQ(text_of(replay.run()),
            "task 0 (gang), block 1 of 3: block 1 is bad (1 failed, 2 after them did not run)");
  EXPECT_EQ(journal.sorted(), (Numbers{0, 1, 2})) << "the gang after it did not run";
  bad_block = -1;
  journal.clear();
  EXPECT_EQ(must(replay.run()).run_count, 6u);
  EXPECT_EQ(journal.sorted(), (Numbers{0, 1, 2, 100, 100, 101}));
}

TEST(ReplayFailure, AFailingRoleOfAMixedTaskFailsTheTask) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  Journal journal;
  int64_t bad_role = 2;
  TestGraph graph;
  const TaskId mixed = graph.add({.name = "mixed",
                                  .run = fail_in_role_kernel,
                                  .scalars = {pointer_to(journal), Scalar::read_from(&bad_role)},
                                  .core = CoreKind::kMixed});
  graph.add({.scalars = note(journal, 100), .after = {mixed}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  EXPECT_EQ(text_of(replay.run()),
            "task 0 (mixed): a bad role (1 failed, 1 after them did not run)");
  EXPECT_EQ(journal.sorted(), (Numbers{1, 2, 3}));
  bad_role = 0;
  journal.clear();
  must(replay.run());
  EXPECT_EQ(journal.sorted(), (Numbers{1, 2, 3, 100}));
}

TEST(ReplayFailure, AllWorkersMayFailAtOnce) {
  constexpr int kWorkers = 4;
  const std::unique_ptr<CpuDevice> device = make_device(kWorkers);
  Journal journal;
  MeetingPoint point(kWorkers);
  TestGraph graph;
  std::vector<TaskId> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(graph.add({.name = "gang",
                             .run = meet_and_fail_kernel,
                             .scalars = {pointer_to(point)},
                             .block_count = kWorkers,
                             .gang = true}));
  }
  graph.add({.scalars = note(journal, 1), .after = all});
  graph.add({.scalars = note(journal, 2)});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (int step = 0; step < 10; ++step) {
    journal.clear();
    const std::string text = text_of(replay.run());
    EXPECT_NE(text.find("(gang), block "), std::string::npos) << text;
    EXPECT_NE(text.find(" of 4: all fail (20 failed, 1 after them did not run)"), std::string::npos)
        << text;
    EXPECT_EQ(journal.entries(), Numbers{2});
  }
}

TEST(ReplayFailure, ATaskThatDoesNotRunIsNotAskedForItsPredicate) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  const int64_t must_fail = 1;
  const int64_t never = 0;
  TestGraph graph;
  const TaskId bad = graph.add(
      {.name = "bad", .run = note_or_fail_kernel, .scalars = note_or_fail(journal, 0, must_fail)});
  const TaskId skipped =
      graph.add({.scalars = note(journal, 1), .after = {bad}, .predicate = {&never}});
  graph.add({.scalars = note(journal, 2), .after = {skipped}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  EXPECT_EQ(text_of(replay.run()),
            "task 0 (bad): it was told to fail (1 failed, 2 after them did not run)");
}

TEST(ReplayFailure, AnAccessThatWasNotDeclaredFailsInShadowMode) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  int64_t memory = 1;
  TestGraph graph;
  const BufferId x =
      graph.add_buffer({.name = "x", .kind = BufferKind::kExternal, .bytes = 8, .data = &memory});
  const TaskId liar =
      graph.add({.name = "liar", .run = write_input_kernel, .arguments = {in(vector_view(x, 1))}});
  graph.add({.scalars = note(journal, 1), .after = {liar}});
  Replay replay = must(Replay::prepare(*device, graph.finish(), {.memory = {}, .shadow = true}));
  const std::string text = text_of(replay.run());
  EXPECT_EQ(text.rfind("task 0 (liar): argument 0", 0), 0u) << text;
  EXPECT_EQ(memory, 1) << "the access is not made";
  EXPECT_EQ(journal.entries(), Numbers{});
}

// The graph of the tests below: a chain in which task 1 may cancel the replay that runs it.
struct CancellingChain {
  Journal journal;
  int64_t must_cancel = 1;
  Replay* replay = nullptr;

  Graph make_graph(int32_t block_count = 1) {
    TestGraph graph;
    const TaskId first = graph.add({.scalars = note(journal, 0)});
    const TaskId canceller =
        graph.add({.name = "cancel",
                   .run = note_or_cancel_kernel,
                   .scalars = {pointer_to(journal), Scalar::fixed(1), pointer_to(replay),
                               Scalar::read_from(&must_cancel)},
                   .after = {first},
                   .block_count = block_count});
    const TaskId next = graph.add({.scalars = note(journal, 2), .after = {canceller}});
    graph.add({.scalars = note(journal, 3), .after = {next}});
    return graph.finish();
  }
};

TEST(ReplayCancel, AKernelMayCancelItsStep) {
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    CancellingChain chain;
    Replay replay = must(Replay::prepare(*device, chain.make_graph()));
    chain.replay = &replay;
    EXPECT_EQ(text_of(replay.run()), "step 1 was cancelled: 2 of 4 tasks or blocks did not run");
    EXPECT_EQ(chain.journal.entries(), (Numbers{0, 1}));
    chain.must_cancel = 0;
    chain.journal.clear();
    must(replay.run());
    EXPECT_EQ(chain.journal.entries(), (Numbers{0, 1, 2, 3}));
  }
}

TEST(ReplayCancel, BlocksThatHaveNotStartedDoNotRun) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  CancellingChain chain;
  Replay replay = must(Replay::prepare(*device, chain.make_graph(4)));
  chain.replay = &replay;
  EXPECT_EQ(text_of(replay.run()), "step 1 was cancelled: 5 of 7 tasks or blocks did not run");
  EXPECT_EQ(chain.journal.entries(), (Numbers{0, 1}));
  chain.must_cancel = 0;
  EXPECT_EQ(must(replay.run()).run_count, 7u);
}

TEST(ReplayCancel, AnotherThreadMayCancel) {
  for (const int worker_count : {1, 3}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Journal journal;
    Gate is_inside;
    Gate may_leave;
    TestGraph graph;
    const TaskId waits = graph.add({.name = "wait",
                                    .run = note_and_wait_kernel,
                                    .scalars = {pointer_to(journal), Scalar::fixed(0),
                                                pointer_to(is_inside), pointer_to(may_leave)}});
    for (int i = 1; i <= 10; ++i) graph.add({.scalars = note(journal, i), .after = {waits}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    std::thread canceller([&] {
      is_inside.wait();
      replay.cancel();
      may_leave.open();
    });
    EXPECT_EQ(text_of(replay.run()), "step 1 was cancelled: 10 of 11 tasks or blocks did not run");
    canceller.join();
    EXPECT_EQ(journal.entries(), Numbers{0});
    EXPECT_EQ(must(replay.run()).run_count, 11u);
  }
}

TEST(ReplayCancel, HasNoEffectBetweenSteps) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  Replay replay = must(Replay::prepare(*device, make_diamond(journal)));
  replay.cancel();
  EXPECT_EQ(text_of(replay.run()), "accepted");
  replay.cancel();
  EXPECT_EQ(text_of(replay.run()), "accepted");
  EXPECT_EQ(journal.entries().size(), 8u);
}

TEST(ReplayCancel, AStepThatHadNothingLeftToRunEndsWell) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  Replay* self = nullptr;
  TestGraph graph;
  graph.add(
      {.name = "cancel",
       .run = note_or_cancel_kernel,
       .scalars = {pointer_to(journal), Scalar::fixed(1), pointer_to(self), Scalar::fixed(1)}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  self = &replay;
  EXPECT_EQ(must(replay.run()).run_count, 1u);
  EXPECT_EQ(must(replay.run()).run_count, 1u);
}

// The gang has its workers already, but one of them still runs another task.
TEST(ReplayCancel, AGangThatHasNotStartedDoesNotRun) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  Gate is_inside;
  Gate may_leave;
  TestGraph graph;
  graph.add({.name = "wait",
             .run = note_and_wait_kernel,
             .scalars = {pointer_to(journal), Scalar::fixed(0), pointer_to(is_inside),
                         pointer_to(may_leave)},
             .cost = {.bytes = 1000}});
  const TaskId opener = graph.add({.scalars = note(journal, 1), .cost = {.bytes = 1}});
  graph.add({.scalars = note(journal, 2),
             .after = {opener},
             .block_count = 2,
             .gang = true,
             .cost = {.bytes = 1}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  std::thread canceller([&] {
    is_inside.wait();
    while (device->worker(0).activity.load() != Activity::kGathering &&
           device->worker(1).activity.load() != Activity::kGathering) {
      std::this_thread::yield();
    }
    replay.cancel();
    may_leave.open();
  });
  EXPECT_FALSE(replay.run().has_value());
  canceller.join();
  EXPECT_EQ(journal.count(2), 0) << "no block of the gang had started";
  journal.clear();
  EXPECT_EQ(must(replay.run()).run_count, 4u);
}

TEST(ReplayCancel, AFailureIsToldRatherThanTheCancelling) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  const int64_t must_fail = 1;
  Replay* self = nullptr;
  TestGraph graph;
  const TaskId bad = graph.add({.name = "bad",
                                .run = note_or_fail_kernel,
                                .scalars = note_or_fail(journal, 0, must_fail),
                                .cost = {.bytes = 1000}});
  const TaskId canceller = graph.add(
      {.name = "cancel",
       .run = note_or_cancel_kernel,
       .scalars = {pointer_to(journal), Scalar::fixed(1), pointer_to(self), Scalar::fixed(1)},
       .cost = {.bytes = 100}});
  graph.add({.scalars = note(journal, 2), .after = {bad, canceller}, .cost = {.bytes = 1}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  self = &replay;
  const std::string text = text_of(replay.run());
  EXPECT_EQ(text.rfind("task 0 (bad): it was told to fail", 0), 0u) << text;
  EXPECT_EQ(journal.entries(), (Numbers{0, 1}));
}

}  // namespace
}  // namespace gapless
