// SPDX-License-Identifier: Apache-2.0
//
// Writes a trace as a swimlane file of any generation with its deps.json and name map, for tests.
// Rows without a start are joins: the rows before one are written as the blocks of one task.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/decimal.h"
#include "base/json_text.h"
#include "formats/swimlane_reader.h"
#include "trace/trace.h"

namespace gapless {

enum class SwimlaneGeneration { kPerf, kL2, kChip };

struct SwimlaneTextOptions {
  SwimlaneGeneration generation = SwimlaneGeneration::kChip;
  int64_t ticks_per_second = 50'000'000;
  int level = 4;
};

struct SwimlaneText {
  std::string records;
  std::string deps;
  std::string names;
};

class SwimlaneTextWriter {
 public:
  SwimlaneTextWriter(const Trace& trace, const SwimlaneTextOptions& options)
      : trace_(trace), options_(options) {
    number_cores();
    number_tasks();
    number_kernels();
    for (const std::vector<int64_t>& times : trace.tasks.time_ns) {
      for (const int64_t time_ns : times) {
        if (time_ns != kAbsent) origin_ns_ = std::min(origin_ns_, time_ns - kSubmitNs);
      }
    }
  }

  SwimlaneText write() {
    write_graph();
    const bool is_old = options_.generation == SwimlaneGeneration::kPerf;
    text_.records = is_old ? old_records() : cycle_records();
    text_.names = "{\"level\": 2, \"orchestrator_name\": \"made\", \"callable_id_to_name\": {";
    for (const auto& [kernel, id] : kernels_) {
      text_.names += fmt::format("{}\"{}\": ", id == kFirstKernel ? "" : ", ", id);
      append_json_string(text_.names, trace_.names[kernel]);
    }
    text_.names += "}}\n";
    return std::move(text_);
  }

 private:
  static constexpr int64_t kSubmitNs = 1000;  // how long a submit takes
  static constexpr int kFirstKernel = 7;

  bool is_join(uint32_t row) const { return time(row, TaskTime::kStart) == kAbsent; }
  int64_t time(uint32_t row, TaskTime time) const { return trace_.tasks.at(time)[row]; }
  LaneKind kind(uint32_t row) const { return trace_.lanes[trace_.tasks.lane[row]].kind; }
  uint32_t core(uint32_t row) const { return cores_.at(trace_.tasks.lane[row]); }
  const char* type(LaneKind kind) const { return kind == LaneKind::kCubeCore ? "aic" : "aiv"; }

  void number_cores() {
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane) {
      const LaneKind kind = trace_.lanes[lane].kind;
      if (kind != LaneKind::kCubeCore && kind != LaneKind::kVectorCore) continue;
      cores_.emplace(lane, static_cast<uint32_t>(cores_.size()));
    }
  }

  // Rings 0 and 1 in turn, so that tokens need more than 32 bits.
  void number_tasks() {
    const uint32_t count = static_cast<uint32_t>(trace_.tasks.size());
    for (uint32_t row = 0; row < count; ++row) {
      tokens_.push_back(uint64_t{row % 2} << 32 | row);
    }
    for (size_t edge = 0; edge < trace_.edges.size(); ++edge) {
      const uint32_t join = trace_.edges.consumer[edge];
      if (is_join(join)) tokens_[trace_.edges.producer[edge]] = tokens_[join];
    }
    for (uint32_t row = 0; row < count; ++row) {
      if (!is_join(row)) runs_[tokens_[row]].push_back(row);
    }
  }

  void number_kernels() {
    for (uint32_t row = 0; row < trace_.tasks.size(); ++row) {
      if (is_join(row)) continue;
      kernels_.emplace(trace_.tasks.kernel[row], kFirstKernel + static_cast<int>(kernels_.size()));
    }
  }

