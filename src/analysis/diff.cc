// SPDX-License-Identifier: Apache-2.0

#include "analysis/diff.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "analysis/kernel_times.h"
#include "analysis/task_groups.h"

namespace gapless {
namespace {

// Core time over cores.
double per_core(int64_t core_time_ns, uint32_t cores) {
  return static_cast<double>(core_time_ns) / static_cast<double>(cores);
}

double effect_ns(const Both<int64_t>& core_time_ns, const Both<uint32_t>& cores) {
  return per_core(core_time_ns.second, cores.second) - per_core(core_time_ns.first, cores.first);
}

// The kernels of a side by name. Each text is there once, in the order of first starts.
struct SideKernels {
  std::vector<std::string> names;
  std::vector<uint32_t> place_of_task;  // in `names`
  std::vector<int64_t> counts;
  std::vector<int64_t> run_ns;
  std::vector<int64_t> path_ns;
};

// Where each name of the trace stands among the kernels; the last is that of tasks without one.
class KernelPlaces {
 public:
  explicit KernelPlaces(const Trace& trace)
      : trace_(trace), place_of_name_(trace.names.size() + 1, kNoIndex) {}

  uint32_t find_or_add(uint32_t kernel, std::vector<std::string>& names) {
    uint32_t& place = place_of_name_[std::min<size_t>(kernel, place_of_name_.size() - 1)];
    if (place != kNoIndex) return place;
    const std::string_view text = kernel_name(trace_, {.name = kernel});
    const auto [found, is_new] = places_.emplace(text, static_cast<uint32_t>(names.size()));
    if (is_new) names.emplace_back(text);
    return place = found->second;
  }

 private:
  const Trace& trace_;
  std::vector<uint32_t> place_of_name_;
  std::map<std::string, uint32_t, std::less<>> places_;
};

SideKernels list_kernels(const DiffSide& side) {
  const StepTasks& tasks = *side.tasks;
  SideKernels kernels;
  KernelPlaces places(*side.trace);
  kernels.place_of_task.resize(tasks.task_count());
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    kernels.place_of_task[task] = places.find_or_add(tasks.kernel(task), kernels.names);
  }
  kernels.counts.assign(kernels.names.size(), 0);
  kernels.run_ns.assign(kernels.names.size(), 0);
  kernels.path_ns.assign(kernels.names.size(), 0);
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const uint32_t place = kernels.place_of_task[task];
    ++kernels.counts[place];
    kernels.run_ns[place] += tasks.end_ns(task) - tasks.start_ns(task);
  }
  for (const PathSegment& segment : side.path->segments) {
    if (segment.part != PathPart::kRun) continue;
    kernels.path_ns[kernels.place_of_task[segment.task]] += segment.end_ns - segment.begin_ns;
  }
  return kernels;
}

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "+") + name;
  return text;
}

// Of a pair of which both lists of names are known.
void name_kernel(KernelDiff& kernel) {
  const std::string second_name = join_names(kernel.second_names);
  if (kernel.first_names.size() == 1) {
    kernel.name = kernel.first_names.front();
  } else if (kernel.second_names.size() == 1) {
    kernel.name = second_name;
  } else {
    kernel.name = normalised_kernel_name(kernel.first_names.front());
  }
  if (second_name != kernel.name) kernel.second_name = second_name;
}

KernelDiff diff_kernel(const KernelPair& pair, const SideKernels& first,
                       const SideKernels& second) {
  KernelDiff kernel;
  kernel.match = pair.match;
  for (const uint32_t place : pair.first) {
    kernel.first_names.push_back(first.names[place]);
    kernel.count.first += first.counts[place];
    kernel.run_ns.first += first.run_ns[place];
    kernel.path_ns.first += first.path_ns[place];
  }
  for (const uint32_t place : pair.second) {
    kernel.second_names.push_back(second.names[place]);
    kernel.count.second += second.counts[place];
    kernel.run_ns.second += second.run_ns[place];
    kernel.path_ns.second += second.path_ns[place];
  }
  name_kernel(kernel);
  return kernel;
}

bool has_kernel(const KernelDiff& kernel, const std::string& name) {
  const auto holds = [&name](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return holds(kernel.first_names) || holds(kernel.second_names);
}

bool has_normalised_kernel(const KernelDiff& kernel, const std::string& normalised) {
  const auto holds = [&normalised](const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(), [&normalised](const std::string& name) {
      return normalised_kernel_name(name) == normalised;
    });
  };
  return holds(kernel.first_names) || holds(kernel.second_names);
}

