// SPDX-License-Identifier: Apache-2.0

#include "model/model_config.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/golden_test_support.h"

namespace gapless {
namespace {

using nlohmann::json;

// The config.json of Qwen3-14B as published, written by transformers 4.51.
json published_14b() {
  return json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17408,
    "max_position_embeddings": 40960, "max_window_layers": 40, "model_type": "qwen3",
    "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

Result<ModelConfig> parse(const json& object) {
  return parse_model_config(object.dump(), "config.json");
}

// What is said when `key` of the published config has this value instead.
std::string error_with(const std::string& key, const json& value) {
  json object = published_14b();
  object[key] = value;
  const Result<ModelConfig> config = parse(object);
  return config ? "(no error)" : config.error().message;
}

TEST(ModelConfig, KnowsThePublishedSizes) {
  // The counts are those that the model cards give for the safetensors files, without the copy of
  // the embeddings that the tied models carry.
  const std::map<std::string, int64_t> counts = {
      {"qwen3-0.6b", 596'049'920}, {"qwen3-1.7b", 1'720'574'976}, {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360}, {"qwen3-14b", 14'768'307'200}, {"qwen3-32b", 32'762'123'264},
  };
  EXPECT_EQ(model_names().size(), counts.size());
  for (const std::string& name : model_names()) {
    const Result<ModelConfig> config = find_model_config(name);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->name, name);
    EXPECT_TRUE(check_model_config(*config, name));
    EXPECT_EQ(parameter_count(*config), counts.at(name)) << name;
  }
}

TEST(ModelConfig, FindsNamesInAnyCase) {
  EXPECT_EQ(find_model_config("Qwen3-14B").value(), find_model_config("qwen3-14b").value());
}

TEST(ModelConfig, ListsTheKnownNamesForAnUnknownOne) {
  EXPECT_EQ(find_model_config("qwen3-7b").error().message,
            "'qwen3-7b' is no model that is known by name; those are qwen3-0.6b, qwen3-1.7b, "
            "qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, or give the folder of a checkpoint");
}

TEST(ModelConfig, ReadsThePublishedConfig) {
  const Result<ModelConfig> config = parse(published_14b());
  ASSERT_TRUE(config) << config.error().message;
  ModelConfig expected = find_model_config("qwen3-14b").value();
  expected.name = "";
  EXPECT_EQ(*config, expected);
}

TEST(ModelConfig, ReadsWhatTransformersWritesToday) {
  const std::string path = golden_folder("bf16-gqa4") + "/config.json";
  const Result<ModelConfig> config = parse_model_config(read_text_file(path).value(), path);
  ASSERT_TRUE(config) << config.error().message;
  const ModelConfig expected = {.name = "",
                                .layers = 2,
                                .hidden = 48,
                                .intermediate = 80,
                                .q_heads = 8,
                                .kv_heads = 2,
                                .head_dim = 64,
                                .vocabulary = 160,
                                .max_positions = 256,
                                .rope_theta = 1e6,
                                .rms_eps = 1e-6,
                                .tied_embeddings = false,
                                .dtype = DType::kBf16};
  EXPECT_EQ(*config, expected);

  const std::string tied_path = golden_folder("f32-gqa4-tied") + "/config.json";
  const ModelConfig tied = parse_model_config(read_text_file(tied_path).value(), tied_path).value();
  EXPECT_TRUE(tied.tied_embeddings);
  EXPECT_EQ(tied.dtype, DType::kF32);
  EXPECT_EQ(tied.q_heads, 4);
}

TEST(ModelConfig, FillsInWhatTransformersWouldFillIn) {
  json object = published_14b();
  for (const char* key : {"head_dim", "hidden_act", "attention_bias", "use_sliding_window",
                          "tie_word_embeddings", "rope_scaling"}) {
    object.erase(key);
  }
  const Result<ModelConfig> config = parse(object);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_FALSE(config->tied_embeddings);
}

TEST(ModelConfig, FindsRopeThetaWhereverItIs) {
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    json object = published_14b();
    object.erase("rope_theta");
    object[place] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
    const Result<ModelConfig> config = parse(object);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->rope_theta, 500000.0);
  }
  json object = published_14b();
  object.erase("rope_theta");
  EXPECT_EQ(parse(object).error().message,
            "config.json: rope_theta is missing; it must be a number, here or in rope_parameters");
  EXPECT_EQ(error_with("rope_parameters", {{"rope_theta", 10000}}),
            "config.json: rope_theta is 1000000 and in rope_parameters it is 10000; keep the one "
            "the model was trained with");
}

TEST(ModelConfig, ReadsBothKeysOfTheType) {
  json object = published_14b();
  object["torch_dtype"] = "float16";
  EXPECT_EQ(parse(object)->dtype, DType::kF16);
  object["dtype"] = "float32";
  EXPECT_EQ(parse(object).error().message,
            "config.json: dtype is \"float32\" and torch_dtype is \"float16\"; remove the wrong "
            "one");
  object.erase("torch_dtype");
  EXPECT_EQ(parse(object)->dtype, DType::kF32);
  object.erase("dtype");
  EXPECT_EQ(parse(object).error().message,
            "config.json: dtype is missing; it must be \"bfloat16\", \"float16\" or \"float32\"");
  EXPECT_EQ(error_with("torch_dtype", "int8"),
            "config.json: torch_dtype is \"int8\"; it must be \"bfloat16\", \"float16\" or "
            "\"float32\"");
}

TEST(ModelConfig, RefusesModelsItWouldGetWrong) {
  EXPECT_EQ(error_with("model_type", "qwen3_moe"),
            "config.json: model_type is \"qwen3_moe\"; it must be \"qwen3\", a dense Qwen3 model");
  EXPECT_EQ(error_with("model_type", nullptr),
            "config.json: model_type is missing; it must be \"qwen3\", a dense Qwen3 model");
  EXPECT_EQ(error_with("hidden_act", "gelu"),
            "config.json: hidden_act is \"gelu\"; it must be \"silu\", the only activation here");
  EXPECT_EQ(error_with("attention_bias", true),
            "config.json: attention_bias is true; it must be false: projections with a bias are "
            "not supported");
  EXPECT_EQ(error_with("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}),
            "config.json: rope_scaling: rope_type is \"yarn\"; it must be \"default\": scaled "
            "rotary positions are not supported");
  EXPECT_EQ(error_with("rope_scaling", {{"type", "linear"}}),
            "config.json: rope_scaling: type is \"linear\"; it must be \"default\": scaled rotary "
            "positions are not supported");
  EXPECT_EQ(error_with("rope_parameters", {{"partial_rotary_factor", 0.5}}),
            "config.json: rope_parameters: partial_rotary_factor is 0.5; it must be 1");
  EXPECT_EQ(error_with("layer_types", {"full_attention", "sliding_attention"}),
            "config.json: layer_types has \"sliding_attention\"; only \"full_attention\" is "
            "supported");
  EXPECT_EQ(error_with("use_sliding_window", true), "(no error)") << "there is no window to use";
  EXPECT_EQ(error_with("sliding_window", 4096), "(no error)") << "the window is not used";
  json object = published_14b();
  object["use_sliding_window"] = true;
  object["sliding_window"] = 4096;
  EXPECT_EQ(parse(object).error().message,
            "config.json: use_sliding_window is true; it must be false: sliding windows are not "
            "supported");
}

TEST(ModelConfig, RefusesNumbersOutOfRange) {
  EXPECT_EQ(error_with("num_hidden_layers", 0),
            "config.json: num_hidden_layers is 0; it must be from 1 to 1024");
  EXPECT_EQ(error_with("hidden_size", -1),
            "config.json: hidden_size is -1; it must be a whole number from 0 to 2147483647");
  EXPECT_EQ(error_with("hidden_size", 5120.5),
            "config.json: hidden_size is 5120.5; it must be a whole number from 0 to 2147483647");
  EXPECT_EQ(error_with("vocab_size", uint64_t{1} << 40),
            "config.json: vocab_size is 1099511627776; it must be a whole number from 0 to "
            "2147483647");
  EXPECT_EQ(error_with("vocab_size", 1 << 30),
            "config.json: vocab_size is 1073741824; it must be from 1 to 16777216");
  EXPECT_EQ(error_with("intermediate_size", nullptr),
            "config.json: intermediate_size is missing; it must be a whole number");
  EXPECT_EQ(error_with("intermediate_size", {1, 2}),
            "config.json: intermediate_size is a list; it must be a whole number from 0 to "
            "2147483647");
  EXPECT_EQ(error_with("head_dim", 96),
            "config.json: head_dim is 96; the attention knows 64, 128 and 256");
  EXPECT_EQ(error_with("num_key_value_heads", 7),
            "config.json: num_attention_heads is 40, which is not a multiple of "
            "num_key_value_heads, 7");
  EXPECT_EQ(error_with("num_key_value_heads", 2),
            "config.json: 40 query heads share 2 key and value heads; at most 16 may share one");
  EXPECT_EQ(error_with("rope_theta", 0.5), "config.json: rope_theta is 0.5; it must be at least 1");
  EXPECT_EQ(error_with("rms_norm_eps", 0),
            "config.json: rms_norm_eps is 0; it must be between 0 and 1");
  EXPECT_EQ(error_with("rms_norm_eps", "x"),
            "config.json: rms_norm_eps is \"x\"; it must be a number");
  EXPECT_EQ(error_with("tie_word_embeddings", 1),
            "config.json: tie_word_embeddings is 1; it must be true or false");
}

TEST(ModelConfig, RefusesWhatIsNoConfig) {
  EXPECT_EQ(parse_model_config("{", "c").error().message,
            "c: is not valid JSON; download it again");
  EXPECT_EQ(parse_model_config("[]", "c").error().message, "c: holds a list and not an object");
  const std::string deep =
      "{\"model_type\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_EQ(parse_model_config(deep, "c").error().message,
            "c: model_type is a list; it must be a text");
}

TEST(ModelConfig, SurvivesEveryCutOfAConfig) {
  const std::string text = published_14b().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_model_config(text.substr(0, size), "c")) << size;
  }
}

