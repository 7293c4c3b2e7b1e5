// SPDX-License-Identifier: Apache-2.0
//
// What the thread that submits and the workers of one stream share.
//
// A task in flight is a slot. The submitting thread fills it and links it behind its producers:
// each slot has a list of edges, pushed by the submitting thread alone and closed by the worker
// that ends the task; a closed list means that there is nothing to wait for any more. The edges
// into a task belong to that task's slot, so they live until it has run.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "graph/task.h"
#include "runtime/bump_ring.h"
#include "runtime/cohort.h"
#include "runtime/cpu_device.h"
#include "runtime/ready_queue.h"
#include "runtime/replay_plan.h"
#include "runtime/scheduler.h"
#include "runtime/stop.h"
#include "runtime/stream.h"

namespace gapless {

inline constexpr uint64_t kBufferAlignment = 64;    // of intermediates
inline constexpr uint64_t kArgumentAlignment = 16;  // of arguments and scalars in a window
inline constexpr uint32_t kNoEdge = 0xffffffff;
inline constexpr uint32_t kClosedList = 0xfffffffe;
inline constexpr int kSlotBits = 20;  // of a tag; the rest is the serial number

struct StreamEdge {
  uint32_t next = kNoEdge;
  uint32_t consumer = kNoTask;  // slot
};

struct alignas(64) StreamSlot {
  // Filled by the submitting thread before the task can become ready.
  KernelFunction run = nullptr;
  const Argument* arguments = nullptr;
  const Scalar* scalars = nullptr;
  uint32_t held_arguments = 0;  // bit i: argument i is an intermediate, which the task keeps alive
  uint16_t argument_count = 0;
  uint8_t scalar_count = 0;
  uint8_t flags = 0;  // RunTaskFlags
  int32_t part_count = 1;
  int32_t block_count = 1;
  uint32_t trace_first = kNoTask;  // kNoTask: submitted while nothing was recorded
  uint32_t trace_session = 0;      // the recording that knows trace_first
  // Counted by everybody.
  std::atomic<int32_t> waiting_for = 0;
  std::atomic<int32_t> parts_left = 0;
  std::atomic<uint32_t> successors = kClosedList;  // StreamEdge; kClosedList: the task has ended
  std::atomic<bool> is_poisoned = false;
  std::atomic<bool> has_ended = true;  // the last thing a worker does with a slot

  // What only the submitting thread and special tasks need.
  alignas(64) std::atomic<uint64_t> serial = 0;
  std::atomic<uint16_t> kernel = 0;
  CoreKind core = CoreKind::kAny;
  bool gang = false;
  Predicate predicate;
  uint64_t edges_end = 0;  // of the rings: what is free when the task has ended
  uint64_t bytes_end = 0;
  uint64_t stamp = 0;  // the newest consumer that this task has an edge to
};

// A window of tasks, and the edges and arguments of the tasks in it.
struct StreamRing {
  StreamRing(uint32_t first, const StreamOptions& options)
      : first_slot(first),
        window(options.window_tasks),
        edges(options.window_edges),
        bytes(static_cast<uint64_t>(options.window_bytes)),
        heap(static_cast<uint64_t>(options.heap_bytes)) {}

  uint32_t slot_at(uint64_t position) const {
    return first_slot + static_cast<uint32_t>(position % window);
  }

  uint32_t first_slot;  // of StreamState::slots
  uint64_t window;
  std::atomic<uint64_t> head = 0;  // tasks ever submitted to this ring
  std::atomic<uint64_t> tail = 0;  // of these, taken back
  BumpRing edges;
  BumpRing bytes;
  BumpRing heap;
  std::byte* argument_memory = nullptr;
  std::byte* heap_memory = nullptr;
  uint32_t first_edge = 0;  // of StreamState::edges
};

struct StreamBuffer {
  std::string name;
  BufferKind kind = BufferKind::kIntermediate;
  int64_t bytes = -1;  // -1: the index is free
  uint32_t generation = 0;
  bool is_closed = false;  // its scope has ended
  uint64_t heap_end = 0;
  uint64_t held_count = 0;  // by tasks ever submitted with it
};

// What the submitting thread is waiting for, for stall reports.
enum class StreamWait : uint8_t { kNothing = 0, kWindow, kEdges, kBytes, kHeap, kBuffers, kDrain };

struct StreamState {
  StreamState(CpuDevice& on_device, const StreamOptions& given, std::vector<Worker*> workers)
      : device(on_device), options(given), scheduler(on_device), board(std::move(workers)) {}

  CpuDevice& device;
  StreamOptions options;
  Scheduler scheduler;
  CohortBoard board;
  // Only the submitting thread adds kernels; others look at their names under the lock.
  mutable std::mutex kernels_mutex;
  KernelTable kernels;
  std::vector<NameId> names;       // of kernels; never moves
  std::vector<NameId> join_names;  // of their joins; never moves

  std::vector<std::unique_ptr<StreamRing>> rings;
  std::unique_ptr<StreamSlot[]> slots;
  std::vector<QueueLink> links;  // by slot
  std::unique_ptr<StreamEdge[]> edges;
  std::vector<std::byte*> addresses;                  // by buffer index
  std::unique_ptr<std::atomic<uint64_t>[]> released;  // by buffer index: tasks that let go

  alignas(128) std::atomic<uint32_t> stop = 0;  // kStopFailure, kStopCancel
  std::atomic<bool> is_over = false;            // workers go home
  std::atomic<StreamWait> waits_for = StreamWait::kNothing;
  std::atomic<int> waits_in_ring = 0;
  alignas(128) std::atomic<uint64_t> submitted = 0;
  std::atomic<bool> is_somebody_parked = false;  // set back by whoever wakes them
  std::atomic<uint32_t> wake = 0;

  std::mutex failure_mutex;
  std::string failure;  // the first one; guarded by failure_mutex
};

// Of the row that joins the parts of a task with several: see runtime/task_times.h.
inline uint32_t join_id(const StreamSlot& task) {
  return task.trace_first + static_cast<uint32_t>(task.part_count);
}

inline uint64_t make_tag(uint64_t serial, uint32_t slot) { return serial << kSlotBits | slot; }
inline uint32_t slot_of_tag(uint64_t tag) {
  return static_cast<uint32_t>(tag) & ((1u << kSlotBits) - 1);
}
inline uint64_t serial_of_tag(uint64_t tag) { return tag >> kSlotBits; }

// From any thread.
bool has_unfinished_tasks(const StreamState& state);
// "task 17 (gate_up)".
std::string slot_text(const StreamState& state, uint32_t slot);

// The work of a device thread until the stream is over.
void walk_stream(StreamState& state, Worker& worker);
// The submitting thread runs one task, while it has to wait anyway. False: there was none.
bool work_a_little(StreamState& state, Worker& worker);
// The task's producers have been counted: it runs, is skipped, or waits for its cohort. On behalf
// of the submitting thread.
void stream_task_is_ready(StreamState& state, Worker& worker, uint32_t slot);

}  // namespace gapless
