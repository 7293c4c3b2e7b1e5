// SPDX-License-Identifier: Apache-2.0
//
// How workers run the tasks of a stream. A task's end closes its list of edges, counts down those
// that wait on it, lets go of its buffers, and last of all gives its slot back.

#include <bit>
#include <span>

#include <fmt/core.h>

#include "runtime/spin.h"
#include "runtime/stream_state.h"
#include "runtime/task_times.h"

namespace gapless {
namespace {

class StreamWalk {
 public:
  StreamWalk(StreamState& state, Worker& worker, Writer* writer)
      : state_(state), worker_(worker), times_(writer, worker.lane) {
    TaskContext::Fields& fields = worker.context.fields();
    fields.buffers = state.addresses.data();
    fields.worker_index = worker.index;
    fields.checker = nullptr;
    fields.failure = &worker.failure;
  }

  void run() {
    Taken taken;
    for (;;) {
      if (worker_.reservation.load(std::memory_order_relaxed) != nullptr) {
        give_inline_back();
        run_in_cohort();
      } else if (inline_slot_ != kNoTask) {
        taken = {inline_slot_, 0};
        inline_slot_ = kNoTask;
        execute(taken);
      } else if (state_.scheduler.take_own(worker_, taken)) {
        execute(taken);
      } else if (!search()) {
        return;
      }
    }
  }

  // One task for the submitting thread, whose other work must not wait for long.
  bool run_one() {
    if (worker_.reservation.load(std::memory_order_relaxed) != nullptr) {
      run_in_cohort();
      give_inline_back();
      return true;
    }
    Taken taken;
    if (!state_.scheduler.take_own(worker_, taken) &&
        !state_.scheduler.steal(worker_, taken, kNoTask)) {
      return false;
    }
    execute(taken);
    give_inline_back();
    return true;
  }

  // All producers of the task have ended.
  void become_ready(uint32_t slot) {
    StreamSlot& task = state_.slots[slot];
    const uint32_t stop = state_.stop.load(std::memory_order_relaxed);
    if (task.flags == 0 && stop == 0) {
      worker_.ready.push_back(slot);
      return;
    }
    if ((stop & kStopCancel) != 0) {
      ++worker_.counts.cancelled;
      worker_.skipped.push_back(slot);
    } else if (task.is_poisoned.load(std::memory_order_relaxed)) {
      ++worker_.counts.poisoned;
      worker_.skipped.push_back(slot);
    } else if ((task.flags & kFlagPredicate) != 0 && !task.predicate.holds()) {
      ++worker_.counts.skipped;
      worker_.skipped.push_back(slot);
    } else if ((task.flags & kFlagCohort) != 0) {
      if (times_.is_on()) record_ready(slot, read_ticks());
      state_.board.add({slot, task.core, state_.links[slot].block_count, task.gang});
    } else {
      worker_.ready.push_back(slot);
    }
  }

  void finish_skipped() {
    while (!worker_.skipped.empty()) {
      const uint32_t slot = worker_.skipped.back();
      worker_.skipped.pop_back();
      worker_.count_progress();
      if (times_.is_on()) record_skip(slot);
      end_task(slot);
    }
  }

  void record_ready(uint32_t slot, uint64_t ticks) {
    const StreamSlot& task = state_.slots[slot];
    if (!is_recorded(task)) return;
    for (uint32_t part = 0; part < static_cast<uint32_t>(task.part_count); ++part) {
      times_.ready(ticks, task.trace_first + part, name_of(task));
    }
    if (task.part_count > 1) times_.ready(ticks, join_id(task), join_name_of(task));
  }

  TaskTimes& times() { return times_; }

 private:
  void give_inline_back() {
    if (inline_slot_ == kNoTask) return;
    state_.scheduler.push(worker_, {&inline_slot_, 1});
    inline_slot_ = kNoTask;
  }

