// SPDX-License-Identifier: Apache-2.0
//
// Scheduler: which ready task a worker takes next: its own best one, else half of somebody else's.
//
// Every worker has a queue for each kind of core that tasks may ask for; a worker of a kind looks
// into the queues of its kind and of "any". On a device without clusters all tasks go to "any".

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/task.h"
#include "runtime/cpu_device.h"
#include "runtime/ready_queue.h"
#include "runtime/worker.h"

namespace gapless {

class Scheduler {
 public:
  explicit Scheduler(CpuDevice& device);

  // At the begin of a run: the queues hold tasks of these links from now on.
  void attach(QueueLink* links);
  // Which queue tasks for this kind of core go to.
  uint8_t queue_for(CoreKind core) const;
  bool can_run(const Worker& worker, uint32_t task) const {
    return !has_kinds_ || links_[task].queue == 0 ||
           links_[task].queue == static_cast<uint8_t>(worker.kind);
  }
  bool is_shared() const { return workers_.size() > 1; }
  bool has_clusters() const { return has_kinds_; }

  // To the queues of `worker`. The caller is that worker, or the thread that submits.
  void push(Worker& worker, std::span<const uint32_t> tasks);
  bool take_own(Worker& worker, Taken& taken) {
    if (!has_kinds_) return worker.queues[0].pop(taken);
    return worker.queues[static_cast<size_t>(worker.kind)].pop(taken) ||
           worker.queues[0].pop(taken);
  }
  // `polls`: how long the worker has been looking. A single task is left to its owner for the
  // first few polls: the owner most likely takes it at once and has its inputs in cache.
  bool steal(Worker& worker, Taken& taken, uint32_t polls);

 private:
  static constexpr uint32_t kPatientPolls = 16;
  bool steal_from(Worker& worker, Worker& victim, size_t queue, Taken& taken, uint32_t polls);

  std::vector<Worker*> workers_;
  QueueLink* links_ = nullptr;
  bool has_kinds_ = false;
};

}  // namespace gapless
