// SPDX-License-Identifier: Apache-2.0

#include "report/page_levels.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gapless {
namespace {

constexpr std::array<uint32_t, 3> kBucketCounts = {2048, 8192, 32768};

// Adds up intervals with labels by bucket. They come in order of time and do not overlap, so that
// one bucket is open at a time.
class BucketSweep {
 public:
  BucketSweep(int64_t bucket_ns, uint32_t bucket_count, uint32_t label_count)
      : bucket_ns_(bucket_ns),
        sums_(bucket_count),
        largest_(bucket_count),
        label_ns_(label_count, 0) {}

  void begin_core() {
    std::fill(sums_.begin(), sums_.end(), 0);
    std::fill(largest_.begin(), largest_.end(), 0);
    open_ = 0;
    open_begin_ns_ = 0;
  }

  void add(int64_t begin_ns, int64_t end_ns, uint32_t label) {
    while (begin_ns < end_ns) {
      if (begin_ns - open_begin_ns_ >= bucket_ns_) open(begin_ns);
      const int64_t part_ns = std::min(end_ns - begin_ns, bucket_ns_ - (begin_ns - open_begin_ns_));
      if (label_ns_[label] == 0) seen_.push_back(label);
      label_ns_[label] += part_ns;
      begin_ns += part_ns;
    }
  }

  void end_core() { close(); }

  int64_t sum_ns(size_t bucket) const { return sums_[bucket]; }
  // Its label + 1; 0: none.
  uint32_t largest(size_t bucket) const { return largest_[bucket]; }

 private:
  // The bucket of a time that is after the one that is open.
  void open(int64_t time_ns) {
    close();
    open_ = static_cast<size_t>(time_ns / bucket_ns_);
    open_begin_ns_ = time_ns - time_ns % bucket_ns_;
  }

  void close() {
    int64_t largest_ns = 0;
    for (const uint32_t label : seen_) {
      const int64_t label_ns = label_ns_[label];
      sums_[open_] += label_ns;
      label_ns_[label] = 0;
      const bool is_larger = label_ns > largest_ns;
      if (is_larger || (label_ns == largest_ns && label + 1 < largest_[open_])) {
        largest_ns = label_ns;
        largest_[open_] = label + 1;
      }
    }
    seen_.clear();
  }

  int64_t bucket_ns_;
  std::vector<int64_t> sums_;
  std::vector<uint32_t> largest_;
  size_t open_ = 0;  // the bucket that is being added up
  int64_t open_begin_ns_ = 0;
  std::vector<int64_t> label_ns_;  // in the open bucket
  std::vector<uint32_t> seen_;     // labels whose time is not 0
};

uint8_t busy_byte(int64_t busy_ns, int64_t length_ns) {
  if (busy_ns == 0) return 0;
  if (busy_ns == length_ns) return 255;
  const double share = static_cast<double>(busy_ns) / static_cast<double>(length_ns);
  return static_cast<uint8_t>(std::clamp(std::lround(255.0 * share), 1L, 254L));
}

void append_core(const BucketSweep& runs, const BucketSweep& idle, int64_t window_ns,
                 PageLevel& level) {
  int64_t left_ns = window_ns;
  for (uint32_t bucket = 0; bucket < level.bucket_count; ++bucket) {
    const int64_t length_ns = std::min(left_ns, level.bucket_ns);
    left_ns -= length_ns;
    level.busy.push_back(busy_byte(runs.sum_ns(bucket), length_ns));
    level.kernel.push_back(runs.largest(bucket));
    level.cause.push_back(static_cast<uint8_t>(idle.largest(bucket)));
  }
}

}  // namespace

PageLevel make_level(const LevelInput& input, uint32_t bucket_count) {
  const StepTasks& tasks = input.tasks;
  const int64_t begin_ns = tasks.window().begin_ns;
  PageLevel level;
  level.bucket_count = bucket_count;
  level.bucket_ns = (tasks.window_ns() - 1) / bucket_count + 1;
  const size_t entry_count = size_t{bucket_count} * tasks.core_count();
  level.busy.reserve(entry_count);
  level.kernel.reserve(entry_count);
  level.cause.reserve(entry_count);
  BucketSweep runs(level.bucket_ns, bucket_count, input.kernel_count);
  BucketSweep idle(level.bucket_ns, bucket_count, kBubbleCauseCount);
  const std::vector<size_t> begins = bubble_begins(input.bubbles, tasks.core_count());
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    runs.begin_core();
    for (const uint32_t task : tasks.tasks_of_core(core)) {
      runs.add(tasks.start_ns(task) - begin_ns, tasks.end_ns(task) - begin_ns,
               input.task_kernels[task]);
    }
    runs.end_core();
    idle.begin_core();
    for (size_t i = begins[core]; i < begins[core + 1]; ++i) {
      const Bubble& bubble = input.bubbles.bubbles[i];
      idle.add(bubble.begin_ns - begin_ns, bubble.end_ns - begin_ns,
               static_cast<uint32_t>(bubble.cause));
    }
    idle.end_core();
    append_core(runs, idle, tasks.window_ns(), level);
  }
  return level;
}

std::vector<uint32_t> level_bucket_counts(const StepTasks& tasks, const BubblePartition& bubbles) {
  const std::vector<size_t> begins = bubble_begins(bubbles, tasks.core_count());
  size_t fullest = 0;
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    fullest = std::max(fullest, tasks.tasks_of_core(core).size() + begins[core + 1] - begins[core]);
  }
  std::vector<uint32_t> counts = {kBucketCounts.front()};
  for (const uint32_t count : kBucketCounts) {
    if (count > counts.front() && count <= 2 * fullest) counts.push_back(count);
  }
  return counts;
}

std::vector<size_t> bubble_begins(const BubblePartition& bubbles, uint32_t core_count) {
  std::vector<size_t> begins(size_t{core_count} + 1, 0);
  for (const Bubble& bubble : bubbles.bubbles) ++begins[size_t{bubble.core} + 1];
  for (size_t core = 1; core < begins.size(); ++core) begins[core] += begins[core - 1];
  return begins;
}

}  // namespace gapless
