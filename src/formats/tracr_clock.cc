// SPDX-License-Identifier: Apache-2.0

#include "formats/tracr_clock.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace gapless {
namespace {

// No counter runs at more than 6 GHz, so no period is below 3 s and no wrap jumps back by less.
constexpr uint64_t kSmallestJumpNs = 1'000'000'000;
// Smaller steps back are noise of the clock between cores, not a sign that a file is unsorted.
constexpr uint64_t kNoiseNs = 1'000'000;
// How many gaps on each side of a jump say how dense the events are there.
constexpr size_t kNearbyGaps = 16;

// Frequencies of the fixed counters of ARM machines and of Ascend devices (50 MHz, 1 GHz). The
// counters of x86 have no round numbers.
constexpr std::array<double, 8> kNominalHz = {1e9, 125e6, 100e6, 62.5e6, 50e6, 25e6, 24e6, 19.2e6};

// The jumps of one thread and what they look like.
struct JumpsOfThread {
  std::vector<size_t> positions;  // of the first record after each jump
  uint64_t latest_ns = 0;
  uint64_t largest_gap_ns = 0;
};

uint64_t jump_ns(std::span<const TracrRecord> records, size_t position) {
  return records[position - 1].time_ns - records[position].time_ns;
}

// A jump is a step back by more than half of the largest time. A thread that also goes back by less
// is unsorted, and its jumps say nothing about a clock.
JumpsOfThread find_jumps(std::span<const TracrRecord> records) {
  JumpsOfThread jumps;
  for (const TracrRecord& record : records) {
    jumps.latest_ns = std::max(jumps.latest_ns, record.time_ns);
  }
  if (jumps.latest_ns > kTracrLongestPeriodNs) return jumps;
  const uint64_t least_ns = std::max(kSmallestJumpNs, jumps.latest_ns / 2);
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].time_ns >= records[i - 1].time_ns) {
      const uint64_t gap_ns = records[i].time_ns - records[i - 1].time_ns;
      jumps.largest_gap_ns = std::max(jumps.largest_gap_ns, gap_ns);
    } else if (jump_ns(records, i) >= least_ns) {
      jumps.positions.push_back(i);
    } else if (jump_ns(records, i) > kNoiseNs) {
      jumps.positions.clear();
      return jumps;
    }
  }
  return jumps;
}

// A wrap from just below the period to just above 0 jumps by nearly the period. A jump that leaves
// more of it unexplained than the thread was ever silent for is no wrap.
bool is_plausible(std::span<const TracrRecord> records, const JumpsOfThread& jumps,
                  uint64_t period_ns) {
  const uint64_t silence_ns = std::max(period_ns / 4, 4 * jumps.largest_gap_ns);
  return std::all_of(jumps.positions.begin(), jumps.positions.end(), [&](size_t position) {
    return jump_ns(records, position) + silence_ns >= period_ns;
  });
}

// The median time between records around a jump: what the jump itself hides.
uint64_t typical_gap_ns(std::span<const TracrRecord> records, size_t position) {
  const size_t first = position > kNearbyGaps ? position - kNearbyGaps : 1;
  const size_t last = std::min(records.size(), position + kNearbyGaps + 1);
  std::vector<uint64_t> gaps;
  for (size_t i = first; i < last; ++i) {
    if (records[i].time_ns < records[i - 1].time_ns) continue;
    gaps.push_back(records[i].time_ns - records[i - 1].time_ns);
  }
  if (gaps.empty()) return 0;
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
  std::nth_element(gaps.begin(), middle, gaps.end());
  return *middle;
}

// The period is above every time seen and above every jump; the largest jump misses it by about
// one gap.
ClockRepair estimate_period(const std::vector<TracrThreadRecords>& threads,
                            const std::vector<JumpsOfThread>& jumps) {
  uint64_t latest_ns = 0;
  uint64_t largest_jump_ns = 0;
  uint64_t gap_ns = 0;
  ClockRepair repair;
  for (size_t t = 0; t < threads.size(); ++t) {
    if (jumps[t].positions.empty()) continue;
    latest_ns = std::max(latest_ns, jumps[t].latest_ns);
    repair.wrap_count += jumps[t].positions.size();
    ++repair.thread_count;
    for (const size_t position : jumps[t].positions) {
      const uint64_t back_ns = jump_ns(threads[t].records, position);
      if (back_ns <= largest_jump_ns) continue;
      largest_jump_ns = back_ns;
      gap_ns = typical_gap_ns(threads[t].records, position);
    }
  }
  // A thread without a jump may have come closer to the end of the period.
  for (const JumpsOfThread& other : jumps) {
    if (other.latest_ns <= latest_ns + latest_ns / 20) {
      latest_ns = std::max(latest_ns, other.latest_ns);
    }
  }
  const uint64_t least_ns = std::max(latest_ns + 1, largest_jump_ns);
  const uint64_t period_ns = std::max(least_ns, largest_jump_ns + gap_ns);
  repair.period_ns = static_cast<int64_t>(period_ns);
  repair.uncertainty_ns = static_cast<int64_t>(std::max(gap_ns, period_ns - least_ns));

  const double tolerance_ns =
      std::max(2.0 * static_cast<double>(gap_ns), static_cast<double>(period_ns) / 100);
  double nearest_ns = tolerance_ns;
  for (const double hz : kNominalHz) {
    const double nominal_ns = std::ldexp(1.0, 64) / hz;
    const double distance_ns = std::abs(nominal_ns - static_cast<double>(period_ns));
    if (nominal_ns < static_cast<double>(least_ns) || distance_ns > nearest_ns) continue;
    nearest_ns = distance_ns;
    repair.period_ns = std::llround(nominal_ns);
    repair.is_nominal = true;
  }
  return repair;
}

