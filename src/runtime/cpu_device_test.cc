// SPDX-License-Identifier: Apache-2.0

#include "runtime/cpu_device.h"

#include <atomic>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "runtime/test_graphs.h"

namespace gapless {
namespace {

// Counts which workers came, and knows their threads.
class CountingProgram final : public Program {
 public:
  explicit CountingProgram(int worker_count)
      : counts_(static_cast<size_t>(worker_count)), threads_(static_cast<size_t>(worker_count)) {}

  void work(Worker& worker) override {
    counts_[static_cast<size_t>(worker.index)].fetch_add(1);
    threads_[static_cast<size_t>(worker.index)].store(::gettid());
  }
  std::string describe_stall() const override { return ""; }

  int count(int worker) const { return counts_[static_cast<size_t>(worker)].load(); }
  int thread(int worker) const { return threads_[static_cast<size_t>(worker)].load(); }

 private:
  std::vector<std::atomic<int>> counts_;
  std::vector<std::atomic<int>> threads_;
};

// Worker 0 stays inside until the gate opens.
class WaitingProgram final : public Program {
 public:
  void work(Worker& worker) override {
    if (worker.index != 0) return;
    is_inside.open();
    may_leave.wait();
  }
  std::string describe_stall() const override { return ""; }

  Gate is_inside;
  Gate may_leave;
};

void run_once(CpuDevice& device, Program& program) {
  must(device.enter());
  device.start(program);
  device.join();
  device.leave();
}

std::string refusal(const CpuDeviceOptions& options) { return text_of(CpuDevice::create(options)); }

// 'S' when the thread sleeps, 'R' when it runs: see proc(5).
char state_of_thread(int thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
  std::string text;
  std::getline(file, text);
  const size_t end_of_name = text.rfind(')');
  return end_of_name == std::string::npos ? '?' : text[end_of_name + 2];
}

TEST(CpuDevice, RefusesBadCounts) {
  EXPECT_EQ(refusal({.worker_count = -1}),
            "cpu device: -1 workers in 0 clusters; none is negative");
  EXPECT_EQ(refusal({.cluster_count = -2}),
            "cpu device: 0 workers in -2 clusters; none is negative");
  EXPECT_EQ(refusal({.worker_count = 1025}), "cpu device: 1025 workers; the most is 1024");
  EXPECT_EQ(refusal({.worker_count = 4, .cluster_count = 2}),
            "cpu device: 4 workers do not make 2 clusters; a cluster has 3");
}

TEST(CpuDevice, TheErrorCountsTheWorkersOfAllClusters) {
  EXPECT_EQ(refusal({.cluster_count = 400}),
            "cpu device: 1200 workers in 400 clusters; the most is 1024");
}

TEST(CpuDevice, TakesOneWorkerForEachCpuItMayUse) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(make_device(0)->worker_count(), CPU_COUNT(&allowed));
}

TEST(CpuDevice, HasTheWorkersThatWereAskedFor) {
  for (const int worker_count : {1, 2, 9}) {
    const std::unique_ptr<CpuDevice> device = make_device(worker_count);
    EXPECT_EQ(device->worker_count(), worker_count);
    EXPECT_EQ(device->limits().any_cores, worker_count);
    EXPECT_EQ(device->limits().clusters, 0);
    for (int i = 0; i < worker_count; ++i) {
      EXPECT_EQ(device->worker(i).index, i);
      EXPECT_EQ(device->worker(i).kind, WorkerKind::kAny);
      EXPECT_EQ(device->worker(i).cluster, -1);
    }
  }
}

TEST(CpuDevice, AClusterHasOneCubeAndTwoVectorWorkers) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(2);
  ASSERT_EQ(device->worker_count(), 6);
  for (int i = 0; i < 6; ++i) {
    const Worker& worker = device->worker(i);
    EXPECT_EQ(worker.cluster, i / 3);
    EXPECT_EQ(worker.kind, i % 3 == 0 ? WorkerKind::kCube : WorkerKind::kVector);
  }
  EXPECT_EQ(device->worker(3).role, MixedRole::kCube);
  EXPECT_EQ(device->worker(4).role, MixedRole::kVector0);
  EXPECT_EQ(device->worker(5).role, MixedRole::kVector1);
  EXPECT_EQ(device->limits().clusters, 2);
  EXPECT_EQ(device->limits().cube_cores, 2);
  EXPECT_EQ(device->limits().vector_cores, 4);
  EXPECT_EQ(device->limits().any_cores, 0);
}

