// SPDX-License-Identifier: Apache-2.0

#include "analysis/kernel_times.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "analysis/time_sort.h"
#include "base/check.h"

namespace gapless {
namespace {

constexpr std::string_view kStepSpanName = "step";

// A task's part inside the window.
struct Run {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t place = 0;   // of its lane in the list of lanes
  uint32_t kernel = 0;  // of its kernel in the list of kernels
};

struct Gathered {
  std::vector<Run> runs;
  std::vector<KernelTime> kernels;
  int64_t unfinished_count = 0;
};

bool is_core_kind(LaneKind kind) {
  return kind == LaneKind::kWorker || kind == LaneKind::kCubeCore ||
         kind == LaneKind::kVectorCore || kind == LaneKind::kSm;
}

Result<void> check_window(const TimeRange& window, size_t lane_count) {
  int64_t length_ns = 0;
  const bool is_too_long = __builtin_sub_overflow(window.end_ns, window.begin_ns, &length_ns) ||
                           (lane_count > 0 && length_ns > std::numeric_limits<int64_t>::max() /
                                                              static_cast<int64_t>(lane_count));
  if (is_too_long) {
    return fail(ErrorCode::kInvalidInput, "{} lanes x {} to {} ns are more than 292 years",
                lane_count, window.begin_ns, window.end_ns);
  }
  if (length_ns <= 0) {
    return fail(ErrorCode::kInvalidInput, "the window from {} to {} ns is empty", window.begin_ns,
                window.end_ns);
  }
  return {};
}

// What ran inside the window on the lanes that have a place. A run of no length is inside when its
// time is.
Gathered gather_runs(const Trace& trace, const TimeRange& window,
                     const std::vector<uint32_t>& places) {
  Gathered gathered;
  // By name; the last is for tasks that have none.
  std::vector<uint32_t> kernel_of_name(trace.names.size() + 1, kNoIndex);
  const std::vector<int64_t>& starts = trace.tasks.at(TaskTime::kStart);
  const std::vector<int64_t>& ends = trace.tasks.at(TaskTime::kEnd);
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    const uint32_t lane = trace.tasks.lane[row];
    const int64_t start_ns = starts[row];
    if (start_ns == kAbsent || lane == kNoIndex || places[lane] == kNoIndex) continue;
    if (start_ns >= window.end_ns) continue;
    if (ends[row] == kAbsent) {
      ++gathered.unfinished_count;
      continue;
    }
    const int64_t end_ns = std::max(ends[row], start_ns);
    const bool is_inside = end_ns > window.begin_ns || start_ns >= window.begin_ns;
    if (!is_inside) continue;
    const uint32_t name = trace.tasks.kernel[row];
    uint32_t& kernel = kernel_of_name[name == kNoIndex ? trace.names.size() : name];
    if (kernel == kNoIndex) {
      kernel = static_cast<uint32_t>(gathered.kernels.size());
      gathered.kernels.push_back({.name = name});
    }
    const Run run = {.begin_ns = std::max(start_ns, window.begin_ns),
                     .end_ns = std::min(end_ns, window.end_ns),
                     .place = places[lane],
                     .kernel = kernel};
    if (run.begin_ns != start_ns || run.end_ns != end_ns) ++gathered.kernels[kernel].cut_count;
    gathered.runs.push_back(run);
  }
  return gathered;
}

// The runs of one lane, from left to right. The stack holds those that have begun; its top, the one
// that started last, has every moment until it ends or another starts.
class LaneSweep {
 public:
  LaneSweep(LaneTime& lane, std::vector<KernelTime>& kernels) : lane_(lane), kernels_(kernels) {}

  void add(const Run& run) {
    advance_to(run.begin_ns);
    open_.push_back(&run);
    ++lane_.run_count;
  }
  void finish() { advance_to(std::numeric_limits<int64_t>::max()); }

 private:
  void advance_to(int64_t time_ns) {
    while (!open_.empty() && open_.back()->end_ns <= time_ns) {
      give_top(open_.back()->end_ns);
      open_.pop_back();
    }
    if (!open_.empty()) give_top(time_ns);
    now_ns_ = std::max(now_ns_, time_ns);
  }
  // The time from now until then.
  void give_top(int64_t until_ns) {
    if (until_ns <= now_ns_) return;
    const int64_t part_ns = until_ns - now_ns_;
    kernels_[open_.back()->kernel].self_ns += part_ns;
    lane_.busy_ns += part_ns;
    now_ns_ = until_ns;
  }

