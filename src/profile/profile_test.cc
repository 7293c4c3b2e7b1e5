// SPDX-License-Identifier: Apache-2.0

#include "profile/profile.h"

#include <algorithm>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/temporary_directory.h"
#include "profile/profile_parts.h"
#include "profile/profile_text.h"

namespace gapless {
namespace {

using nlohmann::json;

ModelConfig tiny_config() {
  return {.name = "tiny",
          .layers = 2,
          .hidden = 128,
          .intermediate = 192,
          .q_heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .vocabulary = 160,
          .max_positions = 1024,
          .rope_theta = 1e6,
          .rms_eps = 1e-6,
          .tied_embeddings = false,
          .dtype = DType::kBf16};
}

// A tiny model with its decoder.
struct TinyModel {
  explicit TinyModel(DType dtype, bool with_head) {
    weights =
        make_synthetic_weights(tiny_config(), 7, {.dtype = dtype, .with_head = with_head}).value();
    device = CpuDevice::create({.worker_count = 2, .pin_workers = false}).value();
    decoder = CpuDecoder::create(*device, weights,
                                 {.fusions = default_fusions(dtype),
                                  .page_tokens = 16,
                                  .max_sequences = 3,
                                  .max_length = 64})
                  .value();
  }
  ModelWeights weights;
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<CpuDecoder> decoder;
};

ProfileOptions tiny_options() {
  ProfileOptions options;
  options.lengths = {40, 1, 17};
  options.step_count = 3;
  options.warmup_count = 1;
  options.measure_limits = false;
  return options;
}

TEST(Lengths, OneNumberIsForAll) {
  EXPECT_EQ(parse_lengths("512", 3, 1).value(), (std::vector<int32_t>{512, 512, 512}));
}

TEST(Lengths, EachIsTakenAsItIs) {
  EXPECT_EQ(parse_lengths("5,1,9", 3, 1).value(), (std::vector<int32_t>{5, 1, 9}));
  EXPECT_EQ(parse_lengths("5,1", 3, 1).error().message, "2 lengths for a batch of 3");
}

TEST(Lengths, ARangeIsSpreadEvenlyAndShuffled) {
  std::vector<int32_t> lengths = parse_lengths("1..4096", 16, 1234).value();
  EXPECT_FALSE(std::is_sorted(lengths.begin(), lengths.end()));
  EXPECT_NE(lengths, parse_lengths("1..4096", 16, 1235).value());
  EXPECT_EQ(lengths, parse_lengths("1..4096", 16, 1234).value());
  std::sort(lengths.begin(), lengths.end());
  for (int i = 0; i < 16; ++i) EXPECT_EQ(lengths[static_cast<size_t>(i)], 1 + 4095 * i / 15);
  EXPECT_EQ(parse_lengths("1..4096", 1, 1).value(), std::vector<int32_t>{4096});
}

TEST(Lengths, NonsenseIsAnErrorOfTheCommandLine) {
  for (const char* text : {"", "0", "-1", "x", "1,,2", "1,", "5..2", "..", "1..", "3.5", "1 2",
                           "2000000", "99999999999"}) {
    const Result<std::vector<int32_t>> lengths = parse_lengths(text, 2, 1);
    ASSERT_FALSE(lengths) << text;
    EXPECT_EQ(lengths.error().code, ErrorCode::kUsage) << text;
  }
  for (const int batch : {0, -1}) {
    EXPECT_FALSE(parse_lengths("512", batch, 1)) << batch;
    EXPECT_FALSE(parse_lengths("1..4096", batch, 1)) << batch;
  }
}

TEST(Profile, ChecksTheLayerAndTimesItsSteps) {
  for (const DType dtype : {DType::kS8, DType::kBf16, DType::kF16, DType::kF32}) {
    TinyModel model(dtype, false);
    const ProfileResult result = profile_steps(*model.decoder, 2, tiny_options()).value();
    ASSERT_TRUE(result.validation);
    EXPECT_EQ(result.validation->count, 3 * 128);
    EXPECT_LE(result.validation->outside_share(), 0.02);
    EXPECT_EQ(result.plain.seconds.size(), 3u);
    EXPECT_TRUE(result.recorded.seconds.empty());
    EXPECT_FALSE(result.kernels);
    EXPECT_GT(result.plain.min(), 0.0);
    EXPECT_LE(result.plain.min(), result.plain.median());
    EXPECT_LE(result.plain.median(), result.plain.max());
  }
}

TEST(Profile, HoldsTheStepAgainstTheMachine) {
  TinyModel model(DType::kS8, true);
  ProfileOptions options = tiny_options();
  options.measure_limits = true;
  const ProfileResult result = profile_steps(*model.decoder, 2, options).value();
  ASSERT_TRUE(result.limits);
  // No kernel can take less than its bytes.
  EXPECT_GE(result.limit_seconds * result.limits->read_bytes_per_s,
            static_cast<double>(result.step_bytes) * (1.0 - 1e-9));
}

TEST(Profile, LeavesNoSequenceBehind) {
  TinyModel model(DType::kS8, false);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(profile_steps(*model.decoder, 2, tiny_options()));
}

TEST(Profile, RecordsStepsThatAddUp) {
  const TemporaryDirectory directory;
  TinyModel model(DType::kS8, true);
  ProfileOptions options = tiny_options();
  options.trace_path = directory.path("steps.gapless");
  const ProfileResult result = profile_steps(*model.decoder, 2, options).value();
  EXPECT_EQ(result.plain.seconds.size(), 6u);  // before and behind the recorded ones
  EXPECT_EQ(result.recorded.seconds.size(), 3u);
  ASSERT_TRUE(result.kernels);
  int64_t busy_ns = 0;
  for (const KernelTime& kernel : result.kernels->kernels) busy_ns += kernel.self_ns;
  EXPECT_EQ(busy_ns, result.kernels->busy_ns);
  EXPECT_EQ(result.kernels->busy_ns + result.kernels->idle_ns, 2 * result.kernels->window_ns());
  // Every kernel of the plan ran as often as the plan says, in both layers.
  for (const StepKernel& kernel : result.plan.kernels) {
    const auto place =
        std::find(result.kernel_names.begin(), result.kernel_names.end(), kernel.name);
    ASSERT_NE(place, result.kernel_names.end()) << kernel.name;
    const size_t at = static_cast<size_t>(place - result.kernel_names.begin());
    EXPECT_EQ(result.kernels->kernels[at].run_count, 2 * kernel.task_count) << kernel.name;
  }
  EXPECT_EQ(result.recording.dropped_count, 0u);
  EXPECT_GT(result.average_busy_cores, 0.0);
  EXPECT_LE(result.average_busy_cores, 2.0);
}

TEST(Profile, CountsTheBytesOfAllLayersAndTheHead) {
  TinyModel model(DType::kBf16, true);
  const ProfileResult result = profile_steps(*model.decoder, 2, tiny_options()).value();
  int64_t bytes = model.weights.head.weight_bytes();
  for (const LayerWeights& layer : model.weights.layers) bytes += layer.weight_bytes();
  const int64_t tokens = 40 + 1 + 17;
  bytes += 2 * tokens * 2 * 2 * 64 * 2;  // layers, K and V, heads, head_dim, bf16
  EXPECT_EQ(result.step_bytes, bytes);
}

TEST(Profile, TimesTwoDecodersInTurn) {
  TinyModel first(DType::kS8, false);
  TinyModel second(DType::kS8, true);
  ProfileOptions options = tiny_options();
  options.step_count = 5;
  const PairedTimes times = compare_steps(*first.decoder, *second.decoder, 2, options).value();
  ASSERT_EQ(times.ratios.size(), 5u);
  EXPECT_TRUE(std::is_sorted(times.ratios.begin(), times.ratios.end()));
  EXPECT_EQ(times.ratio_at(0.0), times.ratios.front());
  EXPECT_EQ(times.ratio_at(0.5), times.ratios[2]);
  EXPECT_EQ(times.ratio_at(1.0), times.ratios.back());
  std::vector<double> ratios;
  for (size_t i = 0; i < 5; ++i) ratios.push_back(times.second.seconds[i] / times.first.seconds[i]);
  std::sort(ratios.begin(), ratios.end());
  EXPECT_EQ(ratios, times.ratios);
}

TEST(Profile, AWrongLayerIsAnError) {
  TinyModel model(DType::kF32, false);
  // The decoder was made for these weights; the reference reads them again.
  for (float& gamma : model.weights.layers[0].input_norm) gamma *= 1.5f;
  ProfileOptions options = tiny_options();
  options.tolerance = 0.0;
  const Result<ProfileResult> result = profile_steps(*model.decoder, 2, options);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("values of the first layer are further than 0 from"),
            std::string::npos)
      << result.error().message;
}

TEST(Profile, ValuesThatAreNotFiniteAreAnError) {
  TinyModel model(DType::kF32, false);
  model.weights.layers[0].post_norm[3] = std::numeric_limits<float>::infinity();
  const Result<ProfileResult> result = profile_steps(*model.decoder, 2, tiny_options());
  ASSERT_FALSE(result);
}

TEST(Profile, BadOptionsAreErrors) {
  TinyModel model(DType::kS8, false);
  ProfileOptions options = tiny_options();
  options.lengths = {};
  EXPECT_FALSE(profile_steps(*model.decoder, 2, options));
  options.lengths = {5, 0};
  EXPECT_EQ(profile_steps(*model.decoder, 2, options).error().message,
            "a length of 0; must be at least 1");
  options.lengths = {65};
  EXPECT_FALSE(profile_steps(*model.decoder, 2, options));
  options = tiny_options();
  options.step_count = 0;
  EXPECT_FALSE(profile_steps(*model.decoder, 2, options));
  options = tiny_options();
  options.trace_path = "/nowhere/steps.gapless";
  EXPECT_NE(profile_steps(*model.decoder, 2, options).error().message.find("cannot record: "),
            std::string::npos);
}

TEST(ProfileText, SaysWhatWasMeasured) {
  const TemporaryDirectory directory;
  TinyModel model(DType::kS8, false);
  ProfileOptions options = tiny_options();
  options.trace_path = directory.path("steps.gapless");
  ProfileResult result = profile_steps(*model.decoder, 2, options).value();
  result.limits = MachineLimits{.thread_count = 2, .read_bytes_per_s = 4e10, .s8_ops_per_s = 9e11};
  result.limit_seconds = 1e-6;
  const ProfileSubject subject = {.model = "tiny",
                                  .dtype = "a8w8",
                                  .kv_dtype = "bf16",
                                  .machine = "a machine",
                                  .level = "portable",
                                  .core_count = 2,
                                  .model_layers = 2,
                                  .page_tokens = 16,
                                  .fusions = {},
                                  .lengths = options.lengths,
                                  .trace_path = options.trace_path,
                                  .perfetto_path = {}};
  const std::string text = profile_text(subject, result);
  for (const char* part : {"tiny, 2 of 2 layers, a8w8", "3 sequences of 1 to 40 tokens (58 in all)",
                           "384 values of the first layer", "gate_up", "(no task)", "of 2 busy",
                           "reads 40.0 GB/s, s8 900 Gop/s"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const json parsed = json::parse(profile_json(subject, result));
  EXPECT_EQ(parsed["plan"]["tasks"], result.plan.task_count);
  EXPECT_EQ(parsed["step"]["seconds"].size(), 6u);
  EXPECT_EQ(parsed["median_step"]["busy_ns"], result.kernels->busy_ns);
  EXPECT_EQ(parsed["limits"]["step_s"], 1e-6);
}

// What a GPU fills in, without one.
TEST(ProfileText, OfAGpuSpeaksOfItsSms) {
  ProfileResult result;
  result.plan.kernels = {{.name = "qkv_proj",
                          .group = "qkv",
                          .task_count = 132,
                          .bytes = 73'000'000,
                          .memory_bytes = 72'000'000,
                          .flops = 1'000'000},
                         {.name = "attention",
                          .group = "attention",
                          .task_count = 264,
                          .bytes = 29'000'000,
                          .memory_bytes = 28'000'000,
                          .flops = 2'000'000}};
  result.plan.outside = {{.name = "lm_head", .group = "other", .memory_bytes = 100'000'000}};
  add_up(result.plan);
  result.layers = 2;
  result.has_head = true;
  result.plain.seconds = {1.5e-4, 1.6e-4, 1.7e-4};
  result.recorded.seconds = {1.616e-4};
  result.with_host.seconds = {2.0e-4};
  result.limits = MachineLimits{.thread_count = 132,
                                .read_bytes_per_s = 4e12,
                                .s8_ops_per_s = 1e15,
                                .bf16_ops_per_s = 5e14,
                                .f32_ops_per_s = 5e13};
  result.kernels = KernelTimes{.window = {0, 1000},
                               .kernels = {{.run_count = 264, .self_ns = 72'000}},
                               .lanes = std::vector<LaneTime>(132),
                               .busy_ns = 72'000,
                               .idle_ns = 60'000};
  result.kernel_names = {"qkv_proj"};
  result.average_busy_cores = 72.0;
  result.recording.event_count = 1234;
  count_step(result);
  EXPECT_EQ(result.step_bytes, 300'000'000);
  EXPECT_EQ(result.kv_bytes, 56'000'000);
  EXPECT_DOUBLE_EQ(result.limit_seconds, 75e-6);
  const ProfileSubject subject = {.model = "tiny",
                                  .dtype = "a8w8",
                                  .kv_dtype = "bf16",
                                  .device = "cuda",
                                  .machine = "NVIDIA H200",
                                  .core_count = 132,
                                  .model_layers = 2,
                                  .page_tokens = 128,
                                  .fusions = {},
                                  .lengths = {4096},
                                  .trace_path = "a.gapless",
                                  .perfetto_path = {}};
  const std::string text = profile_text(subject, result);
  for (const char* part :
       {"NVIDIA H200, 132 SMs; in this run: reads 4000.0 GB/s",
        "0.1600 ms median of 3 (0.1500 ms to 0.1700 ms), on the device, back to back",
        "with host   0.2000 ms median of 1", "396 a layer (blocks of 2 launches): qkv 132",
        "SMs         72.000 of 132 busy with tasks, on average over all recorded steps",
        "0.1616 ms with it (+1.00 %): 1,234 events, 0 dropped",
        "window      0.0010 ms from the first block", "SM time", "GB/s an SM", "2000.0"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const json parsed = json::parse(profile_json(subject, result));
  EXPECT_EQ(parsed["device"], "cuda");
  EXPECT_EQ(parsed["sms"], 132);
  EXPECT_EQ(parsed["average_busy_sms"], 72.0);
  EXPECT_EQ(parsed["step_with_host"]["median_s"], 2.0e-4);
  EXPECT_EQ(parsed["plan"]["outside_layers"][0]["name"], "lm_head");
  EXPECT_FALSE(parsed.contains("cpu_level"));
}

}  // namespace
}  // namespace gapless