  // Tasks that were submitted before the recording began have no numbers in it.
  bool is_recorded(const StreamSlot& task) const {
    return times_.is_on() && task.trace_first != kNoTask && task.trace_session == times_.session();
  }

  NameId name_of(const StreamSlot& task) const {
    return state_.names[task.kernel.load(std::memory_order_relaxed)];
  }

  NameId join_name_of(const StreamSlot& task) const {
    return state_.join_names[task.kernel.load(std::memory_order_relaxed)];
  }

  // False when the stream is over. Spins, then parks.
  bool search() {
    worker_.set_activity(Activity::kSearching);
    Taken taken;
    worker_.mailbox.store(kMailboxOpen, std::memory_order_relaxed);
    const int64_t begin_ns = now_ns();
    Phase phase;
    bool is_over = false;
    for (uint32_t poll = 0;; ++poll) {
      if (worker_.mailbox.load(std::memory_order_relaxed) != kMailboxOpen ||
          state_.scheduler.take_own(worker_, taken) ||
          state_.scheduler.steal(worker_, taken, poll)) {
        break;
      }
      if (worker_.reservation.load(std::memory_order_relaxed) != nullptr) break;
      is_over = state_.is_over.load(std::memory_order_acquire);
      if (is_over) break;
      if (is_recording()) phase.begin();
      pause_core();
      if (poll % 256 == 255) {
        ::sched_yield();
        if (now_ns() - begin_ns > state_.device.park_after_ns()) park();
      }
    }
    close_mailbox(taken);
    phase.end(worker_.lane, search_name());
    if (taken.task != kNoTask) execute(taken);
    return !is_over;
  }

  // What was handed over is run next, or goes to the queue when something else was found as well.
  void close_mailbox(Taken& taken) {
    const uint32_t slot = worker_.mailbox.exchange(kMailboxClosed, std::memory_order_acquire);
    if (slot == kMailboxOpen) return;
    if (taken.task == kNoTask) {
      taken = {slot, 0};
    } else {
      state_.scheduler.push(worker_, {&slot, 1});
    }
  }

  // The submitting thread adds a task and then looks whether somebody is parked; here it is the
  // other way round. Both are full barriers, so one of the two sees the other.
  void park() {
    const uint32_t wake = state_.wake.load(std::memory_order_acquire);
    const uint64_t submitted = state_.submitted.load(std::memory_order_relaxed);
    state_.is_somebody_parked.exchange(true, std::memory_order_seq_cst);
    const bool is_needed = state_.submitted.load(std::memory_order_seq_cst) != submitted ||
                           state_.is_over.load(std::memory_order_acquire) || others_have_work();
    if (!is_needed) state_.wake.wait(wake, std::memory_order_acquire);
  }

  // While tasks are in flight a worker may make others ready at any time: then nobody parks.
  bool others_have_work() const { return has_unfinished_tasks(state_); }

  // A recording may begin and end while a stream is open: the writer is asked for each time.
  void execute(const Taken& taken) {
    times_ = TaskTimes(thread_writer(), worker_.lane);
    StreamSlot& task = state_.slots[taken.task];
    if ((state_.stop.load(std::memory_order_relaxed) & kStopCancel) != 0) [[unlikely]] {
      leave_out(taken.task, static_cast<uint32_t>(taken.block));
    } else {
      run_part(taken.task, taken.block, MixedRole::kWhole, times_.is_on() ? read_ticks() : 0);
    }
    finish_part(task, taken.task);
  }

  void run_part(uint32_t slot, int32_t block, MixedRole role, uint64_t ticks) noexcept {
    StreamSlot& task = state_.slots[slot];
    begin_part(worker_, task, {slot, block, task.block_count, role});
    const uint32_t id = task.trace_first + part_of(block, role);
    const bool is_traced = is_recorded(task);
    if (is_traced) {
      times_.taken(ticks, id, name_of(task));
      times_.started(id, name_of(task));
    }
    if (task.run != nullptr) task.run(worker_.context);
    if (is_traced) {
      times_.ended(id, name_of(task));
      record_part_end(task, id);
      times_.finished(id, name_of(task));
    }
    ++worker_.counts.run;
    worker_.count_progress();
    if (worker_.failure.failed) [[unlikely]]
      note_failure(task, slot, block);
  }

