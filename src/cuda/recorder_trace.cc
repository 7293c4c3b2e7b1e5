// SPDX-License-Identifier: Apache-2.0
//
// device_trace: RecordedBlocks as lanes, tasks, edges and spans.
//
// Tasks are on the lanes of SMs, which are the cores of reports; what blocks did in detail is on
// the lanes of their roles, which are of the kind kOther and count as no cores. Blocks that overlap
// on an SM have role lanes of their own, and so have launches that do.

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"
#include "cuda/recorder.h"
#include "cuda/recorder_blocks.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

constexpr std::array<std::string_view, kDevicePhaseCount> kPhaseNames = {
    "set up", "read ahead",     "wait for launch", "wait for data",
    "work",   "wait for block", "store",           "end"};
constexpr std::string_view kLostName = "not recorded";  // since the last record that had a place
constexpr std::array<std::string_view, kDeviceRoleCount> kRoleNames = {"main", "copy", "combine"};

// The part of item `index` of `count` that share `total`: sums are exact.
int64_t share_of(int64_t total, int index, int count) {
  const int64_t whole = std::clamp<int64_t>(total, 0, static_cast<int64_t>(kMaxTaskCost));
  return whole / count + (index < whole % count ? 1 : 0);
}

class DeviceTraceMaker {
 public:
  explicit DeviceTraceMaker(const DeviceRecording& recording)
      : recording_(recording), blocks_(recording), builder_("gapless") {}

  Trace run() {
    add_lanes();
    add_launches();
    add_tasks();
    add_phases();
    add_steps();
    add_host();
    add_properties();
    add_findings();
    return builder_.finish();
  }

 private:
  void add_lanes();
  uint32_t launch_lane(uint32_t slot);
  uint32_t role_lane(const RecordedBlock& block, int role);
  void add_launches();
  void add_tasks();
  void add_task(size_t place, const RecordedLaunch& launch, int index);
  void add_phases();
  void add_role(size_t place, int role);
  void add_steps();
  void add_host();
  void add_properties();
  void add_findings();
  void warn(std::string_view code, uint64_t count, std::string text);

  static uint64_t task_id(size_t place) { return uint64_t{place} + 1; }

  const DeviceRecording& recording_;
  RecordedBlocks blocks_;
  TraceBuilder builder_;
  uint32_t device_ = 0;
  uint32_t step_lane_ = 0;
  std::vector<uint32_t> launch_lanes_;             // by slot
  std::vector<std::vector<uint32_t>> role_lanes_;  // by SM: [slot][role]; kNoIndex: none yet
  uint64_t record_count_ = 0;
  uint64_t dropped_count_ = 0;
};

void DeviceTraceMaker::add_lanes() {
  device_ = builder_.add_device({.name = recording_.device_name, .number = 0});
  for (size_t sm = 0; sm < blocks_.sm_count(); ++sm) {
    builder_.add_lane({.name = fmt::format("SM {}", sm),
                       .kind = LaneKind::kSm,
                       .device = device_,
                       .number = static_cast<int64_t>(sm)});
  }
  step_lane_ =
      builder_.add_lane({.name = "steps", .kind = LaneKind::kOrchestrator, .device = device_});
  role_lanes_.resize(blocks_.sm_count());
}

uint32_t DeviceTraceMaker::launch_lane(uint32_t slot) {
  while (launch_lanes_.size() <= slot) {
    const size_t number = launch_lanes_.size();
    launch_lanes_.push_back(builder_.add_lane(
        {.name = number == 0 ? "launches" : fmt::format("launches {}", number + 1),
         .kind = LaneKind::kStream,
         .device = device_,
         .number = static_cast<int64_t>(number)}));
  }
  return launch_lanes_[slot];
}

uint32_t DeviceTraceMaker::role_lane(const RecordedBlock& block, int role) {
  std::vector<uint32_t>& lanes = role_lanes_[block.sm];
  const size_t index = size_t{block.slot} * kDeviceRoleCount + static_cast<size_t>(role);
  if (lanes.size() <= index) lanes.resize((size_t{block.slot} + 1) * kDeviceRoleCount, kNoIndex);
  if (lanes[index] == kNoIndex) {
    const std::string_view name = kRoleNames[static_cast<size_t>(role)];
    const std::string number = block.slot == 0 ? "" : fmt::format(" {}", block.slot + 1);
    lanes[index] = builder_.add_lane({.name = fmt::format("SM {} {}{}", block.sm, name, number),
                                      .kind = LaneKind::kOther,
                                      .device = device_,
                                      .number = block.sm});
  }
  return lanes[index];
}

