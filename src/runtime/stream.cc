// SPDX-License-Identifier: Apache-2.0

#include "runtime/stream.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "runtime/stall_text.h"
#include "runtime/stream_engine.h"

namespace gapless {
namespace {

constexpr size_t kPageBytes = 4096;

Result<PageMemory> allocate_pages(uint64_t bytes, const char* what) {
  const size_t rounded = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  PageMemory memory(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, rounded)));
  if (memory == nullptr) {
    return fail(ErrorCode::kSystem, "stream: cannot allocate {} bytes for {}", bytes, what);
  }
  return memory;
}

Result<void> check_options(const StreamOptions& options) {
  if (options.ring_count < 1 || options.ring_count > kMaxStreamRings) {
    return fail(ErrorCode::kInvalidInput, "stream: {} rings; there are 1 to {}", options.ring_count,
                kMaxStreamRings);
  }
  constexpr uint32_t kMaxWindow = (1u << kSlotBits) / kMaxStreamRings;
  if (!std::has_single_bit(options.window_tasks) || options.window_tasks > kMaxWindow) {
    return fail(ErrorCode::kInvalidInput,
                "stream: a window of {} tasks; it must be a power of two up to {}",
                options.window_tasks, kMaxWindow);
  }
  constexpr int64_t kMinWindowBytes =
      static_cast<int64_t>(kMaxArguments * sizeof(Argument) + kMaxScalars * sizeof(Scalar)) +
      int64_t{kArgumentAlignment};
  if (options.window_bytes < kMinWindowBytes ||
      options.window_bytes % int64_t{kArgumentAlignment} != 0) {
    return fail(ErrorCode::kInvalidInput,
                "stream: {} bytes for arguments; it must be a multiple of {} and at least {}",
                options.window_bytes, kArgumentAlignment, kMinWindowBytes);
  }
  if (options.window_edges < 1 || options.window_edges > (1u << 24)) {
    return fail(ErrorCode::kInvalidInput, "stream: room for {} edges; it must be 1 to {}",
                options.window_edges, 1u << 24);
  }
  if (options.heap_bytes < 0 || options.heap_bytes % static_cast<int64_t>(kBufferAlignment) != 0) {
    return fail(ErrorCode::kInvalidInput, "stream: a heap of {} bytes; it must be a multiple of {}",
                options.heap_bytes, kBufferAlignment);
  }
  if (options.max_buffers < 1 || options.max_buffers > BufferId::kIndexMask) {
    return fail(ErrorCode::kInvalidInput, "stream: {} buffers; there may be 1 to {}",
                options.max_buffers, BufferId::kIndexMask);
  }
  return {};
}

const char* wait_text(StreamWait wait) {
  switch (wait) {
    case StreamWait::kNothing:
      return "for nothing";
    case StreamWait::kWindow:
      return "for a place in the window";
    case StreamWait::kEdges:
      return "for room for edges";
    case StreamWait::kBytes:
      return "for room for arguments";
    case StreamWait::kHeap:
      return "for memory of the heap";
    case StreamWait::kBuffers:
      return "for a free buffer number";
    case StreamWait::kDrain:
      return "for all tasks to end";
  }
  return "";
}

}  // namespace

bool StreamEngine::is_live(const void* owner, uint64_t tag) {
  const StreamState& state = *static_cast<const StreamState*>(owner);
  const StreamSlot& slot = state.slots[slot_of_tag(tag)];
  return slot.serial.load(std::memory_order_relaxed) == serial_of_tag(tag) &&
         slot.successors.load(std::memory_order_acquire) != kClosedList;
}

