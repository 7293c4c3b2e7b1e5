// SPDX-License-Identifier: Apache-2.0
//
// RecordedGraph: the tasks of a recorded step as a graph that the simulated device can run.
//
// A row of a trace is what one core did. Rows of one task belong together again here: those that a
// join ("... (all blocks)") waits for, and rows on Ascend cores whose ids differ only above 2^40.
// A task with rows on cube and on vector cores is a mixed one, and its rows are put into blocks by
// cluster. Every block takes the time that was recorded, so the graph is run with a profile that
// lists no kernels. Rows that did not run and join nothing stay as tasks without a core. Costs a
// few passes over rows and edges, and one sort.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/step_tasks.h"
#include "base/result.h"
#include "sim/sim_graph.h"
#include "trace/trace.h"

namespace gapless {

// The cores of a step as a simulated device has them: cube core c and the vector cores from
// c x vector_cores on are a cluster, each kind counted in the order of the step's lanes.
struct RecordedCores {
  uint32_t cube_count = 0;
  uint32_t vector_count = 0;
  uint32_t any_count = 0;  // run everything: workers, multiprocessors
  // Of a cluster; 0 where the vector cores are not a multiple of the cube cores.
  uint32_t vector_cores() const {
    return cube_count == 0 || vector_count % cube_count != 0 ? 0 : vector_count / cube_count;
  }
};
RecordedCores recorded_cores(const StepTasks& tasks);
// By core of the step: the cluster that it is in.
std::vector<uint32_t> recorded_clusters(const StepTasks& tasks);

struct RecordedGraphOptions {
  // By the trace's name of a kernel: times its recorded run time, bytes and operations. Empty: 1.
  std::span<const double> kernel_scale = {};
  // All blocks of a task are whole, for a profile that lists the kernels' means.
  bool has_equal_blocks = false;
  // Blocks have bytes and operations, as bf16 work, instead of a time: the device gives it. Error
  // when a task has neither.
  bool is_modelled = false;
  int64_t sigma_ns = 0;  // of every run time, drawn from the simulation's seed
};

struct RecordedGraph {
  SimGraph graph;  // in the order of submission
  // By task of the StepTasks: the graph's task, and the block of it.
  std::vector<uint32_t> task_of;
  std::vector<uint32_t> block_of;
  // By task of the graph: kAbsent where it was not recorded.
  std::vector<int64_t> submit_ns;
  // Whether submit times gave the order; else ids did, or the order of the first starts.
  bool is_order_recorded = false;
  uint32_t dummy_count = 0;     // tasks without a core
  uint32_t mixed_count = 0;     // mixed tasks
  uint32_t unpaired_count = 0;  // mixed tasks that did not have all cores of their clusters
};

// `trace` is the one that `tasks` was made of. Error when it is more than the simulator takes, or
// tasks wait for each other in a circle.
Result<RecordedGraph> make_recorded_graph(const Trace& trace, const StepTasks& tasks,
                                          const RecordedGraphOptions& options = {});

}  // namespace gapless
