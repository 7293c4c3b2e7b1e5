// SPDX-License-Identifier: Apache-2.0

#include "model/simulated_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "graph/random_graph.h"
#include "graph/task_context.h"
#include "kernels/packed_rows.h"
#include "model/checkpoint.h"
#include "model/decoder_test_support.h"
#include "sim/machine.h"
#include "tests/golden_test_support.h"

namespace gapless {
namespace {

using ShapeOf = std::map<std::string, SimShape>;

DeviceProfile profile_of(const std::string& name) { return must(find_profile(name)); }

// Kernels of a graph that need all kinds of cores.
std::vector<SimulatedKernel> mixed_kernels(const Graph& graph) {
  constexpr SimShape kShapes[] = {SimShape::kMix, SimShape::kCube, SimShape::kVector};
  std::vector<SimulatedKernel> kernels(graph.kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i)
    kernels[i] = {.shape = kShapes[i % 3], .dtype = DType::kBf16, .cube_share = 0.5};
  return kernels;
}

Graph random_program(uint64_t seed) {
  Graph graph = make_random_graph(seed, {.task_count = 60, .predicate_share = 0.0});
  // Costs of all sizes, so that starts and numbers are in different orders.
  for (uint32_t task = 0; task < graph.task_count(); ++task)
    graph.tasks[task].cost.bytes = static_cast<int64_t>(mix_bits(seed + task) % 4'000'000);
  return graph;
}

std::vector<TaskBlock> simulated_order(const Graph& graph, const DeviceProfile& device,
                                       uint64_t seed) {
  const SimGraph made = must(simulated_graph(graph, mixed_kernels(graph), device.vector_cores));
  return start_order(made, must(simulate(device, made, {.seed = seed})));
}

std::string error_of(const Result<void>& result) { return result ? "" : result.error().message; }

// ---- From a graph to the chip.

TEST(SimulatedGraph, HasEveryTaskOnceWithItsEdges) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Graph graph = random_program(seed);
    const std::vector<SimulatedKernel> kernels = mixed_kernels(graph);
    const SimGraph made = must(simulated_graph(graph, kernels, 2));
    ASSERT_EQ(made.task_count(), graph.task_count());
    EXPECT_EQ(made.edge_count(), graph.producers.size());
    for (uint32_t task = 0; task < graph.task_count(); ++task) {
      const GraphTask& facts = graph.tasks[task];
      EXPECT_EQ(made.kernel_name(task), graph.kernel_name(task));
      EXPECT_EQ(made.task(task).block_count, static_cast<uint32_t>(facts.block_count));
      EXPECT_EQ(made.task(task).shape, kernels[facts.kernel.id].shape);
      ASSERT_EQ(made.producers(task).size(), graph.producers_of(task).size());
      for (size_t i = 0; i < made.producers(task).size(); ++i)
        EXPECT_EQ(made.producers(task)[i], graph.producers_of(task)[i].task);
    }
  }
}

TEST(SimulatedGraph, TakesTheCoreThatATaskAsksFor) {
  Graph graph = make_graph_of_edges(4, {});
  const CoreKind kinds[] = {CoreKind::kAny, CoreKind::kCube, CoreKind::kMixed, CoreKind::kVector};
  for (size_t i = 0; i < 4; ++i) graph.tasks[i].core = kinds[i];
  graph.tasks[3].gang = true;
  const SimGraph made =
      must(simulated_graph(graph, std::vector<SimulatedKernel>{{.shape = SimShape::kCube}}, 2));
  EXPECT_EQ(made.task(0).shape, SimShape::kCube);
  EXPECT_EQ(made.task(1).shape, SimShape::kCube);
  EXPECT_EQ(made.task(2).shape, SimShape::kMix);
  EXPECT_EQ(made.task(3).shape, SimShape::kVector);
  EXPECT_FALSE(made.task(2).sync_start);
  EXPECT_TRUE(made.task(3).sync_start);
}

