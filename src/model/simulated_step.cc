// SPDX-License-Identifier: Apache-2.0

#include "model/simulated_step.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "graph/task_context.h"
#include "kernels/attention_plan.h"
#include "kernels/packed_rows.h"

namespace gapless {
namespace {

// ---- Shapes and costs.

SimShape shape_of(CoreKind core, SimShape otherwise) {
  switch (core) {
    case CoreKind::kCube:
      return SimShape::kCube;
    case CoreKind::kVector:
      return SimShape::kVector;
    case CoreKind::kMixed:
      return SimShape::kMix;
    default:
      return otherwise;
  }
}

// All blocks together: the hint, or the sum of the blocks' where there is none.
CostHint total_cost(const GraphTask& task) {
  CostHint total = task.cost;
  if (task.block_costs == nullptr || total.bytes > 0) return total;
  for (const CostHint& block : *task.block_costs) {
    total.bytes += block.bytes;
    total.flops += block.flops;
  }
  return total;
}

// The part of each block in millionths of the mean; empty: all are equal.
std::vector<uint32_t> block_scales(const GraphTask& task) {
  if (task.block_costs == nullptr || task.block_count == 1) return {};
  GAPLESS_CHECK(std::ssize(*task.block_costs) == task.block_count);
  int64_t sum = 0;
  for (const CostHint& block : *task.block_costs) sum += block.bytes;
  if (sum == 0) return {};
  std::vector<uint32_t> scales;
  for (const CostHint& block : *task.block_costs) {
    const double part = static_cast<double>(block.bytes) / static_cast<double>(sum);
    const double scale = part * static_cast<double>(task.block_count) * double{kWholeBlock} + 0.5;
    scales.push_back(static_cast<uint32_t>(
        std::min(scale, static_cast<double>(std::numeric_limits<uint32_t>::max()))));
  }
  return scales;
}

// `vector_cores` of a cluster; one core does both parts where there are none.
SimTask simulated_task(const GraphTask& task, const SimulatedKernel& kernel, int64_t vector_cores) {
  SimTask made{.shape = shape_of(task.core, kernel.shape),
               .block_count = static_cast<uint32_t>(task.block_count),
               .sync_start = task.gang};
  const CostHint total = total_cost(task);
  const int64_t bytes = total.bytes / task.block_count;
  const int64_t flops = total.flops / task.block_count;
  made.cube.dtype = kernel.dtype;
  made.vector.dtype = DType::kF32;
  if (made.shape == SimShape::kVector) {
    made.vector.bytes = bytes;
    made.vector.flops = flops;
    return made;
  }
  made.cube.bytes = bytes;
  made.cube.flops = flops;
  if (made.shape == SimShape::kCube) return made;
  made.cube.bytes = static_cast<int64_t>(static_cast<double>(bytes) * kernel.cube_share);
  made.vector.bytes = (bytes - made.cube.bytes) / std::max(vector_cores, int64_t{1});
  return made;
}

// ---- A step's costs on the chip.

// Whether a matmul does more with its sums than to store them, for which a cluster has vector
// cores: scales of s8, 1 / rms, a residual, SiLU(gate) x up.
bool has_epilogue(const LayerProblem& problem, LayerKernel kernel) {
  if (problem.weights == DType::kS8 || kernel == LayerKernel::kGateUp) return true;
  const bool ends_residual = kernel == LayerKernel::kOutProj || kernel == LayerKernel::kDownProj;
  return ends_residual ? problem.fusions.residual : problem.fusions.deferred_norm;
}

// What the hint of a tile is on the chip: its columns' share of all that the matmul moves, but all
// of the rows.
CostHint tile_cost(const KernelPlan& plan, int64_t rows_bytes, const MatmulTilePlan& tile,
                   int64_t panel_count) {
  const auto part = [&](int64_t amount) {
    return static_cast<int64_t>(static_cast<double>(amount) *
                                static_cast<double>(tile.panel_count) /
                                static_cast<double>(panel_count));
  };
  return {.bytes = part(plan.bytes - rows_bytes) + rows_bytes, .flops = part(plan.flops)};
}

// Writes what tasks of the layers' kernels cost into their hints: the graph was built without
// lengths, and for cores that share a cache.
class StepCosts {
 public:
  StepCosts(const LayerProblem& problem, const LayerPlan& plan) : problem_(problem) {
    for (const KernelPlan& kernel : plan.kernels) plans_.emplace(kernel.name, &kernel);
  }

