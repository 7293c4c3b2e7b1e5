// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong in a stream: tasks that fail, cancellation, what is refused, and stalls.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "runtime/stream.h"
#include "runtime/stream_test_support.h"

namespace gapless {
namespace {

const TestTask kFailing = {.name = "break", .run = fail_kernel};

TestTask failing_task(const View& x) {
  TestTask task = kFailing;
  task.arguments = {inout(x)};
  return task;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// ---- Tasks that fail.

TEST(StreamFailure, NamesTheTaskThatFailed) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device);
  stream.add({.name = "no_code", .run = nullptr});
  stream.add(kFailing);
  EXPECT_EQ(text_of(stream->wait()),
            "task 1 (break): it was told to fail (1 failed, 0 after them did not run)");
  EXPECT_EQ(text_of(stream->wait()), "accepted") << "an error is returned once";
}

TEST(StreamFailure, DependantsDoNotRunAndOthersDo) {
  for (const int worker_count : {1, 2, 4}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(1, 0);
    Gate gate;
    Journal journal;
    TestStream stream(*device);
    const View xs = stream.share("x", x);
    // With several workers nothing may fail before all tasks have been taken.
    TestTask first = wait_at(gate);
    first.arguments = {out(xs)};
    stream.add(first);
    const TaskId failed = stream.add(failing_task(xs));
    const TaskId direct =
        stream.add({.scalars = note(journal, 1), .arguments = {inout(xs)}, .block_count = 3});
    stream.add({.scalars = note(journal, 2), .after = {direct}});
    stream.add({.scalars = note(journal, 3), .after = {failed}});
    stream.add({.scalars = note(journal, 4)});
    gate.open();
    EXPECT_EQ(text_of(stream->wait()),
              "task 1 (break): it was told to fail (1 failed, 3 after them did not run)");
    EXPECT_EQ(journal.entries(), Numbers{4});
  }
}

TEST(StreamFailure, OnlyTheFirstOfSeveralFailuresIsNamed) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  TestStream stream(*device);
  for (int i = 0; i < 5; ++i) stream.add(kFailing);
  EXPECT_EQ(text_of(stream->wait()),
            "task 0 (break): it was told to fail (5 failed, 0 after them did not run)");
}

TEST(StreamFailure, NamesTheBlockThatFailed) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  TestStream stream(*device);
  const auto fail_in_block_2 = [](TaskContext& context) {
    if (context.block_index() == 2) context.fail("block 2 does not like it");
  };
  stream.add({.name = "blocks", .run = fail_in_block_2, .block_count = 5});
  EXPECT_TRUE(
      contains(text_of(stream->wait()), "task 0 (blocks), block 2 of 5: block 2 does not like it"));
}

TEST(StreamFailure, AFailedGangPoisonsTheNext) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(1, 0);
  Gate gate;
  Journal journal;
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  TestTask first = wait_at(gate);
  first.arguments = {out(xs)};
  stream.add(first);
  TestTask gang = failing_task(xs);
  gang.block_count = 2;
  gang.gang = true;
  stream.add(gang);
  stream.add(
      {.scalars = note(journal, 1), .arguments = {inout(xs)}, .block_count = 2, .gang = true});
  gate.open();
  EXPECT_TRUE(contains(text_of(stream->wait()), "(2 failed, 1 after them did not run)"));
  EXPECT_TRUE(journal.entries().empty());
}

TEST(StreamFailure, TasksAreNotTakenAfterAFailureUntilItWasWaitedFor) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  StreamOptions options = small_rings();
  options.window_tasks = 1;
  Journal journal;
  TestStream stream(*device, options);
  stream.add(kFailing);
  // There is no place for this one until the one before has run and failed.
  static_cast<void>(stream.try_add({.scalars = note(journal, 1)}));
  EXPECT_EQ(text_of(stream.try_add({.scalars = note(journal, 2)})),
            "stream: a task has failed; wait() says which");
  EXPECT_TRUE(contains(text_of(stream->wait()), "task 0 (break): it was told to fail (1 failed"));
  EXPECT_EQ(text_of(stream.try_add({.scalars = note(journal, 3)})), "accepted");
  EXPECT_EQ(stream.wait().run_count, 1u);
  EXPECT_EQ(journal.count(3), 1);
  EXPECT_EQ(journal.count(2), 0);
}

