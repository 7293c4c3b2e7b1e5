// SPDX-License-Identifier: Apache-2.0

#include "sim/machine.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/sim_test_support.h"

namespace gapless {
namespace {

// One cluster of one cube core, one thread; every overhead has its own digit.
DeviceProfile small_profile(std::initializer_list<std::string_view> changes = {}) {
  DeviceProfile profile = ideal_profile(
      {"cluster.count=1", "cluster.vector_cores=0", "scheduler.poll_ns=10", "scheduler.loop_ns=3",
       "scheduler.complete_ns=100", "scheduler.resolve_ns=20", "scheduler.pop_ns=40",
       "scheduler.payload_ns=50", "scheduler.store_ns=5", "scheduler.notice_ns=7",
       "orchestrator.submit_ns=1000", "orchestrator.edge_ns=1", "core.propagation_ns=600",
       "core.setup_ns=300", "core.first_setup_ns=2000"});
  for (const std::string_view change : changes) {
    EXPECT_TRUE(set_parameter(profile, change).has_value()) << change;
  }
  return profile;
}

SimGraph finished(SimGraphBuilder& builder) {
  Result<SimGraph> graph = builder.finish();
  EXPECT_TRUE(graph.has_value());
  return *graph;
}

SimResult simulated(const DeviceProfile& profile, const SimGraph& graph) {
  Result<SimResult> result = simulate(profile, graph);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result ? *result : SimResult{};
}

// n tasks, each waiting for the one before it.
SimGraph chain(uint32_t count, int64_t run_ns) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("link");
  for (uint32_t task = 0; task < count; ++task) {
    std::vector<uint32_t> producers;
    if (task > 0) producers.push_back(task - 1);
    builder.add_task(timed_task(kernel, SimShape::kCube, run_ns), producers);
  }
  return finished(builder);
}

SimGraph independent(uint32_t count, int64_t run_ns, SimShape shape = SimShape::kCube) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  for (uint32_t task = 0; task < count; ++task) {
    builder.add_task(timed_task(kernel, shape, run_ns));
  }
  return finished(builder);
}

TEST(Machine, TakesNoTimeForNoTasks) {
  SimGraphBuilder builder;
  const SimResult result = simulated(small_profile(), finished(builder));
  EXPECT_EQ(result.makespan_ns, 0);
  EXPECT_TRUE(result.records.empty());
}

TEST(Machine, GivesTheSevenTimesOfATask) {
  const SimResult result = simulated(small_profile(), chain(1, 5000));
  EXPECT_EQ(result.tasks[0].submit_ns, 1000);
  EXPECT_EQ(result.tasks[0].ready_ns, 1000);
  // Looks into the queue at 0, 3, 6 ...: at 1002. Pop, payload, store: 95.
  const SimRecord& record = result.records[0];
  EXPECT_EQ(record.dispatch_ns, 1097);
  EXPECT_EQ(record.receive_ns, 1697);
  EXPECT_EQ(record.start_ns, 3697) << "the first task of a core";
  EXPECT_EQ(record.end_ns, 8697);
  // Visible from 8704 on. After the dispatch one more look at 1097, then rounds of 10 + 3 from
  // 1100: the load of the core ends at 1110 + 13 m.
  EXPECT_EQ(record.finish_ns, 8715);
  EXPECT_EQ((record.finish_ns - 1110) % 13, 0);
  EXPECT_EQ(result.makespan_ns, 8715);
}

TEST(Machine, ResolvesAConsumerAfterTheEndWasSeen) {
  const SimResult result = simulated(small_profile(), chain(2, 5000));
  EXPECT_EQ(result.tasks[1].submit_ns, 2001) << "1000 and one producer";
  EXPECT_EQ(result.tasks[1].ready_ns, 8715 + 100 + 20);
  // The polls of this round are done: the next action is to look into the queues.
  EXPECT_EQ(result.records[1].dispatch_ns, 8835 + 95);
  EXPECT_EQ(result.records[1].start_ns, 8930 + 600 + 300);
}