TEST(SimulatedGraph, SharesAHintAmongCoresAndBlocks) {
  const std::vector<CostHint> blocks = {{100, 0}, {300, 0}, {0, 0}, {400, 0}};
  Graph graph = make_graph_of_edges(2, {});
  for (GraphTask& task : graph.tasks) {
    task.block_count = 4;
    task.cost = {.bytes = 8000, .flops = 40};
  }
  graph.tasks[1].block_costs = &blocks;
  const std::vector<SimulatedKernel> kernels = {
      {.shape = SimShape::kMix, .dtype = DType::kS8, .cube_share = 0.75}};
  const SimGraph made = must(simulated_graph(graph, kernels, 2));
  EXPECT_EQ(made.task(0).cube.bytes, 1500);
  EXPECT_EQ(made.task(0).vector.bytes, 250) << "of each of two";
  EXPECT_EQ(made.task(0).cube.flops, 10);
  EXPECT_EQ(made.task(0).cube.dtype, DType::kS8);
  EXPECT_EQ(made.block_scale(0, 3), kWholeBlock);
  EXPECT_EQ(made.block_scale(1, 0), kWholeBlock / 2);
  EXPECT_EQ(made.block_scale(1, 1), kWholeBlock * 3 / 2);
  EXPECT_EQ(made.block_scale(1, 2), 0u);
  EXPECT_EQ(made.block_scale(1, 3), kWholeBlock * 2);

  const SimGraph alone = must(simulated_graph(graph, kernels, 0));
  EXPECT_EQ(alone.task(0).vector.bytes, 500) << "one core does all of it";
  graph.tasks[1].cost = {};
  const SimGraph summed = must(simulated_graph(graph, kernels, 2));
  EXPECT_EQ(summed.task(1).cube.bytes, 150) << "three quarters of 800 bytes in 4 blocks";
}

TEST(SimulatedGraph, RefusesATaskThatMayBeSkipped) {
  const int64_t value = 1;
  Graph graph = make_graph_of_edges(2, {});
  graph.tasks[1].predicate.value = &value;
  const Result<SimGraph> made = simulated_graph(graph, std::vector<SimulatedKernel>(1), 2);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message,
            "task 1 (task): runs only when a value says so; a simulated device runs every task");
}

// ---- A step.

TEST(SimulatedCoreCount, GivesEachClusterAsManyTiles) {
  DeviceProfile device = profile_of("ascend-910b");
  EXPECT_EQ(simulated_core_count(device), 2) << "24 tiles for 24 clusters";
  for (const int64_t clusters : {1, 7, 12, 16, 20, 25, 48}) {
    device.cluster_count = clusters;
    EXPECT_EQ(simulated_core_count(device) * kTilesPerCore % clusters, 0) << clusters;
  }
}

LayerProblem problem_of(DType weights, const Fusions& fusions, const DeviceProfile& device) {
  ModelConfig config = must(find_model_config("qwen3-14b"));
  config.layers = 2;
  return simulated_problem({.config = config,
                            .weights = weights,
                            .kv_dtype = DType::kBf16,
                            .fusions = fusions,
                            .lengths = {4096, 1, 700, 513}},
                           device);
}

struct Sum {
  int64_t bytes = 0;
  int64_t flops = 0;
  int64_t task_count = 0;
};
std::map<std::string, Sum> sums_of(const SimGraph& graph, int64_t vector_cores) {
  std::map<std::string, Sum> sums;
  for (uint32_t i = 0; i < graph.task_count(); ++i) {
    const SimTask& task = graph.task(i);
    Sum& sum = sums[graph.kernel_name(i)];
    sum.bytes +=
        task.block_count *
        (task.cube.bytes + task.vector.bytes * (task.shape == SimShape::kMix ? vector_cores : 1));
    sum.flops += task.block_count * (task.cube.flops + task.vector.flops);
    ++sum.task_count;
  }
  return sums;
}

// Goal: the chip is charged what the plan says, and every tile of a matmul for all of its rows.
TEST(SimulatedStepPlan, MovesAndComputesWhatThePlanSays) {
  const DeviceProfile device = profile_of("ascend-910b");
  const Fusions apart = {false, false, false, false};
  for (const DType weights : {DType::kBf16, DType::kS8})
    for (const Fusions& fusions : {Fusions{}, apart}) {
      const LayerProblem problem = problem_of(weights, fusions, device);
      const LayerPlan plan = must(plan_layer(problem));
      const SimGraph graph = must(plan_simulated_step(problem, device));
      std::map<std::string, Sum> sums = sums_of(graph, device.vector_cores);
      EXPECT_EQ(sums.size(), plan.kernels.size());
      for (const KernelPlan& kernel : plan.kernels) {
        SCOPED_TRACE(kernel.name);
        const Sum& sum = sums[kernel.name];
        const int64_t tiles = kernel.is_matmul ? std::ssize(kernel.tiles) : 1;
        EXPECT_EQ(sum.task_count, 2 * tiles);
        int64_t again = 0;
        if (kernel.is_matmul)
          again =
              (tiles - 1) * packed_rows_block_bytes(weights, problem.level, problem.rows,
                                                    matrix_shape(problem.config, kernel.kernel).k);
        // Shares are rounded down, by task and by block.
        const double slack = static_cast<double>(4 * (sum.task_count + kernel.task_count));
        EXPECT_NEAR(static_cast<double>(sum.bytes), 2.0 * static_cast<double>(kernel.bytes + again),
                    slack);
        EXPECT_NEAR(static_cast<double>(sum.flops), 2.0 * static_cast<double>(kernel.flops), slack);
        EXPECT_GT(sum.bytes, 0);
      }
    }
}

