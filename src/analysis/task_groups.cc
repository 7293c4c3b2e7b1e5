// SPDX-License-Identifier: Apache-2.0

#include "analysis/task_groups.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>

namespace gapless {
namespace {

// A kernel's place in `kernels`, by its number in the names; tasks without a name have the last.
class KernelRanks {
 public:
  explicit KernelRanks(const StepTasks& tasks) {
    uint32_t name_count = 0;
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      const uint32_t kernel = tasks.kernel(task);
      if (kernel != kNoIndex) {
        name_count = std::max(name_count, kernel + 1);
      }
    }
    rank_of_name_.assign(size_t{name_count} + 1, kNoIndex);
    ranks_.resize(tasks.task_count());
    for (uint32_t task = 0; task < tasks.task_count(); ++task) {
      const uint32_t kernel = tasks.kernel(task);
      uint32_t& rank = rank_of_name_[std::min(kernel, name_count)];
      if (rank == kNoIndex) {
        rank = static_cast<uint32_t>(kernels_.size());
        kernels_.push_back(kernel);
      }
      ranks_[task] = rank;
    }
  }

  uint32_t operator[](uint32_t task) const { return ranks_[task]; }
  std::span<const uint32_t> all() const { return ranks_; }
  std::span<const uint32_t> kernels() const { return kernels_; }  // by rank

 private:
  std::vector<uint32_t> rank_of_name_;
  std::vector<uint32_t> ranks_;  // by task
  std::vector<uint32_t> kernels_;
};

std::vector<uint32_t> layers_of_tasks(const StepTasks& tasks, const KernelRanks& ranks) {
  std::vector<uint32_t> layers(tasks.task_count(), 0);
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    uint32_t layer = 0;
    for (const uint32_t producer : tasks.producers(task)) {
      const uint32_t begins_layer = ranks[producer] > ranks[task] ? 1 : 0;
      layer = std::max(layer, layers[producer] + begins_layer);
    }
    layers[task] = layer;
  }
  // Roots were given layer 0, so a consumer behind an edge that begins a layer is in layer 1 or
  // later, and the subtraction stays above zero. No consumer's layer changes.
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    if (!tasks.producers(task).empty() || tasks.consumers(task).empty()) continue;
    uint32_t layer = std::numeric_limits<uint32_t>::max();
    for (const uint32_t consumer : tasks.consumers(task)) {
      const uint32_t begins_layer = ranks[task] > ranks[consumer] ? 1 : 0;
      layer = std::min(layer, layers[consumer] - begins_layer);
    }
    layers[task] = layer;
  }
  return layers;
}

// The items of `order`, stably by their key. Keys are below `key_count`.
std::vector<uint32_t> sort_by_key(std::span<const uint32_t> order, std::span<const uint32_t> keys,
                                  uint32_t key_count) {
  std::vector<uint32_t> places(size_t{key_count} + 1, 0);
  for (const uint32_t key : keys) ++places[key + 1];
  for (size_t key = 1; key < places.size(); ++key) {
    places[key] += places[key - 1];
  }
  std::vector<uint32_t> sorted(order.size());
  for (const uint32_t item : order) {
    sorted[places[keys[item]]++] = item;
  }
  return sorted;
}

std::vector<uint32_t> sort_by_layer_and_rank(std::span<const uint32_t> layers, uint32_t layer_count,
                                             const KernelRanks& ranks) {
  std::vector<uint32_t> order(layers.size());
  std::iota(order.begin(), order.end(), 0u);
  order = sort_by_key(order, ranks.all(), static_cast<uint32_t>(ranks.kernels().size()));
  return sort_by_key(order, layers, layer_count);
}

