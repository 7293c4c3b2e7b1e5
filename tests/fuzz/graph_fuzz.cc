// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as a program of buffers, scopes and tasks, some of them nonsense.
//
// The program goes to a GraphBuilder; the oracle is the set of bytes that each task declares. What
// was refused must leave no trace: a second builder, given only what was taken, must give the same
// graph. Tasks whose bytes conflict must be ordered, and for views that regions hold exactly there
// must be no other edge. Then the program is run in the order of its numbers, in a random legal
// order, as a replay in planned memory and through a stream with a window of four tasks: the
// caller's buffers must hold the same bytes each time.

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/graph_builder.h"
#include "graph/graph_text.h"
#include "graph/memory_plan.h"
#include "graph/reduce_edges.h"
#include "graph/region.h"
#include "graph/validate.h"
#include "graph_program.h"
#include "runtime/replay.h"
#include "runtime/serial_run.h"
#include "runtime/stream.h"

namespace gapless {
namespace {

constexpr size_t kMaxComparisons = 24;  // arguments that are compared with each other
constexpr int32_t kMaxRunBlocks = 8;    // more are not run: each call takes its time

using TaskBits = uint64_t;  // a bit a task

// A graph with the memory that its buffers point to.
struct Recorded {
  Graph graph;
  std::vector<std::vector<std::byte>> memory;
  std::vector<bool> accepted;  // by operation
};

Recorded record(const FuzzProgram& program) {
  GraphBuilder builder;
  add_kernels(builder);
  Feed feed(program, builder);
  Recorded recorded;
  for (const Operation& operation : program.operations) {
    if (operation.is_closing) GAPLESS_CHECK(!builder.finish().has_value());
    recorded.accepted.push_back(feed.apply(operation));
    GAPLESS_CHECK(builder.task_count() == feed.tasks().size());
  }
  Result<Graph> graph = builder.finish();
  GAPLESS_CHECK(graph.has_value());
  GAPLESS_CHECK(builder.task_count() == 0);
  recorded.graph = std::move(*graph);
  recorded.memory = std::move(feed.memory());
  return recorded;
}

// Only what was accepted, with all the edges that were found.
Recorded record_again(const FuzzProgram& program, const std::vector<bool>& accepted) {
  GraphBuilder builder({.reduce_edges = false, .expected_tasks = 2});
  add_kernels(builder);
  Feed feed(program, builder);
  for (size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i]) GAPLESS_CHECK(feed.apply(program.operations[i]));
  }
  Result<Graph> graph = builder.finish();
  GAPLESS_CHECK(graph.has_value());
  return {std::move(*graph), std::move(feed.memory()), accepted};
}

// By task: those from which a path leads to it.
std::vector<TaskBits> closure_of(const Graph& graph) {
  const Result<std::vector<uint32_t>> order = topological_order(graph);
  GAPLESS_CHECK(order.has_value());
  GAPLESS_CHECK(order->size() == graph.task_count());
  std::vector<TaskBits> before(graph.task_count(), 0);
  for (const uint32_t task : *order) {
    for (const Edge& edge : graph.producers_of(task)) {
      before[task] |= before[edge.task] | TaskBits{1} << edge.task;
    }
  }
  return before;
}

bool has(TaskBits bits, uint32_t task) { return (bits >> task & 1) != 0; }

struct Footprint {
  std::array<Bytes, kMaxBuffers> read;
  std::array<Bytes, kMaxBuffers> written;
  std::bitset<kMaxBuffers> is_inexact;  // some view of the buffer is only known by its hull
};

std::vector<Footprint> footprints_of(const Graph& graph) {
  std::vector<Footprint> footprints(graph.task_count());
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    for (const Argument& argument : graph.arguments_of(task)) {
      const uint32_t buffer = argument.view.buffer.id;
      if (graph.buffers[buffer].kind == BufferKind::kConstant) continue;
      const Bytes bytes = bytes_of(argument.view);
      if (reads(argument.access)) footprints[task].read[buffer] |= bytes;
      if (writes(argument.access)) footprints[task].written[buffer] |= bytes;
      if (!region_of(argument.view).exact) footprints[task].is_inexact.set(buffer);
    }
  }
  return footprints;
}

