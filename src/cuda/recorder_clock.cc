// SPDX-License-Identifier: Apache-2.0

#include "cuda/recorder_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gapless {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kUnknownCycleNs = 0.6;    // of an SM with one reading
constexpr double kMaxDistanceNs = 0x1p60;  // so that sums of times fit
constexpr double kTailNs = 200'000.0;      // whose rate goes on behind the last reading
constexpr double kUsualTicks = 32.0;       // readings that far apart show the usual rate
constexpr double kRestTimes = 4.0;         // slower than usual: a rest, when it is also longer than
constexpr double kRestTicks = 64.0;
constexpr size_t kMaxReach = 512;  // readings of a straight part: bounds the search

bool is_before(const SmAnchor& a, const SmAnchor& b) {
  return a.clock != b.clock ? a.clock < b.clock : a.time_ns < b.time_ns;
}

double cycles_between(uint64_t begin, uint64_t end) {
  return end >= begin ? static_cast<double>(end - begin) : -static_cast<double>(begin - end);
}

// The places of the longest run of times that do not fall, in order.
std::vector<size_t> longest_run(const std::vector<SmAnchor>& anchors) {
  std::vector<size_t> ends;  // by length of a run: the place of the lowest time that ends one
  std::vector<size_t> before(anchors.size());
  for (size_t i = 0; i < anchors.size(); ++i) {
    const auto end = std::upper_bound(
        ends.begin(), ends.end(), anchors[i].time_ns,
        [&anchors](int64_t time_ns, size_t place) { return time_ns < anchors[place].time_ns; });
    before[i] = end == ends.begin() ? i : *(end - 1);
    if (end == ends.end()) {
      ends.push_back(i);
    } else {
      *end = i;
    }
  }
  std::vector<size_t> run(ends.size());
  size_t place = ends.empty() ? 0 : ends.back();
  for (size_t i = run.size(); i > 0; --i) {
    run[i - 1] = place;
    place = before[place];
  }
  return run;
}

// The median.
double usual_cycle_ns(const std::vector<SmAnchor>& readings, double tick) {
  std::vector<double> rates;
  for (size_t i = 1; i < readings.size(); ++i) {
    const double ns = static_cast<double>(readings[i].time_ns - readings[i - 1].time_ns);
    if (ns < kUsualTicks * tick) continue;
    rates.push_back(ns / cycles_between(readings[i - 1].clock, readings[i].clock));
  }
  if (rates.empty()) return kUnknownCycleNs;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>((rates.size() - 1) / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return *middle;
}

}  // namespace

SmClock::SmClock(std::vector<SmAnchor> anchors, int64_t tick_ns) {
  if (anchors.empty()) return;
  const std::vector<SmAnchor> readings = take_readings(std::move(anchors), tick_ns);
  const double tick = static_cast<double>(tick_ns);
  base_ns_ = readings.front().time_ns;
  usual_cycle_ns_ = usual_cycle_ns(readings, tick);
  std::vector<SmAnchor> part;
  for (const SmAnchor& reading : readings) {
    if (!part.empty()) {
      const double ns = static_cast<double>(reading.time_ns - part.back().time_ns);
      const double usual_ns = usual_cycle_ns_ * cycles_between(part.back().clock, reading.clock);
      if (ns > kRestTimes * usual_ns + kRestTicks * tick) {
        add_part(part, tick);
        const Knot last = knots_.back();
        const double cycles = cycles_between(last.clock, reading.clock) - 1.0;
        if (cycles > 0.0)
          knots_.push_back({reading.clock - 1, last.time_ns + tail_cycle_ns_ * cycles});
        part.clear();
      }
    }
    part.push_back(reading);
  }
  add_part(part, tick);
}

// A string of its own.
void SmClock::add_part(const std::vector<SmAnchor>& readings, double tick) {
  const size_t first_knot = knots_.size();
  const double begin_ns = static_cast<double>(readings.front().time_ns - base_ns_);
  knots_.push_back({readings.front().clock, begin_ns + tick / 2});
  for (size_t reading = 0; reading + 1 < readings.size();) {
    const Reach reach = next_knot(readings, reading, tick);
    knots_.push_back(reach.knot);
    reading = reach.reading;
  }
  tail_cycle_ns_ = tail_cycle_ns(first_knot, tick);
}

