// SPDX-License-Identifier: Apache-2.0

#include "sim/qwen3_layer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/machine.h"
#include "sim/sim_test_support.h"

namespace gapless {
namespace {

SimGraph layer_graph(const LayerGraphArgs& args) {
  Result<SimGraph> graph = make_layer_graph(args);
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return *graph;
}

struct GroupCounts {
  uint32_t tasks = 0;
  uint32_t blocks = 0;
};

std::map<std::string, GroupCounts> count_groups(const SimGraph& graph) {
  std::map<std::string, GroupCounts> groups;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    GroupCounts& group = groups[graph.kernel_name(task)];
    ++group.tasks;
    group.blocks += graph.task(task).block_count;
  }
  return groups;
}

uint32_t record_count(const SimGraph& graph) {
  uint32_t count = 0;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const SimTask& facts = graph.task(task);
    if (facts.is_dummy) continue;
    count += facts.block_count * (facts.shape == SimShape::kMix ? 3 : 1);
  }
  return count;
}

int64_t weight_bytes(const SimGraph& graph, const char* suffix) {
  int64_t bytes = 0;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    if (!graph.kernel_name(task).ends_with(suffix)) continue;
    bytes += graph.task(task).cube.bytes * graph.task(task).block_count;
  }
  return bytes;
}

TEST(Qwen3Layer, HasThePublishedTasksInBf16) {
  const SimGraph graph = layer_graph({});
  EXPECT_EQ(graph.task_count(), 419u);
  EXPECT_EQ(record_count(graph), 572u);
  const std::map<std::string, GroupCounts> groups = count_groups(graph);
  EXPECT_EQ(groups.at("q_proj").tasks, 50u);
  EXPECT_EQ(groups.at("k_proj").tasks, 10u);
  EXPECT_EQ(groups.at("qk_norm").tasks, 8u);
  EXPECT_EQ(groups.at("rope_qkv").blocks, 32u);
  EXPECT_EQ(groups.at("fa_fused").blocks, 24u);
  EXPECT_EQ(groups.at("online_softmax").blocks, 48u);
  EXPECT_EQ(groups.at("out_proj").tasks, 50u);
  EXPECT_EQ(groups.at("residual_rms_cast").tasks, 5u);
  EXPECT_EQ(groups.at("gate_proj").tasks, 85u);
  EXPECT_EQ(groups.at("silu").tasks, 17u);
  EXPECT_EQ(groups.at("down_proj").tasks, 85u);
  EXPECT_EQ(groups.at("dcr_xgamma").blocks, 5u);
}

TEST(Qwen3Layer, ReadsTheWeightsOnceAndTheCacheOnce) {
  const SimGraph graph = layer_graph({});
  // 330.3 M weights of two bytes; activations and results are a few percent more.
  const double weights = static_cast<double>(weight_bytes(graph, "_proj"));
  EXPECT_GT(weights, 660.6e6);
  EXPECT_LT(weights, 660.6e6 * 1.10);
  EXPECT_EQ(weight_bytes(graph, "fa_fused") / 24 * 24, int64_t{268'435'456} / 24 * 24);
}

TEST(Qwen3Layer, DealsPagesToClusters) {
  // 33 pages over 24 clusters: nine have two.
  const SimGraph graph = layer_graph({.lengths = {4096, 1}});
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    if (graph.kernel_name(task) != "fa_fused") continue;
    EXPECT_EQ(graph.block_scale(task, 8), 2u * 24u * kWholeBlock / 33u);
    EXPECT_EQ(graph.block_scale(task, 9), 24u * kWholeBlock / 33u);
  }
}

TEST(Qwen3Layer, KeepsTheDependenciesOfTheTiles) {
  const SimGraph graph = layer_graph({});
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const std::string& name = graph.kernel_name(task);
    const size_t count = graph.producers(task).size();
    if (name == "qk_norm") {
      EXPECT_EQ(count, 16u) << "10 q tiles, 5 k tiles, rms";
    } else if (name == "silu") {
      EXPECT_EQ(count, 11u) << "5 gate, 5 up, reduce";
    } else if (name == "residual_rms_cast") {
      EXPECT_EQ(count, 10u);
    } else if (name == "post_rms_reduce") {
      EXPECT_EQ(count, 50u);
    } else if (name == "dcr_xgamma") {
      EXPECT_EQ(count, 85u);
    } else if (name == "down_proj" || name == "gate_proj" || name == "up_proj") {
      EXPECT_EQ(count, 2u);
    }
  }
}

