// SPDX-License-Identifier: Apache-2.0
//
// Taking a task: room in the rings, who must come before, the slot, the edges. The hot path of the
// submitting thread: no allocation once the scratch vectors have grown.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "graph/validate.h"
#include "runtime/stream_engine.h"
#include "runtime/task_times.h"

namespace gapless {
namespace {

bool is_cohort(const TaskSpec& spec, bool has_clusters) {
  return (spec.gang && spec.block_count > 1) || (spec.core == CoreKind::kMixed && has_clusters);
}

}  // namespace

// What nearly all arguments are; whatever is not is looked at closely.
bool StreamEngine::is_plainly_right(const Argument& argument) const {
  const uint32_t index = argument.view.buffer.index();
  if (index >= buffers_.size() || argument.access > Access::kInOut) return false;
  const StreamBuffer& buffer = buffers_[index];
  const bool is_alive = buffer.bytes >= 0 && !buffer.is_closed &&
                        buffer.generation == argument.view.buffer.id >> BufferId::kIndexBits;
  if (!is_alive || buffer.kind == BufferKind::kConstant) return false;
  const uintptr_t address = reinterpret_cast<uintptr_t>(state_.addresses[index]);
  return is_plainly_inside(argument.view, buffer.bytes) &&
         (address & static_cast<uintptr_t>(dtype_bytes(argument.view.dtype) - 1)) == 0;
}

// What a device can never run is refused here: a gang would wait for ever.
Result<void> StreamEngine::check(const TaskSpec& spec) const {
  GAPLESS_TRY(check_task(spec, state_.kernels));
  const int cores = cores_for(state_.device.limits(), spec.core);
  if (cores == 0 || (spec.gang && spec.block_count > cores)) {
    return fail(ErrorCode::kInvalidInput,
                "task {} ({}): a gang of {} blocks, but {} has {} cores for kind {}", next_serial_,
                state_.kernels[spec.kernel].name, spec.gang ? spec.block_count : 1,
                state_.device.limits().name, cores, core_kind_name(spec.core));
  }
  for (size_t i = 0; i < spec.arguments.size(); ++i) {
    const View& view = spec.arguments[i].view;
    if (is_plainly_right(spec.arguments[i])) [[likely]]
      continue;
    const BufferFacts facts = facts_of(view.buffer);
    if (facts.bytes < 0 && view.buffer.index() < buffers_.size()) [[unlikely]] {
      return fail(ErrorCode::kInvalidInput,
                  "task {} ({}): argument {} is on buffer {:#x}, which is not alive: its scope has "
                  "ended, or it was never added",
                  next_serial_, state_.kernels[spec.kernel].name, i, view.buffer.id);
    }
    GAPLESS_TRY(check_argument(spec, static_cast<int>(i), state_.kernels, facts));
    const uintptr_t address = reinterpret_cast<uintptr_t>(state_.addresses[view.buffer.index()]);
    if ((address & static_cast<uintptr_t>(dtype_bytes(view.dtype) - 1)) != 0) [[unlikely]] {
      return fail(ErrorCode::kInvalidInput,
                  "task {} ({}): argument {} is {}, but buffer '{}' begins at address {:#x}",
                  next_serial_, state_.kernels[spec.kernel].name, i, dtype_name(view.dtype),
                  facts.name, address);
    }
  }
  for (const TaskId& before : spec.after) {
    const bool is_known =
        slot_of_tag(before.id) < state_.links.size() && serial_of_tag(before.id) < next_serial_;
    if (is_known) continue;
    return fail(ErrorCode::kInvalidInput,
                "task {} ({}): comes after task {}, which was never submitted", next_serial_,
                state_.kernels[spec.kernel].name, serial_of_tag(before.id));
  }
  return {};
}

// A full window is waited for until an eighth of it is free, so that the thread does not turn from
// submitting to waiting and back for each task.
uint32_t StreamEngine::take_slot(StreamRing& ring, int number) {
  const uint64_t head = ring.head.load(std::memory_order_relaxed);
  if (head - ring.tail.load(std::memory_order_relaxed) == ring.window) {
    const uint64_t enough = ring.window - std::max<uint64_t>(ring.window / 8, 1);
    work_until(StreamWait::kWindow, number, [this, &ring, head, enough] {
      retire(ring);
      return head - ring.tail.load(std::memory_order_relaxed) <= enough;
    });
  }
  return ring.slot_at(head);
}

void StreamEngine::copy_arguments(const TaskSpec& spec, StreamRing& ring, int number,
                                  StreamSlot& slot) {
  const size_t argument_bytes = spec.arguments.size_bytes();
  const size_t bytes = argument_bytes + spec.scalars.size_bytes();
  std::optional<BumpRing::Place> place = ring.bytes.allocate(bytes, kArgumentAlignment);
  if (!place) {
    work_until(StreamWait::kBytes, number, [this, &ring, &place, bytes] {
      retire(ring);
      place = ring.bytes.allocate(bytes, kArgumentAlignment);
      return place.has_value();
    });
  }
  std::byte* const memory = ring.argument_memory + place->offset;
  if (argument_bytes != 0) std::memcpy(memory, spec.arguments.data(), argument_bytes);
  Scalar* const scalars = reinterpret_cast<Scalar*>(memory + argument_bytes);
  std::uninitialized_copy(spec.scalars.begin(), spec.scalars.end(), scalars);
  slot.arguments = reinterpret_cast<const Argument*>(memory);
  slot.scalars = scalars;
  slot.argument_count = static_cast<uint16_t>(spec.arguments.size());
  slot.scalar_count = static_cast<uint8_t>(spec.scalars.size());
  slot.bytes_end = place->end;
}

// Into producers_: the slots of tasks that have not ended, each once. Into found_: all of them.
void StreamEngine::find_producers(const TaskSpec& spec, uint64_t tag) {
  found_.clear();
  producers_.clear();
  tracked_.clear();
  bool has_constants = false;
  for (const Argument& argument : spec.arguments) {
    if (buffers_[argument.view.buffer.index()].kind == BufferKind::kConstant) has_constants = true;
  }
  std::span<const Argument> arguments = spec.arguments;
  if (has_constants) {
    for (const Argument& argument : spec.arguments) {
      const BufferKind kind = buffers_[argument.view.buffer.index()].kind;
      if (kind != BufferKind::kConstant) tracked_.push_back(argument);
    }
    arguments = tracked_;
  }
  map_.access(tag, arguments, found_);
  for (const TaskId& before : spec.after) found_.push_back({before.id, EdgeKind::kOrder});
  for (const Dependency& dependency : found_) {
    const uint32_t index = slot_of_tag(dependency.task);
    StreamSlot& producer = state_.slots[index];
    if (producer.stamp == tag || !is_live(&state_, dependency.task)) continue;
    producer.stamp = tag;
    producers_.push_back(index);
  }
}

void StreamEngine::fill_slot(const TaskSpec& spec, uint32_t index) {
  const bool has_clusters = state_.scheduler.has_clusters();
  StreamSlot& slot = state_.slots[index];
  slot.run = state_.kernels[spec.kernel].run;
  slot.kernel.store(spec.kernel.id, std::memory_order_relaxed);
  slot.core = spec.core;
  slot.gang = spec.gang;
  slot.predicate = spec.predicate;
  slot.flags = 0;
  if (spec.predicate.value != nullptr) slot.flags |= kFlagPredicate;
  if (is_cohort(spec, has_clusters)) slot.flags |= kFlagCohort;
  const bool is_split = spec.core == CoreKind::kMixed && has_clusters;
  slot.block_count = spec.block_count;
  slot.part_count = spec.block_count * (is_split ? kClusterWorkers : 1);
  slot.parts_left.store(slot.part_count, std::memory_order_relaxed);
  slot.is_poisoned.store(false, std::memory_order_relaxed);
  slot.held_arguments = 0;
  for (size_t i = 0; i < spec.arguments.size(); ++i) {
    StreamBuffer& buffer = buffers_[spec.arguments[i].view.buffer.index()];
    if (buffer.kind != BufferKind::kIntermediate) continue;
    ++buffer.held_count;
    slot.held_arguments |= 1u << i;
  }
  QueueLink& link = state_.links[index];
  link.next_block = 0;
  link.block_count = spec.block_count;
  link.queue = state_.scheduler.queue_for(spec.core);
}

// Edges to producers that have ended are recorded too, as long as their slots still know them.
void StreamEngine::record_submit(const TaskSpec& spec, uint32_t index) {
  StreamSlot& slot = state_.slots[index];
  slot.trace_first = kNoTask;
  Writer* const writer = thread_writer();
  if (writer == nullptr) return;
  const TaskTimes times(writer, state_.device.orchestrator_lane());
  const uint32_t parts = static_cast<uint32_t>(slot.part_count);
  slot.trace_first = CpuDevice::reserve_trace_ids(trace_ids_of(slot.part_count));
  slot.trace_session = writer->session();
  const uint64_t ticks = read_ticks();
  for (uint32_t part = 0; part < parts; ++part) {
    times.submitted(ticks, slot.trace_first + part, state_.names[spec.kernel.id]);
    const CostHint cost = spec.block_costs != nullptr
                              ? cost_of_part(*spec.block_costs, part, slot.part_count)
                              : cost_of_part(spec.cost, part, slot.part_count);
    if (is_known(cost)) times.cost(slot.trace_first + part, cost);
  }
  if (parts > 1) times.submitted(ticks, join_id(slot), state_.join_names[spec.kernel.id]);
  std::sort(found_.begin(), found_.end(), [](const Dependency& a, const Dependency& b) {
    return a.task != b.task ? a.task < b.task : a.kind < b.kind;
  });
  uint64_t previous = ~uint64_t{0};
  for (const Dependency& dependency : found_) {
    const StreamSlot& producer = state_.slots[slot_of_tag(dependency.task)];
    if (dependency.task == previous || producer.trace_first == kNoTask ||
        producer.trace_session != writer->session() ||
        producer.serial.load(std::memory_order_relaxed) != serial_of_tag(dependency.task)) {
      continue;
    }
    previous = dependency.task;
    const uint32_t from = producer.part_count > 1 ? join_id(producer) : producer.trace_first;
    for (uint32_t to = 0; to < parts; ++to) {
      times.edge(from, slot.trace_first + to, dependency.kind);
    }
  }
}

int32_t StreamEngine::link_producers(StreamRing& ring, int number, uint32_t consumer) {
  StreamSlot& slot = state_.slots[consumer];
  std::optional<BumpRing::Place> place = ring.edges.allocate(producers_.size());
  if (!place) {
    work_until(StreamWait::kEdges, number, [this, &ring, &place] {
      retire(ring);
      std::erase_if(producers_, [this](uint32_t index) {
        return state_.slots[index].successors.load(std::memory_order_acquire) == kClosedList;
      });
      place = ring.edges.allocate(producers_.size());
      return place.has_value();
    });
  }
  slot.edges_end = place->end;
  // One more than there are edges: the task cannot become ready before all are linked.
  const int32_t count = static_cast<int32_t>(producers_.size());
  slot.waiting_for.store(count + 1, std::memory_order_relaxed);
  slot.has_ended.store(false, std::memory_order_relaxed);
  uint32_t edge = ring.first_edge + static_cast<uint32_t>(place->offset);
  int32_t linked = 0;
  for (const uint32_t index : producers_) {
    StreamSlot& producer = state_.slots[index];
    uint32_t first = producer.successors.load(std::memory_order_acquire);
    while (first != kClosedList) {
      state_.edges[edge] = {first, consumer};
      if (producer.successors.compare_exchange_weak(first, edge, std::memory_order_release,
                                                    std::memory_order_acquire)) {
        ++edge;
        ++linked;
        break;
      }
    }
  }
  return linked;
}

Result<TaskId> StreamEngine::add_task(const TaskSpec& spec) {
  if (state_.stop.load(std::memory_order_relaxed) != 0) return stopped_error();
  GAPLESS_TRY(check(spec));
  const int number = ring_number();
  StreamRing& ring = *state_.rings[static_cast<size_t>(number)];
  const uint32_t index = take_slot(ring, number);
  StreamSlot& slot = state_.slots[index];
  copy_arguments(spec, ring, number, slot);
  const uint64_t tag = make_tag(next_serial_, index);
  slot.serial.store(next_serial_, std::memory_order_relaxed);
  ++next_serial_;
  // From here on the task is live: the map must not forget it while it enters it.
  slot.successors.store(kNoEdge, std::memory_order_relaxed);
  find_producers(spec, tag);
  fill_slot(spec, index);
  record_submit(spec, index);
  const int32_t count = link_producers(ring, number, index);
  edge_count_ += static_cast<uint64_t>(count);
  ring.head.store(ring.head.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // A producer that failed and ended before it could be linked has set this.
  if (state_.stop.load(std::memory_order_relaxed) != 0) {
    slot.is_poisoned.store(true, std::memory_order_relaxed);
  }
  const int32_t guard = slot.waiting_for.fetch_sub(
      static_cast<int32_t>(producers_.size()) - count + 1, std::memory_order_acq_rel);
  if (guard == static_cast<int32_t>(producers_.size()) - count + 1) {
    stream_task_is_ready(state_, own_worker(), index);
  }
  // A full barrier between the task and the look at the parked ones: see StreamWalk::park.
  state_.submitted.fetch_add(1, std::memory_order_seq_cst);
  if (state_.is_somebody_parked.load(std::memory_order_seq_cst)) wake_workers();
  if (own_worker().reservation.load(std::memory_order_relaxed) != nullptr) {
    work_a_little(state_, own_worker());
    own_worker().set_activity(Activity::kSubmitting);
  }
  return TaskId{tag};
}

}  // namespace gapless
