// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks of the runtime share: a caller that stays on its core, graphs of the shapes
// of bench/task_shapes.h, and rounds in which ours and the peers take turns.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sched.h>

#include "base/result.h"
#include "bench/measurement.h"
#include "bench/task_peers.h"
#include "bench/task_shapes.h"
#include "graph/graph.h"
#include "graph/task_context.h"

namespace gapless {

// The cores this thread may use, smallest number first.
std::vector<int> allowed_cores();

// Keeps the caller on the first core it may use, as long as this lives; a CpuDevice pins its other
// workers to the cores after it. Threads inherit the core of whoever starts them: devices, peers
// and recordings must have started theirs before.
class PinnedCaller {
 public:
  PinnedCaller();
  ~PinnedCaller();
  PinnedCaller(const PinnedCaller&) = delete;
  PinnedCaller& operator=(const PinnedCaller&) = delete;

 private:
  cpu_set_t before_;
};

// A kernel that does nothing.
void empty_kernel(TaskContext& context);

// The shape as a graph: every task runs `kernel` and has all of `scalars`.
Result<Graph> graph_of(const TaskShape& shape, KernelFunction kernel,
                       std::vector<Scalar> scalars = {});

// One who runs all tasks of a shape at each call.
struct Contestant {
  std::string name;
  int worker_count = 1;
  uint32_t task_count = 0;
  std::function<Result<void>()> run;
  Figure figure{"ns", {}};  // of wall time a task: a round gives the median of its runs
};
Contestant contestant_of(std::unique_ptr<TaskPeer> peer, const TaskPeerArgs& args);

// Each in turn: a rest in which the idle workers of the one before go to sleep, one run that is not
// timed, then `run_count` that are.
Result<void> run_round(std::vector<Contestant>& contestants, int run_count);

Row make_row(std::string group, std::string what, Figure figure);
// "1 worker", "2 workers".
std::string workers_text(int worker_count);

}  // namespace gapless