TEST(StreamFailure, AStreamWorksAfterEachOfManyFailures) {
  for (const int worker_count : {1, 2, 4}) {
    SCOPED_TRACE(worker_count);
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    Numbers x(1, 0);
    TestStream stream(*device, small_rings());
    const View xs = stream.share("x", x);
    for (int64_t round = 0; round < 50; ++round) {
      stream->begin_scope();
      const View buffer = stream.add_intermediate("y", 100);
      stream.add(fill_task(buffer, round));
      stream.add(failing_task(buffer));
      for (int i = 0; i < 100; ++i) {
        if (!stream.try_add(copy_task(slice(buffer, 0, 0, 1), xs))) break;
      }
      must(stream->end_scope());
      ASSERT_TRUE(contains(text_of(stream->wait()), "(break): it was told to fail (1 failed"));
      stream.add(fill_task(xs, round));
      stream.add(mix_task(xs, 1));
      ASSERT_EQ(stream.wait().run_count, 2u);
      ASSERT_EQ(x[0], mixed(round, 1));
    }
  }
}

TEST(StreamFailure, WhatFailedMayBeForgotten) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  {
    TestStream stream(*device);
    stream.add(kFailing);
  }
  TestStream stream(*device);
  stream.add({.name = "no_code", .run = nullptr});
  EXPECT_EQ(stream.wait().run_count, 1u);
}

// ---- Cancellation.

TEST(StreamFailure, CancelFromAnotherThreadStopsWhatHasNotStarted) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Gate started, may_end;
  Numbers x(1, 0);
  Journal journal;
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  TestTask slow = start_and_wait(started, may_end);
  slow.arguments = {inout(xs)};
  stream.add(slow);
  for (int64_t i = 0; i < 10; ++i) {
    stream.add({.scalars = note(journal, i), .arguments = {inout(xs)}});
  }
  std::thread other([&] {
    started.wait();
    stream->cancel();
    may_end.open();
  });
  EXPECT_EQ(text_of(stream->wait()),
            "the stream was cancelled: 10 of 11 tasks or blocks did not run");
  other.join();
  EXPECT_TRUE(journal.entries().empty());
  stream.add({.scalars = note(journal, 42), .arguments = {inout(xs)}});
  EXPECT_EQ(stream.wait().run_count, 1u);
  EXPECT_EQ(journal.entries(), Numbers{42});
}

TEST(StreamFailure, NothingIsTakenAfterCancelUntilWait) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  Journal journal;
  TestStream stream(*device);
  stream->cancel();
  EXPECT_EQ(text_of(stream.try_add({.scalars = note(journal, 1)})),
            "stream: cancelled; wait() makes it usable again");
  EXPECT_EQ(text_of(stream->wait()), "accepted") << "nothing was lost";
  stream.add({.scalars = note(journal, 2)});
  stream.wait();
  EXPECT_EQ(journal.entries(), Numbers{2});
}

// The gang has its workers but not all of them have come: it has not started.
TEST(StreamFailure, AGangThatHasNotStartedIsCancelled) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Gate started, may_end;
  Journal journal;
  TestStream stream(*device);
  stream.add(start_and_wait(started, may_end));
  started.wait();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stream->cancel();
    may_end.open();
  });
  static_cast<void>(stream.try_add({.scalars = note(journal, 1), .block_count = 2, .gang = true}));
  static_cast<void>(stream->wait());
  other.join();
  EXPECT_TRUE(journal.entries().empty());
}

TEST(StreamFailure, CancelsAtAnyTime) {
  for (const int worker_count : {1, 2, 4}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    for (int round = 0; round < 30; ++round) {
      TestStream stream(*device, small_rings());
      Numbers x(4, 0);
      const View xs = stream.share("x", x);
      std::thread other([&stream, round] {
        std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
        stream->cancel();
      });
      for (int64_t i = 0; i < 500; ++i) {
        stream->begin_scope();
        const View buffer = stream.add_intermediate("y", 64);
        const bool taken = stream.try_add(fill_task(buffer, i)) &&
                           stream.try_add(copy_task(slice(buffer, 0, 0, 4), xs));
        must(stream->end_scope());
        if (!taken) break;
      }
      other.join();
      static_cast<void>(stream->wait());
      stream.add(fill_task(xs, -1));
      EXPECT_EQ(stream.wait().run_count, 1u);
      EXPECT_EQ(x, Numbers(4, -1));
    }
  }
}

