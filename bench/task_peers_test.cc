// SPDX-License-Identifier: Apache-2.0

#include "bench/task_peers.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "bench/measurement.h"

namespace gapless {
namespace {

// Watches the tasks of a shape while they run. In round r every producer of a task must have been
// run r + 1 times when the task starts, and the task itself r times.
class Witness {
 public:
  explicit Witness(const TaskShape& shape)
      : producers_(shape.task_count), run_count_(shape.task_count) {
    for (uint32_t task = 0; task < shape.task_count; ++task) {
      const uint32_t end = shape.successor_begin[task + size_t{1}];
      for (uint32_t i = shape.successor_begin[task]; i < end; ++i) {
        producers_[shape.successors[i]].push_back(task);
      }
    }
  }

  TaskBody body() {
    return {.function = [](void* self, uint32_t task) { static_cast<Witness*>(self)->see(task); },
            .state = this};
  }

  void end_round() {
    ++round_;
    for (const std::atomic<uint32_t>& count : run_count_) {
      if (count.load() != round_) wrong_count_.fetch_add(1);
    }
  }

  uint32_t too_early_count() const { return too_early_count_.load(); }
  uint32_t wrong_count() const { return wrong_count_.load(); }
  int most_at_once() const { return most_at_once_.load(); }

 private:
  void see(uint32_t task) {
    const int active = active_.fetch_add(1) + 1;
    int most = most_at_once_.load();
    while (most < active && !most_at_once_.compare_exchange_weak(most, active)) {
    }
    for (const uint32_t producer : producers_[task]) {
      if (run_count_[producer].load() != round_ + 1) too_early_count_.fetch_add(1);
    }
    run_count_[task].fetch_add(1);
    active_.fetch_sub(1);
  }

