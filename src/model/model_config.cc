// SPDX-License-Identifier: Apache-2.0

#include "model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "kernels/attention.h"
#include "kernels/kv_cache.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr int kMaxLayers = 1024;
constexpr int kMaxHidden = 1 << 16;
constexpr int kMaxIntermediate = 1 << 20;
constexpr int kMaxQHeads = 4096;
constexpr int kMaxVocabulary = 1 << 24;
constexpr int kMaxPositions = 1 << 24;
constexpr int kDefaultHeadDim = 128;  // of transformers, when config.json does not say
constexpr size_t kShownValueBytes = 60;

struct PublishedSize {
  std::string_view name;
  int layers;
  int hidden;
  int intermediate;
  int q_heads;
  bool tied_embeddings;
};

// The config.json files of Qwen/Qwen3-* on huggingface.co; what all have in common is below.
constexpr std::array<PublishedSize, 6> kPublishedSizes = {{
    {"qwen3-0.6b", 28, 1024, 3072, 16, true},
    {"qwen3-1.7b", 28, 2048, 6144, 16, true},
    {"qwen3-4b", 36, 2560, 9728, 32, true},
    {"qwen3-8b", 36, 4096, 12288, 32, false},
    {"qwen3-14b", 40, 5120, 17408, 40, false},
    {"qwen3-32b", 64, 5120, 25600, 64, false},
}};

ModelConfig published_config(const PublishedSize& size) {
  return {.name = std::string(size.name),
          .layers = size.layers,
          .hidden = size.hidden,
          .intermediate = size.intermediate,
          .q_heads = size.q_heads,
          .kv_heads = 8,
          .head_dim = 128,
          .vocabulary = 151936,
          .max_positions = 40960,
          .rope_theta = 1e6,
          .rms_eps = 1e-6,
          .tied_embeddings = size.tied_embeddings,
          .dtype = DType::kBf16};
}

// A value for a message. Lists and objects are only named: they may be of any size and depth.
std::string shown(const json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kShownValueBytes) text = text.substr(0, kShownValueBytes) + "...";
  return text;
}

// One JSON object of a file, asked key by key. A key that is null is as good as not there.
class Fields {
 public:
  Fields(const json& object, std::string path) : object_(object), path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  Error wrong(const char* key, std::string_view wanted) const {
    const json* value = find(key);
    if (value == nullptr) {
      return fail(ErrorCode::kInvalidInput, "{}: {} is missing; it must be {}", path_, key, wanted);
    }
    return fail(ErrorCode::kInvalidInput, "{}: {} is {}; it must be {}", path_, key, shown(*value),
                wanted);
  }

  Result<std::optional<int>> integer_or_none(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::optional<int>();
    constexpr std::string_view kWanted = "a whole number from 0 to 2147483647";
    if (!value->is_number_unsigned()) return wrong(key, kWanted);
    const uint64_t number = value->get<uint64_t>();
    if (number > std::numeric_limits<int>::max()) return wrong(key, kWanted);
    return std::optional<int>(static_cast<int>(number));
  }

  Result<int> integer(const char* key) const {
    const std::optional<int> value = GAPLESS_TRY(integer_or_none(key));
    if (!value) return wrong(key, "a whole number");
    return *value;
  }

  Result<std::optional<double>> number_or_none(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::optional<double>();
    if (!value->is_number()) return wrong(key, "a number");
    return std::optional<double>(value->get<double>());
  }

  Result<std::optional<bool>> truth_or_none(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::optional<bool>();
    if (!value->is_boolean()) return wrong(key, "true or false");
    return std::optional<bool>(value->get<bool>());
  }

  // Empty when it is not there.
  Result<std::string> text(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return wrong(key, "a text");
    return value->get<std::string>();
  }

 private:
  const json& object_;
  std::string path_;
};

Result<json> parse_object(std::string_view text, const std::string& path) {
  json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) {
    return fail(ErrorCode::kInvalidInput, "{}: is not valid JSON; download it again", path);
  }
  if (!object.is_object()) {
    return fail(ErrorCode::kInvalidInput, "{}: holds {} and not an object", path, shown(object));
  }
  return object;
}

