// SPDX-License-Identifier: Apache-2.0

#include "runtime/bench_support.h"

#include <chrono>
#include <thread>
#include <utility>

#include <fmt/core.h>

namespace gapless {
namespace {

// Workers of oneTBB and libgomp spin for milliseconds after a run.
constexpr std::chrono::milliseconds kRest{10};

}  // namespace

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

PinnedCaller::PinnedCaller() {
  CPU_ZERO(&before_);
  ::sched_getaffinity(0, sizeof(before_), &before_);
  const std::vector<int> cores = allowed_cores();
  if (!cores.empty()) pin_thread(cores.front());
}

PinnedCaller::~PinnedCaller() { ::sched_setaffinity(0, sizeof(before_), &before_); }

void empty_kernel(TaskContext&) {}

Result<Graph> graph_of(const TaskShape& shape, KernelFunction kernel, std::vector<Scalar> scalars) {
  Graph graph;
  GraphTask task;
  task.kernel = GAPLESS_TRY(graph.kernels.add("work", kernel));
  task.scalar_count = static_cast<uint16_t>(scalars.size());
  graph.tasks.assign(shape.task_count, task);
  graph.scalars = std::move(scalars);
  graph.scopes.push_back({.end_task = shape.task_count});
  std::vector<GraphEdge> edges;
  for (uint32_t producer = 0; producer < shape.task_count; ++producer) {
    const uint32_t end = shape.successor_begin[producer + size_t{1}];
    for (uint32_t i = shape.successor_begin[producer]; i < end; ++i) {
      edges.push_back({producer, shape.successors[i], EdgeKind::kData});
    }
  }
  GAPLESS_TRY(set_edges(graph, std::move(edges)));
  return graph;
}

Contestant contestant_of(std::unique_ptr<TaskPeer> peer, const TaskPeerArgs& args) {
  const std::shared_ptr<TaskPeer> shared = std::move(peer);
  return {.name = shared->name(),
          .worker_count = args.worker_count,
          .task_count = args.shape->task_count,
          .run = [shared]() -> Result<void> {
            shared->run();
            return {};
          }};
}

Result<void> run_round(std::vector<Contestant>& contestants, int run_count) {
  for (Contestant& contestant : contestants) {
    std::this_thread::sleep_for(kRest);
    GAPLESS_TRY(contestant.run());
    std::vector<double> runs_ns;
    for (int i = 0; i < run_count; ++i) {
      const int64_t begin_ns = wall_ns();
      GAPLESS_TRY(contestant.run());
      runs_ns.push_back(static_cast<double>(wall_ns() - begin_ns) / contestant.task_count);
    }
    contestant.figure.values.push_back(median(runs_ns));
  }
  return {};
}

Row make_row(std::string group, std::string what, Figure figure) {
  Row row;
  row.group = std::move(group);
  row.what = std::move(what);
  row.figure = std::move(figure);
  return row;
}

std::string workers_text(int worker_count) {
  return fmt::format("{} {}", worker_count, worker_count == 1 ? "worker" : "workers");
}

}  // namespace gapless
