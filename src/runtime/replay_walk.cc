// SPDX-License-Identifier: Apache-2.0
//
// How one worker goes through one step of a replay. This is the hot path of the runtime: no
// allocation, no system call, no lock but those of the ready queues.
//
// Ends are counted late where that is free. A worker that has run a task of a shared successor list
// keeps the count to itself while the next task it takes has the same list: none of those
// successors can become ready before that next task ends anyway. A join over 241 tasks then costs a
// few atomic operations instead of 241.

#include <span>

#include "base/check.h"
#include "runtime/replay_state.h"
#include "runtime/spin.h"
#include "runtime/task_times.h"

namespace gapless {
namespace {

enum class Found { kTask, kReservation, kOver };

// kRecord: a recording is under way. kShared: there are other workers.
template <bool kRecord, bool kShared>
class Walk {
 public:
  Walk(ReplayState& state, Worker& worker, Writer* writer)
      : state_(state),
        plan_(state.plan),
        worker_(worker),
        times_(writer, worker.lane),
        checker_(state.checkers.empty() ? nullptr
                                        : &state.checkers[static_cast<size_t>(worker.index)]) {
    TaskContext::Fields& fields = worker.context.fields();
    fields.buffers = state.boundary.addresses().data();
    fields.worker_index = worker.index;
    fields.checker = checker_;
    fields.failure = &worker.failure;
  }

  void run() {
    Taken taken;
    while (next(taken)) execute(taken);
  }

  void release_all_roots() {
    const bool is_plain = state_.stop.load(std::memory_order_relaxed) == 0;
    worker_.ready.clear();
    for (const uint32_t task : plan_.roots) {
      if (is_plain && plan_.tasks[task].flags == 0) {
        worker_.ready.push_back(task);
      } else {
        become_ready_specially(task);
      }
    }
    finish_skipped();
    hand_out_ready(false);
    inline_task_ = kNoTask;
  }

 private:
  // Its own successor first, then its own queue, then what others have too much of.
  bool next(Taken& taken) {
    for (;;) {
      if (kShared && worker_.reservation.load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
        run_in_cohort();
        continue;
      }
      if (inline_task_ != kNoTask) {
        taken = {inline_task_, 0};
        inline_task_ = kNoTask;
        return true;
      }
      if (state_.scheduler.take_own(worker_, taken)) {
        if (pending_count_ != 0 && plan_.tasks[taken.task].list != pending_list_) flush(false);
        return true;
      }
      if (pending_count_ != 0) {
        flush(true);
        continue;
      }
      const Found found = search(taken);
      if (found == Found::kTask) return true;
      if (found == Found::kOver) return false;
    }
  }

  Found search(Taken& taken) {
    if (!kShared) return Found::kOver;
    worker_.set_activity(Activity::kSearching);
    SpinWait wait;
    Found found = Found::kOver;
    Phase phase;
    for (uint32_t poll = 0;; ++poll) {
      if (state_.scheduler.steal(worker_, taken, poll)) {
        found = Found::kTask;
        break;
      }
      if (worker_.reservation.load(std::memory_order_relaxed) != nullptr) {
        found = Found::kReservation;
        break;
      }
      if (state_.done_step.load(std::memory_order_acquire) == state_.step) break;
      if (kRecord) phase.begin();
      wait.poll();
    }
    phase.end(worker_.lane, search_name());
    return found;
  }

  void execute(const Taken& taken) {
    RunTask& task = plan_.tasks[taken.task];
    const uint32_t stop = state_.stop.load(std::memory_order_relaxed);
    if ((stop & kStopCancel) != 0) [[unlikely]] {
      leave_out(task, static_cast<uint32_t>(taken.block));
    } else {
      const uint64_t ticks = kRecord ? read_ticks() : 0;
      run_part(task, taken.task, taken.block, MixedRole::kWhole, ticks);
    }
    finish_part(task);
  }

