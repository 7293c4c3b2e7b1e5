// SPDX-License-Identifier: Apache-2.0

#include "model/checkpoint.h"

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "model/safetensors_writer.h"
#include "tests/golden_test_support.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kData = test_data_folder() + "/qwen3";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSecondShard = "model-00002-of-00002.safetensors";

// A copy of one of the golden checkpoints, to damage.
class CheckpointCopy : public testing::Test {
 protected:
  void copy(const std::string& name) {
    for (const fs::directory_entry& entry : fs::directory_iterator(kData + "/" + name)) {
      fs::copy_file(entry.path(), path(entry.path().filename().string()));
    }
  }
  std::string path(const std::string& name) const { return directory_.path(name); }
  json read_json(const std::string& name) {
    return json::parse(read_text_file(path(name)).value());
  }
  void write_json(const std::string& name, const json& value) {
    ASSERT_TRUE(write_text_file(path(name), value.dump()));
  }

  // Writes a file of tensors again, each as `change` leaves it, with zeros as data.
  template <typename Change>
  void rewrite(const std::string& name, Change change) {
    const std::vector<StoredTensor> tensors = SafetensorsFile::open(path(name)).value().tensors();
    std::vector<TensorSpec> specs;
    for (const StoredTensor& tensor : tensors) {
      specs.push_back({tensor.name, *tensor.dtype, tensor.shape});
    }
    change(specs);
    SafetensorsWriter writer = SafetensorsWriter::create(path(name), specs).value();
    for (const TensorSpec& spec : specs) {
      const int64_t bytes = tensor_bytes(spec.shape, spec.dtype).value();
      ASSERT_TRUE(writer.append(spec.name, std::vector<std::byte>(static_cast<size_t>(bytes))));
    }
    ASSERT_TRUE(writer.commit());
  }

  // Of opening, or of checking the weights; without the folder.
  std::string error() {
    const Result<Checkpoint> checkpoint = Checkpoint::open(directory_.path());
    if (!checkpoint) return without_folder(checkpoint.error().message);
    const Result<std::vector<std::string>> others =
        checkpoint->check(expected_weights(checkpoint->config()));
    return others ? "(no error)" : without_folder(others.error().message);
  }

  std::string without_folder(std::string text) const {
    const std::string folder = directory_.path();
    for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder)) {
      text.replace(at, folder.size(), "DIR");
    }
    return text;
  }

  TemporaryDirectory directory_;
};

TEST(Checkpoint, OpensWhatTransformersWrote) {
  for (const std::string name : {"bf16-gqa4", "bf16-gqa5-tied", "f32-gqa4-tied", "f32-gqa5"}) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(kData + "/" + name);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const ModelConfig& config = checkpoint->config();
    EXPECT_EQ(config.name, name);
    EXPECT_EQ(checkpoint->files().size(), name == "bf16-gqa5-tied" ? 1u : 2u);
    EXPECT_EQ(checkpoint->generation().eos_tokens, std::vector<int32_t>{159});
    EXPECT_EQ(checkpoint->generation().temperature, std::nullopt);
    const Result<std::vector<std::string>> others = checkpoint->check(expected_weights(config));
    ASSERT_TRUE(others) << others.error().message;
    EXPECT_TRUE(others->empty());
    EXPECT_EQ(checkpoint->tensor_count(), config.tied_embeddings ? 24 : 25);
    EXPECT_EQ(checkpoint->data_bytes(), parameter_count(config) * dtype_bytes(config.dtype));
  }
}

TEST(Checkpoint, FindsTensorsInWhicheverFileTheyAre) {
  Result<Checkpoint> opened = Checkpoint::open(kData + "/bf16-gqa4");
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint checkpoint = std::move(opened).value();
  const StoredTensor* k = checkpoint.find("model.layers.1.self_attn.k_proj.weight");
  const StoredTensor* v = checkpoint.find("model.layers.1.self_attn.v_proj.weight");
  ASSERT_NE(k, nullptr);
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(checkpoint.files()[0].find(k->name), k);
  EXPECT_EQ(checkpoint.files()[1].find(v->name), v);
  EXPECT_EQ(checkpoint.find("model.layers.2.self_attn.v_proj.weight"), nullptr);
}

