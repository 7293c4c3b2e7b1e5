// SPDX-License-Identifier: Apache-2.0

#include "graph/graph_builder.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "graph/reduce_edges.h"

namespace gapless {
namespace {

constexpr uint32_t kMaxBuffers = BufferId::kIndexMask;
constexpr size_t kUsualArguments = 4;  // and edges, of one task
constexpr size_t kMaxCount = std::numeric_limits<uint32_t>::max();

const std::string& kernel_of(const TaskSpec& spec, const KernelTable& kernels) {
  return kernels[spec.kernel].name;
}

// "gate_up: argument 2 (out, bf16[16,256] strides [5120,1] at 81920)". Its rank and type are valid.
std::string argument_text(const TaskSpec& spec, int argument, const KernelTable& kernels) {
  const Argument& given = spec.arguments[static_cast<size_t>(argument)];
  return fmt::format("{}: argument {} ({}, {})", kernel_of(spec, kernels), argument,
                     access_name(given.access), view_text(given.view));
}

// The bytes [begin, end) from the first to the last that a view touches.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool fits = true;  // false: beyond 64 bits
};

ByteRange byte_range(const View& view) {
  int64_t first = view.offset;
  int64_t last = view.offset;
  bool is_empty = false;
  bool overflow = false;
  for (size_t i = 0; i < view.rank; ++i) {
    is_empty |= view.shape[i] == 0;
    int64_t reach = 0;
    overflow |= __builtin_mul_overflow(int64_t{view.shape[i]} - 1, view.strides[i], &reach);
    int64_t& moved = reach < 0 ? first : last;
    overflow |= __builtin_add_overflow(moved, reach, &moved);
  }
  // A view of nothing is where it begins, whatever its strides say.
  if (is_empty) {
    first = last = view.offset;
    overflow = false;
  }
  ByteRange range;
  const int64_t element_bytes = dtype_bytes(view.dtype);
  overflow |= __builtin_mul_overflow(first, element_bytes, &range.begin);
  overflow |= __builtin_mul_overflow(last, element_bytes, &range.end);
  if (!is_empty) overflow |= __builtin_add_overflow(range.end, element_bytes, &range.end);
  range.fits = !overflow;
  return range;
}

// What must hold before a view can even be printed.
Result<void> check_form(const TaskSpec& spec, int argument, const KernelTable& kernels) {
  const Argument& given = spec.arguments[static_cast<size_t>(argument)];
  const View& view = given.view;
  if (given.access > Access::kInOut || static_cast<int>(view.dtype) >= kDTypeCount) {
    return fail(ErrorCode::kInvalidInput, "{}: argument {} has access {} and type {}: no such",
                kernel_of(spec, kernels), argument, static_cast<int>(given.access),
                static_cast<int>(view.dtype));
  }
  if (view.rank > kMaxRank) {
    return fail(ErrorCode::kInvalidInput, "{}: argument {} has {} dimensions, more than {}",
                kernel_of(spec, kernels), argument, view.rank, kMaxRank);
  }
  for (size_t i = 0; i < view.rank; ++i) {
    if (view.shape[i] >= 0) continue;
    return fail(ErrorCode::kInvalidInput, "{} has a dimension of {} elements",
                argument_text(spec, argument, kernels), view.shape[i]);
  }
  return {};
}

[[gnu::cold]] Error range_error(const std::string& argument, const ByteRange& range,
                                const BufferFacts& buffer) {
  if (!range.fits) {
    return fail(ErrorCode::kInvalidInput, "{} reaches further than 64 bits, past buffer '{}'",
                argument, buffer.name);
  }
  if (range.begin < 0) {
    return fail(ErrorCode::kInvalidInput, "{} begins at byte {}, before buffer '{}'", argument,
                range.begin, buffer.name);
  }
  return fail(ErrorCode::kInvalidInput, "{} ends at byte {}, past the {} bytes of buffer '{}'",
              argument, range.end, buffer.bytes, buffer.name);
}

}  // namespace

Result<void> check_task(const TaskSpec& spec, const KernelTable& kernels) {
  if (!kernels.contains(spec.kernel)) {
    return fail(ErrorCode::kInvalidInput, "a task with kernel {}, but there are {} kernels",
                spec.kernel.id, kernels.size());
  }
  if (spec.arguments.size() > kMaxArguments) {
    return fail(ErrorCode::kInvalidInput, "{}: {} arguments, more than {}",
                kernel_of(spec, kernels), spec.arguments.size(), kMaxArguments);
  }
  if (spec.scalars.size() > kMaxScalars) {
    return fail(ErrorCode::kInvalidInput, "{}: {} scalars, more than {}", kernel_of(spec, kernels),
                spec.scalars.size(), kMaxScalars);
  }
  if (spec.block_count < 1 || spec.block_count > kMaxBlocks) {
    return fail(ErrorCode::kInvalidInput, "{}: {} blocks, a task has 1 to {}",
                kernel_of(spec, kernels), spec.block_count, kMaxBlocks);
  }
  if (static_cast<int>(spec.core) >= kCoreKindCount) {
    return fail(ErrorCode::kInvalidInput, "{}: there is no core kind {}", kernel_of(spec, kernels),
                static_cast<int>(spec.core));
  }
  if (spec.predicate.comparison > Comparison::kGreater) {
    return fail(ErrorCode::kInvalidInput, "{}: there is no comparison {}", kernel_of(spec, kernels),
                static_cast<int>(spec.predicate.comparison));
  }
  if (spec.cost.bytes < 0 || spec.cost.flops < 0) {
    return fail(ErrorCode::kInvalidInput, "{}: a cost of {} bytes and {} flops",
                kernel_of(spec, kernels), spec.cost.bytes, spec.cost.flops);
  }
  return {};
}