  void run_part(RunTask& task, uint32_t number, int32_t block, MixedRole role,
                uint64_t ticks) noexcept {
    begin_part(worker_, task, {number, block, plan_.links[number].block_count, role});
    const uint32_t id = kRecord ? trace_id(task) + part_of(block, role) : 0;
    const NameId name = kRecord ? plan_.names[task.kernel.id] : NameId{};
    if (kRecord) {
      times_.taken(ticks, id, name);
      times_.started(id, name);
    }
    if (checker_ != nullptr) [[unlikely]] {
      checker_->begin_task({task.arguments, task.argument_count}, (task.flags & kFlagCohort) != 0);
    }
    if (task.run != nullptr) task.run(worker_.context);
    if (kRecord) {
      times_.ended(id, name);
      record_part_end(task, id);
      times_.finished(id, name);
    }
    ++worker_.counts.run;
    worker_.count_progress();
    if (checker_ != nullptr && !checker_->violation().empty()) [[unlikely]] {
      worker_.failure = {true, checker_->violation()};
    }
    if (worker_.failure.failed) [[unlikely]]
      note_failure(task, number, block);
  }

  // Cancelled after it had become ready: it ends without having run.
  void leave_out(const RunTask& task, uint32_t part) {
    ++worker_.counts.cancelled;
    if (!kRecord) return;
    record_part_end(task, trace_id(task) + part);
    times_.finished(trace_id(task) + part, plan_.names[task.kernel.id]);
  }

  void note_failure(RunTask& task, uint32_t number, int32_t block) {
    ++worker_.counts.failed;
    {
      const std::lock_guard<std::mutex> guard(state_.failure_mutex);
      if (state_.failure.task == kNoTask) {
        state_.failure = {number, block, worker_.failure.message};
      }
    }
    worker_.failure = {};
    task.poisoned_step.store(state_.step, std::memory_order_relaxed);
    state_.stop.fetch_or(kStopFailure, std::memory_order_relaxed);
  }

