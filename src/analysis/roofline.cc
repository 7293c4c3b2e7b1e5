// SPDX-License-Identifier: Apache-2.0
//
// One walk through starts and ends. While n tasks run, each of them is charged a 1/n of the time,
// so that the share of a task is a sum of dt/n from its start to its end: the difference of one
// running sum between the two. No moment is looked at for each kernel.

#include "analysis/roofline.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

namespace gapless {
namespace {

constexpr double kNsPerSecond = 1e9;

// Sums stop at the largest number rather than go round.
void add_to(int64_t& sum, int64_t value) {
  if (__builtin_add_overflow(sum, value, &sum)) sum = std::numeric_limits<int64_t>::max();
}

// The part of a task's cost that lies in the window, taken as spread evenly over its run.
int64_t cost_inside(int64_t cost, int64_t inside_ns, int64_t whole_ns) {
  if (inside_ns == whole_ns) return cost;
  return static_cast<int64_t>(std::llround(
      static_cast<double>(cost) * static_cast<double>(inside_ns) / static_cast<double>(whole_ns)));
}

struct End {
  int64_t end_ns;
  uint32_t task;
};

class RooflineMaker {
 public:
  RooflineMaker(const StepTasks& tasks, const Trace& trace)
      : tasks_(tasks), trace_(trace), places_(trace.names.size() + 1, kNoIndex) {}

  Roofline make() {
    begun_.resize(tasks_.task_count());
    for (uint32_t task = 0; task < tasks_.task_count(); ++task) {
      while (!running_.empty() && running_.front().end_ns <= tasks_.start_ns(task)) end_first();
      start(task);
    }
    while (!running_.empty()) end_first();
    for (KernelRoof& kernel : made_.kernels) {
      if (kernel.run_ns > 0) kernel.mean_concurrency /= static_cast<double>(kernel.run_ns);
      add_to(made_.bytes, kernel.bytes);
      add_to(made_.flops, kernel.flops);
    }
    return std::move(made_);
  }

 private:
  // Of the time from the window's begin: how much of it one running task is charged, and how much
  // all together have run.
  struct Sums {
    double share_ns = 0.0;
    double run_ns = 0.0;
  };

  static bool ends_later(const End& a, const End& b) { return a.end_ns > b.end_ns; }

  void go_to(int64_t time_ns) {
    if (!running_.empty()) {
      const int64_t elapsed_ns = time_ns - now_ns_;
      const double count = static_cast<double>(running_.size());
      made_.running_ns += elapsed_ns;
      sums_.share_ns += static_cast<double>(elapsed_ns) / count;
      sums_.run_ns += static_cast<double>(elapsed_ns) * count;
    }
    now_ns_ = time_ns;
  }

  void start(uint32_t task) {
    go_to(tasks_.start_ns(task));
    begun_[task] = sums_;
    running_.push_back({tasks_.end_ns(task), task});
    std::push_heap(running_.begin(), running_.end(), ends_later);
  }

  void end_first() {
    go_to(running_.front().end_ns);
    const uint32_t task = running_.front().task;
    std::pop_heap(running_.begin(), running_.end(), ends_later);
    running_.pop_back();
    KernelRoof& kernel = roof_of(tasks_.kernel(task));
    kernel.wall_ns += sums_.share_ns - begun_[task].share_ns;
    kernel.mean_concurrency += sums_.run_ns - begun_[task].run_ns;
    kernel.run_ns += tasks_.end_ns(task) - tasks_.start_ns(task);
    ++kernel.task_count;
    add_cost(task, kernel);
  }

  void add_cost(uint32_t task, KernelRoof& kernel) const {
    const uint32_t row = tasks_.row(task);
    const TaskColumns& columns = trace_.tasks;
    const int64_t bytes = columns.bytes.empty() ? kAbsent : columns.bytes[row];
    const int64_t flops = columns.flops.empty() ? kAbsent : columns.flops[row];
    if (bytes == kAbsent && flops == kAbsent) ++kernel.unknown_count;
    const int64_t inside_ns = tasks_.end_ns(task) - tasks_.start_ns(task);
    const int64_t whole_ns = columns.at(TaskTime::kEnd)[row] - columns.at(TaskTime::kStart)[row];
    if (bytes != kAbsent) add_to(kernel.bytes, cost_inside(bytes, inside_ns, whole_ns));
    if (flops != kAbsent) add_to(kernel.flops, cost_inside(flops, inside_ns, whole_ns));
  }

  // Tasks without a kernel share the place behind all names.
  KernelRoof& roof_of(uint32_t kernel) {
    uint32_t& place = places_[std::min<size_t>(kernel, trace_.names.size())];
    if (place == kNoIndex) {
      place = static_cast<uint32_t>(made_.kernels.size());
      made_.kernels.push_back({.kernel = kernel});
    }
    return made_.kernels[place];
  }

