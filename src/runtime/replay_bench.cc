// SPDX-License-Identifier: Apache-2.0
//
// What a replayed task costs. Empty tasks in four shapes, on one worker and two, against a serial
// walk and against oneTBB and OpenMP in the same rounds; then steps with the recording on and off
// in turn, of tasks of ten microseconds and of empty ones.
//
// Time is wall time, because two workers share it. A round gives one value for each variant: the
// median of its runs.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/file.h"
#include "gapless/trace.h"
#include "runtime/bench_support.h"
#include "runtime/cpu_device.h"
#include "runtime/replay.h"

namespace gapless {
namespace {

constexpr const char* kOurs = "replay";
constexpr double kOneWorkerGoalNs = 40.0;
constexpr double kTwoWorkersGoalNs = 75.0;
constexpr double kChainGoalNs = 100.0;
constexpr double kDecodeGoalMs = 3.0;
constexpr int kRunsInRound = 5;

Result<void> run_step(Replay& replay) {
  const StepSummary summary = GAPLESS_TRY(replay.run());
  const uint64_t expected = replay.graph().task_count();
  if (summary.run_count == expected) return {};
  return fail(ErrorCode::kInvalidInput, "a step ran {} tasks of {}", summary.run_count, expected);
}

// ---- Empty tasks against the peers.

// All who run one shape, on one worker and on two.
struct Race {
  TaskShape shape;
  std::vector<Contestant> contestants;
};

Result<Contestant> make_ours(CpuDevice& device, const TaskShape& shape) {
  Graph graph = GAPLESS_TRY(graph_of(shape, empty_kernel));
  const std::shared_ptr<Replay> replay =
      std::make_shared<Replay>(GAPLESS_TRY(Replay::prepare(device, std::move(graph))));
  return Contestant{.name = kOurs,
                    .worker_count = device.worker_count(),
                    .task_count = shape.task_count,
                    .run = [replay] { return run_step(*replay); }};
}

Result<void> enter_all(Race& race, CpuDevice& device) {
  race.contestants.push_back(GAPLESS_TRY(make_ours(device, race.shape)));
  const TaskPeerArgs args = {&race.shape, device.worker_count(), empty_task_body()};
  for (std::unique_ptr<TaskPeer>& peer : make_task_peers(args)) {
    race.contestants.push_back(contestant_of(std::move(peer), args));
  }
  return {};
}

const Contestant& find(const Race& race, const std::string& name, int worker_count) {
  const auto found = std::find_if(race.contestants.begin(), race.contestants.end(),
                                  [&name, worker_count](const Contestant& one) {
                                    return one.name == name && one.worker_count == worker_count;
                                  });
  return *found;  // ours and the serial walk always take part
}

void add_decode_row(const Contestant& ours, std::vector<Row>& rows) {
  Figure step{"ms", {}};
  for (const double ns : ours.figure.values) step.values.push_back(ns * ours.task_count * 1e-6);
  Row row =
      make_row("replay decode 38720",
               fmt::format("replay, a whole step, {}", workers_text(ours.worker_count)), step);
  rows.push_back(expect_at_most(row, kDecodeGoalMs));
}

void add_rows(const Race& race, std::vector<Row>& rows) {
  const std::string group = "replay " + race.shape.name;
  const bool is_chain = race.shape.name.starts_with("chain");
  for (const Contestant& one : race.contestants) {
    const std::string what = fmt::format("{}, {}", one.name, workers_text(one.worker_count));
    Row row = make_row(group, what, one.figure);
    if (one.name == kOurs) {
      compare(row, "serial walk, 1 worker", race.contestants[1].figure);
      const double goal_ns = one.worker_count == 1 ? kOneWorkerGoalNs : kTwoWorkersGoalNs;
      expect_at_most(row, is_chain ? kChainGoalNs : goal_ns);
    } else {
      compare(row, "ours", find(race, kOurs, one.worker_count).figure);
    }
    rows.push_back(std::move(row));
  }
  if (!race.shape.name.starts_with("decode")) return;
  for (const int workers : {1, 2}) add_decode_row(find(race, kOurs, workers), rows);
}

Result<void> measure_shapes(const BenchOptions& options, std::vector<Row>& rows) {
  fmt::print("empty tasks: wall time a task, {} runs a round\n", kRunsInRound);
  std::vector<std::unique_ptr<CpuDevice>> devices;
  for (const int workers : {1, 2}) {
    devices.push_back(GAPLESS_TRY(CpuDevice::create({.worker_count = workers})));
  }
  std::vector<Race> races;
  for (TaskShape& shape : all_task_shapes()) races.push_back({std::move(shape), {}});
  // All threads of all libraries start here, before the caller is pinned.
  for (Race& race : races) {
    for (const std::unique_ptr<CpuDevice>& device : devices) GAPLESS_TRY(enter_all(race, *device));
    for (Contestant& one : race.contestants) GAPLESS_TRY(one.run());
  }
  const PinnedCaller pinned;
  const int round_count = options.quick ? 1 : 9;
  for (int round = 0; round < round_count; ++round) {
    for (Race& race : races) GAPLESS_TRY(run_round(race.contestants, kRunsInRound));
  }
  for (const Race& race : races) add_rows(race, rows);
  return {};
}

// ---- Steps with the recording on and off.

constexpr int kTracedLayers = 40;
constexpr int kTracedWidth = 49;  // and a join: layers of 50, 2,000 tasks
constexpr double kTaskNs = 10'000.0;
constexpr double kTracedGoal = 1.02;
constexpr int kLongStepsInRound = 8;   // recorded and not recorded, each
constexpr int kEmptyStepsInRound = 4;  // one that is recorded takes 6 MB of disk

// Takes scalar 0 of ticks from its own first instruction on, whatever was late before.
void spin_kernel(TaskContext& context) {
  const uint64_t begin_ticks = read_ticks();
  const uint64_t ticks = static_cast<uint64_t>(context.scalar(0));
  while (read_ticks() - begin_ticks < ticks) compiler_barrier();
}

// One graph on one device.
struct TracedCase {
  Replay replay;
  int worker_count = 1;
  int steps_in_round = 0;       // of each kind
  uint64_t records_a_step = 0;  // at least; searching workers leave more
  uint64_t recorded_steps = 0;
  Figure recorded{"ns", {}};  // of a step, divided by its tasks
  Figure plain{"ns", {}};
};

Result<TracedCase> make_case(CpuDevice& device, const TaskShape& shape, KernelFunction kernel,
                             std::vector<Scalar> scalars) {
  Graph graph = GAPLESS_TRY(graph_of(shape, kernel, std::move(scalars)));
  TracedCase one{.replay = GAPLESS_TRY(Replay::prepare(device, std::move(graph)))};
  one.worker_count = device.worker_count();
  // Seven times a task, every edge, and the span of the step.
  one.records_a_step = uint64_t{7} * shape.task_count + shape.successors.size() + 2;
  return one;
}

Result<double> time_step(TracedCase& one, bool is_recorded) {
  if (is_recorded) resume_recording();
  const int64_t begin_ns = wall_ns();
  const Result<void> step = run_step(one.replay);
  const double elapsed_ns = static_cast<double>(wall_ns() - begin_ns);
  pause_recording();
  GAPLESS_TRY(step);
  if (is_recorded) ++one.recorded_steps;
  return elapsed_ns / one.replay.graph().task_count();
}

Result<void> run_traced_round(TracedCase& one) {
  GAPLESS_TRY(time_step(one, true));
  std::vector<double> recorded;
  std::vector<double> plain;
  for (int i = 0; i < one.steps_in_round; ++i) {
    const bool recorded_first = i % 2 == 0;
    (recorded_first ? recorded : plain).push_back(GAPLESS_TRY(time_step(one, recorded_first)));
    (recorded_first ? plain : recorded).push_back(GAPLESS_TRY(time_step(one, !recorded_first)));
  }
  one.recorded.values.push_back(median(recorded));
  one.plain.values.push_back(median(plain));
  return {};
}

// On one worker exact: that a paused recording takes no record is checked here too.
Result<void> check_summary(const std::vector<TracedCase>& cases, const RecordingSummary& summary) {
  uint64_t expected = 0;
  for (const TracedCase& one : cases) expected += one.recorded_steps * one.records_a_step;
  const bool is_exact = cases.front().worker_count == 1;
  const bool is_right =
      is_exact ? summary.event_count == expected : summary.event_count >= expected;
  if (is_right && summary.dropped_count == 0) return {};
  return fail(ErrorCode::kInvalidInput, "{}: {} records kept and {} dropped of {}",
              workers_text(cases.front().worker_count), summary.event_count, summary.dropped_count,
              expected);
}

Row make_long_task_row(const TracedCase& one) {
  const int turns = (kTracedWidth + one.worker_count - 1) / one.worker_count + 1;
  const double ideal_ns = kTracedLayers * turns * kTaskNs / one.replay.graph().task_count();
  Row row = make_row(
      "traced replay",
      fmt::format("10 us tasks, recorded: step time by tasks, {}", workers_text(one.worker_count)),
      one.recorded);
  compare(row, "not recorded", one.plain);
  row.note =
      fmt::format("{:.4f}x; of the ideal step {:.4f}x and {:.4f}x", ratio(one.recorded, one.plain),
                  median(one.recorded.values) / ideal_ns, median(one.plain.values) / ideal_ns);
  return expect_ratio_at_most(row, kTracedGoal);
}

Row make_empty_task_row(const TracedCase& one) {
  Figure added{"ns", {}};
  for (size_t i = 0; i < one.plain.values.size(); ++i) {
    added.values.push_back(one.recorded.values[i] - one.plain.values[i]);
  }
  Row row = make_row("traced replay",
                     fmt::format("decode 38720, what recording adds to an empty task, {}",
                                 workers_text(one.worker_count)),
                     added);
  compare(row, "the task itself", one.plain);
  row.note = fmt::format("{:.1f} records a task",
                         static_cast<double>(one.records_a_step) /
                             static_cast<double>(one.replay.graph().task_count()));
  return row;
}

Result<void> measure_traced(const BenchOptions& options, int worker_count, std::vector<Row>& rows) {
  const std::string folder = options.folder + "/replay";
  GAPLESS_TRY(make_directories(folder));
  const std::unique_ptr<CpuDevice> device =
      GAPLESS_TRY(CpuDevice::create({.worker_count = worker_count}));
  const int64_t spin_ticks = static_cast<int64_t>(kTaskNs / measure_tick_ns());
  const TaskShape layers = layered_shape({.layer_count = kTracedLayers, .width = kTracedWidth});
  std::vector<TracedCase> cases;
  cases.push_back(
      GAPLESS_TRY(make_case(*device, layers, spin_kernel, {Scalar::fixed(spin_ticks)})));
  cases.back().steps_in_round = kLongStepsInRound;
  cases.push_back(GAPLESS_TRY(make_case(*device, decode_shape(), empty_kernel, {})));
  cases.back().steps_in_round = kEmptyStepsInRound;
  if (!start_recording({.path = folder + "/steps.gapless"})) {
    return fail(ErrorCode::kSystem, "{}", recording_error());
  }
  pause_recording();
  {
    const PinnedCaller pinned;  // after the recorder's own thread has started
    const int round_count = options.quick ? 1 : 11;
    for (int round = 0; round < round_count; ++round) {
      for (TracedCase& one : cases) GAPLESS_TRY(run_traced_round(one));
    }
  }
  const RecordingSummary summary = stop_recording();
  std::filesystem::remove_all(folder);
  GAPLESS_TRY(check_summary(cases, summary));
  rows.push_back(make_long_task_row(cases[0]));
  rows.push_back(make_empty_task_row(cases[1]));
  return {};
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  std::vector<Row> rows;
  GAPLESS_TRY(measure_shapes(options, rows));
  fmt::print("steps with the recording on and off in turn\n");
  for (const int workers : {1, 2}) GAPLESS_TRY(measure_traced(options, workers, rows));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
