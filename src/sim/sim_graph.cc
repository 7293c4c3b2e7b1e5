// SPDX-License-Identifier: Apache-2.0

#include "sim/sim_graph.h"

#include <algorithm>

#include <fmt/core.h>

#include "sim/fluid.h"

namespace gapless {
namespace {

constexpr uint32_t kMaxTasks = 1u << 28;
constexpr uint32_t kMaxBlocks = 1u << 20;
constexpr int64_t kMaxFlops = int64_t{1} << 50;
constexpr int64_t kMaxRunNs = int64_t{1} << 40;  // 18 minutes: sums of millions fit
constexpr size_t kShownTasks = 8;                // of a circle

// Of both ends of the edges, rows of a table: begins[task] .. begins[task + 1].
void fill_rows(const std::vector<std::pair<uint32_t, uint32_t>>& edges, bool by_producer,
               size_t task_count, std::vector<uint64_t>& begins, std::vector<uint32_t>& others) {
  begins.assign(task_count + 1, 0);
  others.resize(edges.size());
  for (const auto& [producer, consumer] : edges) ++begins[(by_producer ? producer : consumer) + 1];
  for (size_t task = 0; task < task_count; ++task) begins[task + 1] += begins[task];
  std::vector<uint64_t> next(begins.begin(), begins.end() - 1);
  for (const auto& [producer, consumer] : edges) {
    others[next[by_producer ? producer : consumer]++] = by_producer ? consumer : producer;
  }
}

// The tasks of one circle among those that were never free of producers.
std::vector<uint32_t> find_circle(const SimGraph& graph, const std::vector<uint32_t>& waiting) {
  uint32_t task = 0;
  while (waiting[task] == 0) ++task;
  std::vector<uint32_t> path;
  std::vector<uint32_t> place(graph.task_count(), UINT32_MAX);
  while (place[task] == UINT32_MAX) {
    place[task] = static_cast<uint32_t>(path.size());
    path.push_back(task);
    for (const uint32_t producer : graph.producers(task)) {
      if (waiting[producer] == 0) continue;
      task = producer;
      break;
    }
  }
  return {path.begin() + place[task], path.end()};
}

Error circle_error(const SimGraph& graph, const std::vector<uint32_t>& waiting) {
  const std::vector<uint32_t> circle = find_circle(graph, waiting);
  std::string names;
  for (size_t i = 0; i < std::min(circle.size(), kShownTasks); ++i) {
    names += fmt::format("{}{} ({})", i == 0 ? "" : " waits for ", circle[i],
                         graph.kernel_name(circle[i]));
  }
  if (circle.size() > kShownTasks)
    names += fmt::format(" and {} more", circle.size() - kShownTasks);
  return fail(ErrorCode::kInvalidInput, "tasks wait for each other: {} waits for {}", names,
              circle.front());
}

Result<void> check_no_circle(const SimGraph& graph) {
  std::vector<uint32_t> waiting(graph.task_count());
  std::vector<uint32_t> free_tasks;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    waiting[task] = static_cast<uint32_t>(graph.producers(task).size());
    if (waiting[task] == 0) free_tasks.push_back(task);
  }
  for (size_t i = 0; i < free_tasks.size(); ++i) {
    for (const uint32_t consumer : graph.consumers(free_tasks[i])) {
      if (--waiting[consumer] == 0) free_tasks.push_back(consumer);
    }
  }
  if (free_tasks.size() == graph.task_count()) return {};
  return circle_error(graph, waiting);
}

bool is_in_range(const SimCost& cost) {
  return cost.bytes >= 0 && cost.bytes <= kMaxFlowBytes && cost.flops >= 0 &&
         cost.flops <= kMaxFlops && cost.run_ns >= kModelled && cost.run_ns <= kMaxRunNs &&
         cost.sigma_ns >= 0 && cost.sigma_ns <= kMaxRunNs;
}

}  // namespace

std::string_view sim_shape_name(SimShape shape) {
  constexpr std::string_view kNames[kSimShapeCount] = {"mix", "cube", "vector"};
  return kNames[static_cast<int>(shape)];
}

uint32_t SimGraphBuilder::add_kernel(std::string_view name) {
  const auto [entry, is_new] =
      kernel_ids_.try_emplace(std::string(name), static_cast<uint32_t>(kernels_.size()));
  if (is_new) kernels_.emplace_back(name);
  return entry->second;
}

uint32_t SimGraphBuilder::add_task(const SimTask& task, std::span<const uint32_t> producers,
                                   std::span<const uint32_t> scales) {
  const uint32_t number = task_count();
  tasks_.push_back(task);
  scales_.insert(scales_.end(), scales.begin(), scales.end());
  scale_begins_.push_back(scales_.size());
  for (const uint32_t producer : producers) edges_.emplace_back(producer, number);
  return number;
}

Result<void> SimGraphBuilder::check_task(uint32_t number) const {
  const SimTask& task = tasks_[number];
  if (task.kernel >= kernels_.size()) {
    return fail(ErrorCode::kInvalidInput, "task {}: kernel {} of {}", number, task.kernel,
                kernels_.size());
  }
  const std::string& name = kernels_[task.kernel];
  if (task.block_count < 1 || task.block_count > kMaxBlocks) {
    return fail(ErrorCode::kInvalidInput, "task {} ({}): {} blocks; must be 1 to {}", number, name,
                task.block_count, kMaxBlocks);
  }
  const uint64_t scale_count = scale_begins_[number + 1] - scale_begins_[number];
  if (scale_count != 0 && scale_count != task.block_count) {
    return fail(ErrorCode::kInvalidInput, "task {} ({}): scales of {} blocks; it has {}", number,
                name, scale_count, task.block_count);
  }
  for (const SimCost& cost : {task.cube, task.vector}) {
    if (is_in_range(cost)) continue;
    return fail(ErrorCode::kInvalidInput,
                "task {} ({}): a block of {} bytes, {} flops, {} ns with sigma {}; bytes must be 0 "
                "to {}, the others not negative",
                number, name, cost.bytes, cost.flops, cost.run_ns, cost.sigma_ns, kMaxFlowBytes);
  }
  return {};
}

Result<void> SimGraphBuilder::check_edges() const {
  for (const auto& [producer, consumer] : edges_) {
    if (producer < tasks_.size() && consumer < tasks_.size()) continue;
    return fail(ErrorCode::kInvalidInput, "an edge from task {} to task {}; there are {} tasks",
                producer, consumer, tasks_.size());
  }
  return {};
}

Result<SimGraph> SimGraphBuilder::finish() {
  if (tasks_.size() > kMaxTasks) {
    return fail(ErrorCode::kInvalidInput, "{} tasks; at most {} can be simulated", tasks_.size(),
                kMaxTasks);
  }
  for (uint32_t task = 0; task < tasks_.size(); ++task) GAPLESS_TRY(check_task(task));
  GAPLESS_TRY(check_edges());
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  SimGraph graph;
  graph.kernels_ = std::move(kernels_);
  graph.tasks_ = std::move(tasks_);
  graph.scale_begins_ = std::move(scale_begins_);
  graph.scales_ = std::move(scales_);
  fill_rows(edges_, false, graph.tasks_.size(), graph.producer_begins_, graph.producers_);
  fill_rows(edges_, true, graph.tasks_.size(), graph.consumer_begins_, graph.consumers_);
  GAPLESS_TRY(check_no_circle(graph));
  return graph;
}

}  // namespace gapless
