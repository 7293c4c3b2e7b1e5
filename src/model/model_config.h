// SPDX-License-Identifier: Apache-2.0
//
// ModelConfig: the figures of a dense Qwen3 model, by name or from a checkpoint's config.json, and
// the table of the weights that such a model has.
//
// A config.json that asks for something we do not compute (biases, a sliding window, scaled rotary
// positions, another activation) is refused: a model that runs and is wrong is worse than none.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace gapless {

struct ModelConfig {
  std::string name;
  int layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  int max_positions = 0;
  double rope_theta = 0.0;
  double rms_eps = 0.0;
  bool tied_embeddings = false;  // the output head is the embedding table
  DType dtype = DType::kBf16;    // what the model computes in: kBf16, kF16 or kF32
  // The checkpoint has its projections as s8 with a scale for each row: `gapless quantize`.
  bool quantized = false;
  bool operator==(const ModelConfig&) const = default;
};

// Every number in its range, heads that divide. `source` begins the message: a file or a name.
Result<void> check_model_config(const ModelConfig& config, const std::string& source);

// The published sizes: qwen3-0.6b, -1.7b, -4b, -8b, -14b, -32b. Upper and lower case are the same.
std::vector<std::string> model_names();
Result<ModelConfig> find_model_config(std::string_view name);

// The text of a config.json; `path` is for messages. `name` stays empty.
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& path);

// How its makers want text to be generated; everything is optional.
struct GenerationConfig {
  std::vector<int32_t> eos_tokens = {};  // each of them ends the text
  std::optional<bool> do_sample = {};    // false: greedy, whatever the figures below say
  std::optional<double> temperature = {};
  std::optional<int> top_k = {};
  std::optional<double> top_p = {};
  bool operator==(const GenerationConfig&) const = default;
};

// The text of a generation_config.json (or config.json, which may have the same keys).
Result<GenerationConfig> parse_generation_config(std::string_view text, const std::string& path,
                                                 int vocabulary);

// The weights of a layer, in the order in which a token meets them.
enum class LayerWeight : uint8_t {
  kInputNorm,
  kQ,
  kK,
  kV,
  kQNorm,
  kKNorm,
  kOut,
  kPostNorm,
  kGate,
  kUp,
  kDown,
};
inline constexpr int kLayerWeightCount = 11;

inline constexpr std::string_view kEmbeddingName = "model.embed_tokens.weight";
inline constexpr std::string_view kFinalNormName = "model.norm.weight";
inline constexpr std::string_view kHeadName = "lm_head.weight";

// "model.layers.7.self_attn.q_proj.weight"
std::string layer_weight_name(int layer, LayerWeight weight);
// "....q_proj.weight_scale": the scales of the rows of a quantised matrix.
std::string scale_name(std::string_view weight_name);
// Whether it is a projection, and not a norm: what is quantised.
bool is_matrix(LayerWeight weight);
// (outputs, inputs) of a matrix, (size) of a norm.
std::vector<int64_t> layer_weight_shape(const ModelConfig& config, LayerWeight weight);

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<DType> dtypes;  // any of these
};

// The quant_method in config.json of the one scheme there is: weights s8 with a scale for each row
// (output channel), activations s8 with a scale for each token, made when they come.
inline constexpr std::string_view kQuantMethod = "gapless-a8w8";

// Every weight of the model in bf16, f16 or f32; lm_head only when embeddings are not tied. In a
// quantised checkpoint matrices of layers are s8, each with its scales (f32) behind it.
std::vector<ExpectedTensor> expected_weights(const ModelConfig& config);
// Elements of all of them; scales do not count.
int64_t parameter_count(const ModelConfig& config);

}  // namespace gapless
