// SPDX-License-Identifier: Apache-2.0

#include "sim/sim_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "trace/join_names.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

constexpr uint64_t kMostDirectEdges = 4096;  // into one task; more go through a row before it
constexpr int kRecordShift = 40;
constexpr std::array<std::string_view, kSimPhaseCount> kPhaseNames = {
    "complete", "dispatch", "gang", "dummy", "early dispatch"};

class SimTraceMaker {
 public:
  SimTraceMaker(const DeviceProfile& profile, const SimGraph& graph, const SimResult& result,
                const SimTraceOptions& options)
      : profile_(profile), graph_(graph), result_(result), options_(options), builder_("gapless") {
    tick_ns_ = options.has_ticks ? std::max(profile.tick_ns, int64_t{1}) : 1;
  }

  Trace make() {
    add_lanes();
    add_properties();
    add_rows();
    add_edges();
    add_schedulers();
    add_orchestrator();
    return builder_.finish();
  }

 private:
  int64_t time(int64_t time_ns) const {
    if (time_ns == kAbsent) return kAbsent;
    return options_.begin_ns + time_ns / tick_ns_ * tick_ns_;
  }

  uint32_t add_lane(std::string name, LaneKind kind, int64_t number) {
    return builder_.add_lane({.name = std::move(name), .kind = kind, .number = number});
  }

  void add_lanes() {
    builder_.add_device({.name = profile_.name});
    const bool is_unified = profile_.is_unified != 0;
    const std::string_view thread = is_unified ? "scheduler_" : "AICPU_";
    for (int64_t i = 0; i < profile_.scheduler_threads; ++i) {
      add_lane(fmt::format("{}{}", thread, i), LaneKind::kScheduler, i);
    }
    orchestrator_ = add_lane(
        is_unified ? "orchestrator" : fmt::format("{}{}", thread, profile_.scheduler_threads),
        LaneKind::kOrchestrator, profile_.scheduler_threads);
    first_core_ = orchestrator_ + 1;
    for (int64_t i = 0; i < profile_.cluster_count; ++i) {
      add_lane(fmt::format("{}{}", is_unified ? "core_" : "AICube_", i),
               is_unified ? LaneKind::kWorker : LaneKind::kCubeCore, i);
    }
    for (int64_t i = 0; i < profile_.vector_core_count(); ++i) {
      add_lane(fmt::format("AIVector_{}", i), LaneKind::kVectorCore, i);
    }
  }

  double flops_limit(const SimTask& task) const {
    const double cubes = static_cast<double>(profile_.cluster_count);
    if (task.shape == SimShape::kVector && profile_.is_unified == 0) {
      return static_cast<double>(profile_.vector_core_count()) *
             static_cast<double>(profile_.vector_flops_per_s);
    }
    const bool is_int8 = task.cube.dtype == DType::kS8;
    return cubes * static_cast<double>(is_int8 ? profile_.cube_int8_flops_per_s
                                               : profile_.cube_bf16_flops_per_s);
  }

  void add_properties() {
    std::vector<Property>& properties = builder_.trace().properties;
    properties.push_back({"device", profile_.name});
    properties.push_back({"simulated", "yes"});
    properties.push_back({"seed", fmt::format("{}", options_.seed)});
    properties.push_back({"limit.bytes_per_second", fmt::format("{}", profile_.hbm_bytes_per_s)});
    std::vector<bool> is_known(graph_.kernels().size(), false);
    for (uint32_t task = 0; task < graph_.task_count(); ++task) {
      const SimTask& facts = graph_.task(task);
      if (is_known[facts.kernel] || facts.is_dummy) continue;
      is_known[facts.kernel] = true;
      properties.push_back({"limit.flops_per_second." + graph_.kernel_name(task),
                            fmt::format("{:.0f}", flops_limit(facts))});
    }
  }

  uint32_t add_row(uint64_t id, uint32_t lane, uint32_t kernel) {
    TaskColumns& tasks = builder_.trace().tasks;
    tasks.id.push_back(id);
    tasks.lane.push_back(lane);
    tasks.kernel.push_back(kernel);
    for (std::vector<int64_t>& times : tasks.time_ns) times.push_back(kAbsent);
    tasks.bytes.push_back(kAbsent);
    tasks.flops.push_back(kAbsent);
    return static_cast<uint32_t>(tasks.size() - 1);
  }

