// SPDX-License-Identifier: Apache-2.0

#include "sim/machine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "sim/machine_state.h"

namespace gapless {
namespace {

constexpr uint64_t kMaxRecords = uint64_t{1} << 28;

}  // namespace

Machine::Machine(const DeviceProfile& profile, const SimGraph& graph, const SimOptions& options)
    : profile_(profile),
      graph_(graph),
      options_(options),
      work_(profile, graph, options.seed),
      memory_(profile.hbm_bytes_per_s,
              std::array<int64_t, 2>{profile.cube_bytes_per_s, profile.vector_bytes_per_s}),
      cluster_cores_(static_cast<uint32_t>(1 + profile.vector_cores)) {}

Result<void> Machine::check_tasks() const {
  uint64_t record_count = 0;
  for (uint32_t task = 0; task < graph_.task_count(); ++task) {
    const SimTask& facts = graph_.task(task);
    if (facts.is_dummy) continue;
    record_count += uint64_t{facts.block_count} * part_count(task);
    const SimShape shape = shape_of(task);
    if (shape != SimShape::kCube && profile_.vector_cores == 0) {
      return fail(ErrorCode::kInvalidInput, "task {} ({}): needs vector cores; {} has none", task,
                  graph_.kernel_name(task), profile_.name);
    }
    const int64_t places =
        shape == SimShape::kVector ? profile_.vector_core_count() : profile_.cluster_count;
    if (facts.sync_start && facts.block_count > places) {
      return fail(ErrorCode::kInvalidInput,
                  "task {} ({}): its {} {} blocks must start together; {} has room for {}", task,
                  graph_.kernel_name(task), facts.block_count, sim_shape_name(shape), profile_.name,
                  places);
    }
  }
  if (record_count > kMaxRecords) {
    return fail(ErrorCode::kInvalidInput,
                "{} tasks have {} blocks on cores; at most {} can be simulated",
                graph_.task_count(), record_count, kMaxRecords);
  }
  return {};
}

// Cluster c belongs to thread c mod n.
void Machine::make_cores() {
  const uint32_t clusters = static_cast<uint32_t>(profile_.cluster_count);
  const uint32_t vectors = static_cast<uint32_t>(profile_.vector_cores);
  threads_.resize(static_cast<size_t>(profile_.scheduler_threads));
  cores_.resize(size_t{clusters} * cluster_cores_);
  result_.phases.resize(threads_.size());
  for (uint32_t cluster = 0; cluster < clusters; ++cluster) {
    const uint32_t owner = cluster % static_cast<uint32_t>(threads_.size());
    Thread& thread = threads_[owner];
    for (uint32_t part = 0; part < cluster_cores_; ++part) {
      const uint32_t core = part == 0 ? cluster : clusters + cluster * vectors + part - 1;
      const uint32_t place = static_cast<uint32_t>(thread.cores.size());
      thread.cores.push_back(core);
      cores_[core].thread = owner;
      cores_[core].place = place;
      thread.idle.add(place);
      (part == 0 ? thread.cubes : thread.vectors).add(place);
    }
    thread.idle_counts[static_cast<size_t>(SimShape::kMix)] += 1;
    thread.idle_counts[static_cast<size_t>(SimShape::kCube)] += 1;
    thread.idle_counts[static_cast<size_t>(SimShape::kVector)] += vectors;
  }
}

void Machine::make_tasks() {
  const uint32_t count = graph_.task_count();
  tasks_.resize(count);
  result_.tasks.resize(count);
  result_.record_begins.resize(size_t{count} + 1, 0);
  for (uint32_t task = 0; task < count; ++task) {
    const SimTask& facts = graph_.task(task);
    TaskState& state = tasks_[task];
    state.producers_left = static_cast<uint32_t>(graph_.producers(task).size());
    state.unpublished_left = state.producers_left;
    state.records_left = facts.is_dummy ? 0 : facts.block_count * part_count(task);
    result_.record_begins[task + 1] = result_.record_begins[task] + state.records_left;
  }
  result_.records.resize(result_.record_begins[count]);
  parts_left_.assign(result_.records.size(), static_cast<uint8_t>(cluster_cores_));
  for (uint32_t task = 0; task < count; ++task) {
    for (uint64_t row = result_.record_begins[task]; row < result_.record_begins[task + 1]; ++row) {
      result_.records[row].task = task;
    }
  }
}

// Takes the earliest action; false when there is none.
bool Machine::step() {
  enum class Actor : uint8_t { kMemory, kCore, kOrchestrator, kThread };
  Actor actor = Actor::kMemory;
  int64_t time_ns = memory_.next_end_ns();
  if (!core_events_.empty() && core_events_.top().time_ns < time_ns) {
    actor = Actor::kCore;
    time_ns = core_events_.top().time_ns;
  }
  if (submit_due_ns_ < time_ns) {
    actor = Actor::kOrchestrator;
    time_ns = submit_due_ns_;
  }
  Thread* thread = nullptr;
  for (Thread& one : threads_) {
    if (one.due_ns >= time_ns) continue;
    actor = Actor::kThread;
    thread = &one;
    time_ns = one.due_ns;
  }
  if (time_ns == kNever) return false;
  GAPLESS_DCHECK(time_ns >= now_ns_);
  now_ns_ = time_ns;
  ++result_.event_count;
  if (actor == Actor::kMemory) {
    flow_ended(memory_.take_next(), time_ns);
  } else if (actor == Actor::kCore) {
    core_event(core_events_.pop().core);
  } else if (actor == Actor::kOrchestrator) {
    submit();
  } else {
    act(*thread);
  }
  return true;
}

Error Machine::stuck_error() const {
  const uint32_t task = first_live_;
  const char* reason = tasks_[task].is_submitted ? "waits for a task that is not submitted"
                                                 : "is not submitted because the window is full";
  return fail(ErrorCode::kInvalidInput,
              "after {} ns nothing can go on: {} of {} tasks are complete, and task {} ({}) {}; "
              "the window is {} tasks",
              now_ns_, complete_count_, graph_.task_count(), task, graph_.kernel_name(task), reason,
              profile_.task_window);
}

Result<SimResult> Machine::run() {
  GAPLESS_TRY(check_tasks());
  make_cores();
  make_tasks();
  plan_submit(0);
  while (step()) {
  }
  if (complete_count_ != graph_.task_count()) return stuck_error();
  for (const SimTaskTimes& times : result_.tasks) {
    result_.makespan_ns = std::max(result_.makespan_ns, times.finish_ns);
  }
  return std::move(result_);
}

Result<SimResult> simulate(const DeviceProfile& profile, const SimGraph& graph,
                           const SimOptions& options) {
  GAPLESS_TRY(check_profile(profile, profile.name));
  Machine machine(profile, graph, options);
  return machine.run();
}

}  // namespace gapless