  LaneTime& lane_;
  std::vector<KernelTime>& kernels_;
  std::vector<const Run*> open_;
  int64_t now_ns_ = std::numeric_limits<int64_t>::min();
};

// Stable; `group_of(run)` is below `group_count`.
template <typename GroupOf>
void group_runs(std::vector<Run>& runs, size_t group_count, GroupOf group_of) {
  std::vector<size_t> next(group_count + 1, 0);
  for (const Run& run : runs) ++next[size_t{group_of(run)} + 1];
  for (size_t group = 1; group < next.size(); ++group) next[group] += next[group - 1];
  std::vector<Run> grouped(runs.size());
  for (const Run& run : runs) grouped[next[group_of(run)]++] = run;
  std::swap(runs, grouped);
}

// By lane and begin. Of two that begin together the longer is the outer one.
void sort_runs(std::vector<Run>& runs, size_t lane_count) {
  sort_by_time(runs, [](const Run& run) { return run.begin_ns; });
  group_runs(runs, lane_count, [](const Run& run) { return run.place; });
  const auto is_before = [](const Run& a, const Run& b) {
    if (a.place != b.place) return a.place < b.place;
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  };
  if (!std::is_sorted(runs.begin(), runs.end(), is_before)) {
    std::stable_sort(runs.begin(), runs.end(), is_before);
  }
}

void sweep_lanes(std::vector<Run>& runs, std::vector<LaneTime>& lanes,
                 std::vector<KernelTime>& kernels) {
  sort_runs(runs, lanes.size());
  for (size_t first = 0; first < runs.size();) {
    const uint32_t place = runs[first].place;
    LaneSweep sweep(lanes[place], kernels);
    for (; first < runs.size() && runs[first].place == place; ++first) sweep.add(runs[first]);
    sweep.finish();
  }
}

int64_t length_ns(const Run& run) { return run.end_ns - run.begin_ns; }

// Counts, sums, extremes and lanes of one kernel, whose runs these are.
Result<void> describe(const Trace& trace, KernelTime& kernel, std::vector<Run>::iterator begin,
                      std::vector<Run>::iterator end) {
  kernel.run_count = end - begin;
  uint32_t last_place = kNoIndex;
  for (auto run = begin; run != end; ++run) {
    if (__builtin_add_overflow(kernel.sum_ns, length_ns(*run), &kernel.sum_ns)) {
      return fail(ErrorCode::kInvalidInput, "the runs of {} last more than 292 years together",
                  kernel_name(trace, kernel));
    }
    if (run->place != last_place) ++kernel.lane_count;
    last_place = run->place;
  }
  const auto is_shorter = [](const Run& a, const Run& b) { return length_ns(a) < length_ns(b); };
  const auto middle = begin + (kernel.run_count - 1) / 2;
  std::nth_element(begin, middle, end, is_shorter);
  kernel.median_ns = length_ns(*middle);
  kernel.min_ns = length_ns(*std::min_element(begin, middle + 1, is_shorter));
  kernel.max_ns = length_ns(*std::max_element(middle, end, is_shorter));
  return {};
}

// `runs` are in the order of their lanes.
Result<void> describe_kernels(const Trace& trace, std::vector<Run>& runs,
                              std::vector<KernelTime>& kernels) {
  group_runs(runs, kernels.size(), [](const Run& run) { return run.kernel; });
  for (auto begin = runs.begin(); begin != runs.end();) {
    const uint32_t kernel = begin->kernel;
    const auto end =
        std::find_if(begin, runs.end(), [kernel](const Run& run) { return run.kernel != kernel; });
    GAPLESS_TRY(describe(trace, kernels[kernel], begin, end));
    begin = end;
  }
  return {};
}

}  // namespace

