// SPDX-License-Identifier: Apache-2.0
//
// Levels of detail of the page's timeline: what each core did in each of some thousand pieces of
// the window, so that a page that shows a million tasks draws buckets and not tasks.
//
// Sums are exact, in nanoseconds; one pass over a core's tasks and bubbles makes its buckets. Costs
// tasks + bubbles + buckets for each level.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/bubbles.h"
#include "analysis/step_tasks.h"

namespace gapless {

struct PageLevel {
  uint32_t bucket_count = 0;  // of each core
  int64_t bucket_ns = 0;      // the last ones may reach beyond the window, or lie there
  // By core, then bucket.
  std::vector<uint8_t> busy;     // of 255; 0 and 255 only where it was idle or busy throughout
  std::vector<uint32_t> kernel;  // the one that ran longest + 1; 0: none ran
  std::vector<uint8_t> cause;    // the largest of the bubbles + 1; 0: no bubble
};

struct LevelInput {
  const StepTasks& tasks;
  const BubblePartition& bubbles;
  std::span<const uint32_t> task_kernels;  // by task: less than kernel_count
  uint32_t kernel_count = 0;
};

// Of two kernels, or causes, with the same time in a bucket it is the one with the smaller number.
PageLevel make_level(const LevelInput& input, uint32_t bucket_count);

// Which levels are worth making, coarsest first. Buckets that are many more than the tasks and
// bubbles of any core would be larger than what they stand for.
std::vector<uint32_t> level_bucket_counts(const StepTasks& tasks, const BubblePartition& bubbles);

// Where the bubbles of each core begin among all: [core + 1].
std::vector<size_t> bubble_begins(const BubblePartition& bubbles, uint32_t core_count);

}  // namespace gapless
