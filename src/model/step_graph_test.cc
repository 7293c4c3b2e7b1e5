// SPDX-License-Identifier: Apache-2.0
//
// Step graphs on the serial runner: every legal order, every write watched, every fusion against
// the layer as the paper writes it.

#include "model/step_graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "kernels/kv_cache.h"
#include "model/decoder_test_support.h"
#include "runtime/serial_run.h"

namespace gapless {
namespace {

constexpr int kPageTokens = 16;
constexpr int kSequencePages = 3;
constexpr int kSequences = 4;

// A decode row, one that ends a page, one of two chunks, and two rows of one prompt.
struct RowPlace {
  int sequence = 0;
  int32_t length = 0;  // its position + 1
};
constexpr RowPlace kRows[] = {{0, 1}, {1, 32}, {2, 40}, {3, 17}, {3, 18}};
constexpr int kRowCount = 5;

ModelConfig graph_config() {
  ModelConfig config = tiny_config();
  config.q_heads = 5;
  config.kv_heads = 1;
  config.max_positions = 64;
  return config;
}

// Wide enough for several tiles of every matmul but k and v, also in s8.
ModelConfig wide_config() {
  ModelConfig config = graph_config();
  config.hidden = 264;
  config.intermediate = 520;
  config.q_heads = 10;
  return config;
}

std::vector<Fusions> all_fusions() {
  std::vector<Fusions> all;
  for (int flags = 0; flags < 16; ++flags)
    all.push_back({.dual_gate_up = (flags & 1) != 0,
                   .qk_norm_rope = (flags & 2) != 0,
                   .deferred_norm = (flags & 4) != 0,
                   .residual = (flags & 8) != 0});
  return all;
}

std::string text_of(const Fusions& fusions) {
  return fmt::format("dual_gate_up {}, qk_norm_rope {}, deferred_norm {}, residual {}",
                     fusions.dual_gate_up, fusions.qk_norm_rope, fusions.deferred_norm,
                     fusions.residual);
}

struct NamedForm {
  const char* name;
  StepForm form;
};
constexpr NamedForm kForms[] = {
    {"tokens to candidates", {.rows = kRowCount, .head_rows = 2, .top_k = 3}},
    {"tokens to logits", {.rows = kRowCount, .head_rows = kRowCount, .head = HeadOutput::kLogits}},
    {"tokens to hidden rows", {.rows = kRowCount}},
    {"hidden rows to hidden rows", {.rows = kRowCount, .takes_tokens = false}},
    {"the first layer only", {.rows = kRowCount, .layers = 1, .takes_tokens = false}},
};
constexpr StepForm kLogitsForm = kForms[1].form;
constexpr StepForm kHiddenForm = kForms[3].form;

// A StepModel in memory of its own, with a past for every row.
class TestStep {
 public:
  TestStep(const ModelWeights& weights, const Fusions& fusions,
           CpuLevel level = usable_cpu_levels().back(), DType kv_dtype = DType::kBf16)
      : config_(weights.config) {
    model_.weights = &weights;
    model_.fusions = fusions;
    model_.level = level;
    model_.core_count = 3;  // several tiles a matmul
    model_.kv = {.dtype = kv_dtype,
                 .kv_heads = config_.kv_heads,
                 .head_dim = config_.head_dim,
                 .page_tokens = kPageTokens};
    model_.page_count = kSequences * kSequencePages;
    model_.chunk_tokens = 32;
    model_.rope = RopeTable(config_.rope_theta, config_.head_dim, config_.max_positions);
    make_pages();
    make_state();
    make_outputs();
  }
  TestStep(const TestStep&) = delete;
  TestStep& operator=(const TestStep&) = delete;

  StepModel& model() { return model_; }
  StepGraph graph(const StepForm& form) {
    model_.state.head_rows.clear();
    for (int i = 0; i < form.head_rows; ++i)
      model_.state.head_rows.push_back(form.head_rows == kRowCount ? i : 3 * i + 1);
    return must(build_step_graph(model_, form));
  }