std::vector<SmAnchor> SmClock::take_readings(std::vector<SmAnchor> anchors, int64_t tick_ns) {
  std::sort(anchors.begin(), anchors.end(), is_before);
  const std::vector<size_t> run = longest_run(anchors);
  std::vector<SmAnchor> readings;
  size_t next = 0;  // of the run
  for (size_t i = 0; i < anchors.size(); ++i) {
    const SmAnchor& anchor = anchors[i];
    if (next < run.size() && run[next] == i) {
      ++next;
      if (readings.empty() || anchor.clock > readings.back().clock) readings.push_back(anchor);
      continue;
    }
    const bool is_early = next > 0 && anchor.time_ns < anchors[run[next - 1]].time_ns - 2 * tick_ns;
    const bool is_late =
        next < run.size() && anchor.time_ns > anchors[run[next]].time_ns + 2 * tick_ns;
    if (is_early || is_late) ++rejected_count_;
  }
  return readings;
}

// From the point of the string that is kTailNs before its end, or from its begin. Its last straight
// part alone may be of two readings side by side, and these say little about the rate.
double SmClock::tail_cycle_ns(size_t first_knot, double tick) const {
  if (knots_.size() < first_knot + 2) return usual_cycle_ns_;
  const Knot& last = knots_.back();
  size_t index = knots_.size() - 2;
  while (index > first_knot && last.time_ns - knots_[index].time_ns < kTailNs) --index;
  const Knot& knot = knots_[index];
  const Knot& next = knots_[index + 1];
  const double part_cycles = cycles_between(knot.clock, next.clock);
  const double part_ns = next.time_ns - knot.time_ns;
  const double skipped_ns = std::clamp(last.time_ns - kTailNs - knot.time_ns, 0.0, part_ns);
  const double skipped_cycles = part_ns > 0.0 ? part_cycles * (skipped_ns / part_ns) : 0.0;
  const double cycles = cycles_between(knot.clock, last.clock) - skipped_cycles;
  const double tail_ns = last.time_ns - knot.time_ns - skipped_ns;
  // Of a few readings side by side it says nothing.
  const bool is_known = tail_ns >= kUsualTicks * tick && cycles > 0.0;
  return is_known ? tail_ns / cycles : usual_cycle_ns_;
}

// From the last knot straight on, for as long as there is a rate that passes between the borders of
// all readings; then the string bends at the reading whose border left no other.
SmClock::Reach SmClock::next_knot(const std::vector<SmAnchor>& readings, size_t from,
                                  double tick) const {
  const Knot knot = knots_.back();
  double low = -kInfinite;  // rates
  double high = kInfinite;
  Reach low_bend;
  Reach high_bend;
  for (size_t i = from + 1;; ++i) {
    const bool is_last = i + 1 == readings.size();
    const double time_ns = static_cast<double>(readings[i].time_ns - base_ns_);
    const double bottom_ns = is_last ? time_ns + tick / 2 : time_ns;
    const double top_ns = is_last ? bottom_ns : time_ns + tick;
    const double cycles = cycles_between(knot.clock, readings[i].clock);
    const double bottom_rate = (bottom_ns - knot.time_ns) / cycles;
    const double top_rate = (top_ns - knot.time_ns) / cycles;
    if (bottom_rate > high) return high_bend;
    if (top_rate < low) return low_bend;
    if (bottom_rate >= low) {
      low = bottom_rate;
      low_bend = {{readings[i].clock, bottom_ns}, i};
    }
    if (top_rate <= high) {
      high = top_rate;
      high_bend = {{readings[i].clock, top_ns}, i};
    }
    if (is_last || i - from == kMaxReach) {
      return {{readings[i].clock, knot.time_ns + (low + high) / 2 * cycles}, i};
    }
  }
}

int64_t SmClock::time_ns(uint64_t clock) const {
  if (knots_.empty()) return 0;
  const auto after =
      std::upper_bound(knots_.begin(), knots_.end(), clock,
                       [](uint64_t value, const Knot& knot) { return value < knot.clock; });
  const size_t behind = static_cast<size_t>(after - knots_.begin());
  const size_t index = behind == 0 ? 0 : behind - 1;
  double cycle_ns = tail_cycle_ns_;
  if (index + 1 < knots_.size()) {
    const Knot& next = knots_[index + 1];
    cycle_ns =
        (next.time_ns - knots_[index].time_ns) / cycles_between(knots_[index].clock, next.clock);
  }
  const Knot& knot = knots_[index];
  const double ns = knot.time_ns + cycle_ns * cycles_between(knot.clock, clock);
  return base_ns_ +
         static_cast<int64_t>(std::floor(std::clamp(ns, -kMaxDistanceNs, kMaxDistanceNs)));
}

}  // namespace gapless
