// SPDX-License-Identifier: Apache-2.0
//
// gapless bench: decode steps over batches, contexts, types and fusions, one line each, against
// what this machine could do while that line was measured.

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "analysis/bootstrap.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "kernels/packed_rows.h"
#include "machine/machine_limits.h"
#include "profile/profile.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

struct BenchArguments {
  ModelOptions model;
  std::vector<std::string> dtypes = {"a8w8", "bf16"};
  std::vector<int> batches = {1, 4, 16};
  std::vector<int> contexts = {512, 4096};
  std::vector<std::string> dual = {"on"};
  bool whole = false;
  bool compare_dual = false;
  int steps = 20;
  bool json = false;
};

struct BenchLine {
  std::string dtype;
  std::string dual;
  int batch = 0;
  int context = 0;
  int model_layers = 0;
  ProfileResult result;
};

Result<void> check_arguments(const BenchArguments& arguments) {
  for (const int batch : arguments.batches)
    if (batch < 1 || batch > kMaxMatmulRows)
      return fail(ErrorCode::kUsage, "a batch of {}; must be 1 to {}", batch, kMaxMatmulRows);
  for (const int context : arguments.contexts)
    if (context < 1) return fail(ErrorCode::kUsage, "a context of {}; must be 1 or more", context);
  if (arguments.steps < 1)
    return fail(ErrorCode::kUsage, "{} steps; must be at least 1", arguments.steps);
  return {};
}

// What would fail when other lines have been measured, and take them with it.
Result<void> check_lines(const BenchArguments& arguments, const ModelSource& source) {
  for (const int context : arguments.contexts)
    if (context > source.config.max_positions)
      return fail(ErrorCode::kInvalidInput, "a context of {}; model '{}' has {} positions", context,
                  source.config.name, source.config.max_positions);
  for (const std::string& dtype : arguments.dtypes)
    if (source.config.quantized && dtype != "a8w8")
      return fail(ErrorCode::kInvalidInput, "{}: has A8W8 weights; ask for --dtype a8w8 only",
                  arguments.model.model);
  return {};
}

const std::vector<TableRow>& header() {
  static const std::vector<TableRow> kHeader = {{"DTYPE", "BATCH", "CTX", "DUAL", "TASKS",
                                                 "STEP MS", "MIN..MAX", "MB", "GB/S", "OF READ",
                                                 "LIMIT MS", "OF LIMIT", "TPOT MS"}};
  return kHeader;
}

TableRow line_cells(const BenchLine& line) {
  const ProfileResult& result = line.result;
  const double seconds = result.plain.median();
  const double rate = static_cast<double>(result.step_bytes) / seconds;
  return {line.dtype,
          std::to_string(line.batch),
          std::to_string(line.context),
          line.dual,
          std::to_string(result.plan.task_count * result.layers),
          fmt::format("{:.2f}", seconds * 1e3),
          fmt::format("{:.2f}..{:.2f}", result.plain.min() * 1e3, result.plain.max() * 1e3),
          fmt::format("{:.1f}", static_cast<double>(result.step_bytes) * 1e-6),
          fmt::format("{:.1f}", rate * 1e-9),
          format_share(rate / result.limits->read_bytes_per_s),
          fmt::format("{:.2f}", result.limit_seconds * 1e3),
          format_share(result.limit_seconds / seconds),
          fmt::format("{:.1f}", seconds * 1e3 / result.layers * line.model_layers)};
}

std::string bench_text(const std::string& subject, const std::vector<BenchLine>& lines) {
  std::vector<TableRow> rows = header();
  for (const BenchLine& line : lines) rows.push_back(line_cells(line));
  return subject + "\n\n" + align_columns(rows, "lrrlrrrrrrrrr");
}

