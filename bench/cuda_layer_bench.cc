// SPDX-License-Identifier: Apache-2.0
//
// Decode steps of Qwen3-14B on a GPU, timed: layers that follow each other in a CUDA graph, and
// with --whole all 40 of them and the head. Times are the device's, of steps back to back, against
// the read ceiling that is measured in the same run. Every row is taken plain, with tasks recorded,
// plain, with all phases recorded, and plain again, which gives what both levels of the recorder
// cost. tools/cuda_layer_peer.py times PyTorch's layer.
//
// Weights are made from a seed, on the device. A graph of several layers reads weights, keys and
// values that are far larger than L2, so none of it is in there when it comes again. Pages of the
// sequences are mixed.

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/dtype.h"
#include "bench/cuda_bench_program.h"
#include "bench/cuda_bench_rows.h"
#include "bench/measurement.h"
#include "cuda/ceiling.h"
#include "cuda/device.h"
#include "model/cuda_decoder.h"
#include "model/cuda_weights.h"
#include "model/model_config.h"
#include "model/random_values.h"
#include "profile/profile.h"

namespace gapless {
namespace {

constexpr const char* kModel = "qwen3-14b";
constexpr uint64_t kSeed = 1234;
constexpr int kChainLayers = 4;                    // of a graph, where not all of them
constexpr int kMaxFillCalls = 32;                  // in which a sequence gets its tokens
constexpr int kRounds = 3;                         // of each row
constexpr double kWarmSeconds = 0.03;              // clocks take that long to rise
constexpr double kSampleSeconds = 0.04;            // of steps in one go
constexpr int64_t kSpareBytes = int64_t{2} << 30;  // for the recording

// Weights are made once for all cases that share them.
struct WeightCase {
  DType dtype = DType::kBf16;
  bool dual_gate_up = true;
  bool is_whole = false;
};

WeightOptions weight_options(const WeightCase& c) {
  return {.dtype = c.dtype,
          .dual_gate_up = c.dual_gate_up,
          .layers = c.is_whole ? 0 : kChainLayers,
          .with_head = c.is_whole};
}

struct StepCase {
  int batch = 16;
  std::string lengths = "4096";  // as `gapless profile --lengths` takes it
  bool starts_early = true;
  bool is_alone = false;  // one layer in its graph, not several
};

struct LayerRow {
  std::string name;
  CudaGoals goals;
  std::vector<double> plain_us;
  std::vector<double> tasks_us;   // with tasks recorded
  std::vector<double> phases_us;  // with all phases recorded
  double bytes = 0.0;