std::vector<TaskGroup> make_groups(const StepTasks& tasks, std::span<const uint32_t> layers,
                                   std::span<const uint32_t> order) {
  std::vector<TaskGroup> groups;
  for (const uint32_t task : order) {
    const uint32_t kernel = tasks.kernel(task);
    if (groups.empty() || groups.back().kernel != kernel || groups.back().layer != layers[task]) {
      groups.push_back({.kernel = kernel,
                        .layer = layers[task],
                        .begin_ns = tasks.start_ns(task),
                        .end_ns = tasks.end_ns(task)});
    }
    TaskGroup& group = groups.back();
    ++group.task_count;
    group.run_ns += tasks.end_ns(task) - tasks.start_ns(task);
    group.begin_ns = std::min(group.begin_ns, tasks.start_ns(task));
    group.end_ns = std::max(group.end_ns, tasks.end_ns(task));
  }
  return groups;
}

std::vector<KernelFan> count_edges(const StepTasks& tasks, const KernelRanks& ranks) {
  std::vector<KernelFan> fans;
  fans.reserve(ranks.kernels().size());
  for (const uint32_t kernel : ranks.kernels()) {
    fans.push_back({.kernel = kernel});
  }
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    KernelFan& fan = fans[ranks[task]];
    const uint32_t producer_count = static_cast<uint32_t>(tasks.producers(task).size());
    const uint32_t consumer_count = static_cast<uint32_t>(tasks.consumers(task).size());
    ++fan.task_count;
    fan.producer_count += producer_count;
    fan.consumer_count += consumer_count;
    fan.max_producers = std::max(fan.max_producers, producer_count);
    fan.max_consumers = std::max(fan.max_consumers, consumer_count);
  }
  return fans;
}

void count_layers(std::span<const TaskGroup> groups, std::span<const uint32_t> first_tasks,
                  const KernelRanks& ranks, std::vector<KernelFan>& fans) {
  std::vector<std::vector<uint32_t>> counts(fans.size());
  for (size_t index = 0; index < groups.size(); ++index) {
    counts[ranks[first_tasks[index]]].push_back(groups[index].task_count);
  }
  for (size_t rank = 0; rank < fans.size(); ++rank) {
    std::vector<uint32_t>& of_kernel = counts[rank];
    fans[rank].layer_count = static_cast<uint32_t>(of_kernel.size());
    fans[rank].max_per_layer = *std::max_element(of_kernel.begin(), of_kernel.end());
    const std::vector<uint32_t>::iterator middle =
        of_kernel.begin() + static_cast<ptrdiff_t>((of_kernel.size() - 1) / 2);
    std::nth_element(of_kernel.begin(), middle, of_kernel.end());
    fans[rank].median_per_layer = *middle;
  }
}

std::vector<uint32_t> first_task_of_each(std::span<const TaskGroup> groups,
                                         std::span<const uint32_t> order) {
  std::vector<uint32_t> first_tasks;
  first_tasks.reserve(groups.size());
  size_t place = 0;
  for (const TaskGroup& group : groups) {
    first_tasks.push_back(order[place]);
    place += group.task_count;
  }
  return first_tasks;
}

double ratio(uint64_t part, uint32_t count) {
  return count == 0 ? 0.0 : static_cast<double>(part) / count;
}

}  // namespace

double KernelFan::mean_fan_in() const { return ratio(producer_count, task_count); }
double KernelFan::mean_fan_out() const { return ratio(consumer_count, task_count); }

TaskGroups group_tasks(const StepTasks& tasks) {
  TaskGroups result;
  if (tasks.task_count() == 0) return result;
  const KernelRanks ranks(tasks);
  result.task_layer = layers_of_tasks(tasks, ranks);
  result.layer_count = 1 + *std::max_element(result.task_layer.begin(), result.task_layer.end());
  const std::vector<uint32_t> order =
      sort_by_layer_and_rank(result.task_layer, result.layer_count, ranks);
  result.groups = make_groups(tasks, result.task_layer, order);
  result.kernels = count_edges(tasks, ranks);
  count_layers(result.groups, first_task_of_each(result.groups, order), ranks, result.kernels);
  return result;
}

}  // namespace gapless
