// SPDX-License-Identifier: Apache-2.0
//
// Stream: tasks run while they are being submitted.
//
//   std::unique_ptr<Stream> stream = GAPLESS_TRY(Stream::open(*device));
//   const KernelId norm = GAPLESS_TRY(stream->add_kernel("rms_norm", rms_norm_task));
//   GAPLESS_TRY(stream->add_task({.kernel = norm, .arguments = arguments}));
//   GAPLESS_TRY(stream->wait());
//
// Memory is bounded by the options and taken at the beginning. Tasks in flight live in a ring: when
// the window is full, add_task runs tasks itself until the oldest has ended. Intermediate buffers
// live in a heap ring: a buffer is free when its scope has ended and every task that was given it
// has, and is taken back in order. Each scope depth has rings of its own, so that a long task
// outside does not hold up the tasks of the scopes inside. What can never fit is an error at once.
//
// One thread uses a stream. It is worker 0: while it waits it works. Where there are more workers
// they run tasks as soon as these are ready. A gang as large as the device needs this thread too,
// and its other workers wait until it calls again.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "graph/task.h"
#include "runtime/cpu_device.h"

namespace gapless {

inline constexpr int kMaxStreamRings = 4;

struct StreamOptions {
  int ring_count = kMaxStreamRings;  // scopes deeper than that share the last ring
  uint32_t window_tasks = 4096;      // of each ring; a power of two
  uint32_t window_edges = 32768;     // of each ring: edges into tasks in flight
  int64_t window_bytes = 2 << 20;    // of each ring: arguments and scalars of tasks in flight
  int64_t heap_bytes = 64 << 20;     // of each ring: intermediate buffers
  uint32_t max_buffers = 65536;      // alive at one time
};

struct StreamSummary {
  uint64_t task_count = 0;     // submitted since the last wait()
  uint64_t run_count = 0;      // blocks whose kernel was called
  uint64_t skipped_count = 0;  // tasks whose predicate did not hold
  uint64_t edge_count = 0;     // edges to tasks that had not ended yet
  uint64_t waited_count = 0;   // how often add_task or add_buffer had to wait for room
  uint64_t stolen_count = 0;
  int64_t heap_peak_bytes = 0;  // of all rings together
};

class StreamEngine;

class Stream final : public TaskSink {
 public:
  // Takes the device until the stream is gone.
  static Result<std::unique_ptr<Stream>> open(CpuDevice& device, const StreamOptions& options = {});
  // Ends what was submitted; what went wrong in it is lost: call wait() first.
  ~Stream() override;

  Result<KernelId> add_kernel(const std::string& name, KernelFunction run);
  // External and constant buffers live until the stream is gone; they must have an address.
  Result<BufferId> add_buffer(const BufferSpec& spec) override;
  // After a failure or cancel() nothing is taken until wait() has been called.
  Result<TaskId> add_task(const TaskSpec& spec) override;
  void begin_scope() override;
  Result<void> end_scope() override;

  // Until all tasks have ended. Returns the first failure since the last wait(), with the task's
  // name; the stream is usable again afterwards.
  Result<StreamSummary> wait();
  // From any thread: tasks that have not started will not.
  void cancel();

  // Where an intermediate lies. Valid while the buffer is.
  std::byte* address(BufferId buffer) const;

 private:
  explicit Stream(std::unique_ptr<StreamEngine> engine);
  std::unique_ptr<StreamEngine> engine_;
};

}  // namespace gapless