 private:
  static int32_t page_of(int sequence, int index) {
    return static_cast<int32_t>((sequence * kSequencePages + index) * 5 %
                                (kSequences * kSequencePages));
  }
  void make_pages() {
    for (int layer = 0; layer < config_.layers; ++layer) {
      pages_.push_back(must(
          HugeBuffer::allocate(static_cast<size_t>(model_.page_count * kv_page_bytes(model_.kv)))));
      model_.pages.push_back(pages_.back().data());
      const KvPages pages = {
          .shape = model_.kv, .data = pages_.back().data(), .page_count = model_.page_count};
      std::vector<float> values(2 * static_cast<size_t>(config_.head_dim));
      for (int token = 0; token < kSequences * kSequencePages * kPageTokens; ++token) {
        fill_normal(static_cast<uint64_t>(layer), static_cast<uint64_t>(token), values);
        for (int head = 0; head < config_.kv_heads; ++head)
          write_kv(pages, token / kPageTokens, token % kPageTokens, head, values.data(),
                   values.data() + config_.head_dim);
      }
    }
  }
  void make_state() {
    StepState& state = model_.state;
    state.page_table_stride = kSequencePages;
    for (const RowPlace& row : kRows) {
      state.lengths.push_back(row.length);
      for (int i = 0; i < kSequencePages; ++i) state.page_table.push_back(page_of(row.sequence, i));
    }
    state.tokens = random_tokens(5, kRowCount, config_.vocabulary);
    const AttentionPlan plan =
        must(plan_step_attention({.kv = model_.kv,
                                  .q_heads = config_.q_heads,
                                  .core_count = model_.core_count,
                                  .chunk_tokens = model_.chunk_tokens,
                                  .output_dtype = DType::kF32},
                                 kAttentionBlocksPerCore * model_.core_count, state));
    partials_ = must(HugeBuffer::allocate(static_cast<size_t>(plan.workspace_bytes)));
    model_.partials = reinterpret_cast<float*>(partials_.data());
    model_.partial_bytes = plan.workspace_bytes;
  }
  void make_outputs() {
    const size_t rows = kRowCount;
    hidden_in_.resize(rows * static_cast<size_t>(config_.hidden));
    fill_normal(17, 0, hidden_in_);
    hidden_out_.resize(hidden_in_.size());
    top_.resize(rows * 8);
    logits_.resize(rows * static_cast<size_t>(config_.vocabulary));
    model_.hidden_in = hidden_in_.data();
    model_.hidden_out = hidden_out_.data();
    model_.top = top_.data();
    model_.logits = logits_.data();
  }

