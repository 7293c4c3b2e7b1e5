// SPDX-License-Identifier: Apache-2.0
//
// StepTasks: the tasks of one part of a trace as a graph that analyses can walk: what ran, where,
// when, and who waited for whom.
//
// Rows of a trace that did not run (joins of SPMD tasks, skipped tasks) are taken out: who waited
// for a join waited for all its blocks, and it is the blocks that are the producers here. So that
// B blocks before C blocks are not B x C edges without bound, of a join's blocks only the
// kJoinProducers that ended last are kept, and fewer where all edges would be more than
// kResolvedEdges. Tasks are in the order of their start, producers before their consumers. Costs a
// sort of the tasks and a few passes over the edges: about 4 ms for 38.5 k tasks and 231 k edges.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/core_class.h"
#include "trace/trace.h"

namespace gapless {

class StepTasks {
 public:
  static constexpr uint32_t kJoinProducers = 64;
  // Edges through joins, all together, that are aimed at; one a join is kept in any case.
  static constexpr uint64_t kResolvedEdges = uint64_t{1} << 24;

  // Tasks that ran from start to end within the window, on `lanes` (empty: core_lanes() of
  // kernel_times.h). A task that crosses the window's ends is cut there, and counted; its other
  // times stay as they are. Error when the window is empty, a lane is wrong, or tasks of one lane
  // overlap (the message says which).
  static Result<StepTasks> create(const Trace& trace, TimeRange window,
                                  std::span<const uint32_t> lanes = {});

  TimeRange window() const { return window_; }
  int64_t window_ns() const { return window_.end_ns - window_.begin_ns; }
  uint32_t task_count() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t core_count() const { return static_cast<uint32_t>(lanes_.size()); }

  // By task, 0 .. task_count() - 1.
  uint32_t row(uint32_t task) const { return rows_[task]; }    // of the trace's tasks
  uint32_t core(uint32_t task) const { return cores_[task]; }  // 0 .. core_count() - 1
  // Of the trace's names, or kNoIndex.
  uint32_t kernel(uint32_t task) const { return kernels_[task]; }
  // kAbsent where it was not recorded; start and end are always there.
  int64_t time_ns(uint32_t task, TaskTime time) const {
    return times_[static_cast<size_t>(time)][task];
  }
  int64_t start_ns(uint32_t task) const { return time_ns(task, TaskTime::kStart); }
  int64_t end_ns(uint32_t task) const { return time_ns(task, TaskTime::kEnd); }
  // Each once, in ascending order. Producers have smaller numbers than the task, consumers larger.
  std::span<const uint32_t> producers(uint32_t task) const {
    return {producers_.data() + producer_begins_[task],
            producers_.data() + producer_begins_[size_t{task} + 1]};
  }
  std::span<const uint32_t> consumers(uint32_t task) const {
    return {consumers_.data() + consumer_begins_[task],
            consumers_.data() + consumer_begins_[size_t{task} + 1]};
  }

  // By core.
  uint32_t lane(uint32_t core) const { return lanes_[core]; }
  CoreClass core_class(uint32_t core) const { return classes_[core]; }
  CoreClass task_class(uint32_t task) const { return classes_[cores_[task]]; }
  std::span<const uint32_t> tasks_of_core(uint32_t core) const;  // in the order of their start

  // Whether every task has this time.
  bool has_time(TaskTime time) const { return absent_count(time) == 0; }
  uint32_t absent_count(TaskTime time) const { return absent_counts_[static_cast<size_t>(time)]; }
  uint64_t edge_count() const { return producers_.size(); }

  // What was changed or left out.
  uint32_t cut_count() const { return cut_count_; }                // tasks cut at the window
  uint32_t unfinished_count() const { return unfinished_count_; }  // started, no end: left out
  uint64_t outside_count() const { return outside_count_; }        // edges from tasks not here
  uint64_t backward_count() const { return backward_count_; }  // ... that start after the consumer
  uint32_t thinned_join_count() const { return thinned_join_count_; }  // blocks were left out

 private:
  friend class StepTasksMaker;
  StepTasks() = default;

  TimeRange window_;
  std::vector<uint32_t> rows_;
  std::vector<uint32_t> cores_;
  std::vector<uint32_t> kernels_;
  std::array<std::vector<int64_t>, kTaskTimeCount> times_;
  std::array<uint32_t, kTaskTimeCount> absent_counts_ = {};
  std::vector<uint64_t> producer_begins_;  // [task + 1]
  std::vector<uint32_t> producers_;
  std::vector<uint64_t> consumer_begins_;
  std::vector<uint32_t> consumers_;
  std::vector<uint32_t> lanes_;
  std::vector<CoreClass> classes_;
  std::vector<uint32_t> core_begins_;  // [core + 1]
  std::vector<uint32_t> core_tasks_;
  uint32_t cut_count_ = 0;
  uint32_t unfinished_count_ = 0;
  uint64_t outside_count_ = 0;
  uint64_t backward_count_ = 0;
  uint32_t thinned_join_count_ = 0;
};

}  // namespace gapless
