// SPDX-License-Identifier: Apache-2.0
//
// Without overhead the machine must be a list schedule. The reference here knows nothing of
// threads, polls or slots: it goes from event to event, keeps every flow apart and finds all rates
// anew each time.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "sim/fluid.h"
#include "sim/machine.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

__extension__ typedef __int128 Wide;  // NOLINT(modernize-use-using)

class ListSchedule {
 public:
  ListSchedule(const DeviceProfile& profile, const SimGraph& graph)
      : profile_(profile), graph_(graph), cluster_cores_(1 + profile.vector_cores) {
    busy_.assign(static_cast<size_t>(profile.cluster_count * cluster_cores_), false);
    next_block_.assign(graph.task_count(), 0);
    blocks_left_.resize(graph.task_count());
    producers_left_.resize(graph.task_count());
  }

  int64_t makespan() {
    for (uint32_t task = 0; task < graph_.task_count(); ++task) {
      blocks_left_[task] = graph_.task(task).block_count;
      producers_left_[task] = graph_.producers(task).size();
    }
    for (uint32_t task = 0; task < graph_.task_count(); ++task) {
      if (producers_left_[task] == 0) queue_of(task).push_back(task);
    }
    place_all();
    while (!blocks_.empty()) {
      advance(next_time());
      finish_blocks();
      place_all();
    }
    return now_ns_;
  }

 private:
  // What one core does: bytes and a timer at once; over when both are.
  struct Part {
    size_t core;
    bool is_vector;
    Wide missing;  // billionths of a byte
    int64_t timer_end_ns;
    int64_t rate = 0;
  };
  struct Block {
    uint32_t task;
    std::vector<Part> parts;
  };

  std::deque<uint32_t>& queue_of(uint32_t task) {
    return queues_[static_cast<size_t>(graph_.task(task).shape)];
  }