  const ModelConfig& config_;
  StepModel model_;
  std::vector<HugeBuffer> pages_;
  HugeBuffer partials_;
  std::vector<float> hidden_in_;
  std::vector<float> hidden_out_;
  std::vector<Candidate> top_;
  std::vector<float> logits_;
};

// The weights of both packings, made once.
enum class Width { kTiny, kWide };
const ModelWeights& weights_of(DType dtype, bool dual_gate_up, Width width = Width::kTiny) {
  static std::map<std::tuple<DType, bool, Width>, ModelWeights> all;
  const std::tuple<DType, bool, Width> key(dtype, dual_gate_up, width);
  if (!all.contains(key)) {
    const ModelConfig config = width == Width::kWide ? wide_config() : graph_config();
    all.emplace(key, tiny_weights(dtype, dual_gate_up, config));
  }
  return all.at(key);
}

// Every buffer of the caller that a step leaves something in, by name.
std::map<std::string, std::vector<std::byte>> outputs_of(const Graph& graph, GraphMemory& memory) {
  std::map<std::string, std::vector<std::byte>> outputs;
  for (uint32_t i = 0; i < graph.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    if (buffer.kind != BufferKind::kExternal) continue;
    const std::byte* data = memory.addresses()[i];
    std::vector<std::byte>& bytes = outputs[buffer.name];
    bytes.insert(bytes.end(), data, data + buffer.bytes);
  }
  return outputs;
}

struct StepOutputs {
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<float> floats(const std::string& name) const {
    const std::vector<std::byte>& from = bytes.at(name);
    std::vector<float> values(from.size() / sizeof(float));
    std::memcpy(values.data(), from.data(), from.size());
    return values;
  }
};

StepOutputs run_step(TestStep& step, const StepForm& form) {
  const StepGraph graph = step.graph(form);
  GraphMemory memory(graph.graph, 1);
  must(run_serially(graph.graph, memory));
  return {.bytes = outputs_of(graph.graph, memory)};
}

StepOutputs run_step(const ModelWeights& weights, const Fusions& fusions, const StepForm& form,
                     CpuLevel level = usable_cpu_levels().back()) {
  TestStep step(weights, fusions, level);
  return run_step(step, form);
}

// ---- Orders and accesses.

TEST(StepGraph, GivesTheSameBitsInEveryLegalOrder) {
  for (const Fusions& fusions : all_fusions()) {
    TestStep step(weights_of(DType::kS8, fusions.dual_gate_up, Width::kWide), fusions);
    for (const NamedForm& form : kForms) {
      const StepGraph graph = step.graph(form.form);
      const Result<void> same =
          run_in_many_orders(graph.graph, static_cast<int>(test_effort(10)), 3);
      EXPECT_TRUE(same.has_value())
          << form.name << ", " << text_of(fusions) << ": " << same.error().message;
    }
  }
}

// Goal: no task writes outside its views, and none reads what no task has written.
// Method: all memory is compared before and after each block; intermediates begin with another
// pattern in the second run.
void expect_touches_only_what_it_declares(TestStep& step, const NamedForm& form) {
  SCOPED_TRACE(fmt::format("{}: {}", form.name, text_of(step.model().fusions)));
  const StepGraph graph = step.graph(form.form);
  GraphMemory expected(graph.graph, 1);
  must(run_serially(graph.graph, expected));
  GraphMemory watched(graph.graph, 2);
  const Result<SerialSummary> ran =
      run_serially(graph.graph, watched, {.order_seed = 9, .shadow = true});
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_EQ(outputs_of(graph.graph, watched), outputs_of(graph.graph, expected));
}

TEST(StepGraph, TouchesOnlyWhatItDeclaresWithAnyFusions) {
  for (const Fusions& fusions : all_fusions()) {
    TestStep step(weights_of(DType::kS8, fusions.dual_gate_up, Width::kWide), fusions);
    expect_touches_only_what_it_declares(step, kForms[4]);
  }
}

TEST(StepGraph, TouchesOnlyWhatItDeclaresInAnyForm) {
  for (const DType dtype : kWeightTypes) {
    TestStep step(weights_of(dtype, true), {});
    for (const NamedForm& form : kForms)
      if (dtype == DType::kS8 || form.form.head_rows > 0)
        expect_touches_only_what_it_declares(step, form);
  }
}

// The tests above can fail: without the edges into any one kernel some order gives other bits.
TEST(StepGraph, NeedsTheEdgesOfEveryKernel) {
  for (const bool fused : {false, true}) {
    const Fusions fusions = fused ? Fusions{} : all_fusions()[0];
    TestStep step(weights_of(DType::kBf16, fused), fusions);
    const StepGraph graph = step.graph(kForms[0].form);
    std::set<std::string> names;
    for (uint32_t task = 0; task < graph.graph.task_count(); ++task)
      if (!graph.graph.producers_of(task).empty()) names.insert(graph.graph.kernel_name(task));
    EXPECT_GE(names.size(), fused ? 15u : 20u);
    for (const std::string& name : names) {
      Graph broken = graph.graph;
      std::vector<GraphEdge> edges = edges_of(broken);
      std::erase_if(
          edges, [&](const GraphEdge& edge) { return broken.kernel_name(edge.consumer) == name; });
      ASSERT_TRUE(set_edges(broken, edges).has_value());
      EXPECT_FALSE(run_in_many_orders(broken, 20, 4).has_value()) << name;
    }
  }
}

TEST(StepGraph, IsCaughtWhenATileWritesTooMuch) {
  TestStep step(weights_of(DType::kBf16, true), {});
  for (const char* name : {"q_proj", "gate_up", "down_proj", "lm_head"}) {
    StepGraph graph = step.graph(kLogitsForm);
    uint32_t task = 0;
    while (graph.graph.kernel_name(task) != name) ++task;
    const GraphTask& facts = graph.graph.tasks[task];
    Argument& output = graph.graph.arguments[facts.first_argument + facts.argument_count - 1u];
    output.view.shape[1] -= 1;
    GraphMemory memory(graph.graph, 1);
    const Result<SerialSummary> ran = run_serially(graph.graph, memory, {.shadow = true});
    ASSERT_FALSE(ran.has_value()) << name;
    EXPECT_NE(ran.error().message.find("did not declare"), std::string::npos)
        << ran.error().message;
  }
}

// ---- Fusions.

// Goal: dual_gate_up, qk_norm_rope and residual change who does what, not a single bit.
// Method: logits, keys and values against the layer without them.
TEST(StepGraph, GivesTheSameBitsForFusionsThatMoveNoCast) {
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const DType dtype : kWeightTypes) {
      const bool is_best = level == usable_cpu_levels().back();
      const Width width = is_best ? Width::kWide : Width::kTiny;
      for (const bool deferred : {false, true}) {
        Fusions plain = all_fusions()[0];
        plain.deferred_norm = deferred;
        const StepOutputs expected =
            run_step(weights_of(dtype, false, width), plain, kLogitsForm, level);
        for (const Fusions& fusions : all_fusions()) {
          if (fusions.deferred_norm != deferred) continue;
          const StepOutputs outputs =
              run_step(weights_of(dtype, fusions.dual_gate_up, width), fusions, kLogitsForm, level);
          for (const char* name : {"logits", "kv"})
            EXPECT_EQ(outputs.bytes.at(name), expected.bytes.at(name))
                << name << " " << dtype_name(dtype) << " " << cpu_level_name(level) << ": "
                << text_of(fusions);
        }
      }
    }
  }
}

