// SPDX-License-Identifier: Apache-2.0
//
// Cohorts: tasks whose parts must run at the same time: gangs, and mixed tasks on clusters.
//
// A cohort gets all its workers at once or none: workers are reserved, idle or not, under one lock,
// and a reserved worker comes when what it has taken already has ended. So two
// cohorts never wait for workers of each other. They are served in the order in which they became
// ready; one that does not fit yet holds back those behind it, so that no large gang starves.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "graph/task.h"
#include "graph/task_context.h"
#include "runtime/spin.h"
#include "runtime/worker.h"

namespace gapless {

struct Cohort {
  struct Member {
    int worker = 0;
    int32_t block = 0;
    MixedRole role = MixedRole::kWhole;
  };
  uint32_t task = kNoTask;
  std::vector<Member> members;
  std::atomic<int> arrived = 0;
  // The last to arrive decides for all whether the task is run or, after a cancel, left out.
  enum class Decision : uint8_t { kNone, kRun, kLeaveOut };
  std::atomic<Decision> decision = Decision::kNone;
  std::atomic<int> left = 0;
};

// What a task needs to start.
struct CohortNeed {
  uint32_t task = kNoTask;
  CoreKind core = CoreKind::kAny;
  int32_t block_count = 1;
  bool gang = false;  // false: a mixed task, whose blocks may start one by one
};

class CohortBoard {
 public:
  explicit CohortBoard(std::vector<Worker*> workers);

  // The task is ready: it gets its workers now or later.
  void add(const CohortNeed& need);
  // The last member of a cohort left it: frees its workers and serves those who wait.
  void dissolve(Cohort& cohort);
  // Waits for all members. `is_cancelled` is what this worker would decide if it were the last.
  static Cohort::Decision gather(Cohort& cohort, bool is_cancelled);
  // Which part of the cohort the worker is.
  static const Cohort::Member& member(const Cohort& cohort, int worker);

  // For stall reports: who waits, and how many workers no cohort has reserved.
  std::vector<CohortNeed> waiting() const;
  // How many workers it takes at once.
  int worker_count(const CohortNeed& need) const;
  int free_worker_count() const;

 private:
  void serve();
  bool try_reserve(CohortNeed& need);
  bool choose_clusters(int32_t first_block, int32_t block_count,
                       std::vector<Cohort::Member>& members) const;
  bool choose_members(const CohortNeed& need, int32_t first_block, int32_t block_count,
                      std::vector<Cohort::Member>& members) const;
  bool fits(const Worker& worker, CoreKind core) const;
  Cohort& idle_cohort();

  mutable SpinLock lock_;
  std::vector<Worker*> workers_;
  std::vector<bool> reserved_;                // by worker
  std::deque<CohortNeed> waiting_;            // first come, first served
  std::vector<std::unique_ptr<Cohort>> all_;  // made when needed, kept
  std::vector<Cohort*> idle_;
};

}  // namespace gapless