  static int64_t seconds_to_ns(int64_t amount, int64_t per_second) {
    return static_cast<int64_t>((Wide{amount} * 1'000'000'000 + per_second - 1) / per_second);
  }

  Part make_part(const SimCost& cost, size_t core, bool is_vector) const {
    if (cost.run_ns != kModelled) return {core, is_vector, 0, now_ns_ + cost.run_ns};
    const int64_t rate = is_vector ? profile_.vector_flops_per_s : profile_.cube_bf16_flops_per_s;
    return {core, is_vector, Wide{cost.bytes} * 1'000'000'000,
            now_ns_ + seconds_to_ns(cost.flops, rate)};
  }

  // The lowest core, or the cube core of the lowest cluster, that is free.
  size_t free_place(SimShape shape) const {
    const size_t step = static_cast<size_t>(cluster_cores_);
    for (size_t core = 0; core < busy_.size(); ++core) {
      const bool is_cube = core % step == 0;
      if (busy_[core] || is_cube == (shape == SimShape::kVector)) continue;
      bool is_free = true;
      for (size_t part = 1; shape == SimShape::kMix && part < step; ++part) {
        is_free = is_free && !busy_[core + part];
      }
      if (is_free) return core;
    }
    return busy_.size();
  }

  // Blocks of the first task, as many as fit; the rest goes to the end of the queue.
  bool place_first(SimShape shape) {
    std::deque<uint32_t>& queue = queues_[static_cast<size_t>(shape)];
    if (queue.empty() || free_place(shape) == busy_.size()) return false;
    const uint32_t task = queue.front();
    queue.pop_front();
    const SimTask& facts = graph_.task(task);
    while (next_block_[task] < facts.block_count) {
      const size_t core = free_place(shape);
      if (core == busy_.size()) break;
      ++next_block_[task];
      Block block{task, {}};
      if (shape != SimShape::kVector) block.parts.push_back(make_part(facts.cube, core, false));
      const int64_t vectors = shape == SimShape::kMix ? profile_.vector_cores : 0;
      for (int64_t part = 1; part <= vectors; ++part) {
        block.parts.push_back(make_part(facts.vector, core + static_cast<size_t>(part), true));
      }
      if (shape == SimShape::kVector) block.parts.push_back(make_part(facts.vector, core, true));
      for (const Part& part : block.parts) busy_[part.core] = true;
      blocks_.push_back(block);
    }
    if (next_block_[task] < facts.block_count) queue.push_back(task);
    return true;
  }

  void place_all() {
    while (true) {
      if (place_first(SimShape::kMix)) continue;
      if (!queues_[0].empty()) break;
      if (place_first(SimShape::kCube)) continue;
      if (place_first(SimShape::kVector)) continue;
      break;
    }
  }

  void set_rates() {
    std::vector<Part*> open;
    for (Block& block : blocks_) {
      for (Part& part : block.parts) {
        part.rate = 0;
        if (part.missing > 0) open.push_back(&part);
      }
    }
    int64_t left = profile_.hbm_bytes_per_s;
    while (!open.empty()) {
      const int64_t equal = left / static_cast<int64_t>(open.size());
      std::vector<Part*> above;
      for (Part* part : open) {
        const int64_t cap =
            part->is_vector ? profile_.vector_bytes_per_s : profile_.cube_bytes_per_s;
        part->rate = std::min(cap, equal);
        if (part->rate == equal) above.push_back(part);
        if (part->rate < equal) left -= part->rate;
      }
      if (above.size() == open.size()) return;
      open = above;
    }
  }

  int64_t next_time() {
    set_rates();
    int64_t time_ns = kNever;
    for (const Block& block : blocks_) {
      for (const Part& part : block.parts) {
        if (part.missing > 0) {
          const Wide wait = (part.missing + part.rate - 1) / part.rate;
          time_ns = std::min(time_ns, now_ns_ + static_cast<int64_t>(wait));
        }
        if (part.timer_end_ns > now_ns_) time_ns = std::min(time_ns, part.timer_end_ns);
      }
    }
    return time_ns;
  }

  void advance(int64_t time_ns) {
    for (Block& block : blocks_) {
      for (Part& part : block.parts) part.missing -= Wide{part.rate} * (time_ns - now_ns_);
    }
    now_ns_ = time_ns;
  }

  // Ends are seen core by core; the block of a cluster counts where its last core stands.
  void finish_blocks() {
    const auto is_over = [this](const Block& block) {
      return std::all_of(block.parts.begin(), block.parts.end(), [this](const Part& part) {
        return part.missing <= 0 && part.timer_end_ns <= now_ns_;
      });
    };
    std::vector<Block> over;
    for (const Block& block : blocks_) {
      if (is_over(block)) over.push_back(block);
    }
    std::erase_if(blocks_, is_over);
    std::sort(over.begin(), over.end(), [](const Block& a, const Block& b) {
      return a.parts.back().core < b.parts.back().core;
    });
    for (const Block& block : over) {
      for (const Part& part : block.parts) busy_[part.core] = false;
      if (--blocks_left_[block.task] > 0) continue;
      for (const uint32_t consumer : graph_.consumers(block.task)) {
        if (--producers_left_[consumer] == 0) queue_of(consumer).push_back(consumer);
      }
    }
  }

  const DeviceProfile& profile_;
  const SimGraph& graph_;
  int64_t cluster_cores_;
  std::vector<bool> busy_;  // cluster by cluster, the cube core first
  std::vector<uint32_t> next_block_;
  std::vector<uint32_t> blocks_left_;
  std::vector<size_t> producers_left_;
  std::deque<uint32_t> queues_[kSimShapeCount];
  std::vector<Block> blocks_;
  int64_t now_ns_ = 0;
};

// Goal: with all overheads zero the makespan is that of the list schedule, to the nanosecond.
// Method: random graphs on small and large machines.
void expect_list_schedules(const RandomSimOptions& options, uint64_t seed) {
  std::mt19937_64 random(seed);
  const DeviceProfile large = ideal_profile();
  const DeviceProfile small = ideal_profile({"cluster.count=3", "hbm.bytes_per_s=150e9"});
  const DeviceProfile tiny =
      ideal_profile({"cluster.count=1", "cluster.vector_cores=1", "hbm.bytes_per_s=60e9"});
  for (int round = 0; round < 60; ++round) {
    const SimGraph graph = random_sim_graph(random, options);
    for (const DeviceProfile* profile : {&large, &small, &tiny}) {
      const Result<SimResult> result = simulate(*profile, graph);
      ASSERT_TRUE(result.has_value()) << result.error().message;
      ASSERT_EQ(result->makespan_ns, ListSchedule(*profile, graph).makespan())
          << "round " << round << ", " << profile->cluster_count << " clusters";
    }
  }
}

TEST(ListSchedule, IsWhatTheMachineDoesWithGivenTimes) {
  expect_list_schedules({.has_mix = false}, 1);
}

TEST(ListSchedule, IsWhatTheMachineDoesWithMixedTasks) { expect_list_schedules({}, 2); }

TEST(ListSchedule, IsWhatTheMachineDoesWithSharedMemory) {
  expect_list_schedules({.has_memory = true, .has_mix = false}, 3);
}

TEST(ListSchedule, IsWhatTheMachineDoesWithMixedTasksAndSharedMemory) {
  expect_list_schedules({.has_memory = true}, 4);
}

}  // namespace
}  // namespace gapless