double root_mean_square(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return root_mean_square(difference) / root_mean_square(b);
}

struct DeferredBound {
  DType dtype;
  double low;
  double high;
};

// A deferred norm casts x * gamma where the other one casts the normed row: as far apart as two
// roundings are, and no farther. s8 rounds to the same integers but for ties, as a row's scale
// takes the factor along. Reached, in the root mean square of the rows behind two layers over that
// of the rows: f32 1.1e-7, f16 2.5e-4, bf16 1.1e-3, s8 5.6e-8.
TEST(StepGraph, GivesNearlyTheSameForADeferredNorm) {
  constexpr DeferredBound kBounds[] = {{DType::kF32, 1e-9, 1e-6},
                                       {DType::kF16, 1e-5, 5e-4},
                                       {DType::kBf16, 1e-4, 3e-3},
                                       {DType::kS8, 1e-9, 3e-3}};
  for (const DeferredBound& bound : kBounds) {
    for (const CpuLevel level : usable_cpu_levels()) {
      const ModelWeights& weights = weights_of(bound.dtype, true);
      const std::vector<float> now =
          run_step(weights, {.deferred_norm = false}, kHiddenForm, level).floats("hidden_out");
      const std::vector<float> deferred =
          run_step(weights, {}, kHiddenForm, level).floats("hidden_out");
      const double distance = relative_distance(deferred, now);
      EXPECT_LE(distance, bound.high) << dtype_name(bound.dtype) << " " << cpu_level_name(level);
      EXPECT_GE(distance, bound.low) << dtype_name(bound.dtype) << " " << cpu_level_name(level);
    }
  }
}

// Goal: a fused rope that is not the unfused one does not pass, as upstream's once did.
// Method: wrong tables and wrong kernels under the fused step. Bits differ in the cache and behind
// the layers, and the rows are farther apart (4.2e-3 and more, the root mean square over that of
// the rows) than a deferred norm makes them.
constexpr double kLeastRopeDistance = 2e-3;

void expect_other_rows(const StepOutputs& outputs, const StepOutputs& right) {
  EXPECT_NE(outputs.bytes.at("hidden_out"), right.bytes.at("hidden_out"));
  EXPECT_GE(relative_distance(outputs.floats("hidden_out"), right.floats("hidden_out")),
            kLeastRopeDistance);
}

TEST(StepGraph, NoticesAWrongTableUnderAFusedRope) {
  const ModelConfig config = graph_config();
  const RopeTable wrong_tables[] = {
      RopeTable(1e6, config.head_dim, config.max_positions),
      RopeTable(config.rope_theta * 1.1, config.head_dim, config.max_positions),
      RopeTable(1e300, config.head_dim, config.max_positions)};  // hardly turns anything
  for (const DType dtype : kWeightTypes) {
    const ModelWeights& weights = weights_of(dtype, true);
    const StepOutputs right = run_step(weights, {.qk_norm_rope = false}, kHiddenForm);
    for (size_t i = 0; i < std::size(wrong_tables); ++i) {
      SCOPED_TRACE(fmt::format("table {}, {}", i, dtype_name(dtype)));
      TestStep step(weights, {});
      step.model().rope = wrong_tables[i];
      const StepOutputs outputs = run_step(step, kHiddenForm);
      EXPECT_NE(outputs.bytes.at("kv"), right.bytes.at("kv"));
      expect_other_rows(outputs, right);
    }
  }
}