  Result<Graph> apply(Graph graph) {
    std::map<std::string, size_t> counts;  // tasks of a kernel so far
    for (uint32_t task = 0; task < graph.task_count(); ++task) {
      const std::string& name = graph.kernel_name(task);
      const auto place = plans_.find(name);
      if (place == plans_.end())
        return fail(ErrorCode::kInvalidInput, "{}: is not of a layer", task_text(graph, task));
      graph.tasks[task].cost = cost_of(*place->second, counts[name]++);
    }
    return graph;
  }

  std::vector<SimulatedKernel> kernels(const Graph& graph) const {
    std::vector<SimulatedKernel> kernels;
    for (uint16_t id = 0; id < graph.kernels.size(); ++id)
      kernels.push_back(kernel_of(*plans_.at(graph.kernels[KernelId{id}].name)));
    return kernels;
  }

 private:
  // Cube cores read weights and rows, or pages; vector cores all else, and they write the results.
  SimulatedKernel kernel_of(const KernelPlan& plan) const {
    if (!plan.is_matmul && plan.kernel != LayerKernel::kAttention) return {};
    if (plan.is_matmul && !has_epilogue(problem_, plan.kernel))
      return {.shape = SimShape::kCube, .dtype = problem_.weights};
    const int64_t again = plan.is_matmul ? rows_bytes(plan) * std::ssize(plan.tiles) : 0;
    const int64_t once = plan.is_matmul ? rows_bytes(plan) : 0;
    return {.shape = SimShape::kMix,
            .dtype = plan.is_matmul ? problem_.weights : DType::kBf16,
            .cube_share = static_cast<double>(plan.weight_bytes + again) /
                          static_cast<double>(plan.bytes - once + again)};
  }

  // Of all rows that go into a matmul.
  int64_t rows_bytes(const KernelPlan& plan) const {
    const int64_t k = matrix_shape(problem_.config, plan.kernel).k;
    return packed_rows_block_bytes(problem_.weights, problem_.level, problem_.rows, k);
  }

  CostHint cost_of(const KernelPlan& plan, size_t number) const {
    if (!plan.is_matmul) return {.bytes = plan.bytes, .flops = plan.flops};
    int64_t panel_count = 0;
    for (const MatmulTilePlan& tile : plan.tiles) panel_count += tile.panel_count;
    // Layer after layer has the tiles in their order.
    return tile_cost(plan, rows_bytes(plan), plan.tiles[number % plan.tiles.size()], panel_count);
  }

  const LayerProblem& problem_;
  std::map<std::string, const KernelPlan*> plans_;
};

// ---- A graph without weights.

// Matrices with the columns of the model's and nothing in them: enough to build a graph, not to run
// it.
Result<PackedMatrix> empty_matrix(const ModelConfig& config, LayerKernel kernel) {
  const bool is_pair = kernel == LayerKernel::kGateUp;
  return PackedMatrix::create(DType::kBf16, matrix_shape(config, kernel).n, 1,
                              is_pair ? Interleave::kPairs : Interleave::kNone);
}

Result<LayerWeights> empty_layer(const LayerProblem& problem) {
  using enum LayerKernel;
  const ModelConfig& config = problem.config;
  LayerWeights layer;
  layer.input_norm = layer.q_norm = layer.k_norm = layer.post_norm = {1.0f};
  layer.q = GAPLESS_TRY(empty_matrix(config, kQProj));
  layer.k = GAPLESS_TRY(empty_matrix(config, kKProj));
  layer.v = GAPLESS_TRY(empty_matrix(config, kVProj));
  layer.out = GAPLESS_TRY(empty_matrix(config, kOutProj));
  layer.down = GAPLESS_TRY(empty_matrix(config, kDownProj));
  if (problem.fusions.dual_gate_up) {
    layer.gate_up = GAPLESS_TRY(empty_matrix(config, kGateUp));
  } else {
    layer.gate = GAPLESS_TRY(empty_matrix(config, kGateProj));
    layer.up = GAPLESS_TRY(empty_matrix(config, kUpProj));
  }
  return layer;
}

Result<ModelWeights> empty_weights(const LayerProblem& problem) {
  ModelWeights weights;
  weights.config = problem.config;
  weights.dtype = problem.weights;
  weights.dual_gate_up = problem.fusions.dual_gate_up;
  for (int layer = 0; layer < problem.config.layers; ++layer)
    weights.layers.push_back(GAPLESS_TRY(empty_layer(problem)));
  return weights;
}

AttentionProblem attention_problem(const LayerProblem& problem) {
  return {.kv = {.dtype = problem.kv_dtype,
                 .kv_heads = problem.config.kv_heads,
                 .head_dim = problem.config.head_dim,
                 .page_tokens = problem.page_tokens},
          .q_heads = problem.config.q_heads,
          .core_count = problem.core_count,
          .chunk_tokens = problem.chunk_tokens,
          .output_dtype = DType::kF32};
}

// ---- Running in an order.

class OrderedRun {
 public:
  OrderedRun(const Graph& graph, std::span<std::byte* const> buffers)
      : graph_(graph), buffers_(buffers), blocks_left_(graph.task_count()) {
    GAPLESS_CHECK(buffers.size() == graph.buffers.size());
    for (uint32_t task = 0; task < graph.task_count(); ++task) {
      blocks_left_[task] = graph.tasks[task].block_count;
      has_run_.emplace_back(static_cast<size_t>(graph.tasks[task].block_count), false);
    }
  }