ShapeOf shapes_of(const SimGraph& graph) {
  ShapeOf shapes;
  for (uint32_t i = 0; i < graph.task_count(); ++i)
    shapes[graph.kernel_name(i)] = graph.task(i).shape;
  return shapes;
}

TEST(SimulatedStepPlan, PutsKernelsOnTheCoresThatTheyNeed) {
  constexpr SimShape kMix = SimShape::kMix;
  constexpr SimShape kCube = SimShape::kCube;
  constexpr SimShape kVector = SimShape::kVector;
  const DeviceProfile device = profile_of("ascend-910b");
  const SimGraph fused = must(plan_simulated_step(problem_of(DType::kBf16, {}, device), device));
  const ShapeOf fused_shapes = {
      {"rms_norm", kVector},    {"q_proj", kMix},      {"k_proj", kMix},
      {"v_proj", kMix},         {"attention", kMix},   {"attention_combine", kVector},
      {"out_cast", kVector},    {"out_proj", kMix},    {"post_norm", kVector},
      {"gate_up", kMix},        {"mlp_cast", kVector}, {"down_proj", kMix},
      {"qk_norm_rope", kVector}};
  EXPECT_EQ(shapes_of(fused), fused_shapes);

  // Without fusions a bf16 matmul only stores its sums; an s8 one scales them.
  const Fusions apart = {false, false, false, false};
  for (const DType weights : {DType::kBf16, DType::kS8}) {
    const SimGraph graph = must(plan_simulated_step(problem_of(weights, apart, device), device));
    const ShapeOf shapes = shapes_of(graph);
    const SimShape matmul = weights == DType::kBf16 ? kCube : kMix;
    for (const char* name : {"q_proj", "k_proj", "out_proj", "gate_proj", "up_proj", "down_proj"})
      EXPECT_EQ(shapes.at(name), matmul) << name;
    for (const char* name : {"silu", "out_residual", "down_residual", "qk_norm", "rope"})
      EXPECT_EQ(shapes.at(name), kVector) << name;
  }
}

// ---- The order of starts.

TEST(StartOrder, HasBlocksByTheirStartAndTheSmallerNumberFirst) {
  const SimGraph graph =
      must(simulated_graph(make_graph_of_edges(2, {}), std::vector<SimulatedKernel>(1), 2));
  SimResult result;
  result.records = {{.start_ns = 50, .task = 0}, {.start_ns = 20, .task = 1}};
  result.record_begins = {0, 1, 2};
  EXPECT_EQ(start_order(graph, result), (std::vector<TaskBlock>{{1, 0}, {0, 0}}));
  result.records[1].start_ns = 50;
  EXPECT_EQ(start_order(graph, result), (std::vector<TaskBlock>{{0, 0}, {1, 0}}));
}

// Goal: what the simulation starts is a legal order, and gives the bits of the plain one.
// Method: random programs leave a fingerprint of their order in the caller's buffers.
TEST(StartOrder, GivesTheBitsOfTheSerialRunOnRandomPrograms) {
  int other_order_count = 0;
  for (const char* name : {"ascend-910b", "ideal-910b", "cpu-like"}) {
    const DeviceProfile device = profile_of(name);
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const Graph graph = random_program(seed);
      GraphMemory expected(graph, 5);
      ASSERT_TRUE(run_serially(graph, expected));
      GraphMemory memory(graph, 5);
      const std::vector<TaskBlock> order = simulated_order(graph, device, seed);
      ASSERT_EQ(error_of(run_in_order(graph, memory.addresses(), order)), "");
      EXPECT_EQ(GraphMemory::first_difference(graph, expected, memory), "");
      other_order_count +=
          std::is_sorted(order.begin(), order.end(),
                         [](const TaskBlock& a, const TaskBlock& b) {
                           return std::pair(a.task, a.block) < std::pair(b.task, b.block);
                         })
              ? 0
              : 1;
    }
  }
  EXPECT_GT(other_order_count, 12) << "else the numbers alone would have done";
}

