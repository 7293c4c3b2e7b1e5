// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the simulated machine share: profiles by their changes, random graphs, traces.

#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/device_profile.h"
#include "sim/machine.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_graph.h"
#include "sim/sim_trace.h"

namespace gapless {

inline DeviceProfile changed_profile(const char* name,
                                     std::initializer_list<std::string_view> changes) {
  Result<DeviceProfile> profile = find_profile(name);
  EXPECT_TRUE(profile.has_value());
  for (const std::string_view change : changes) {
    const Result<void> set = set_parameter(*profile, change);
    EXPECT_TRUE(set.has_value()) << (set ? "" : set.error().message);
  }
  return *profile;
}

// No overhead, one scheduler thread: a list schedule.
inline DeviceProfile ideal_profile(std::initializer_list<std::string_view> changes = {}) {
  DeviceProfile profile = changed_profile("ideal-910b", {"scheduler.threads=1"});
  for (const std::string_view change : changes) {
    EXPECT_TRUE(set_parameter(profile, change).has_value()) << change;
  }
  return profile;
}

inline SimTask timed_task(uint32_t kernel, SimShape shape, int64_t run_ns,
                          uint32_t block_count = 1) {
  return {.kernel = kernel,
          .shape = shape,
          .block_count = block_count,
          .cube = {.run_ns = run_ns},
          .vector = {.run_ns = run_ns}};
}

inline constexpr uint32_t kMostGangBlocks = 4;  // of random gangs: fits on every test's device

struct RandomSimOptions {
  uint32_t task_count = 80;
  bool has_memory = false;  // some tasks move bytes and compute; else all have their time
  bool has_mix = true;
  bool has_special = false;  // dummies, gangs, early resolve
};

inline SimCost random_cost(std::mt19937_64& random, bool is_memory) {
  if (!is_memory) return {.run_ns = 1 + static_cast<int64_t>(random() % 5000)};
  return {.bytes = static_cast<int64_t>(random() % 300'000),
          .flops = static_cast<int64_t>(random() % 30'000'000)};
}

inline SimGraph random_sim_graph(std::mt19937_64& random, const RandomSimOptions& options) {
  SimGraphBuilder builder;
  for (uint32_t task = 0; task < options.task_count; ++task) {
    SimTask facts;
    facts.shape = static_cast<SimShape>(options.has_mix ? random() % 3 : 1 + random() % 2);
    facts.kernel = builder.add_kernel(sim_shape_name(facts.shape));
    facts.block_count = random() % 4 == 0 ? 1 + static_cast<uint32_t>(random() % 40) : 1;
    const bool is_memory = options.has_memory && random() % 3 != 0;
    facts.cube = random_cost(random, is_memory);
    facts.vector = random_cost(random, is_memory && random() % 2 == 0);
    if (options.has_special) {
      facts.early_resolve = random() % 2 == 0;
      facts.sync_start = random() % 8 == 0 && facts.block_count <= kMostGangBlocks;
      facts.is_dummy = random() % 16 == 0;
    }
    std::vector<uint32_t> producers;
    const uint64_t producer_count = task == 0 ? 0 : random() % 4;
    for (uint64_t i = 0; i < producer_count; ++i) {
      const uint64_t reach = std::min<uint64_t>(task, 30);
      producers.push_back(task - 1 - static_cast<uint32_t>(random() % reach));
    }
    builder.add_task(facts, producers);
  }
  Result<SimGraph> graph = builder.finish();
  EXPECT_TRUE(graph.has_value());
  return *graph;
}

struct TracedSim {
  DeviceProfile profile;
  SimGraph graph;
  SimResult result;
  Trace trace;
};

inline TracedSim traced_sim(DeviceProfile profile, SimGraph graph,
                            const SimTraceOptions& options = {}) {
  TracedSim made{std::move(profile), std::move(graph), {}, {}};
  Result<SimResult> result = simulate(made.profile, made.graph, {.seed = 3});
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  if (result) made.result = std::move(*result);
  made.trace = make_sim_trace(made.profile, made.graph, made.result, options);
  return made;
}

inline TracedSim traced_sim_layer(const LayerGraphArgs& args = {}) {
  Result<SimGraph> graph = make_layer_graph(args);
  EXPECT_TRUE(graph.has_value());
  return traced_sim(changed_profile("ascend-910b", {}), std::move(*graph));
}

}  // namespace gapless
