// SPDX-License-Identifier: Apache-2.0
//
// A core: it sees a dispatch, sets up, runs, stores that it has ended, and goes on with what is in
// its pending slot. What the scheduler knows of it is another matter: scheduler.cc.

#include <algorithm>

#include "sim/machine_state.h"

namespace gapless {

// `is_held`: it starts later, when a gate opens or a gang is complete.
void Machine::place_record(uint32_t core_index, uint32_t record, int64_t dispatch_ns,
                           bool is_held) {
  Core& core = cores_[core_index];
  Thread& thread = threads_[core.thread];
  SimRecord& facts = result_.records[record];
  facts.core = core_index;
  facts.dispatch_ns = dispatch_ns;
  if (core.running == kNoIndex) {
    core.running = record;
    set_busy(thread, core.place);
    facts.receive_ns = dispatch_ns + profile_.propagation_ns;
    if (!is_held) begin(core_index, record, facts.receive_ns + setup_ns(core));
    return;
  }
  core.pending = record;
  thread.has_pending.add(core.place);
  ++result_.pending_count;
  if (result_.records[core.running].end_ns == kAbsent) return;
  // The running one has ended, unseen: now its end is seen when this one has started.
  facts.receive_ns = dispatch_ns + profile_.propagation_ns;
  begin(core_index, record, facts.receive_ns + profile_.setup_ns);
  core.seen_ns = facts.start_ns + profile_.notice_ns;
}

void Machine::set_due(uint32_t core, int64_t time_ns) { core_events_.push({time_ns, core}); }

void Machine::begin(uint32_t core_index, uint32_t record, int64_t start_ns) {
  Core& core = cores_[core_index];
  SimRecord& facts = result_.records[record];
  facts.start_ns = start_ns;
  core.executing = record;
  core.has_run = true;
  const uint32_t offset = record - static_cast<uint32_t>(result_.record_begins[facts.task]);
  const uint32_t block = offset / part_count(facts.task);
  const BlockWork work =
      is_cube(core) ? work_.cube_work(facts.task, block) : work_.vector_work(facts.task, block);
  core.bytes = work.bytes;
  core.compute_ns = work.compute_ns;
  core.fixed_ns = work.fixed_ns;
  core.is_starting = work.bytes > 0;
  set_due(core_index, core.is_starting ? start_ns : start_ns + work.compute_ns + work.fixed_ns);
}

void Machine::core_event(uint32_t core_index) {
  Core& core = cores_[core_index];
  if (!core.is_starting) return end_work(core_index, now_ns_);
  core.is_starting = false;
  core.compute_ns += now_ns_;
  memory_.start(now_ns_, is_cube(core) ? 0 : 1, core.bytes, core_index);
}

void Machine::flow_ended(uint32_t core_index, int64_t now_ns) {
  const Core& core = cores_[core_index];
  const int64_t end_ns = std::max(now_ns, core.compute_ns) + core.fixed_ns;
  if (end_ns == now_ns) return end_work(core_index, now_ns);
  set_due(core_index, end_ns);
}

// The cores of a mixed block work on one result: none ends before all have done their part.
void Machine::end_work(uint32_t core_index, int64_t now_ns) {
  const uint32_t record = cores_[core_index].executing;
  const uint32_t task = result_.records[record].task;
  const uint32_t parts = part_count(task);
  if (parts == 1) return end_record(core_index, now_ns);
  const uint32_t begin_record = static_cast<uint32_t>(result_.record_begins[task]);
  const uint32_t first = record - (record - begin_record) % parts;
  if (--parts_left_[first] > 0) return;
  for (uint32_t part = 0; part < parts; ++part) {
    end_record(result_.records[first + part].core, now_ns);
  }
}

void Machine::end_record(uint32_t core_index, int64_t now_ns) {
  Core& core = cores_[core_index];
  const uint32_t record = core.executing;
  result_.records[record].end_ns = now_ns;
  core.executing = kNoIndex;
  if (record != core.running) return;  // in the pending slot: the end before it is not seen yet
  core.seen_ns = now_ns + profile_.notice_ns;
  if (core.pending != kNoIndex) {
    SimRecord& next = result_.records[core.pending];
    const int64_t visible_ns = next.dispatch_ns + profile_.propagation_ns;
    next.receive_ns = std::max(visible_ns, now_ns);
    const int64_t gap_ns = visible_ns <= now_ns ? profile_.switch_ns : profile_.setup_ns;
    begin(core_index, core.pending, next.receive_ns + gap_ns);
    core.seen_ns = next.start_ns + profile_.notice_ns;
  }
  Thread& thread = threads_[core.thread];
  thread.signalled.add(core.place);
  schedule(thread);
}

// ---- Early dispatch: blocks wait on their cores for a doorbell.

void Machine::open_gates(uint32_t task, int64_t now_ns) {
  const int64_t rung_ns = now_ns + profile_.store_ns + profile_.propagation_ns;
  const uint32_t begin_record = static_cast<uint32_t>(result_.record_begins[task]);
  const uint32_t end = begin_record + tasks_[task].next_block * part_count(task);
  for (uint32_t record = begin_record; record < end; ++record) {
    const SimRecord& facts = result_.records[record];
    const int64_t up_ns = facts.receive_ns + setup_ns(cores_[facts.core]);
    begin(facts.core, record, std::max(up_ns, rung_ns));
  }
}

// All producers that are not complete are flagged and fully dispatched: its blocks may go to cores.
void Machine::offer_early(uint32_t task) {
  if (profile_.has_early_dispatch == 0) return;
  TaskState& state = tasks_[task];
  const SimTask& facts = graph_.task(task);
  if (facts.is_dummy || facts.sync_start) return;
  if (!state.is_submitted || state.is_ready || state.is_offered_early) return;
  if (state.unpublished_left > 0 || state.producers_left == 0) return;
  state.is_offered_early = true;
  early_[static_cast<size_t>(shape_of(task))].push_back(task);
  wake_all(now_ns_);
}

void Machine::published(uint32_t task) {
  if (profile_.has_early_dispatch == 0 || !graph_.task(task).early_resolve) return;
  for (const uint32_t consumer : graph_.consumers(task)) {
    --tasks_[consumer].unpublished_left;
    offer_early(consumer);
  }
}

}  // namespace gapless