// Numbers of the pairs that a focus is about.
Result<std::set<size_t>> find_pairs(const FocusSpec& focus,
                                    const std::vector<KernelDiff>& kernels) {
  std::set<size_t> found;
  for (const std::string& name : focus.kernels) {
    std::set<size_t> by_name;
    std::set<size_t> by_normalised_name;
    const std::string normalised = normalised_kernel_name(name);
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (has_kernel(kernels[i], name)) by_name.insert(i);
      if (has_normalised_kernel(kernels[i], normalised)) by_normalised_name.insert(i);
    }
    if (by_normalised_name.empty() && by_name.empty())
      return fail(ErrorCode::kUsage, "focus {}: neither step has a kernel called {}", focus.name,
                  name);
    found.merge(by_name.empty() ? by_normalised_name : by_name);
  }
  return found;
}

// One side of all focuses: the layers are found once.
class FocusMeter {
 public:
  FocusMeter(const DiffSide& side, const SideKernels& kernels)
      : side_(side), kernels_(kernels), layers_(group_tasks(*side.tasks).task_layer) {}

  FocusTimes measure(const std::set<uint32_t>& places) const {
    std::vector<bool> is_focus(side_.tasks->task_count(), false);
    for (uint32_t task = 0; task < is_focus.size(); ++task) {
      is_focus[task] = places.count(kernels_.place_of_task[task]) > 0;
    }
    return measure_focus(*side_.tasks, *side_.path, layers_, is_focus);
  }

 private:
  const DiffSide& side_;
  const SideKernels& kernels_;
  std::vector<uint32_t> layers_;
};

// cores x extent = run + other + idle on each side, so that the difference of idle per core is what
// other kernels took up and what the episodes lost beside their run.
void split_idle(FocusDiff& focus) {
  const Both<FocusTimes>& times = focus.times;
  focus.filled_ns = effect_ns({times.first.other_run_ns, times.second.other_run_ns}, focus.cores);
  focus.gone_ns = static_cast<double>(times.first.extent_ns - times.second.extent_ns) +
                  effect_ns({times.first.run_ns, times.second.run_ns}, focus.cores);
}

struct DiffInput {
  const DiffSide& first;
  const DiffSide& second;
  const SideKernels& first_kernels;
  const SideKernels& second_kernels;
  const std::vector<KernelPair>& pairs;
};

// `diff.kernels` are still in the order of the pairs.
Result<void> add_focuses(const DiffInput& input, const std::vector<FocusSpec>& focuses,
                         StepDiff& diff) {
  if (focuses.empty()) return {};
  const FocusMeter first(input.first, input.first_kernels);
  const FocusMeter second(input.second, input.second_kernels);
  for (const FocusSpec& spec : focuses) {
    std::set<uint32_t> first_places;
    std::set<uint32_t> second_places;
    for (const size_t number : GAPLESS_TRY(find_pairs(spec, diff.kernels))) {
      const KernelPair& pair = input.pairs[number];
      first_places.insert(pair.first.begin(), pair.first.end());
      second_places.insert(pair.second.begin(), pair.second.end());
    }
    FocusDiff focus;
    focus.name = spec.name;
    focus.kernels = spec.kernels;
    focus.times = {first.measure(first_places), second.measure(second_places)};
    focus.cores = diff.core_count;
    split_idle(focus);
    diff.focuses.push_back(std::move(focus));
  }
  return {};
}

std::vector<double> lengths_of(const DiffSide& side) {
  if (side.step_lengths_ns.empty()) return {static_cast<double>(side.tasks->window_ns())};
  return {side.step_lengths_ns.begin(), side.step_lengths_ns.end()};
}

void add_ratio(const DiffSide& first, const DiffSide& second, const BootstrapOptions& options,
               StepDiff& diff) {
  const std::vector<double> before = lengths_of(first);
  const std::vector<double> after = lengths_of(second);
  diff.step_count = {before.size(), after.size()};
  diff.has_interval = std::min(before.size(), after.size()) >= kMinIntervalSteps;
  if (diff.has_interval) {
    diff.ratio = bootstrap_ratio(before, after, options);
    return;
  }
  const double ratio = median_of(after) / median_of(before);
  diff.ratio = {.value = ratio, .low = ratio, .high = ratio};
}

// Why the figures of one side should be read with care.
std::vector<std::string> cautions(const DiffSide& side) {
  std::vector<std::string> texts = side.bubbles->missing;
  if (side.tasks->edge_count() == 0)
    texts.emplace_back("no edges: the critical path only follows tasks of one core");
  if (side.tasks->cut_count() > 0)
    texts.push_back(fmt::format("{} tasks reach beyond the step: only their part in it counts",
                                side.tasks->cut_count()));
  return texts;
}