struct Conflict {
  bool data = false;  // the later one reads what the earlier one wrote
  bool any = false;
  bool perhaps = false;  // both use a buffer of which one has a view that is not exact
};

Conflict conflict_of(const Footprint& earlier, const Footprint& later) {
  Conflict conflict;
  for (size_t buffer = 0; buffer < kMaxBuffers; ++buffer) {
    const Bytes earlier_bytes = earlier.read[buffer] | earlier.written[buffer];
    const Bytes later_bytes = later.read[buffer] | later.written[buffer];
    if (earlier_bytes.none() || later_bytes.none()) continue;
    conflict.data |= (earlier.written[buffer] & later.read[buffer]).any();
    conflict.any |= (later.written[buffer] & earlier_bytes).any();
    conflict.perhaps |= earlier.is_inexact[buffer] || later.is_inexact[buffer];
  }
  conflict.any |= conflict.data;
  return conflict;
}

TaskBits explicit_edges(const FuzzProgram& program, size_t task) {
  TaskBits bits = 0;
  for (const uint64_t before : program.tasks[task].after) bits |= TaskBits{1} << before;
  return bits;
}

std::vector<size_t> accepted_tasks(const FuzzProgram& program, const std::vector<bool>& accepted) {
  std::vector<size_t> tasks;
  for (size_t i = 0; i < accepted.size(); ++i) {
    const Operation& operation = program.operations[i];
    if (accepted[i] && operation.action == Action::kTask) tasks.push_back(operation.index);
  }
  return tasks;
}

// All edges, before any is dropped: every conflict is ordered, and nothing else is.
void check_edges(const FuzzProgram& program, const Recorded& all) {
  const Graph& graph = all.graph;
  const std::vector<Footprint> footprints = footprints_of(graph);
  const std::vector<TaskBits> before = closure_of(graph);
  const std::vector<size_t> tasks = accepted_tasks(program, all.accepted);
  for (uint32_t later = 0; later < graph.task_count(); ++later) {
    const TaskBits after = explicit_edges(program, tasks[later]);
    GAPLESS_CHECK((after & ~before[later]) == 0);
    GAPLESS_CHECK(before[later] >> later == 0);
    for (uint32_t earlier = 0; earlier < later; ++earlier) {
      if (!conflict_of(footprints[earlier], footprints[later]).any) continue;
      GAPLESS_CHECK(has(before[later], earlier));
    }
    for (const Edge& edge : graph.producers_of(later)) {
      const Conflict conflict = conflict_of(footprints[edge.task], footprints[later]);
      GAPLESS_CHECK(edge.kind != EdgeKind::kLifetime);
      GAPLESS_CHECK(conflict.any || conflict.perhaps || has(after, edge.task));
      GAPLESS_CHECK(edge.kind != EdgeKind::kData || conflict.data || conflict.perhaps);
    }
  }
}

// What each task reads comes from its last writer by an edge that says so.
void check_data_edges(const Graph& graph) {
  const std::vector<Footprint> footprints = footprints_of(graph);
  std::array<std::array<int, kBufferBytes>, kMaxBuffers> writer;
  for (std::array<int, kBufferBytes>& bytes : writer) bytes.fill(-1);
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    TaskBits data = 0;
    for (const Edge& edge : graph.producers_of(task)) {
      if (edge.kind == EdgeKind::kData) data |= TaskBits{1} << edge.task;
    }
    for (size_t buffer = 0; buffer < kMaxBuffers; ++buffer) {
      for (size_t byte = 0; byte < kBufferBytes; ++byte) {
        int& last = writer[buffer][byte];
        if (footprints[task].read[buffer][byte] && last >= 0) {
          GAPLESS_CHECK(has(data, static_cast<uint32_t>(last)));
        }
        if (footprints[task].written[buffer][byte]) last = static_cast<int>(task);
      }
    }
  }
}

