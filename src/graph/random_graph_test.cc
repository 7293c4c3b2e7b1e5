// SPDX-License-Identifier: Apache-2.0
//
// Random programs are run here one task after another, with each block in turn: what they leave
// behind must depend on nothing but the order of conflicting tasks.

#include "graph/random_graph.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "graph/graph_text.h"
#include "graph/memory_plan.h"
#include "graph/task_context.h"

namespace gapless {
namespace {

using Memory = std::vector<std::vector<int64_t>>;

// External buffers begin alike in each run; intermediates with whatever `garbage` makes of them.
Memory make_memory(const Graph& graph, uint64_t garbage) {
  Memory memory;
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const bool is_external = graph.buffers[i].kind == BufferKind::kExternal;
    std::mt19937_64 random(is_external ? i : garbage + i);
    std::vector<int64_t> elements(static_cast<size_t>(graph.buffers[i].bytes) / sizeof(int64_t));
    for (int64_t& element : elements) element = static_cast<int64_t>(random());
    memory.push_back(std::move(elements));
  }
  return memory;
}

void run_task(const Graph& graph, uint32_t task, std::byte* const* buffers, bool blocks_backward) {
  const GraphTask& facts = graph.tasks[task];
  if (!facts.predicate.holds()) return;
  TaskFailure failure;
  for (int32_t i = 0; i < facts.block_count; ++i) {
    TaskContext context({.arguments = graph.arguments_of(task).data(),
                         .scalars = graph.scalars_of(task).data(),
                         .buffers = buffers,
                         .argument_count = facts.argument_count,
                         .scalar_count = facts.scalar_count,
                         .block_index = blocks_backward ? facts.block_count - 1 - i : i,
                         .block_count = facts.block_count,
                         .failure = &failure});
    graph.kernels[facts.kernel].run(context);
  }
  EXPECT_FALSE(failure.failed);
}

// What the external buffers hold after a run. With a plan, intermediates lie in one arena.
Memory run(const Graph& graph, const std::vector<uint32_t>& order, uint64_t garbage,
           const MemoryPlan* plan = nullptr) {
  Memory memory = make_memory(graph, garbage);
  std::vector<int64_t> arena(
      plan == nullptr ? 0 : static_cast<size_t>(plan->peak_bytes) / sizeof(int64_t), -1);
  std::vector<std::byte*> buffers;
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool in_arena = plan != nullptr && graph.buffers[i].kind == BufferKind::kIntermediate;
    buffers.push_back(in_arena ? reinterpret_cast<std::byte*>(arena.data()) + plan->offsets[i]
                               : reinterpret_cast<std::byte*>(memory[i].data()));
  }
  for (const uint32_t task : order) run_task(graph, task, buffers.data(), garbage % 2 == 1);
  for (size_t i = 0; i < memory.size(); ++i) {
    if (graph.buffers[i].kind == BufferKind::kIntermediate) memory[i].clear();
  }
  return memory;
}

std::vector<uint32_t> random_legal_order(const Graph& graph, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<size_t> waits_for(graph.task_count());
  std::vector<uint32_t> ready;
  std::vector<uint32_t> order;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    waits_for[task] = graph.producers_of(task).size();
    if (waits_for[task] == 0) ready.push_back(task);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const uint32_t task = ready.back();
    ready.pop_back();
    order.push_back(task);
    for (const Edge& edge : graph.successors_of(task)) {
      if (--waits_for[edge.task] == 0) ready.push_back(edge.task);
    }
  }
  return order;
}

TEST(RandomGraph, IsTheSameForTheSameSeed) {
  EXPECT_EQ(graph_json(make_random_graph(7)), graph_json(make_random_graph(7)));
  EXPECT_NE(graph_json(make_random_graph(7)), graph_json(make_random_graph(8)));
}