std::string bench_json(const std::string& subject, const std::vector<BenchLine>& lines) {
  Json json = {{"subject", subject}, {"lines", Json::array()}};
  for (const BenchLine& line : lines) {
    const ProfileResult& result = line.result;
    json["lines"].push_back({{"dtype", line.dtype},
                             {"batch", line.batch},
                             {"context", line.context},
                             {"dual_gate_up", line.dual == "on"},
                             {"layers", result.layers},
                             {"tasks", result.plan.task_count * result.layers},
                             {"median_s", result.plain.median()},
                             {"min_s", result.plain.min()},
                             {"max_s", result.plain.max()},
                             {"seconds", result.plain.seconds},
                             {"step_bytes", result.step_bytes},
                             {"step_flops", result.step_flops},
                             {"read_bytes_per_s", result.limits->read_bytes_per_s},
                             {"s8_ops_per_s", result.limits->s8_ops_per_s},
                             {"bf16_ops_per_s", result.limits->bf16_ops_per_s},
                             {"f32_ops_per_s", result.limits->f32_ops_per_s},
                             {"limit_s", result.limit_seconds}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// One type and one way of gate and up: the weights are made once for all its lines.
Result<void> run_lines(BenchArguments& arguments, const ModelSource& source, CpuDevice& device,
                       std::vector<BenchLine>& lines) {
  const ModelOptions& options = arguments.model;
  const DType dtype = weights_dtype(options, source.config);
  const std::unique_ptr<ModelWeights> weights =
      GAPLESS_TRY(load_model_weights(source, options, dtype, arguments.whole));
  for (const int context : arguments.contexts) {
    for (const int batch : arguments.batches) {
      const std::unique_ptr<CpuDecoder> decoder = GAPLESS_TRY(make_decoder(
          source, options, *weights, {.max_sequences = batch, .max_length = context}, device));
      ProfileOptions profile;
      profile.lengths.assign(static_cast<size_t>(batch), context);
      profile.step_count = arguments.steps;
      profile.validate = false;
      profile.seed = options.seed;
      ProfileResult result = GAPLESS_TRY(profile_steps(*decoder, device.worker_count(), profile));
      lines.push_back({.dtype = std::string(weights_dtype_name(dtype)),
                       .dual = options.dual_gate_up,
                       .batch = batch,
                       .context = context,
                       .model_layers = source.model_layers,
                       .result = std::move(result)});
    }
  }
  return {};
}

// ---- Gate and up as one matmul and as two, in turn.

struct DualLine {
  std::string dtype;
  int batch = 0;
  int context = 0;
  int64_t dual_tasks = 0;
  int64_t apart_tasks = 0;
  PairedTimes times;  // the first is the dual one
};

std::string dual_text(const std::string& subject, const std::vector<DualLine>& lines) {
  std::vector<TableRow> rows = {{"DTYPE", "BATCH", "CTX", "DUAL TASKS", "TWO TASKS", "DUAL MS",
                                 "TWO MS", "TWO / DUAL", "95 %", "QUARTILES"}};
  for (const DualLine& line : lines) {
    const Interval ratio = bootstrap_median(line.times.ratios);
    rows.push_back(
        {line.dtype, std::to_string(line.batch), std::to_string(line.context),
         std::to_string(line.dual_tasks), std::to_string(line.apart_tasks),
         fmt::format("{:.2f}", line.times.first.median() * 1e3),
         fmt::format("{:.2f}", line.times.second.median() * 1e3),
         fmt::format("{:.4f}", ratio.value), fmt::format("{:.4f}..{:.4f}", ratio.low, ratio.high),
         fmt::format("{:.3f}..{:.3f}", line.times.ratio_at(0.25), line.times.ratio_at(0.75))});
  }
  return subject + "\n\n" + align_columns(rows, "lrrrrrrrrr");
}

std::string dual_json(const std::string& subject, const std::vector<DualLine>& lines) {
  Json json = {{"subject", subject}, {"dual_gate_up", Json::array()}};
  for (const DualLine& line : lines) {
    const Interval ratio = bootstrap_median(line.times.ratios);
    json["dual_gate_up"].push_back(
        {{"dtype", line.dtype},
         {"batch", line.batch},
         {"context", line.context},
         {"dual_tasks", line.dual_tasks},
         {"two_matmul_tasks", line.apart_tasks},
         {"dual_s", line.times.first.seconds},
         {"two_matmul_s", line.times.second.seconds},
         {"ratio_median", ratio.value},
         {"ratio_interval_95", {ratio.low, ratio.high}},
         {"ratio_quartiles", {line.times.ratio_at(0.25), line.times.ratio_at(0.75)}}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int64_t planned_tasks(const CpuDecoder& decoder, int batch) {
  const StepModel& model = decoder.model();
  const Result<LayerPlan> plan = plan_layer({.config = decoder.config(),
                                             .weights = model.weights->dtype,
                                             .kv_dtype = model.kv.dtype,
                                             .fusions = model.fusions,
                                             .page_tokens = model.kv.page_tokens,
                                             .chunk_tokens = model.chunk_tokens,
                                             .rows = batch,
                                             .core_count = model.core_count,
                                             .level = model.level});
  return plan ? plan->task_count * decoder.config().layers : 0;
}

Result<void> compare_dual(const BenchArguments& arguments, const ModelSource& source,
                          CpuDevice& device, std::vector<DualLine>& lines) {
  ModelOptions dual = arguments.model;
  ModelOptions apart = arguments.model;
  dual.dual_gate_up = "on";
  apart.dual_gate_up = "off";
  const DType dtype = weights_dtype(dual, source.config);
  const std::unique_ptr<ModelWeights> dual_weights =
      GAPLESS_TRY(load_model_weights(source, dual, dtype, arguments.whole));
  const std::unique_ptr<ModelWeights> apart_weights =
      GAPLESS_TRY(load_model_weights(source, apart, dtype, arguments.whole));
  for (const int context : arguments.contexts) {
    for (const int batch : arguments.batches) {
      const DecoderNeeds needs = {.max_sequences = batch, .max_length = context};
      const std::unique_ptr<CpuDecoder> first =
          GAPLESS_TRY(make_decoder(source, dual, *dual_weights, needs, device));
      const std::unique_ptr<CpuDecoder> second =
          GAPLESS_TRY(make_decoder(source, apart, *apart_weights, needs, device));
      ProfileOptions profile;
      profile.lengths.assign(static_cast<size_t>(batch), context);
      profile.step_count = arguments.steps;
      profile.validate = false;
      profile.seed = dual.seed;
      PairedTimes times =
          GAPLESS_TRY(compare_steps(*first, *second, device.worker_count(), profile));
      lines.push_back({.dtype = std::string(weights_dtype_name(dtype)),
                       .batch = batch,
                       .context = context,
                       .dual_tasks = planned_tasks(*first, batch),
                       .apart_tasks = planned_tasks(*second, batch),
                       .times = std::move(times)});
    }
  }
  return {};
}

Result<int> run_bench(BenchArguments& arguments) {
  GAPLESS_TRY(check_arguments(arguments));
  if (arguments.whole) arguments.model.layers = 0;
  const ModelSource source = GAPLESS_TRY(find_model(arguments.model));
  GAPLESS_TRY(check_lines(arguments, source));
  const std::unique_ptr<CpuDevice> device = GAPLESS_TRY(make_device(arguments.model));
  const CpuLevel level = GAPLESS_TRY(choose_cpu_level(arguments.model.cpu_level));
  std::vector<BenchLine> lines;
  std::vector<DualLine> dual_lines;
  for (const std::string& dtype : arguments.dtypes) {
    if (arguments.compare_dual) {
      arguments.model.dtype = dtype;
      GAPLESS_TRY(compare_dual(arguments, source, *device, dual_lines));
      continue;
    }
    for (const std::string& dual : arguments.dual) {
      arguments.model.dtype = dtype;
      arguments.model.dual_gate_up = dual;
      GAPLESS_TRY(run_lines(arguments, source, *device, lines));
    }
  }
  const std::string subject = fmt::format(
      "{}, {} of {} layers{}, on {}, {} cores, {}; medians of {} steps", source.text(),
      source.config.layers, source.model_layers, arguments.whole ? " with embedding and head" : "",
      cpu_name(), device->worker_count(), cpu_level_name(level), arguments.steps);
  if (arguments.compare_dual) {
    GAPLESS_TRY(
        print(arguments.json ? dual_json(subject, dual_lines) : dual_text(subject, dual_lines)));
    return 0;
  }
  GAPLESS_TRY(print(arguments.json ? bench_json(subject, lines) : bench_text(subject, lines)));
  return 0;
}

}  // namespace

RunCommand define_bench(CLI::App& command) {
  const std::shared_ptr<BenchArguments> arguments = std::make_shared<BenchArguments>();
  ModelOptions& model = arguments->model;
  model.model = "qwen3-14b";
  model.layers = 1;
  model.seed = 1234;
  command
      .add_option("--model", model.model,
                  "A size like qwen3-0.6b or the folder of a\ncheckpoint (default qwen3-14b)")
      ->option_text("MODEL");
  command.add_option("--dtype", arguments->dtypes, "Of the weights (default a8w8,bf16)")
      ->delimiter(',')
      ->check(CLI::IsMember({"bf16", "f16", "f32", "a8w8"}))
      ->option_text("A,B,...");
  command.add_option("--batch", arguments->batches, "Sequences in a step (default 1,4,16)")
      ->delimiter(',')
      ->option_text("A,B,...");
  command.add_option("--ctx", arguments->contexts, "Tokens of each (default 512,4096)")
      ->delimiter(',')
      ->option_text("A,B,...");
  command.add_option("--dual-gate-up", arguments->dual, "Gate and up as one matmul (default on)")
      ->delimiter(',')
      ->check(CLI::IsMember({"on", "off"}))
      ->option_text("on|off|on,off");
  command.add_flag("--compare-dual", arguments->compare_dual,
                   "Instead: steps with gate and up as one matmul and\nas two, in turn");
  command.add_option("--layers", model.layers, "The first N layers only (default 1)")
      ->option_text("N");
  command.add_flag("--whole", arguments->whole, "All layers, with embedding and head");
  command.add_option("--kv-dtype", model.kv_dtype, "Of keys and values (default: the model's)")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "s8"}))
      ->option_text("bf16|f16|f32|s8");
  command.add_option("--threads", model.threads, "Cores to use (default: all that we may)")
      ->option_text("N");
  command.add_option("--cpu-level", model.cpu_level, "Instructions to use (default: best here)")
      ->check(CLI::IsMember({"portable", "avx2", "avx2-vnni", "avx512", "avx512-bf16"}))
      ->option_text("NAME");
  command.add_option("--page", model.page_tokens, "Tokens of a cache page (default 128)")
      ->option_text("TOKENS");
  command.add_option("--steps", arguments->steps, "Steps of each line (default 20)")
      ->option_text("N");
  command.add_option("--seed", model.seed, "Of weights, inputs and cache (default 1234)")
      ->check(from_zero_on())
      ->option_text("N");
  command.get_option("--whole")->excludes(command.get_option("--layers"));
  command.get_option("--compare-dual")->excludes(command.get_option("--dual-gate-up"));
  command.add_flag("--json", arguments->json, "Everything, as JSON");
  command.footer(
      "OF READ: bytes a second against what this machine reads in the same run. LIMIT: kernel by\n"
      "kernel the larger of bytes at that rate and operations at the measured peak.\n"
      "\n"
      "Examples:\n"
      "  gapless bench\n"
      "  gapless bench --dtype a8w8 --ctx 512 --compare-dual --steps 60\n"
      "  gapless bench --whole --dtype a8w8 --batch 1 --ctx 512 --steps 5");
  return [arguments] { return run_bench(*arguments); };
}

}  // namespace gapless