// ---- What is refused.

std::string open_error(const StreamOptions& options) {
  const std::unique_ptr<CpuDevice> device = make_device(1);
  return text_of(Stream::open(*device, options));
}

TEST(StreamFailure, RefusesOptionsThatMakeNoSense) {
  EXPECT_EQ(open_error({.ring_count = 0}), "stream: 0 rings; there are 1 to 4");
  EXPECT_EQ(open_error({.ring_count = 5}), "stream: 5 rings; there are 1 to 4");
  const std::string window = " tasks; it must be a power of two up to 262144";
  EXPECT_EQ(open_error({.window_tasks = 0}), "stream: a window of 0" + window);
  EXPECT_EQ(open_error({.window_tasks = 48}), "stream: a window of 48" + window);
  EXPECT_EQ(open_error({.window_tasks = 1 << 19}), "stream: a window of 524288" + window);
  const std::string edges = " edges; it must be 1 to 16777216";
  EXPECT_EQ(open_error({.window_edges = 0}), "stream: room for 0" + edges);
  EXPECT_EQ(open_error({.window_edges = 1 << 29}), "stream: room for 536870912" + edges);
  const std::string bytes = " bytes for arguments; it must be a multiple of 16 and at least 2576";
  EXPECT_EQ(open_error({.window_bytes = 2560}), "stream: 2560" + bytes);
  EXPECT_EQ(open_error({.window_bytes = 4100}), "stream: 4100" + bytes);
  const std::string heap = " bytes; it must be a multiple of 64";
  EXPECT_EQ(open_error({.heap_bytes = -64}), "stream: a heap of -64" + heap);
  EXPECT_EQ(open_error({.heap_bytes = 100}), "stream: a heap of 100" + heap);
  EXPECT_EQ(open_error({.max_buffers = 0}), "stream: 0 buffers; there may be 1 to 1048575");
  EXPECT_EQ(open_error({.max_buffers = 1 << 20}),
            "stream: 1048576 buffers; there may be 1 to 1048575");
}

TEST(StreamFailure, ADeviceIsFreeAfterAStreamWasRefused) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  EXPECT_NE(text_of(Stream::open(*device, {.ring_count = 9})), "accepted");
  TestStream stream(*device);
  EXPECT_EQ(text_of(Stream::open(*device)), "cpu device: in use by another run; one at a time");
  stream.add({.name = "no_code", .run = nullptr});
  EXPECT_EQ(stream.wait().run_count, 1u);
}

TEST(StreamFailure, RefusedTasksLeaveTheStreamAsItWas) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Numbers x(8, 1), weights(8, 3);
  TestStream stream(*device);
  const View xs = stream.share("x", x);
  const View constant = stream.share_constant("weights", weights);
  const KernelId mix = stream.kernel("mix", mix_kernel);
  const auto error_of = [&](const TestTask& task) { return text_of(stream.try_add(task)); };
  int64_t expected = 1;
  for (int64_t i = 0; i < 50; ++i) {
    stream.add(mix_task(xs, i));
    EXPECT_EQ(text_of(stream->add_task({.kernel = KernelId{77}})),
              "a task with kernel 77, but there are 1 kernels");
    TestTask task = mix_task(constant, i);
    EXPECT_TRUE(contains(error_of(task), "writes buffer 'weights', which is constant"));
    View beyond = xs;
    beyond.offset = 1;
    EXPECT_TRUE(contains(error_of(mix_task(beyond, i)),
                         "ends at byte 72, past the 64 bytes of buffer 'x'"));
    task = mix_task(xs, i);
    task.block_count = 0;
    EXPECT_EQ(error_of(task), "mix: 0 blocks, a task has 1 to 1048576");
    task.block_count = 3;
    task.gang = true;
    EXPECT_EQ(error_of(task), fmt::format("task {} (mix): a gang of 3 blocks, but cpu has 2 cores "
                                          "for kind any",
                                          i + 1));
    const TaskId never = {uint64_t{1'000'000} << 20};
    EXPECT_EQ(
        text_of(stream->add_task({.kernel = mix, .after = {&never, 1}})),
        fmt::format("task {} (mix): comes after task 1000000, which was never submitted", i + 1));
    expected = mixed(expected, i);
  }
  const StreamSummary summary = stream.wait();
  EXPECT_EQ(summary.run_count, 50u);
  EXPECT_EQ(summary.task_count, 50u);
  EXPECT_EQ(x, Numbers(8, expected));
  EXPECT_EQ(weights, Numbers(8, 3));
}

