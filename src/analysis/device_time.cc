// SPDX-License-Identifier: Apache-2.0

#include "analysis/device_time.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "trace/capture_trace.h"

namespace gapless {
namespace {

enum class Activity : uint8_t { kCompute, kCommunication, kCopy };

Activity activity_of(KernelKind kind) {
  if (kind == KernelKind::kCollective) return Activity::kCommunication;
  return kind == KernelKind::kCopy ? Activity::kCopy : Activity::kCompute;
}

// A task begins or ends.
struct Moment {
  int64_t time_ns;
  uint32_t task;
  bool is_begin;
};

class DeviceSweep {
 public:
  DeviceSweep(const KernelKinds& kinds, const StepTasks& tasks, uint32_t device)
      : kinds_(kinds), tasks_(tasks) {
    time_.device = device;
    time_.window_ns = tasks.window_ns();
  }

  void add(uint32_t task) {
    // What has no length runs at no moment.
    if (tasks_.start_ns(task) == tasks_.end_ns(task)) return;
    moments_.push_back({tasks_.start_ns(task), task, true});
    moments_.push_back({tasks_.end_ns(task), task, false});
  }

  DeviceTime sweep();

 private:
  void account(int64_t begin_ns, int64_t end_ns);
  void account_idle(const DeviceGap& gap);
  void find_next(size_t moment, DeviceGap& gap) const;

  const KernelKinds& kinds_;
  const StepTasks& tasks_;
  std::vector<Moment> moments_;
  std::array<uint32_t, 3> running_ = {};  // by Activity
  DeviceTime time_;
};

// Something runs from begin to end.
void DeviceSweep::account(int64_t begin_ns, int64_t end_ns) {
  const int64_t length_ns = end_ns - begin_ns;
  const bool communicates = running_[static_cast<size_t>(Activity::kCommunication)] > 0;
  if (running_[static_cast<size_t>(Activity::kCompute)] > 0) {
    time_.compute_ns += length_ns;
    if (communicates) time_.overlapped_ns += length_ns;
  } else if (communicates) {
    time_.communication_alone_ns += length_ns;
  } else {
    time_.copy_alone_ns += length_ns;
  }
}

void DeviceSweep::account_idle(const DeviceGap& gap) {
  if (gap.begin_ns == gap.end_ns) return;
  time_.idle_ns += gap.end_ns - gap.begin_ns;
  time_.gaps.push_back(gap);
  if (gap.launch_ns == kAbsent) {
    time_.idle_unknown_ns += gap.end_ns - gap.begin_ns;
    return;
  }
  const int64_t cut_ns = std::clamp(gap.launch_ns, gap.begin_ns, gap.end_ns);
  time_.idle_for_launch_ns += cut_ns - gap.begin_ns;
  time_.idle_launched_ns += gap.end_ns - cut_ns;
}

// Of the kernels that begin together at the moment, the one whose launch came first.
void DeviceSweep::find_next(size_t moment, DeviceGap& gap) const {
  gap.task_after = moments_[moment].task;
  const int64_t time_ns = moments_[moment].time_ns;
  for (; moment < moments_.size() && moments_[moment].time_ns == time_ns; ++moment) {
    if (!moments_[moment].is_begin) continue;
    const int64_t launch_ns = tasks_.time_ns(moments_[moment].task, TaskTime::kSubmit);
    if (launch_ns == kAbsent || (gap.launch_ns != kAbsent && launch_ns >= gap.launch_ns)) continue;
    gap.launch_ns = launch_ns;
    gap.task_after = moments_[moment].task;
  }
}

DeviceTime DeviceSweep::sweep() {
  // Ends come first, so that nothing runs twice at the moment where two tasks meet.
  std::sort(moments_.begin(), moments_.end(), [](const Moment& a, const Moment& b) {
    if (a.time_ns != b.time_ns) return a.time_ns < b.time_ns;
    return a.is_begin < b.is_begin;
  });
  int64_t at_ns = tasks_.window().begin_ns;
  uint32_t count = 0;
  uint32_t ended = kNoIndex;
  for (size_t i = 0; i < moments_.size(); ++i) {
    const Moment& moment = moments_[i];
    if (count > 0) {
      account(at_ns, moment.time_ns);
    } else {
      DeviceGap gap = {at_ns, moment.time_ns, kAbsent, ended, kNoIndex};
      find_next(i, gap);
      account_idle(gap);
    }
    at_ns = moment.time_ns;
    if (!moment.is_begin) ended = moment.task;
    uint32_t& running =
        running_[static_cast<size_t>(activity_of(kinds_.of(tasks_.kernel(moment.task))))];
    running = moment.is_begin ? running + 1 : running - 1;
    count = moment.is_begin ? count + 1 : count - 1;
  }
  account_idle({at_ns, tasks_.window().end_ns, kAbsent, ended, kNoIndex});
  return time_;
}

}  // namespace

std::vector<DeviceTime> device_times(const Trace& trace, const StepTasks& tasks) {
  std::map<uint32_t, bool> has_streams_alone;
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    const Lane& lane = trace.lanes[tasks.lane(core)];
    const auto [entry, is_new] = has_streams_alone.try_emplace(lane.device, true);
    entry->second = entry->second && lane.kind == LaneKind::kStream;
  }
  const KernelKinds kinds(trace);
  std::map<uint32_t, DeviceSweep> sweeps;
  for (const auto& [device, is_streams] : has_streams_alone) {
    if (is_streams) sweeps.try_emplace(device, kinds, tasks, device);
  }
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    const auto sweep = sweeps.find(trace.lanes[tasks.lane(tasks.core(task))].device);
    if (sweep != sweeps.end()) sweep->second.add(task);
  }
  std::vector<DeviceTime> times;
  for (auto& [device, sweep] : sweeps) times.push_back(sweep.sweep());
  return times;
}

}  // namespace gapless