// Goal: an edge that is missing shows. Where only the simulation lacks it, the order is refused;
// where the graph lacks it as well, other bits come out.
TEST(StartOrder, ShowsAnEdgeThatIsMissing) {
  const DeviceProfile device = profile_of("ascend-910b");
  int refused_count = 0;
  int different_count = 0;
  const Graph graph = random_program(3);
  GraphMemory expected(graph, 5);
  ASSERT_TRUE(run_serially(graph, expected));
  const std::vector<GraphEdge> edges = edges_of(graph);
  for (size_t removed = 0; removed < edges.size(); ++removed) {
    std::vector<GraphEdge> fewer = edges;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(removed));
    Graph wrong = graph;
    ASSERT_TRUE(set_edges(wrong, fewer));
    const std::vector<TaskBlock> order = simulated_order(wrong, device, 1);
    GraphMemory memory(graph, 5);
    if (run_in_order(graph, memory.addresses(), order)) continue;  // it started late enough
    ++refused_count;
    GraphMemory other(graph, 5);
    ASSERT_EQ(error_of(run_in_order(wrong, other.addresses(), order)), "");
    different_count += GraphMemory::first_difference(graph, expected, other).empty() ? 0 : 1;
  }
  EXPECT_GT(refused_count, 5);
  EXPECT_EQ(different_count, refused_count) << "what is refused would have been wrong";
}

// ---- Running in an order.

void count_call(TaskContext& context) { ++*context.data<int64_t>(0); }
void fail_call(TaskContext& context) { context.fail("no luck in block {}", context.block_index()); }

// Two tasks of two blocks, one after the other.
Graph two_tasks(KernelFunction second) {
  GraphBuilder builder;
  const BufferId buffer =
      must(builder.add_buffer({.name = "x", .kind = BufferKind::kExternal, .bytes = 8}));
  const Argument arguments[] = {inout(dense_view(buffer, DType::kS64, {1}))};
  const KernelId kernels[] = {must(builder.add_kernel("first", count_call)),
                              must(builder.add_kernel("second", second))};
  for (const KernelId kernel : kernels)
    must(builder.add_task({.kernel = kernel, .arguments = arguments, .block_count = 2}));
  return must(builder.finish());
}

TEST(RunInOrder, CallsEachBlockOnce) {
  const Graph graph = two_tasks(count_call);
  int64_t count = 0;
  std::byte* const buffers[] = {reinterpret_cast<std::byte*>(&count)};
  const TaskBlock order[] = {{0, 1}, {0, 0}, {1, 0}, {1, 1}};
  EXPECT_EQ(error_of(run_in_order(graph, buffers, order)), "");
  EXPECT_EQ(count, 4);
}

TEST(RunInOrder, RefusesAnOrderThatIsNone) {
  const Graph graph = two_tasks(count_call);
  int64_t count = 0;
  std::byte* const buffers[] = {reinterpret_cast<std::byte*>(&count)};
  const auto run = [&](std::vector<TaskBlock> order) {
    return error_of(run_in_order(graph, buffers, order));
  };
  EXPECT_EQ(run({{0, 0}, {1, 0}, {0, 1}, {1, 1}}),
            "task 1 (second): was started before task 0 (first), of which 1 of 2 blocks had not: "
            "not a legal order");
  EXPECT_EQ(count, 1) << "and nothing runs behind it";
  EXPECT_EQ(run({{0, 0}, {0, 0}}), "task 0 (first): block 0 of 2 is in the order twice");
  EXPECT_EQ(run({{0, 0}, {0, 1}, {1, 1}}), "task 1 (second): 1 of 2 blocks are not in the order");
  EXPECT_EQ(run({{2, 0}}), "the order has task 2; the graph has 2");
  EXPECT_EQ(run({{0, 2}}), "task 0 (first): the order has block 2 of 2");
  EXPECT_EQ(run({{0, -1}}), "task 0 (first): the order has block -1 of 2");
}

