// SPDX-License-Identifier: Apache-2.0
//
// The recorded step on the simulated device: to see how good a fit is, and to find what only a
// whole run shows.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "analysis/calibrate.h"
#include "analysis/calibrate_fit.h"
#include "sim/machine.h"

namespace gapless {
namespace {

constexpr int64_t kMostPollNs = 100'000;
constexpr uint64_t kPollReplays = 3;  // for each point of the line
constexpr int64_t kPollPoints = 16;

// Recorded run times count, not the profile's kernels.
DeviceProfile without_kernels(DeviceProfile profile) {
  profile.kernels.clear();
  return profile;
}

// As the waits of a trace are counted: from the end, or the start of the next where that was in the
// pending slot.
double mean_wait_ns(const SimResult& result) {
  const std::vector<SimRecord>& records = result.records;
  std::vector<uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&records](uint32_t a, uint32_t b) {
    if (records[a].core != records[b].core) return records[a].core < records[b].core;
    return records[a].start_ns != records[b].start_ns ? records[a].start_ns < records[b].start_ns
                                                      : a < b;
  });
  Samples waits;
  for (size_t i = 0; i < order.size(); ++i) {
    const SimRecord& record = records[order[i]];
    int64_t visible_ns = record.end_ns;
    if (i + 1 < order.size() && records[order[i + 1]].core == record.core) {
      const SimRecord& next = records[order[i + 1]];
      if (next.dispatch_ns < record.finish_ns) visible_ns = next.start_ns;
    }
    waits.add(record.finish_ns - visible_ns);
  }
  return waits.mean();
}

// y = a + b x by least squares.
struct Line {
  double count = 0.0;
  double sum_x = 0.0;
  double sum_y = 0.0;
  double sum_xx = 0.0;
  double sum_xy = 0.0;
  void add(double x, double y) {
    count += 1.0;
    sum_x += x;
    sum_y += y;
    sum_xx += x * x;
    sum_xy += x * y;
  }
  // 0 where y does not depend on x.
  double x_at(double y) const {
    const double slope = (count * sum_xy - sum_x * sum_y) / (count * sum_xx - sum_x * sum_x);
    if (!(slope > 0.0)) return 0.0;
    return (y - sum_y / count) / slope + sum_x / count;
  }
};

// Of one graph, and of one whose run times depend on the seed.
class Replays {
 public:
  Replays(const SimGraph& graph, const SimGraph& varied, const ReplayCheck& check)
      : graph_(graph), varied_(varied), span_(check.span) {}

  Result<ReplayLengths> run(const DeviceProfile& profile) const {
    std::vector<int64_t> lengths;
    for (uint64_t seed = 1; seed <= kReplayCount; ++seed) {
      const SimGraph& graph = seed == 1 ? graph_ : varied_;
      const SimResult result =
          GAPLESS_TRY(simulate(profile, graph, {.seed = seed, .has_phases = false}));
      lengths.push_back(simulated_length_ns(result, span_));
    }
    const int64_t plain_ns = lengths.front();
    std::sort(lengths.begin(), lengths.end());
    return ReplayLengths{.recorded_runs_ns = plain_ns,
                         .least_ns = lengths.front(),
                         .median_ns = lengths[kReplayCount / 2],
                         .most_ns = lengths.back()};
  }

 private:
  const SimGraph& graph_;
  const SimGraph& varied_;
  ReplaySpan span_;
};

}  // namespace

Result<int64_t> poll_by_replay(const PollReplay& replay) {
  DeviceProfile profile = without_kernels(replay.profile);
  const auto wait_with = [&](int64_t poll_ns) -> Result<double> {
    profile.poll_ns = poll_ns;
    double sum_ns = 0.0;
    for (uint64_t seed = 1; seed <= kPollReplays; ++seed) {
      const SimOptions options = {.seed = seed, .has_phases = false};
      sum_ns += mean_wait_ns(GAPLESS_TRY(simulate(profile, replay.graph, options)));
    }
    return sum_ns / static_cast<double>(kPollReplays);
  };
  int64_t above_ns = std::max(replay.profile.poll_ns, int64_t{1});
  while (GAPLESS_TRY(wait_with(above_ns)) <= replay.mean_wait_ns) {
    if (above_ns > kMostPollNs) {
      return fail(ErrorCode::kInvalidInput,
                  "even with {} ns a replay waits less than the recorded {:.0f} ns", above_ns,
                  replay.mean_wait_ns);
    }
    above_ns *= 2;
  }
  // Which core a task meets changes with every nanosecond, so the wait goes up and down a little
  // while it grows: a line through many points says where it passes what was recorded.
  Line line;
  for (int64_t point = 0; point <= kPollPoints; ++point) {
    const int64_t poll_ns = above_ns * point / kPollPoints;
    line.add(static_cast<double>(poll_ns), GAPLESS_TRY(wait_with(poll_ns)));
  }
  const double found_ns = line.x_at(replay.mean_wait_ns);
  return std::clamp(std::llround(found_ns), 0LL, static_cast<long long>(above_ns));
}

Result<ReplayCheck> check_calibration(const Trace& trace, const RecordedStep& step,
                                      const DeviceProfile& base, const Calibration& calibration) {
  const StepTasks& tasks = *step.tasks;
  if (step.recorded.graph.edge_count() == 0) {
    return fail(ErrorCode::kInvalidInput,
                "the tasks have no edges: in what order they could have run is not known");
  }
  ReplayCheck check;
  check.span = replay_span(tasks);
  check.recorded_ns = recorded_length_ns(tasks, check.span);
  const int64_t sigma_ns = std::max(calibration.profile.tick_ns / 4, int64_t{1});
  const RecordedGraph varied =
      GAPLESS_TRY(make_recorded_graph(trace, tasks, {.sigma_ns = sigma_ns}));
  const Replays replays(step.recorded.graph, varied.graph, check);
  check.before = GAPLESS_TRY(replays.run(without_kernels(base)));
  check.after = GAPLESS_TRY(replays.run(without_kernels(calibration.profile)));
  if (calibration.kernels.empty()) return check;
  const RecordedGraph equal =
      GAPLESS_TRY(make_recorded_graph(trace, tasks, {.has_equal_blocks = true}));
  const Replays drawn(equal.graph, equal.graph, check);
  check.kernels = GAPLESS_TRY(drawn.run(calibration.profile));
  return check;
}

}  // namespace gapless
