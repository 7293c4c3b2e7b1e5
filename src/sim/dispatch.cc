// SPDX-License-Identifier: Apache-2.0
//
// What a scheduler thread dispatches next, and to which of its cores.
//
// Mixed tasks come first and hold back all others while one is waiting; then cube and vector tasks,
// in an order that alternates from thread to thread. Of each, idle cores are filled first and then
// pending slots. A task with several blocks is taken for as many as have room here and goes back to
// the end of its queue with the rest. One claim is one action: blocks of it are published one after
// another, and other threads see the cores as taken from its begin on.

#include <algorithm>

#include "sim/machine_state.h"

namespace gapless {

void Machine::dispatch(Thread& thread) {
  const int64_t now_ns = now_ns_;
  thread.will_dispatch = false;
  thread.wake_ns = kNever;
  if (!dummies_.empty()) return run_dummy(thread, now_ns);
  claim_.cores.clear();
  thread.is_dispatching = find_claim(thread, now_ns, claim_);
  if (thread.is_dispatching) {
    const bool is_gang = claim_.phase == SimPhase::kGang;
    thread.base_ns = is_gang ? publish_gang(claim_, now_ns) : publish(claim_, now_ns);
    const size_t records = claim_.cores.size() * part_count(claim_.task);
    keep_phase(thread, {now_ns, thread.base_ns, claim_.phase, static_cast<uint32_t>(records)});
  } else {
    thread.base_ns = now_ns + profile_.loop_ns;
    thread.to_poll = thread.running;
  }
  schedule(thread);
}

void Machine::run_dummy(Thread& thread, int64_t now_ns) {
  const uint32_t task = dummies_.front();
  dummies_.pop_front();
  const int64_t edge_count = complete_task(thread, task, now_ns);
  thread.is_dispatching = true;
  thread.base_ns = now_ns + profile_.complete_ns + edge_count * profile_.resolve_ns;
  keep_phase(thread, {now_ns, thread.base_ns, SimPhase::kDummy, 1});
  schedule(thread);
}

bool Machine::is_any_ready() const {
  return !gangs_.empty() || std::any_of(ready_.begin(), ready_.end(),
                                        [](const auto& queue) { return !queue.empty(); });
}

bool Machine::find_claim(Thread& thread, int64_t now_ns, Claim& claim) {
  if (!gangs_.empty()) return claim_gang(thread, claim);
  claim.phase = SimPhase::kDispatch;
  if (claim_shape(thread, SimShape::kMix, now_ns, claim)) return true;
  if (!ready_[static_cast<size_t>(SimShape::kMix)].empty()) return false;
  const bool is_odd = (&thread - threads_.data()) % 2 == 1;
  const SimShape first = is_odd ? SimShape::kVector : SimShape::kCube;
  const SimShape second = is_odd ? SimShape::kCube : SimShape::kVector;
  if (claim_shape(thread, first, now_ns, claim)) return true;
  if (claim_shape(thread, second, now_ns, claim)) return true;
  return profile_.has_early_dispatch != 0 && !is_any_ready() && claim_early(thread, claim);
}

bool Machine::claim_shape(Thread& thread, SimShape shape, int64_t now_ns, Claim& claim) {
  std::deque<uint32_t>& queue = ready_[static_cast<size_t>(shape)];
  if (queue.empty()) return false;
  const uint32_t task = queue.front();
  const size_t blocks_left = graph_.task(task).block_count - tasks_[task].next_block;
  if (thread.idle_counts[static_cast<size_t>(shape)] > 0) {
    collect_idle(thread, shape, blocks_left, claim);
  } else if (may_use_pending(thread, shape)) {
    collect_pending(thread, shape, now_ns, blocks_left, claim);
  }
  if (claim.cores.empty()) return false;
  take_blocks(claim, queue);
  return true;
}

bool Machine::may_use_pending(const Thread& thread, SimShape shape) const {
  if (profile_.has_pending_slot == 0) return false;
  if (profile_.has_skip_hint == 0) return true;
  return std::none_of(threads_.begin(), threads_.end(), [&](const Thread& other) {
    return &other != &thread && other.idle_counts[static_cast<size_t>(shape)] > 0;
  });
}

void Machine::collect_idle(const Thread& thread, SimShape shape, size_t limit, Claim& claim) const {
  const CoreSet candidates =
      thread.idle & (shape == SimShape::kVector ? thread.vectors : thread.cubes);
  size_t room = limit;
  candidates.for_each([&](uint32_t place) {
    if (shape == SimShape::kMix) {
      for (uint32_t part = 1; part < cluster_cores_; ++part) {
        if (!thread.idle.has(place + part)) return true;
      }
    }
    claim.cores.push_back(thread.cores[place]);
    return --room > 0;
  });
}

// From when on a block can go into the core's pending slot: when it is known that the running one
// was accepted. An idle core takes it at once.
int64_t Machine::pending_free_ns(const Thread& thread, uint32_t place) const {
  if (thread.idle.has(place)) return 0;
  if (thread.has_pending.has(place)) return kNever;
  const int64_t start_ns = result_.records[cores_[thread.cores[place]].running].start_ns;
  return start_ns == kAbsent ? kNever : start_ns + profile_.notice_ns;
}

void Machine::collect_pending(Thread& thread, SimShape shape, int64_t now_ns, size_t limit,
                              Claim& claim) {
  const CoreSet& candidates = shape == SimShape::kVector ? thread.vectors : thread.cubes;
  const uint32_t parts = shape == SimShape::kMix ? cluster_cores_ : 1;
  size_t room = limit;
  candidates.for_each([&](uint32_t place) {
    int64_t free_ns = 0;
    for (uint32_t part = 0; part < parts; ++part) {
      free_ns = std::max(free_ns, pending_free_ns(thread, place + part));
    }
    if (free_ns > now_ns) {
      thread.wake_ns = std::min(thread.wake_ns, free_ns);
      return true;
    }
    claim.cores.push_back(thread.cores[place]);
    return --room > 0;
  });
}

// The claim's task is at the front of the queue.
void Machine::take_blocks(Claim& claim, std::deque<uint32_t>& queue) {
  claim.task = queue.front();
  queue.pop_front();
  TaskState& state = tasks_[claim.task];
  claim.first_block = state.next_block;
  state.next_block += static_cast<uint32_t>(claim.cores.size());
  if (state.next_block < graph_.task(claim.task).block_count) {
    queue.push_back(claim.task);
  } else {
    published(claim.task);
  }
}

// Returns when the thread is done with it.
int64_t Machine::publish(const Claim& claim, int64_t now_ns) {
  const uint32_t parts = shape_of(claim.task) == SimShape::kMix ? cluster_cores_ : 1;
  const bool is_gated = claim.phase == SimPhase::kEarly;
  uint64_t record = result_.record_begins[claim.task] + uint64_t{claim.first_block} * parts;
  int64_t time_ns = now_ns + profile_.pop_ns;
  for (const uint32_t first : claim.cores) {
    const Core& core = cores_[first];
    for (uint32_t part = 0; part < parts; ++part) {
      time_ns += profile_.payload_ns + profile_.store_ns;
      const uint32_t target = threads_[core.thread].cores[core.place + part];
      place_record(target, static_cast<uint32_t>(record++), time_ns, is_gated);
    }
  }
  return time_ns;
}

// A gang takes idle cores only. Where this thread has too few, all threads stop dispatching until
// there are enough.
bool Machine::claim_gang(Thread& thread, Claim& claim) {
  const uint32_t task = gangs_.front();
  const SimShape shape = shape_of(task);
  const size_t index = static_cast<size_t>(shape);
  const size_t needed = graph_.task(task).block_count;
  size_t idle_count = 0;
  for (const Thread& one : threads_) idle_count += one.idle_counts[index];
  if (idle_count < needed) return false;
  claim.has_barrier = thread.idle_counts[index] < needed;
  if (!claim.has_barrier) {
    collect_idle(thread, shape, needed, claim);
  } else {
    for (const Thread& one : threads_) {
      const size_t missing = needed - claim.cores.size();
      if (missing > 0) collect_idle(one, shape, missing, claim);
    }
  }
  claim.phase = SimPhase::kGang;
  take_blocks(claim, gangs_);
  return true;
}

// Each thread publishes to its own cores, all at once. Returns when the last of them is done.
int64_t Machine::publish_gang(const Claim& claim, int64_t now_ns) {
  const uint32_t parts = shape_of(claim.task) == SimShape::kMix ? cluster_cores_ : 1;
  const int64_t barrier_ns = claim.has_barrier ? profile_.gang_barrier_ns : 0;
  const int64_t begin_ns = now_ns + profile_.pop_ns + barrier_ns;
  std::vector<int64_t> times(threads_.size(), begin_ns);
  uint32_t record = static_cast<uint32_t>(result_.record_begins[claim.task]);
  const uint32_t first_record = record;
  int64_t start_ns = 0;
  for (const uint32_t first : claim.cores) {
    const uint32_t owner = cores_[first].thread;
    for (uint32_t part = 0; part < parts; ++part) {
      times[owner] += profile_.payload_ns + profile_.store_ns;
      const uint32_t target = threads_[owner].cores[cores_[first].place + part];
      place_record(target, record, times[owner], true);
      const int64_t up_ns = result_.records[record].receive_ns + setup_ns(cores_[target]);
      start_ns = std::max(start_ns, up_ns);
      ++record;
    }
  }
  for (uint32_t one = first_record; one < record; ++one) {
    begin(result_.records[one].core, one, start_ns);
  }
  for (Thread& other : threads_) wake(other, now_ns);
  return *std::max_element(times.begin(), times.end());
}

bool Machine::claim_early(Thread& thread, Claim& claim) {
  for (size_t index = 0; index < early_.size(); ++index) {
    std::deque<uint32_t>& queue = early_[index];
    while (!queue.empty() && tasks_[queue.front()].is_ready) queue.pop_front();
    if (queue.empty() || thread.idle_counts[index] == 0) continue;
    const uint32_t task = queue.front();
    const size_t blocks_left = graph_.task(task).block_count - tasks_[task].next_block;
    collect_idle(thread, static_cast<SimShape>(index), blocks_left, claim);
    claim.phase = SimPhase::kEarly;
    take_blocks(claim, queue);
    return true;
  }
  return false;
}

}  // namespace gapless
