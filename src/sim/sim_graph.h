// SPDX-License-Identifier: Apache-2.0
//
// SimGraph: what the simulated device runs: tasks with their cost and who waits for whom.
//
// Tasks are numbered in the order in which the orchestrator submits them. A task has blocks that
// run on one core each, or, when it is mixed, on all cores of a cluster: its *parts*. What one core
// does for one block is a *record*, the rows of the trace.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace gapless {

// The order is that in which a scheduler looks for work.
enum class SimShape : uint8_t { kMix = 0, kCube = 1, kVector = 2 };
inline constexpr int kSimShapeCount = 3;
std::string_view sim_shape_name(SimShape shape);

// What one core does for one block. When run_ns is not kModelled it is the time, whatever the bytes
// and flops are, and these are only told in the trace.
inline constexpr int64_t kModelled = -1;
struct SimCost {
  int64_t bytes = 0;  // from and to memory
  int64_t flops = 0;
  DType dtype = DType::kBf16;  // of the operands: bf16 or s8 for a cube core
  int64_t run_ns = kModelled;
  int64_t sigma_ns = 0;  // of run_ns
};

// Of a block's cost, in millionths of the task's: blocks need not be equal.
inline constexpr uint32_t kWholeBlock = 1'000'000;

struct SimTask {
  uint32_t kernel = 0;  // of the graph's kernels
  SimShape shape = SimShape::kVector;
  uint32_t block_count = 1;
  bool early_resolve = false;  // consumers may be dispatched when this is, where the device can
  bool sync_start = false;     // no block starts before all are on their cores
  bool is_dummy = false;       // no core: only an order
  SimCost cube = {};           // of the cube core of a block; kVector: unused
  SimCost vector = {};         // of each vector core of a block; kCube: unused
};

class SimGraph {
 public:
  uint32_t task_count() const { return static_cast<uint32_t>(tasks_.size()); }
  uint64_t edge_count() const { return producers_.size(); }
  const SimTask& task(uint32_t task) const { return tasks_[task]; }
  const std::vector<std::string>& kernels() const { return kernels_; }
  const std::string& kernel_name(uint32_t task) const { return kernels_[tasks_[task].kernel]; }
  uint32_t block_scale(uint32_t task, uint32_t block) const {
    const uint64_t begin = scale_begins_[task];
    return begin == scale_begins_[size_t{task} + 1] ? kWholeBlock : scales_[begin + block];
  }
  std::span<const uint32_t> producers(uint32_t task) const {
    return {producers_.data() + producer_begins_[task],
            producers_.data() + producer_begins_[size_t{task} + 1]};
  }
  std::span<const uint32_t> consumers(uint32_t task) const {
    return {consumers_.data() + consumer_begins_[task],
            consumers_.data() + consumer_begins_[size_t{task} + 1]};
  }

 private:
  friend class SimGraphBuilder;

  std::vector<std::string> kernels_;
  std::vector<SimTask> tasks_;
  std::vector<uint64_t> producer_begins_;  // [task + 1]
  std::vector<uint32_t> producers_;        // each once, ascending
  std::vector<uint64_t> consumer_begins_;
  std::vector<uint32_t> consumers_;
  std::vector<uint64_t> scale_begins_;  // [task + 1]
  std::vector<uint32_t> scales_;        // of tasks with unequal blocks
};

class SimGraphBuilder {
 public:
  uint32_t add_kernel(std::string_view name);  // equal names are one kernel
  // `scales`: by block; empty: all blocks are whole.
  uint32_t add_task(const SimTask& task, std::span<const uint32_t> producers = {},
                    std::span<const uint32_t> scales = {});
  uint32_t task_count() const { return static_cast<uint32_t>(tasks_.size()); }
  // For orders that are not the order of submission. Numbers are checked by finish().
  void add_edge(uint32_t producer, uint32_t consumer) { edges_.emplace_back(producer, consumer); }

  // Error when a number is out of range or tasks wait for each other in a circle, which it names.
  Result<SimGraph> finish();

 private:
  Result<void> check_task(uint32_t number) const;
  Result<void> check_edges() const;

  std::vector<std::string> kernels_;
  std::unordered_map<std::string, uint32_t> kernel_ids_;
  std::vector<SimTask> tasks_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // producer, consumer
  std::vector<uint64_t> scale_begins_ = {0};
  std::vector<uint32_t> scales_;
};

}  // namespace gapless