  void write_graph() {
    std::string& out = text_.deps;
    out = "{\"tasks\": [";
    for (const auto& [token, rows] : runs_) {
      std::array<int, 3> kernels = {-1, -1, -1};
      kernels[kind(rows[0]) == LaneKind::kCubeCore ? 0 : 1] =
          kernels_.at(trace_.tasks.kernel[rows[0]]);
      out += fmt::format(
          "{}\n  {{\"task_id\": \"{}\", \"scope\": \"auto\", \"kernel_ids\": [{}, {}, {}], "
          "\"block_num\": {}, \"args\": [{{\"idx\": 0, \"shape\": [16, 8192]}}]}}",
          token == runs_.begin()->first ? "" : ",", token, kernels[0], kernels[1], kernels[2],
          rows.size());
    }
    out += "\n], \"tensors\": [{\"tensor_id\": \"18446744073709551615\"}], \"edges\": [";
    bool is_first = true;
    for (size_t edge = 0; edge < trace_.edges.size(); ++edge) {
      const uint32_t consumer = trace_.edges.consumer[edge];
      if (is_join(consumer)) continue;
      const bool is_data = trace_.edges.kind[edge] == static_cast<uint8_t>(EdgeKind::kData);
      out += fmt::format(
          "{}\n  {{\"pred\": \"{}\", \"succ\": \"{}\", \"arg\": 0, \"source\": \"{}\", "
          "\"flags\": [\"wait\", \"retain\"], \"overlap\": \"covered\"}}",
          std::exchange(is_first, false) ? "" : ",", tokens_[trace_.edges.producer[edge]],
          tokens_[consumer], is_data ? "tensormap" : "explicit");
    }
    out += "\n]}\n";
  }

