// SPDX-License-Identifier: Apache-2.0
//
// A scheduler thread: rounds of polls over its running cores, one load after another, then a look
// into the ready queues.
//
// A thread for which no queue has anything polls on in rounds of equal length. Nothing is simulated
// of these: the place in the round is a matter of division when a core's end becomes visible or a
// task becomes ready.

#include <algorithm>

#include "base/check.h"
#include "sim/machine_state.h"

namespace gapless {
namespace {

// The first of first, first + period, first + 2 period ... that is not before `time`.
int64_t next_in_rhythm(int64_t first, int64_t period, int64_t time) {
  if (first >= time) return first;
  if (period == 0) return time;
  return first + (time - first + period - 1) / period * period;
}

}  // namespace

int64_t Machine::round_ns(const Thread& thread) const {
  return thread.to_poll.count() * profile_.poll_ns + profile_.loop_ns;
}

// The first look into the queues at or after `time_ns` when rounds go on as they are.
int64_t Machine::look_after(const Thread& thread, int64_t time_ns) const {
  const int64_t polls_ns = thread.to_poll.count() * profile_.poll_ns;
  return next_in_rhythm(thread.base_ns + polls_ns, polls_ns + profile_.loop_ns, time_ns);
}

// Sets the thread's next action.
void Machine::schedule(Thread& thread) {
  if (!thread.resolved.empty()) {
    thread.action = Action::kFlush;
    thread.due_ns = thread.base_ns;
  } else if (thread.is_dispatching) {
    thread.action = Action::kDispatch;
    thread.due_ns = thread.base_ns;
  } else {
    plan_polls(thread);
  }
}

// The load of a core returns what the core had written when the load ends.
void Machine::plan_polls(Thread& thread) {
  thread.action = Action::kNone;
  thread.due_ns = kNever;
  if (thread.will_dispatch) {
    thread.action = Action::kDispatch;
    thread.due_ns = thread.base_ns + thread.to_poll.count() * profile_.poll_ns;
  } else if (thread.wake_ns != kNever) {
    thread.action = Action::kDispatch;
    thread.due_ns = look_after(thread, thread.wake_ns);
  }
  const CoreSet candidates = thread.signalled & thread.to_poll;
  candidates.for_each([&](uint32_t place) {
    const int64_t seen_ns = core_at(thread, place).seen_ns;
    int64_t poll_ns = thread.base_ns + (thread.to_poll.rank(place) + 1) * profile_.poll_ns;
    if (poll_ns < seen_ns) {
      if (thread.will_dispatch) return true;  // after this round it is looked at again
      poll_ns = next_in_rhythm(poll_ns, round_ns(thread), seen_ns);
    }
    const bool is_first =
        thread.action == Action::kPollHit ? poll_ns < thread.due_ns : poll_ns <= thread.due_ns;
    if (!is_first) return true;
    thread.action = Action::kPollHit;
    thread.due_ns = poll_ns;
    thread.hit_place = place;
    return true;
  });
}

void Machine::wake(Thread& thread, int64_t now_ns) {
  if (thread.will_dispatch || thread.is_dispatching || !thread.resolved.empty()) return;
  const int64_t look_ns = look_after(thread, now_ns);
  thread.base_ns = look_ns - thread.to_poll.count() * profile_.poll_ns;
  thread.will_dispatch = true;
  schedule(thread);
}

void Machine::wake_all(int64_t now_ns, bool is_for_dummy) {
  for (Thread& thread : threads_) {
    const bool has_room =
        !thread.idle.is_empty() ||
        (profile_.has_pending_slot != 0 && !thread.running.without(thread.has_pending).is_empty());
    if (has_room || is_for_dummy) wake(thread, now_ns);
  }
}

void Machine::act(Thread& thread) {
  switch (thread.action) {
    case Action::kFlush:
      return flush(thread);
    case Action::kPollHit:
      return poll_hit(thread);
    case Action::kDispatch:
      return dispatch(thread);
    case Action::kNone:
      break;
  }
  GAPLESS_CHECK(thread.action != Action::kNone);
}

// What the thread has resolved goes to the queues that all threads share.
void Machine::flush(Thread& thread) {
  thread.will_dispatch = true;
  bool has_dummy = false;
  for (const uint32_t task : thread.resolved) {
    make_ready(task, now_ns_);
    has_dummy = has_dummy || graph_.task(task).is_dummy;
  }
  thread.resolved.clear();
  wake_all(now_ns_, has_dummy);
  schedule(thread);
}

void Machine::make_ready(uint32_t task, int64_t now_ns) {
  TaskState& state = tasks_[task];
  const SimTask& facts = graph_.task(task);
  state.is_ready = true;
  result_.tasks[task].ready_ns = now_ns;
  if (facts.is_dummy) return dummies_.push_back(task);
  if (facts.sync_start) return gangs_.push_back(task);
  if (state.next_block > 0) open_gates(task, now_ns);
  if (state.next_block < facts.block_count) {
    ready_[static_cast<size_t>(shape_of(task))].push_back(task);
  }
}

// With a block in the pending slot its start is what a poll sees, and the running one is over. When
// that has ended too, both are.
void Machine::poll_hit(Thread& thread) {
  const uint32_t place = thread.hit_place;
  Core& core = core_at(thread, place);
  thread.to_poll.remove_through(place);
  int64_t end_count = 1;
  int64_t edge_count = complete_record(thread, core.running, now_ns_);
  core.running = core.pending;
  core.pending = kNoIndex;
  thread.has_pending.remove(place);
  if (core.running == kNoIndex) {
    set_idle(thread, place);
  } else {
    const int64_t end_ns = result_.records[core.running].end_ns;
    core.seen_ns = end_ns == kAbsent ? kNever : end_ns + profile_.notice_ns;
    if (core.seen_ns == kNever) thread.signalled.remove(place);
    if (core.seen_ns <= now_ns_) {
      ++end_count;
      edge_count += complete_record(thread, core.running, now_ns_);
      core.running = kNoIndex;
      set_idle(thread, place);
    }
  }
  thread.base_ns = now_ns_ + end_count * profile_.complete_ns + edge_count * profile_.resolve_ns;
  thread.will_dispatch = true;
  keep_phase(thread, {now_ns_ - profile_.poll_ns, thread.base_ns, SimPhase::kComplete,
                      static_cast<uint32_t>(end_count)});
  schedule(thread);
}

// Both return the number of edges that were followed.
uint32_t Machine::complete_record(Thread& thread, uint32_t record, int64_t now_ns) {
  result_.records[record].finish_ns = now_ns;
  const uint32_t task = result_.records[record].task;
  return --tasks_[task].records_left == 0 ? complete_task(thread, task, now_ns) : 0;
}

uint32_t Machine::complete_task(Thread& thread, uint32_t task, int64_t now_ns) {
  tasks_[task].is_complete = true;
  result_.tasks[task].finish_ns = now_ns;
  ++complete_count_;
  const SimTask& facts = graph_.task(task);
  const bool was_published = facts.early_resolve && !facts.is_dummy;
  uint32_t edge_count = 0;
  for (const uint32_t consumer : graph_.consumers(task)) {
    TaskState& state = tasks_[consumer];
    --state.producers_left;
    if (!was_published) --state.unpublished_left;
    if (!state.is_submitted) continue;  // the orchestrator will find this one complete
    ++edge_count;
    if (state.producers_left == 0) {
      thread.resolved.push_back(consumer);
    } else {
      offer_early(consumer);
    }
  }
  retire(now_ns);
  return edge_count;
}

void Machine::set_idle(Thread& thread, uint32_t place) {
  thread.running.remove(place);
  thread.signalled.remove(place);
  thread.idle.add(place);
  core_at(thread, place).seen_ns = kNever;
  const uint32_t cube = place - place % cluster_cores_;
  const SimShape shape = place == cube ? SimShape::kCube : SimShape::kVector;
  ++thread.idle_counts[static_cast<size_t>(shape)];
  bool is_whole = true;
  for (uint32_t part = 0; part < cluster_cores_; ++part) {
    is_whole = is_whole && thread.idle.has(cube + part);
  }
  if (is_whole) ++thread.idle_counts[static_cast<size_t>(SimShape::kMix)];
}

// When a thread's last idle core is gone, others may use their pending slots.
void Machine::set_busy(Thread& thread, uint32_t place) {
  const uint32_t cube = place - place % cluster_cores_;
  const SimShape shape = place == cube ? SimShape::kCube : SimShape::kVector;
  bool was_whole = true;
  for (uint32_t part = 0; part < cluster_cores_; ++part) {
    was_whole = was_whole && thread.idle.has(cube + part);
  }
  thread.idle.remove(place);
  thread.running.add(place);
  const auto take = [&](SimShape one) {
    const size_t index = static_cast<size_t>(one);
    if (--thread.idle_counts[index] > 0 || profile_.has_skip_hint == 0) return;
    if (ready_[index].empty()) return;
    for (Thread& other : threads_) {
      if (&other != &thread) wake(other, now_ns_);
    }
  };
  take(shape);
  if (was_whole) take(SimShape::kMix);
}

// Phases of one kind that follow each other at once are one.
void Machine::keep_phase(const Thread& thread, const SimPhaseSpan& span) {
  if (!options_.has_phases) return;
  std::vector<SimPhaseSpan>& spans = result_.phases[static_cast<size_t>(&thread - threads_.data())];
  SimPhaseSpan kept = span;
  if (!spans.empty()) {
    SimPhaseSpan& last = spans.back();
    kept.begin_ns = std::max(kept.begin_ns, last.end_ns);
    if (last.phase == kept.phase && last.end_ns == kept.begin_ns) {
      last.end_ns = kept.end_ns;
      last.record_count += kept.record_count;
      return;
    }
  }
  kept.begin_ns = std::max(kept.begin_ns, int64_t{0});
  spans.push_back(kept);
}

}  // namespace gapless
