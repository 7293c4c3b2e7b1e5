// SPDX-License-Identifier: Apache-2.0

#include "runtime/scheduler.h"

#include <array>
#include <cstddef>

namespace gapless {

Scheduler::Scheduler(CpuDevice& device) : has_kinds_(device.limits().clusters > 0) {
  for (int i = 0; i < device.worker_count(); ++i) workers_.push_back(&device.worker(i));
}

void Scheduler::attach(QueueLink* links) {
  links_ = links;
  for (Worker* worker : workers_) {
    for (ReadyQueue& queue : worker->queues) queue.attach(links, is_shared());
  }
}

uint8_t Scheduler::queue_for(CoreKind core) const {
  if (!has_kinds_) return 0;
  if (core == CoreKind::kCube) return static_cast<uint8_t>(WorkerKind::kCube);
  if (core == CoreKind::kVector) return static_cast<uint8_t>(WorkerKind::kVector);
  return 0;
}

void Scheduler::push(Worker& worker, std::span<const uint32_t> tasks) {
  if (!has_kinds_) {
    worker.queues[0].push(tasks);
    return;
  }
  // Runs of one kind go together; a list is usually one run.
  for (size_t begin = 0; begin < tasks.size();) {
    const uint8_t queue = links_[tasks[begin]].queue;
    size_t end = begin + 1;
    while (end < tasks.size() && links_[tasks[end]].queue == queue) ++end;
    worker.queues[queue].push(tasks.subspan(begin, end - begin));
    begin = end;
  }
}

bool Scheduler::steal_from(Worker& worker, Worker& victim, size_t queue, Taken& taken,
                           uint32_t polls) {
  const uint32_t size = victim.queues[queue].size();
  if (size == 0 || (size == 1 && polls < kPatientPolls)) return false;
  return victim.queues[queue].steal(taken, worker.queues[queue]);
}

bool Scheduler::steal(Worker& worker, Taken& taken, uint32_t polls) {
  const size_t count = workers_.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (worker.next_victim + i) % count;
    Worker& victim = *workers_[at];
    if (&victim == &worker) continue;
    const bool found =
        steal_from(worker, victim, 0, taken, polls) ||
        (has_kinds_ && steal_from(worker, victim, static_cast<size_t>(worker.kind), taken, polls));
    if (!found) continue;
    worker.next_victim = static_cast<uint32_t>(at);
    ++worker.counts.stolen;
    return true;
  }
  return false;
}

}  // namespace gapless