// Of the edges those are left that no longer path implies, and no order is lost.
void check_reduced(const Graph& all, const Graph& reduced) {
  const std::vector<TaskBits> before = closure_of(all);
  GAPLESS_CHECK(closure_of(reduced) == before);
  for (uint32_t task = 0; task < all.task_count(); ++task) {
    TaskBits implied = 0;
    for (const Edge& edge : all.producers_of(task)) implied |= before[edge.task];
    std::vector<Edge> needed;
    for (const Edge& edge : all.producers_of(task)) {
      if (!has(implied, edge.task)) needed.push_back(edge);
    }
    GAPLESS_CHECK(std::ranges::equal(needed, reduced.producers_of(task)));
  }
}

void check_regions(const Graph& graph) {
  const size_t count = std::min(graph.arguments.size(), kMaxComparisons);
  std::vector<Region> regions;
  std::vector<Bytes> bytes;
  for (size_t i = 0; i < count; ++i) {
    regions.push_back(region_of(graph.arguments[i].view));
    bytes.push_back(bytes_of(graph.arguments[i].view));
    const size_t byte_total = static_cast<size_t>(byte_count(regions[i]));
    GAPLESS_CHECK(regions[i].exact ? byte_total == bytes[i].count()
                                   : byte_total >= bytes[i].count());
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      const bool is_exact = regions[i].exact && regions[j].exact;
      const bool meet = (bytes[i] & bytes[j]).any();
      GAPLESS_CHECK(is_exact ? overlaps(regions[i], regions[j]) == meet
                             : overlaps(regions[i], regions[j]) || !meet);
      GAPLESS_CHECK(!covers(regions[i], regions[j]) || (bytes[j] & ~bytes[i]).none());
    }
  }
}

// The tasks that use a buffer.
std::vector<TaskBits> users_of(const Graph& graph) {
  std::vector<TaskBits> users(graph.buffers.size(), 0);
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    for (const Argument& argument : graph.arguments_of(task)) {
      users[argument.view.buffer.id] |= TaskBits{1} << task;
    }
  }
  return users;
}

// The graph has the plan's edges.
void check_plan(const Graph& graph, const MemoryPlan& plan) {
  const std::vector<TaskBits> before = closure_of(graph);
  const std::vector<TaskBits> users = users_of(graph);
  const auto all_before = [&](TaskBits first, TaskBits second) {
    for (uint32_t task = 0; task < graph.task_count(); ++task) {
      if (has(second, task) && (first & ~before[task]) != 0) return false;
    }
    return true;
  };
  GAPLESS_CHECK(plan.floor_bytes <= plan.peak_bytes);
  GAPLESS_CHECK(plan.peak_bytes <= plan.sum_bytes);
  for (size_t a = 0; a < graph.buffers.size(); ++a) {
    const bool is_planned = graph.buffers[a].kind == BufferKind::kIntermediate;
    GAPLESS_CHECK(is_planned == (plan.offsets[a] >= 0));
    if (!is_planned || users[a] == 0) continue;
    GAPLESS_CHECK(plan.offsets[a] % 64 == 0);
    GAPLESS_CHECK(plan.offsets[a] + graph.buffers[a].bytes <= plan.peak_bytes);
    for (size_t b = 0; b < a; ++b) {
      if (plan.offsets[b] < 0 || users[b] == 0) continue;
      if (graph.buffers[a].bytes == 0 || graph.buffers[b].bytes == 0) continue;
      if (plan.offsets[a] >= plan.offsets[b] + graph.buffers[b].bytes) continue;
      if (plan.offsets[b] >= plan.offsets[a] + graph.buffers[a].bytes) continue;
      GAPLESS_CHECK(all_before(users[a], users[b]) || all_before(users[b], users[a]));
    }
  }
}

void check_plans(const Graph& graph) {
  const Result<MemoryPlan> plan = plan_memory(graph);
  GAPLESS_CHECK(plan.has_value());
  GAPLESS_CHECK(plan->lifetime_edges.empty());
  check_plan(graph, *plan);
  const int64_t scarce = (plan->floor_bytes + plan->peak_bytes) / 2 / 64 * 64;
  const Result<MemoryPlan> smaller =
      plan_memory(graph, {.arena_bytes = std::max<int64_t>(scarce, 64), .may_add_edges = true});
  if (!is_accepted(smaller)) return;
  GAPLESS_CHECK(smaller->peak_bytes <= std::max<int64_t>(scarce, 64));
  Graph with_edges = graph;
  GAPLESS_CHECK(add_lifetime_edges(with_edges, *smaller).has_value());
  check_plan(with_edges, *smaller);
}