// The right kernel, and then all queries turned further by kPosition. For a task of one block.
template <int kPosition>
void turn_queries_further(TaskContext& context) {
  qk_norm_rope_task(context);
  const LayerJob& job = *std::bit_cast<const LayerJob*>(context.scalar(0));
  const int head_dim = job.config->head_dim;
  for (int64_t row = 0; row < job.rows; ++row) {
    float* q = context.data<float>(0) + row * job.config->q_heads * head_dim;
    rope(job.level, q, job.config->q_heads, head_dim, head_dim, job.rope->cos(kPosition),
         job.rope->sin(kPosition), q);
  }
}

StepOutputs run_with_kernel(const ModelWeights& weights, KernelFunction kernel) {
  TestStep step(weights, {});
  StepGraph graph = step.graph(kHiddenForm);
  const KernelId id = must(graph.graph.kernels.add("other_rope", kernel));
  for (uint32_t task = 0; task < graph.graph.task_count(); ++task) {
    if (graph.graph.kernel_name(task) != "qk_norm_rope") continue;
    graph.graph.tasks[task].kernel = id;
    graph.graph.tasks[task].block_count = 1;
  }
  GraphMemory memory(graph.graph, 1);
  must(run_serially(graph.graph, memory));
  return {.bytes = outputs_of(graph.graph, memory)};
}

TEST(StepGraph, NoticesAFusedRopeThatTurnsQueriesFurtherThanKeys) {
  for (const DType dtype : kWeightTypes) {
    const ModelWeights& weights = weights_of(dtype, true);
    const StepOutputs right = run_step(weights, {.qk_norm_rope = false}, kHiddenForm);
    expect_other_rows(run_with_kernel(weights, turn_queries_further<1>), right);
    expect_other_rows(run_with_kernel(weights, turn_queries_further<7>), right);
    // The way of exchanging kernels itself changes nothing.
    EXPECT_EQ(run_with_kernel(weights, qk_norm_rope_task).bytes, right.bytes);
  }
}

// ---- What a graph is made of.

std::map<std::string, int64_t> calls_by_kernel(const Graph& graph) {
  std::map<std::string, int64_t> calls;
  for (uint32_t task = 0; task < graph.task_count(); ++task)
    calls[graph.kernel_name(task)] += graph.tasks[task].block_count;
  return calls;
}

TEST(StepGraph, HasTheTasksOfThePlan) {
  for (const Fusions& fusions : all_fusions()) {
    const ModelWeights& weights = weights_of(DType::kS8, fusions.dual_gate_up, Width::kWide);
    TestStep step(weights, fusions);
    const LayerPlan plan = must(plan_layer({.config = weights.config,
                                            .weights = DType::kS8,
                                            .fusions = fusions,
                                            .page_tokens = kPageTokens,
                                            .chunk_tokens = 32,
                                            .rows = kRowCount,
                                            .core_count = step.model().core_count,
                                            .level = step.model().level}));
    std::map<std::string, int64_t> expected;
    for (const KernelPlan& kernel : plan.kernels) {
      EXPECT_EQ(kernel.name, layer_kernel_name(kernel.kernel, DType::kS8));
      expected[kernel.name] = 2 * kernel.task_count;
    }
    EXPECT_EQ(calls_by_kernel(step.graph(kHiddenForm).graph), expected);
    for (auto& [name, count] : expected) count /= 2;
    EXPECT_EQ(calls_by_kernel(step.graph(kForms[4].form).graph), expected) << "one layer";
  }
}

TEST(StepGraph, HasEmbeddingAndHeadWhereTheFormAsks) {
  TestStep step(weights_of(DType::kBf16, true), {});
  const std::map<std::string, int64_t> hidden = calls_by_kernel(step.graph(kHiddenForm).graph);
  std::map<std::string, int64_t> expected = hidden;
  expected["embedding"] = 1;
  EXPECT_EQ(calls_by_kernel(step.graph(kForms[2].form).graph), expected);
  expected["final_norm"] = 1;
  expected["lm_head"] = 1;
  EXPECT_EQ(calls_by_kernel(step.graph(kLogitsForm).graph), expected);
  expected["merge_top"] = 1;
  EXPECT_EQ(calls_by_kernel(step.graph(kForms[0].form).graph), expected);
}

TEST(StepGraph, NeedsFewerTasksForGateAndUpInOne) {
  TestStep one(weights_of(DType::kS8, true, Width::kWide), {});
  TestStep two(weights_of(DType::kS8, false, Width::kWide), {.dual_gate_up = false});
  EXPECT_LT(one.graph(kHiddenForm).graph.task_count(), two.graph(kHiddenForm).graph.task_count());
}