  const StepTasks& tasks_;
  const Trace& trace_;
  std::vector<uint32_t> places_;  // by name, in made_.kernels
  std::vector<Sums> begun_;       // by task: as they were at its start
  std::vector<End> running_;      // a heap, the first to end in front
  Sums sums_;
  int64_t now_ns_ = 0;
  Roofline made_;
};

// How long the amount takes at this rate; 0 when the rate is not known.
double least_ns(int64_t amount, double per_second) {
  return per_second > 0.0 ? static_cast<double>(amount) * kNsPerSecond / per_second : 0.0;
}

// A number above 0 that is all of the text; else 0.
double positive_number(std::string_view text) {
  double value = 0.0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && stop == text.data() + text.size();
  return is_whole && std::isfinite(value) && value > 0.0 ? value : 0.0;
}

}  // namespace

double RoofLimits::flops_per_second_of(uint32_t kernel) const {
  const auto own = std::find_if(kernels.begin(), kernels.end(),
                                [kernel](const KernelFlops& of) { return of.kernel == kernel; });
  return own == kernels.end() ? flops_per_second : own->flops_per_second;
}

double KernelRoof::bytes_per_second() const {
  return wall_ns > 0.0 ? static_cast<double>(bytes) * kNsPerSecond / wall_ns : 0.0;
}

double KernelRoof::flops_per_second() const {
  return wall_ns > 0.0 ? static_cast<double>(flops) * kNsPerSecond / wall_ns : 0.0;
}

double KernelRoof::limit_ns(const RoofLimits& limits) const {
  return std::max(least_ns(bytes, limits.bytes_per_second),
                  least_ns(flops, limits.flops_per_second_of(kernel)));
}

double KernelRoof::share_of_limit(const RoofLimits& limits) const {
  return wall_ns > 0.0 ? limit_ns(limits) / wall_ns : 0.0;
}

bool KernelRoof::is_memory_bound(const RoofLimits& limits) const {
  const double memory_ns = least_ns(bytes, limits.bytes_per_second);
  return memory_ns > 0.0 && memory_ns >= least_ns(flops, limits.flops_per_second_of(kernel));
}

std::optional<Roofline> measure_roofline(const StepTasks& tasks, const Trace& trace,
                                         const RoofLimits& limits) {
  if (trace.tasks.bytes.empty() && trace.tasks.flops.empty()) return std::nullopt;
  Roofline made = RooflineMaker(tasks, trace).make();
  const auto is_unknown = [](const KernelRoof& kernel) {
    return kernel.unknown_count == kernel.task_count;
  };
  if (std::all_of(made.kernels.begin(), made.kernels.end(), is_unknown)) return std::nullopt;
  const auto name_of = [&trace](const KernelRoof& kernel) {
    return kernel.kernel == kNoIndex ? std::string_view() : trace.names[kernel.kernel];
  };
  std::sort(made.kernels.begin(), made.kernels.end(),
            [&name_of](const KernelRoof& a, const KernelRoof& b) {
              return a.wall_ns != b.wall_ns ? a.wall_ns > b.wall_ns : name_of(a) < name_of(b);
            });
  for (const KernelRoof& kernel : made.kernels) made.limit_ns += kernel.limit_ns(limits);
  return made;
}

RoofLimits recorded_limits(const Trace& trace, const RoofLimits& given) {
  constexpr std::string_view kBytesKey = "limit.bytes_per_second";
  constexpr std::string_view kFlopsKey = "limit.flops_per_second";
  RoofLimits recorded;
  for (const Property& property : trace.properties) {
    const std::string_view key = property.key;
    const double value = positive_number(property.value);
    if (value == 0.0) continue;
    if (key == kBytesKey) recorded.bytes_per_second = value;
    if (!key.starts_with(kFlopsKey)) continue;
    const std::string_view rest = key.substr(kFlopsKey.size());
    if (rest.empty()) recorded.flops_per_second = value;
    if (!rest.starts_with('.')) continue;
    const uint32_t kernel = trace.names.find(rest.substr(1));
    if (kernel != kNoIndex) recorded.kernels.push_back({kernel, value});
  }
  if (given.bytes_per_second != 0.0) recorded.bytes_per_second = given.bytes_per_second;
  if (given.flops_per_second != 0.0) {
    recorded.flops_per_second = given.flops_per_second;
    recorded.kernels.clear();
  }
  // The first of a kernel's limits is the one that holds.
  recorded.kernels.insert(recorded.kernels.begin(), given.kernels.begin(), given.kernels.end());
  return recorded;
}

}  // namespace gapless