// But for addresses.
void check_same_graph(const Graph& a, const Graph& b) {
  const auto is_same = [](const Argument& x, const Argument& y) {
    return x.view == y.view && x.access == y.access;
  };
  GAPLESS_CHECK(a.producer_begin == b.producer_begin);
  GAPLESS_CHECK(a.producers == b.producers);
  GAPLESS_CHECK(a.successor_begin == b.successor_begin);
  GAPLESS_CHECK(a.successors == b.successors);
  GAPLESS_CHECK(std::ranges::equal(a.arguments, b.arguments, is_same));
  GAPLESS_CHECK(a.scalars.size() == b.scalars.size());
  GAPLESS_CHECK(a.scopes.size() == b.scopes.size());
  GAPLESS_CHECK(graph_text(a, true) == graph_text(b, true));
}

void check_whole(const Graph& graph, const FuzzProgram& program, uint64_t seed) {
  GAPLESS_CHECK(!graph_dot(graph).empty());
  // JSON takes longer than all the rest.
  if (seed % 8 == 0) GAPLESS_CHECK(!graph_json(graph).empty());
  const DeviceLimits limits = {.any_cores = program.ring_count - 1,
                               .vector_cores = program.shadow ? 2 : 0,
                               .clusters = program.shadow ? 1 : 0,
                               .scope_tasks = 8,
                               .arena_bytes = 600};
  static_cast<void>(is_accepted(validate(graph, limits)));
}

// Whether every byte of an intermediate that is read was written before, by a task that runs.
bool reads_only_what_was_written(const Graph& graph) {
  const std::vector<Footprint> footprints = footprints_of(graph);
  std::array<Bytes, kMaxBuffers> written;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    if (graph.tasks[task].kernel.id >= kRunKernels) continue;
    if (!graph.tasks[task].predicate.holds()) continue;
    for (size_t buffer = 0; buffer < graph.buffers.size(); ++buffer) {
      if (graph.buffers[buffer].kind != BufferKind::kIntermediate) continue;
      if ((footprints[task].read[buffer] & ~written[buffer]).any()) return false;
      written[buffer] |= footprints[task].written[buffer];
    }
  }
  return true;
}

bool can_run(const Graph& graph) {
  return std::all_of(graph.tasks.begin(), graph.tasks.end(), [](const GraphTask& task) {
    return task.block_count <= kMaxRunBlocks && (!task.gang || task.block_count == 1);
  });
}

CpuDevice& device() {
  static const std::unique_ptr<CpuDevice> device = [] {
    Result<std::unique_ptr<CpuDevice>> made =
        CpuDevice::create({.worker_count = 1, .pin_workers = false, .stall_after_ns = 0});
    GAPLESS_CHECK(made.has_value());
    return std::move(*made);
  }();
  return *device;
}

void check_same_bytes(const Graph& graph, const GraphMemory& expected, const std::byte* got,
                      size_t buffer) {
  const std::byte* const wanted = expected.addresses()[buffer];
  GAPLESS_CHECK(std::equal(wanted, wanted + graph.buffers[buffer].bytes, got));
}

// What an oracle run left behind.
struct Outcome {
  GraphMemory memory;
  SerialSummary summary;
};

Outcome run_in_order(const Graph& graph, uint64_t seed, const SerialOptions& options) {
  GraphMemory memory(graph, seed);
  const Result<SerialSummary> done = run_serially(graph, memory, options);
  GAPLESS_CHECK(done.has_value());
  return {std::move(memory), *done};
}

