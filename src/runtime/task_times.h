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

#pragma once

#include <cstdint>

#include "gapless/trace.h"

namespace gapless {

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
  void phase_begins(NameId phase) const {
    writer_->write(RecordKind::kSpanBegin, lane_, phase, kNoValue);
  }
  void phase_ends() const { writer_->write(RecordKind::kSpanEnd, lane_, {}, kNoValue); }

 private:
  Writer* writer_;
  LaneId lane_;
};

}  // namespace gapless
