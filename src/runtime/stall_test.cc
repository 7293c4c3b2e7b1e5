// SPDX-License-Identifier: Apache-2.0
//
// The stall watchdog. A kernel waits until it was reported, so that no test depends on how long
// anything takes.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/replay.h"
#include "runtime/stall_text.h"
#include "runtime/test_graphs.h"

namespace gapless {
namespace {

constexpr int64_t kStallAfterNs = 50'000'000;

// Steps that may go on: a kernel of step s waits until `released` is at least s.
struct Brake {
  std::atomic<int64_t> entered = 0;
  std::atomic<int64_t> released = 0;
};

// Scalars: a Brake.
void brake_kernel(TaskContext& context) {
  Brake& brake = object_at<Brake>(context, 0);
  const int64_t step = brake.entered.fetch_add(1) + 1;
  SpinWait wait;
  while (brake.released.load() < step) wait.poll();
}

class Reports {
 public:
  void add(const std::string& report) {
    const std::lock_guard<std::mutex> guard(mutex_);
    reports_.push_back(report);
  }
  size_t count() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return reports_.size();
  }
  std::string last() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return reports_.empty() ? "" : reports_.back();
  }
  void wait_for(size_t wanted) const {
    while (count() < wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> reports_;
};

std::unique_ptr<CpuDevice> make_watched_device(int worker_count, Reports& reports) {
  return must(
      CpuDevice::create({.worker_count = worker_count,
                         .stall_after_ns = kStallAfterNs,
                         .on_stall = [&reports](const std::string& text) { reports.add(text); }}));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Stall, TheReportNamesWhatRunsAndWhatWaitsForIt) {
  for (const int worker_count : {1, 2}) {
    Reports reports;
    const std::unique_ptr<CpuDevice> device = make_watched_device(worker_count, reports);
    Journal journal;
    Brake brake;
    TestGraph graph;
    const TaskId first = graph.add({.scalars = note(journal, 0)});
    const TaskId stuck = graph.add(
        {.name = "stuck", .run = brake_kernel, .scalars = {pointer_to(brake)}, .after = {first}});
    const TaskId next = graph.add(
        {.name = "next", .run = note_kernel, .scalars = note(journal, 2), .after = {stuck}});
    graph.add({.name = "last", .run = note_kernel, .scalars = note(journal, 3), .after = {next}});
    Replay replay = must(Replay::prepare(*device, graph.finish()));
    std::thread releaser([&] {
      reports.wait_for(1);
      brake.released.store(1);
    });
    EXPECT_EQ(must(replay.run()).run_count, 4u) << "a stall that ends is no error";
    releaser.join();
    const std::string report = reports.last();
    EXPECT_TRUE(has(report, "no task ended for 0.")) << report;
    EXPECT_TRUE(has(report, ": runs task 1 (stuck)\n")) << report;
    EXPECT_TRUE(has(report, "task 1 (stuck): ready or running\n")) << report;
    EXPECT_TRUE(has(report, "task 2 (next): waits for task 1 (stuck)\n")) << report;
    EXPECT_TRUE(has(report, "task 3 (last): waits for task 2 (next)\n")) << report;
    EXPECT_FALSE(has(report, "task 0")) << "it has ended\n" << report;
    if (worker_count == 2) {
      EXPECT_TRUE(has(report, ": searches for a ready task\n")) << report;
    }
  }
}

TEST(Stall, EachStallIsReportedOnce) {
  Reports reports;
  const std::unique_ptr<CpuDevice> device = make_watched_device(2, reports);
  Brake brake;
  TestGraph graph;
  graph.add({.name = "stuck", .run = brake_kernel, .scalars = {pointer_to(brake)}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  for (int64_t step = 1; step <= 2; ++step) {
    std::thread releaser([&] {
      reports.wait_for(static_cast<size_t>(step));
      // Time for the watch to look again, more than once.
      std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kStallAfterNs));
      EXPECT_EQ(reports.count(), static_cast<size_t>(step));
      brake.released.store(step);
    });
    must(replay.run());
    releaser.join();
  }
}

// A gang waits for a worker that does not come, and another gang for the first one.
TEST(Stall, TheReportSaysWhichGangWaitsForWorkers) {
  Reports reports;
  const std::unique_ptr<CpuDevice> device = make_watched_device(2, reports);
  Journal journal;
  Brake brake;
  TestGraph graph;
  graph.add({.name = "stuck",
             .run = brake_kernel,
             .scalars = {pointer_to(brake)},
             .cost = {.bytes = 1000}});
  const TaskId opener = graph.add({.scalars = note(journal, 1), .cost = {.bytes = 1}});
  for (int i = 0; i < 2; ++i) {
    graph.add({.name = "gang",
               .run = note_kernel,
               .scalars = note(journal, 2),
               .after = {opener},
               .block_count = 2,
               .gang = true,
               .cost = {.bytes = 1}});
  }
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  std::thread releaser([&] {
    reports.wait_for(1);
    brake.released.store(1);
  });
  EXPECT_EQ(must(replay.run()).run_count, 6u);
  releaser.join();
  const std::string report = reports.last();
  EXPECT_TRUE(has(report, ": waits for the other workers of task 2 (gang)\n")) << report;
  EXPECT_TRUE(
      has(report, "task 3 (gang): waits for 2 workers at once; 0 are free of other gangs\n"))
      << report;
}

TEST(Stall, NothingIsReportedWhenItIsSwitchedOff) {
  Reports reports;
  const std::unique_ptr<CpuDevice> device = must(CpuDevice::create(
      {.worker_count = 2, .stall_after_ns = 0, .on_stall = [&reports](const std::string& text) {
         reports.add(text);
       }}));
  Brake brake;
  TestGraph graph;
  graph.add({.name = "stuck", .run = brake_kernel, .scalars = {pointer_to(brake)}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  std::thread releaser([&] {
    while (brake.entered.load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    brake.released.store(1);
  });
  must(replay.run());
  releaser.join();
  EXPECT_EQ(reports.count(), 0u);
}

TEST(Stall, AStallMayBeEndedByCancelling) {
  Reports reports;
  Journal journal;
  Brake brake;
  Replay* running = nullptr;
  const std::unique_ptr<CpuDevice> device =
      must(CpuDevice::create({.worker_count = 2,
                              .stall_after_ns = kStallAfterNs,
                              .on_stall = [&](const std::string& text) {
                                reports.add(text);
                                running->cancel();
                                brake.released.store(1);
                              }}));
  TestGraph graph;
  const TaskId stuck =
      graph.add({.name = "stuck", .run = brake_kernel, .scalars = {pointer_to(brake)}});
  graph.add({.scalars = note(journal, 1), .after = {stuck}});
  Replay replay = must(Replay::prepare(*device, graph.finish()));
  running = &replay;
  EXPECT_EQ(text_of(replay.run()), "step 1 was cancelled: 1 of 2 tasks or blocks did not run");
  EXPECT_EQ(journal.entries().size(), 0u);
}

TEST(StallText, LongListsAreCutShort) {
  const NameOfTask name_of = [](uint32_t task) { return "task " + std::to_string(task); };
  std::string text;
  UnfinishedList list(text);
  list.add("task 9", std::vector<uint32_t>{1, 2, 3, 4, 5, 6}, name_of);
  EXPECT_EQ(text, "task 9: waits for task 1, task 2, task 3, task 4 and 2 more\n");
  for (int i = 0; i < 70; ++i) list.add("task 10", {}, name_of);
  list.finish();
  EXPECT_TRUE(has(text, "task 10: ready or running\nand 7 more unfinished tasks\n")) << text;
}

}  // namespace
}  // namespace gapless