// What the figures do not say, but would change the result.
Result<void> check_architecture(const Fields& fields) {
  const std::string model_type = GAPLESS_TRY(fields.text("model_type"));
  if (model_type != "qwen3") return fields.wrong("model_type", "\"qwen3\", a dense Qwen3 model");
  const std::string activation = GAPLESS_TRY(fields.text("hidden_act"));
  if (!activation.empty() && activation != "silu") {
    return fields.wrong("hidden_act", "\"silu\", the only activation here");
  }
  if (GAPLESS_TRY(fields.truth_or_none("attention_bias")).value_or(false)) {
    return fields.wrong("attention_bias", "false: projections with a bias are not supported");
  }
  const bool use_window = GAPLESS_TRY(fields.truth_or_none("use_sliding_window")).value_or(false);
  if (use_window && fields.find("sliding_window") != nullptr) {
    return fields.wrong("use_sliding_window", "false: sliding windows are not supported");
  }
  const json* layer_types = fields.find("layer_types");
  if (layer_types == nullptr) return {};
  if (!layer_types->is_array()) return fields.wrong("layer_types", "a list");
  for (const json& type : *layer_types) {
    if (type == "full_attention") continue;
    return fail(ErrorCode::kInvalidInput,
                "{}: layer_types has {}; only \"full_attention\" is supported", fields.path(),
                shown(type));
  }
  return {};
}

// Rotary positions of one of the places where transformers has kept them over the years.
Result<std::optional<double>> read_rope_section(const Fields& fields, const char* key) {
  const json* section = fields.find(key);
  if (section == nullptr) return std::optional<double>();
  if (!section->is_object()) return fields.wrong(key, "an object");
  const Fields rope(*section, fmt::format("{}: {}", fields.path(), key));
  for (const char* type_key : {"rope_type", "type"}) {
    const std::string type = GAPLESS_TRY(rope.text(type_key));
    if (!type.empty() && type != "default") {
      return rope.wrong(type_key, "\"default\": scaled rotary positions are not supported");
    }
  }
  const std::optional<double> part = GAPLESS_TRY(rope.number_or_none("partial_rotary_factor"));
  if (part.value_or(1.0) != 1.0) return rope.wrong("partial_rotary_factor", "1");
  return rope.number_or_none("rope_theta");
}

Result<double> read_rope_theta(const Fields& fields) {
  std::optional<double> theta = GAPLESS_TRY(fields.number_or_none("rope_theta"));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const std::optional<double> other = GAPLESS_TRY(read_rope_section(fields, key));
    if (theta && other && *theta != *other) {
      return fail(
          ErrorCode::kInvalidInput,
          "{}: rope_theta is {} and in {} it is {}; keep the one the model was trained with",
          fields.path(), *theta, key, *other);
    }
    if (other) theta = other;
  }
  if (!theta) return fields.wrong("rope_theta", "a number, here or in rope_parameters");
  return *theta;
}

Result<DType> read_dtype(const Fields& fields) {
  const std::string text = GAPLESS_TRY(fields.text("dtype"));
  const std::string old_text = GAPLESS_TRY(fields.text("torch_dtype"));
  if (!text.empty() && !old_text.empty() && text != old_text) {
    return fail(ErrorCode::kInvalidInput,
                "{}: dtype is \"{}\" and torch_dtype is \"{}\"; remove the wrong one",
                fields.path(), text, old_text);
  }
  const char* key = text.empty() && !old_text.empty() ? "torch_dtype" : "dtype";
  const std::string& name = text.empty() ? old_text : text;
  if (name == "bfloat16") return DType::kBf16;
  if (name == "float16") return DType::kF16;
  if (name == "float32") return DType::kF32;
  return fields.wrong(key, "\"bfloat16\", \"float16\" or \"float32\"");
}

// False when nothing is quantised. Another scheme than ours would be read as numbers that it does
// not mean.
Result<bool> read_quantized(const Fields& fields) {
  const json* section = fields.find("quantization_config");
  if (section == nullptr) return false;
  if (!section->is_object()) return fields.wrong("quantization_config", "an object");
  const Fields scheme(*section, fmt::format("{}: quantization_config", fields.path()));
  if (GAPLESS_TRY(scheme.text("quant_method")) == kQuantMethod) return true;
  return scheme.wrong(
      "quant_method",
      fmt::format("\"{}\", made from the bf16 model by `gapless quantize`", kQuantMethod));
}

struct Range {
  const char* key;
  int value;
  int high;
};

Result<void> check_heads(const ModelConfig& config, const std::string& source) {
  if (config.head_dim != 64 && config.head_dim != 128 && config.head_dim != 256) {
    return fail(ErrorCode::kInvalidInput, "{}: head_dim is {}; the attention knows 64, 128 and 256",
                source, config.head_dim);
  }
  if (config.q_heads % config.kv_heads != 0) {
    return fail(ErrorCode::kInvalidInput,
                "{}: num_attention_heads is {}, which is not a multiple of num_key_value_heads, {}",
                source, config.q_heads, config.kv_heads);
  }
  if (config.q_heads / config.kv_heads > kMaxGroupHeads) {
    return fail(ErrorCode::kInvalidInput,
                "{}: {} query heads share {} key and value heads; at most {} may share one", source,
                config.q_heads, config.kv_heads, kMaxGroupHeads);
  }
  return {};
}