  // Not from 0, which stands for a time that was not taken.
  int64_t cycles(int64_t time_ns) const {
    return 1000 + (time_ns - origin_ns_) / (1'000'000'000 / options_.ticks_per_second);
  }

  std::string cycle_records() const {
    const bool is_chip = options_.generation == SwimlaneGeneration::kChip;
    std::string out = fmt::format("{{\n  \"{}_swimlane_level\": {},\n  \"metadata\": {{\n",
                                  is_chip ? "chip" : "l2", options_.level);
    out += fmt::format("    \"clock_freq_hz\": {},\n    \"num_cores\": {},\n    \"core_types\": [",
                       options_.ticks_per_second, cores_.size());
    for (const auto& [lane, core] : cores_) {
      out += fmt::format("{}\"{}\"", core == 0 ? "" : ", ", type(trace_.lanes[lane].kind));
    }
    out += "]\n  },\n  \"aicore_tasks\": [";
    std::vector<std::string> dispatches;
    std::map<uint32_t, int> register_ids;
    for (uint32_t row = 0; row < trace_.tasks.size(); ++row) {
      if (is_join(row)) continue;
      const int id = ++register_ids[core(row)];
      const int64_t start = cycles(time(row, TaskTime::kStart));
      const int64_t receive_to_start = start - cycles(time(row, TaskTime::kReceive));
      out +=
          fmt::format("{}\n    [{}, {}, {}, {}, {}, {}]", row == 0 ? "" : ",", core(row),
                      tokens_[row], id, start, cycles(time(row, TaskTime::kEnd)), receive_to_start);
      dispatches.push_back(fmt::format("[{}, {}, {}, {}]", core(row), id,
                                       cycles(time(row, TaskTime::kDispatch)),
                                       cycles(time(row, TaskTime::kFinish))));
    }
    out += "\n  ],\n  \"aicpu_tasks\": [";
    std::reverse(dispatches.begin(), dispatches.end());
    if (options_.level < 2) dispatches.clear();
    for (size_t i = 0; i < dispatches.size(); ++i) {
      out += fmt::format("{}\n    {}", i == 0 ? "" : ",", dispatches[i]);
    }
    return out + "\n  ]" + phases() + "\n}\n";
  }

  std::string clock_text(int64_t time_ns) const {
    if (options_.generation != SwimlaneGeneration::kPerf) return fmt::format("{}", cycles(time_ns));
    std::array<char, 24> buffer;
    char* end = write_microseconds(buffer.data(), time_ns - origin_ns_);
    return std::string(buffer.data(), end);
  }

  // The scheduler's dispatches on thread 0, the submits on thread 3.
  std::string phases() const {
    const bool is_old = options_.generation == SwimlaneGeneration::kPerf;
    const char* unit = is_old ? "time_us" : "cycles";
    std::string out;
    if (options_.level >= 3) {
      out += ",\n  \"aicpu_scheduler_phases\": [[";
      bool is_first = true;
      for (uint32_t row = 0; row < trace_.tasks.size(); ++row) {
        if (is_join(row)) continue;
        const int64_t dispatch_ns = time(row, TaskTime::kDispatch);
        out += fmt::format(
            "{}\n    {{\"{}\": \"dispatch\", \"start_{}\": {}, \"end_{}\": {}, \"loop_iter\": {}, "
            "\"tasks_processed\": 1}}",
            std::exchange(is_first, false) ? "" : ",", is_old ? "phase" : "kind", unit,
            clock_text(dispatch_ns - 100), unit, clock_text(dispatch_ns), row);
      }
      out += "\n  ], [], [], []]";
    }
    if (options_.level < 4) return out;
    out += ",\n  \"aicpu_orchestrator_phases\": [[], [], [], [";
    int index = 0;
    for (const auto& [token, rows] : runs_) {
      const int64_t submit_ns = time(rows[0], TaskTime::kSubmit);
      out += fmt::format(
          "{}\n    {{\"submit_idx\": {}, \"task_id\": {}, \"start_{}\": {}, "
          "\"end_{}\": {}}}",
          index == 0 ? "" : ",", index, token, unit, clock_text(submit_ns - kSubmitNs), unit,
          clock_text(submit_ns));
      ++index;
    }
    return out + "\n  ]]";
  }

  std::string old_records() const {
    std::map<uint64_t, std::string> fanouts;
    for (size_t edge = 0; edge < trace_.edges.size(); ++edge) {
      if (is_join(trace_.edges.consumer[edge])) continue;
      std::string& fanout = fanouts[tokens_[trace_.edges.producer[edge]]];
      fanout +=
          fmt::format("{}{}", fanout.empty() ? "" : ", ", tokens_[trace_.edges.consumer[edge]]);
    }
    std::string out = "{\n  \"version\": 2,\n  \"tasks\": [";
    for (uint32_t row = 0; row < trace_.tasks.size(); ++row) {
      if (is_join(row)) continue;
      const auto at = [&](TaskTime which) { return clock_text(time(row, which)); };
      out += fmt::format(
          "{}\n    {{\"task_id\": {}, \"func_id\": {}, \"core_id\": {}, \"core_type\": \"{}\", "
          "\"ring_id\": {}, \"start_time_us\": {}, \"end_time_us\": {}, \"dispatch_time_us\": {}, "
          "\"finish_time_us\": {}, \"fanout\": [{}]}}",
          row == 0 ? "" : ",", tokens_[row], kernels_.at(trace_.tasks.kernel[row]), core(row),
          type(kind(row)), tokens_[row] >> 32, at(TaskTime::kStart), at(TaskTime::kEnd),
          at(TaskTime::kDispatch), at(TaskTime::kFinish),
          row == runs_.at(tokens_[row]).front() ? fanouts[tokens_[row]] : "");
    }
    return out + "\n  ]" + phases() + "\n}\n";
  }

  const Trace& trace_;
  const SwimlaneTextOptions options_;
  SwimlaneText text_;
  int64_t origin_ns_ = kMaxTimeNs;
  std::map<uint32_t, uint32_t> cores_;  // lane -> core
  std::vector<uint64_t> tokens_;        // by row
  std::map<uint64_t, std::vector<uint32_t>> runs_;
  std::map<uint32_t, int> kernels_;
};

inline SwimlaneText swimlane_text(const Trace& trace, const SwimlaneTextOptions& options) {
  return SwimlaneTextWriter(trace, options).write();
}

inline InputStream text_stream(const std::string& text, std::string name) {
  return InputStream::from_memory(std::as_bytes(std::span(text)), std::move(name));
}

// Empty texts are files that are not there.
inline Result<Trace> read_swimlane_text(const SwimlaneText& text) {
  SwimlaneInputs inputs{.records = text_stream(text.records, "records.json"),
                        .deps = std::nullopt,
                        .names = std::nullopt};
  if (!text.deps.empty()) inputs.deps = text_stream(text.deps, "deps.json");
  if (!text.names.empty()) inputs.names = text_stream(text.names, "name_map.json");
  return read_swimlane_inputs(std::move(inputs), {});
}

// --- a small file, and what tests ask of a trace ---

// Two cube cores and one vector core at 50 MHz: a cycle is 20 ns. Task 1 runs on core 0, then task
// 4294967298 (ring 1, number 2) on core 2.
inline constexpr std::string_view kChip = R"({
  "chip_swimlane_level": 4,
  "metadata": {"clock_freq_hz": 50000000, "num_cores": 3, "core_types": ["aic", "aic", "aiv"],
               "core_to_thread": [0, 0, 0]},
  "aicore_tasks": [
    [0, 1, 8, 1100, 1200, 10],
    [2, 4294967298, 9, 1300, 1350, 5]],
  "aicpu_tasks": [
    [2, 9, 1280, 1360],
    [0, 8, 1080, 1210]],
  "aicpu_scheduler_phases": [[
    {"kind": "complete", "start_cycles": 1205, "end_cycles": 1215, "loop_iter": 4,
     "tasks_processed": 1},
    {"kind": "dispatch", "start_cycles": 1070, "end_cycles": 1080, "loop_iter": 1,
     "tasks_processed": 1, "pop_hit": 1, "pop_miss": 0}], []],
  "aicpu_orchestrator_phases": [[], [
    {"submit_idx": 0, "task_id": 1, "start_cycles": 1000, "end_cycles": 1040},
    {"submit_idx": 1, "task_id": 4294967298, "start_cycles": 1040, "end_cycles": 1060}]]
})";