TEST(GenerationConfig, ReadsThePublishedOne) {
  const Result<GenerationConfig> config = parse_generation_config(
      R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
          "pad_token_id": 151643, "temperature": 0.6, "top_k": 20, "top_p": 0.95})",
      "g", 151936);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->eos_tokens, (std::vector<int32_t>{151645, 151643}));
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95);
}

TEST(GenerationConfig, LeavesEverythingOptional) {
  EXPECT_EQ(parse_generation_config("{}", "g", 10).value(), GenerationConfig());
  EXPECT_EQ(parse_generation_config(R"({"eos_token_id": 9, "top_k": null})", "g", 10).value(),
            GenerationConfig{.eos_tokens = {9}});
}

TEST(GenerationConfig, RefusesFiguresOutOfRange) {
  const auto error_of = [](std::string_view text) {
    const Result<GenerationConfig> config = parse_generation_config(text, "g", 10);
    return config ? "(no error)" : config.error().message;
  };
  const std::string eos = "; it must be a token or a list of tokens from 0 to 9";
  EXPECT_EQ(error_of(R"({"eos_token_id": 10})"), "g: eos_token_id has 10" + eos);
  EXPECT_EQ(error_of(R"({"eos_token_id": [1, -1]})"), "g: eos_token_id has -1" + eos);
  EXPECT_EQ(error_of(R"({"eos_token_id": "x"})"), "g: eos_token_id has \"x\"" + eos);
  EXPECT_EQ(
      error_of("{\"eos_token_id\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
      "g: eos_token_id has a list" + eos);
  EXPECT_EQ(error_of(R"({"temperature": -1})"),
            "g: temperature is -1; it must be 0 (greedy) or more");
  EXPECT_EQ(error_of(R"({"top_p": 0})"), "g: top_p is 0; it must be above 0 and at most 1");
  EXPECT_EQ(error_of(R"({"top_p": 1.5})"), "g: top_p is 1.5; it must be above 0 and at most 1");
  EXPECT_EQ(error_of(R"({"top_k": -5})"),
            "g: top_k is -5; it must be a whole number from 0 to 2147483647");
}

TEST(LayerWeights, HaveTheNamesAndShapesOfTheCheckpoint) {
  const ModelConfig config = find_model_config("qwen3-14b").value();
  EXPECT_EQ(layer_weight_name(7, LayerWeight::kQ), "model.layers.7.self_attn.q_proj.weight");
  EXPECT_EQ(layer_weight_name(0, LayerWeight::kPostNorm),
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(layer_weight_name(39, LayerWeight::kDown), "model.layers.39.mlp.down_proj.weight");
  EXPECT_EQ(layer_weight_shape(config, LayerWeight::kK), (std::vector<int64_t>{1024, 5120}));
  EXPECT_EQ(layer_weight_shape(config, LayerWeight::kOut), (std::vector<int64_t>{5120, 5120}));
  EXPECT_EQ(layer_weight_shape(config, LayerWeight::kDown), (std::vector<int64_t>{5120, 17408}));
  EXPECT_EQ(layer_weight_shape(config, LayerWeight::kQNorm), std::vector<int64_t>{128});

  const std::vector<ExpectedTensor> weights = expected_weights(config);
  EXPECT_EQ(weights.size(), 40u * 11 + 3);
  std::set<std::string> names;
  for (const ExpectedTensor& weight : weights) names.insert(weight.name);
  EXPECT_EQ(names.size(), weights.size());
  EXPECT_TRUE(names.contains("lm_head.weight"));
  EXPECT_EQ(expected_weights(find_model_config("qwen3-4b").value()).size(), 36u * 11 + 2);
}

TEST(LayerWeights, OfAQuantizedCheckpointAreS8WithScales) {
  ModelConfig config = find_model_config("qwen3-4b").value();
  const int64_t parameters = parameter_count(config);
  config.quantized = true;
  EXPECT_EQ(parameter_count(config), parameters);
  const std::vector<ExpectedTensor> weights = expected_weights(config);
  EXPECT_EQ(weights.size(), 36u * (11 + 7) + 2);
  int scale_count = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool is_projection = weights[i].name.ends_with("_proj.weight");
    const bool is_s8 = weights[i].dtypes == std::vector<DType>{DType::kS8};
    EXPECT_EQ(is_s8, is_projection) << weights[i].name;
    if (!is_projection) continue;
    ++scale_count;
    EXPECT_EQ(weights[i + 1].name, weights[i].name + "_scale");
    EXPECT_EQ(weights[i + 1].shape, std::vector<int64_t>{weights[i].shape[0]});
    EXPECT_EQ(weights[i + 1].dtypes, std::vector<DType>{DType::kF32});
  }
  EXPECT_EQ(scale_count, 36 * 7);
}

}  // namespace
}  // namespace gapless