TEST(Checkpoint, IsNamedAfterItsFolderHoweverThatIsWritten) {
  EXPECT_EQ(Checkpoint::open(kData + "/bf16-gqa4/")->config().name, "bf16-gqa4");
  EXPECT_EQ(Checkpoint::open(kData + "/bf16-gqa4/../f32-gqa5/.")->config().name, "f32-gqa5");
}

TEST_F(CheckpointCopy, PrefersASingleFileAsTransformersDoes) {
  copy("bf16-gqa5-tied");
  write_json(kIndex, {{"weight_map", {{"w", "nowhere"}}}});
  EXPECT_EQ(error(), "(no error)");
}

TEST_F(CheckpointCopy, TellsWhichTensorsNobodyAskedFor) {
  // As in the published Qwen3-0.6B: embeddings are tied, and the file has them twice.
  copy("bf16-gqa5-tied");
  rewrite("model.safetensors", [](std::vector<TensorSpec>& specs) {
    specs.push_back({"lm_head.weight", DType::kBf16, {160, 48}});
    specs.push_back({"a.rotary.inv_freq", DType::kU8, {32}});
  });
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory_.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->check(expected_weights(checkpoint->config())).value(),
            (std::vector<std::string>{"a.rotary.inv_freq", "lm_head.weight"}));
}

TEST_F(CheckpointCopy, TakesEndTokensFromConfigWhenNobodyElseHasThem) {
  copy("bf16-gqa4");
  fs::remove(path("generation_config.json"));
  EXPECT_EQ(Checkpoint::open(directory_.path())->generation().eos_tokens,
            std::vector<int32_t>{159});
  write_json("generation_config.json", {{"eos_token_id", {7, 8}}, {"temperature", 0.5}});
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory_.path());
  EXPECT_EQ(checkpoint->generation().eos_tokens, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(checkpoint->generation().temperature, 0.5);
  write_json("generation_config.json", {{"eos_token_id", 160}});
  EXPECT_EQ(error(),
            "DIR/generation_config.json: eos_token_id has 160; it must be a token or a list of "
            "tokens from 0 to 159");
}

TEST_F(CheckpointCopy, SaysWhichFileOfTheFolderIsMissing) {
  EXPECT_EQ(Checkpoint::open(path("none")).error().message,
            path("none") +
                ": is not a folder; give the one that has config.json and "
                "model.safetensors");
  EXPECT_EQ(error(), "DIR: has no config.json; give the folder of a Hugging Face checkpoint");
  copy("bf16-gqa4");
  fs::rename(path(kSecondShard), path("aside"));
  EXPECT_EQ(error(),
            "DIR/model.safetensors.index.json: file \"model-00002-of-00002.safetensors\" is "
            "missing, which has 11 of 25 tensors (\"lm_head.weight\" and on); download it too");
  fs::remove(path(kIndex));
  EXPECT_EQ(error(),
            "DIR: has neither model.safetensors nor model.safetensors.index.json; only weights in "
            "safetensors files are read");
}