int64_t first_ns(const TracrThreadRecords& thread) {
  return static_cast<int64_t>(thread.records.front().time_ns);
}

int64_t last_ns(const TracrThreadRecords& thread) {
  return static_cast<int64_t>(thread.records.back().time_ns);
}

void add_periods(TracrThreadRecords& thread, const std::vector<size_t>& positions, int64_t first,
                 int64_t period_ns) {
  uint64_t shift_ns = static_cast<uint64_t>(first * period_ns);
  size_t next = 0;
  for (size_t i = 0; i < thread.records.size(); ++i) {
    if (next < positions.size() && positions[next] == i) {
      shift_ns += static_cast<uint64_t>(period_ns);
      ++next;
    }
    thread.records[i].time_ns += shift_ns;
  }
}

struct FirstPeriod {
  int64_t index = 0;
  bool is_ambiguous = false;  // another one fits as well
};

// A thread that began after a wrap has no jump of its own for it. Its first period is the one in
// which it runs beside the thread with the most wraps for the longest time; the earlier of two.
FirstPeriod first_period(const TracrThreadRecords& thread, const JumpsOfThread& jumps,
                         const TracrThreadRecords& reference, int64_t most, const RunLimits& limits,
                         int64_t period_ns) {
  const int64_t begin = first_ns(thread);
  const int64_t end = last_ns(thread) + static_cast<int64_t>(jumps.positions.size()) * period_ns;
  FirstPeriod best;
  int64_t best_overlap_ns = -1;
  for (int64_t candidate = 0; candidate <= most; ++candidate) {
    const int64_t shift_ns = candidate * period_ns;
    if (limits.start_ns < period_ns && begin + shift_ns < limits.start_ns) continue;
    const int64_t beside_ns = std::min(end + shift_ns, last_ns(reference)) -
                              std::max(begin + shift_ns, first_ns(reference));
    const int64_t overlap_ns = std::max<int64_t>(beside_ns, 0);
    if (overlap_ns == best_overlap_ns) best.is_ambiguous = true;
    if (overlap_ns <= best_overlap_ns) continue;
    best = {candidate, false};
    best_overlap_ns = overlap_ns;
  }
  return best;
}

bool all_within(const std::vector<TracrThreadRecords>& threads, const RunLimits& limits) {
  if (limits.start_ns == 0 || limits.end_ns < limits.start_ns) return false;
  for (const TracrThreadRecords& thread : threads) {
    for (const TracrRecord& record : thread.records) {
      if (record.time_ns < static_cast<uint64_t>(limits.start_ns)) return false;
      if (record.time_ns > static_cast<uint64_t>(limits.end_ns)) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<ClockRepair> repair_clock_wrap(std::vector<TracrThreadRecords>& threads,
                                             const RunLimits& limits) {
  if (all_within(threads, limits)) return std::nullopt;
  std::vector<JumpsOfThread> jumps;
  uint64_t latest_ns = 0;
  for (const TracrThreadRecords& thread : threads) {
    jumps.push_back(find_jumps(thread.records));
    if (!jumps.back().positions.empty()) latest_ns = std::max(latest_ns, jumps.back().latest_ns);
  }
  size_t reference = 0;
  for (size_t t = 0; t < threads.size(); ++t) {
    if (!is_plausible(threads[t].records, jumps[t], latest_ns)) jumps[t].positions.clear();
    if (jumps[t].positions.size() > jumps[reference].positions.size()) reference = t;
  }
  if (threads.empty() || jumps[reference].positions.empty()) return std::nullopt;

  ClockRepair repair = estimate_period(threads, jumps);
  const int64_t most_wraps = static_cast<int64_t>(jumps[reference].positions.size());
  if (most_wraps + 2 > kMaxTimeNs / repair.period_ns) return std::nullopt;
  // The clock may have wrapped between START and the first record.
  const bool before_start =
      limits.start_ns < repair.period_ns && first_ns(threads[reference]) < limits.start_ns;
  add_periods(threads[reference], jumps[reference].positions, before_start ? 1 : 0,
              repair.period_ns);
  for (size_t t = 0; t < threads.size(); ++t) {
    if (t == reference || threads[t].records.empty()) continue;
    // A thread with times beyond the period is on another clock; it is left as it is.
    if (jumps[t].latest_ns > static_cast<uint64_t>(repair.period_ns)) continue;
    const FirstPeriod first = first_period(threads[t], jumps[t], threads[reference], most_wraps + 1,
                                           limits, repair.period_ns);
    if (first.is_ambiguous) ++repair.ambiguous_thread_count;
    add_periods(threads[t], jumps[t].positions, first.index, repair.period_ns);
  }
  return repair;
}

}  // namespace gapless