TEST(Qwen3Layer, HasThePublishedBlocksInA8W8) {
  const SimGraph graph = layer_graph({.tiling = LayerTiling::kA8W8});
  uint32_t blocks = 0;
  for (const auto& [name, group] : count_groups(graph)) {
    if (name != "mlp_barrier") blocks += group.blocks;
  }
  EXPECT_EQ(blocks, 709u);
  const std::map<std::string, GroupCounts> groups = count_groups(graph);
  EXPECT_EQ(groups.at("gate_up_proj").blocks, 340u);
  EXPECT_EQ(groups.at("gate_up_seed").blocks, 68u);
  EXPECT_EQ(groups.at("silu").blocks, 68u);
  EXPECT_EQ(groups.at("out_proj").blocks, 40u);
  EXPECT_EQ(groups.at("down_proj").blocks, 10u);
  EXPECT_EQ(groups.at("q_proj").blocks + groups.at("k_proj").blocks + groups.at("v_proj").blocks,
            28u);
}

TEST(Qwen3Layer, HasFewerBlocksWithInt8GateAndUp) {
  const SimGraph graph = layer_graph({.tiling = LayerTiling::kA8W8Int8});
  uint32_t blocks = 0;
  for (const auto& [name, group] : count_groups(graph)) {
    if (name != "mlp_barrier") blocks += group.blocks;
  }
  EXPECT_EQ(blocks, 356u);
  const double weights = static_cast<double>(weight_bytes(graph, "_proj"));
  EXPECT_GT(weights, 419e6) << "down in bf16, all others in int8";
  EXPECT_LT(weights, 419e6 * 1.06);
}

TEST(Qwen3Layer, SplitsGateAndUp) {
  const SimGraph both = layer_graph({.tiling = LayerTiling::kA8W8});
  const SimGraph split = layer_graph({.tiling = LayerTiling::kA8W8Split});
  EXPECT_EQ(count_groups(split).at("gate_proj").blocks, 340u);
  EXPECT_EQ(count_groups(split).at("up_proj").blocks, 340u);
  EXPECT_GT(weight_bytes(split, "_proj"), weight_bytes(both, "_proj")) << "activations, twice";
}

// pypto-lib #665 lists 224 groups of the MLP, 40 of out_proj, 28 of q, k and v and 32 others, and
// 38,705 records a step: 40 x 967 and 25 that are of no layer.
TEST(Qwen3Layer, HasTheReportedTasksBeforeTheMerge) {
  const SimGraph graph = layer_graph({.tiling = LayerTiling::kA8W8First});
  EXPECT_EQ(graph.task_count(), 324u);
  EXPECT_EQ(record_count(graph), 967u);
  std::map<std::string, GroupCounts> groups = count_groups(graph);
  EXPECT_EQ(groups["gate_proj"].tasks + groups["up_proj"].tasks + groups["silu"].tasks +
                groups["down_proj"].tasks,
            224u);
  EXPECT_EQ(groups["out_proj"].tasks, 40u);
  EXPECT_EQ(groups["q_proj"].tasks + groups["k_proj"].tasks + groups["v_proj"].tasks, 28u);
  EXPECT_EQ(record_count(layer_graph({.tiling = LayerTiling::kA8W8First, .layers = 40})), 38'680u);
}

TEST(Qwen3Layer, GivesEachTileAClusterBeforeTheMerge) {
  const SimGraph graph = layer_graph({.tiling = LayerTiling::kA8W8First});
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const SimTask& facts = graph.task(task);
    if (!graph.kernel_name(task).ends_with("_proj")) continue;
    EXPECT_EQ(facts.shape, SimShape::kMix);
    EXPECT_EQ(facts.block_count, 1u);
  }
  // What vector cores exchange with cube cores comes on top of the weights of #642.
  const SimGraph merged = layer_graph({.tiling = LayerTiling::kA8W8});
  const int64_t weights = weight_bytes(graph, "_proj");
  EXPECT_GT(weights, weight_bytes(merged, "_proj"));
  EXPECT_LT(weights, weight_bytes(merged, "_proj") / 100 * 108);
}

TEST(Qwen3Layer, HasSilusInARowBeforeTheMerge) {
  const SimGraph graph = layer_graph({.tiling = LayerTiling::kA8W8First});
  uint32_t last = 0;
  uint32_t chained = 0;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const std::span<const uint32_t> producers = graph.producers(task);
    if (graph.kernel_name(task) == "down_proj") {
      ASSERT_EQ(producers.size(), 1u);
      EXPECT_EQ(producers[0], last);
    }
    if (graph.kernel_name(task) != "silu") continue;
    if (producers.size() == 1 && producers[0] == last) ++chained;
    last = task;
  }
  EXPECT_EQ(chained, 67u);
}