Result<void> check_argument(const TaskSpec& spec, int argument, const KernelTable& kernels,
                            const BufferFacts& buffer) {
  GAPLESS_TRY(check_form(spec, argument, kernels));
  const Argument& given = spec.arguments[static_cast<size_t>(argument)];
  if (buffer.bytes < 0) {
    return fail(ErrorCode::kInvalidInput, "{} names buffer {:#x}, which does not exist",
                argument_text(spec, argument, kernels), given.view.buffer.id);
  }
  if (buffer.kind == BufferKind::kConstant && writes(given.access)) {
    return fail(ErrorCode::kInvalidInput, "{} writes buffer '{}', which is constant",
                argument_text(spec, argument, kernels), buffer.name);
  }
  const ByteRange range = byte_range(given.view);
  if (!range.fits || range.begin < 0 || range.end > buffer.bytes) {
    return range_error(argument_text(spec, argument, kernels), range, buffer);
  }
  return {};
}

GraphBuilder::GraphBuilder(const GraphBuilderOptions& options) : options_(options) {
  graph_.scopes.emplace_back();
  open_scopes_.push_back(0);
  graph_.tasks.reserve(options.expected_tasks);
  edge_after_.reserve(options.expected_tasks);
  graph_.arguments.reserve(kUsualArguments * options.expected_tasks);
  edges_.reserve(kUsualArguments * options.expected_tasks);
}

Result<KernelId> GraphBuilder::add_kernel(std::string name, KernelFunction run) {
  return graph_.kernels.add(std::move(name), run);
}

Result<BufferId> GraphBuilder::add_buffer(const BufferSpec& spec) {
  if (spec.bytes < 0) {
    return fail(ErrorCode::kInvalidInput, "buffer '{}' with {} bytes", spec.name, spec.bytes);
  }
  if (spec.kind > BufferKind::kIntermediate) {
    return fail(ErrorCode::kInvalidInput, "buffer '{}': there is no buffer kind {}", spec.name,
                static_cast<int>(spec.kind));
  }
  if (graph_.buffers.size() == kMaxBuffers) {
    return fail(ErrorCode::kInvalidInput, "buffer '{}': there are {} buffers, no more are possible",
                spec.name, kMaxBuffers);
  }
  graph_.buffers.push_back(
      {std::string(spec.name), spec.kind, spec.bytes, spec.data, open_scopes_.back()});
  return BufferId{static_cast<uint32_t>(graph_.buffers.size() - 1)};
}

bool GraphBuilder::has_ended(uint32_t scope) const {
  const size_t depth = graph_.scopes[scope].depth;
  return depth >= open_scopes_.size() || open_scopes_[depth] != scope;
}

BufferFacts GraphBuilder::facts_of(BufferId buffer) const {
  if (buffer.id >= graph_.buffers.size()) return {};
  const GraphBuffer& known = graph_.buffers[buffer.id];
  return {known.bytes, known.kind, known.name};
}

Result<void> GraphBuilder::check(const TaskSpec& spec) const {
  GAPLESS_TRY(check_task(spec, graph_.kernels));
  for (size_t i = 0; i < spec.arguments.size(); ++i) {
    const BufferId buffer = spec.arguments[i].view.buffer;
    GAPLESS_TRY(check_argument(spec, static_cast<int>(i), graph_.kernels, facts_of(buffer)));
    const GraphBuffer& known = graph_.buffers[buffer.id];
    if (known.kind == BufferKind::kIntermediate && has_ended(known.scope)) {
      return fail(ErrorCode::kInvalidInput,
                  "{} uses buffer '{}', whose scope {} ended after {} tasks",
                  argument_text(spec, static_cast<int>(i), graph_.kernels), known.name, known.scope,
                  graph_.scopes[known.scope].end_task);
    }
  }
  for (const TaskId& before : spec.after) {
    if (before.id < task_count()) continue;
    return fail(ErrorCode::kInvalidInput,
                "{}: to come after task {}, but only {} tasks come before it",
                kernel_of(spec, graph_.kernels), before.id, task_count());
  }
  // One task adds at most one edge a task before it.
  if (graph_.arguments.size() > kMaxCount - kMaxArguments ||
      graph_.scalars.size() > kMaxCount - kMaxScalars || edges_.size() > kMaxCount - task_count()) {
    return fail(ErrorCode::kInvalidInput, "{}: the graph is full with {} tasks and {} edges",
                kernel_of(spec, graph_.kernels), task_count(), edges_.size());
  }
  return {};
}

