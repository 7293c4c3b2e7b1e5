// SPDX-License-Identifier: Apache-2.0
//
// AscendTimeline: the kernels and collectives in the events of trace_view.json or msprof*.json.
// Part of json_kernels.h.
//
// Processes and threads may get their names behind their events, so rows wait for finish(). What
// can be told from an event alone (tasks that are no kernels, parts of collectives) is counted at
// once and does not wait. An event that waits takes 56 bytes; of those whose process has no name
// yet and that do not look like tasks of a device, two million may wait.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/chrome_json_event.h"
#include "formats/json_kernel_events.h"
#include "trace/capture_table.h"

namespace gapless {

class AscendTimeline {
 public:
  explicit AscendTimeline(JsonKernelEvents& events) : events_(events) {}

  void add_metadata(const ChromeEvent& event);
  void add_flow(const ChromeEvent& event, bool is_start);
  // One complete event that is not known to be another's.
  void add(const ChromeEvent& event);
  void finish();
  uint64_t row_count() const { return row_count_; }

 private:
  enum class Role : uint8_t {
    kUnknown,
    kHardware,
    kCommunication,
    kOverlap,
    kCalls,
    kMarks,
    kOther
  };
  struct Process {
    Role role = Role::kUnknown;
    std::string name;
    int64_t number = -1;  // "pid"
    int64_t sort_index = -1;
    int64_t labelled_device = -1;  // of "NPU 3"
    KernelEventLosses losses = {};
    uint64_t part_count = 0;                   // parts of collectives
    uint64_t unplaced_count = 0;               // events that could not wait for its name
    std::map<uint32_t, uint64_t> non_kernels;  // by name
  };
  struct WaitingEvent {
    int64_t start_ns;
    int64_t duration_ns;
    uint64_t thread;
    uint32_t process;
    uint32_t name;
    uint32_t core;  // kNoIndex: no task of a device
    int32_t stream;
    uint32_t task;
    bool is_task;
  };
  struct FlowStart {
    uint64_t id;
    int64_t time_ns;
    bool is_call;  // of the driver; otherwise of the framework
    bool is_paired = false;
  };
  struct FlowEnd {
    uint32_t process;
    uint64_t thread;
    int64_t time_ns;
    bool is_call;
    uint64_t id;
  };

  static Role role_of(std::string_view name);
  uint32_t process_of(const JsonValue& number);
  void add_task(const ChromeEvent& event, WaitingEvent& waiting);
  int32_t device_of(const Process& process) const;
  std::string_view thread_name(uint32_t process, uint64_t thread) const;
  void place(const WaitingEvent& waiting);
  void place_task(const WaitingEvent& waiting, const Process& process);
  void place_collective(const WaitingEvent& waiting, Process& process);
  void place_host(const WaitingEvent& waiting, const Process& process);
  void append(KernelRow row, const WaitingEvent& waiting);
  void pair_flows();
  int64_t launch_of(const WaitingEvent& waiting) const;
  void report_processes();
  void report_overlap();

  JsonKernelEvents& events_;
  std::vector<Process> processes_;
  std::unordered_map<uint64_t, uint32_t> process_numbers_;
  std::map<std::pair<uint32_t, uint64_t>, std::string> threads_;
  std::vector<WaitingEvent> waiting_;
  size_t unnamed_count_ = 0;  // of those waiting: no tasks, and of a process without a name
  std::vector<FlowStart> starts_;
  std::vector<FlowEnd> ends_;
  std::map<std::pair<uint32_t, uint32_t>, int64_t> overlap_ns_;  // by process and name
  std::map<uint32_t, uint32_t> types_;                           // by name
  uint64_t row_count_ = 0;
  uint64_t unnamed_task_count_ = 0;
  uint64_t foreign_task_count_ = 0;  // of processes that have another name
};

}  // namespace gapless