  std::vector<std::vector<uint32_t>> producers_;
  std::vector<std::atomic<uint32_t>> run_count_;
  uint32_t round_ = 0;
  std::atomic<uint32_t> too_early_count_ = 0;  // edges whose producer had not run
  std::atomic<uint32_t> wrong_count_ = 0;      // tasks that a round ran not at all or twice
  std::atomic<int> active_ = 0;
  std::atomic<int> most_at_once_ = 0;
};

std::vector<TaskShape> small_shapes() {
  std::vector<TaskShape> shapes;
  shapes.push_back(wavefront_shape(24));
  shapes.push_back(chain_shape(500));
  shapes.push_back(layered_shape({.layer_count = 5, .width = 241}));
  shapes.push_back(chain_shape(1));
  return shapes;
}

void expect_legal_rounds(const TaskShape& shape, int worker_count) {
  Witness witness(shape);
  for (const std::unique_ptr<TaskPeer>& peer :
       make_task_peers({&shape, worker_count, witness.body()})) {
    SCOPED_TRACE(peer->name() + ", " + shape.name + ", workers: " + std::to_string(worker_count));
    for (int round = 0; round < 5; ++round) {
      peer->run();
      witness.end_round();
    }
    // The next peer counts on from here, so the first that is wrong ends the test.
    ASSERT_EQ(witness.wrong_count(), 0u);
    ASSERT_EQ(witness.too_early_count(), 0u);
    ASSERT_LE(witness.most_at_once(), worker_count);
  }
  EXPECT_GE(witness.most_at_once(), 1);
}

TEST(TaskPeers, RunEveryTaskOnceAfterItsProducersOnOneWorker) {
  for (const TaskShape& shape : small_shapes()) expect_legal_rounds(shape, 1);
}

TEST(TaskPeers, RunEveryTaskOnceAfterItsProducersOnTwoWorkers) {
  for (const TaskShape& shape : small_shapes()) expect_legal_rounds(shape, 2);
}

TEST(TaskPeers, RunTheDecodeShape) { expect_legal_rounds(decode_shape(), 2); }

TEST(TaskPeers, OfOneAndTwoWorkersLiveSideBySide) {
  const TaskShape shape = layered_shape({.layer_count = 3, .width = 30});
  Witness one(shape);
  Witness two(shape);
  const std::vector<std::unique_ptr<TaskPeer>> on_one = make_task_peers({&shape, 1, one.body()});
  const std::vector<std::unique_ptr<TaskPeer>> on_two = make_task_peers({&shape, 2, two.body()});
  for (int round = 0; round < 3; ++round) {
    for (const std::unique_ptr<TaskPeer>& peer : on_one) {
      peer->run();
      one.end_round();
    }
    for (const std::unique_ptr<TaskPeer>& peer : on_two) {
      peer->run();
      two.end_round();
    }
  }
  EXPECT_EQ(one.wrong_count() + two.wrong_count(), 0u);
  EXPECT_EQ(one.too_early_count() + two.too_early_count(), 0u);
  EXPECT_EQ(one.most_at_once(), 1);
  EXPECT_LE(two.most_at_once(), 2);
}

TEST(TaskPeers, BeginWithTheFloorOnOneWorkerOnly) {
  const TaskShape shape = chain_shape(2);
  EXPECT_EQ(make_task_peers({&shape, 1, empty_task_body()}).front()->name(), "serial walk");
  for (const std::unique_ptr<TaskPeer>& peer : make_task_peers({&shape, 2, empty_task_body()})) {
    EXPECT_NE(peer->name(), "serial walk");
  }
}

// Two tasks that each wait for the other to start: one worker cannot do that. They give up after
// ten seconds, so that a peer with one worker fails rather than hangs.
struct Meeting {
  std::atomic<int> arrived = 0;
  std::atomic<int> met = 0;
};

void meet(void* state, uint32_t task) {
  if (task == 2) return;  // the join
  Meeting& meeting = *static_cast<Meeting*>(state);
  constexpr int64_t kPatienceNs = 10'000'000'000;
  const int64_t begin_ns = wall_ns();
  meeting.arrived.fetch_add(1);
  while (meeting.arrived.load() < 2 && wall_ns() - begin_ns < kPatienceNs) {
    std::this_thread::yield();
  }
  if (meeting.arrived.load() == 2) meeting.met.fetch_add(1);
}

TEST(TaskPeers, RunTwoTasksAtOnceOnTwoWorkers) {
  if (std::thread::hardware_concurrency() < 2) {
    GTEST_SKIP() << "oneTBB has no second worker on a machine with one core";
  }
  const TaskShape shape = layered_shape({.layer_count = 1, .width = 2});
  Meeting meeting;
  for (const std::unique_ptr<TaskPeer>& peer : make_task_peers({&shape, 2, {meet, &meeting}})) {
    meeting.arrived.store(0);
    meeting.met.store(0);
    peer->run();
    EXPECT_EQ(meeting.met.load(), 2) << peer->name();
  }
}

// Tasks sleep, so that a second worker would have the time to take one.
struct Caller {
  std::thread::id thread = std::this_thread::get_id();
  std::atomic<int> elsewhere_count = 0;
};

void expect_caller(void* state, uint32_t) {
  Caller& caller = *static_cast<Caller*>(state);
  if (std::this_thread::get_id() != caller.thread) caller.elsewhere_count.fetch_add(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(TaskPeers, StayOnTheCallingThreadWithOneWorker) {
  const TaskShape shape = layered_shape({.layer_count = 1, .width = 20});
  Caller caller;
  for (const std::unique_ptr<TaskPeer>& peer :
       make_task_peers({&shape, 1, {expect_caller, &caller}})) {
    peer->run();
    EXPECT_EQ(caller.elsewhere_count.exchange(0), 0) << peer->name();
  }
}

TEST(TaskPeers, SayHowLongTheirGraphTookToBuild) {
  const TaskShape shape = chain_shape(100);
  const TaskPeerArgs args = {&shape, 1, empty_task_body()};
  EXPECT_EQ(make_serial_peer(args)->build_ns(), 0.0);
  const std::unique_ptr<TaskPeer> flow_graph = make_tbb_flow_graph_peer(args);
  if (flow_graph == nullptr) GTEST_SKIP() << "built without oneTBB";
  EXPECT_GT(flow_graph->build_ns(), 0.0);
}

TEST(LatencyPeers, GiveOnePositiveValueASample) {
  const std::vector<double> waiting = measure_condition_variable_latency_ns(20);
  EXPECT_EQ(waiting.size(), 20u);
  for (const double latency_ns : waiting) EXPECT_GT(latency_ns, 0.0);
  const TaskShape shape = chain_shape(1);
  if (make_tbb_flow_graph_peer({&shape, 1, empty_task_body()}) == nullptr) {
    EXPECT_TRUE(measure_tbb_latency_ns(20).empty());
    GTEST_SKIP() << "built without oneTBB";
  }
  const std::vector<double> enqueued = measure_tbb_latency_ns(20);
  EXPECT_EQ(enqueued.size(), 20u);
  for (const double latency_ns : enqueued) EXPECT_GT(latency_ns, 0.0);
}

}  // namespace
}  // namespace gapless
