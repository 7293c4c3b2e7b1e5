// SPDX-License-Identifier: Apache-2.0
//
// Machine: the state of a running simulation and all that changes it. Used by simulate() only.
//
// Four kinds of actors, each with the time of its next action: the orchestrator (orchestrator.cc),
// scheduler threads (scheduler.cc: polling and ends; dispatch.cc: what goes where), cores (core.cc)
// and the memory (fluid.h). The loop in machine.cc takes the earliest action; of several at one
// time memory, cores, the orchestrator and then threads by number, so that a thread knows all that
// happened until then.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/result.h"
#include "sim/core_set.h"
#include "sim/device_profile.h"
#include "sim/event_heap.h"
#include "sim/fluid.h"
#include "sim/machine.h"
#include "sim/sim_graph.h"
#include "sim/sim_result.h"
#include "sim/work_model.h"

namespace gapless {

class Machine {
 public:
  Machine(const DeviceProfile& profile, const SimGraph& graph, const SimOptions& options);
  Result<SimResult> run();

 private:
  // ---- State.

  // What the machine knows of a task while it runs.
  struct TaskState {
    uint32_t producers_left = 0;    // not complete
    uint32_t unpublished_left = 0;  // producers that keep it from early dispatch
    uint32_t records_left = 0;      // ends not seen
    uint32_t next_block = 0;        // dispatched up to here
    bool is_submitted = false;
    bool is_ready = false;
    bool is_complete = false;
    bool is_offered_early = false;  // stands in an early queue, or its blocks are gated on cores
  };

  struct Core {
    uint32_t thread = 0;
    uint32_t place = 0;             // among the thread's cores
    uint32_t running = kNoIndex;    // record in the running slot, as the scheduler knows it
    uint32_t pending = kNoIndex;    // record in the pending slot
    uint32_t executing = kNoIndex;  // the one of the two that is on the core now
    int64_t seen_ns = kNever;       // from here on a poll sees that the running record has ended
    int64_t compute_ns = 0;         // of what is executing, until it starts; then its end
    int64_t fixed_ns = 0;
    int64_t bytes = 0;
    bool has_run = false;
    bool is_starting = false;  // the event is the start, else the end of its work
  };

  enum class Action : uint8_t { kNone, kFlush, kPollHit, kDispatch };

  // The cores of a thread stand cluster by cluster, the cube core first: a core's *place*.
  struct Thread {
    std::vector<uint32_t> cores;  // by place
    CoreSet cubes;
    CoreSet vectors;
    CoreSet idle;
    CoreSet running;  // something is in the running slot
    CoreSet has_pending;
    CoreSet signalled;                                      // seen_ns is known
    std::array<uint32_t, kSimShapeCount> idle_counts = {};  // by shape; kMix: whole clusters
    // The round of polls that began at base_ns covers these, one after another.
    CoreSet to_poll;
    int64_t base_ns = 0;
    bool is_dispatching = false;     // the next action is another look into the queues
    bool will_dispatch = false;      // look into the queues after this round; else nothing to find
    int64_t wake_ns = kNever;        // from here on there may be something to find
    std::vector<uint32_t> resolved;  // tasks that became ready by what was just completed

    Action action = Action::kNone;
    int64_t due_ns = kNever;
    uint32_t hit_place = 0;
  };

  // Cores for consecutive blocks of a task; of a cluster its first core.
  struct Claim {
    uint32_t task = kNoIndex;
    uint32_t first_block = 0;
    SimPhase phase = SimPhase::kDispatch;
    bool has_barrier = false;  // of a gang: cores of several threads
    std::vector<uint32_t> cores;
  };

  struct CoreEvent {
    int64_t time_ns;
    uint32_t core;
    bool operator<(const CoreEvent& other) const {
      return time_ns != other.time_ns ? time_ns < other.time_ns : core < other.core;
    }
  };

  // ---- machine.cc
  Result<void> check_tasks() const;
  void make_cores();
  void make_tasks();
  bool step();
  Error stuck_error() const;
  uint32_t part_count(uint32_t task) const {
    return graph_.task(task).shape == SimShape::kMix ? cluster_cores_ : 1;
  }
  SimShape shape_of(uint32_t task) const {
    return profile_.is_unified != 0 ? SimShape::kCube : graph_.task(task).shape;
  }
  bool is_cube(const Core& core) const { return core.place % cluster_cores_ == 0; }
  Core& core_at(Thread& thread, uint32_t place) { return cores_[thread.cores[place]]; }