Result<void> StreamEngine::open() {
  const StreamOptions& options = state_.options;
  GAPLESS_TRY(check_options(options));
  const uint32_t ring_count = static_cast<uint32_t>(options.ring_count);
  const uint32_t slot_count = ring_count * options.window_tasks;
  state_.slots = std::make_unique<StreamSlot[]>(slot_count);
  state_.links.resize(slot_count);
  state_.edges = std::make_unique<StreamEdge[]>(size_t{ring_count} * options.window_edges);
  state_.addresses.resize(options.max_buffers, nullptr);
  state_.released = std::make_unique<std::atomic<uint64_t>[]>(options.max_buffers);
  for (uint32_t i = 0; i < ring_count; ++i) {
    auto ring = std::make_unique<StreamRing>(i * options.window_tasks, options);
    memory_.push_back(GAPLESS_TRY(allocate_pages(ring->bytes.capacity(), "arguments")));
    ring->argument_memory = memory_.back().get();
    memory_.push_back(GAPLESS_TRY(allocate_pages(ring->heap.capacity(), "intermediate buffers")));
    ring->heap_memory = memory_.back().get();
    ring->first_edge = i * options.window_edges;
    state_.rings.push_back(std::move(ring));
  }
  heap_order_.resize(ring_count);
  state_.names.reserve(size_t{1} << 16);
  state_.join_names.reserve(size_t{1} << 16);
  buffers_.resize(options.max_buffers);
  for (uint32_t i = 0; i < options.max_buffers; ++i) free_buffers_.push_back(i);
  GAPLESS_TRY(state_.device.enter());
  is_open_ = true;
  state_.scheduler.attach(state_.links.data());
  for (int i = 0; i < state_.device.worker_count(); ++i) {
    Worker& worker = state_.device.worker(i);
    worker.counts = {};
    worker.failure = {};
    worker.task.store(kNoTask, std::memory_order_relaxed);
  }
  own_worker().set_activity(Activity::kSubmitting);
  state_.device.start(*this);
  return {};
}

StreamEngine::~StreamEngine() {
  if (!is_open_) return;
  static_cast<void>(wait());
  state_.is_over.store(true, std::memory_order_release);
  wake_workers();
  state_.device.join();
  state_.device.leave();
}

// The submitting thread has nothing to do here: it has drained the stream before.
void StreamEngine::work(Worker& worker) {
  if (worker.index != 0) walk_stream(state_, worker);
}

void StreamEngine::wake_workers() {
  state_.is_somebody_parked.store(false, std::memory_order_relaxed);
  state_.wake.fetch_add(1, std::memory_order_release);
  state_.wake.notify_all();
}

void StreamEngine::retire(StreamRing& ring) {
  uint64_t tail = ring.tail.load(std::memory_order_relaxed);
  const uint64_t head = ring.head.load(std::memory_order_relaxed);
  while (tail < head) {
    const StreamSlot& slot = state_.slots[ring.slot_at(tail)];
    if (!slot.has_ended.load(std::memory_order_acquire)) break;
    ring.edges.release_to(slot.edges_end);
    ring.bytes.release_to(slot.bytes_end);
    ++tail;
  }
  ring.tail.store(tail, std::memory_order_relaxed);
}

Result<KernelId> StreamEngine::add_kernel(const std::string& name, KernelFunction run) {
  const std::lock_guard<std::mutex> guard(state_.kernels_mutex);
  const KernelId id = GAPLESS_TRY(state_.kernels.add(name, run));
  state_.names.push_back(intern_name(name));
  state_.join_names.push_back(intern_name(name + std::string(kJoinSuffix)));
  return id;
}

Error StreamEngine::stopped_error() const {
  if ((state_.stop.load(std::memory_order_relaxed) & kStopFailure) != 0) {
    return fail(ErrorCode::kInvalidInput, "stream: a task has failed; wait() says which");
  }
  return fail(ErrorCode::kInvalidInput, "stream: cancelled; wait() makes it usable again");
}