TEST_F(CheckpointCopy, RefusesAShardThatIsCutShort) {
  copy("bf16-gqa4");
  fs::resize_file(path(kSecondShard), 50'000);
  EXPECT_EQ(
      error(),
      "DIR/model-00002-of-00002.safetensors: tensor \"model.layers.1.self_attn.o_proj.weight\""
      " ends at byte 87872 of the data, of which the file has 48888; it is cut short: "
      "download it again");
}

TEST_F(CheckpointCopy, RefusesAnIndexThatDoesNotFitTheFiles) {
  copy("bf16-gqa4");
  const json index = read_json(kIndex);
  json changed = index;
  changed["weight_map"]["extra.weight"] = kSecondShard;
  write_json(kIndex, changed);
  EXPECT_EQ(error(),
            "DIR/model.safetensors.index.json: tensor \"extra.weight\" should be in "
            "model-00002-of-00002.safetensors and is not; index and files are not of the same "
            "model: download both again");
  changed = index;
  changed["weight_map"]["lm_head.weight"] = 5;
  write_json(kIndex, changed);
  EXPECT_EQ(error(),
            "DIR/model.safetensors.index.json: tensor \"lm_head.weight\" is in number and not in a "
            "named file");
  for (const char* name : {"../secret", "/etc/passwd", "", ".."}) {
    changed["weight_map"]["lm_head.weight"] = name;
    write_json(kIndex, changed);
    EXPECT_EQ(error(), fmt::format("DIR/model.safetensors.index.json: names the file \"{}\"; files "
                                   "must lie in the folder itself",
                                   name));
  }
  const std::string no_map =
      "DIR/model.safetensors.index.json: has no weight_map that says which file holds which tensor";
  for (const json& wrong : {json::object(), json::array(), json{{"weight_map", json::object()}}}) {
    write_json(kIndex, wrong);
    EXPECT_EQ(error(), no_map);
  }
  ASSERT_TRUE(write_text_file(path(kIndex), "{\"weight_map\""));
  EXPECT_EQ(error(), "DIR/model.safetensors.index.json: is not valid JSON; download it again");
}

TEST_F(CheckpointCopy, RefusesATensorThatIsInTwoFiles) {
  copy("bf16-gqa4");
  rewrite(kSecondShard, [](std::vector<TensorSpec>& specs) {
    specs.push_back({"model.embed_tokens.weight", DType::kBf16, {160, 48}});
  });
  EXPECT_EQ(error(),
            "tensor \"model.embed_tokens.weight\" is in DIR/model-00001-of-00002.safetensors and "
            "in DIR/model-00002-of-00002.safetensors; remove the one that does not belong there");
}

TEST_F(CheckpointCopy, RefusesTensorsThatDoNotFitTheConfig) {
  copy("bf16-gqa5-tied");
  const auto norm_of = [](std::vector<TensorSpec>& specs) -> TensorSpec& { return specs[1]; };
  rewrite("model.safetensors", [&](std::vector<TensorSpec>& specs) {
    ASSERT_EQ(norm_of(specs).name, "model.layers.0.input_layernorm.weight");
    norm_of(specs).shape = {24, 2};
  });
  EXPECT_EQ(error(),
            "DIR/model.safetensors: tensor \"model.layers.0.input_layernorm.weight\" has shape "
            "[24, 2]; by config.json it must be [48]");
  rewrite("model.safetensors", [&](std::vector<TensorSpec>& specs) {
    norm_of(specs) = {norm_of(specs).name, DType::kS8, {48}};
  });
  EXPECT_EQ(error(),
            "DIR/model.safetensors: tensor \"model.layers.0.input_layernorm.weight\" is s8; it "
            "must be bf16 or f16 or f32");
  rewrite("model.safetensors", [&](std::vector<TensorSpec>& specs) { specs.erase(specs.begin()); });
  EXPECT_EQ(error(),
            "DIR: tensor \"model.embed_tokens.weight\" is not among its 23; are config.json and "
            "the weights of the same model?");
}

TEST_F(CheckpointCopy, SaysThatEmbeddingsAreNotTiedWhenTheHeadIsMissing) {
  copy("bf16-gqa5-tied");
  json config = read_json("config.json");
  config["tie_word_embeddings"] = false;
  write_json("config.json", config);
  EXPECT_EQ(error(),
            "DIR: tensor \"lm_head.weight\" is not among its 24; config.json says that embeddings "
            "are not tied");
}

TEST_F(CheckpointCopy, PassesOnWhatIsWrongWithTheConfig) {
  copy("bf16-gqa5-tied");
  ASSERT_TRUE(write_text_file(path("config.json"), "{}"));
  EXPECT_EQ(error(),
            "DIR/config.json: model_type is missing; it must be \"qwen3\", a dense Qwen3 model");
}

}  // namespace
}  // namespace gapless