// Whether the second task waits for the first, directly or through others.
bool waits_for(const Graph& graph, uint32_t later, uint32_t earlier) {
  if (later == earlier) return true;
  for (const Edge& edge : graph.producers_of(later))
    if (edge.task >= earlier && waits_for(graph, edge.task, earlier)) return true;
  return false;
}

// What a tile declares is its own, so that all tiles of a matmul can run at once.
TEST(StepGraph, LetsTilesOfAMatmulRunSideBySide) {
  TestStep step(weights_of(DType::kS8, true, Width::kWide), {});
  const Graph graph = step.graph(kForms[4].form).graph;
  for (const char* name : {"q_proj", "out_proj", "gate_up", "down_proj"}) {
    std::vector<uint32_t> tiles;
    for (uint32_t task = 0; task < graph.task_count(); ++task)
      if (graph.kernel_name(task) == name) tiles.push_back(task);
    EXPECT_GE(tiles.size(), 2u) << name;
    for (size_t i = 1; i < tiles.size(); ++i)
      EXPECT_FALSE(waits_for(graph, tiles[i], tiles[0])) << name << " " << i;
  }
}

// The candidates are those of the stored logits, whatever the tiles.
TEST(StepGraph, FindsTheLargestLogits) {
  ModelConfig config = graph_config();
  config.vocabulary = 2500;  // several tiles of the head, the last one not full
  const ModelWeights weights = tiny_weights(DType::kBf16, true, config);
  TestStep step(weights, {});
  const StepForm top_form = {.rows = kRowCount, .head_rows = kRowCount, .top_k = 7};
  const StepOutputs logits = run_step(step, kLogitsForm);
  EXPECT_EQ(calls_by_kernel(step.graph(top_form).graph)["lm_head"], 3);
  std::vector<Candidate> top(kRowCount * 7);
  step.model().top = top.data();
  const StepOutputs outputs = run_step(step, top_form);
  const std::vector<float> all = logits.floats("logits");
  std::memcpy(top.data(), outputs.bytes.at("top").data(), outputs.bytes.at("top").size());
  for (size_t row = 0; row < kRowCount; ++row) {
    std::vector<Candidate> expected;
    for (size_t i = 0; i < 2500; ++i)
      expected.push_back({.logit = all[row * 2500 + i], .token = static_cast<int32_t>(i)});
    std::sort(expected.begin(), expected.end(), comes_before);
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(top[row * 7 + i], expected[i]) << row << ", " << i;
  }
}

// ---- Errors.

std::string error_of(const ModelWeights& weights, const Fusions& fusions, const StepForm& form) {
  TestStep step(weights, fusions);
  const Result<StepGraph> graph = build_step_graph(step.model(), form);
  return graph ? "no error" : graph.error().message;
}

TEST(StepGraph, SaysWhichFormItCannotBuild) {
  const ModelWeights& weights = weights_of(DType::kBf16, true);
  EXPECT_EQ(error_of(weights, {}, {.rows = 0}), "a step of 0 rows; must be 1 to 64");
  EXPECT_EQ(error_of(weights, {}, {.rows = 65}), "a step of 65 rows; must be 1 to 64");
  EXPECT_EQ(error_of(weights, {}, {.rows = 1, .layers = 3}),
            "a step through 3 layers; model 'tiny' has 2");
  EXPECT_EQ(error_of(weights, {}, {.rows = 1, .layers = -1}),
            "a step through -1 layers; model 'tiny' has 2");
  EXPECT_EQ(error_of(weights, {}, {.rows = 2, .head_rows = 3}),
            "a step of 2 rows with the head for 3 of them");
  EXPECT_EQ(error_of(weights, {}, {.rows = 2, .head_rows = 1, .top_k = 0}),
            "the 0 largest logits of a row; must be at least 1");
  EXPECT_EQ(error_of(weights, {.dual_gate_up = false}, {.rows = 2}),
            "gate and up are one in the weights and two in the step");
  const ModelWeights headless =
      must(make_synthetic_weights(graph_config(), 7, {.with_head = false, .thread_count = 1}));
  EXPECT_EQ(error_of(headless, {}, {.rows = 2}),
            "model 'tiny' was made without embedding and head");
  EXPECT_EQ(error_of(headless, {}, {.rows = 2, .takes_tokens = false, .head_rows = 1}),
            "model 'tiny' was made without embedding and head");
  EXPECT_EQ(error_of(headless, {}, {.rows = 2, .takes_tokens = false}), "no error");
}

}  // namespace
}  // namespace gapless
