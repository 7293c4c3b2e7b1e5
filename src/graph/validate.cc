// SPDX-License-Identifier: Apache-2.0

#include "graph/validate.h"

#include <cstddef>
#include <vector>

namespace gapless {
namespace {

Result<void> check_cores(const Graph& graph, uint32_t task, const DeviceLimits& limits) {
  const GraphTask& facts = graph.tasks[task];
  const int core_count = cores_for(limits, facts.core);
  const std::string_view kind = core_kind_name(facts.core);
  if (core_count == 0) {
    return fail(ErrorCode::kInvalidInput, "{}: {} has no core for kind {}", task_text(graph, task),
                limits.name, kind);
  }
  if (facts.gang && facts.block_count > core_count) {
    return fail(ErrorCode::kInvalidInput, "{}: a gang of {} blocks, but {} has {} {} for kind {}",
                task_text(graph, task), facts.block_count, limits.name, core_count,
                core_count == 1 ? "core" : "cores", kind);
  }
  return {};
}

// Scope 0 is never ended by the program and so holds nothing back: its tasks are not counted.
Result<void> check_scopes(const Graph& graph, const DeviceLimits& limits) {
  if (limits.scope_tasks == 0) return {};
  for (size_t scope = 1; scope < graph.scopes.size(); ++scope) {
    const GraphScope& facts = graph.scopes[scope];
    const int64_t task_count = int64_t{facts.end_task} - int64_t{facts.first_task};
    if (task_count <= limits.scope_tasks) continue;
    return fail(ErrorCode::kInvalidInput,
                "scope {}, which begins with {}, holds {} tasks until it ends, but {} has room for "
                "{}",
                scope, task_text(graph, facts.first_task), task_count, limits.name,
                limits.scope_tasks);
  }
  return {};
}

Result<void> check_buffers(const Graph& graph, const DeviceLimits& limits) {
  if (limits.arena_bytes == 0) return {};
  for (const GraphBuffer& buffer : graph.buffers) {
    if (buffer.kind != BufferKind::kIntermediate) continue;
    if (buffer.bytes <= limits.arena_bytes) continue;
    return fail(ErrorCode::kInvalidInput,
                "buffer '{}' has {} bytes, but {} has an arena of {} bytes", buffer.name,
                buffer.bytes, limits.name, limits.arena_bytes);
  }
  return {};
}

// What each task needs at once. Each buffer is within the arena, so that sums cannot overflow.
Result<void> check_task_memory(const Graph& graph, const DeviceLimits& limits) {
  if (limits.arena_bytes == 0) return {};
  std::vector<uint32_t> counted_for(graph.buffers.size(), kNoIndex);
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    int64_t bytes = 0;
    for (const Argument& argument : graph.arguments_of(task)) {
      const uint32_t index = argument.view.buffer.index();
      const GraphBuffer& buffer = graph.buffers[index];
      if (buffer.kind != BufferKind::kIntermediate || counted_for[index] == task) continue;
      counted_for[index] = task;
      if (buffer.bytes > limits.arena_bytes - bytes) {
        return fail(ErrorCode::kInvalidInput,
                    "{} needs {} bytes of intermediates at once with buffer '{}', but {} has an "
                    "arena of {} bytes",
                    task_text(graph, task),
                    static_cast<uint64_t>(bytes) + static_cast<uint64_t>(buffer.bytes), buffer.name,
                    limits.name, limits.arena_bytes);
      }
      bytes += buffer.bytes;
    }
  }
  return {};
}

}  // namespace

int cores_for(const DeviceLimits& limits, CoreKind kind) {
  switch (kind) {
    case CoreKind::kAny:
      return limits.any_cores + limits.cube_cores + limits.vector_cores;
    case CoreKind::kCube:
      return limits.any_cores + limits.cube_cores;
    case CoreKind::kVector:
      return limits.any_cores + limits.vector_cores;
    case CoreKind::kMixed:
      return limits.clusters > 0 ? limits.clusters : limits.any_cores;
  }
  return 0;
}

Result<void> validate(const Graph& graph, const DeviceLimits& limits) {
  GAPLESS_TRY(topological_order(graph));
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    GAPLESS_TRY(check_cores(graph, task, limits));
  }
  GAPLESS_TRY(check_scopes(graph, limits));
  GAPLESS_TRY(check_buffers(graph, limits));
  return check_task_memory(graph, limits);
}

}  // namespace gapless