  Result<void> run(std::span<const TaskBlock> order) {
    for (const TaskBlock& place : order) {
      GAPLESS_TRY(check(place));
      GAPLESS_TRY(call(place));
      has_run_[place.task][static_cast<size_t>(place.block)] = true;
      --blocks_left_[place.task];
    }
    for (uint32_t task = 0; task < graph_.task_count(); ++task) {
      if (blocks_left_[task] == 0) continue;
      return fail(ErrorCode::kInvalidInput, "{}: {} of {} blocks are not in the order",
                  task_text(graph_, task), blocks_left_[task], graph_.tasks[task].block_count);
    }
    return {};
  }

 private:
  Result<void> check(const TaskBlock& place) const {
    if (place.task >= graph_.task_count())
      return fail(ErrorCode::kInvalidInput, "the order has task {}; the graph has {}", place.task,
                  graph_.task_count());
    const GraphTask& facts = graph_.tasks[place.task];
    const std::string name = task_text(graph_, place.task);
    if (place.block < 0 || place.block >= facts.block_count)
      return fail(ErrorCode::kInvalidInput, "{}: the order has block {} of {}", name, place.block,
                  facts.block_count);
    if (has_run_[place.task][static_cast<size_t>(place.block)])
      return fail(ErrorCode::kInvalidInput, "{}: block {} of {} is in the order twice", name,
                  place.block, facts.block_count);
    if (facts.gang && facts.block_count > 1)
      return fail(ErrorCode::kInvalidInput,
                  "{}: a gang of {} blocks cannot run one after another: they may wait for each "
                  "other",
                  name, facts.block_count);
    for (const Edge& edge : graph_.producers_of(place.task)) {
      if (blocks_left_[edge.task] == 0) continue;
      return fail(ErrorCode::kInvalidInput,
                  "{}: was started before {}, of which {} of {} blocks had not: not a legal order",
                  name, task_text(graph_, edge.task), blocks_left_[edge.task],
                  graph_.tasks[edge.task].block_count);
    }
    return {};
  }

  Result<void> call(const TaskBlock& place) const {
    const GraphTask& facts = graph_.tasks[place.task];
    const std::span<const Argument> arguments = graph_.arguments_of(place.task);
    const std::span<const Scalar> scalars = graph_.scalars_of(place.task);
    TaskFailure failure;
    TaskContext context({.arguments = arguments.data(),
                         .scalars = scalars.data(),
                         .buffers = buffers_.data(),
                         .argument_count = static_cast<int>(arguments.size()),
                         .scalar_count = static_cast<int>(scalars.size()),
                         .block_index = place.block,
                         .block_count = facts.block_count,
                         .failure = &failure});
    const Kernel& kernel = graph_.kernels[facts.kernel];
    if (kernel.run != nullptr) kernel.run(context);
    if (!failure.failed) return {};
    return fail(ErrorCode::kInvalidInput, "{}, block {} of {}: {}", task_text(graph_, place.task),
                place.block, facts.block_count, failure.message);
  }

