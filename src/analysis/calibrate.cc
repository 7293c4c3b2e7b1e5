// SPDX-License-Identifier: Apache-2.0

#include "analysis/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "analysis/calibrate_fit.h"
#include "base/quantity.h"

namespace gapless {
namespace {

constexpr int64_t kOutlierRanges = 10;   // interquartile ranges off the median
constexpr uint64_t kOutliersOneIn = 50;  // of more runs than these none is an outlier

// What no trace of tasks tells, by the begin of its key.
struct Untold {
  std::string_view prefix;
  std::string_view reason;
};
constexpr std::array<Untold, 9> kUntold = {{
    {"buffer.", "sizes are not in a trace"},
    {"hbm.", "what memory can do is not in a trace"},
    {"cube.", "run times of kernels stand for it"},
    {"vector.", "run times of kernels stand for it"},
    {"block.", "run times of kernels stand for it"},
    {"scheduler.gang_barrier_ns", "a trace does not say which tasks start together"},
    {"scheduler.has_skip_hint", "what a thread did not do has more than one reason"},
    {"scheduler.store_ns", "cannot be told from payload_ns"},
    {"", "the trace does not tell it"},
}};

class Calibrator {
 public:
  Calibrator(const CalibrationArgs& args, const CalibrationSamples& samples)
      : args_(args), samples_(samples) {
    made_.profile = args.base;
    made_.profile.sources.resize(profile_parameters().size());
    for (const ProfileParameter& parameter : profile_parameters()) {
      const int64_t before = args.base.*parameter.member;
      const auto untold = std::find_if(
          kUntold.begin(), kUntold.end(),
          [&parameter](const Untold& one) { return parameter.key.starts_with(one.prefix); });
      made_.parameters.push_back({.key = parameter.key,
                                  .before = before,
                                  .value = before,
                                  .note = std::string(untold->reason)});
    }
  }

  Result<Calibration> make() {
    fit_cores();
    const ParameterFits fits = fit_parameters(args_, samples_);
    for (const FittedValue& value : fits.values) set(value);
    for (const KeptValue& value : fits.kept) keep(value.key, value.note, value.spread);
    if (fits.needs_poll_replay) fit_poll_by_replay();
    note_memory();
    if (args_.has_kernels) fit_kernels();
    DeviceProfile& profile = made_.profile;
    profile.name = args_.name.empty() ? args_.base.name + "-fitted" : args_.name;
    profile.summary = fmt::format("{} fitted to {}", args_.base.name, args_.source);
    GAPLESS_TRY(check_profile(profile, args_.source));
    return std::move(made_);
  }

 private:
  size_t index_of(std::string_view key) const {
    const auto found = std::find_if(made_.parameters.begin(), made_.parameters.end(),
                                    [key](const ParameterFit& one) { return one.key == key; });
    return static_cast<size_t>(found - made_.parameters.begin());
  }

  void set(const FittedValue& fitted) {
    const size_t index = index_of(fitted.key);
    const ProfileParameter& parameter = profile_parameters()[index];
    if (fitted.value < parameter.least || fitted.value > parameter.most) {
      return keep(fitted.key,
                  fmt::format("{}: {} is not within {} to {}", fitted.note, fitted.value,
                              parameter.least, parameter.most),
                  fitted.spread);
    }
    ParameterFit& fit = made_.parameters[index];
    fit.value = fitted.value;
    fit.is_fitted = true;
    fit.spread = fitted.spread;
    fit.note = fitted.note;
    made_.profile.*parameter.member = fitted.value;
    made_.profile.sources[index] = fmt::format("fitted to {}: {}", args_.source, fitted.note);
  }

  void keep(std::string_view key, std::string note, const Spread& spread) {
    ParameterFit& fit = made_.parameters[index_of(key)];
    fit.note = std::move(note);
    fit.spread = spread;
  }

  void keep_cores(const std::string& reason) {
    for (const std::string_view key :
         {"cluster.count", "cluster.vector_cores", "cluster.is_unified"}) {
      keep(key, reason, {});
    }
  }

  uint32_t stream_count(const StepTasks& tasks) const {
    uint32_t count = 0;
    for (uint32_t core = 0; core < tasks.core_count(); ++core) {
      if (args_.trace.lanes[tasks.lane(core)].kind == LaneKind::kStream) ++count;
    }
    return count;
  }

  void fit_cores() {
    const RecordedCores cores = recorded_cores(*args_.steps.front().tasks);
    const uint32_t streams = stream_count(*args_.steps.front().tasks);
    if (streams > 0) {
      keep_cores(counted(streams, "lane") + " of streams: queues, and not cores");
      return fit_threads();
    }
    if (cores.any_count > 0 && cores.cube_count + cores.vector_count == 0) {
      const std::string note =
          fmt::format("{} lanes of cores that run every task", cores.any_count);
      set({"cluster.count", cores.any_count, note});
      set({"cluster.vector_cores", 0, note});
      set({"cluster.is_unified", 1, note});
      return fit_threads();
    }
    const std::string lanes =
        fmt::format("lanes of {} cube and {} vector cores", cores.cube_count, cores.vector_count);
    const bool are_clusters = cores.any_count == 0 && cores.vector_cores() > 0;
    if (are_clusters) {
      set({"cluster.count", cores.cube_count, lanes});
      set({"cluster.vector_cores", cores.vector_cores(), lanes});
      set({"cluster.is_unified", 0, lanes});
      return fit_threads();
    }
    const std::string reason = cores.any_count > 0
                                   ? fmt::format("{} and {} of no kind", lanes, cores.any_count)
                                   : lanes + " are no clusters of one cube core each";
    keep_cores(reason);
    fit_threads();
  }

