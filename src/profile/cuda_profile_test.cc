// SPDX-License-Identifier: Apache-2.0
//
// Profiles of a small model on a GPU. Without one the tests are skipped and say so, but for that of
// names, which needs none.

#include "profile/cuda_profile.h"

#include <algorithm>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "cuda/gpu_test_support.h"
#include "model/layer_plan.h"
#include "report/adds_up_test_support.h"
#include "report/step_report.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

constexpr uint64_t kSeed = 7;

ModelConfig small_config() {
  return {.name = "small",
          .layers = 2,
          .hidden = 256,
          .intermediate = 320,
          .q_heads = 10,
          .kv_heads = 2,
          .head_dim = 64,
          .vocabulary = 320,
          .max_positions = 1024,
          .rope_theta = 1e6,
          .rms_eps = 1e-6,
          .tied_embeddings = false,
          .dtype = DType::kBf16};
}

struct SmallCase {
  DType dtype = DType::kS8;
  DType kv_dtype = DType::kBf16;
  bool with_head = false;
  Fusions fusions = default_cuda_fusions();
};

// A small model on the GPU, and the weights of its first layer on the CPU.
struct SmallModel {
  explicit SmallModel(const SmallCase& wanted) {
    const WeightOptions options = {.dtype = wanted.dtype,
                                   .dual_gate_up = wanted.fusions.dual_gate_up,
                                   .with_head = wanted.with_head};
    weights = std::make_unique<CudaModelWeights>(
        make_synthetic_cuda_weights(small_config(), kSeed, options).value());
    WeightOptions one_layer = options;
    one_layer.layers = 1;
    one_layer.with_head = false;
    reference = make_synthetic_weights(small_config(), kSeed, one_layer).value();
    decoder = CudaDecoder::create(*weights, {.fusions = wanted.fusions,
                                             .kv_dtype = wanted.kv_dtype,
                                             .page_tokens = 16,
                                             .max_sequences = 3,
                                             .max_length = 300})
                  .value();
  }
  Result<ProfileResult> profile(const ProfileOptions& options) {
    return profile_cuda_steps(*decoder, &reference.layers.front(), options);
  }

  std::unique_ptr<CudaModelWeights> weights;
  ModelWeights reference;
  std::unique_ptr<CudaDecoder> decoder;
};

ProfileOptions small_options() {
  ProfileOptions options;
  options.lengths = {300, 1, 17};
  options.step_count = 3;
  options.warmup_count = 1;
  options.measure_limits = false;
  return options;
}

class CudaProfile : public GpuTest {};

TEST(CudaGroupName, IsThatOfTheKernelOnTheCpu) {
  EXPECT_EQ(cuda_group_name("qkv_proj", DType::kS8), "qkv");
  EXPECT_EQ(cuda_group_name("attention", DType::kS8), "attention");
  EXPECT_EQ(cuda_group_name("out_proj", DType::kBf16), "out");
  EXPECT_EQ(cuda_group_name("gate_up", DType::kBf16), "mlp");
  EXPECT_EQ(cuda_group_name("lm_head", DType::kBf16), "other");
  for (int i = 0; i < kLayerKernelCount; ++i) {
    const LayerKernel kernel = static_cast<LayerKernel>(i);
    EXPECT_EQ(cuda_group_name(layer_kernel_name(kernel, DType::kS8), DType::kS8),
              layer_group_name(kernel));
  }
}

TEST_F(CudaProfile, ChecksTheLayerAndTimesItsSteps) {
  const SmallCase cases[] = {
      {.dtype = DType::kS8},
      {.dtype = DType::kBf16},
      {.dtype = DType::kBf16, .kv_dtype = DType::kF16},
      {.dtype = DType::kS8, .fusions = {}},
      {.dtype = DType::kBf16, .fusions = {false, false, false, false}},
  };
  for (const SmallCase& one : cases) {
    SmallModel model(one);
    const Result<ProfileResult> result = model.profile(small_options());
    ASSERT_TRUE(result) << dtype_name(one.dtype) << ": " << result.error().message;
    ASSERT_TRUE(result->validation);
    EXPECT_EQ(result->validation->count, 3 * 256);
    EXPECT_LE(result->validation->outside_share(), 0.02);
    EXPECT_EQ(result->plain.seconds.size(), 3u);
    EXPECT_EQ(result->with_host.seconds.size(), 3u);
    EXPECT_TRUE(result->recorded.seconds.empty());
    EXPECT_FALSE(result->kernels);
    EXPECT_GT(result->plain.min(), 0.0);
  }
}

TEST_F(CudaProfile, AWrongLayerIsAnError) {
  SmallModel model({.dtype = DType::kBf16});
  for (float& gamma : model.reference.layers[0].input_norm) gamma *= 1.5f;
  const Result<ProfileResult> result = model.profile(small_options());
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("values of the first layer are further than 0.003 from"),
            std::string::npos)
      << result.error().message;
}