void DeviceTraceMaker::add_launches() {
  SlotChooser slots;
  for (size_t step = 0; step < blocks_.step_count(); ++step) {
    for (size_t launch = 0; launch < recording_.launches.size(); ++launch) {
      const LaunchRun& run = blocks_.run(step, launch);
      if (!run.is_there) continue;
      const RecordedLaunch& recorded = recording_.launches[launch];
      const uint32_t layer = recorded.layer < 0 ? kNoValue : static_cast<uint32_t>(recorded.layer);
      builder_.add_span(launch_lane(slots.choose(run.begin_ns, run.end_ns)), run.begin_ns,
                        run.end_ns, builder_.intern(recorded.name), layer);
    }
  }
}

void DeviceTraceMaker::add_task(size_t place, const RecordedLaunch& launch, int index) {
  const RecordedBlock& block = blocks_.blocks()[place];
  const uint32_t kernel = builder_.intern(launch.name);
  const std::pair<TaskTime, int64_t> times[] = {{TaskTime::kReady, block.ready_ns},
                                                {TaskTime::kReceive, block.begin_ns},
                                                {TaskTime::kStart, block.start_ns},
                                                {TaskTime::kEnd, block.end_ns}};
  for (const auto& [time, time_ns] : times) {
    builder_.task_time(task_id(place), time, time_ns, block.sm, kernel);  // an SM's lane is its own
  }
  builder_.task_cost(task_id(place), share_of(launch.bytes, index, launch.blocks),
                     share_of(launch.flops, index, launch.blocks));
}

void DeviceTraceMaker::add_tasks() {
  for (size_t step = 0; step < blocks_.step_count(); ++step) {
    const LaunchRun* before = nullptr;
    for (size_t launch = 0; launch < recording_.launches.size(); ++launch) {
      const RecordedLaunch& recorded = recording_.launches[launch];
      for (int i = 0; i < recorded.blocks; ++i) {
        const size_t place = blocks_.first_place(step, launch) + static_cast<size_t>(i);
        if (!blocks_.blocks()[place].is_there()) continue;
        add_task(place, recorded, i);
        if (before != nullptr) builder_.edge(task_id(before->last_block), task_id(place));
      }
      if (blocks_.run(step, launch).is_there) before = &blocks_.run(step, launch);
    }
  }
}

void DeviceTraceMaker::add_role(size_t place, int role) {
  const RolePhases recorded = blocks_.phases(place, role);
  const std::vector<RolePhase>& phases = recorded.phases;
  if (phases.empty()) return;
  const uint32_t lane = role_lane(blocks_.blocks()[place], role);
  record_count_ += phases.size();
  dropped_count_ += recorded.dropped;
  builder_.trace().lanes[lane].dropped_count += recorded.dropped;
  for (size_t i = 0; i + 1 < phases.size(); ++i) {
    const bool is_lost = recorded.dropped > 0 && i + 2 == phases.size();
    const std::string_view name =
        is_lost ? kLostName : kPhaseNames[static_cast<size_t>(phases[i].phase())];
    builder_.add_span(lane, phases[i].time_ns, phases[i + 1].time_ns, builder_.intern(name),
                      phases[i].value());
  }
}

// By SM first, so that the lanes of one are side by side.
void DeviceTraceMaker::add_phases() {
  std::vector<std::vector<size_t>> places(blocks_.sm_count());
  for (size_t place = 0; place < blocks_.blocks().size(); ++place) {
    const RecordedBlock& block = blocks_.blocks()[place];
    if (block.is_there()) places[block.sm].push_back(place);
  }
  for (const std::vector<size_t>& of_sm : places) {
    for (const size_t place : of_sm) {
      for (int role = 0; role < kDeviceRoleCount; ++role) add_role(place, role);
    }
  }
}

