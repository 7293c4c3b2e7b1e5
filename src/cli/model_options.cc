// SPDX-License-Identifier: Apache-2.0

#include "cli/model_options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/ranges.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/cuda_model.h"
#include "cli/progress_bar.h"
#include "kernels/cpu_level.h"
#include "kernels/kv_cache.h"

namespace gapless {
namespace {

void add_switch(CLI::App& command, const std::string& name, std::string& value,
                const std::string& description) {
  command.add_option(name, value, description)
      ->check(CLI::IsMember({"on", "off"}))
      ->option_text("on|off");
}

// Nothing typed leaves the default.
bool switched(const std::string& typed, bool default_value) {
  return typed.empty() ? default_value : typed == "on";
}

Error unknown_model(const std::string& model) {
  return fail(ErrorCode::kInvalidInput,
              "{}: is neither the folder of a checkpoint nor a model that we know: {}", model,
              fmt::join(model_names(), ", "));
}

Result<ModelWeights> make_weights(const ModelSource& source, const ModelOptions& options,
                                  DType dtype, bool with_head) {
  WeightOptions wanted = GAPLESS_TRY(weight_options(source, options, dtype, with_head));
  ProgressBar bar(source.checkpoint ? "packing weights" : "making weights", ProgressUnit::kBytes);
  wanted.progress = bar.callback();
  if (source.checkpoint) return load_weights(source.checkpoint, wanted);
  return make_synthetic_weights(source.config, options.seed, wanted);
}

// As for weights: a process that touches more memory than there is gets killed.
Result<void> check_cache_memory(const ModelConfig& config, const CpuDecoderOptions& options) {
  const int64_t bytes = kv_cache_bytes(config, options);
  const int64_t available = available_memory_bytes();
  if (bytes <= available) return {};
  return fail(ErrorCode::kSystem,
              "keys and values of {} sequences of {} tokens in {} layers take {:.1f} GB of memory, "
              "and {:.1f} GB are free; take fewer or shorter ones, or a smaller --kv-dtype",
              options.max_sequences, options.max_length, config.layers,
              static_cast<double>(bytes) * 1e-9, static_cast<double>(available) * 1e-9);
}

// Checks what the decoder would refuse too, but only after the weights are packed.
Result<CpuDecoderOptions> decoder_options(const ModelSource& source, const ModelOptions& options,
                                          DType dtype, const DecoderNeeds& needs) {
  const ModelConfig& config = source.config;
  const CpuDecoderOptions wanted{
      .fusions = fusions_of(options, dtype),
      .level = GAPLESS_TRY(choose_cpu_level(options.cpu_level)),
      .kv_dtype = options.kv_dtype.empty() ? config.dtype : *parse_dtype(options.kv_dtype),
      .page_tokens = options.page_tokens,
      .max_sequences = needs.max_sequences,
      .max_length = GAPLESS_TRY(checked_context_length(options, config, needs.max_length))};
  GAPLESS_TRY(check_kv_shape({.dtype = wanted.kv_dtype,
                              .kv_heads = config.kv_heads,
                              .head_dim = config.head_dim,
                              .page_tokens = wanted.page_tokens}));
  GAPLESS_TRY(check_cache_memory(config, wanted));
  return wanted;
}

}  // namespace

void add_model_argument(CLI::App& command, ModelOptions& options) {
  command
      .add_option("MODEL", options.model,
                  "The folder of a Qwen3 checkpoint, or a size like\n"
                  "qwen3-0.6b with weights that nobody trained")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
}

void add_fusion_options(CLI::App& command, ModelOptions& options) {
  add_switch(command, "--dual-gate-up", options.dual_gate_up,
             "Gate and up as one matmul (default on)");
  add_switch(command, "--fuse-qk-rope", options.fuse_qk_rope,
             "Head norm, rope and cache write as one (default on)");
  add_switch(command, "--defer-norm", options.defer_norm,
             "1/rms behind the projection (default on; off for\nf16, and on a GPU)");
  add_switch(command, "--fuse-residual", options.fuse_residual,
             "Residual added by the projection (default on)");
}

void add_device_option(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--device", options.device,
                  "Where it runs: cores, or an NVIDIA GPU\n(default cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->option_text("cpu|cuda");
}

void add_model_options(CLI::App& command, ModelOptions& options, const std::string& seed_is_for) {
  command
      .add_option("--dtype", options.dtype,
                  "Of the weights; a8w8: s8 with s8 activations\n(default: what the checkpoint is)")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "a8w8"}))
      ->option_text("bf16|f16|f32|a8w8");
  command
      .add_option("--kv-dtype", options.kv_dtype,
                  "Of keys and values (default: what the model\ncomputes in)")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "s8"}))
      ->option_text("bf16|f16|f32|s8");
  const std::string layers = options.layers == 0 ? "all" : std::to_string(options.layers);
  command
      .add_option("--layers", options.layers,
                  fmt::format("The first N layers only (default {})", layers))
      ->type_name("N");
  command.add_option("--threads", options.threads, "Cores to use (default: all that we may)")
      ->type_name("N");
  command.add_option("--cpu-level", options.cpu_level, "Instructions to use (default: best here)")
      ->check(CLI::IsMember({"portable", "avx2", "avx2-vnni", "avx512", "avx512-bf16"}))
      ->option_text("NAME");
  command.add_option("--page", options.page_tokens, "Tokens of a cache page (default 128)")
      ->option_text("TOKENS");
  command
      .add_option("--max-length", options.max_length,
                  "Tokens that a sequence may have (default:\nwhat is needed)")
      ->option_text("TOKENS");
  add_fusion_options(command, options);
  command
      .add_option("--seed", options.seed,
                  fmt::format("Of weights that nobody trained{} (default {})",
                              seed_is_for.empty() ? "" : ",\n" + seed_is_for, options.seed))
      ->check(from_zero_on())
      ->type_name("N");
}

