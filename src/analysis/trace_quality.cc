// SPDX-License-Identifier: Apache-2.0

#include "analysis/trace_quality.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "analysis/clock_order.h"
#include "base/check.h"
#include "base/quantity.h"

namespace gapless {
namespace {

double ratio(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }
double share_of(uint64_t part, uint64_t whole) {
  return ratio(static_cast<double>(part), static_cast<double>(whole));
}

template <typename Number>
std::optional<Number> number_property(const Trace& trace, std::string_view key) {
  for (const Property& property : trace.properties) {
    if (property.key != key) continue;
    Number value = 0;
    const char* end = property.value.data() + property.value.size();
    const std::from_chars_result result = std::from_chars(property.value.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end || !(value >= 0)) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

// What the readers of traces said, by their codes: which of them, and how often in all.
struct ToldFindings {
  std::string codes;  // each once, with commas
  uint64_t count = 0;
};

ToldFindings told(const Trace& trace, std::span<const std::string_view> codes) {
  ToldFindings result;
  for (const std::string_view code : codes) {
    bool is_told = false;
    for (const Finding& finding : trace.findings) {
      if (finding.code != code) continue;
      is_told = true;
      result.count += finding.count;
    }
    if (is_told) result.codes += fmt::format("{}{}", result.codes.empty() ? "" : ", ", code);
  }
  return result;
}

std::string disorder_text(const Trace& trace, const ClockOrder& order, uint32_t task_count) {
  std::string kinds;
  for (const ClockDisorder& kind : order.disorders) {
    kinds += fmt::format("{}{} after {} in {}", kinds.empty() ? "" : ", ",
                         task_time_name(kind.earlier), task_time_name(kind.later), kind.task_count);
  }
  return fmt::format(
      "{} of {} tasks ({}) have times that run backwards ({}); the worst is task {}, by {}",
      order.wrong_count, task_count, format_share(share_of(order.wrong_count, task_count)), kinds,
      trace.tasks.id[order.worst_row], format_duration(order.worst_ns));
}

// All events of the trace that were kept.
uint64_t count_events(const Trace& trace) {
  if (const std::optional<uint64_t> count = number_property<uint64_t>(trace, "recorder.events")) {
    return *count;
  }
  uint64_t count = 2 * trace.spans.size() + trace.edges.size() + trace.counters.size() +
                   trace.instants.size() + trace.flows.size();
  for (const std::vector<int64_t>& times : trace.tasks.time_ns) {
    count += times.size() - static_cast<size_t>(std::count(times.begin(), times.end(), kAbsent));
  }
  return count;
}

// How many rows of a table in order of time are within the window and of one of the lanes.
uint64_t count_rows(const std::vector<int64_t>& time_ns, const std::vector<uint32_t>& lane,
                    const TimeRange& window, const std::vector<bool>& is_core) {
  const auto begin = std::lower_bound(time_ns.begin(), time_ns.end(), window.begin_ns);
  const auto end = std::lower_bound(begin, time_ns.end(), window.end_ns);
  uint64_t count = 0;
  for (auto row = begin; row != end; ++row) {
    const uint32_t of_row = lane[static_cast<size_t>(row - time_ns.begin())];
    if (of_row != kNoIndex && is_core[of_row]) ++count;
  }
  return count;
}

// The part of a step in which no core ran anything.
struct Gap {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t length_ns() const { return end_ns - begin_ns; }
};

Gap longest_common_gap(const StepTasks& tasks) {
  Gap longest;
  int64_t quiet_since_ns = tasks.window().begin_ns;
  const auto take = [&](int64_t until_ns) {
    const Gap gap = {.begin_ns = quiet_since_ns, .end_ns = until_ns};
    if (gap.length_ns() > longest.length_ns()) longest = gap;
  };
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    take(tasks.start_ns(task));
    quiet_since_ns = std::max(quiet_since_ns, tasks.end_ns(task));
  }
  take(tasks.window().end_ns);
  return longest;
}

// Bubbles of one core that touch are one: causes change within it, nothing runs.
struct CoreGap {
  uint32_t core = 0;
  Gap gap;
};

CoreGap longest_core_gap(const std::vector<Bubble>& bubbles) {
  CoreGap longest;
  CoreGap current;
  for (const Bubble& bubble : bubbles) {
    const bool is_same = bubble.core == current.core && bubble.begin_ns == current.gap.end_ns;
    if (!is_same) current = {bubble.core, {bubble.begin_ns, bubble.begin_ns}};
    current.gap.end_ns = bubble.end_ns;
    if (current.gap.length_ns() > longest.gap.length_ns()) longest = current;
  }
  return longest;
}

class QualityChecks {
 public:
  explicit QualityChecks(const QualityInput& input)
      : trace_(*input.trace),
        tasks_(*input.tasks),
        bubbles_(*input.bubbles),
        steps_(input.steps),
        is_core_(trace_.lanes.size(), false) {
    for (uint32_t core = 0; core < tasks_.core_count(); ++core) is_core_[tasks_.lane(core)] = true;
  }

  TraceQuality run() {
    check_clock();
    check_meaning();
    check_drops();
    check_losses();
    check_unfinished();
    check_missing_times();
    check_gaps();
    check_step_counts();
    check_observer();
    check_edges();
    check_early_edges();
    check_odd_edges();
    return std::move(quality_);
  }

 private:
  void add(QualityCheck check, QualityLevel level, std::string text) {
    if (level == QualityLevel::kWithholds) quality_.withholds_verdict = true;
    quality_.findings.push_back({check, level, std::move(text)});
  }
  void fine(QualityCheck check, std::string text) {
    add(check, QualityLevel::kFine, std::move(text));
  }
  void note(QualityCheck check, std::string text) {
    add(check, QualityLevel::kNote, std::move(text));
  }
  bool has_finding(QualityCheck check) const {
    return !quality_.findings.empty() && quality_.findings.back().check == check;
  }
  // One task in a hundred may be wrong; what is wrong in more is wrong with the recording.
  static QualityLevel level_of_wrong(uint64_t wrong_count, uint64_t task_count) {
    const bool withholds = share_of(wrong_count, task_count) > kMaxWrongTaskShare;
    return withholds ? QualityLevel::kWithholds : QualityLevel::kNote;
  }
  std::string_view lane_name(uint32_t lane) const { return trace_.lanes[lane].name; }

  void check_clock();
  void check_meaning();
  void check_drops();
  void check_losses();
  void check_unfinished();
  void check_missing_times();
  void check_gaps();
  void check_core_gap();
  void check_step_counts();
  std::vector<uint64_t> tasks_of_steps() const;
  void check_observer();
  uint64_t count_core_events() const;
  void check_edges();
  void check_early_edges();
  void check_odd_edges();

  const Trace& trace_;
  const StepTasks& tasks_;
  const BubblePartition& bubbles_;
  const std::vector<TimeRange>& steps_;
  std::vector<bool> is_core_;  // by lane: of the step
  TraceQuality quality_;
};

void QualityChecks::check_clock() {
  const ClockOrder order = check_clock_order(trace_, tasks_);
  const uint32_t task_count = tasks_.task_count();
  if (order.wrong_count > 0) {
    add(QualityCheck::kClock, level_of_wrong(order.wrong_count, task_count),
        disorder_text(trace_, order, task_count));
  }
  if (order.early_count > 0) {
    note(QualityCheck::kClock,
         fmt::format("{} of {} tasks were dispatched before they were ready: handed over early, or "
                     "the clocks differ",
                     order.early_count, task_count));
  }
  constexpr std::array<std::string_view, 8> kCodes = {
      "clock-wrap",        "clock-not-invariant", "time-goes-back",    "unsorted",
      "negative-duration", "times-outside-run",   "alignment-unknown", "time-out-of-range"};
  if (const ToldFindings found = told(trace_, kCodes); !found.codes.empty()) {
    note(QualityCheck::kClock,
         fmt::format("reading the trace found trouble with its clock ({})", found.codes));
  }
  if (!has_finding(QualityCheck::kClock)) {
    fine(QualityCheck::kClock,
         fmt::format("all times of {} are in order", counted(task_count, "task")));
  }
}

void QualityChecks::check_meaning() {
  uint32_t core_count = 0;
  size_t task_count = 0;
  int64_t busy_ns = 0;
  for (uint32_t core = 0; core < tasks_.core_count(); ++core) {
    if (trace_.lanes[tasks_.lane(core)].meaning != SpanMeaning::kDispatchToFinish) continue;
    ++core_count;
    task_count += tasks_.tasks_of_core(core).size();
    busy_ns += bubbles_.core_busy_ns[core];
  }
  if (core_count == 0) {
    fine(QualityCheck::kOverlap,
         fmt::format("no two tasks overlap on any of {}", counted(tasks_.core_count(), "core")));
    return;
  }
  add(QualityCheck::kOverlap, QualityLevel::kWithholds,
      fmt::format("a span on {} of {} core lanes is dispatch to observed completion, not "
                  "execution: the {} of their {} are no busy time",
                  core_count, tasks_.core_count(), format_duration(busy_ns),
                  counted(task_count, "task")));
}

void QualityChecks::check_drops() {
  uint64_t lane_count = 0;
  uint64_t core_count = 0;
  uint32_t worst_lane = kNoIndex;
  for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane) {
    const uint64_t count = trace_.lanes[lane].dropped_count;
    lane_count += count;
    if (is_core_[lane]) core_count += count;
    const bool is_worst =
        count > 0 && (worst_lane == kNoIndex || count > trace_.lanes[worst_lane].dropped_count);
    if (is_worst) worst_lane = lane;
  }
  // The finding repeats what lanes say and has those of lanes that nobody knows.
  constexpr std::array<std::string_view, 1> kCodes = {"dropped"};
  const uint64_t dropped_count = std::max(lane_count, told(trace_, kCodes).count);
  if (dropped_count == 0) return;
  const uint64_t event_count = count_events(trace_) + dropped_count;
  const double share = share_of(dropped_count, event_count);
  const bool withholds = share > kMaxDroppedShare || core_count > 0;
  const std::string worst = worst_lane == kNoIndex
                                ? ""
                                : fmt::format("; {} lost most, {}", lane_name(worst_lane),
                                              trace_.lanes[worst_lane].dropped_count);
  add(QualityCheck::kDrops, withholds ? QualityLevel::kWithholds : QualityLevel::kNote,
      fmt::format("{} of {} events ({}) were dropped, {} of them on cores{}", dropped_count,
                  event_count, format_share(share), core_count, worst));
}

void QualityChecks::check_losses() {
  constexpr std::array<std::string_view, 2> kHoles = {"damaged-chunk", "records-missing"};
  if (const ToldFindings holes = told(trace_, kHoles); !holes.codes.empty()) {
    add(QualityCheck::kDrops, QualityLevel::kWithholds,
        fmt::format("the file has holes ({}): what ran in them looks idle", holes.codes));
  }
  constexpr std::array<std::string_view, 8> kParts = {
      "not-closed", "cut-short",     "damaged",          "empty-records",
      "no-time",    "metadata-lost", "damaged-metadata", "event-too-large"};
  if (const ToldFindings parts = told(trace_, kParts); !parts.codes.empty()) {
    note(QualityCheck::kDrops,
         fmt::format("the trace is not whole ({}): steps at its end may lack tasks", parts.codes));
  }
  if (!has_finding(QualityCheck::kDrops)) fine(QualityCheck::kDrops, "no event was dropped");
}

void QualityChecks::check_unfinished() {
  uint64_t headless_count = 0;
  const TimeRange window = tasks_.window();
  const std::vector<int64_t>& starts = trace_.tasks.at(TaskTime::kStart);
  const std::vector<int64_t>& ends = trace_.tasks.at(TaskTime::kEnd);
  for (size_t row = 0; row < trace_.tasks.size(); ++row) {
    if (starts[row] != kAbsent || ends[row] == kAbsent) continue;
    const uint32_t lane = trace_.tasks.lane[row];
    const bool is_here = ends[row] > window.begin_ns && ends[row] <= window.end_ns;
    if (is_here && lane != kNoIndex && is_core_[lane]) ++headless_count;
  }
  const uint64_t endless_count = tasks_.unfinished_count();
  const uint64_t count = endless_count + headless_count;
  if (count == 0) {
    fine(QualityCheck::kUnfinished, "every task that started has an end");
    return;
  }
  const uint64_t all_count = tasks_.task_count() + count;
  add(QualityCheck::kUnfinished, level_of_wrong(count, all_count),
      fmt::format("{} of {} tasks have no end, and {} an end but no start: where they ran, their "
                  "cores look idle",
                  endless_count, all_count, headless_count));
}

void QualityChecks::check_missing_times() {
  std::string absent;
  for (size_t time = 0; time < kTaskTimeCount; ++time) {
    const uint32_t count = tasks_.absent_count(static_cast<TaskTime>(time));
    if (count == 0) continue;
    const std::string_view name = task_time_name(static_cast<TaskTime>(time));
    absent += fmt::format("{}{} in {}", absent.empty() ? "" : ", ", name, count);
  }
  if (absent.empty()) {
    fine(QualityCheck::kMissingTimes, "all seven times are recorded");
  } else {
    note(QualityCheck::kMissingTimes, fmt::format("of the seven times of {} some are missing: {}",
                                                  counted(tasks_.task_count(), "task"), absent));
  }
  for (const std::string& sentence : bubbles_.missing) note(QualityCheck::kMissingTimes, sentence);
}

// Of one core: nothing strange, a graph may be that narrow.
void QualityChecks::check_core_gap() {
  const CoreGap longest = longest_core_gap(bubbles_.bubbles);
  const double share =
      ratio(static_cast<double>(longest.gap.length_ns()), static_cast<double>(bubbles_.idle_ns));
  if (share <= kDominantGapShare) {
    fine(QualityCheck::kDominantGap,
         fmt::format("no gap dominates: the longest of one core is {}, {} of the idle time",
                     format_duration(longest.gap.length_ns()), format_share(share)));
    return;
  }
  note(QualityCheck::kDominantGap,
       fmt::format("{} idles for {} at a stretch, {} of the idle time of all {}",
                   lane_name(tasks_.lane(longest.core)), format_duration(longest.gap.length_ns()),
                   format_share(share), counted(tasks_.core_count(), "core")));
}

void QualityChecks::check_gaps() {
  if (bubbles_.idle_ns == 0) {
    fine(QualityCheck::kDominantGap, "no core is idle");
    return;
  }
  const Gap gap = longest_common_gap(tasks_);
  const double cores = tasks_.core_count();
  const double idle_ns = static_cast<double>(bubbles_.idle_ns);
  const double window_ns = static_cast<double>(tasks_.window_ns());
  const double gap_ns = static_cast<double>(gap.length_ns());
  const double share = ratio(cores * gap_ns, idle_ns);
  if (share <= kDominantGapShare) {
    check_core_gap();
    return;
  }
  quality_.dominant_gap_ns = gap.length_ns();
  const bool withholds = gap_ns > kMinGapShareOfStep * window_ns;
  add(QualityCheck::kDominantGap, withholds ? QualityLevel::kWithholds : QualityLevel::kNote,
      fmt::format(
          "no core ran anything for {}, from {} after the step's begin: {} of the idle time "
          "is this one gap, and cores idle {} of the time with it, {} without it",
          format_duration(gap.length_ns()),
          format_duration(gap.begin_ns - tasks_.window().begin_ns), format_share(share),
          format_share(ratio(idle_ns, cores * window_ns)),
          format_share(ratio(idle_ns - cores * gap_ns, cores * (window_ns - gap_ns)))));
}

// Tasks are sorted into the times between any two ends of steps, so that steps may overlap.
std::vector<uint64_t> QualityChecks::tasks_of_steps() const {
  std::vector<int64_t> borders;
  for (const TimeRange& step : steps_) {
    borders.push_back(step.begin_ns);
    borders.push_back(step.end_ns);
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  const auto place_of = [&borders](int64_t time_ns) {
    return static_cast<size_t>(std::upper_bound(borders.begin(), borders.end(), time_ns) -
                               borders.begin());
  };
  std::vector<uint64_t> before(borders.size() + 1, 0);  // [i]: from border i - 1 on, then summed
  const std::vector<int64_t>& starts = trace_.tasks.at(TaskTime::kStart);
  for (size_t row = 0; row < trace_.tasks.size(); ++row) {
    const uint32_t lane = trace_.tasks.lane[row];
    if (starts[row] == kAbsent || lane == kNoIndex || !is_core_[lane]) continue;
    ++before[place_of(starts[row])];
  }
  for (size_t place = 1; place < before.size(); ++place) before[place] += before[place - 1];
  std::vector<uint64_t> counts;
  for (const TimeRange& step : steps_) {
    counts.push_back(before[place_of(step.end_ns) - 1] - before[place_of(step.begin_ns) - 1]);
  }
  return counts;
}

void QualityChecks::check_step_counts() {
  if (steps_.size() < 2) {
    fine(QualityCheck::kStepCounts, "there is one step: nothing to compare it with");
    return;
  }
  const std::vector<uint64_t> counts = tasks_of_steps();
  std::vector<uint64_t> sorted = counts;
  std::sort(sorted.begin(), sorted.end());
  const uint64_t median = sorted[(sorted.size() - 1) / 2];
  const auto distance = [&counts, median](size_t step) {
    return counts[step] > median ? counts[step] - median : median - counts[step];
  };
  uint64_t odd_count = 0;
  size_t worst = 0;
  for (size_t step = 0; step < counts.size(); ++step) {
    const double limit = kStepCountTolerance * static_cast<double>(median);
    if (static_cast<double>(distance(step)) > limit) ++odd_count;
    if (distance(step) > distance(worst)) worst = step;
  }
  if (odd_count == 0) {
    fine(QualityCheck::kStepCounts,
         fmt::format("each of {} steps has about {} tasks", counts.size(), median));
    return;
  }
  note(QualityCheck::kStepCounts,
       fmt::format("{} of {} steps differ by more than {:.0f} % from the median of {} tasks; step "
                   "{} most, it has {}",
                   odd_count, counts.size(), kStepCountTolerance * 100.0, median, worst,
                   counts[worst]));
}

// A worker records what it takes, runs and finishes; a core of a chip only what it runs.
uint64_t QualityChecks::count_core_events() const {
  const TimeRange window = tasks_.window();
  uint64_t count = 2 * count_rows(trace_.spans.begin_ns, trace_.spans.lane, window, is_core_) +
                   count_rows(trace_.instants.time_ns, trace_.instants.lane, window, is_core_) +
                   // A value takes a record of its own.
                   2 * count_rows(trace_.counters.time_ns, trace_.counters.lane, window, is_core_);
  for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
    const auto has = [this, task](TaskTime time) {
      return tasks_.time_ns(task, time) == kAbsent ? uint64_t{0} : uint64_t{1};
    };
    count += 2 + has(TaskTime::kReceive);
    if (trace_.lanes[tasks_.lane(tasks_.core(task))].kind != LaneKind::kWorker) continue;
    count += has(TaskTime::kReady) + has(TaskTime::kDispatch) + has(TaskTime::kFinish);
  }
  return count;
}

void QualityChecks::check_observer() {
  const bool is_simulated =
      std::any_of(trace_.properties.begin(), trace_.properties.end(), [](const Property& property) {
        return property.key == "simulated" && property.value == "yes";
      });
  if (is_simulated) {
    add(QualityCheck::kObserver, QualityLevel::kFine,
        "the times are simulated: recording them took none of them");
    return;
  }
  const std::optional<double> cost = number_property<double>(trace_, "recorder.ns_per_event");
  if (!cost) {
    note(QualityCheck::kObserver,
         "what recording cost is not known: the trace does not say what an event costs");
    return;
  }
  const uint64_t event_count = count_core_events();
  const double cost_ns = static_cast<double>(event_count) * *cost;
  const double share = ratio(cost_ns, static_cast<double>(bubbles_.busy_ns));
  quality_.observer_share = share;
  const QualityLevel level = share > kMaxObserverShare       ? QualityLevel::kWithholds
                             : share > kNotableObserverShare ? QualityLevel::kNote
                                                             : QualityLevel::kFine;
  add(QualityCheck::kObserver, level,
      fmt::format("recording {} on the cores at {:.3g} ns each took about {}, {} of the busy time",
                  counted(event_count, "event"), *cost,
                  format_duration(static_cast<int64_t>(cost_ns)), format_share(share)));
}

void QualityChecks::check_edges() {
  if (tasks_.edge_count() == 0) {
    note(QualityCheck::kEdges,
         fmt::format("the {} no edges: who waited for whom is not known, and nothing can be "
                     "replayed",
                     tasks_.task_count() == 1 ? "1 task has"
                                              : fmt::format("{} tasks have", tasks_.task_count())));
    return;
  }
  // Before anything has ended there is nothing to wait for.
  int64_t first_end_ns = tasks_.window().end_ns;
  for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
    first_end_ns = std::min(first_end_ns, tasks_.end_ns(task));
  }
  uint64_t late_count = 0;
  uint64_t loose_count = 0;
  for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
    if (tasks_.start_ns(task) < first_end_ns) continue;
    ++late_count;
    if (tasks_.producers(task).empty()) ++loose_count;
  }
  const double share = share_of(loose_count, late_count);
  if (share > kMaxLooseShare) {
    add(QualityCheck::kEdges,
        share > kFarTooLooseShare ? QualityLevel::kWithholds : QualityLevel::kNote,
        fmt::format("{} of {} tasks after the first ({}) have no producer: edges may be missing, "
                    "and a replay would start these too early",
                    loose_count, late_count, format_share(share)));
  }
}

