// SPDX-License-Identifier: Apache-2.0

#include "runtime/cohort.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace gapless {

CohortBoard::CohortBoard(std::vector<Worker*> workers)
    : workers_(std::move(workers)), reserved_(workers_.size(), false) {}

bool CohortBoard::fits(const Worker& worker, CoreKind core) const {
  if (worker.kind == WorkerKind::kAny || core == CoreKind::kAny) return true;
  return core == CoreKind::kCube ? worker.kind == WorkerKind::kCube
                                 : worker.kind == WorkerKind::kVector;
}

// A cluster a block.
bool CohortBoard::choose_clusters(int32_t first_block, int32_t block_count,
                                  std::vector<Cohort::Member>& members) const {
  const int32_t end_block = first_block + block_count;
  int32_t block = first_block;
  for (size_t first = 0; first + 2 < workers_.size() && block < end_block; first += 3) {
    if (reserved_[first] || reserved_[first + 1] || reserved_[first + 2]) continue;
    for (size_t i = first; i < first + 3; ++i) {
      members.push_back({static_cast<int>(i), block, workers_[i]->role});
    }
    ++block;
  }
  return block == end_block;
}

// Idle workers are taken first: they can come at once. The thread that submits comes last.
bool CohortBoard::choose_members(const CohortNeed& need, int32_t first_block, int32_t block_count,
                                 std::vector<Cohort::Member>& members) const {
  members.clear();
  if (need.core == CoreKind::kMixed && workers_[0]->kind != WorkerKind::kAny) {
    return choose_clusters(first_block, block_count, members);
  }
  const int32_t end_block = first_block + block_count;
  int32_t block = first_block;
  for (const bool wants_idle : {true, false}) {
    for (size_t i = workers_.size(); i-- > 0 && block < end_block;) {
      // What a worker does may change between the two rounds, so the second takes any that is left:
      // to find too few here would be to wait for nobody.
      const Activity activity = workers_[i]->activity.load(std::memory_order_relaxed);
      if (reserved_[i] || !fits(*workers_[i], need.core)) continue;
      if (wants_idle && activity != Activity::kSearching) continue;
      const auto is_member = [i](const Cohort::Member& member) {
        return member.worker == static_cast<int>(i);
      };
      if (std::any_of(members.begin(), members.end(), is_member)) continue;
      members.push_back({static_cast<int>(i), block++, MixedRole::kWhole});
    }
  }
  return block == end_block;
}

Cohort& CohortBoard::idle_cohort() {
  if (idle_.empty()) {
    all_.push_back(std::make_unique<Cohort>());
    idle_.push_back(all_.back().get());
  }
  Cohort& cohort = *idle_.back();
  idle_.pop_back();
  return cohort;
}

// A gang takes all its blocks at once; other mixed tasks take a cluster a block. `need` keeps the
// blocks that are still to be placed, counted from the end.
bool CohortBoard::try_reserve(CohortNeed& need) {
  Cohort& cohort = idle_cohort();
  const int32_t wanted = need.gang ? need.block_count : 1;
  const int32_t first_block = need.gang ? 0 : need.block_count - 1;
  if (!choose_members(need, first_block, wanted, cohort.members)) {
    idle_.push_back(&cohort);
    return false;
  }
  cohort.task = need.task;
  cohort.arrived.store(0, std::memory_order_relaxed);
  cohort.decision.store(Cohort::Decision::kNone, std::memory_order_relaxed);
  cohort.left.store(static_cast<int>(cohort.members.size()), std::memory_order_relaxed);
  for (const Cohort::Member& member : cohort.members) {
    reserved_[static_cast<size_t>(member.worker)] = true;
  }
  for (const Cohort::Member& member : cohort.members) {
    workers_[static_cast<size_t>(member.worker)]->reservation.store(&cohort,
                                                                    std::memory_order_release);
  }
  need.block_count -= wanted;
  return true;
}

void CohortBoard::serve() {
  while (!waiting_.empty() && try_reserve(waiting_.front())) {
    if (waiting_.front().block_count == 0) waiting_.pop_front();
  }
}

void CohortBoard::add(const CohortNeed& need) {
  const std::lock_guard<SpinLock> guard(lock_);
  waiting_.push_back(need);
  serve();
}

void CohortBoard::dissolve(Cohort& cohort) {
  const std::lock_guard<SpinLock> guard(lock_);
  for (const Cohort::Member& member : cohort.members) {
    reserved_[static_cast<size_t>(member.worker)] = false;
  }
  idle_.push_back(&cohort);
  serve();
}

Cohort::Decision CohortBoard::gather(Cohort& cohort, bool is_cancelled) {
  const int size = static_cast<int>(cohort.members.size());
  if (cohort.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
    cohort.decision.store(is_cancelled ? Cohort::Decision::kLeaveOut : Cohort::Decision::kRun,
                          std::memory_order_release);
  }
  SpinWait wait;
  Cohort::Decision decision = Cohort::Decision::kNone;
  while ((decision = cohort.decision.load(std::memory_order_acquire)) == Cohort::Decision::kNone) {
    wait.poll();
  }
  return decision;
}

const Cohort::Member& CohortBoard::member(const Cohort& cohort, int worker) {
  for (const Cohort::Member& member : cohort.members) {
    if (member.worker == worker) return member;
  }
  GAPLESS_CHECK(false && "a worker joined a cohort that did not reserve it");
  return cohort.members.front();
}

int CohortBoard::worker_count(const CohortNeed& need) const {
  const int blocks = need.gang ? need.block_count : 1;
  const bool takes_clusters = need.core == CoreKind::kMixed && workers_[0]->cluster >= 0;
  return takes_clusters ? blocks * 3 : blocks;
}

std::vector<CohortNeed> CohortBoard::waiting() const {
  const std::lock_guard<SpinLock> guard(lock_);
  return {waiting_.begin(), waiting_.end()};
}

int CohortBoard::free_worker_count() const {
  const std::lock_guard<SpinLock> guard(lock_);
  return static_cast<int>(std::count(reserved_.begin(), reserved_.end(), false));
}

}  // namespace gapless