// From the first start to the last end.
void DeviceTraceMaker::add_steps() {
  const uint32_t name = builder_.intern("step");
  for (size_t step = 0; step < blocks_.step_count(); ++step) {
    TimeRange window = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    for (size_t i = 0; i < blocks_.step_blocks(); ++i) {
      const RecordedBlock& block = blocks_.blocks()[step * blocks_.step_blocks() + i];
      if (!block.is_there()) continue;
      window.begin_ns = std::min(window.begin_ns, block.start_ns);
      window.end_ns = std::max(window.end_ns, block.end_ns);
    }
    if (window.begin_ns >= window.end_ns) continue;
    builder_.add_span(step_lane_, window.begin_ns, window.end_ns, name,
                      static_cast<uint32_t>(step));
  }
}

void DeviceTraceMaker::add_host() {
  const std::vector<HostStep>& steps = recording_.host_steps;
  if (steps.empty()) return;
  const uint32_t device = builder_.add_device({.name = "host", .number = 0});
  const uint32_t lane =
      builder_.add_lane({.name = "launches of steps", .kind = LaneKind::kThread, .device = device});
  const uint32_t name = builder_.intern("launch step");
  for (size_t step = 0; step < steps.size(); ++step) {
    builder_.add_span(lane, steps[step].launch_begin_ns, steps[step].launch_end_ns, name,
                      static_cast<uint32_t>(step));
  }
}

void DeviceTraceMaker::add_properties() {
  std::vector<Property>& properties = builder_.trace().properties;
  properties.push_back({"recorder", "blocks of CUDA kernels"});
  properties.push_back({"recorder.level", blocks_.places().has_phases() ? "phases" : "tasks"});
  properties.push_back({"recorder.events", std::to_string(record_count_)});
  properties.push_back({"recorder.dropped", std::to_string(dropped_count_)});
  properties.push_back({"device", recording_.device_name});
  properties.push_back({"device.sm_count", std::to_string(recording_.sm_count)});
  properties.push_back({"device.clock_error_ns", std::to_string(blocks_.clock_error_ns())});
  properties.push_back({"host.clock_error_ns", std::to_string(recording_.clock.error_ns)});
}

void DeviceTraceMaker::warn(std::string_view code, uint64_t count, std::string text) {
  if (count == 0) return;
  builder_.add_finding({Severity::kWarning, std::string(code), std::move(text), kNoIndex, count});
}

void DeviceTraceMaker::add_findings() {
  const uint64_t block_count = blocks_.blocks().size();
  const uint64_t said_count = static_cast<uint64_t>(std::max(recording_.step_count, 0));
  const uint64_t lost_count =
      static_cast<uint64_t>(std::max<int64_t>(recording_.lost_step_count, 0));
  warn("cut-short", said_count - blocks_.step_count(),
       fmt::format("{} of {} of {} each were read: there are {} of records", blocks_.step_count(),
                   counted(said_count, "step"), counted(blocks_.step_blocks(), "block"),
                   counted(recording_.blocks.size(), "byte")));
  warn("alignment-unknown", blocks_.is_offset_known() ? 0 : 1,
       fmt::format("the GPU's clock is said to be {} ns ahead of the host's; taken as 0",
                   recording_.clock.offset_ns));
  warn("records-missing", blocks_.missing_count(),
       fmt::format("{} of {} blocks left no records", blocks_.missing_count(), block_count));
  warn("records-missing", blocks_.damaged_count(),
       fmt::format("{} of {} blocks have headers or main records that cannot be; left out",
                   blocks_.damaged_count(), block_count));
  warn("damaged", blocks_.damaged_role_count(),
       fmt::format("{} of blocks have records that cannot be; their phases are left out",
                   counted(blocks_.damaged_role_count(), "role")));
  warn("time-goes-back", blocks_.backward_count(),
       fmt::format("{} of clocks or timers are before the one they follow; moved to its time",
                   counted(blocks_.backward_count(), "reading")));
  warn("dropped", dropped_count_,
       fmt::format("{} had no place among the {} of a role of a block",
                   counted(dropped_count_, "record"), kRoleRecords));
  warn("steps-lost", lost_count,
       fmt::format("{} ran after the recorder was full", counted(lost_count, "step")));
  const bool is_uneven =
      !recording_.host_steps.empty() && recording_.host_steps.size() != said_count;
  warn("host-steps", is_uneven ? recording_.host_steps.size() : 0,
       fmt::format("the host launched {} and the GPU recorded {}",
                   counted(recording_.host_steps.size(), "step"), said_count));
}

}  // namespace

Trace device_trace(const DeviceRecording& recording) { return DeviceTraceMaker(recording).run(); }

}  // namespace gapless