TEST(CpuDevice, AWorkerCountThatMatchesTheClustersIsTaken) {
  EXPECT_EQ(refusal({.worker_count = 6, .cluster_count = 2}), "accepted");
}

TEST(CpuDevice, EndsWithoutARun) {
  for (const int worker_count : {1, 2, 16}) make_device(worker_count);
  make_cluster_device(3);
}

TEST(CpuDevice, TheCallerIsWorkerZero) {
  const std::unique_ptr<CpuDevice> device = make_device(3);
  CountingProgram program(3);
  run_once(*device, program);
  EXPECT_EQ(program.thread(0), ::gettid());
  EXPECT_NE(program.thread(1), ::gettid());
  EXPECT_NE(program.thread(1), program.thread(2));
}

// Each worker comes once a run, whether it has parked or still spins.
TEST(CpuDevice, EveryWorkerComesOnceARun) {
  for (const int64_t park_after_ns : {int64_t{0}, int64_t{50'000}, int64_t{60'000'000'000}}) {
    // Workers that spin for long need a core each.
    const int worker_count = park_after_ns > 1'000'000 ? 2 : 4;
    const std::unique_ptr<CpuDevice> device =
        must(CpuDevice::create({.worker_count = worker_count, .park_after_ns = park_after_ns}));
    CountingProgram program(worker_count);
    for (int run = 0; run < 20; ++run) run_once(*device, program);
    for (int i = 0; i < worker_count; ++i) EXPECT_EQ(program.count(i), 20) << "worker " << i;
  }
}

TEST(CpuDevice, WorkersParkAndWakeAgain) {
  const std::unique_ptr<CpuDevice> device =
      must(CpuDevice::create({.worker_count = 3, .park_after_ns = 0}));
  CountingProgram program(3);
  for (int run = 1; run <= 3; ++run) {
    run_once(*device, program);
    for (const int worker : {1, 2}) {
      EXPECT_EQ(program.count(worker), run);
      while (state_of_thread(program.thread(worker)) != 'S') std::this_thread::yield();
    }
  }
}

TEST(CpuDevice, IsForOneRunAtATime) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  WaitingProgram program;
  std::thread runner([&] { run_once(*device, program); });
  program.is_inside.wait();
  EXPECT_EQ(text_of(device->enter()), "cpu device: in use by another run; one at a time");
  program.may_leave.open();
  runner.join();
  CountingProgram next(2);
  run_once(*device, next);
  EXPECT_EQ(next.count(1), 1);
}

// A replay that is refused the device is not harmed by it.
TEST(CpuDevice, TwoReplaysTakeTurns) {
  const std::unique_ptr<CpuDevice> device = make_device(2);
  Journal journal;
  Replay replay = must(Replay::prepare(*device, make_diamond(journal)));
  WaitingProgram program;
  std::thread runner([&] { run_once(*device, program); });
  program.is_inside.wait();
  EXPECT_EQ(text_of(replay.run()), "cpu device: in use by another run; one at a time");
  EXPECT_EQ(journal.entries().size(), 0u);
  program.may_leave.open();
  runner.join();
  EXPECT_EQ(must(replay.run()).run_count, 4u);
}

TEST(CpuDevice, TraceIdsAreNotGivenTwice) {
  const uint32_t first = CpuDevice::reserve_trace_ids(5);
  EXPECT_EQ(CpuDevice::reserve_trace_ids(1), first + 5);
}

TEST(CpuDevice, SaysWhatAWorkerDoes) {
  const std::unique_ptr<CpuDevice> device = make_cluster_device(1);
  Worker& cube = device->worker(0);
  EXPECT_EQ(worker_text(cube, "a task"), "worker 0 (cube of cluster 0): outside the run");
  cube.set_activity(Activity::kRunning);
  EXPECT_EQ(worker_text(cube, "task 3 (norm)"), "worker 0 (cube of cluster 0): runs task 3 (norm)");
  Worker& vector = device->worker(2);
  vector.set_activity(Activity::kGathering);
  EXPECT_EQ(worker_text(vector, "task 3 (norm)"),
            "worker 2 (vector 1 of cluster 0): waits for the other workers of task 3 (norm)");
  vector.set_activity(Activity::kSearching);
  EXPECT_EQ(worker_text(vector, ""), "worker 2 (vector 1 of cluster 0): searches for a ready task");
  const std::unique_ptr<CpuDevice> plain = make_device(1);
  plain->worker(0).set_activity(Activity::kSubmitting);
  EXPECT_EQ(worker_text(plain->worker(0), ""), "worker 0: submits tasks");
}

}  // namespace
}  // namespace gapless