  void set_time(uint32_t row, TaskTime which, int64_t time_ns) {
    builder_.trace().tasks.time_ns[static_cast<size_t>(which)][row] = time(time_ns);
  }

  void reserve_rows() {
    const size_t rows = result_.records.size() + 2 * graph_.task_count();
    TaskColumns& tasks = builder_.trace().tasks;
    tasks.id.reserve(rows);
    tasks.lane.reserve(rows);
    tasks.kernel.reserve(rows);
    for (std::vector<int64_t>& times : tasks.time_ns) times.reserve(rows);
    tasks.bytes.reserve(rows);
    tasks.flops.reserve(rows);
  }

  // Rows of records have their numbers; those of joins and gates follow.
  void add_rows() {
    reserve_rows();
    for (const std::string& kernel : graph_.kernels()) kernels_.push_back(builder_.intern(kernel));
    for (uint64_t record = 0; record < result_.records.size(); ++record) add_record(record);
    exits_.assign(graph_.task_count(), kNoIndex);
    for (uint32_t task = 0; task < graph_.task_count(); ++task) {
      const uint64_t first = result_.record_begins[task];
      const uint64_t count = result_.record_begins[task + 1] - first;
      if (count == 1) {
        exits_[task] = static_cast<uint32_t>(first);
        continue;
      }
      const std::string name =
          fmt::format("{}{}", graph_.kernel_name(task), count == 0 ? "" : kJoinSuffix);
      exits_[task] = add_row(task, kNoIndex, builder_.intern(name));
      set_time(exits_[task], TaskTime::kSubmit, result_.tasks[task].submit_ns);
      set_time(exits_[task], TaskTime::kReady, result_.tasks[task].ready_ns);
      set_time(exits_[task], TaskTime::kFinish, result_.tasks[task].finish_ns);
    }
  }

  void add_record(uint64_t record) {
    const SimRecord& facts = result_.records[record];
    const SimTask& task = graph_.task(facts.task);
    const uint64_t first = result_.record_begins[facts.task];
    const bool is_alone = result_.record_begins[facts.task + 1] - first == 1;
    const uint64_t number = is_alone ? 0 : record - first + 1;
    const uint32_t row = add_row(facts.task + (number << kRecordShift), first_core_ + facts.core,
                                 kernels_[task.kernel]);
    set_time(row, TaskTime::kSubmit, result_.tasks[facts.task].submit_ns);
    set_time(row, TaskTime::kReady, result_.tasks[facts.task].ready_ns);
    set_time(row, TaskTime::kDispatch, facts.dispatch_ns);
    set_time(row, TaskTime::kReceive, facts.receive_ns);
    set_time(row, TaskTime::kStart, facts.start_ns);
    set_time(row, TaskTime::kEnd, facts.end_ns);
    set_time(row, TaskTime::kFinish, facts.finish_ns);
    set_cost(row, record);
  }

  void set_cost(uint32_t row, uint64_t record) {
    const SimRecord& facts = result_.records[record];
    const SimTask& task = graph_.task(facts.task);
    const uint64_t first = result_.record_begins[facts.task];
    const bool is_cube = facts.core < static_cast<uint64_t>(profile_.cluster_count);
    const bool has_cube = is_cube && (profile_.is_unified == 0 || task.shape != SimShape::kVector);
    const bool has_vector = !is_cube || (profile_.is_unified != 0 && task.shape != SimShape::kCube);
    const int64_t bytes = (has_cube ? task.cube.bytes : 0) + (has_vector ? task.vector.bytes : 0);
    const int64_t flops = (has_cube ? task.cube.flops : 0) + (has_vector ? task.vector.flops : 0);
    const uint64_t parts =
        task.shape == SimShape::kMix ? 1 + static_cast<uint64_t>(profile_.vector_cores) : 1;
    const uint32_t block = static_cast<uint32_t>((record - first) / parts);
    const double part = graph_.block_scale(facts.task, block) * 1e-6;
    TaskColumns& tasks = builder_.trace().tasks;
    tasks.bytes[row] = std::llround(static_cast<double>(bytes) * part);
    tasks.flops[row] = std::llround(static_cast<double>(flops) * part);
  }

