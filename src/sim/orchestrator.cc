// SPDX-License-Identifier: Apache-2.0
//
// The orchestrator submits one task after another, as long as its window has room: slots are given
// back in order, so the oldest task that is not complete holds all that follow it.

#include "sim/machine_state.h"

namespace gapless {

void Machine::plan_submit(int64_t now_ns) {
  submit_due_ns_ = kNever;
  if (next_submit_ == graph_.task_count()) {
    result_.submitted_ns = now_ns;
    return;
  }
  if (next_submit_ - first_live_ >= profile_.task_window) {
    blocked_since_ns_ = now_ns;
    return;
  }
  const int64_t producers = static_cast<int64_t>(graph_.producers(next_submit_).size());
  submit_due_ns_ = now_ns + profile_.submit_ns + producers * profile_.submit_edge_ns;
}

void Machine::submit() {
  const uint32_t task = next_submit_++;
  TaskState& state = tasks_[task];
  state.is_submitted = true;
  result_.tasks[task].submit_ns = now_ns_;
  if (state.producers_left == 0) {
    make_ready(task, now_ns_);
    wake_all(now_ns_, graph_.task(task).is_dummy);
  } else {
    offer_early(task);
  }
  plan_submit(now_ns_);
}

void Machine::retire(int64_t now_ns) {
  while (first_live_ < graph_.task_count() && tasks_[first_live_].is_complete) ++first_live_;
  if (blocked_since_ns_ == kNever) return;
  if (next_submit_ - first_live_ >= profile_.task_window) return;
  result_.window_wait_ns += now_ns - blocked_since_ns_;
  blocked_since_ns_ = kNever;
  plan_submit(now_ns);
}

}  // namespace gapless