// The arguments that are not on constant buffers.
std::span<const Argument> GraphBuilder::tracked(std::span<const Argument> arguments) {
  const auto is_constant = [this](const Argument& argument) {
    return graph_.buffers[argument.view.buffer.id].kind == BufferKind::kConstant;
  };
  if (std::none_of(arguments.begin(), arguments.end(), is_constant)) return arguments;
  tracked_.clear();
  std::remove_copy_if(arguments.begin(), arguments.end(), std::back_inserter(tracked_),
                      is_constant);
  return tracked_;
}

void GraphBuilder::add_edge(uint32_t producer, uint32_t consumer, EdgeKind kind) {
  const uint32_t after = edge_after_[producer];
  if (after != 0 && edges_[after - 1].consumer == consumer) {
    edges_[after - 1].kind = std::min(edges_[after - 1].kind, kind);
    return;
  }
  edges_.push_back({producer, consumer, kind});
  edge_after_[producer] = static_cast<uint32_t>(edges_.size());
}

Result<TaskId> GraphBuilder::add_task(const TaskSpec& spec) {
  GAPLESS_TRY(check(spec));
  const uint32_t task = task_count();
  GraphTask& added = graph_.tasks.emplace_back();
  added.kernel = spec.kernel;
  added.core = spec.core;
  added.gang = spec.gang;
  added.block_count = spec.block_count;
  added.first_argument = static_cast<uint32_t>(graph_.arguments.size());
  added.first_scalar = static_cast<uint32_t>(graph_.scalars.size());
  added.argument_count = static_cast<uint16_t>(spec.arguments.size());
  added.scalar_count = static_cast<uint16_t>(spec.scalars.size());
  added.scope = open_scopes_.back();
  added.predicate = spec.predicate;
  added.cost = spec.cost;
  added.block_costs = spec.block_costs;
  graph_.arguments.insert(graph_.arguments.end(), spec.arguments.begin(), spec.arguments.end());
  graph_.scalars.insert(graph_.scalars.end(), spec.scalars.begin(), spec.scalars.end());

  edge_after_.push_back(0);
  found_.clear();
  map_.access(task, tracked(spec.arguments), found_);
  for (const Dependency& dependency : found_) {
    add_edge(static_cast<uint32_t>(dependency.task), task, dependency.kind);
  }
  for (const TaskId& before : spec.after)
    add_edge(static_cast<uint32_t>(before.id), task, EdgeKind::kOrder);
  return TaskId{task};
}

void GraphBuilder::begin_scope() {
  const uint32_t depth = static_cast<uint32_t>(open_scopes_.size());
  graph_.scopes.push_back({open_scopes_.back(), depth, task_count(), task_count()});
  open_scopes_.push_back(static_cast<uint32_t>(graph_.scopes.size() - 1));
}

Result<void> GraphBuilder::end_scope() {
  if (open_scopes_.size() == 1) {
    return fail(ErrorCode::kInvalidInput, "the end of a scope after {} tasks, but none is open",
                task_count());
  }
  const uint32_t scope = open_scopes_.back();
  open_scopes_.pop_back();
  graph_.scopes[scope].end_task = task_count();
  // Buffers that were added since the scope began are the last ones; those of scopes within it are
  // forgotten already.
  for (size_t i = graph_.buffers.size(); i-- > 0 && graph_.buffers[i].scope >= scope;) {
    const GraphBuffer& buffer = graph_.buffers[i];
    if (buffer.kind != BufferKind::kIntermediate || buffer.scope != scope) continue;
    map_.forget(BufferId{static_cast<uint32_t>(i)});
  }
  return {};
}

Result<Graph> GraphBuilder::finish() {
  if (open_scopes_.size() > 1) {
    const GraphScope& scope = graph_.scopes[open_scopes_.back()];
    return fail(ErrorCode::kInvalidInput,
                "{} scopes are still open at the end; the innermost began after {} tasks",
                open_scopes_.size() - 1, scope.first_task);
  }
  GraphBuilder done = std::exchange(*this, GraphBuilder({.reduce_edges = options_.reduce_edges}));
  done.graph_.scopes[0].end_task = done.task_count();
  GAPLESS_TRY(set_edges(done.graph_, std::move(done.edges_)));
  if (options_.reduce_edges) reduce_edges(done.graph_);
  return std::move(done.graph_);
}

}  // namespace gapless