// In the order of LayerWeight.
constexpr std::array<std::string_view, kLayerWeightCount> kLayerWeightSuffixes = {
    "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.q_norm", "self_attn.k_norm", "self_attn.o_proj", "post_attention_layernorm",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",
};

Result<int32_t> read_eos_token(const Fields& fields, const json& value, int vocabulary) {
  if (value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(vocabulary)) {
    return value.get<int32_t>();
  }
  return fail(ErrorCode::kInvalidInput,
              "{}: eos_token_id has {}; it must be a token or a list of tokens from 0 to {}",
              fields.path(), shown(value), vocabulary - 1);
}

Result<std::vector<int32_t>> read_eos_tokens(const Fields& fields, int vocabulary) {
  const json* value = fields.find("eos_token_id");
  std::vector<int32_t> tokens;
  if (value == nullptr) return tokens;
  if (!value->is_array()) {
    tokens.push_back(GAPLESS_TRY(read_eos_token(fields, *value, vocabulary)));
    return tokens;
  }
  for (const json& token : *value) {
    tokens.push_back(GAPLESS_TRY(read_eos_token(fields, token, vocabulary)));
  }
  return tokens;
}

}  // namespace

Result<void> check_model_config(const ModelConfig& config, const std::string& source) {
  const std::array<Range, 7> ranges = {{
      {"num_hidden_layers", config.layers, kMaxLayers},
      {"hidden_size", config.hidden, kMaxHidden},
      {"intermediate_size", config.intermediate, kMaxIntermediate},
      {"num_attention_heads", config.q_heads, kMaxQHeads},
      {"num_key_value_heads", config.kv_heads, kMaxKvHeads},
      {"vocab_size", config.vocabulary, kMaxVocabulary},
      {"max_position_embeddings", config.max_positions, kMaxPositions},
  }};
  for (const Range& range : ranges) {
    if (range.value >= 1 && range.value <= range.high) continue;
    return fail(ErrorCode::kInvalidInput, "{}: {} is {}; it must be from 1 to {}", source,
                range.key, range.value, range.high);
  }
  GAPLESS_TRY(check_heads(config, source));
  if (!std::isfinite(config.rope_theta) || config.rope_theta < 1.0) {
    return fail(ErrorCode::kInvalidInput, "{}: rope_theta is {}; it must be at least 1", source,
                config.rope_theta);
  }
  if (!(config.rms_eps > 0.0 && config.rms_eps < 1.0)) {
    return fail(ErrorCode::kInvalidInput, "{}: rms_norm_eps is {}; it must be between 0 and 1",
                source, config.rms_eps);
  }
  const bool known =
      config.dtype == DType::kBf16 || config.dtype == DType::kF16 || config.dtype == DType::kF32;
  if (!known) {
    return fail(ErrorCode::kInvalidInput, "{}: dtype is {}; it must be bf16, f16 or f32", source,
                dtype_name(config.dtype));
  }
  return {};
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const PublishedSize& size : kPublishedSizes) names.emplace_back(size.name);
  return names;
}

Result<ModelConfig> find_model_config(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const PublishedSize& size : kPublishedSizes) {
    if (size.name == lower) return published_config(size);
  }
  return fail(ErrorCode::kInvalidInput,
              "'{}' is no model that is known by name; those are {}, or give the folder of a "
              "checkpoint",
              name, fmt::join(model_names(), ", "));
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& path) {
  const json object = GAPLESS_TRY(parse_object(text, path));
  const Fields fields(object, path);
  GAPLESS_TRY(check_architecture(fields));
  ModelConfig config;
  config.layers = GAPLESS_TRY(fields.integer("num_hidden_layers"));
  config.hidden = GAPLESS_TRY(fields.integer("hidden_size"));
  config.intermediate = GAPLESS_TRY(fields.integer("intermediate_size"));
  config.q_heads = GAPLESS_TRY(fields.integer("num_attention_heads"));
  config.kv_heads = GAPLESS_TRY(fields.integer("num_key_value_heads"));
  config.head_dim = GAPLESS_TRY(fields.integer_or_none("head_dim")).value_or(kDefaultHeadDim);
  config.vocabulary = GAPLESS_TRY(fields.integer("vocab_size"));
  config.max_positions = GAPLESS_TRY(fields.integer("max_position_embeddings"));
  config.rope_theta = GAPLESS_TRY(read_rope_theta(fields));
  const std::optional<double> eps = GAPLESS_TRY(fields.number_or_none("rms_norm_eps"));
  if (!eps) return fields.wrong("rms_norm_eps", "a number");
  config.rms_eps = *eps;
  config.tied_embeddings = GAPLESS_TRY(fields.truth_or_none("tie_word_embeddings")).value_or(false);
  config.dtype = GAPLESS_TRY(read_dtype(fields));
  config.quantized = GAPLESS_TRY(read_quantized(fields));
  GAPLESS_TRY(check_model_config(config, path));
  return config;
}

