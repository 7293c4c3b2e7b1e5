// SPDX-License-Identifier: Apache-2.0

#include "runtime/cohort.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

// Workers that nobody drives: what a worker would do at the end of its part is done by the test.
class CohortBoardTest : public ::testing::Test {
 protected:
  void make_board(int worker_count) {
    for (int i = 0; i < worker_count; ++i) {
      workers_.push_back(std::make_unique<Worker>());
      workers_.back()->index = i;
    }
    start();
  }
  void make_cluster_board(int cluster_count) {
    for (int i = 0; i < cluster_count * 3; ++i) {
      workers_.push_back(std::make_unique<Worker>());
      Worker& worker = *workers_.back();
      worker.index = i;
      worker.cluster = i / 3;
      worker.kind = i % 3 == 0 ? WorkerKind::kCube : WorkerKind::kVector;
      worker.role = static_cast<MixedRole>(1 + i % 3);
    }
    start();
  }

  Cohort* cohort_of(int worker) const {
    return workers_[static_cast<size_t>(worker)]->reservation.load();
  }
  void set_searching(int worker) {
    workers_[static_cast<size_t>(worker)]->set_activity(Activity::kSearching);
  }
  // The workers of the cohort that this task got, smallest first.
  std::vector<int> workers_of(uint32_t task) const {
    std::vector<int> found;
    for (const std::unique_ptr<Worker>& worker : workers_) {
      const Cohort* const cohort = worker->reservation.load();
      if (cohort != nullptr && cohort->task == task) found.push_back(worker->index);
    }
    return found;
  }
  // All members have run their part.
  void end_cohort_of(int worker) {
    Cohort* const cohort = cohort_of(worker);
    ASSERT_NE(cohort, nullptr);
    for (const Cohort::Member& member : cohort->members) {
      workers_[static_cast<size_t>(member.worker)]->reservation.store(nullptr);
    }
    board_->dissolve(*cohort);
  }
  std::vector<uint32_t> waiting() const {
    std::vector<uint32_t> tasks;
    for (const CohortNeed& need : board_->waiting()) tasks.push_back(need.task);
    return tasks;
  }
  void add_gang(uint32_t task, int32_t block_count, CoreKind core = CoreKind::kAny) {
    board_->add({.task = task, .core = core, .block_count = block_count, .gang = true});
  }

  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<CohortBoard> board_;

 private:
  void start() {
    std::vector<Worker*> pointers;
    for (const std::unique_ptr<Worker>& worker : workers_) pointers.push_back(worker.get());
    board_ = std::make_unique<CohortBoard>(pointers);
  }
};

using Tasks = std::vector<uint32_t>;
using Workers = std::vector<int>;

TEST_F(CohortBoardTest, AGangGetsAllItsWorkersAtOnce) {
  make_board(4);
  add_gang(7, 3);
  ASSERT_EQ(workers_of(7).size(), 3u);
  EXPECT_EQ(board_->free_worker_count(), 1);
  EXPECT_EQ(waiting(), Tasks{});
  const Cohort& cohort = *cohort_of(workers_of(7)[0]);
  EXPECT_EQ(cohort.left.load(), 3);
  EXPECT_EQ(cohort.arrived.load(), 0);
  std::vector<int32_t> blocks;
  for (const int worker : workers_of(7)) {
    EXPECT_EQ(CohortBoard::member(cohort, worker).worker, worker);
    EXPECT_EQ(CohortBoard::member(cohort, worker).role, MixedRole::kWhole);
    blocks.push_back(CohortBoard::member(cohort, worker).block);
  }
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 2}));
}

TEST_F(CohortBoardTest, AGangThatDoesNotFitGetsNone) {
  make_board(4);
  add_gang(1, 3);
  add_gang(2, 2);
  EXPECT_EQ(waiting(), Tasks{2});
  EXPECT_EQ(workers_of(2), Workers{});
  EXPECT_EQ(board_->free_worker_count(), 1);
}

TEST_F(CohortBoardTest, DissolvingServesTheNext) {
  make_board(4);
  add_gang(1, 3);
  add_gang(2, 2);
  end_cohort_of(workers_of(1)[0]);
  EXPECT_EQ(workers_of(2).size(), 2u);
  EXPECT_EQ(waiting(), Tasks{});
  EXPECT_EQ(board_->free_worker_count(), 2);
  end_cohort_of(workers_of(2)[0]);
  EXPECT_EQ(board_->free_worker_count(), 4);
}

TEST_F(CohortBoardTest, DissolvingServesAllThatFit) {
  make_board(4);
  add_gang(1, 4);
  add_gang(2, 2);
  add_gang(3, 2);
  add_gang(4, 2);
  EXPECT_EQ(waiting(), (Tasks{2, 3, 4}));
  end_cohort_of(0);
  EXPECT_EQ(workers_of(2).size(), 2u);
  EXPECT_EQ(workers_of(3).size(), 2u);
  EXPECT_EQ(waiting(), Tasks{4});
}

TEST_F(CohortBoardTest, ASmallGangDoesNotOvertakeALargeOne) {
  make_board(4);
  add_gang(1, 2);
  add_gang(2, 4);
  add_gang(3, 2);
  EXPECT_EQ(waiting(), (Tasks{2, 3})) << "there is room for task 3, but task 2 was first";
  end_cohort_of(workers_of(1)[0]);
  EXPECT_EQ(workers_of(2).size(), 4u);
  EXPECT_EQ(waiting(), Tasks{3});
  end_cohort_of(0);
  EXPECT_EQ(workers_of(3).size(), 2u);
}