std::string ModelSource::text() const {
  return checkpoint ? config.name : config.name + ", synthetic weights";
}

Result<ModelSource> find_model(const ModelOptions& options) {
  ModelSource source;
  if (is_directory(options.model)) {
    Checkpoint checkpoint = GAPLESS_TRY(Checkpoint::open(options.model));
    source.checkpoint = std::make_shared<const Checkpoint>(std::move(checkpoint));
    source.config = source.checkpoint->config();
  } else {
    const Result<ModelConfig> config = find_model_config(options.model);
    if (!config) return unknown_model(options.model);
    source.config = *config;
  }
  if (options.layers < 0 || options.layers > source.config.layers)
    return fail(ErrorCode::kInvalidInput, "--layers {}; model '{}' has 1 to {}", options.layers,
                source.config.name, source.config.layers);
  source.model_layers = source.config.layers;
  if (options.layers > 0) source.config.layers = options.layers;
  return source;
}

Result<std::optional<Tokenizer>> find_tokenizer(const ModelSource& source) {
  if (!source.checkpoint) return std::optional<Tokenizer>();
  const std::string path = source.checkpoint->folder() + "/tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::optional<Tokenizer>();
  Tokenizer tokenizer = GAPLESS_TRY(Tokenizer::load(path));
  if (tokenizer.id_count() > source.config.vocabulary)
    return fail(ErrorCode::kInvalidInput,
                "{}: has {} ids, the model has embeddings for {}; they are not of the same model",
                path, tokenizer.id_count(), source.config.vocabulary);
  return std::optional<Tokenizer>(std::move(tokenizer));
}

DType weights_dtype(const ModelOptions& options, const ModelConfig& config) {
  if (options.dtype.empty()) return config.quantized ? DType::kS8 : config.dtype;
  return options.dtype == "a8w8" ? DType::kS8 : *parse_dtype(options.dtype);
}

std::string_view weights_dtype_name(DType dtype) {
  return dtype == DType::kS8 ? "a8w8" : dtype_name(dtype);
}

Fusions fusions_of(const ModelOptions& options, DType weights) {
  return fusions_of(options, default_fusions(weights));
}

Fusions fusions_of(const ModelOptions& options, const Fusions& defaults) {
  return {.dual_gate_up = switched(options.dual_gate_up, defaults.dual_gate_up),
          .qk_norm_rope = switched(options.fuse_qk_rope, defaults.qk_norm_rope),
          .deferred_norm = switched(options.defer_norm, defaults.deferred_norm),
          .residual = switched(options.fuse_residual, defaults.residual)};
}

Result<void> check_device_options(const ModelOptions& options) {
  if (options.device == "cpu") return {};
  if (options.threads != 0)
    return fail(ErrorCode::kUsage, "--threads {} is of the CPU; --device cuda uses all SMs",
                options.threads);
  if (!options.cpu_level.empty())
    return fail(ErrorCode::kUsage, "--cpu-level {} is of the CPU; --device cuda has none",
                options.cpu_level);
  if (options.kv_dtype == "f32" || options.kv_dtype == "s8")
    return fail(ErrorCode::kUsage, "--kv-dtype {}; --device cuda has bf16 and f16",
                options.kv_dtype);
  if (options.dtype.empty()) return {};
  return check_device_dtype(options,
                            options.dtype == "a8w8" ? DType::kS8 : *parse_dtype(options.dtype));
}

Result<void> check_device_dtype(const ModelOptions& options, DType weights) {
  if (options.device == "cpu" || weights == DType::kBf16 || weights == DType::kS8) return {};
  if (!options.dtype.empty())
    return fail(ErrorCode::kUsage, "--dtype {}; --device cuda has bf16 and a8w8", options.dtype);
  return fail(ErrorCode::kUsage,
              "{}: is of {}; --device cuda has bf16 and a8w8: choose one with --dtype",
              options.model, weights_dtype_name(weights));
}