TEST(Qwen3Layer, ChainsGateAndUpWhenTilesAreSerial) {
  const auto longest_chain = [](bool is_serial) {
    const SimGraph graph =
        layer_graph({.tiling = LayerTiling::kA8W8First, .has_serial_tiles = is_serial});
    std::vector<uint32_t> depth(graph.task_count(), 1);
    for (uint32_t task = 0; task < graph.task_count(); ++task) {
      for (const uint32_t producer : graph.producers(task)) {
        depth[task] = std::max(depth[task], depth[producer] + 1);
      }
    }
    return *std::max_element(depth.begin(), depth.end());
  };
  EXPECT_EQ(longest_chain(true) - longest_chain(false), 67u);
}

TEST(Qwen3Layer, HasAttentionAlone) {
  const SimGraph alone = layer_graph({.layers = 2, .attention_only = true});
  EXPECT_EQ(alone.task_count(), 6u);
  EXPECT_EQ(record_count(alone), 2u * (1u + 72u + 48u));
  EXPECT_EQ(weight_bytes(alone, "fa_fused"), 2 * weight_bytes(layer_graph({}), "fa_fused"));
}

TEST(Qwen3Layer, RepeatsForEachLayer) {
  const SimGraph one = layer_graph({});
  const SimGraph forty = layer_graph({.layers = 40});
  EXPECT_EQ(forty.task_count(), 40 * one.task_count());
  EXPECT_EQ(record_count(forty), 22'880u);
}

TEST(Qwen3Layer, TakesOtherSizes) {
  const SimGraph graph = layer_graph({.hidden = 4096,
                                      .q_heads = 32,
                                      .kv_heads = 8,
                                      .intermediate = 12288,
                                      .lengths = {1, 500, 129}});
  EXPECT_EQ(count_groups(graph).at("gate_proj").tasks, 12u * 4u);
  const Result<SimResult> result = simulate(changed_profile("ascend-910b", {}), graph);
  EXPECT_TRUE(result.has_value());
}

TEST(Qwen3Layer, RefusesSizesThatCannotBe) {
  const auto error_of = [](const LayerGraphArgs& args) {
    const Result<SimGraph> graph = make_layer_graph(args);
    return graph ? std::string() : graph.error().message;
  };
  EXPECT_EQ(error_of({.layers = 0}), "the number of layers is 0; it must be 1 to 128");
  EXPECT_EQ(error_of({.q_heads = 40, .kv_heads = 7}),
            "40 query heads do not divide among 7 key-value heads");
  EXPECT_EQ(error_of({.lengths = {}}), "a batch of 0 sequences; it must be 1 to 256");
  EXPECT_EQ(error_of({.lengths = {4096, 0}}),
            "the length of a sequence is 0; it must be 1 to 1048576");
}

// The published figures of one bf16 layer are 903 us at 542 tasks and 969 us at 488.
TEST(Qwen3Layer, TakesAboutAsLongAsPublished) {
  const Result<SimResult> result = simulate(changed_profile("ascend-910b", {}), layer_graph({}));
  ASSERT_TRUE(result.has_value());
  EXPECT_GT(result->makespan_ns, 903'000 * 85 / 100);
  EXPECT_LT(result->makespan_ns, 969'000 * 115 / 100);
}

// pypto-lib #665 reports 356 ms, 4.9 busy cores and 45 us a record over 40 layers. Only the time of
// the two quantisations, which go over their rows by scalars, is fitted, and to the 356 ms alone.
TEST(Qwen3Layer, IsAsWideAsReportedWhenQuantisationIsSlow) {
  const DeviceProfile device = changed_profile(
      "ascend-910b", {"kernel.act_quant.mean_ns=3860000", "kernel.out_act_quant.mean_ns=3860000"});
  const SimGraph graph =
      layer_graph({.tiling = LayerTiling::kA8W8First, .lengths = std::vector<int64_t>(16, 64)});
  const Result<SimResult> result = simulate(device, graph);
  ASSERT_TRUE(result.has_value());
  int64_t busy_ns = 0;
  for (const SimRecord& record : result->records) busy_ns += record.end_ns - record.start_ns;
  EXPECT_NEAR(static_cast<double>(result->makespan_ns), 356e6 / 40, 0.01 * 356e6 / 40);
  EXPECT_NEAR(static_cast<double>(busy_ns) / static_cast<double>(result->makespan_ns), 4.9, 0.25);
  EXPECT_NEAR(static_cast<double>(busy_ns) / 967, 45e3, 2.5e3);
}

}  // namespace
}  // namespace gapless