TEST_F(CohortBoardTest, IdleWorkersAreTakenFirst) {
  make_board(4);
  set_searching(0);
  set_searching(2);
  add_gang(1, 2);
  EXPECT_EQ(workers_of(1), (Workers{0, 2}));
}

TEST_F(CohortBoardTest, TheThreadThatSubmitsIsTakenLast) {
  make_board(3);
  add_gang(1, 2);
  EXPECT_EQ(workers_of(1), (Workers{1, 2}));
}

TEST_F(CohortBoardTest, BusyWorkersAreTakenWhereIdleOnesAreTooFew) {
  make_board(3);
  set_searching(1);
  add_gang(1, 3);
  EXPECT_EQ(workers_of(1), (Workers{0, 1, 2}));
}

TEST_F(CohortBoardTest, AGangOfAKindGetsWorkersOfThatKind) {
  make_cluster_board(2);
  add_gang(1, 2, CoreKind::kCube);
  EXPECT_EQ(workers_of(1), (Workers{0, 3}));
  add_gang(2, 4, CoreKind::kVector);
  EXPECT_EQ(workers_of(2), (Workers{1, 2, 4, 5}));
  add_gang(3, 1, CoreKind::kCube);
  EXPECT_EQ(waiting(), Tasks{3});
}

TEST_F(CohortBoardTest, AGangOfAnyKindMayTakeAllKinds) {
  make_cluster_board(1);
  add_gang(1, 3);
  EXPECT_EQ(workers_of(1), (Workers{0, 1, 2}));
}

TEST_F(CohortBoardTest, AMixedBlockTakesACluster) {
  make_cluster_board(2);
  board_->add({.task = 1, .core = CoreKind::kMixed, .block_count = 1, .gang = false});
  ASSERT_EQ(workers_of(1), (Workers{0, 1, 2}));
  const Cohort& cohort = *cohort_of(0);
  EXPECT_EQ(CohortBoard::member(cohort, 0).role, MixedRole::kCube);
  EXPECT_EQ(CohortBoard::member(cohort, 1).role, MixedRole::kVector0);
  EXPECT_EQ(CohortBoard::member(cohort, 2).role, MixedRole::kVector1);
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(CohortBoard::member(cohort, worker).block, 0);
  }
}

TEST_F(CohortBoardTest, AClusterThatIsPartlyReservedIsNotTaken) {
  make_cluster_board(2);
  add_gang(1, 1, CoreKind::kVector);
  const int taken = workers_of(1)[0];
  board_->add({.task = 2, .core = CoreKind::kMixed, .block_count = 1, .gang = false});
  EXPECT_EQ(workers_of(2), taken < 3 ? (Workers{3, 4, 5}) : (Workers{0, 1, 2}));
  board_->add({.task = 3, .core = CoreKind::kMixed, .block_count = 1, .gang = false});
  EXPECT_EQ(waiting(), Tasks{3});
}

TEST_F(CohortBoardTest, MixedBlocksStartOneByOne) {
  make_cluster_board(2);
  board_->add({.task = 1, .core = CoreKind::kMixed, .block_count = 3, .gang = false});
  ASSERT_EQ(workers_of(1).size(), 6u) << "two blocks have a cluster each";
  ASSERT_EQ(board_->waiting().size(), 1u);
  EXPECT_EQ(board_->waiting()[0].block_count, 1) << "one block is left";
  EXPECT_NE(cohort_of(0), cohort_of(3));
  std::vector<int32_t> blocks = {CohortBoard::member(*cohort_of(0), 0).block,
                                 CohortBoard::member(*cohort_of(3), 3).block};
  end_cohort_of(3);
  ASSERT_NE(cohort_of(3), nullptr);
  blocks.push_back(CohortBoard::member(*cohort_of(3), 3).block);
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(waiting(), Tasks{});
}

TEST_F(CohortBoardTest, AMixedGangTakesAllItsClustersAtOnce) {
  make_cluster_board(2);
  board_->add({.task = 1, .core = CoreKind::kMixed, .block_count = 1, .gang = false});
  add_gang(2, 2, CoreKind::kMixed);
  EXPECT_EQ(workers_of(2), Workers{});
  EXPECT_EQ(board_->free_worker_count(), 3);
  end_cohort_of(0);
  ASSERT_EQ(workers_of(2).size(), 6u);
  EXPECT_EQ(cohort_of(0), cohort_of(5));
  EXPECT_NE(CohortBoard::member(*cohort_of(0), 0).block,
            CohortBoard::member(*cohort_of(0), 5).block);
}

TEST_F(CohortBoardTest, AMixedGangWithoutClustersTakesAWorkerABlock) {
  make_board(3);
  add_gang(1, 2, CoreKind::kMixed);
  ASSERT_EQ(workers_of(1), (Workers{1, 2}));
  EXPECT_EQ(CohortBoard::member(*cohort_of(1), 1).role, MixedRole::kWhole);
}

// Goal: what a worker does meanwhile never hides it from the board, or a gang would wait for
// nobody. Method: one worker turns from searching to running and back while gangs of all workers
// are added.
TEST_F(CohortBoardTest, SeesEveryFreeWorkerWhateverItDoes) {
  make_board(2);
  std::atomic<bool> ends = false;
  std::thread turner([this, &ends] {
    while (!ends.load()) {
      workers_[1]->set_activity(Activity::kSearching);
      workers_[1]->set_activity(Activity::kRunning);
    }
  });
  bool is_refused = false;
  for (uint32_t round = 0; round < test_effort(500000) && !is_refused; ++round) {
    add_gang(round, 2);
    is_refused = cohort_of(0) == nullptr;
    if (!is_refused) end_cohort_of(0);
  }
  ends.store(true);
  turner.join();
  EXPECT_FALSE(is_refused);
}

}  // namespace
}  // namespace gapless
