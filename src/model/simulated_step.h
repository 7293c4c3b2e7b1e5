// SPDX-License-Identifier: Apache-2.0
//
// Our own decode step on a simulated chip: the graph that CPU cores run (model/step_graph.h), cut
// for the chip's clusters, with what each task costs there; and the same tasks run by the CPU
// kernels in the order in which the simulation started them.
//
// The order is that of the simulation and of nothing else. A block may run when all blocks of all
// producers have: anything else is an error. If the graph itself lacked an edge, the simulation
// would start the consumer too early and the result would be wrong, which is what it shows.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/huge_buffer.h"
#include "base/result.h"
#include "graph/graph.h"
#include "model/cpu_decoder.h"
#include "model/layer_plan.h"
#include "model/step_graph.h"
#include "runtime/serial_run.h"
#include "sim/device_profile.h"
#include "sim/sim_graph.h"
#include "sim/sim_result.h"

namespace gapless {

// What a kernel is on the chip.
struct SimulatedKernel {
  SimShape shape = SimShape::kVector;  // of tasks that do not say which core they need
  DType dtype = DType::kF32;           // of a cube core's operands
  double cube_share = 1.0;             // of a mixed task's bytes; its operations are the cube's
};

// Task by task, edge by edge. Costs are the tasks' hints, shared out evenly among blocks, or as the
// task's block_costs say. `kernels`: by number of the graph's kernel. Error when a task has a
// predicate: the chip runs all of them.
Result<SimGraph> simulated_graph(const Graph& graph, std::span<const SimulatedKernel> kernels,
                                 int64_t vector_cores);

// The cores for which a layer is planned. A plan has kTilesPerCore tiles a core, many small ones,
// so that cores of unequal speed end together; clusters are equal, and a block costs them 4 us
// whatever it does. With this number a matmul has the fewest tiles that are as many for each
// cluster: of 24 clusters one tile each.
int simulated_core_count(const DeviceProfile& device);
// Vector cores share no cache lines: each row of a norm or cast can go to another.
inline constexpr int kSimulatedPackRows = 1;

// How a layer is planned for the chip: `problem` for these cores, and with rows that go into a
// matmul in the weights' type. Lengths must be given.
LayerProblem simulated_problem(LayerProblem problem, const DeviceProfile& device);

// A step's graph that was built for `problem`, of simulated_problem(). A tile of a matmul moves its
// weights, its columns and all rows: cores of the chip share no cache here.
Result<SimGraph> simulate_step_graph(const Graph& step, const LayerProblem& problem,
                                     const DeviceProfile& device);
// The same without weights, through the problem's layers: rows to rows, no embedding, no head.
Result<SimGraph> plan_simulated_step(const LayerProblem& problem, const DeviceProfile& device);

struct TaskBlock {
  uint32_t task = 0;
  int32_t block = 0;
  bool operator==(const TaskBlock&) const = default;
};
// All blocks by their start; of several at once the smaller task comes first, then the block.
std::vector<TaskBlock> start_order(const SimGraph& graph, const SimResult& result);

// Calls the kernels one after another. `buffers`: where each of the graph's buffers begins. Error
// when a block comes before its producers, comes twice or is missing, and when a task fails.
Result<void> run_in_order(const Graph& graph, std::span<std::byte* const> buffers,
                          std::span<const TaskBlock> order);

// The step that a decoder has just made, cut for another number of cores. Weights, cache and
// lengths are the decoder's; all else that tasks write is ours and holds no number before it runs.
class ReplannedStep {
 public:
  // Through the first `layers` layers. The decoder outlives it and makes no step meanwhile.
  static Result<std::unique_ptr<ReplannedStep>> create(const CpuDecoder& decoder, int core_count,
                                                       int layers);
  ReplannedStep(const ReplannedStep&) = delete;
  ReplannedStep& operator=(const ReplannedStep&) = delete;

  const Graph& graph() const { return step_.graph; }
  // x: [rows][hidden]; so is the result. Keys and values of the step's own tokens are spoilt first:
  // those that the decoder left would hide it when they are read too early.
  Result<std::vector<float>> run(std::span<const float> x, std::span<const TaskBlock> order);

 private:
  ReplannedStep() = default;
  Result<void> plan(const CpuDecoder& decoder, int core_count);
  void spoil_own_tokens();
  void spoil_memory();

  StepModel model_;
  StepGraph step_;
  HugeBuffer partials_;
  size_t partials_used_ = 0;
  std::vector<float> hidden_in_;
  std::vector<float> hidden_out_;
  std::vector<LineBytes> intermediates_;
  std::vector<std::byte*> buffers_;  // of the graph
};

}  // namespace gapless