Result<StreamSummary> StreamEngine::wait() {
  for (int i = 0; i < state_.options.ring_count; ++i) {
    StreamRing& ring = *state_.rings[static_cast<size_t>(i)];
    work_until(StreamWait::kDrain, i, [this, &ring] {
      retire(ring);
      return ring.tail.load(std::memory_order_relaxed) == ring.head.load(std::memory_order_relaxed);
    });
  }
  WorkerCounts total;
  for (int i = 0; i < state_.device.worker_count(); ++i) {
    total += state_.device.worker(i).counts;
    state_.device.worker(i).counts = {};
  }
  StreamSummary summary;
  summary.task_count = next_serial_ - drained_serial_;
  summary.run_count = total.run;
  summary.skipped_count = total.skipped;
  summary.stolen_count = total.stolen;
  summary.edge_count = std::exchange(edge_count_, 0);
  summary.waited_count = std::exchange(waited_count_, 0);
  summary.heap_peak_bytes = heap_peak_bytes_;
  drained_serial_ = next_serial_;

  const uint32_t stop = state_.stop.exchange(0, std::memory_order_acquire);
  const std::lock_guard<std::mutex> guard(state_.failure_mutex);
  const std::string failure = std::exchange(state_.failure, {});
  if ((stop & kStopFailure) != 0) {
    return fail(ErrorCode::kInvalidInput, "{} ({} failed, {} after them did not run)", failure,
                total.failed, total.poisoned);
  }
  if ((stop & kStopCancel) != 0 && total.cancelled > 0) {
    return fail(ErrorCode::kInvalidInput,
                "the stream was cancelled: {} of {} tasks or blocks did not run", total.cancelled,
                total.cancelled + total.run + total.skipped);
  }
  return summary;
}

std::string StreamEngine::describe_stall() const {
  if (!has_unfinished_tasks(state_)) return {};
  const auto name_of = [this](uint32_t slot) { return slot_text(state_, slot); };
  std::string text = describe_workers(state_.device, name_of);
  text += fmt::format("the submitting thread waits {}, in ring {}\n",
                      wait_text(state_.waits_for.load(std::memory_order_relaxed)),
                      state_.waits_in_ring.load(std::memory_order_relaxed));
  for (const CohortNeed& need : state_.board.waiting()) {
    text += fmt::format("{}: waits for {} workers at once; {} are free of other gangs\n",
                        name_of(need.task), state_.board.worker_count(need),
                        state_.board.free_worker_count());
  }
  UnfinishedList unfinished(text);
  for (size_t i = 0; i < state_.rings.size(); ++i) {
    const StreamRing& ring = *state_.rings[i];
    const uint64_t tail = ring.tail.load(std::memory_order_relaxed);
    const uint64_t head = ring.head.load(std::memory_order_relaxed);
    text += fmt::format("ring {}: {} of {} tasks in the window\n", i, head - tail, ring.window);
    for (uint64_t at = tail; at < head; ++at) {
      const uint32_t slot = ring.slot_at(at);
      if (state_.slots[slot].has_ended.load(std::memory_order_relaxed)) continue;
      const int32_t missing = state_.slots[slot].waiting_for.load(std::memory_order_relaxed);
      unfinished.add_counted(name_of(slot), missing);
    }
  }
  unfinished.finish();
  return text;
}

Stream::Stream(std::unique_ptr<StreamEngine> engine) : engine_(std::move(engine)) {}
Stream::~Stream() = default;

Result<std::unique_ptr<Stream>> Stream::open(CpuDevice& device, const StreamOptions& options) {
  std::unique_ptr<StreamEngine> engine = std::make_unique<StreamEngine>(device, options);
  GAPLESS_TRY(engine->open());
  return std::unique_ptr<Stream>(new Stream(std::move(engine)));
}

Result<KernelId> Stream::add_kernel(const std::string& name, KernelFunction run) {
  return engine_->add_kernel(name, run);
}
Result<BufferId> Stream::add_buffer(const BufferSpec& spec) { return engine_->add_buffer(spec); }
Result<TaskId> Stream::add_task(const TaskSpec& spec) { return engine_->add_task(spec); }
void Stream::begin_scope() { engine_->begin_scope(); }
Result<void> Stream::end_scope() { return engine_->end_scope(); }
Result<StreamSummary> Stream::wait() { return engine_->wait(); }
void Stream::cancel() { engine_->cancel(); }
std::byte* Stream::address(BufferId buffer) const { return engine_->address(buffer); }

}  // namespace gapless