// Two steps, because the second finds the counters as the first has left them.
void check_replay(const Graph& graph, uint64_t seed) {
  GraphMemory expected(graph, seed);
  GraphMemory memory(graph, seed);
  std::vector<Binding> bindings;
  for (uint32_t i = 0; i < graph.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    if (buffer.kind == BufferKind::kIntermediate) continue;
    bindings.push_back({BufferId{i}, memory.data(BufferId{i}), buffer.bytes});
  }
  Result<Replay> replay = Replay::prepare(device(), graph);
  GAPLESS_CHECK(replay.has_value());
  for (int step = 0; step < 2; ++step) {
    const Result<SerialSummary> wanted = run_serially(graph, expected);
    const Result<StepSummary> done = replay->run(bindings);
    GAPLESS_CHECK(done.has_value());
    GAPLESS_CHECK(done->run_count == wanted->run_count);
    GAPLESS_CHECK(done->skipped_count == wanted->skipped_count);
  }
  GAPLESS_CHECK(GraphMemory::first_difference(graph, expected, memory).empty());
}

// The same operations, refused ones too. A heap ring that is full of buffers of open scopes is the
// one reason to refuse what a graph takes.
void check_stream(const FuzzProgram& program, const Recorded& recorded, const Outcome& expected,
                  bool compare) {
  Result<std::unique_ptr<Stream>> stream = Stream::open(device(), {.ring_count = program.ring_count,
                                                                   .window_tasks = 4,
                                                                   .window_edges = 8,
                                                                   .window_bytes = 4096,
                                                                   .heap_bytes = 1024,
                                                                   .max_buffers = 2 * kMaxBuffers});
  GAPLESS_CHECK(stream.has_value());
  add_kernels(**stream);
  Feed feed(program, **stream);
  for (size_t i = 0; i < program.operations.size(); ++i) {
    const bool is_accepted = feed.apply(program.operations[i]);
    if (is_accepted == recorded.accepted[i]) continue;
    GAPLESS_CHECK(program.operations[i].action == Action::kBuffer);
    GAPLESS_CHECK(!is_accepted);
    GAPLESS_CHECK((*stream)->wait().has_value());
    return;
  }
  const Result<StreamSummary> done = (*stream)->wait();
  GAPLESS_CHECK(done.has_value());
  GAPLESS_CHECK(done->task_count == recorded.graph.task_count());
  GAPLESS_CHECK(done->run_count == expected.summary.run_count);
  GAPLESS_CHECK(done->skipped_count == expected.summary.skipped_count);
  for (size_t buffer = 0; compare && buffer < recorded.graph.buffers.size(); ++buffer) {
    if (recorded.graph.buffers[buffer].kind == BufferKind::kIntermediate) continue;
    check_same_bytes(recorded.graph, expected.memory, feed.memory()[buffer].data(), buffer);
  }
}

void check_runs(const FuzzProgram& program, const Recorded& recorded, uint64_t seed) {
  const Graph& graph = recorded.graph;
  if (!can_run(graph)) return;
  const Outcome in_order = run_in_order(graph, seed, {.shadow = program.shadow});
  const Outcome shuffled = run_in_order(graph, seed, {.order_seed = seed | 1});
  GAPLESS_CHECK(GraphMemory::first_difference(graph, in_order.memory, shuffled.memory).empty());
  const bool is_defined = reads_only_what_was_written(graph);
  if (is_defined) check_replay(graph, seed);
  check_stream(program, recorded, in_order, is_defined);
}

void test_program(std::span<const uint8_t> input) {
  uint64_t seed = 1;
  for (const uint8_t byte : input) seed = seed * 0x9e3779b97f4a7c15 + byte;
  const FuzzProgram program = decode_program(input);
  const Recorded recorded = record(program);
  const Recorded all = record_again(program, recorded.accepted);
  check_edges(program, all);
  check_data_edges(all.graph);
  Graph reduced = all.graph;
  reduce_edges(reduced);
  check_same_graph(reduced, recorded.graph);
  check_reduced(all.graph, reduced);
  check_regions(all.graph);
  check_plans(recorded.graph);
  check_whole(recorded.graph, program, seed >> 32);
  check_runs(program, recorded, seed);
}

}  // namespace
}  // namespace gapless

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gapless::test_program({data, size});
  return 0;
}
