// SPDX-License-Identifier: Apache-2.0

#include "cli/cuda_model.h"

#include <memory>
#include <utility>

#include <fmt/core.h>

#include "cli/progress_bar.h"
#include "cuda/device.h"
#include "kernels/kv_cache.h"
#include "model/cuda_decoder.h"
#include "model/cuda_step.h"
#include "model/cuda_weights.h"
#include "profile/cuda_profile.h"

namespace gapless {
namespace {

struct CudaModel {
  std::unique_ptr<CudaModelWeights> weights;
  std::unique_ptr<CudaDecoder> decoder;  // uses the weights
};

// f16 models have an f16 cache, all others a bf16 one.
DType cache_dtype(const ModelOptions& options, const ModelConfig& config) {
  if (!options.kv_dtype.empty()) return *parse_dtype(options.kv_dtype);
  return config.dtype == DType::kF16 ? DType::kF16 : DType::kBf16;
}

// Checks what the decoder would refuse too, but only after the weights are there.
Result<CudaDecoderOptions> cuda_options(const ModelSource& source, const ModelOptions& options,
                                        const DecoderNeeds& needs) {
  const ModelConfig& config = source.config;
  const CudaDecoderOptions wanted = {
      .fusions = fusions_of(options, default_cuda_fusions()),
      .kv_dtype = cache_dtype(options, config),
      .page_tokens = options.page_tokens,
      .max_sequences = needs.max_sequences,
      .max_length = GAPLESS_TRY(checked_context_length(options, config, needs.max_length))};
  GAPLESS_TRY(check_kv_shape({.dtype = wanted.kv_dtype,
                              .kv_heads = config.kv_heads,
                              .head_dim = config.head_dim,
                              .page_tokens = wanted.page_tokens}));
  return wanted;
}

// Weights and cache beside each other, before the first of them takes its time.
Result<void> check_memory(const ModelSource& source, const WeightOptions& weights,
                          const CudaDecoderOptions& decoder) {
  const int64_t weight_bytes =
      GAPLESS_TRY(cuda_weights_bytes(source.config, weights, source.config.dtype));
  return check_cuda_decoder_memory(source.config, weights, decoder, weight_bytes,
                                   GAPLESS_TRY(cuda_memory()));
}

Result<CudaModelWeights> make_weights(const ModelSource& source, const ModelOptions& options,
                                      WeightOptions wanted) {
  ProgressBar bar(source.checkpoint ? "packing weights" : "making weights", ProgressUnit::kBytes);
  wanted.progress = bar.callback();
  if (source.checkpoint) return load_cuda_weights(source.checkpoint, wanted);
  return make_synthetic_cuda_weights(source.config, options.seed, wanted);
}

Result<CudaModel> make_model(const ModelSource& source, const ModelOptions& options, DType dtype,
                             const DecoderNeeds& needs) {
  GAPLESS_TRY(check_device_dtype(options, dtype));
  const CudaDecoderOptions wanted = GAPLESS_TRY(cuda_options(source, options, needs));
  WeightOptions weight_wishes =
      GAPLESS_TRY(weight_options(source, options, dtype, needs.with_head));
  weight_wishes.dual_gate_up = wanted.fusions.dual_gate_up;
  GAPLESS_TRY(check_memory(source, weight_wishes, wanted));
  CudaModelWeights weights = GAPLESS_TRY(make_weights(source, options, std::move(weight_wishes)));
  CudaModel model;
  model.weights = std::make_unique<CudaModelWeights>(std::move(weights));
  model.decoder = GAPLESS_TRY(CudaDecoder::create(*model.weights, wanted));
  return model;
}

// What the reference computes with: the same numbers, on the CPU.
Result<std::unique_ptr<ModelWeights>> first_layer_weights(const ModelSource& source,
                                                          const ModelOptions& options,
                                                          DType dtype) {
  ModelSource first = source;
  first.config.layers = 1;
  return load_model_weights(first, options, dtype, false);
}

Result<ProfileSubject> subject_of(const ModelSource& source, const CudaDecoder& decoder,
                                  const ProfileOptions& profile) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  return ProfileSubject{.model = source.text(),
                        .dtype = std::string(weights_dtype_name(decoder.weights().dtype)),
                        .kv_dtype = std::string(dtype_name(decoder.options().kv_dtype)),
                        .device = "cuda",
                        .machine = limits.name,
                        .core_count = limits.sm_count,
                        .model_layers = source.model_layers,
                        .page_tokens = decoder.options().page_tokens,
                        .fusions = decoder.options().fusions,
                        .lengths = profile.lengths,
                        .trace_path = profile.trace_path,
                        .perfetto_path = {}};
}

}  // namespace

Result<std::string> find_cuda_device() {
  const Result<CudaLimits> limits = cuda_limits();
  if (!limits) return fail(ErrorCode::kSystem, "no CUDA device: {}", limits.error().message);
  return fmt::format("{}, {} SMs", limits->name, limits->sm_count);
}

Result<LoadedModel> load_cuda_model(const ModelSource& source, const ModelOptions& options,
                                    DType dtype, const DecoderNeeds& needs) {
  CudaModel made = GAPLESS_TRY(make_model(source, options, dtype, needs));
  LoadedModel model;
  model.dtype = dtype;
  model.kv_dtype = made.decoder->options().kv_dtype;
  model.weights = std::move(made.weights);
  model.decoder = std::move(made.decoder);
  return model;
}

Result<ModelProfile> profile_cuda_model(const ModelSource& source, const ModelOptions& options,
                                        DType dtype, const DecoderNeeds& needs,
                                        const ProfileOptions& profile) {
  const CudaModel model = GAPLESS_TRY(make_model(source, options, dtype, needs));
  std::unique_ptr<ModelWeights> first;
  if (profile.validate) first = GAPLESS_TRY(first_layer_weights(source, options, dtype));
  ModelProfile made;
  made.result = GAPLESS_TRY(
      profile_cuda_steps(*model.decoder, first ? &first->layers.front() : nullptr, profile));
  made.subject = GAPLESS_TRY(subject_of(source, *model.decoder, profile));
  return made;
}

}  // namespace gapless