TEST_F(CudaProfile, CountsTheBytesOfAllLayersAndTheHead) {
  SmallModel model({.dtype = DType::kBf16, .with_head = true});
  const ProfileResult result = model.profile(small_options()).value();
  int64_t bytes = model.weights->head.weight_bytes();
  for (const CudaLayerWeights& layer : model.weights->layers)
    for (const CudaMatrix* matrix : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down})
      bytes += matrix->weight_bytes();
  const int64_t tokens = 300 + 1 + 17;
  const int64_t kv_bytes = 2 * tokens * 2 * 2 * 64 * 2;  // layers, K and V, heads, head_dim, bf16
  EXPECT_EQ(result.kv_bytes, kv_bytes);
  EXPECT_EQ(result.step_bytes, bytes + kv_bytes);
}

void expect_steps_add_up(bool records_phases, int sm_count) {
  const TemporaryDirectory directory;
  SmallModel model({.dtype = DType::kS8, .with_head = true});
  ProfileOptions options = small_options();
  options.trace_path = directory.path("steps.gapless");
  options.records_phases = records_phases;
  options.measure_limits = true;
  const ProfileResult result = model.profile(options).value();
  EXPECT_EQ(result.plain.seconds.size(), 6u);  // before and behind the recorded ones
  EXPECT_EQ(result.recorded.seconds.size(), 3u);
  ASSERT_TRUE(result.kernels);
  EXPECT_EQ(result.kernels->lanes.size(), static_cast<size_t>(sm_count));
  int64_t busy_ns = 0;
  for (const KernelTime& kernel : result.kernels->kernels) busy_ns += kernel.self_ns;
  EXPECT_EQ(busy_ns, result.kernels->busy_ns);
  EXPECT_EQ(result.kernels->busy_ns + result.kernels->idle_ns,
            sm_count * result.kernels->window_ns());
  EXPECT_EQ(result.recording.dropped_count, 0u);
  EXPECT_GT(result.recording.event_count, 0u);
  EXPECT_GT(result.average_busy_cores, 0.0);
  EXPECT_LE(result.average_busy_cores, static_cast<double>(sm_count));
  // Every launch of the plan ran with all its blocks, in both layers.
  for (const StepKernel& kernel : result.plan.kernels) {
    const auto place =
        std::find(result.kernel_names.begin(), result.kernel_names.end(), kernel.name);
    ASSERT_NE(place, result.kernel_names.end()) << kernel.name;
    const size_t at = static_cast<size_t>(place - result.kernel_names.begin());
    EXPECT_EQ(result.kernels->kernels[at].run_count, 2 * kernel.task_count) << kernel.name;
  }
  const Trace trace = read_trace_file(options.trace_path).value();
  for (const Finding& finding : trace.findings) EXPECT_EQ(finding.code, "") << finding.text;
  const Result<StepReport> report = make_step_report(trace, "steps.gapless");
  ASSERT_TRUE(report) << report.error().message;
  expect_report_adds_up(*report);
  EXPECT_EQ(report->core_names.size(), static_cast<size_t>(sm_count));
}

TEST_F(CudaProfile, RecordsStepsThatAddUp) {
  for (const bool records_phases : {false, true})
    expect_steps_add_up(records_phases, limits_.sm_count);
}

TEST_F(CudaProfile, HoldsTheStepAgainstTheGpu) {
  SmallModel model({.dtype = DType::kS8, .with_head = true});
  ProfileOptions options = small_options();
  options.measure_limits = true;
  const ProfileResult result = model.profile(options).value();
  ASSERT_TRUE(result.limits);
  // No launch can take less than its bytes.
  EXPECT_GE(result.limit_seconds * result.limits->read_bytes_per_s,
            static_cast<double>(result.step_bytes) * (1.0 - 1e-9));
}

TEST_F(CudaProfile, LeavesNoSequenceBehind) {
  SmallModel model({.dtype = DType::kS8});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(model.profile(small_options()));
}

TEST_F(CudaProfile, BadOptionsAreErrors) {
  SmallModel model({.dtype = DType::kS8});
  ProfileOptions options = small_options();
  options.lengths = {5, 0};
  EXPECT_EQ(model.profile(options).error().message, "a length of 0; must be at least 1");
  options.lengths = {301};
  EXPECT_EQ(model.profile(options).error().message,
            "a length of 301; model 'small' has 1024 positions, the cache was made for 300");
  options = small_options();
  options.trace_path = "/nowhere/steps.gapless";
  EXPECT_FALSE(model.profile(options));
}

}  // namespace
}  // namespace gapless