  void finish_part(RunTask& task) {
    if (task.part_count > 1) {
      if (task.parts_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      task.parts_left.store(task.part_count, std::memory_order_relaxed);
      if (kRecord) record_join(task);
    }
    finish_task(task);
    if (plan_.lists[pending_list_].user_count == 1) flush(true);
  }

  // The task has ended, run or not: counts it for its successors, now or a little later.
  void finish_task(RunTask& task) {
    task.finished_step.store(state_.step, std::memory_order_relaxed);
    if (pending_count_ != 0 && pending_list_ != task.list) flush(false);
    if (state_.stop.load(std::memory_order_relaxed) != 0) [[unlikely]]
      pass_poison_on(task);
    pending_list_ = task.list;
    ++pending_count_;
  }

  // The stores come before the counting, which releases them.
  void pass_poison_on(const RunTask& task) {
    if (task.poisoned_step.load(std::memory_order_relaxed) != state_.step) return;
    for (const uint32_t successor : successors_of(task.list)) {
      plan_.tasks[successor].poisoned_step.store(state_.step, std::memory_order_relaxed);
    }
  }

  // Counts the pending ends and hands out what has become ready. With `may_inline` the best of it
  // that this worker can run is kept to be run next: its inputs are in this core's cache.
  void flush(bool may_inline) {
    const uint32_t list_number = pending_list_;
    const int32_t count = pending_count_;
    pending_count_ = 0;
    const SuccessorList& list = plan_.lists[list_number];
    if (list.plain && list.count != 0 && state_.stop.load(std::memory_order_relaxed) == 0) {
      hand_out(successors_of(list_number), may_inline);
      return;
    }
    worker_.ready.clear();
    count_down(list_number, count);
    finish_skipped();
    hand_out_ready(may_inline);
  }

  void count_down(uint32_t list_number, int32_t count) {
    const std::span<const uint32_t> successors = successors_of(list_number);
    if (successors.empty()) {
      if (state_.ends_left.fetch_sub(count, std::memory_order_acq_rel) == count) {
        state_.done_step.store(state_.step, std::memory_order_release);
      }
      return;
    }
    for (const uint32_t successor : successors) {
      RunTask& task = plan_.tasks[successor];
      if (!take_from_counter(task, count)) continue;
      // Asked after the counting, which makes a producer's failure on another worker visible.
      if (task.flags == 0 && state_.stop.load(std::memory_order_relaxed) == 0) {
        worker_.ready.push_back(successor);
      } else {
        become_ready_specially(successor);
      }
    }
  }

  // True when the last producer is counted; the counter is then set back for the next step.
  bool take_from_counter(RunTask& task, int32_t count) {
    if (task.producer_count == count) return true;  // all of them at once: nobody else counts
    if (kShared) {
      if (task.waiting_for.fetch_sub(count, std::memory_order_acq_rel) != count) return false;
    } else {
      const int32_t left = task.waiting_for.load(std::memory_order_relaxed) - count;
      task.waiting_for.store(left, std::memory_order_relaxed);
      if (left != 0) return false;
    }
    task.waiting_for.store(task.producer_count, std::memory_order_relaxed);
    return true;
  }

  // Predicates are asked here, once a task and step: all producers have ended, no block has begun.
  void become_ready_specially(uint32_t number) {
    RunTask& task = plan_.tasks[number];
    const uint32_t stop = state_.stop.load(std::memory_order_relaxed);
    if ((stop & kStopCancel) != 0) {
      ++worker_.counts.cancelled;
      worker_.skipped.push_back(number);
    } else if (stop != 0 && task.poisoned_step.load(std::memory_order_relaxed) == state_.step) {
      ++worker_.counts.poisoned;
      worker_.skipped.push_back(number);
    } else if ((task.flags & kFlagPredicate) != 0 &&
               !state_.graph.tasks[number].predicate.holds()) {
      ++worker_.counts.skipped;
      worker_.skipped.push_back(number);
    } else if ((task.flags & kFlagCohort) != 0) {
      if (kRecord) record_ready(number, read_ticks());
      const GraphTask& needs = state_.graph.tasks[number];
      state_.board.add({number, needs.core, needs.block_count, needs.gang});
    } else {
      worker_.ready.push_back(number);
    }
  }

  // A task that does not run ends at once, and so may those that wait for it.
  void finish_skipped() {
    while (!worker_.skipped.empty()) {
      const uint32_t number = worker_.skipped.back();
      worker_.skipped.pop_back();
      RunTask& task = plan_.tasks[number];
      worker_.count_progress();
      if (kRecord) record_skip(task, number);
      task.finished_step.store(state_.step, std::memory_order_relaxed);
      if (state_.stop.load(std::memory_order_relaxed) != 0) pass_poison_on(task);
      count_down(task.list, 1);
    }
  }

  void hand_out_ready(bool may_inline) {
    if (!worker_.ready.empty()) hand_out(worker_.ready, may_inline);
  }

  void hand_out(std::span<const uint32_t> ready, bool may_inline) {
    if (kRecord) {
      const uint64_t ticks = read_ticks();
      for (const uint32_t task : ready) record_ready(task, ticks);
    }
    if (may_inline && plan_.links[ready[0]].block_count == 1 &&
        state_.scheduler.can_run(worker_, ready[0])) {
      inline_task_ = ready[0];
      ready = ready.subspan(1);
    }
    if (!ready.empty()) state_.scheduler.push(worker_, ready);
  }

  // All members of the cohort come, and start together.
  void run_in_cohort() {
    Cohort& cohort = *worker_.reservation.load(std::memory_order_acquire);
    if (inline_task_ != kNoTask) {
      state_.scheduler.push(worker_, {&inline_task_, 1});
      inline_task_ = kNoTask;
    }
    if (pending_count_ != 0) flush(false);
    const uint32_t number = cohort.task;
    const Cohort::Member member = CohortBoard::member(cohort, worker_.index);
    const uint64_t ticks = kRecord ? read_ticks() : 0;
    worker_.task.store(number, std::memory_order_relaxed);
    worker_.set_activity(Activity::kGathering);
    const bool is_cancelled = (state_.stop.load(std::memory_order_relaxed) & kStopCancel) != 0;
    const Cohort::Decision decision = CohortBoard::gather(cohort, is_cancelled);

    RunTask& task = plan_.tasks[number];
    if (decision == Cohort::Decision::kRun) {
      run_part(task, number, member.block, member.role, ticks);
    } else {
      leave_out(task, part_of(member.block, member.role));
    }
    worker_.reservation.store(nullptr, std::memory_order_relaxed);
    if (cohort.left.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.board.dissolve(cohort);
    finish_part(task);
  }

  std::span<const uint32_t> successors_of(uint32_t list_number) const {
    const SuccessorList& list = plan_.lists[list_number];
    return {plan_.successors.data() + list.begin, list.count};
  }

  uint32_t trace_id(const RunTask& task) const { return state_.trace_base + task.trace_first; }

  uint32_t join_id(const RunTask& task) const {
    return trace_id(task) + static_cast<uint32_t>(task.part_count);
  }

  void record_ready(uint32_t number, uint64_t ticks) {
    const RunTask& task = plan_.tasks[number];
    const uint32_t first = trace_id(task);
    const uint32_t end = first + static_cast<uint32_t>(task.part_count);
    for (uint32_t id = first; id < end; ++id) {
      times_.submitted(state_.begin_ticks, id, plan_.names[task.kernel.id]);
      times_.ready(ticks, id, plan_.names[task.kernel.id]);
    }
    if (task.part_count == 1) return;
    times_.submitted(state_.begin_ticks, join_id(task), plan_.join_names[task.kernel.id]);
    times_.ready(ticks, join_id(task), plan_.join_names[task.kernel.id]);
  }

  void record_skip(const RunTask& task, uint32_t number) {
    record_ready(number, read_ticks());
    for (uint32_t part = 0; part < static_cast<uint32_t>(task.part_count); ++part) {
      record_part_end(task, trace_id(task) + part);
      times_.finished(trace_id(task) + part, plan_.names[task.kernel.id]);
    }
    if (task.part_count > 1) record_join(task);
  }

  void record_part_end(const RunTask& task, uint32_t id) {
    if (!plan_.costs.empty()) record_cost(task, id);
    if (task.part_count == 1) {
      record_edges(task, id);
    } else {
      times_.edge(id, join_id(task), EdgeKind::kOrder);
    }
  }

  void record_cost(const RunTask& task, uint32_t id) {
    const size_t number = static_cast<size_t>(&task - plan_.tasks.get());
    const uint32_t part = id - trace_id(task);
    const std::vector<CostHint>* blocks = plan_.block_costs[number];
    const CostHint cost = blocks != nullptr
                              ? cost_of_part(*blocks, part, task.part_count)
                              : cost_of_part(plan_.costs[number], part, task.part_count);
    if (is_known(cost)) times_.cost(id, cost);
  }

  void record_join(const RunTask& task) {
    record_edges(task, join_id(task));
    times_.finished(join_id(task), plan_.join_names[task.kernel.id]);
  }

  void record_edges(const RunTask& task, uint32_t id) {
    const SuccessorList& list = plan_.lists[task.list];
    for (uint32_t i = list.begin; i < list.begin + list.count; ++i) {
      const RunTask& successor = plan_.tasks[plan_.successors[i]];
      for (uint32_t part = 0; part < static_cast<uint32_t>(successor.part_count); ++part) {
        times_.edge(id, trace_id(successor) + part, plan_.kinds[i]);
      }
    }
  }

  ReplayState& state_;
  ReplayPlan& plan_;
  Worker& worker_;
  TaskTimes times_;
  ShadowChecker* checker_;  // nullptr: not in shadow mode
  uint32_t inline_task_ = kNoTask;
  uint32_t pending_list_ = 0;
  int32_t pending_count_ = 0;
};

}  // namespace

void walk_step(ReplayState& state, Worker& worker) {
  Writer* const writer = state.is_recorded ? thread_writer() : nullptr;
  if (writer != nullptr) {
    if (state.scheduler.is_shared()) return Walk<true, true>(state, worker, writer).run();
    return Walk<true, false>(state, worker, writer).run();
  }
  if (state.scheduler.is_shared()) return Walk<false, true>(state, worker, nullptr).run();
  return Walk<false, false>(state, worker, nullptr).run();
}

void release_roots(ReplayState& state, Worker& worker) {
  Writer* const writer = state.is_recorded ? thread_writer() : nullptr;
  if (writer != nullptr) {
    Walk<true, true>(state, worker, writer).release_all_roots();
  } else {
    Walk<false, true>(state, worker, nullptr).release_all_roots();
  }
}

}  // namespace gapless