TEST(RunInOrder, StopsAtATaskThatFailsOrCannotRunAlone) {
  int64_t count = 0;
  std::byte* const buffers[] = {reinterpret_cast<std::byte*>(&count)};
  const TaskBlock order[] = {{0, 0}, {0, 1}, {1, 1}, {1, 0}};
  EXPECT_EQ(error_of(run_in_order(two_tasks(fail_call), buffers, order)),
            "task 1 (second), block 1 of 2: no luck in block 1");
  Graph gang = two_tasks(count_call);
  gang.tasks[1].gang = true;
  EXPECT_EQ(error_of(run_in_order(gang, buffers, order)),
            "task 1 (second): a gang of 2 blocks cannot run one after another: they may wait for "
            "each other");
}

// ---- A decoder's step.

// A decoder with sequences that have a past, and rows for their next tokens.
struct DecoderStep {
  DecoderStep(const ModelWeights& weights, DType kv_dtype, int worker_count = 1)
      : device(make_device(worker_count)) {
    CpuDecoderOptions options = tiny_options(weights);
    options.kv_dtype = kv_dtype;
    decoder = must(CpuDecoder::create(*device, weights, options));
    for (const int length : lengths) {
      sequences.push_back(must(decoder->add_sequence()));
      EXPECT_TRUE(decoder->fill_sequence(sequences.back(), length - 1, 11));
    }
    x.resize(sequences.size() * static_cast<size_t>(weights.config.hidden));
    fill_normal(3, 5, x);
  }

  std::vector<float> on_cores(int layers) {
    for (size_t i = 0; i < sequences.size(); ++i) decoder->truncate(sequences[i], lengths[i] - 1);
    const std::span<const float> y = must(decoder->step_hidden(sequences, x, layers));
    return {y.begin(), y.end()};
  }

  const std::vector<int32_t> lengths = {1, 33, 160, 16, 97};
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<CpuDecoder> decoder;
  std::vector<int> sequences;
  std::vector<float> x;
};

LayerProblem problem_of(const DecoderStep& step, const DeviceProfile& device) {
  const StepModel& model = step.decoder->model();
  return simulated_problem({.config = model.weights->config,
                            .weights = model.weights->dtype,
                            .kv_dtype = model.kv.dtype,
                            .fusions = model.fusions,
                            .page_tokens = model.kv.page_tokens,
                            .chunk_tokens = model.chunk_tokens,
                            .lengths = step.lengths},
                           device);
}

bool has_equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_equal_bits(DecoderStep& step, const DeviceProfile& device, uint64_t seed) {
  for (int layers = 1; layers <= step.decoder->config().layers; ++layers) {
    const std::vector<float> expected = step.on_cores(layers);
    const LayerProblem problem = problem_of(step, device);
    const std::unique_ptr<ReplannedStep> replanned =
        must(ReplannedStep::create(*step.decoder, problem.core_count, layers));
    const SimGraph graph = must(simulate_step_graph(replanned->graph(), problem, device));
    const SimResult result = must(simulate(device, graph, {.seed = seed}));
    const std::vector<float> values = must(replanned->run(step.x, start_order(graph, result)));
    EXPECT_TRUE(has_equal_bits(values, expected)) << device.name << ", " << layers << " layers";
  }
}

TEST(ReplannedStep, GivesTheBitsOfTheDecoder) {
  for (const DType dtype : {DType::kBf16, DType::kS8}) {
    const ModelWeights weights = tiny_weights(dtype);
    DecoderStep step(weights, dtype == DType::kS8 ? DType::kS8 : DType::kBf16, 2);
    uint64_t seed = 1;
    for (const char* name : {"ascend-910b", "ideal-910b", "cpu-like"})
      expect_equal_bits(step, profile_of(name), seed++);
  }
}

TEST(ReplannedStep, GivesTheBitsOfTheDecoderOnACheckpoint) {
  const std::string folder = golden_folder("bf16-gqa4");
  const std::shared_ptr<const Checkpoint> checkpoint =
      std::make_shared<const Checkpoint>(must(Checkpoint::open(folder)));
  for (const DType dtype : {DType::kBf16, DType::kS8}) {
    const ModelWeights weights =
        must(load_weights(checkpoint, {.dtype = dtype, .with_head = false, .thread_count = 1}));
    DecoderStep step(weights, DType::kBf16);
    expect_equal_bits(step, profile_of("ascend-910b"), 1234);
  }
}

