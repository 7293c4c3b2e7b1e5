// SPDX-License-Identifier: Apache-2.0
//
// TaskTimes: the seven times of a task on a CPU core, as records.
//
//   submit    the step began, or the task was handed to a stream
//   ready     the last producer's end was counted
//   dispatch  a worker took the task; on a CPU the taker is the core, so this is
//   receive   as well
//   start     the kernel is called; a cohort has gathered
//   end       the kernel has returned
//   finish    the worker begins to count the end for the successors
//
// One clock read may serve several records: a task costs about five reads.
//
// A task with several parts (blocks, or blocks and roles) has a row for each, and one more for
// their join: it has no start, each part has an edge to it, and it has the edges to the successors.
// So edges grow with the number of parts and not with the product of two such numbers. What the
// task moves and computes is divided among its parts; the join has none of it.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gapless/trace.h"
#include "graph/task.h"
#include "trace/join_names.h"

namespace gapless {

// Numbers that a task takes: of its parts, and of the join after them.
inline uint32_t trace_ids_of(int32_t part_count) {
  return static_cast<uint32_t>(part_count) + (part_count > 1 ? 1 : 0);
}

// One part's share of what a task moves and computes. Shares are equal, but that the first parts
// take what is left over, so that they add up.
inline CostHint cost_of_part(const CostHint& cost, uint32_t part, int32_t part_count) {
  if (part_count == 1) return cost;
  const auto share = [part, part_count](int64_t total) {
    return total / part_count + (part < total % part_count ? 1 : 0);
  };
  return {.bytes = share(cost.bytes), .flops = share(cost.flops)};
}

// Of one part of a task whose blocks have costs of their own; not known where there are none yet.
// A block has one part, or three.
inline CostHint cost_of_part(const std::vector<CostHint>& block_costs, uint32_t part,
                             int32_t part_count) {
  if (block_costs.empty()) return {};
  const size_t parts_per_block = static_cast<size_t>(part_count) / block_costs.size();
  return cost_of_part(block_costs[part / parts_per_block],
                      static_cast<uint32_t>(part % parts_per_block),
                      static_cast<int32_t>(parts_per_block));
}

inline bool is_known(const CostHint& cost) { return cost.bytes != 0 || cost.flops != 0; }

// What a worker that finds no task is doing.
inline NameId search_name() {
  static const NameId name = intern_name("search");
  return name;
}

class TaskTimes {
 public:
  TaskTimes(Writer* writer, LaneId lane) : writer_(writer), lane_(lane) {}
  bool is_on() const { return writer_ != nullptr; }
  uint32_t session() const { return writer_->session(); }

  void taken(uint64_t ticks, uint32_t task, NameId kernel) const {
    writer_->write_at(ticks, RecordKind::kTaskDispatch, lane_, kernel, task);
    writer_->write_at(ticks, RecordKind::kTaskReceive, lane_, kernel, task);
  }
  void started(uint32_t task, NameId kernel) const {
    writer_->write(RecordKind::kTaskStart, lane_, kernel, task);
  }
  void ended(uint32_t task, NameId kernel) const {
    writer_->write(RecordKind::kTaskEnd, lane_, kernel, task);
  }
  void finished(uint32_t task, NameId kernel) const {
    writer_->write(RecordKind::kTaskFinish, lane_, kernel, task);
  }
  void submitted(uint64_t ticks, uint32_t task, NameId kernel) const {
    writer_->write_at(ticks, RecordKind::kTaskSubmit, lane_, kernel, task);
  }
  void ready(uint64_t ticks, uint32_t task, NameId kernel) const {
    writer_->write_at(ticks, RecordKind::kTaskReady, lane_, kernel, task);
  }
  void edge(uint32_t producer, uint32_t consumer, EdgeKind kind) const {
    writer_->write_edge(producer, consumer, kind);
  }
  void cost(uint32_t task, const CostHint& cost) const {
    writer_->write_cost(task, static_cast<uint64_t>(cost.bytes), static_cast<uint64_t>(cost.flops));
  }

 private:
  Writer* writer_;
  LaneId lane_;
};

// A phase of a worker or of the orchestrator, written when it is over: a recording that begins or
// ends in the middle of it has nothing of it, rather than a span that stays open.
class Phase {
 public:
  // Begins now, unless it has begun already or nothing is recorded.
  void begin() {
    if (session_ != 0) return;
    const Writer* const writer = thread_writer();
    if (writer == nullptr) return;
    session_ = writer->session();
    begin_ticks_ = read_ticks();
  }
  void end(LaneId lane, NameId name, uint32_t value = kNoValue) {
    if (session_ == 0) return;
    Writer* const writer = thread_writer();
    if (writer == nullptr || writer->session() != session_) return;
    writer->write_at(begin_ticks_, RecordKind::kSpanBegin, lane, name, value);
    writer->write(RecordKind::kSpanEnd, lane, {}, kNoValue);
  }

 private:
  uint32_t session_ = 0;
  uint64_t begin_ticks_ = 0;
};

}  // namespace gapless