void QualityChecks::check_early_edges() {
  uint64_t early_count = 0;
  for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
    for (const uint32_t producer : tasks_.producers(task))
      early_count += tasks_.start_ns(task) < tasks_.end_ns(producer) ? 1 : 0;
  }
  if (early_count == 0) return;
  const double share = share_of(early_count, tasks_.edge_count());
  add(QualityCheck::kEdges, share > kMaxEarlyShare ? QualityLevel::kWithholds : QualityLevel::kNote,
      fmt::format("over {} of {} edges ({}) the consumer starts before its producer ends: it did "
                  "not wait, or the clocks of the lanes differ",
                  early_count, tasks_.edge_count(), format_share(share)));
}

void QualityChecks::check_odd_edges() {
  constexpr std::array<std::string_view, 1> kCodes = {"edge-without-task"};
  const std::array<std::pair<uint64_t, std::string_view>, 3> left_out = {
      {{tasks_.backward_count(), "whose producer starts after the consumer"},
       {tasks_.outside_count(), "from tasks that ran outside the step"},
       {told(trace_, kCodes).count, "that name a task without an event"}}};
  for (const auto& [count, which] : left_out) {
    if (count == 0) continue;
    note(QualityCheck::kEdges, fmt::format("left out: {} {}", counted(count, "edge"), which));
  }
  if (tasks_.thinned_join_count() > 0) {
    note(QualityCheck::kEdges,
         fmt::format("thinned: {} with more blocks than are kept as producers, those that ended "
                     "last",
                     counted(tasks_.thinned_join_count(), "join")));
  }
  if (!has_finding(QualityCheck::kEdges)) {
    fine(QualityCheck::kEdges, fmt::format("{} join {}", counted(tasks_.edge_count(), "edge"),
                                           counted(tasks_.task_count(), "task")));
  }
}

}  // namespace

std::string_view quality_check_name(QualityCheck check) {
  constexpr std::array<std::string_view, kQualityCheckCount> kNames = {
      "clock",        "overlap",     "drops",    "unfinished", "missing times",
      "dominant gap", "step counts", "observer", "edges"};
  return kNames[static_cast<size_t>(check)];
}

std::string_view quality_level_name(QualityLevel level) {
  constexpr std::array<std::string_view, 3> kNames = {"fine", "note", "withholds"};
  return kNames[static_cast<size_t>(level)];
}

std::string TraceQuality::reason() const {
  std::string text;
  for (const QualityFinding& finding : findings) {
    if (finding.level != QualityLevel::kWithholds) continue;
    text += fmt::format("{}{}", text.empty() ? "" : "; ", finding.text);
  }
  return text;
}

TraceQuality check_quality(const QualityInput& input) {
  GAPLESS_CHECK(input.trace != nullptr);
  GAPLESS_CHECK(input.tasks != nullptr);
  GAPLESS_CHECK(input.bubbles != nullptr);
  return QualityChecks(input).run();
}

}  // namespace gapless