// Goal: the simulation of a graph with weights is the one that was planned without.
TEST(ReplannedStep, IsWhatWasPlannedWithoutWeights) {
  const DeviceProfile device = profile_of("ascend-910b");
  const ModelWeights weights = tiny_weights(DType::kS8);
  DecoderStep step(weights, DType::kS8);
  step.on_cores(0);
  const LayerProblem problem = problem_of(step, device);
  const std::unique_ptr<ReplannedStep> replanned =
      must(ReplannedStep::create(*step.decoder, problem.core_count, 0));
  const SimGraph made = must(simulate_step_graph(replanned->graph(), problem, device));
  const SimGraph planned = must(plan_simulated_step(problem, device));
  ASSERT_EQ(made.task_count(), planned.task_count());
  EXPECT_EQ(made.edge_count(), planned.edge_count());
  const SimResult a = must(simulate(device, made, {.seed = 9}));
  const SimResult b = must(simulate(device, planned, {.seed = 9}));
  EXPECT_EQ(a.makespan_ns, b.makespan_ns);
  EXPECT_EQ(start_order(made, a), start_order(planned, b));
}

TEST(ReplannedStep, RefusesAnAttentionThatComesTooEarly) {
  const DeviceProfile device = profile_of("ascend-910b");
  const ModelWeights weights = tiny_weights(DType::kBf16);
  DecoderStep step(weights, DType::kBf16);
  step.on_cores(1);
  const LayerProblem problem = problem_of(step, device);
  const std::unique_ptr<ReplannedStep> replanned =
      must(ReplannedStep::create(*step.decoder, problem.core_count, 1));
  Graph wrong = replanned->graph();
  std::vector<GraphEdge> edges = edges_of(wrong);
  std::erase_if(edges, [&](const GraphEdge& edge) {
    return wrong.kernel_name(edge.producer) == "qk_norm_rope" &&
           wrong.kernel_name(edge.consumer) == "attention";
  });
  ASSERT_EQ(edges.size() + 1, edges_of(wrong).size());
  ASSERT_TRUE(set_edges(wrong, edges));
  const SimGraph made = must(simulate_step_graph(wrong, problem, device));
  const Result<std::vector<float>> values =
      replanned->run(step.x, start_order(made, must(simulate(device, made))));
  ASSERT_FALSE(values);
  EXPECT_NE(values.error().message.find("(attention): was started before"), std::string::npos)
      << values.error().message;
}

// The decoder's keys and values would hide an attention that reads them before they are written.
TEST(ReplannedStep, SpoilsWhatTheDecoderLeft) {
  const ModelWeights weights = tiny_weights(DType::kS8);
  DecoderStep step(weights, DType::kS8);
  step.on_cores(0);
  const std::unique_ptr<ReplannedStep> replanned = must(ReplannedStep::create(*step.decoder, 2, 0));
  ASSERT_FALSE(replanned->run(step.x, {})) << "no task is in the order";
  std::vector<float> key(static_cast<size_t>(weights.config.head_dim));
  std::vector<float> value(key.size());
  for (int layer = 0; layer < weights.config.layers; ++layer)
    for (size_t i = 0; i < step.sequences.size(); ++i) {
      const int32_t last = step.lengths[i] - 1;
      step.decoder->read_token(layer, step.sequences[i], last, 1, key.data(), value.data());
      EXPECT_TRUE(std::isnan(key[7]) && std::isnan(value[9]));
      if (last == 0) continue;
      step.decoder->read_token(layer, step.sequences[i], last - 1, 1, key.data(), value.data());
      EXPECT_TRUE(std::isfinite(key[7]) && std::isfinite(value[9])) << "its past stays";
    }
}

TEST(ReplannedStep, SaysHowManyValuesItNeeds) {
  const ModelWeights weights = tiny_weights(DType::kBf16);
  DecoderStep step(weights, DType::kBf16);
  step.on_cores(1);
  const std::unique_ptr<ReplannedStep> replanned = must(ReplannedStep::create(*step.decoder, 2, 1));
  const Result<std::vector<float>> values = replanned->run(std::vector<float>(3), {});
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().message, "5 rows of 72 values need 360 values, found 3");
}

}  // namespace
}  // namespace gapless