  const Graph& graph_;
  std::span<std::byte* const> buffers_;
  std::vector<int32_t> blocks_left_;        // by task
  std::vector<std::vector<bool>> has_run_;  // by task and block
};

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr std::byte kNoNumberByte{0xff};  // four of them are a NaN

}  // namespace

// ---- From graphs to the chip.

Result<SimGraph> simulated_graph(const Graph& graph, std::span<const SimulatedKernel> kernels,
                                 int64_t vector_cores) {
  GAPLESS_CHECK(kernels.size() == graph.kernels.size());
  SimGraphBuilder builder;
  std::vector<uint32_t> numbers;
  for (uint16_t id = 0; id < kernels.size(); ++id)
    numbers.push_back(builder.add_kernel(graph.kernels[KernelId{id}].name));
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const GraphTask& facts = graph.tasks[task];
    if (facts.predicate.value != nullptr)
      return fail(ErrorCode::kInvalidInput,
                  "{}: runs only when a value says so; a simulated device runs every task",
                  task_text(graph, task));
    SimTask made = simulated_task(facts, kernels[facts.kernel.id], vector_cores);
    made.kernel = numbers[facts.kernel.id];
    std::vector<uint32_t> producers;
    for (const Edge& edge : graph.producers_of(task)) producers.push_back(edge.task);
    builder.add_task(made, producers, block_scales(facts));
  }
  return builder.finish();
}

int simulated_core_count(const DeviceProfile& device) {
  static_assert(kAttentionBlocksPerCore == kTilesPerCore);
  return static_cast<int>(device.cluster_count / std::gcd(device.cluster_count, kTilesPerCore));
}

LayerProblem simulated_problem(LayerProblem problem, const DeviceProfile& device) {
  problem.rows = static_cast<int>(problem.lengths.size());
  problem.core_count = simulated_core_count(device);
  problem.pack_rows = kSimulatedPackRows;
  problem.level = CpuLevel::kAvx512Bf16;  // the one whose rows are in the weights' type
  return problem;
}

Result<SimGraph> simulate_step_graph(const Graph& step, const LayerProblem& problem,
                                     const DeviceProfile& device) {
  const LayerPlan plan = GAPLESS_TRY(plan_layer(problem));
  StepCosts costs(problem, plan);
  const Graph graph = GAPLESS_TRY(costs.apply(step));
  return simulated_graph(graph, costs.kernels(graph), device.vector_cores);
}

Result<SimGraph> plan_simulated_step(const LayerProblem& problem, const DeviceProfile& device) {
  const ModelWeights weights = GAPLESS_TRY(empty_weights(problem));
  StepModel model;
  model.weights = &weights;
  model.fusions = problem.fusions;
  model.level = problem.level;
  model.core_count = problem.core_count;
  model.pack_rows = problem.pack_rows;
  model.kv = attention_problem(problem).kv;
  model.page_count = 1;
  model.chunk_tokens = problem.chunk_tokens;
  model.partial_bytes = kLineBytes;
  model.pages.assign(static_cast<size_t>(problem.config.layers), nullptr);
  model.state.lengths = problem.lengths;
  GAPLESS_TRY(plan_step_attention(attention_problem(problem),
                                  kAttentionBlocksPerCore * problem.core_count, model.state));
  const StepGraph step =
      GAPLESS_TRY(build_step_graph(model, {.rows = problem.rows, .takes_tokens = false}));
  return simulate_step_graph(step.graph, problem, device);
}

// ---- The order of starts.

std::vector<TaskBlock> start_order(const SimGraph& graph, const SimResult& result) {
  struct Start {
    int64_t time_ns = 0;
    TaskBlock place;
  };
  std::vector<Start> starts;
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const uint64_t begin = result.record_begins[task];
    const uint64_t block_count = graph.task(task).block_count;
    const uint64_t parts = (result.record_begins[size_t{task} + 1] - begin) / block_count;
    for (uint64_t block = 0; block < block_count; ++block) {
      int64_t time_ns = std::numeric_limits<int64_t>::max();
      for (uint64_t part = 0; part < parts; ++part)
        time_ns = std::min(time_ns, result.records[begin + block * parts + part].start_ns);
      starts.push_back({time_ns, {task, static_cast<int32_t>(block)}});
    }
  }
  // They were made in the order of the numbers.
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& a, const Start& b) { return a.time_ns < b.time_ns; });
  std::vector<TaskBlock> order;
  for (const Start& start : starts) order.push_back(start.place);
  return order;
}

