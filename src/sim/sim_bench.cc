// SPDX-License-Identifier: Apache-2.0
//
// What a simulated task costs: processor time a task and for whole steps, with and without the
// trace. Wide layers of tasks that have their time, the same with shared memory, a chain, and 40
// layers of qwen3-14b.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "bench/measurement.h"
#include "sim/machine.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_trace.h"

namespace gapless {
namespace {

constexpr double kTaskGoalNs = 1000.0;
constexpr double kDecodeGoalMs = 40.0;
constexpr double kStepGoalMs = 1000.0;
constexpr uint32_t kDecodeTasks = 38'705;  // records of the step of pypto-lib #665

struct Case {
  std::string name;
  SimGraph graph;
  Figure task{"ns", {}};
  Figure step{"ms", {}};
  Figure traced{"ms", {}};  // simulation and trace
  double records_a_task = 1.0;
  double events_a_task = 0.0;
};

SimTask wide_task(SimGraphBuilder& builder, uint32_t number, bool has_memory) {
  const bool is_cube = number % 2 == 0;
  SimTask task{.kernel = builder.add_kernel(is_cube ? "cube" : "vector"),
               .shape = is_cube ? SimShape::kCube : SimShape::kVector};
  SimCost& cost = is_cube ? task.cube : task.vector;
  if (has_memory) {
    cost = {.bytes = 500'000, .flops = 1'000'000};
  } else {
    cost = {.run_ns = 45'000, .sigma_ns = 2'000};
  }
  return task;
}

// Layers of `width` tasks with a join after each.
Result<SimGraph> wide_graph(uint32_t task_count, uint32_t width, bool has_memory) {
  SimGraphBuilder builder;
  std::vector<uint32_t> previous;
  std::vector<uint32_t> layer;
  for (uint32_t number = 0; number + 1 < task_count; ++number) {
    if (layer.size() < width) {
      layer.push_back(builder.add_task(wide_task(builder, number, has_memory), previous));
      continue;
    }
    SimTask join{.kernel = builder.add_kernel("join"), .shape = SimShape::kVector};
    join.vector = {.run_ns = 2'000};
    previous = {builder.add_task(join, layer)};
    layer.clear();
  }
  builder.add_task({.kernel = builder.add_kernel("end"), .is_dummy = true}, layer);
  return builder.finish();
}

Result<SimGraph> chain_graph(uint32_t task_count) {
  SimGraphBuilder builder;
  std::vector<uint32_t> previous;
  for (uint32_t number = 0; number < task_count; ++number) {
    previous = {builder.add_task(wide_task(builder, number, false), previous)};
  }
  return builder.finish();
}

Result<void> run_round(const DeviceProfile& profile, Case& one) {
  const int64_t begin_ns = thread_cpu_ns();
  const SimResult result = GAPLESS_TRY(simulate(profile, one.graph));
  const double sim_ns = static_cast<double>(thread_cpu_ns() - begin_ns);
  const Trace trace = make_sim_trace(profile, one.graph, result);
  const double all_ns = static_cast<double>(thread_cpu_ns() - begin_ns);
  const double tasks = static_cast<double>(one.graph.task_count());
  one.records_a_task = static_cast<double>(result.records.size()) / tasks;
  one.events_a_task = static_cast<double>(result.event_count) / tasks;
  one.task.values.push_back(sim_ns / tasks);
  one.step.values.push_back(sim_ns * 1e-6);
  one.traced.values.push_back(all_ns * 1e-6);
  if (trace.tasks.size() >= result.records.size()) return {};
  return fail(ErrorCode::kInvalidInput, "the trace has {} rows of {} records", trace.tasks.size(),
              result.records.size());
}

Result<std::vector<Case>> make_cases() {
  std::vector<Case> cases;
  cases.push_back({"wide layers, given times", GAPLESS_TRY(wide_graph(kDecodeTasks, 240, false))});
  cases.push_back({"wide layers, shared memory", GAPLESS_TRY(wide_graph(kDecodeTasks, 240, true))});
  cases.push_back({"chain", GAPLESS_TRY(chain_graph(kDecodeTasks))});
  for (const LayerTiling tiling : {LayerTiling::kBf16, LayerTiling::kA8W8}) {
    cases.push_back({fmt::format("40 layers of qwen3-14b, {}", layer_tiling_name(tiling)),
                     GAPLESS_TRY(make_layer_graph({.tiling = tiling, .layers = 40}))});
  }
  return cases;
}

Row simulator_row(std::string what, Figure figure) {
  Row row;
  row.group = "simulator";
  row.what = std::move(what);
  row.figure = std::move(figure);
  return row;
}

void add_rows(const Case& one, std::vector<Row>& rows) {
  const std::string size = fmt::format("{} tasks", one.graph.task_count());
  const std::string note =
      fmt::format("{:.1f} records and {:.1f} events a task", one.records_a_task, one.events_a_task);
  // An SPMD task is as much work as it has blocks: the goal is for a record.
  Figure record = one.task;
  for (double& value : record.values) value /= one.records_a_task;
  Row task = simulator_row(fmt::format("{}, {}, a record", one.name, size), record);
  task.note = note;
  rows.push_back(expect_at_most(task, kTaskGoalNs));
  Row step = simulator_row(fmt::format("{}, {}, in all", one.name, size), one.step);
  rows.push_back(expect_at_most(step, kDecodeGoalMs));
  Row traced = simulator_row(fmt::format("{}, {}, with its trace", one.name, size), one.traced);
  rows.push_back(expect_at_most(traced, kStepGoalMs));
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  fmt::print("simulated tasks: processor time\n");
  const DeviceProfile profile = GAPLESS_TRY(find_profile("ascend-910b"));
  std::vector<Case> cases = GAPLESS_TRY(make_cases());
  const int round_count = options.quick ? 1 : 11;
  for (int round = 0; round < round_count; ++round) {
    for (Case& one : cases) GAPLESS_TRY(run_round(profile, one));
  }
  std::vector<Row> rows;
  for (const Case& one : cases) add_rows(one, rows);
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
