// SPDX-License-Identifier: Apache-2.0

#include "formats/swimlane_tasks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "formats/swimlane_join.h"
#include "trace/join_names.h"

namespace gapless {
namespace {

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)

constexpr std::string_view kGateSuffix = " (before all blocks)";
// More edges than this into the runs of one task go through a row before them.
constexpr uint64_t kMostDirectEdges = 4096;
// The id of run k of a task is its token + (k << kRunShift) where all tokens leave so much room.
constexpr int kRunShift = 40;

// Ticks to nanoseconds since the first of them, rounded down.
class TickClock {
 public:
  explicit TickClock(uint64_t ticks_per_second) : ticks_per_second_(ticks_per_second) {}

  void see(int64_t ticks) {
    if (ticks != kAbsent) first_ = std::min(first_, ticks);
  }
  // kAbsent stays so, and so becomes what lies beyond 146 years; that is counted.
  int64_t time_ns(int64_t ticks) {
    if (ticks == kAbsent) return kAbsent;
    const uint64_t since = static_cast<uint64_t>(ticks) - static_cast<uint64_t>(first_);
    const Wide time = Wide{since} * 1'000'000'000 / ticks_per_second_;
    if (time <= static_cast<Wide>(kMaxTimeNs)) return static_cast<int64_t>(time);
    ++out_of_range_count_;
    return kAbsent;
  }
  uint64_t out_of_range_count() const { return out_of_range_count_; }

 private:
  uint64_t ticks_per_second_;
  int64_t first_ = std::numeric_limits<int64_t>::max();
  uint64_t out_of_range_count_ = 0;
};

// The rows that stand for one task of the graph.
struct TaskGroup {
  uint64_t token = 0;
  uint32_t first_row = 0;        // of its runs, one after another
  uint32_t run_count = 0;        // 0: not recorded
  uint32_t exit_row = kNoIndex;  // where its edges to consumers begin
  uint32_t gate_row = kNoIndex;  // where its edges from producers end, when these are many
  uint64_t producer_count = 0;
  const SwimlaneGraphTask* graph_task = nullptr;
};

class SwimlaneBuilder {
 public:
  SwimlaneBuilder(SwimlaneParts parts, TraceBuilder& builder)
      : parts_(std::move(parts)),
        records_(parts_.records),
        builder_(builder),
        clock_(records_.ticks_per_second) {}

  void build();

 private:
  void set_origin();
  void add_lanes();
  void add_thread_lanes(const std::vector<SwimlanePhase>& phases, LaneKind kind,
                        std::map<uint32_t, uint32_t>& lanes);
  void add_spans(const std::vector<SwimlanePhase>& phases, std::string_view default_name,
                 const std::map<uint32_t, uint32_t>& lanes);
  void list_submits();
  int64_t submit_ns(uint64_t token);

  void add_runs();
  void add_run(const SwimlaneTask& run);
  void add_graph_tasks();
  void set_ids();
  uint64_t run_id(const TaskGroup& group, uint32_t number);
  uint64_t unused_id();
  void report_groups();
  uint32_t add_row(uint64_t id, uint32_t lane, uint32_t kernel);
  void set_time(uint32_t row, TaskTime time, int64_t time_ns) {
    builder_.trace().tasks.time_ns[static_cast<size_t>(time)][row] = time_ns;
  }

  uint32_t kernel_of(const SwimlaneTask& run, const SwimlaneGraphTask* task);
  int64_t graph_kernel(const SwimlaneTask& run, const SwimlaneGraphTask& task);
  uint32_t kernel_name(int64_t id);
  uint32_t name_with(uint32_t kernel, std::string_view suffix);

  void add_edges();
  std::vector<SwimlaneEdge> group_edges(const std::vector<SwimlaneEdge>& edges);
  uint32_t exit_of(TaskGroup& group);
  void connect(uint32_t from, TaskGroup& group, EdgeKind kind);
  void add_edge(uint32_t producer, uint32_t consumer, EdgeKind kind);
  uint32_t group_of(uint64_t token) const;