inline constexpr std::string_view kDeps = R"({"tasks": [
  {"task_id": "1", "scope": "auto", "kernel_ids": [12, -1, -1], "block_num": 1, "args": []},
  {"task_id": "4294967298", "scope": "auto", "kernel_ids": [-1, 3, -1], "block_num": 1}],
  "tensors": [],
  "edges": [{"pred": "1", "succ": "4294967298", "arg": 0, "source": "tensormap",
             "flags": ["wait"]}]})";

inline constexpr std::string_view kNames =
    R"({"level": 2, "orchestrator_name": "decode", "callable_id_to_name": {"3": "softmax"}})";

inline SwimlaneText chip_text() {
  return {std::string(kChip), std::string(kDeps), std::string(kNames)};
}

inline Trace read_or_fail(const SwimlaneText& text) {
  Result<Trace> trace = read_swimlane_text(text);
  EXPECT_TRUE(trace.has_value()) << trace.error().message;
  return trace ? std::move(*trace) : Trace{};
}

// A file of cycles at 1 GHz, level 2, with cores 0 (cube) and 1 (vector).
inline std::string records_of(std::string_view core_rows, std::string_view dispatch_rows) {
  return fmt::format(
      R"({{"chip_swimlane_level": 2, "metadata": {{"clock_freq_hz": 1000000000, "num_cores": 2, )"
      R"("core_types": ["aic", "aiv"]}}, "aicore_tasks": [{}], "aicpu_tasks": [{}]}})",
      core_rows, dispatch_rows);
}

inline Trace read_rows(std::string_view core_rows, std::string_view dispatch_rows,
                       std::string_view deps = "") {
  return read_or_fail({records_of(core_rows, dispatch_rows), std::string(deps), ""});
}

// The count of a finding; 0: there is none.
inline uint64_t finding_count(const Trace& trace, std::string_view code) {
  for (const Finding& finding : trace.findings) {
    if (finding.code == code) return finding.count;
  }
  return 0;
}

// What every trace that was read must be, whatever was in the file.
inline void expect_sound(const Trace& trace) {
  const TaskColumns& tasks = trace.tasks;
  for (size_t row = 0; row < tasks.size(); ++row) {
    ASSERT_TRUE(tasks.lane[row] == kNoIndex || tasks.lane[row] < trace.lanes.size());
    ASSERT_LT(tasks.kernel[row], trace.names.size());
    const int64_t start_ns = tasks.at(TaskTime::kStart)[row];
    const int64_t end_ns = tasks.at(TaskTime::kEnd)[row];
    if (start_ns != kAbsent && end_ns != kAbsent) {
      ASSERT_LE(start_ns, end_ns);
    }
  }
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    ASSERT_LT(trace.edges.producer[edge], tasks.size());
    ASSERT_LT(trace.edges.consumer[edge], tasks.size());
  }
}

}  // namespace gapless
