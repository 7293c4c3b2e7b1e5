// SPDX-License-Identifier: Apache-2.0
//
// Worker: one core of the CPU device, and Program: what the device runs on its workers.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "gapless/trace.h"
#include "graph/task_context.h"
#include "runtime/ready_queue.h"

namespace gapless {

struct Cohort;

// A worker of a device without clusters runs every kind; in a cluster a worker is one of the three.
enum class WorkerKind : uint8_t { kAny = 0, kCube = 1, kVector = 2 };
inline constexpr int kQueueKinds = 3;      // by WorkerKind
inline constexpr int kClusterWorkers = 3;  // a cube and two vector workers

// Parts of a task are numbered by block, and within a block by role.
inline uint32_t part_of(int32_t block, MixedRole role) {
  const uint32_t number = static_cast<uint32_t>(block);
  if (role == MixedRole::kWhole) return number;
  return number * kClusterWorkers + static_cast<uint32_t>(role) - 1;
}

inline constexpr uint32_t kMailboxClosed = kNoTask;    // the worker has something to do
inline constexpr uint32_t kMailboxOpen = kNoTask - 1;  // it looks here next

// For whoever asks what a worker is doing.
enum class Activity : uint8_t { kOutside = 0, kSearching, kRunning, kGathering, kSubmitting };

struct WorkerCounts {
  uint64_t run = 0;       // blocks whose kernel was called
  uint64_t stolen = 0;    // blocks or tasks taken from other workers' queues
  uint64_t skipped = 0;   // tasks whose predicate did not hold
  uint64_t poisoned = 0;  // tasks that did not run because one before them failed
  uint64_t cancelled = 0;
  uint64_t failed = 0;

  WorkerCounts& operator+=(const WorkerCounts& other) {
    run += other.run;
    stolen += other.stolen;
    skipped += other.skipped;
    poisoned += other.poisoned;
    cancelled += other.cancelled;
    failed += other.failed;
    return *this;
  }
};

struct alignas(128) Worker {
  int index = 0;
  int cpu = -1;  // pinned to it; -1: not pinned
  WorkerKind kind = WorkerKind::kAny;
  int cluster = -1;
  MixedRole role = MixedRole::kWhole;
  LaneId lane;
  uint32_t next_victim = 0;
  WorkerCounts counts;
  TaskFailure failure;
  TaskContext context{TaskContext::Fields{}};
  std::vector<uint32_t> ready;    // scratch: tasks that have just become ready
  std::vector<uint32_t> skipped;  // scratch: tasks that are done without having run

  // Where a searching worker is handed a task without a queue: one cache line goes over, once. A
  // task, or one of the two below. Only the submitting thread of a stream fills it.
  alignas(128) std::atomic<uint32_t> mailbox = kMailboxClosed;
  // What others look at.
  alignas(128) std::atomic<Cohort*> reservation = nullptr;
  alignas(128) std::atomic<uint32_t> task = kNoTask;
  std::atomic<Activity> activity = Activity::kOutside;
  std::atomic<uint64_t> progress = 0;  // grows with each block that was run or skipped

  std::array<ReadyQueue, kQueueKinds> queues;  // by what may run the tasks

  void set_activity(Activity now) { activity.store(now, std::memory_order_relaxed); }
  void count_progress() {
    progress.store(progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
};

// One part of a task.
struct TaskPart {
  uint32_t task = kNoTask;
  int32_t block = 0;
  int32_t block_count = 1;
  MixedRole role = MixedRole::kWhole;
};

// Makes the worker's context that of the part, and says that the worker runs it. A Task has run,
// arguments, scalars and their counts.
template <typename Task>
void begin_part(Worker& worker, const Task& task, const TaskPart& part) {
  TaskContext::Fields& fields = worker.context.fields();
  fields.arguments = task.arguments;
  fields.scalars = task.scalars;
  fields.argument_count = task.argument_count;
  fields.scalar_count = task.scalar_count;
  fields.block_index = part.block;
  fields.block_count = part.block_count;
  fields.role = part.role;
  worker.task.store(part.task, std::memory_order_relaxed);
  worker.set_activity(Activity::kRunning);
}

// A flat interface: a recorded graph that is replayed, or a stream.
class Program {
 public:
  virtual ~Program() = default;
  // Called on every worker's thread; returns when there is nothing left to do for this run.
  virtual void work(Worker& worker) = 0;
  // What everything unfinished waits for, from another thread while workers work.
  // Empty: nothing is unfinished.
  virtual std::string describe_stall() const = 0;
};

}  // namespace gapless