Result<std::unique_ptr<CpuDevice>> make_device(const ModelOptions& options) {
  if (options.threads < 0)
    return fail(ErrorCode::kUsage, "--threads {}; must be 1 or more, or 0 for all",
                options.threads);
  return CpuDevice::create({.worker_count = options.threads});
}

Result<ModelDevice> open_device(const ModelOptions& options) {
  if (options.device == "cuda") {
    std::string text = GAPLESS_TRY(find_cuda_device());
    return ModelDevice{.cpu = nullptr, .level = {}, .text = std::move(text)};
  }
  const CpuLevel level = GAPLESS_TRY(choose_cpu_level(options.cpu_level));
  ModelDevice device{.cpu = GAPLESS_TRY(make_device(options)),
                     .level = std::string(cpu_level_name(level)),
                     .text = {}};
  const int count = device.cpu->worker_count();
  device.text = fmt::format("{} core{}, {}", count, count == 1 ? "" : "s", device.level);
  return device;
}

int context_length(const ModelOptions& options, const ModelConfig& config, int needed) {
  return options.max_length != 0 ? options.max_length : std::min(needed, config.max_positions);
}

Result<int> checked_context_length(const ModelOptions& options, const ModelConfig& config,
                                   int needed) {
  const int length = context_length(options, config, needed);
  if (length < 1 || length > config.max_positions)
    return fail(ErrorCode::kInvalidInput, "--max-length {}; model '{}' has positions for 1 to {}",
                length, config.name, config.max_positions);
  return length;
}

Result<WeightOptions> weight_options(const ModelSource& source, const ModelOptions& options,
                                     DType dtype, bool with_head) {
  if (source.config.quantized && dtype != DType::kS8)
    return fail(ErrorCode::kInvalidInput,
                "{}: has A8W8 weights; {} needs the checkpoint that they were made from",
                options.model, weights_dtype_name(dtype));
  return WeightOptions{.dtype = dtype,
                       .dual_gate_up = fusions_of(options, dtype).dual_gate_up,
                       .layers = source.config.layers,
                       .with_head = with_head,
                       .thread_count = options.threads};
}

Result<std::unique_ptr<ModelWeights>> load_model_weights(const ModelSource& source,
                                                         const ModelOptions& options, DType dtype,
                                                         bool with_head) {
  ModelWeights weights = GAPLESS_TRY(make_weights(source, options, dtype, with_head));
  return std::make_unique<ModelWeights>(std::move(weights));
}

Result<std::unique_ptr<CpuDecoder>> make_decoder(const ModelSource& source,
                                                 const ModelOptions& options,
                                                 const ModelWeights& weights,
                                                 const DecoderNeeds& needs, CpuDevice& device) {
  const CpuDecoderOptions wanted =
      GAPLESS_TRY(decoder_options(source, options, weights.dtype, needs));
  return CpuDecoder::create(device, weights, wanted);
}

Result<CpuModel> load_cpu_model(const ModelSource& source, const ModelOptions& options, DType dtype,
                                const DecoderNeeds& needs, CpuDevice& device) {
  GAPLESS_TRY(decoder_options(source, options, dtype, needs));
  CpuModel model;
  model.weights = GAPLESS_TRY(load_model_weights(source, options, dtype, needs.with_head));
  model.decoder = GAPLESS_TRY(make_decoder(source, options, *model.weights, needs, device));
  return model;
}

Result<LoadedModel> load_model(const ModelSource& source, const ModelOptions& options, DType dtype,
                               const DecoderNeeds& needs, ModelDevice& device) {
  if (!device.cpu) return load_cuda_model(source, options, dtype, needs);
  CpuModel made = GAPLESS_TRY(load_cpu_model(source, options, dtype, needs, *device.cpu));
  LoadedModel model;
  model.dtype = dtype;
  model.kv_dtype = made.decoder->options().kv_dtype;
  model.weights = std::move(made.weights);
  model.decoder = std::move(made.decoder);
  return model;
}

Result<std::vector<int32_t>> parse_tokens(std::string_view text, const ModelConfig& config) {
  std::vector<int32_t> tokens;
  while (true) {
    const std::string_view piece = text.substr(0, text.find(','));
    int32_t token = 0;
    const std::from_chars_result read =
        std::from_chars(piece.data(), piece.data() + piece.size(), token);
    if (piece.empty() || read.ec != std::errc() || read.ptr != piece.data() + piece.size())
      return fail(ErrorCode::kUsage, "--tokens: '{}' is not a token; they look like 1,17,99",
                  piece);
    if (token < 0 || token >= config.vocabulary)
      return fail(ErrorCode::kInvalidInput, "--tokens: {}; model '{}' has tokens 0 to {}", token,
                  config.name, config.vocabulary - 1);
    tokens.push_back(token);
    if (piece.size() == text.size()) return tokens;
    text.remove_prefix(piece.size() + 1);
  }
}

}  // namespace gapless
