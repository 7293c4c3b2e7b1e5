// SPDX-License-Identifier: Apache-2.0
//
// StreamEngine: the submitting thread's side of a stream. stream.cc opens, drains and describes it,
// stream_buffers.cc gives out memory, stream_tasks.cc takes tasks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/tensor_map.h"
#include "runtime/spin.h"
#include "runtime/stream.h"
#include "runtime/stream_state.h"
#include "runtime/task_times.h"

namespace gapless {

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using PageMemory = std::unique_ptr<std::byte, FreeMemory>;

class StreamEngine final : public Program {
 public:
  StreamEngine(CpuDevice& device, const StreamOptions& options)
      : state_(device, options, device.workers()), map_(&StreamEngine::is_live, &state_) {}
  ~StreamEngine() override;

  Result<void> open();
  Result<KernelId> add_kernel(const std::string& name, KernelFunction run);
  Result<BufferId> add_buffer(const BufferSpec& spec);
  Result<TaskId> add_task(const TaskSpec& spec);
  void begin_scope() { scope_begins_.push_back(scope_buffers_.size()); }
  Result<void> end_scope();
  Result<StreamSummary> wait();
  void cancel() { state_.stop.fetch_or(kStopCancel, std::memory_order_relaxed); }
  std::byte* address(BufferId buffer) const;

  void work(Worker& worker) override;
  std::string describe_stall() const override;

 private:
  static bool is_live(const void* owner, uint64_t tag);
  Worker& own_worker() { return state_.device.worker(0); }
  int ring_number() const;
  BufferFacts facts_of(BufferId buffer) const;
  Error stopped_error() const;

  // Works or waits until `is_done`; for the record and the stall report, says what for.
  template <typename IsDone>
  void work_until(StreamWait reason, int ring, IsDone is_done);
  void retire(StreamRing& ring);
  void reclaim_heap(int number);

  Result<uint32_t> take_buffer_index();
  Result<BufferId> add_intermediate(const BufferSpec& spec);
  Result<void> check_aliases(const BufferSpec& spec) const;

  bool is_plainly_right(const Argument& argument) const;
  Result<void> check(const TaskSpec& spec) const;
  uint32_t take_slot(StreamRing& ring, int number);
  void copy_arguments(const TaskSpec& spec, StreamRing& ring, int number, StreamSlot& slot);
  void find_producers(const TaskSpec& spec, uint64_t tag);
  void fill_slot(const TaskSpec& spec, uint32_t index);
  void record_submit(const TaskSpec& spec, uint32_t index);
  // Returns how many producers had not ended yet.
  int32_t link_producers(StreamRing& ring, int number, uint32_t consumer);
  void wake_workers();

  StreamState state_;
  TensorMap map_;
  bool is_open_ = false;
  std::vector<PageMemory> memory_;
  std::vector<StreamBuffer> buffers_;
  std::vector<uint32_t> callers_buffers_;  // external and constant
  std::deque<uint32_t> free_buffers_;
  std::vector<std::deque<uint32_t>> heap_order_;  // by ring: buffers in the order of their memory
  std::vector<uint32_t> scope_buffers_;           // intermediates of the open scopes
  std::vector<size_t> scope_begins_;
  uint64_t next_serial_ = 0;
  uint64_t drained_serial_ = 0;  // at the last wait()
  uint64_t edge_count_ = 0;
  uint64_t waited_count_ = 0;
  int64_t heap_peak_bytes_ = 0;
  std::vector<Argument> tracked_;    // scratch: arguments without the constant ones
  std::vector<Dependency> found_;    // scratch
  std::vector<uint32_t> producers_;  // scratch: slots
  NameId wait_name_ = intern_name("wait for room");
  NameId drain_name_ = intern_name("drain");
};

template <typename IsDone>
void StreamEngine::work_until(StreamWait reason, int ring, IsDone is_done) {
  if (is_done()) return;
  state_.waits_for.store(reason, std::memory_order_relaxed);
  state_.waits_in_ring.store(ring, std::memory_order_relaxed);
  Phase phase;
  phase.begin();
  if (reason != StreamWait::kDrain) ++waited_count_;
  SpinWait wait;
  Worker& worker = own_worker();
  while (!is_done()) {
    if (work_a_little(state_, worker)) {
      wait.reset();
    } else {
      worker.set_activity(Activity::kSearching);
      wait.poll();
    }
  }
  phase.end(state_.device.orchestrator_lane(),
            reason == StreamWait::kDrain ? drain_name_ : wait_name_);
  worker.set_activity(Activity::kSubmitting);
  state_.waits_for.store(StreamWait::kNothing, std::memory_order_relaxed);
}

}  // namespace gapless
