// SPDX-License-Identifier: Apache-2.0
//
// What the commands that run a model share: its options, and the way from these to a decoder.
//
//   add_model_argument, add_model_options   MODEL and --dtype, --threads, ...
//   find_model                              opens the checkpoint, or looks up the name
//   open_device                             the cores, or the GPU
//   load_model                              packs the weights, creates the decoder

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/dtype.h"
#include "base/result.h"
#include "model/checkpoint.h"
#include "model/cpu_decoder.h"
#include "model/decoder.h"
#include "model/model_config.h"
#include "model/tokenizer.h"
#include "model/weights.h"
#include "runtime/cpu_device.h"

namespace gapless {

// As they were typed; empty or 0 where a default follows from the model.
struct ModelOptions {
  std::string model;  // a folder, or the name of a published size: synthetic weights
  uint64_t seed = 0;
  std::string device = "cpu";  // or "cuda"
  std::string dtype;           // bf16, f16, f32 or a8w8; empty: what the checkpoint is
  std::string kv_dtype;        // empty: what the model computes in
  int layers = 0;              // the first so many
  int threads = 0;
  std::string cpu_level;
  int page_tokens = 128;
  int max_length = 0;
  std::string dual_gate_up;  // on, off; empty: default_fusions()
  std::string fuse_qk_rope;
  std::string defer_norm;
  std::string fuse_residual;
};

// MODEL, which must be given.
void add_model_argument(CLI::App& command, ModelOptions& options);
// --dual-gate-up and the other fusions.
void add_fusion_options(CLI::App& command, ModelOptions& options);
// --device, of the commands that run on a GPU too.
void add_device_option(CLI::App& command, ModelOptions& options);
// All others, fusions included. `seed_is_for` says in the help what else the seed is used for; may
// be empty.
void add_model_options(CLI::App& command, ModelOptions& options, const std::string& seed_is_for);

struct ModelSource {
  std::shared_ptr<const Checkpoint> checkpoint;  // null: synthetic weights
  ModelConfig config;                            // with the layers that are wanted
  int model_layers = 0;                          // that the whole model has
  // "bf16-gqa4", "qwen3-14b, synthetic weights"
  std::string text() const;
};
Result<ModelSource> find_model(const ModelOptions& options);

// The checkpoint's tokenizer.json; nothing when there is none. Error when it has more ids than the
// model has embeddings.
Result<std::optional<Tokenizer>> find_tokenizer(const ModelSource& source);

// Of the projections: kS8 is A8W8.
DType weights_dtype(const ModelOptions& options, const ModelConfig& config);
// "bf16", "a8w8": as --dtype names it.
std::string_view weights_dtype_name(DType dtype);
// What was typed, else the defaults: given, or those of the CPU.
Fusions fusions_of(const ModelOptions& options, const Fusions& defaults);
Fusions fusions_of(const ModelOptions& options, DType weights);

// What was typed and the device does not have is an error of the command line, whether or not there
// is such a device: nothing is passed over in silence.
Result<void> check_device_options(const ModelOptions& options);
// The same of the weights' type, which may be the checkpoint's.
Result<void> check_device_dtype(const ModelOptions& options, DType weights);

Result<std::unique_ptr<CpuDevice>> make_device(const ModelOptions& options);

// Where models run.
struct ModelDevice {
  std::unique_ptr<CpuDevice> cpu;  // null: the GPU
  std::string level;               // of the CPU
  std::string text;                // "2 cores, avx512", "NVIDIA H200, 132 SMs"
};
Result<ModelDevice> open_device(const ModelOptions& options);

struct DecoderNeeds {
  int max_sequences = 1;
  int max_length = 0;     // --max-length comes before it, the model's positions limit it
  bool with_head = true;  // embedding and head too
};
// The tokens that a sequence may have.
int context_length(const ModelOptions& options, const ModelConfig& config, int needed);
// The same; an error when the model has no positions for them.
Result<int> checked_context_length(const ModelOptions& options, const ModelConfig& config,
                                   int needed);

// With a progress bar while weights are packed. `dtype` is that of the projections.
Result<std::unique_ptr<ModelWeights>> load_model_weights(const ModelSource& source,
                                                         const ModelOptions& options, DType dtype,
                                                         bool with_head);
// What they are made with; the progress is the caller's. An error when the checkpoint cannot be had
// in this type.
Result<WeightOptions> weight_options(const ModelSource& source, const ModelOptions& options,
                                     DType dtype, bool with_head);
// The weights and the device outlive the decoder.
Result<std::unique_ptr<CpuDecoder>> make_decoder(const ModelSource& source,
                                                 const ModelOptions& options,
                                                 const ModelWeights& weights,
                                                 const DecoderNeeds& needs, CpuDevice& device);

struct CpuModel {
  std::unique_ptr<ModelWeights> weights;
  std::unique_ptr<CpuDecoder> decoder;  // uses the weights and the device
};
// Both.
Result<CpuModel> load_cpu_model(const ModelSource& source, const ModelOptions& options, DType dtype,
                                const DecoderNeeds& needs, CpuDevice& device);

// A model on any device.
struct LoadedModel {
  std::shared_ptr<const void> weights;  // of the device's kind; nobody but the decoder reads them
  std::unique_ptr<Decoder> decoder;     // uses the weights and the device
  DType dtype = DType::kBf16;           // of the projections
  DType kv_dtype = DType::kBf16;
};
Result<LoadedModel> load_model(const ModelSource& source, const ModelOptions& options, DType dtype,
                               const DecoderNeeds& needs, ModelDevice& device);

// "1,17,4096": at least one token, all of them in the vocabulary.
Result<std::vector<int32_t>> parse_tokens(std::string_view text, const ModelConfig& config);

}  // namespace gapless