  void add_edge(uint32_t producer, uint32_t consumer, EdgeKind kind) {
    EdgeColumns& edges = builder_.trace().edges;
    edges.producer.push_back(producer);
    edges.consumer.push_back(consumer);
    edges.kind.push_back(static_cast<uint8_t>(kind));
  }

  void add_edges() {
    for (uint32_t task = 0; task < graph_.task_count(); ++task) {
      const uint32_t first = static_cast<uint32_t>(result_.record_begins[task]);
      const uint32_t end = static_cast<uint32_t>(result_.record_begins[task + 1]);
      const std::span<const uint32_t> producers = graph_.producers(task);
      if (end - first > 1) {
        for (uint32_t row = first; row < end; ++row) add_edge(row, exits_[task], EdgeKind::kOrder);
      }
      if (end == first) {
        for (const uint32_t one : producers) add_edge(exits_[one], exits_[task], EdgeKind::kData);
      } else if (uint64_t{end - first} * producers.size() > kMostDirectEdges) {
        add_gate(task, first, end);
      } else {
        for (uint32_t row = first; row < end; ++row) {
          for (const uint32_t one : producers) add_edge(exits_[one], row, EdgeKind::kData);
        }
      }
    }
  }

  void add_gate(uint32_t task, uint32_t first, uint32_t end) {
    const uint64_t id = task + (uint64_t{end - first + 1} << kRecordShift);
    const std::string name = fmt::format("{}{}", graph_.kernel_name(task), kGateSuffix);
    const uint32_t gate = add_row(id, kNoIndex, builder_.intern(name));
    set_time(gate, TaskTime::kReady, result_.tasks[task].ready_ns);
    for (const uint32_t one : graph_.producers(task)) add_edge(exits_[one], gate, EdgeKind::kData);
    for (uint32_t row = first; row < end; ++row) add_edge(gate, row, EdgeKind::kOrder);
  }

  // What lies between two phases is polling.
  void add_schedulers() {
    std::array<uint32_t, kSimPhaseCount> names = {};
    for (size_t i = 0; i < names.size(); ++i) names[i] = builder_.intern(kPhaseNames[i]);
    const uint32_t poll = builder_.intern("poll");
    for (uint32_t thread = 0; thread < result_.phases.size(); ++thread) {
      int64_t last_ns = 0;
      for (const SimPhaseSpan& span : result_.phases[thread]) {
        add_span(thread, last_ns, span.begin_ns, poll, kNoValue);
        add_span(thread, span.begin_ns, span.end_ns, names[static_cast<size_t>(span.phase)],
                 span.record_count);
        last_ns = span.end_ns;
      }
      add_span(thread, last_ns, std::max(result_.makespan_ns, last_ns), poll, kNoValue);
    }
  }

  void add_span(uint32_t lane, int64_t begin_ns, int64_t end_ns, uint32_t name, uint32_t value) {
    if (time(begin_ns) == time(end_ns)) return;
    builder_.add_span(lane, time(begin_ns), time(end_ns), name, value);
  }

  void add_orchestrator() {
    const uint32_t submit = builder_.intern("submit");
    for (uint32_t task = 0; task < graph_.task_count(); ++task) {
      const int64_t end_ns = result_.tasks[task].submit_ns;
      const int64_t producers = static_cast<int64_t>(graph_.producers(task).size());
      const int64_t cost_ns = profile_.submit_ns + producers * profile_.submit_edge_ns;
      add_span(orchestrator_, end_ns - cost_ns, end_ns, submit, task);
    }
    builder_.add_span(orchestrator_, options_.begin_ns, time(result_.makespan_ns),
                      builder_.intern("step"), options_.step);
  }

  const DeviceProfile& profile_;
  const SimGraph& graph_;
  const SimResult& result_;
  SimTraceOptions options_;
  TraceBuilder builder_;
  int64_t tick_ns_ = 1;
  uint32_t orchestrator_ = 0;
  uint32_t first_core_ = 0;
  std::vector<uint32_t> kernels_;  // by the graph's kernel: of the trace's names
  std::vector<uint32_t> exits_;    // by task: the row that is complete when the task is
};

}  // namespace

Trace make_sim_trace(const DeviceProfile& profile, const SimGraph& graph, const SimResult& result,
                     const SimTraceOptions& options) {
  return SimTraceMaker(profile, graph, result, options).make();
}

}  // namespace gapless
