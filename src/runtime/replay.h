// SPDX-License-Identifier: Apache-2.0
//
// Replay: a recorded graph, ready to be run again and again on a CpuDevice.
//
// prepare() does all that does not change: checks, memory, priorities, lists of successors. A step
// then only counts: a task's counter falls as its producers end and is set back by whoever takes it
// to zero, so there is nothing to reset. Values that change from step to step are read through
// pointers (Scalar::read_from, Predicate), addresses through bindings.
//
// Cost of an empty task: about 20 ns on one worker; docs/runtime.md has the figures.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "graph/graph.h"
#include "graph/memory_plan.h"
#include "runtime/boundary.h"
#include "runtime/cpu_device.h"

namespace gapless {

struct ReplayOptions {
  MemoryPlanOptions memory = {};
  bool shadow = false;  // check every access that kernels make: runtime/shadow.h
};

struct StepSummary {
  uint64_t run_count = 0;      // blocks whose kernel was called
  uint64_t skipped_count = 0;  // tasks whose predicate did not hold
  uint64_t stolen_count = 0;   // how often a worker took work from another
};

class Replay {
 public:
  // The device must outlive the replay. Errors are those of validate() and plan_memory().
  static Result<Replay> prepare(CpuDevice& device, Graph graph, const ReplayOptions& options = {});
  ~Replay();
  Replay(Replay&&) noexcept;
  Replay& operator=(Replay&&) noexcept;

  // One step. `bindings` may give the caller's buffers new addresses; the contract of
  // runtime/boundary.h is checked. When a task fails, what depends on it does not run, all else
  // does, and the first failure is returned with the task's name. The replay stays usable.
  Result<StepSummary> run(std::span<const Binding> bindings = {});

  // From any thread: tasks that have not started will not, and run() returns an error that says
  // so. No effect between steps.
  void cancel();

  const Graph& graph() const;
  const MemoryPlan& memory_plan() const;
  // Where a buffer lies now; nullptr: it is not bound, or no task uses it.
  std::byte* address(BufferId buffer) const;

 private:
  class Engine;
  explicit Replay(std::unique_ptr<Engine> engine);
  std::unique_ptr<Engine> engine_;
};

}  // namespace gapless