Result<std::vector<uint32_t>> places_of(const Trace& trace, const std::vector<uint32_t>& lanes) {
  std::vector<uint32_t> places(trace.lanes.size(), kNoIndex);
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i] >= places.size()) {
      return fail(ErrorCode::kInvalidInput, "lane {} of a trace with {} lanes", lanes[i],
                  places.size());
    }
    if (places[lanes[i]] != kNoIndex) {
      return fail(ErrorCode::kInvalidInput, "lane {} is named twice", lanes[i]);
    }
    places[lanes[i]] = static_cast<uint32_t>(i);
  }
  return places;
}

double KernelTimes::average_busy_lanes() const {
  return static_cast<double>(busy_ns) / static_cast<double>(window_ns());
}

double KernelTimes::share(const KernelTime& kernel) const {
  const int64_t whole_ns = busy_ns + idle_ns;
  return whole_ns == 0 ? 0.0 : static_cast<double>(kernel.self_ns) / static_cast<double>(whole_ns);
}

Result<KernelTimes> kernel_times(const Trace& trace, const KernelTimesOptions& options) {
  const std::vector<uint32_t> lanes = options.lanes.empty() ? core_lanes(trace) : options.lanes;
  GAPLESS_TRY(check_window(options.window, lanes.size()));
  const std::vector<uint32_t> places = GAPLESS_TRY(places_of(trace, lanes));
  Gathered gathered = gather_runs(trace, options.window, places);

  KernelTimes times;
  times.window = options.window;
  times.unfinished_count = gathered.unfinished_count;
  for (const uint32_t lane : lanes) times.lanes.push_back({.lane = lane});
  sweep_lanes(gathered.runs, times.lanes, gathered.kernels);
  GAPLESS_TRY(describe_kernels(trace, gathered.runs, gathered.kernels));
  for (LaneTime& lane : times.lanes) {
    lane.idle_ns = times.window_ns() - lane.busy_ns;
    times.busy_ns += lane.busy_ns;
    times.idle_ns += lane.idle_ns;
  }
  times.kernels = std::move(gathered.kernels);
  std::sort(times.kernels.begin(), times.kernels.end(),
            [&trace](const KernelTime& a, const KernelTime& b) {
              if (a.self_ns != b.self_ns) return a.self_ns > b.self_ns;
              const std::string_view name_a = kernel_name(trace, a);
              const std::string_view name_b = kernel_name(trace, b);
              return name_a != name_b ? name_a < name_b : a.name < b.name;
            });
  return times;
}

std::vector<uint32_t> core_lanes(const Trace& trace) {
  std::vector<bool> is_core;
  for (const Lane& lane : trace.lanes) is_core.push_back(is_core_kind(lane.kind));
  std::vector<bool> is_other(trace.lanes.size(), false);
  const std::vector<int64_t>& starts = trace.tasks.at(TaskTime::kStart);
  for (size_t row = 0; row < trace.tasks.size(); ++row) {
    const uint32_t lane = trace.tasks.lane[row];
    if (lane == kNoIndex || starts[row] == kAbsent) continue;
    (trace.lanes[lane].kind == LaneKind::kOther ? is_other : is_core)[lane] = true;
  }
  if (std::find(is_core.begin(), is_core.end(), true) == is_core.end()) is_core = is_other;
  std::vector<uint32_t> lanes;
  for (uint32_t lane = 0; lane < is_core.size(); ++lane) {
    if (is_core[lane]) lanes.push_back(lane);
  }
  return lanes;
}

std::string_view kernel_name(const Trace& trace, const KernelTime& kernel) {
  return kernel.name == kNoIndex ? "(no name)" : trace.names[kernel.name];
}

std::vector<StepWindow> step_windows(const Trace& trace) {
  std::vector<StepWindow> steps;
  const uint32_t name = trace.names.find(kStepSpanName);
  if (name == kNoIndex) return steps;
  for (size_t row = 0; row < trace.spans.size(); ++row) {
    const uint32_t lane = trace.spans.lane[row];
    if (trace.spans.name[row] != name) continue;
    if (trace.lanes[lane].kind != LaneKind::kOrchestrator) continue;
    steps.push_back({.step = trace.spans.value[row],
                     .lane = lane,
                     .window = {trace.spans.begin_ns[row], trace.spans.end_ns[row]}});
  }
  return steps;
}

}  // namespace gapless