TEST(Machine, StartsWhatIsPendingAtTheEndBeforeIt) {
  const DeviceProfile profile = small_profile({"core.has_pending_slot=1", "core.switch_ns=11"});
  const SimResult result = simulated(profile, independent(2, 5000));
  const SimRecord& first = result.records[0];
  const SimRecord& second = result.records[1];
  EXPECT_EQ(result.pending_count, 1u);
  EXPECT_GE(second.dispatch_ns, first.start_ns + profile.notice_ns) << "the first was accepted";
  EXPECT_LT(second.dispatch_ns, first.end_ns);
  EXPECT_EQ(second.receive_ns, first.end_ns);
  EXPECT_EQ(second.start_ns, first.end_ns + 11);
  EXPECT_GE(first.finish_ns, second.start_ns + profile.notice_ns) << "seen by the second's start";
  EXPECT_LT(first.finish_ns, second.start_ns + profile.notice_ns + 13 + 10);
}

TEST(Machine, SeesAnEndByTheStartOfWhatCameAfterIt) {
  // Stores of the core are seen 20 us late: the first task has ended when the second is put into
  // the pending slot, and the scheduler does not know.
  const DeviceProfile profile = small_profile(
      {"core.has_pending_slot=1", "scheduler.notice_ns=20000", "orchestrator.submit_ns=15000"});
  const SimResult result = simulated(profile, independent(2, 5000));
  const SimRecord& first = result.records[0];
  const SimRecord& second = result.records[1];
  EXPECT_EQ(result.pending_count, 1u);
  EXPECT_GT(second.dispatch_ns, first.end_ns);
  EXPECT_EQ(second.start_ns, second.dispatch_ns + 600 + 300);
  EXPECT_GE(first.finish_ns, second.start_ns + 20'000);
}

TEST(Machine, SeesTwoEndsWithOnePoll) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  builder.add_task(timed_task(kernel, SimShape::kCube, 80'000));
  builder.add_task(timed_task(kernel, SimShape::kCube, 10'000));
  // The thread looks around every 50 us: both end between two of its polls.
  const DeviceProfile profile =
      small_profile({"core.has_pending_slot=1", "scheduler.loop_ns=50000"});
  const SimResult result = simulated(profile, finished(builder));
  EXPECT_EQ(result.pending_count, 1u);
  EXPECT_EQ(result.records[0].finish_ns, result.records[1].finish_ns);
  EXPECT_EQ(result.phases[0].back().record_count, 2u);
}

TEST(Machine, StandsStillWhenTheWindowIsFull) {
  const DeviceProfile profile = small_profile({"orchestrator.task_window=1"});
  const SimResult result = simulated(profile, independent(3, 5000));
  EXPECT_EQ(result.tasks[1].submit_ns, result.tasks[0].finish_ns + 1000);
  EXPECT_EQ(result.tasks[2].submit_ns, result.tasks[1].finish_ns + 1000);
  EXPECT_EQ(result.window_wait_ns, result.tasks[0].finish_ns - 1000 + result.tasks[1].finish_ns -
                                       result.tasks[1].submit_ns);
}

TEST(Machine, PollsOneCoreAfterTheOther) {
  // Four cubes whose blocks end together: their ends are seen 1000 apart, and 5 for completion.
  const DeviceProfile profile =
      ideal_profile({"cluster.count=4", "cluster.vector_cores=0", "scheduler.poll_ns=1000",
                     "scheduler.complete_ns=5"});
  const SimResult result = simulated(profile, independent(4, 100));
  for (size_t core = 0; core < 4; ++core) {
    EXPECT_EQ(result.records[core].core, core);
    EXPECT_EQ(result.records[core].finish_ns, static_cast<int64_t>(1000 * (core + 1) + 5 * core));
  }
}

TEST(Machine, DividesClustersAmongThreads) {
  const DeviceProfile profile =
      changed_profile("ascend-910b", {"orchestrator.submit_ns=0", "core.has_pending_slot=0"});
  const SimResult result = simulated(profile, independent(24, 50'000));
  std::set<uint32_t> cores;
  for (const SimRecord& record : result.records) cores.insert(record.core);
  EXPECT_EQ(cores.size(), 24u) << "one each";
  for (const std::vector<SimPhaseSpan>& spans : result.phases) {
    uint32_t dispatched = 0;
    for (const SimPhaseSpan& span : spans) {
      if (span.phase == SimPhase::kDispatch) dispatched += span.record_count;
    }
    EXPECT_EQ(dispatched, 8u);
  }
}

TEST(Machine, SharesWhatOneThreadResolves) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  const std::vector<uint32_t> first = {
      builder.add_task(timed_task(kernel, SimShape::kCube, 90'000))};
  for (int i = 0; i < 24; ++i) {
    builder.add_task(timed_task(kernel, SimShape::kCube, 50'000), first);
  }
  const DeviceProfile profile =
      changed_profile("ascend-910b", {"core.has_pending_slot=0", "scheduler.has_skip_hint=0"});
  const SimResult result = simulated(profile, finished(builder));
  std::set<uint32_t> cores;
  for (size_t i = 1; i < result.records.size(); ++i) {
    cores.insert(result.records[i].core);
    EXPECT_LT(result.records[i].start_ns, result.records[1].end_ns) << i;
  }
  EXPECT_EQ(cores.size(), 24u) << "threads without a core to poll wake up for it";
}

TEST(Machine, PutsAMixedTaskOnOneCluster) {
  SimGraphBuilder builder;
  SimTask task{.kernel = builder.add_kernel("attention"), .shape = SimShape::kMix};
  task.block_count = 2;
  task.cube = {.run_ns = 700};
  task.vector = {.run_ns = 900};
  builder.add_task(task);
  const SimResult result = simulated(ideal_profile(), finished(builder));
  ASSERT_EQ(result.records.size(), 6u);
  const std::vector<uint32_t> expected = {0, 24, 25, 1, 26, 27};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(result.records[i].core, expected[i]);
    EXPECT_EQ(result.records[i].end_ns, 900) << "its cores end together";
  }
}

TEST(Machine, LetsMixedTasksGoFirst) {
  SimGraphBuilder builder;
  builder.add_task(timed_task(builder.add_kernel("vector"), SimShape::kVector, 100));
  builder.add_task(timed_task(builder.add_kernel("mix"), SimShape::kMix, 100));
  const SimResult result = simulated(ideal_profile({"cluster.count=1"}), finished(builder));
  EXPECT_EQ(result.records[0].start_ns, 100) << "submitted first, and it waits";
  EXPECT_EQ(result.records[1].start_ns, 0);
}

TEST(Machine, GoesOnWithTheBlocksOfATaskWhenCoresAreFree) {
  SimGraphBuilder builder;
  builder.add_task(timed_task(builder.add_kernel("spmd"), SimShape::kVector, 100, 5));
  const SimResult result = simulated(ideal_profile({"cluster.count=1"}), finished(builder));
  std::vector<int64_t> starts;
  for (const SimRecord& record : result.records) starts.push_back(record.start_ns);
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 0, 100, 100, 200}));
}

TEST(Machine, StartsAGangTogether) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  for (int i = 0; i < 5; ++i) {
    builder.add_task(timed_task(kernel, SimShape::kCube, 10'000 + 3000 * i));
  }
  SimTask gang = timed_task(builder.add_kernel("gang"), SimShape::kCube, 500, 24);
  gang.sync_start = true;
  builder.add_task(gang);
  const DeviceProfile profile = changed_profile("ascend-910b", {});
  const SimResult result = simulated(profile, finished(builder));
  const auto rows = result.records.begin() + 5;
  const int64_t start_ns = rows->start_ns;
  for (auto row = rows; row != result.records.end(); ++row) {
    EXPECT_EQ(row->start_ns, start_ns);
    EXPECT_GE(row->start_ns, row->receive_ns + profile.setup_ns);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_LE(result.records[static_cast<size_t>(i)].finish_ns, start_ns) << "all cores are needed";
  }
}

TEST(Machine, SkipsPendingSlotsWhileAnotherThreadHasAnIdleCore) {
  // Two threads with one cube each that look into the queue every nanosecond, thread 0 first. When
  // the second task comes, core 0 has a free pending slot and core 1 is idle.
  const auto second_core = [](std::string_view hint) {
    const DeviceProfile profile = small_profile(
        {"cluster.count=2", "scheduler.threads=2", "core.has_pending_slot=1", "scheduler.poll_ns=0",
         "scheduler.loop_ns=1", "orchestrator.submit_ns=9000", hint});
    return simulated(profile, independent(2, 50'000)).records[1].core;
  };
  EXPECT_EQ(second_core("scheduler.has_skip_hint=0"), 0u);
  EXPECT_EQ(second_core("scheduler.has_skip_hint=1"), 1u);
}

TEST(Machine, DispatchesEarlyWhatItsProducersWillBe) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  SimTask first = timed_task(kernel, SimShape::kCube, 50'000);
  first.early_resolve = true;
  const std::vector<uint32_t> producers = {builder.add_task(first)};
  builder.add_task(timed_task(kernel, SimShape::kCube, 50'000), producers);
  const SimGraph graph = finished(builder);
  const DeviceProfile plain = small_profile({"cluster.count=2"});
  const SimResult late = simulated(plain, graph);
  const DeviceProfile option = small_profile({"cluster.count=2", "scheduler.has_early_dispatch=1"});
  const SimResult early = simulated(option, graph);
  EXPECT_LT(early.records[1].dispatch_ns, early.records[0].end_ns);
  EXPECT_GE(early.records[1].start_ns, early.tasks[1].ready_ns) << "the gate was closed until then";
  EXPECT_EQ(early.records[1].start_ns, early.tasks[1].ready_ns + 5 + 600);
  EXPECT_LT(early.makespan_ns, late.makespan_ns);
}

TEST(Machine, RunsDummiesWithoutACore) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  const std::vector<uint32_t> first = {builder.add_task(timed_task(kernel, SimShape::kCube, 100))};
  const std::vector<uint32_t> barrier = {
      builder.add_task({.kernel = builder.add_kernel("barrier"), .is_dummy = true}, first)};
  builder.add_task(timed_task(kernel, SimShape::kCube, 100), barrier);
  const SimResult result = simulated(small_profile(), finished(builder));
  EXPECT_EQ(result.records.size(), 2u);
  EXPECT_GE(result.records[1].dispatch_ns, result.tasks[1].finish_ns);
  EXPECT_GE(result.tasks[1].finish_ns, result.records[0].finish_ns);
}

TEST(Machine, UsesTheCalibrationOfAKernel) {
  DeviceProfile profile = ideal_profile();
  ASSERT_TRUE(set_parameter(profile, "kernel.link.mean_ns=777").has_value());
  EXPECT_EQ(simulated(profile, chain(3, 5000)).makespan_ns, 3 * 777);
}

TEST(Machine, DrawsTimesAroundTheirMean) {
  DeviceProfile profile = ideal_profile();
  ASSERT_TRUE(set_parameter(profile, "kernel.one.mean_ns=10000").has_value());
  ASSERT_TRUE(set_parameter(profile, "kernel.one.sigma_ns=1000").has_value());
  const SimResult result = simulated(profile, independent(4000, 1));
  double sum = 0.0;
  double squares = 0.0;
  for (const SimRecord& record : result.records) {
    const double time = static_cast<double>(record.end_ns - record.start_ns) - 10000.0;
    sum += time;
    squares += time * time;
  }
  EXPECT_NEAR(sum / 4000.0, 0.0, 50.0);
  EXPECT_NEAR(squares / 4000.0, 1e6, 6e4);
}

TEST(Machine, SharesTheMemory) {
  SimGraphBuilder builder;
  SimTask task{.kernel = builder.add_kernel("copy"), .shape = SimShape::kCube};
  task.cube = {.bytes = 1'000'000};
  task.block_count = 24;
  builder.add_task(task);
  // 24 cores at 100 GB/s want 2.4 TB/s of 1.2: 50 B/ns each.
  EXPECT_EQ(simulated(ideal_profile(), finished(builder)).makespan_ns, 20'000);
}

TEST(Machine, GivesUnequalBlocksTheirPart) {
  SimGraphBuilder builder;
  const std::vector<uint32_t> scales = {500'000, 1'500'000, 0};
  SimTask moved{.kernel = builder.add_kernel("moved"), .shape = SimShape::kCube, .block_count = 3};
  moved.cube = {.bytes = 1'000'000};
  builder.add_task(moved, {}, scales);
  builder.add_task(timed_task(builder.add_kernel("given"), SimShape::kCube, 1000, 3), {}, scales);
  const SimResult result = simulated(ideal_profile(), finished(builder));
  const std::vector<int64_t> expected = {5'000, 15'000, 0, 500, 1500, 0};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.records[i].end_ns - result.records[i].start_ns, expected[i]) << i;
  }
}

TEST(Machine, SaysWhatDoesNotFit) {
  SimGraphBuilder builder;
  builder.add_task(timed_task(builder.add_kernel("v"), SimShape::kVector, 1));
  const Result<SimResult> no_vector = simulate(small_profile(), finished(builder));
  ASSERT_FALSE(no_vector.has_value());
  EXPECT_EQ(no_vector.error().message, "task 0 (v): needs vector cores; ideal-910b has none");
  SimGraphBuilder wide;
  SimTask gang = timed_task(wide.add_kernel("gang"), SimShape::kMix, 1, 25);
  gang.sync_start = true;
  wide.add_task(gang);
  const Result<SimResult> no_room = simulate(ideal_profile(), finished(wide));
  ASSERT_FALSE(no_room.has_value());
  EXPECT_EQ(no_room.error().message,
            "task 0 (gang): its 25 mix blocks must start together; ideal-910b has room for 24");
}

TEST(Machine, RefusesMoreBlocksThanItCanCount) {
  SimGraphBuilder builder;
  for (int i = 0; i < 300; ++i) {
    builder.add_task(timed_task(builder.add_kernel("a"), SimShape::kCube, 1, 1u << 20));
  }
  const Result<SimResult> result = simulate(ideal_profile(), finished(builder));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message,
            "300 tasks have 314572800 blocks on cores; at most 268435456 can be simulated");
}

TEST(Machine, SaysWhenTheWindowHoldsEverythingUp) {
  SimGraphBuilder builder;
  const uint32_t kernel = builder.add_kernel("one");
  builder.add_task(timed_task(kernel, SimShape::kCube, 1));
  builder.add_task(timed_task(kernel, SimShape::kCube, 1));
  builder.add_edge(1, 0);
  const Result<SimResult> result =
      simulate(small_profile({"orchestrator.task_window=1"}), finished(builder));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message,
            "after 1001 ns nothing can go on: 0 of 2 tasks are complete, and task 0 (one) waits "
            "for a task that is not submitted; the window is 1 tasks");
}

TEST(Machine, RunsEverythingOnUnifiedCores) {
  std::mt19937_64 random(3);
  const SimGraph graph = random_sim_graph(random, {.has_memory = true, .has_special = true});
  const DeviceProfile profile = changed_profile("cpu-like", {});
  const SimResult result = simulated(profile, graph);
  for (const SimRecord& record : result.records) EXPECT_LT(record.core, 16u);
}

void expect_sound(const DeviceProfile& profile, const SimGraph& graph, const SimResult& result) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> runs(
      static_cast<size_t>(profile.core_count()));
  for (const SimRecord& record : result.records) {
    const SimTaskTimes& task = result.tasks[record.task];
    ASSERT_LE(task.submit_ns, task.ready_ns);
    ASSERT_LE(task.ready_ns, record.start_ns);
    if (profile.has_early_dispatch == 0) {
      ASSERT_LE(task.ready_ns, record.dispatch_ns);
    }
    ASSERT_LE(record.dispatch_ns, record.receive_ns);
    ASSERT_LE(record.receive_ns, record.start_ns);
    ASSERT_LE(record.start_ns, record.end_ns);
    ASSERT_LE(record.end_ns + profile.notice_ns, record.finish_ns);
    ASSERT_LE(record.finish_ns, task.finish_ns);
    for (const uint32_t producer : graph.producers(record.task)) {
      ASSERT_LE(result.tasks[producer].finish_ns, task.ready_ns);
    }
    runs[record.core].emplace_back(record.start_ns, record.end_ns);
  }
  for (std::vector<std::pair<int64_t, int64_t>>& core : runs) {
    std::sort(core.begin(), core.end());
    for (size_t i = 1; i < core.size(); ++i) ASSERT_LE(core[i - 1].second, core[i].first);
  }
}

// Goal: whatever the graph and the options, times are in order, cores run one block at a time, and
// a second run gives the same.
TEST(Machine, KeepsItsRulesOnRandomGraphs) {
  std::mt19937_64 random(11);
  const std::vector<DeviceProfile> profiles = {
      changed_profile("ascend-910b", {}),
      changed_profile("ascend-910b", {"scheduler.has_early_dispatch=1"}),
      changed_profile("ascend-910b", {"scheduler.has_skip_hint=0", "cluster.count=4",
                                      "scheduler.has_early_dispatch=1", "core.switch_ns=800"}),
      changed_profile("ascend-910b", {"orchestrator.task_window=9", "cluster.vector_cores=1",
                                      "cluster.count=25", "scheduler.threads=7"}),
      changed_profile("ideal-910b", {"core.has_pending_slot=1", "scheduler.has_skip_hint=1"}),
      changed_profile("ideal-910b", {"scheduler.poll_ns=195"}),
  };
  for (int round = 0; round < 30; ++round) {
    const SimGraph graph = random_sim_graph(
        random, {.task_count = 150, .has_memory = round % 2 == 0, .has_special = true});
    for (const DeviceProfile& profile : profiles) {
      const Result<SimResult> result = simulate(profile, graph, {.seed = 7});
      ASSERT_TRUE(result.has_value()) << result.error().message;
      ASSERT_NO_FATAL_FAILURE(expect_sound(profile, graph, *result));
      const Result<SimResult> again = simulate(profile, graph, {.seed = 7});
      ASSERT_TRUE(again.has_value());
      ASSERT_EQ(again->makespan_ns, result->makespan_ns);
      ASSERT_EQ(again->event_count, result->event_count);
    }
  }
}

// Rounds of polling in which nothing happens are not simulated one by one.
TEST(Machine, TakesNoEventsForWaiting) {
  const SimGraph graph = chain(50, 100);
  const SimGraph slow = chain(50, 1'000'000'000);
  const DeviceProfile profile = changed_profile("ascend-910b", {});
  const SimResult short_run = simulated(profile, graph);
  const SimResult long_run = simulated(profile, slow);
  EXPECT_GT(long_run.makespan_ns, 50'000'000'000);
  EXPECT_LT(long_run.event_count, 50u * 20u);
  EXPECT_LT(short_run.event_count, 50u * 20u);
}

}  // namespace
}  // namespace gapless