  double rate() const { return bytes / median(plain_us) * 1e-6; }  // TB/s
  double cost_of(const std::vector<double>& recorded_us) const {
    return median(recorded_us) / median(plain_us) - 1.0;
  }
};

// ---- One case.

std::string name_of(const WeightCase& weights, const StepCase& step) {
  std::string name =
      fmt::format("{} b{} ctx {} {}", dtype_name(weights.dtype), step.batch, step.lengths,
                  weights.is_whole ? "model" : (step.is_alone ? "layer alone" : "layer"));
  if (!weights.dual_gate_up) name += ", gate and up apart";
  if (!step.starts_early) name += ", no early launches";
  return name;
}

// For 16 sequences of 4096 tokens, all else as it is by default.
CudaGoals goals_of(const WeightCase& weights, const StepCase& step) {
  const bool is_main = step.batch == 16 && step.lengths == "4096" && step.starts_early &&
                       !step.is_alone && weights.dual_gate_up;
  if (!is_main) return {};
  const bool is_s8 = weights.dtype == DType::kS8;
  if (weights.is_whole) return {.max_us = is_s8 ? 7200.0 : 10500.0};
  return {.max_us = is_s8 ? 170.0 : 250.0, .max_tasks_cost = 0.01};
}

// Up to one token before its length each, a few pages at a time and in a random order, so that no
// sequence has its pages beside each other.
Result<std::vector<int>> fill_sequences(CudaDecoder& decoder, const std::vector<int32_t>& lengths) {
  std::vector<int> sequences;
  std::vector<size_t> calls;
  std::vector<int> strides;
  for (size_t i = 0; i < lengths.size(); ++i) {
    sequences.push_back(GAPLESS_TRY(decoder.add_sequence()));
    const int page = decoder.options().page_tokens;
    strides.push_back((lengths[i] / page / kMaxFillCalls + 1) * page);
    const int count = (lengths[i] + strides[i] - 1) / strides[i];
    calls.insert(calls.end(), static_cast<size_t>(count), i);
  }
  std::shuffle(calls.begin(), calls.end(), std::mt19937_64(kSeed));
  for (const size_t i : calls) {
    const int next = decoder.length(sequences[i]) + strides[i];
    const uint64_t seed = kSeed + i;
    GAPLESS_TRY(decoder.fill_sequence(sequences[i], std::min(next, lengths[i] - 1), seed));
  }
  return sequences;
}

// The step that is then repeated.
Result<void> run_first_step(CudaDecoder& decoder, const std::vector<int>& sequences, int layers) {
  if (!decoder.weights().has_head) {
    std::vector<float> x(sequences.size() * static_cast<size_t>(decoder.config().hidden));
    fill_normal(kSeed, 0, x);
    GAPLESS_TRY(decoder.step_hidden(sequences, x, layers));
    return {};
  }
  std::vector<StepRow> rows;
  std::vector<int> head_rows;
  for (const int sequence : sequences) {
    head_rows.push_back(static_cast<int>(rows.size()));
    rows.push_back({.sequence = sequence, .token = 1000 + sequence});
  }
  GAPLESS_TRY(decoder.step({.rows = rows, .head_rows = head_rows}));
  return {};
}

// Appends the microseconds of each of `layers` in the steps.
void append_us(std::vector<double>& us, const std::vector<double>& seconds, int layers) {
  for (const double step : seconds) us.push_back(step * 1e6 / layers);
}

Result<void> time_recorded(CudaDecoder& decoder, RecordLevel level, int count, int layers,
                           std::vector<double>& us) {
  append_us(us, GAPLESS_TRY(decoder.repeat_step_recorded(count, level)), layers);
  const DeviceRecording recording = GAPLESS_TRY(decoder.take_recording());
  if (recording.step_count == 0)
    return fail(ErrorCode::kSystem, "the recorder kept none of {} recorded steps", count);
  return {};
}

Result<LayerRow> time_steps(CudaDecoder& decoder, int layers, int rounds) {
  LayerRow row;
  for (const CudaNode& node : decoder.last_nodes())
    row.bytes += static_cast<double>(node.weight_bytes) / layers;
  double step_seconds = 0.0;
  double warm_seconds = 0.0;
  while (warm_seconds < kWarmSeconds) {
    step_seconds = GAPLESS_TRY(decoder.repeat_step(2)).back();
    warm_seconds += 2 * step_seconds;
  }
  const int count = std::max(static_cast<int>(kSampleSeconds / step_seconds), 5);
  for (int round = 0; round < rounds; ++round) {
    append_us(row.plain_us, GAPLESS_TRY(decoder.repeat_step(count)), layers);
    GAPLESS_TRY(time_recorded(decoder, RecordLevel::kTasks, count, layers, row.tasks_us));
    append_us(row.plain_us, GAPLESS_TRY(decoder.repeat_step(count)), layers);
    GAPLESS_TRY(time_recorded(decoder, RecordLevel::kPhases, count, layers, row.phases_us));
    append_us(row.plain_us, GAPLESS_TRY(decoder.repeat_step(count)), layers);
  }
  return row;
}

Result<LayerRow> time_case(const CudaModelWeights& weights, const CudaDecoderOptions& options,
                           const StepCase& step, int rounds) {
  const std::vector<int32_t> lengths = GAPLESS_TRY(parse_lengths(step.lengths, step.batch, kSeed));
  const std::unique_ptr<CudaDecoder> decoder = GAPLESS_TRY(CudaDecoder::create(weights, options));
  const std::vector<int> sequences = GAPLESS_TRY(fill_sequences(*decoder, lengths));
  const int layers = step.is_alone ? 1 : weights.config.layers;
  GAPLESS_TRY(run_first_step(*decoder, sequences, weights.has_head ? 0 : layers));
  return time_steps(*decoder, weights.has_head ? 1 : layers, rounds);
}

// ---- Rows.

Result<void> add_row(CudaBenchRows& rows, const LayerRow& row) {
  const auto [least, most] = std::minmax_element(row.plain_us.begin(), row.plain_us.end());
  const double median_us = median(row.plain_us);
  const double share = row.rate() / rows.ceiling_tb_s();
  const double tasks_cost = row.cost_of(row.tasks_us);
  const double phases_cost = row.cost_of(row.phases_us);
  return rows.add(fmt::format("{:46} {:9.2f} us ({:.2f}-{:.2f}) {:9.1f} MB {:6.3f} TB/s {:5.1f} %  "
                              "{:+.2f} %  {:+.2f} %",
                              row.name, median_us, *least, *most, row.bytes * 1e-6, row.rate(),
                              100.0 * share, 100.0 * tasks_cost, 100.0 * phases_cost),
                  {{"what", row.name},
                   {"median_us", median_us},
                   {"min_us", *least},
                   {"max_us", *most},
                   {"bytes", row.bytes},
                   {"tb_s", row.rate()},
                   {"share_of_ceiling", share},
                   {"tasks_recorded_us", median(row.tasks_us)},
                   {"tasks_cost", tasks_cost},
                   {"phases_recorded_us", median(row.phases_us)},
                   {"phases_cost", phases_cost}},
                  row.goals, {.median_us = median_us, .share = share, .tasks_cost = tasks_cost});
}

// ---- What is measured.

std::vector<StepCase> steps_of(const WeightCase& weights, bool is_main_only) {
  std::vector<StepCase> steps = {{}};
  if (!weights.dual_gate_up) return steps;
  steps.push_back({.starts_early = false});
  if (!weights.is_whole) steps.push_back({.is_alone = true});
  if (is_main_only) return steps;
  for (const int batch : {1, 4, 16, 64}) {
    for (const char* lengths : {"512", "4096", "32768", "1..4096"}) {
      const bool is_main = batch == 16 && std::string_view(lengths) == "4096";
      const bool is_ragged = std::string_view(lengths) == "1..4096";
      if (is_main || (is_ragged && batch == 1)) continue;
      steps.push_back({.batch = batch, .lengths = lengths});
    }
  }
  return steps;
}

std::vector<WeightCase> weight_cases(const CudaBenchOptions& options) {
  std::vector<WeightCase> cases;
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    cases.push_back({.dtype = dtype});
    cases.push_back({.dtype = dtype, .dual_gate_up = false});
    if (options.has_whole_model) cases.push_back({.dtype = dtype, .is_whole = true});
  }
  return cases;
}

CudaDecoderOptions decoder_options(const WeightCase& weights, const StepCase& step,
                                   const std::vector<int32_t>& lengths) {
  CudaDecoderOptions options;
  options.fusions.dual_gate_up = weights.dual_gate_up;
  options.starts_early = step.starts_early;
  options.max_sequences = step.batch;
  options.max_length = *std::max_element(lengths.begin(), lengths.end());
  return options;
}

// Says so, and what is needed, where the GPU has not so much free.
bool fits(const std::string& name, int64_t needed_bytes, int64_t free_bytes) {
  if (needed_bytes <= free_bytes) return true;
  fmt::print("{:46} left out: needs {:.1f} GB, {:.1f} GB of the GPU's memory are free\n", name,
             static_cast<double>(needed_bytes) * 1e-9, static_cast<double>(free_bytes) * 1e-9);
  return false;
}

Result<void> measure_step(CudaBenchRows& rows, const CudaModelWeights& weights,
                          const WeightCase& weight_case, const StepCase& step, int rounds) {
  const std::string name = name_of(weight_case, step);
  const std::vector<int32_t> lengths = GAPLESS_TRY(parse_lengths(step.lengths, step.batch, kSeed));
  const CudaDecoderOptions decoder = decoder_options(weight_case, step, lengths);
  const int64_t needed =
      cuda_decoder_bytes(weights.config, weight_options(weight_case), decoder) + kSpareBytes;
  if (!fits(name, needed, GAPLESS_TRY(cuda_memory()).free_bytes)) return {};
  LayerRow row = GAPLESS_TRY(time_case(weights, decoder, step, rounds));
  row.name = name;
  row.goals = goals_of(weight_case, step);
  return add_row(rows, row);
}

Result<void> measure_weights(const CudaBenchOptions& options, const WeightCase& weight_case,
                             CudaBenchRows& rows) {
  const ModelConfig config = GAPLESS_TRY(find_model_config(kModel));
  const int64_t weight_bytes =
      GAPLESS_TRY(cuda_weights_bytes(config, weight_options(weight_case), DType::kBf16));
  if (!fits(name_of(weight_case, {}) + " and its like", weight_bytes + kSpareBytes,
            GAPLESS_TRY(cuda_memory()).free_bytes))
    return {};
  const CudaModelWeights weights =
      GAPLESS_TRY(make_synthetic_cuda_weights(config, kSeed, weight_options(weight_case)));
  const int rounds = options.is_quick ? 1 : kRounds;
  for (const StepCase& step : steps_of(weight_case, options.is_main_only))
    GAPLESS_TRY(measure_step(rows, weights, weight_case, step, rounds));
  return {};
}

Result<void> measure(const CudaBenchOptions& options) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  const double ceiling = GAPLESS_TRY(measure_cuda_limits()).read_bytes_per_s * 1e-12;
  fmt::print(
      "{}, {} SMs; shares are of {:.3f} TB/s; the last columns are what recording tasks and what "
      "recording all phases costs\n",
      limits.name, limits.sm_count, ceiling);
  CudaBenchRows rows(limits.name, ceiling, options.json_path);
  for (const WeightCase& weights : weight_cases(options))
    GAPLESS_TRY(measure_weights(options, weights, rows));
  return rows.finish();
}

const CudaBenchProgram kProgram = {
    .about =
        "Decode steps of Qwen3-14B on a GPU, A8W8 and bf16: layers that follow each other in a "
        "graph,\n"
        "for 16 sequences of 4096 tokens and a sweep of batches and lengths, plain and with tasks\n"
        "or all phases recorded. Shares are of the read rate that is measured first.\n",
    .flags = {{"--quick", "1 round for each row, not 3", &CudaBenchOptions::is_quick},
              {"--main", "Without the sweep", &CudaBenchOptions::is_main_only},
              {"--whole", "All 40 layers and the head, too", &CudaBenchOptions::has_whole_model}},
};

}  // namespace
}  // namespace gapless

// NOLINTNEXTLINE(bugprone-exception-escape): no memory or no standard output, and that ends us.
int main(int argc, char** argv) {
  return gapless::run_cuda_bench(gapless::kProgram, argc, argv, gapless::measure);
}
