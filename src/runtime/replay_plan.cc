// SPDX-License-Identifier: Apache-2.0

#include "runtime/replay_plan.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "runtime/task_times.h"

namespace gapless {
namespace {

// Longest remaining paths, brought to kLevelCount levels: by rank where there are few different
// ones, otherwise neighbours share a level.
std::vector<uint16_t> levels_of(const Graph& graph) {
  const std::vector<double> remaining = longest_remaining(graph, cost_of_tasks(graph));
  std::vector<double> distinct = remaining;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<uint16_t> levels(remaining.size());
  for (size_t task = 0; task < remaining.size(); ++task) {
    const size_t rank = static_cast<size_t>(
        std::lower_bound(distinct.begin(), distinct.end(), remaining[task]) - distinct.begin());
    const size_t level =
        distinct.size() <= kLevelCount ? rank : rank * kLevelCount / distinct.size();
    levels[task] = static_cast<uint16_t>(level);
  }
  return levels;
}

int32_t part_count(const GraphTask& task, bool has_clusters) {
  const bool is_split = task.core == CoreKind::kMixed && has_clusters;
  return task.block_count * (is_split ? kClusterWorkers : 1);
}

uint8_t flags_of(const GraphTask& task, bool has_clusters) {
  uint8_t flags = 0;
  if (task.predicate.value != nullptr) flags |= kFlagPredicate;
  const bool is_gang = task.gang && task.block_count > 1;
  if (is_gang || (task.core == CoreKind::kMixed && has_clusters)) flags |= kFlagCohort;
  return flags;
}

void fill_tasks(const Graph& graph, const Scheduler& scheduler, ReplayPlan& plan) {
  const std::vector<uint16_t> levels = levels_of(graph);
  const uint32_t count = graph.task_count();
  plan.tasks = std::make_unique<RunTask[]>(count);
  plan.links.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const GraphTask& from = graph.tasks[i];
    RunTask& task = plan.tasks[i];
    task.run = graph.kernels[from.kernel].run;
    task.kernel = from.kernel;
    task.arguments = graph.arguments.data() + from.first_argument;
    task.scalars = graph.scalars.data() + from.first_scalar;
    task.argument_count = from.argument_count;
    task.scalar_count = static_cast<uint8_t>(from.scalar_count);
    task.producer_count = static_cast<int32_t>(graph.producers_of(i).size());
    task.waiting_for.store(task.producer_count, std::memory_order_relaxed);
    task.part_count = part_count(from, scheduler.has_clusters());
    task.parts_left.store(task.part_count, std::memory_order_relaxed);
    task.flags = flags_of(from, scheduler.has_clusters());
    task.trace_first = plan.trace_id_count;
    plan.trace_id_count += trace_ids_of(task.part_count);
    QueueLink& link = plan.links[i];
    link.block_count = from.block_count;
    link.level = levels[i];
    link.queue = scheduler.queue_for(from.core);
    if (task.producer_count == 0) plan.roots.push_back(i);
  }
}

// Tasks whose successor edges are equal share a list. Keys are the bytes of the edges.
void fill_lists(const Graph& graph, ReplayPlan& plan) {
  const auto comes_first = [&plan](uint32_t a, uint32_t b) {
    return plan.links[a].level != plan.links[b].level ? plan.links[a].level > plan.links[b].level
                                                      : a < b;
  };
  std::stable_sort(plan.roots.begin(), plan.roots.end(), comes_first);
  std::unordered_map<std::string, uint32_t> known = {{"", 0}};
  plan.lists.push_back({});
  std::vector<Edge> sorted;
  for (uint32_t i = 0; i < graph.task_count(); ++i) {
    const std::span<const Edge> edges = graph.successors_of(i);
    sorted.assign(edges.begin(), edges.end());
    std::stable_sort(sorted.begin(), sorted.end(), [&comes_first](const Edge& a, const Edge& b) {
      return comes_first(a.task, b.task);
    });
    std::string key;
    for (const Edge& edge : sorted) {
      key.append(reinterpret_cast<const char*>(&edge.task), sizeof(edge.task));
      key.push_back(static_cast<char>(edge.kind));
    }
    const auto [found, is_new] = known.try_emplace(key, static_cast<uint32_t>(plan.lists.size()));
    if (is_new) {
      SuccessorList list = {static_cast<uint32_t>(plan.successors.size()),
                            static_cast<uint32_t>(sorted.size()), 0, true};
      for (const Edge& edge : sorted) {
        const RunTask& successor = plan.tasks[edge.task];
        list.plain = list.plain && successor.producer_count == 1 && successor.flags == 0;
        plan.successors.push_back(edge.task);
        plan.kinds.push_back(edge.kind);
      }
      plan.lists.push_back(list);
    }
    plan.tasks[i].list = found->second;
    ++plan.lists[found->second].user_count;
  }
  plan.end_count = plan.lists[0].user_count;
}

void fill_costs(const Graph& graph, ReplayPlan& plan) {
  const bool any_known = std::any_of(
      graph.tasks.begin(), graph.tasks.end(),
      [](const GraphTask& task) { return is_known(task.cost) || task.block_costs != nullptr; });
  if (!any_known) return;
  plan.costs.reserve(graph.tasks.size());
  plan.block_costs.reserve(graph.tasks.size());
  for (const GraphTask& task : graph.tasks) {
    plan.costs.push_back(task.cost);
    plan.block_costs.push_back(task.block_costs);
  }
}

}  // namespace

Result<ReplayPlan> make_replay_plan(const Graph& graph, const Scheduler& scheduler) {
  constexpr uint64_t kMaxParts = uint64_t{1} << 31;
  uint64_t total_parts = 0;
  for (const GraphTask& task : graph.tasks) {
    total_parts += trace_ids_of(part_count(task, scheduler.has_clusters()));
  }
  if (total_parts > kMaxParts) {
    return fail(ErrorCode::kInvalidInput, "replay: {} blocks in all tasks together, more than {}",
                total_parts, kMaxParts);
  }
  ReplayPlan plan;
  fill_tasks(graph, scheduler, plan);
  fill_lists(graph, plan);
  fill_costs(graph, plan);
  for (size_t i = 0; i < graph.kernels.size(); ++i) {
    const std::string& name = graph.kernels[KernelId{static_cast<uint16_t>(i)}].name;
    plan.names.push_back(intern_name(name));
    plan.join_names.push_back(intern_name(name + std::string(kJoinSuffix)));
  }
  plan.longest_list = static_cast<uint32_t>(plan.roots.size());
  for (const SuccessorList& list : plan.lists) {
    plan.longest_list = std::max(plan.longest_list, list.count);
  }
  return plan;
}

}  // namespace gapless