TEST(RandomGraph, HasOneOfEverything) {
  const Graph graph = make_random_graph(1, {.task_count = 400});
  EXPECT_GE(graph.task_count(), 400u);
  std::set<Access> accesses;
  std::set<uint8_t> ranks;
  for (const Argument& argument : graph.arguments) {
    accesses.insert(argument.access);
    ranks.insert(argument.view.rank);
  }
  EXPECT_EQ(accesses.size(), 3u);
  EXPECT_EQ(ranks, (std::set<uint8_t>{1, 2}));
  int spmd_count = 0;
  int skipped_count = 0;
  int predicate_count = 0;
  for (const GraphTask& task : graph.tasks) {
    spmd_count += task.block_count > 1 ? 1 : 0;
    predicate_count += task.predicate.value != nullptr ? 1 : 0;
    skipped_count += task.predicate.holds() ? 0 : 1;
  }
  EXPECT_GT(spmd_count, 50);
  EXPECT_GT(skipped_count, 5);
  EXPECT_GT(predicate_count, skipped_count);
  EXPECT_GT(graph.scopes.size(), 3u);
}

TEST(RandomGraph, TakesTheSmallestOptions) {
  const Graph graph = make_random_graph(3, {.task_count = 5, .buffer_count = 1, .elements = 1});
  EXPECT_GE(graph.task_count(), 5u);
  EXPECT_EQ(run(graph, topological_order(graph).value(), 0).size(), graph.buffers.size());
}

// Goal: the edges of the builder are enough. Method: random legal orders, blocks forward and
// backward, intermediates that begin with other garbage; every bit must agree.
TEST(RandomGraph, LeavesTheSameBitsInEveryLegalOrder) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = make_random_graph(seed);
    const Memory expected = run(graph, topological_order(graph).value(), 0);
    for (uint64_t i = 1; i <= 6; ++i) {
      EXPECT_EQ(run(graph, random_legal_order(graph, i), i), expected);
    }
  }
}

TEST(RandomGraph, LeavesTheSameBitsWhenMemoryIsShared) {
  for (uint64_t seed = 0; seed < 15; ++seed) {
    SCOPED_TRACE(seed);
    Graph graph = make_random_graph(seed, {.scope_share = 0.15});
    const Memory expected = run(graph, topological_order(graph).value(), 0);
    const MemoryPlan loose = plan_memory(graph).value();
    const Result<MemoryPlan> tight = plan_memory(
        graph,
        {.arena_bytes = (loose.floor_bytes + 3 * loose.peak_bytes) / 4, .may_add_edges = true});
    for (uint64_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(run(graph, random_legal_order(graph, i), i, &loose), expected);
    }
    if (!tight) continue;
    ASSERT_TRUE(add_lifetime_edges(graph, *tight).has_value());
    for (uint64_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(run(graph, random_legal_order(graph, i), i, &*tight), expected);
    }
  }
}

// Goal: a wrong order shows. Method: swap two tasks that follow one another, of which the later
// reads what the earlier wrote or both write the same, and see that the end differs. Bits that are
// overwritten before the end cannot differ, so that most but not all swaps must show.
TEST(RandomGraph, LeavesOtherBitsInAWrongOrder) {
  int swap_count = 0;
  int seen_count = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Graph graph = make_random_graph(
        seed, {.task_count = 40, .predicate_share = 0.0, .after_share = 0.0, .scope_share = 0.0});
    const std::vector<uint32_t> order = topological_order(graph).value();
    const Memory expected = run(graph, order, 0);
    for (uint32_t task = 1; task < graph.task_count(); ++task) {
      const std::span<const Edge> producers = graph.producers_of(task);
      if (producers.empty() || producers.back().task != task - 1) continue;
      std::vector<uint32_t> wrong = order;
      std::swap(wrong[task - 1], wrong[task]);
      ++swap_count;
      seen_count += run(graph, wrong, 0) != expected ? 1 : 0;
    }
  }
  EXPECT_GT(swap_count, 100);
  EXPECT_GT(seen_count * 10, swap_count * 8) << seen_count << " of " << swap_count;
}

}  // namespace
}  // namespace gapless