Result<GenerationConfig> parse_generation_config(std::string_view text, const std::string& path,
                                                 int vocabulary) {
  const json object = GAPLESS_TRY(parse_object(text, path));
  const Fields fields(object, path);
  GenerationConfig config;
  config.eos_tokens = GAPLESS_TRY(read_eos_tokens(fields, vocabulary));
  config.do_sample = GAPLESS_TRY(fields.truth_or_none("do_sample"));
  config.temperature = GAPLESS_TRY(fields.number_or_none("temperature"));
  config.top_k = GAPLESS_TRY(fields.integer_or_none("top_k"));
  config.top_p = GAPLESS_TRY(fields.number_or_none("top_p"));
  if (config.temperature && !(*config.temperature >= 0.0)) {
    return fields.wrong("temperature", "0 (greedy) or more");
  }
  if (config.top_p && !(*config.top_p > 0.0 && *config.top_p <= 1.0)) {
    return fields.wrong("top_p", "above 0 and at most 1");
  }
  return config;
}

std::string layer_weight_name(int layer, LayerWeight weight) {
  return fmt::format("model.layers.{}.{}.weight", layer,
                     kLayerWeightSuffixes[static_cast<size_t>(weight)]);
}

std::string scale_name(std::string_view weight_name) {
  return fmt::format("{}_scale", weight_name);
}

bool is_matrix(LayerWeight weight) {
  switch (weight) {
    case LayerWeight::kInputNorm:
    case LayerWeight::kQNorm:
    case LayerWeight::kKNorm:
    case LayerWeight::kPostNorm:
      return false;
    default:
      return true;
  }
}

std::vector<int64_t> layer_weight_shape(const ModelConfig& config, LayerWeight weight) {
  const int64_t q_size = int64_t{config.q_heads} * config.head_dim;
  const int64_t kv_size = int64_t{config.kv_heads} * config.head_dim;
  switch (weight) {
    case LayerWeight::kInputNorm:
    case LayerWeight::kPostNorm:
      return {config.hidden};
    case LayerWeight::kQNorm:
    case LayerWeight::kKNorm:
      return {config.head_dim};
    case LayerWeight::kQ:
      return {q_size, config.hidden};
    case LayerWeight::kK:
    case LayerWeight::kV:
      return {kv_size, config.hidden};
    case LayerWeight::kOut:
      return {config.hidden, q_size};
    case LayerWeight::kGate:
    case LayerWeight::kUp:
      return {config.intermediate, config.hidden};
    case LayerWeight::kDown:
      return {config.hidden, config.intermediate};
  }
  return {};
}

std::vector<ExpectedTensor> expected_weights(const ModelConfig& config) {
  const std::vector<DType> floats = {DType::kBf16, DType::kF16, DType::kF32};
  std::vector<ExpectedTensor> weights;
  weights.push_back({std::string(kEmbeddingName), {config.vocabulary, config.hidden}, floats});
  for (int layer = 0; layer < config.layers; ++layer) {
    for (int i = 0; i < kLayerWeightCount; ++i) {
      const LayerWeight weight = static_cast<LayerWeight>(i);
      const std::string name = layer_weight_name(layer, weight);
      const std::vector<int64_t> shape = layer_weight_shape(config, weight);
      const bool is_s8 = config.quantized && is_matrix(weight);
      weights.push_back({name, shape, is_s8 ? std::vector<DType>{DType::kS8} : floats});
      if (is_s8) weights.push_back({scale_name(name), {shape[0]}, {DType::kF32}});
    }
  }
  weights.push_back({std::string(kFinalNormName), {config.hidden}, floats});
  if (!config.tied_embeddings) {
    weights.push_back({std::string(kHeadName), {config.vocabulary, config.hidden}, floats});
  }
  return weights;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  ModelConfig plain = config;
  plain.quantized = false;
  for (const ExpectedTensor& weight : expected_weights(plain)) {
    int64_t elements = 1;
    for (const int64_t size : weight.shape) elements *= size;
    count += elements;
  }
  return count;
}

}  // namespace gapless