  void count(Severity severity, std::string_view code, std::string_view text, uint64_t number = 1) {
    if (number > 0) builder_.count_finding(severity, code, text, kNoIndex, number);
  }

  SwimlaneParts parts_;
  SwimlaneRecords& records_;
  TraceBuilder& builder_;
  TickClock clock_;
  std::map<uint32_t, uint32_t> core_lanes_;
  std::vector<std::pair<uint64_t, int64_t>> submits_;  // by token: the last end, in ticks
  std::vector<TaskGroup> groups_;                      // by token
  std::unordered_map<int64_t, uint32_t> kernel_names_;
  uint64_t used_submit_count_ = 0;
  bool has_run_ids_ = true;  // tokens leave room for the number of a run
  uint64_t next_id_ = 0;
};

// --- lanes and spans ---

void SwimlaneBuilder::set_origin() {
  for (const SwimlaneTask& run : records_.tasks) {
    for (const int64_t ticks : {run.receive, run.start, run.end, run.dispatch, run.finish}) {
      clock_.see(ticks);
    }
  }
  for (const std::vector<SwimlanePhase>* phases :
       {&records_.scheduler_phases, &records_.orchestrator_phases}) {
    for (const SwimlanePhase& phase : *phases) {
      clock_.see(phase.begin);
      clock_.see(phase.end);
    }
  }
}

void SwimlaneBuilder::add_thread_lanes(const std::vector<SwimlanePhase>& phases, LaneKind kind,
                                       std::map<uint32_t, uint32_t>& lanes) {
  for (const SwimlanePhase& phase : phases) lanes.emplace(phase.thread, kNoIndex);
  const std::string_view word =
      kind == LaneKind::kOrchestrator ? std::string_view("orchestrator") : "scheduler";
  const bool is_alone = kind == LaneKind::kOrchestrator && lanes.size() == 1;
  for (auto& [thread, lane] : lanes) {
    const std::string name = is_alone ? std::string(word) : fmt::format("{} {}", word, thread);
    lane = builder_.add_lane({.name = name, .kind = kind, .number = thread});
  }
}

void SwimlaneBuilder::add_spans(const std::vector<SwimlanePhase>& phases,
                                std::string_view default_name,
                                const std::map<uint32_t, uint32_t>& lanes) {
  const uint32_t unnamed = phases.empty() ? kNoIndex : builder_.intern(default_name);
  for (const SwimlanePhase& phase : phases) {
    const int64_t begin_ns = clock_.time_ns(phase.begin);
    const int64_t end_ns = clock_.time_ns(phase.end);
    if (begin_ns == kAbsent || end_ns == kAbsent) continue;
    builder_.add_span(lanes.at(phase.thread), begin_ns, end_ns,
                      phase.name == kNoIndex ? unnamed : phase.name, phase.value);
  }
}

// Cores are called by their number and type, as upstream's views do it.
void SwimlaneBuilder::add_lanes() {
  builder_.add_device({.name = "Ascend"});
  std::map<uint32_t, uint32_t> orchestrators;
  std::map<uint32_t, uint32_t> schedulers;
  add_thread_lanes(records_.orchestrator_phases, LaneKind::kOrchestrator, orchestrators);
  add_thread_lanes(records_.scheduler_phases, LaneKind::kScheduler, schedulers);
  uint64_t unknown_count = 0;
  for (const SwimlaneTask& run : records_.tasks) {
    const auto type = records_.core_types.try_emplace(run.core, SwimlaneCoreType::kUnknown).first;
    if (type->second == SwimlaneCoreType::kUnknown) ++unknown_count;
  }
  for (const auto& [core, type] : records_.core_types) {
    constexpr std::array<std::string_view, 3> kPrefixes = {"AIC_", "AIV_", "core_"};
    constexpr std::array<LaneKind, 3> kKinds = {LaneKind::kCubeCore, LaneKind::kVectorCore,
                                                LaneKind::kOther};
    const size_t index = static_cast<size_t>(type);
    core_lanes_[core] = builder_.add_lane({.name = fmt::format("{}{}", kPrefixes[index], core),
                                           .kind = kKinds[index],
                                           .number = core});
  }
  count(Severity::kWarning, "unknown-core",
        "runs are on cores whose type the file does not give; each such core has a lane",
        unknown_count);
  add_spans(records_.orchestrator_phases, "submit", orchestrators);
  add_spans(records_.scheduler_phases, "phase", schedulers);
}

// A task is submitted when the last phase of its submission has ended.
void SwimlaneBuilder::list_submits() {
  for (const SwimlanePhase& phase : records_.orchestrator_phases) {
    if (phase.has_token) submits_.emplace_back(phase.token, phase.end);
  }
  std::sort(submits_.begin(), submits_.end());
  size_t kept = 0;
  for (size_t i = 0; i < submits_.size(); ++i) {
    const bool is_last = i + 1 == submits_.size() || submits_[i + 1].first != submits_[i].first;
    if (is_last) submits_[kept++] = submits_[i];
  }
  submits_.resize(kept);
}

int64_t SwimlaneBuilder::submit_ns(uint64_t token) {
  const auto is_before = [](const std::pair<uint64_t, int64_t>& submit, uint64_t wanted) {
    return submit.first < wanted;
  };
  const auto found = std::lower_bound(submits_.begin(), submits_.end(), token, is_before);
  if (found == submits_.end() || found->first != token) return kAbsent;
  ++used_submit_count_;
  return clock_.time_ns(found->second);
}

// --- tasks ---

uint32_t SwimlaneBuilder::add_row(uint64_t id, uint32_t lane, uint32_t kernel) {
  TaskColumns& tasks = builder_.trace().tasks;
  tasks.id.push_back(id);
  tasks.lane.push_back(lane);
  tasks.kernel.push_back(kernel);
  for (std::vector<int64_t>& times : tasks.time_ns) times.push_back(kAbsent);
  return static_cast<uint32_t>(tasks.size() - 1);
}

uint32_t SwimlaneBuilder::kernel_name(int64_t id) {
  const auto [known, is_new] = kernel_names_.try_emplace(id, kNoIndex);
  if (is_new) {
    const auto name = parts_.names.kernels.find(id);
    known->second = builder_.intern(
        name != parts_.names.kernels.end() ? name->second : fmt::format("kernel {}", id));
  }
  return known->second;
}

uint32_t SwimlaneBuilder::name_with(uint32_t kernel, std::string_view suffix) {
  return builder_.intern(fmt::format("{}{}", builder_.trace().names[kernel], suffix));
}

// Which of the task's kernels a run was. The file tells cube from vector cores and not the first
// vector core of a cluster from the second.
int64_t SwimlaneBuilder::graph_kernel(const SwimlaneTask& run, const SwimlaneGraphTask& task) {
  const auto& [cube, first, second] = task.kernels;
  const SwimlaneCoreType type = records_.core_types.at(run.core);
  if (type == SwimlaneCoreType::kCube) return cube;
  if (type == SwimlaneCoreType::kUnknown && first < 0 && second < 0) return cube;
  if (first >= 0 && second >= 0 && first != second) {
    count(Severity::kInfo, "second-vector-kernel",
          "runs may be of the first or the second vector kernel of their task; named by the first");
  }
  return first >= 0 ? first : second;
}

uint32_t SwimlaneBuilder::kernel_of(const SwimlaneTask& run, const SwimlaneGraphTask* task) {
  if (run.function_id >= 0) return kernel_name(run.function_id);
  const int64_t id = task == nullptr ? -1 : graph_kernel(run, *task);
  return id >= 0 ? kernel_name(id) : builder_.intern("task");
}

void SwimlaneBuilder::add_run(const SwimlaneTask& run) {
  const int64_t start_ns = clock_.time_ns(run.start);
  if (start_ns == kAbsent) return;
  if (groups_.empty() || groups_.back().token != run.token) {
    groups_.push_back({.token = run.token,
                       .first_row = static_cast<uint32_t>(builder_.trace().tasks.size()),
                       .graph_task = parts_.graph.find(run.token)});
  }
  TaskGroup& group = groups_.back();
  ++group.run_count;
  const uint32_t row =
      add_row(run.token, core_lanes_.at(run.core), kernel_of(run, group.graph_task));
  int64_t end_ns = clock_.time_ns(run.end);
  if (end_ns == kAbsent) {
    count(Severity::kWarning, "no-end", "runs have no end");
  } else if (end_ns < start_ns) {
    count(Severity::kWarning, "negative-duration",
          "runs end before they start; shown with no length");
    end_ns = start_ns;
  }
  set_time(row, TaskTime::kReceive, clock_.time_ns(run.receive));
  set_time(row, TaskTime::kStart, start_ns);
  set_time(row, TaskTime::kEnd, end_ns);
  const int64_t dispatch_ns = clock_.time_ns(run.dispatch);
  const int64_t finish_ns = clock_.time_ns(run.finish);
  if (dispatch_ns != kAbsent && finish_ns != kAbsent && finish_ns < dispatch_ns) {
    count(Severity::kWarning, "finish-before-dispatch",
          "runs are finished before they are dispatched; both times are left out");
    return;
  }
  set_time(row, TaskTime::kDispatch, dispatch_ns);
  set_time(row, TaskTime::kFinish, finish_ns);
}

// The runs of a task lie together, in the order of their start.
void SwimlaneBuilder::add_runs() {
  const auto is_before = [](const SwimlaneTask& a, const SwimlaneTask& b) {
    if (a.token != b.token) return a.token < b.token;
    return a.start != b.start ? a.start < b.start : a.core < b.core;
  };
  std::stable_sort(records_.tasks.begin(), records_.tasks.end(), is_before);
  for (const SwimlaneTask& run : records_.tasks) add_run(run);
}

// Tasks of the graph without a run (barriers, tasks that were skipped or whose records were lost)
// have a row too: who waits for one of them waits for its producers.
void SwimlaneBuilder::add_graph_tasks() {
  std::vector<TaskGroup> missing;
  size_t next = 0;
  for (const SwimlaneGraphTask& task : parts_.graph.tasks) {
    while (next < groups_.size() && groups_[next].token < task.token) ++next;
    if (next < groups_.size() && groups_[next].token == task.token) continue;
    const auto first = std::find_if(task.kernels.begin(), task.kernels.end(),
                                    [](int64_t kernel) { return kernel >= 0; });
    const uint32_t name =
        first == task.kernels.end() ? builder_.intern("no kernel") : kernel_name(*first);
    const uint32_t row = add_row(task.token, kNoIndex, name);
    missing.push_back(
        {.token = task.token, .first_row = row, .exit_row = row, .graph_task = &task});
  }
  if (missing.empty()) return;
  std::vector<TaskGroup> all(groups_.size() + missing.size());
  std::merge(groups_.begin(), groups_.end(), missing.begin(), missing.end(), all.begin(),
             [](const TaskGroup& a, const TaskGroup& b) { return a.token < b.token; });
  groups_ = std::move(all);
  const auto is_kernel = [](const TaskGroup& group) { return group.graph_task->has_kernel(); };
  const uint64_t lost_count =
      static_cast<uint64_t>(std::count_if(missing.begin(), missing.end(), is_kernel));
  count(Severity::kWarning, "tasks-without-runs",
        "tasks of deps.json with a kernel have no run: skipped, or their records were lost",
        lost_count);
  count(Severity::kInfo, "tasks-without-kernel",
        "tasks of deps.json have no kernel (barriers); their edges are kept",
        missing.size() - lost_count);
}

// An id that no task has.
uint64_t SwimlaneBuilder::unused_id() {
  while (group_of(next_id_) != kNoIndex) ++next_id_;
  return next_id_++;
}

uint64_t SwimlaneBuilder::run_id(const TaskGroup& group, uint32_t number) {
  return has_run_ids_ ? group.token + (uint64_t{number} << kRunShift) : unused_id();
}

// The token itself where a task has one row; of several runs the token is their join's, and each
// run has its number above it.
void SwimlaneBuilder::set_ids() {
  if (groups_.empty()) return;
  constexpr uint32_t kMostRuns = (uint32_t{1} << (64 - kRunShift)) - 2;
  has_run_ids_ = groups_.back().token >> kRunShift == 0 &&
                 std::all_of(groups_.begin(), groups_.end(),
                             [](const TaskGroup& group) { return group.run_count <= kMostRuns; });
  next_id_ = groups_.back().token + 1;
  uint64_t split_count = 0;
  for (const TaskGroup& group : groups_) {
    if (group.run_count < 2) continue;
    ++split_count;
    for (uint32_t run = 0; run < group.run_count; ++run) {
      builder_.trace().tasks.id[group.first_row + run] = run_id(group, run + 1);
    }
  }
  count(Severity::kInfo, "several-runs",
        has_run_ids_
            ? "tasks have several runs (blocks, or cube and vector kernels): the id of run k, from "
              "1, is the task's + k x 2^40, and the task's own id is that of their join"
            : "tasks have several runs, whose ids are numbers that no task has",
        split_count);
}

void SwimlaneBuilder::report_groups() {
  uint64_t unknown_count = 0;
  uint64_t block_count = 0;
  for (TaskGroup& group : groups_) {
    const int64_t submitted_ns = submit_ns(group.token);
    for (uint32_t run = 0; run < std::max(group.run_count, 1u); ++run) {
      set_time(group.first_row + run, TaskTime::kSubmit, submitted_ns);
    }
    if (group.run_count == 0) continue;
    if (group.graph_task == nullptr) {
      ++unknown_count;
      continue;
    }
    const SwimlaneGraphTask& task = *group.graph_task;
    const auto active =
        std::count_if(task.kernels.begin(), task.kernels.end(), [](int64_t k) { return k >= 0; });
    const Wide expected = Wide{task.block_count} * static_cast<uint64_t>(active);
    if (active > 0 && expected != group.run_count) ++block_count;
  }
  if (parts_.has_graph) {
    count(Severity::kWarning, "not-in-deps",
          "tasks are not in deps.json: without kernel names and edges", unknown_count);
  }
  count(Severity::kWarning, "block-count",
        "tasks have another number of runs than deps.json gives them (blocks x kernels)",
        block_count);
  count(Severity::kInfo, "submits-without-task", "submitted tasks are not among the tasks",
        submits_.size() - used_submit_count_);
}

// --- edges ---

uint32_t SwimlaneBuilder::group_of(uint64_t token) const {
  const auto is_before = [](const TaskGroup& group, uint64_t wanted) {
    return group.token < wanted;
  };
  const auto found = std::lower_bound(groups_.begin(), groups_.end(), token, is_before);
  if (found == groups_.end() || found->token != token) return kNoIndex;
  return static_cast<uint32_t>(found - groups_.begin());
}

void SwimlaneBuilder::add_edge(uint32_t producer, uint32_t consumer, EdgeKind kind) {
  EdgeColumns& edges = builder_.trace().edges;
  edges.producer.push_back(producer);
  edges.consumer.push_back(consumer);
  edges.kind.push_back(static_cast<uint8_t>(kind));
}

// Between places in groups_, each pair once; a pair that is there for data and by order is for
// data.
std::vector<SwimlaneEdge> SwimlaneBuilder::group_edges(const std::vector<SwimlaneEdge>& edges) {
  std::vector<SwimlaneEdge> known;
  known.reserve(edges.size());
  uint64_t missing_count = 0;
  uint64_t self_count = 0;
  for (const SwimlaneEdge& edge : edges) {
    const uint32_t producer = group_of(edge.producer);
    const uint32_t consumer = group_of(edge.consumer);
    if (producer == kNoIndex || consumer == kNoIndex) {
      ++missing_count;
    } else if (producer == consumer) {
      ++self_count;
    } else {
      known.push_back({.producer = producer, .consumer = consumer, .kind = edge.kind});
    }
  }
  const auto is_before = [](const SwimlaneEdge& a, const SwimlaneEdge& b) {
    if (a.producer != b.producer) return a.producer < b.producer;
    return a.consumer != b.consumer ? a.consumer < b.consumer : a.kind < b.kind;
  };
  std::sort(known.begin(), known.end(), is_before);
  const auto last =
      std::unique(known.begin(), known.end(), [](const SwimlaneEdge& a, const SwimlaneEdge& b) {
        return a.producer == b.producer && a.consumer == b.consumer;
      });
  count(Severity::kInfo, "repeated-edges", "edges between the same two tasks were merged",
        static_cast<uint64_t>(known.end() - last));
  known.erase(last, known.end());
  count(parts_.has_graph ? Severity::kInfo : Severity::kWarning, "edges-to-nowhere",
        "edges begin or end at a task that is nowhere else (upstream has such for memory that was "
        "there before) and were left out",
        missing_count);
  count(Severity::kWarning, "self-edges", "edges lead from a task to itself and were left out",
        self_count);
  return known;
}

// The row that is complete when the whole task is.
uint32_t SwimlaneBuilder::exit_of(TaskGroup& group) {
  if (group.exit_row != kNoIndex) return group.exit_row;
  group.exit_row = group.first_row;
  if (group.run_count == 1) return group.exit_row;
  const uint32_t kernel = builder_.trace().tasks.kernel[group.first_row];
  group.exit_row = add_row(group.token, kNoIndex, name_with(kernel, kJoinSuffix));
  set_time(group.exit_row, TaskTime::kSubmit,
           builder_.trace().tasks.at(TaskTime::kSubmit)[group.first_row]);
  for (uint32_t run = 0; run < group.run_count; ++run) {
    add_edge(group.first_row + run, group.exit_row, EdgeKind::kOrder);
  }
  return group.exit_row;
}

// Every run of the group waits for `from`.
void SwimlaneBuilder::connect(uint32_t from, TaskGroup& group, EdgeKind kind) {
  const uint32_t run_count = std::max(group.run_count, 1u);
  if (run_count == 1 || group.producer_count * run_count <= kMostDirectEdges) {
    for (uint32_t run = 0; run < run_count; ++run) add_edge(from, group.first_row + run, kind);
    return;
  }
  if (group.gate_row == kNoIndex) {
    const uint32_t kernel = builder_.trace().tasks.kernel[group.first_row];
    group.gate_row =
        add_row(run_id(group, group.run_count + 1), kNoIndex, name_with(kernel, kGateSuffix));
    for (uint32_t run = 0; run < run_count; ++run) {
      add_edge(group.gate_row, group.first_row + run, EdgeKind::kOrder);
    }
  }
  add_edge(from, group.gate_row, kind);
}

void SwimlaneBuilder::add_edges() {
  // The oldest files have edges of their own; those of the graph were made to replace them.
  const std::vector<SwimlaneEdge> edges =
      group_edges(parts_.graph.edges.empty() ? records_.edges : parts_.graph.edges);
  for (const SwimlaneEdge& edge : edges) ++groups_[edge.consumer].producer_count;
  for (const SwimlaneEdge& edge : edges) {
    connect(exit_of(groups_[edge.producer]), groups_[edge.consumer], edge.kind);
  }
}

void SwimlaneBuilder::build() {
  set_origin();
  add_lanes();
  list_submits();
  add_runs();
  add_graph_tasks();
  set_ids();
  report_groups();
  add_edges();
  count(Severity::kWarning, "time-out-of-range",
        "times lie more than 146 years after the first and were left out",
        clock_.out_of_range_count());
}

}  // namespace

void add_swimlane(SwimlaneParts parts, TraceBuilder& builder) {
  if (parts.records.is_in_cycles) join_dispatches(parts.records, builder);
  SwimlaneBuilder(std::move(parts), builder).build();
}

}  // namespace gapless