Result<void> run_in_order(const Graph& graph, std::span<std::byte* const> buffers,
                          std::span<const TaskBlock> order) {
  return OrderedRun(graph, buffers).run(order);
}

// ---- A decoder's step.

Result<std::unique_ptr<ReplannedStep>> ReplannedStep::create(const CpuDecoder& decoder,
                                                             int core_count, int layers) {
  std::unique_ptr<ReplannedStep> made(new ReplannedStep());
  GAPLESS_TRY(made->plan(decoder, core_count));
  const int rows = static_cast<int>(made->model_.state.lengths.size());
  made->step_ = GAPLESS_TRY(
      build_step_graph(made->model_, {.rows = rows, .layers = layers, .takes_tokens = false}));
  for (const GraphBuffer& buffer : made->step_.graph.buffers) {
    if (buffer.kind == BufferKind::kIntermediate) {
      LineBytes& memory = made->intermediates_.emplace_back(static_cast<size_t>(buffer.bytes));
      made->buffers_.push_back(memory.data());
    } else {
      made->buffers_.push_back(static_cast<std::byte*>(buffer.data));
    }
  }
  return made;
}

Result<void> ReplannedStep::plan(const CpuDecoder& decoder, int core_count) {
  model_ = decoder.model();
  model_.core_count = core_count;
  model_.pack_rows = kSimulatedPackRows;
  GAPLESS_CHECK(!model_.state.lengths.empty());
  const AttentionProblem problem = {.kv = model_.kv,
                                    .q_heads = decoder.config().q_heads,
                                    .core_count = core_count,
                                    .chunk_tokens = model_.chunk_tokens,
                                    .output_dtype = DType::kF32};
  const AttentionPlan attention =
      GAPLESS_TRY(plan_step_attention(problem, kAttentionBlocksPerCore * core_count, model_.state));
  partials_ = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(model_.partial_bytes)));
  partials_used_ = static_cast<size_t>(attention.workspace_bytes);
  GAPLESS_CHECK(partials_used_ <= partials_.size());
  hidden_in_.resize(model_.state.lengths.size() * static_cast<size_t>(decoder.config().hidden));
  hidden_out_.resize(hidden_in_.size());
  model_.partials = reinterpret_cast<float*>(partials_.data());
  model_.hidden_in = hidden_in_.data();
  model_.hidden_out = hidden_out_.data();
  return {};
}

void ReplannedStep::spoil_own_tokens() {
  const std::vector<float> nothing(static_cast<size_t>(model_.kv.head_dim), kNoNumber);
  const StepState& state = model_.state;
  const int page_tokens = model_.kv.page_tokens;
  for (std::byte* data : model_.pages) {
    const KvPages pages = {.shape = model_.kv, .data = data, .page_count = model_.page_count};
    for (int64_t row = 0; row < std::ssize(state.lengths); ++row)
      for (int head = 0; head < model_.kv.kv_heads; ++head)
        write_kv(pages, state.page_of(row, page_tokens), state.place_of(row, page_tokens), head,
                 nothing.data(), nothing.data());
  }
}

void ReplannedStep::spoil_memory() {
  std::fill_n(partials_.data(), partials_used_, kNoNumberByte);
  std::fill(hidden_out_.begin(), hidden_out_.end(), kNoNumber);
  for (LineBytes& memory : intermediates_) std::fill(memory.begin(), memory.end(), kNoNumberByte);
}

Result<std::vector<float>> ReplannedStep::run(std::span<const float> x,
                                              std::span<const TaskBlock> order) {
  if (x.size() != hidden_in_.size())
    return fail(ErrorCode::kInvalidInput, "{} rows of {} values need {} values, found {}",
                model_.state.lengths.size(), model_.weights->config.hidden, hidden_in_.size(),
                x.size());
  spoil_own_tokens();
  spoil_memory();
  std::copy(x.begin(), x.end(), hidden_in_.begin());
  GAPLESS_TRY(run_in_order(step_.graph, buffers_, order));
  return hidden_out_;
}

}  // namespace gapless