  // Cancelled after it had become ready: it ends without having run.
  void leave_out(uint32_t slot, uint32_t part) {
    const StreamSlot& task = state_.slots[slot];
    ++worker_.counts.cancelled;
    if (!is_recorded(task)) return;
    record_part_end(task, task.trace_first + part);
    times_.finished(task.trace_first + part, name_of(task));
  }

  void note_failure(StreamSlot& task, uint32_t slot, int32_t block) {
    ++worker_.counts.failed;
    {
      const std::lock_guard<std::mutex> guard(state_.failure_mutex);
      if (state_.failure.empty()) {
        const int32_t count = task.block_count;
        const std::string place = count > 1 ? fmt::format(", block {} of {}", block, count) : "";
        state_.failure =
            fmt::format("{}{}: {}", slot_text(state_, slot), place, worker_.failure.message);
      }
    }
    worker_.failure = {};
    task.is_poisoned.store(true, std::memory_order_relaxed);
    state_.stop.fetch_or(kStopFailure, std::memory_order_relaxed);
  }

  void finish_part(StreamSlot& task, uint32_t slot) {
    if (task.part_count > 1) {
      if (task.parts_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      if (is_recorded(task)) times_.finished(join_id(task), join_name_of(task));
    }
    worker_.ready.clear();
    end_task(slot);
    finish_skipped();
    if (!worker_.ready.empty()) hand_out(worker_.ready);
  }

  // Appends to worker_.ready and worker_.skipped. The slot is gone afterwards.
  void end_task(uint32_t slot) {
    StreamSlot& task = state_.slots[slot];
    const bool is_poisoned = task.is_poisoned.load(std::memory_order_relaxed);
    for (uint32_t held = task.held_arguments; held != 0; held &= held - 1) {
      const Argument& argument = task.arguments[std::countr_zero(held)];
      state_.released[argument.view.buffer.index()].fetch_add(1, std::memory_order_release);
    }
    uint32_t edge = task.successors.exchange(kClosedList, std::memory_order_acq_rel);
    while (edge != kNoEdge) {
      const StreamEdge link = state_.edges[edge];  // gone once its consumer has been counted
      StreamSlot& consumer = state_.slots[link.consumer];
      if (is_poisoned) consumer.is_poisoned.store(true, std::memory_order_relaxed);
      if (consumer.waiting_for.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        become_ready(link.consumer);
      }
      edge = link.next;
    }
    task.has_ended.store(true, std::memory_order_release);
  }

  // The first task is run next on this worker, where its inputs are.
  void hand_out(std::span<const uint32_t> ready) {
    if (times_.is_on()) {
      const uint64_t ticks = read_ticks();
      for (const uint32_t slot : ready) record_ready(slot, ticks);
    }
    if (inline_slot_ == kNoTask && state_.links[ready[0]].block_count == 1 &&
        state_.scheduler.can_run(worker_, ready[0])) {
      inline_slot_ = ready[0];
      ready = ready.subspan(1);
    }
    if (!ready.empty()) state_.scheduler.push(worker_, ready);
  }

  void run_in_cohort() {
    times_ = TaskTimes(thread_writer(), worker_.lane);
    Cohort& cohort = *worker_.reservation.load(std::memory_order_acquire);
    const uint32_t slot = cohort.task;
    const Cohort::Member member = CohortBoard::member(cohort, worker_.index);
    const uint64_t ticks = times_.is_on() ? read_ticks() : 0;
    worker_.task.store(slot, std::memory_order_relaxed);
    worker_.set_activity(Activity::kGathering);
    const bool is_cancelled = (state_.stop.load(std::memory_order_relaxed) & kStopCancel) != 0;
    const Cohort::Decision decision = CohortBoard::gather(cohort, is_cancelled);
    if (decision == Cohort::Decision::kRun) {
      run_part(slot, member.block, member.role, ticks);
    } else {
      leave_out(slot, part_of(member.block, member.role));
    }
    worker_.reservation.store(nullptr, std::memory_order_relaxed);
    if (cohort.left.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.board.dissolve(cohort);
    finish_part(state_.slots[slot], slot);
  }

  void record_skip(uint32_t slot) {
    const StreamSlot& task = state_.slots[slot];
    if (!is_recorded(task)) return;
    record_ready(slot, read_ticks());
    for (uint32_t part = 0; part < static_cast<uint32_t>(task.part_count); ++part) {
      record_part_end(task, task.trace_first + part);
      times_.finished(task.trace_first + part, name_of(task));
    }
    if (task.part_count > 1) times_.finished(join_id(task), join_name_of(task));
  }

  void record_part_end(const StreamSlot& task, uint32_t id) {
    if (task.part_count > 1) times_.edge(id, join_id(task), EdgeKind::kOrder);
  }

  StreamState& state_;
  Worker& worker_;
  TaskTimes times_;
  uint32_t inline_slot_ = kNoTask;
};

// To a worker that searches, of several the next in turn; else to the queue of one, from where
// others may steal it; to the submitting thread's own where there is no other worker.
void hand_over(StreamState& state, Worker& own, uint32_t slot) {
  const uint32_t count = static_cast<uint32_t>(state.device.worker_count());
  const bool is_simple = state.slots[slot].block_count == 1;
  Worker* chosen = &own;
  for (uint32_t i = 0; i + 1 < count; ++i) {
    own.next_victim = own.next_victim % (count - 1) + 1;
    Worker& worker = state.device.worker(static_cast<int>(own.next_victim));
    if (!state.scheduler.can_run(worker, slot)) continue;
    chosen = &worker;
    uint32_t mailbox = worker.mailbox.load(std::memory_order_relaxed);
    if (mailbox == kMailboxOpen && is_simple &&
        worker.mailbox.compare_exchange_strong(mailbox, slot, std::memory_order_release,
                                               std::memory_order_relaxed)) {
      return;
    }
  }
  if (count > 1) own.next_victim = own.next_victim % (count - 1) + 1;  // another one next time
  state.scheduler.push(*chosen, {&slot, 1});
}

}  // namespace

bool has_unfinished_tasks(const StreamState& state) {
  for (const std::unique_ptr<StreamRing>& ring : state.rings) {
    const uint64_t tail = ring->tail.load(std::memory_order_relaxed);
    const uint64_t head = ring->head.load(std::memory_order_relaxed);
    for (uint64_t i = tail; i < head; ++i) {
      if (!state.slots[ring->slot_at(i)].has_ended.load(std::memory_order_relaxed)) return true;
    }
  }
  return false;
}

std::string slot_text(const StreamState& state, uint32_t slot) {
  const StreamSlot& task = state.slots[slot];
  const KernelId kernel = {task.kernel.load(std::memory_order_relaxed)};
  const std::lock_guard<std::mutex> guard(state.kernels_mutex);
  return fmt::format("task {} ({})", task.serial.load(std::memory_order_relaxed),
                     state.kernels[kernel].name);
}

void walk_stream(StreamState& state, Worker& worker) {
  StreamWalk(state, worker, thread_writer()).run();
}

bool work_a_little(StreamState& state, Worker& worker) {
  return StreamWalk(state, worker, thread_writer()).run_one();
}

void stream_task_is_ready(StreamState& state, Worker& worker, uint32_t slot) {
  StreamWalk walk(state, worker, thread_writer());
  worker.ready.clear();
  walk.become_ready(slot);
  walk.finish_skipped();
  if (worker.ready.empty()) return;
  if (walk.times().is_on()) walk.record_ready(slot, read_ticks());
  hand_over(state, worker, slot);
}

}  // namespace gapless