  // ---- orchestrator.cc
  void plan_submit(int64_t now_ns);
  void submit();
  void retire(int64_t now_ns);

  // ---- scheduler.cc
  void schedule(Thread& thread);
  void plan_polls(Thread& thread);
  int64_t round_ns(const Thread& thread) const;
  int64_t look_after(const Thread& thread, int64_t time_ns) const;
  void wake(Thread& thread, int64_t now_ns);
  // Those that could place a block; for dummies, which need no core, all.
  void wake_all(int64_t now_ns, bool is_for_dummy = false);
  void act(Thread& thread);
  void poll_hit(Thread& thread);
  void flush(Thread& thread);
  uint32_t complete_record(Thread& thread, uint32_t record, int64_t now_ns);
  uint32_t complete_task(Thread& thread, uint32_t task, int64_t now_ns);
  void set_idle(Thread& thread, uint32_t place);
  void set_busy(Thread& thread, uint32_t place);
  void make_ready(uint32_t task, int64_t now_ns);
  void keep_phase(const Thread& thread, const SimPhaseSpan& span);

  // ---- dispatch.cc
  void dispatch(Thread& thread);
  bool find_claim(Thread& thread, int64_t now_ns, Claim& claim);
  bool claim_gang(Thread& thread, Claim& claim);
  bool claim_shape(Thread& thread, SimShape shape, int64_t now_ns, Claim& claim);
  bool claim_early(Thread& thread, Claim& claim);
  bool may_use_pending(const Thread& thread, SimShape shape) const;
  void collect_idle(const Thread& thread, SimShape shape, size_t limit, Claim& claim) const;
  void collect_pending(Thread& thread, SimShape shape, int64_t now_ns, size_t limit, Claim& claim);
  int64_t pending_free_ns(const Thread& thread, uint32_t place) const;
  void take_blocks(Claim& claim, std::deque<uint32_t>& queue);
  int64_t publish(const Claim& claim, int64_t now_ns);
  int64_t publish_gang(const Claim& claim, int64_t now_ns);
  void run_dummy(Thread& thread, int64_t now_ns);
  bool is_any_ready() const;

  // ---- core.cc
  void place_record(uint32_t core, uint32_t record, int64_t dispatch_ns, bool is_held);
  void begin(uint32_t core, uint32_t record, int64_t start_ns);
  void core_event(uint32_t core);
  void flow_ended(uint32_t core, int64_t now_ns);
  void end_work(uint32_t core, int64_t now_ns);
  void end_record(uint32_t core, int64_t now_ns);
  void set_due(uint32_t core, int64_t time_ns);
  int64_t setup_ns(const Core& core) const {
    return core.has_run ? profile_.setup_ns : profile_.first_setup_ns;
  }
  void open_gates(uint32_t task, int64_t now_ns);
  void offer_early(uint32_t task);
  void published(uint32_t task);

  const DeviceProfile& profile_;
  const SimGraph& graph_;
  SimOptions options_;
  WorkModel work_;
  FluidMemory memory_;
  uint32_t cluster_cores_;

  std::vector<TaskState> tasks_;
  std::vector<Core> cores_;
  std::vector<Thread> threads_;
  std::vector<uint8_t> parts_left_;  // by the first record of a mixed block: working parts
  EventHeap<CoreEvent> core_events_;
  std::array<std::deque<uint32_t>, kSimShapeCount> ready_;
  std::array<std::deque<uint32_t>, kSimShapeCount> early_;
  std::deque<uint32_t> gangs_;
  std::deque<uint32_t> dummies_;

  uint32_t next_submit_ = 0;
  int64_t submit_due_ns_ = kNever;
  int64_t blocked_since_ns_ = kNever;  // the window is full
  uint32_t first_live_ = 0;            // all tasks before it are complete
  uint32_t complete_count_ = 0;
  int64_t now_ns_ = 0;
  Claim claim_;  // kept for its memory
  SimResult result_;
};

}  // namespace gapless