void add_warnings(const DiffSide& first, const DiffSide& second, StepDiff& diff) {
  const Both<uint32_t>& cores = diff.core_count;
  if (cores.first != cores.second)
    diff.warnings.push_back(fmt::format(
        "A has {} cores and B has {}: core time is compared per core", cores.first, cores.second));
  std::vector<std::string> of_second = cautions(second);
  for (const std::string& text : cautions(first)) {
    const bool is_of_both = std::erase(of_second, text) > 0;
    diff.warnings.push_back(fmt::format("{}: {}", is_of_both ? "A and B" : "A", text));
  }
  for (const std::string& text : of_second) diff.warnings.push_back(fmt::format("B: {}", text));
}

void sort_kernels(StepDiff& diff) {
  const Both<uint32_t> cores = diff.core_count;
  std::sort(diff.kernels.begin(), diff.kernels.end(),
            [&cores](const KernelDiff& a, const KernelDiff& b) {
              const double effect_a = std::abs(a.wall_effect_ns(cores));
              const double effect_b = std::abs(b.wall_effect_ns(cores));
              if (effect_a != effect_b) return effect_a > effect_b;
              return a.name != b.name ? a.name < b.name : a.second_name < b.second_name;
            });
}

}  // namespace

Both<double> KernelDiff::mean_ns() const {
  const auto mean = [](int64_t sum, int64_t number) {
    return number == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(number);
  };
  return {mean(run_ns.first, count.first), mean(run_ns.second, count.second)};
}

double KernelDiff::count_effect_ns() const {
  const Both<double> mean = mean_ns();
  return static_cast<double>(count.second - count.first) *
         (count.first == 0 ? mean.second : mean.first);
}

double KernelDiff::mean_effect_ns() const {
  if (count.first == 0 || count.second == 0) return 0.0;
  return static_cast<double>(run_ns.second - run_ns.first) - count_effect_ns();
}

double KernelDiff::wall_effect_ns(const Both<uint32_t>& cores) const {
  return effect_ns(run_ns, cores);
}

double StepDiff::cause_effect_ns(BubbleCause cause) const {
  const size_t index = static_cast<size_t>(cause);
  return effect_ns({cause_ns.first[index], cause_ns.second[index]}, core_count);
}

Result<FocusSpec> parse_focus(std::string_view text) {
  FocusSpec focus;
  const size_t equals = text.find('=');
  const Error error = fail(ErrorCode::kUsage,
                           "focus {}; must look like NAME=KERNEL or NAME=KERNEL+KERNEL+...", text);
  if (equals == std::string_view::npos || equals == 0) return error;
  focus.name = std::string(text.substr(0, equals));
  for (size_t begin = equals + 1; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    if (end == begin) return error;
    focus.kernels.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return focus;
}

Result<StepDiff> diff_steps(const DiffSide& first, const DiffSide& second,
                            const DiffOptions& options) {
  for (const DiffSide* side : {&first, &second}) {
    if (side->tasks->core_count() == 0)
      return fail(ErrorCode::kInvalidInput, "{} has no cores, so there is no core time to compare",
                  side == &first ? "the first step" : "the second step");
  }
  const SideKernels first_kernels = list_kernels(first);
  const SideKernels second_kernels = list_kernels(second);
  const std::vector<KernelPair> pairs =
      GAPLESS_TRY(match_kernels(first_kernels.names, second_kernels.names, options.map));
  StepDiff diff;
  diff.makespan_ns = {first.tasks->window_ns(), second.tasks->window_ns()};
  diff.core_count = {first.tasks->core_count(), second.tasks->core_count()};
  diff.busy_ns = {first.bubbles->busy_ns, second.bubbles->busy_ns};
  diff.cause_ns = {first.bubbles->cause_ns, second.bubbles->cause_ns};
  diff.path_part_ns = {first.path->part_ns, second.path->part_ns};
  for (const KernelPair& pair : pairs)
    diff.kernels.push_back(diff_kernel(pair, first_kernels, second_kernels));
  const DiffInput input = {.first = first,
                           .second = second,
                           .first_kernels = first_kernels,
                           .second_kernels = second_kernels,
                           .pairs = pairs};
  GAPLESS_TRY(add_focuses(input, options.focuses, diff));
  add_ratio(first, second, options.bootstrap, diff);
  add_warnings(first, second, diff);
  sort_kernels(diff);
  return diff;
}

}  // namespace gapless