// ---- Stalls.

class Reports {
 public:
  void add(const std::string& report) {
    const std::lock_guard<std::mutex> guard(mutex_);
    reports_.push_back(report);
  }
  std::vector<std::string> all() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return reports_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> reports_;
};

// The report itself lets the stuck task go on.
TEST(StreamFailure, AStallReportNamesWhatEverythingWaitsFor) {
  Reports reports;
  Gate started, may_end;
  const auto on_stall = [&](const std::string& report) {
    reports.add(report);
    may_end.open();
  };
  const std::unique_ptr<CpuDevice> device = must(
      CpuDevice::create({.worker_count = 2, .stall_after_ns = 400'000'000, .on_stall = on_stall}));
  StreamOptions options = small_rings();
  options.window_tasks = 2;
  Numbers x(1, 0);
  TestStream stream(*device, options);
  const View xs = stream.share("x", x);
  TestTask stuck = start_and_wait(started, may_end);
  stuck.arguments = {inout(xs)};
  stream.add(stuck);
  started.wait();
  stream.add(mix_task(xs, 1));
  stream.add(mix_task(xs, 2));
  stream.wait();
  ASSERT_EQ(reports.all().size(), 1u);
  const std::string report = reports.all()[0];
  EXPECT_TRUE(contains(report, "ended for 0.")) << report;
  EXPECT_TRUE(contains(report, "worker 1: runs task 0 (start_and_wait)")) << report;
  EXPECT_TRUE(contains(report, "the submitting thread waits for a place in the window, in ring 0"))
      << report;
  EXPECT_TRUE(contains(report, "ring 0: 2 of 2 tasks in the window")) << report;
  EXPECT_TRUE(contains(report, "ring 1: 0 of 2 tasks in the window")) << report;
  EXPECT_TRUE(contains(report, "task 0 (start_and_wait): ready or running")) << report;
  EXPECT_TRUE(contains(report, "task 1 (mix): waits for 1 task")) << report;
}

TEST(StreamFailure, AStallReportSaysWhatIsDrained) {
  Reports reports;
  Gate started, may_end;
  const auto on_stall = [&](const std::string& report) {
    reports.add(report);
    may_end.open();
  };
  const std::unique_ptr<CpuDevice> device = must(
      CpuDevice::create({.worker_count = 2, .stall_after_ns = 50'000'000, .on_stall = on_stall}));
  TestStream stream(*device, small_rings());
  stream->begin_scope();
  stream.add(start_and_wait(started, may_end));
  must(stream->end_scope());
  stream.wait();
  ASSERT_EQ(reports.all().size(), 1u);
  EXPECT_TRUE(contains(reports.all()[0], "the submitting thread waits for all tasks to end"))
      << reports.all()[0];
  EXPECT_TRUE(contains(reports.all()[0], "ring 1: 1 of 64 tasks in the window"))
      << reports.all()[0];
}

// A stream in which nothing is in flight waits for its user: that is no stall.
TEST(StreamFailure, AnIdleStreamIsNoStall) {
  Reports reports;
  const auto on_stall = [&](const std::string& report) { reports.add(report); };
  const std::unique_ptr<CpuDevice> device = must(
      CpuDevice::create({.worker_count = 2, .stall_after_ns = 20'000'000, .on_stall = on_stall}));
  TestStream stream(*device, small_rings());
  stream.add({.name = "no_code", .run = nullptr});
  stream.wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_TRUE(reports.all().empty()) << reports.all()[0];
}

}  // namespace
}  // namespace gapless