  // A thread without a cluster cannot be simulated; the base may have more threads than the trace
  // has cores.
  void fit_threads() {
    const int64_t lanes = static_cast<int64_t>(scheduler_lanes(args_.trace).size());
    const int64_t clusters = made_.profile.cluster_count;
    const int64_t kept = made_.profile.scheduler_threads;
    if (lanes > 0 && lanes <= clusters) {
      set({"scheduler.threads", lanes, counted(static_cast<uint64_t>(lanes), "scheduler lane")});
    } else if (kept > clusters) {
      set({"scheduler.threads", clusters, "no more than clusters"});
    } else {
      keep("scheduler.threads",
           lanes == 0 ? "no scheduler lanes"
                      : fmt::format("{} scheduler lanes for {} clusters", lanes, clusters),
           {});
    }
  }

  void fit_poll_by_replay() {
    const std::string_view key = "scheduler.poll_ns";
    const RecordedStep& step = args_.steps.front();
    const Spread spread = samples_.wait.spread();
    if (!samples_.wait.has_enough())
      return keep(key, "no phases that tell it, no finishes", spread);
    if (step.recorded.graph.edge_count() == 0) {
      return keep(key, "no phases that tell it, and no edges for a replay", spread);
    }
    const double mean_ns = samples_.wait.mean();
    const Result<RecordedGraph> varied = make_recorded_graph(
        args_.trace, *step.tasks, {.sigma_ns = std::max(made_.profile.tick_ns / 4, int64_t{1})});
    if (!varied) return keep(key, varied.error().message, spread);
    const Result<int64_t> poll_ns = poll_by_replay({varied->graph, made_.profile, mean_ns});
    if (!poll_ns) return keep(key, poll_ns.error().message, spread);
    set({key, *poll_ns,
         fmt::format("with it a replay waits {:.0f} ns from end to finish, the mean of {}", mean_ns,
                     spread.count),
         spread});
  }

  void note_memory() {
    if (samples_.bytes <= 0 || samples_.window_ns <= 0) return;
    const double rate =
        static_cast<double>(samples_.bytes) / static_cast<double>(samples_.window_ns);
    keep("hbm.bytes_per_s",
         fmt::format("at least {:.1f} GB/s, which the step took on average: a lower bound", rate),
         {});
  }

  // Work must add up, so it is the mean and not the median; single runs that are far off would
  // spoil both figures.
  KernelFit fit_kernel(const std::string& name, const Samples& samples) const {
    const Spread spread = samples.spread();
    const KernelCalibration* known = args_.base.find_kernel(name);
    KernelFit fit = {.kernel = name,
                     .before_mean_ns = known == nullptr ? kAbsent : known->mean_ns,
                     .spread = spread};
    const int64_t range_ns =
        std::max({spread.upper - spread.lower, samples_.tick_ns, spread.median / 20});
    const auto is_far = [&](int64_t run_ns) {
      return std::abs(run_ns - spread.median) > kOutlierRanges * range_ns;
    };
    fit.outlier_count = static_cast<uint64_t>(
        std::count_if(samples.values().begin(), samples.values().end(), is_far));
    // Many of them are not single runs but what the kernel does.
    if (fit.outlier_count > std::max(samples.count() / kOutliersOneIn, uint64_t{1})) {
      fit.outlier_count = 0;
    }
    double sum = 0.0;
    double squares = 0.0;
    double count = 0.0;
    for (const int64_t run_ns : samples.values()) {
      if (fit.outlier_count > 0 && is_far(run_ns)) continue;
      const int64_t offset_ns = run_ns - spread.median;
      sum += static_cast<double>(offset_ns);
      squares += static_cast<double>(offset_ns) * static_cast<double>(offset_ns);
      count += 1.0;
    }
    const double mean = sum / count;  // the median itself is always among them
    fit.mean_ns = spread.median + std::llround(mean);
    fit.sigma_ns = std::llround(std::sqrt(std::max(squares / count - mean * mean, 0.0)));
    return fit;
  }

  void fit_kernels() {
    std::vector<KernelCalibration>& list = made_.profile.kernels;
    for (const auto& [name, samples] : samples_.kernels) {
      if (samples.count() == 0) continue;
      const KernelFit fit = fit_kernel(name, samples);
      made_.kernels.push_back(fit);
      const KernelCalibration kernel = {
          .kernel = name,
          .mean_ns = fit.mean_ns,
          .sigma_ns = fit.sigma_ns,
          .source = fmt::format("fitted to {}: mean of {} runs", args_.source,
                                fit.spread.count - fit.outlier_count)};
      const auto place = std::lower_bound(
          list.begin(), list.end(), name,
          [](const KernelCalibration& one, const std::string& key) { return one.kernel < key; });
      if (place != list.end() && place->kernel == name) {
        *place = kernel;
      } else {
        list.insert(place, kernel);
      }
    }
  }

  const CalibrationArgs& args_;
  const CalibrationSamples& samples_;
  Calibration made_;
};

}  // namespace

Result<Calibration> calibrate(const CalibrationArgs& args) {
  CalibrationSamples samples;
  uint64_t task_count = 0;
  for (const RecordedStep& step : args.steps) {
    task_count += step.tasks->task_count();
    add_core_samples(args.trace, step, samples);
    add_submit_samples(step, samples);
    add_kernel_samples(args.trace, step, samples);
    add_phase_samples(args.trace, step, samples);
  }
  if (task_count == 0) {
    return fail(ErrorCode::kInvalidInput, "{}: no task ran that could be measured", args.source);
  }
  return Calibrator(args, samples).make();
}

}  // namespace gapless
