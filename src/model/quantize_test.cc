// SPDX-License-Identifier: Apache-2.0

#include "model/quantize.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/checkpoint_test_support.h"
#include "model/safetensors_writer.h"
#include "model/weights.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;

std::string quantize(const std::string& source, const QuantizeOptions& options) {
  const Result<QuantizeSummary> summary = quantize_checkpoint(*open_checkpoint(source), options);
  return summary ? "(no error)" : summary.error().message;
}

void expect_same(const PackedMatrix& a, const PackedMatrix& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.n(), b.n());
  ASSERT_EQ(a.k(), b.k());
  ASSERT_EQ(a.panel_count(), b.panel_count());
  if (a.n() == 0) return;
  const size_t bytes = static_cast<size_t>(a.panel_count() * a.panel_stride());
  EXPECT_EQ(std::memcmp(a.panel(0), b.panel(0), bytes), 0);
  if (a.dtype() != DType::kS8) return;
  const size_t scales = static_cast<size_t>(a.panel_count() * kPanelRows) * sizeof(float);
  EXPECT_EQ(std::memcmp(a.panel_scales(), b.panel_scales(), scales), 0);
}

void expect_same(const ModelWeights& a, const ModelWeights& b) {
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    const LayerWeights& left = a.layers[i];
    const LayerWeights& right = b.layers[i];
    EXPECT_EQ(left.input_norm, right.input_norm);
    EXPECT_EQ(left.q_norm, right.q_norm);
    EXPECT_EQ(left.k_norm, right.k_norm);
    EXPECT_EQ(left.post_norm, right.post_norm);
    expect_same(left.q, right.q);
    expect_same(left.k, right.k);
    expect_same(left.v, right.v);
    expect_same(left.out, right.out);
    expect_same(left.gate_up, right.gate_up);
    expect_same(left.gate, right.gate);
    expect_same(left.up, right.up);
    expect_same(left.down, right.down);
  }
  EXPECT_EQ(a.final_norm, b.final_norm);
  expect_same(a.head, b.head);
  ASSERT_EQ(a.embedding.dtype, b.embedding.dtype);
  const size_t bytes = static_cast<size_t>(int64_t{a.config.vocabulary} * a.config.hidden *
                                           dtype_bytes(a.embedding.dtype));
  EXPECT_EQ(std::memcmp(a.embedding.rows, b.embedding.rows, bytes), 0);
}

TEST(Quantize, StoresWhatQuantizingOnLoadMakes) {
  for (const std::string name : kGoldenNames) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(name);
      const TemporaryDirectory directory;
      const std::shared_ptr<const Checkpoint> source = open_checkpoint(golden_folder(name));
      const Result<QuantizeSummary> summary =
          quantize_checkpoint(*source, {.folder = directory.path("out"), .thread_count = threads});
      ASSERT_TRUE(summary) << summary.error().message;
      const std::shared_ptr<const Checkpoint> made = open_checkpoint(directory.path("out"));
      EXPECT_TRUE(made->config().quantized);
      EXPECT_TRUE(made->check(expected_weights(made->config())).value().empty());
      for (const bool dual : {true, false}) {
        const WeightOptions options = {.dtype = DType::kS8, .dual_gate_up = dual};
        Result<ModelWeights> stored = load_weights(made, options);
        ASSERT_TRUE(stored) << stored.error().message;
        expect_same(*stored, load_weights(source, options).value());
      }
    }
  }
}

TEST(Quantize, KeepsTheFiguresOfTheModel) {
  for (const std::string name : kGoldenNames) {
    const TemporaryDirectory directory;
    const std::shared_ptr<const Checkpoint> source = open_checkpoint(golden_folder(name));
    ASSERT_TRUE(quantize_checkpoint(*source, {.folder = directory.path(name)}));
    const std::shared_ptr<const Checkpoint> made = open_checkpoint(directory.path(name));
    ModelConfig config = made->config();
    config.quantized = false;
    EXPECT_EQ(config, source->config());
    EXPECT_EQ(made->generation(), source->generation());
    EXPECT_EQ(parameter_count(made->config()), parameter_count(source->config()));
    // All that config.json said is still there, and one thing more.
    nlohmann::json before =
        nlohmann::json::parse(read_text_file(golden_folder(name) + "/config.json").value());
    nlohmann::json after =
        nlohmann::json::parse(read_text_file(directory.path(name) + "/config.json").value());
    EXPECT_EQ(after["quantization_config"]["quant_method"], "gapless-a8w8");
    EXPECT_EQ(after["quantization_config"]["weights"]["dtype"], "int8");
    after.erase("quantization_config");
    EXPECT_EQ(after, before);
  }
}

TEST(Quantize, SumsUpWhatItDid) {
  const TemporaryDirectory directory;
  const std::shared_ptr<const Checkpoint> source = open_checkpoint(golden_folder("bf16-gqa4"));
  std::vector<uint64_t> done;
  uint64_t last_total = 0;
  const Result<QuantizeSummary> summary = quantize_checkpoint(
      *source, {.folder = directory.path("out"), .progress = [&](uint64_t now, uint64_t total) {
                  done.push_back(now);
                  last_total = total;
                }});
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->folder, directory.path("out"));
  EXPECT_EQ(summary->matrix_count, 14);
  EXPECT_EQ(summary->other_count, 11);
  EXPECT_EQ(summary->file_count, 2);
  EXPECT_EQ(summary->source_bytes, source->data_bytes());
  EXPECT_EQ(summary->written_bytes, open_checkpoint(directory.path("out"))->data_bytes());
  EXPECT_TRUE(summary->left_out.empty());
  EXPECT_EQ(done.back(), static_cast<uint64_t>(source->data_bytes()));
  EXPECT_EQ(last_total, done.back());
}

// A scale is 0.02: all but the first are rounded to 0.
TEST(Quantize, FindsTheRowThatSuffersMost) {
  const CheckpointCopy copy("f32-gqa5");
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  for (int64_t i = 0; i < 48; ++i) copy.set_element(name, 3 * 48 + i, i == 0 ? 2.54f : 0.0098f);
  const Result<QuantizeSummary> summary =
      quantize_checkpoint(*copy.open(), {.folder = copy.path("out")});
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->largest_error.tensor, name);
  EXPECT_EQ(summary->largest_error.row, 3);
  const double rest = 47.0 * 0.0098 * 0.0098;
  EXPECT_NEAR(summary->largest_error.relative, std::sqrt(rest / (2.54 * 2.54 + rest)), 1e-6);
}

TEST(Quantize, CutsFilesWhereAskedAndAlignsTheirTensors) {
  for (const int64_t shard_bytes : {1, 5'000, 30'000, 1'000'000}) {
    const TemporaryDirectory directory;
    const std::shared_ptr<const Checkpoint> source = open_checkpoint(golden_folder("f32-gqa5"));
    const Result<QuantizeSummary> summary =
        quantize_checkpoint(*source, {.folder = directory.path("out"), .shard_bytes = shard_bytes});
    ASSERT_TRUE(summary) << summary.error().message;
    const std::shared_ptr<const Checkpoint> made = open_checkpoint(directory.path("out"));
    ASSERT_EQ(std::ssize(made->files()), summary->file_count);
    for (size_t i = 0; i + 1 < made->files().size(); ++i) {
      const std::vector<StoredTensor>& tensors = made->files()[i].tensors();
      int64_t bytes = 0;
      for (const StoredTensor& tensor : tensors) bytes += std::ssize(tensor.bytes);
      EXPECT_TRUE(bytes <= shard_bytes || tensors.size() == 1) << shard_bytes;
    }
    expect_same(load_weights(made, {.dtype = DType::kS8}).value(),
                load_weights(source, {.dtype = DType::kS8}).value());
  }
}

TEST(Quantize, CopiesTheTokenizerAndNothingElse) {
  const CheckpointCopy copy("bf16-gqa5-tied");
  const std::string folder = copy.folder();
  ASSERT_TRUE(write_text_file(folder + "/tokenizer.json", "{\"a\": 1}"));
  ASSERT_TRUE(write_text_file(folder + "/tokenizer_config.json", "{}"));
  ASSERT_TRUE(write_text_file(folder + "/notes.txt", "mine"));
  const std::string out = copy.path("out");
  ASSERT_EQ(quantize(folder, {.folder = out}), "(no error)");
  EXPECT_EQ(list_directory(out).value(),
            (std::vector<std::string>{
                "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(read_text_file(out + "/tokenizer.json").value(), "{\"a\": 1}");
}

TEST(Quantize, AQuantizedCheckpointIsS8AndNothingElse) {
  const TemporaryDirectory directory;
  const std::string out = directory.path("out");
  ASSERT_EQ(quantize(golden_folder("bf16-gqa4"), {.folder = out}), "(no error)");
  const Result<ModelWeights> weights = load_weights(open_checkpoint(out), {.dtype = DType::kBf16});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().message,
            out +
                ": its weights are s8 (gapless-a8w8) and cannot be bf16 again; ask for s8, or "
                "give the checkpoint that they were made from");
  EXPECT_EQ(quantize(out, {.folder = directory.path("twice")}),
            out + ": is quantised already (gapless-a8w8)");
  EXPECT_FALSE(fs::exists(directory.path("twice")));
}

TEST(Quantize, ATensorWithTheNameOfAScaleIsAnError) {
  const CheckpointCopy copy("bf16-gqa4");
  const std::string name = "model.layers.1.mlp.up_proj.weight_scale";
  const float scale = 1.0f;
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::create(copy.folder() + "/more.safetensors", {{name, DType::kF32, {1}}});
  ASSERT_TRUE(writer && writer->append(name, std::as_bytes(std::span(&scale, 1))));
  ASSERT_TRUE(writer->commit());
  nlohmann::json index = copy.read_json("model.safetensors.index.json");
  index["weight_map"][name] = "more.safetensors";
  copy.write_json("model.safetensors.index.json", index);
  EXPECT_EQ(
      copy.shown(quantize(copy.folder(), {.folder = copy.path("out")})),
      "DIR/more.safetensors: has a tensor \"" + name + "\" already, but no quantization_config");
  EXPECT_FALSE(fs::exists(copy.path("out")));
}

TEST(Quantize, NothingIsLeftWhenAWeightIsNotFinite) {
  for (const std::string tensor :
       {"model.layers.1.mlp.down_proj.weight", "model.embed_tokens.weight", "model.norm.weight"}) {
    const CheckpointCopy copy("bf16-gqa4");
    copy.set_element(tensor, 5, std::nanf(""));
    const std::string message = quantize(copy.folder(), {.folder = copy.path("out")});
    EXPECT_NE(message.find("tensor \"" + tensor + "\" has nan in "), std::string::npos) << message;
    EXPECT_EQ(list_directory(fs::path(copy.folder()).parent_path()).value(),
              std::vector<std::string>{"bf16-gqa4"});
  }
}

TEST(Quantize, WeightsThatDoNotFitTheConfigAreRefused) {
  const CheckpointCopy copy("bf16-gqa4");
  nlohmann::json config = copy.read_json("config.json");
  config["intermediate_size"] = 96;
  copy.write_json("config.json", config);
  EXPECT_NE(quantize(copy.folder(), {.folder = copy.path("out")}).find("it must be [96, 48]"),
            std::string::npos);
  EXPECT_EQ(quantize(golden_folder("bf16-gqa4"), {.folder = copy.path("o"), .shard_bytes = 0}),
            "files of 0 bytes hold no weights");
}

TEST(Quantize, WritesOverNothingUnlessToldTo) {
  const CheckpointCopy copy("bf16-gqa4");
  const std::string out = copy.path("out");
  fs::create_directory(out);
  ASSERT_EQ(quantize(copy.folder(), {.folder = out + "/"}), "(no error)");  // it was empty
  EXPECT_EQ(quantize(copy.folder(), {.folder = out}),
            out + ": is there and not empty; name another folder, or replace it with --force");
  ASSERT_TRUE(write_text_file(out + "/stale", "x"));
  ASSERT_EQ(quantize(copy.folder(), {.folder = out, .replace = true}), "(no error)");
  EXPECT_FALSE(fs::exists(out + "/stale"));
  EXPECT_EQ(list_directory(fs::path(out).parent_path()).value(),
            (std::vector<std::string>{"bf16-gqa4", "out"}));
  fs::remove(out + "/config.json");
  EXPECT_EQ(quantize(copy.folder(), {.folder = out, .replace = true}),
            out + ": has no config.json; only a checkpoint is replaced by another one");
  const std::string file = copy.path("file");
  ASSERT_TRUE(write_text_file(file, "x"));
  EXPECT_EQ(quantize(copy.folder(), {.folder = file, .replace = true}),
            file + ": is there and is not a folder");
  EXPECT_EQ(quantize(copy.folder(), {.folder = ""}), "'': is no name of a folder");
}

// The number of a process that was here and is no more.
pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(Quantize, RemovesWhatAKilledProcessLeft) {
  const CheckpointCopy copy("bf16-gqa4");
  const std::string out = copy.path("out");
  const std::string left = fmt::format("{}.tmp{}", out, ended_process());
  const std::string alive = fmt::format("{}.tmp{}", out, ::getppid());
  const std::string other = out + ".tmp12x";
  for (const std::string& folder : {left, alive, other}) {
    fs::create_directory(folder);
    ASSERT_TRUE(write_text_file(folder + "/part", "x"));
  }
  ASSERT_EQ(quantize(copy.folder(), {.folder = out}), "(no error)");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(alive + "/part")) << "somebody writes there";
  EXPECT_TRUE(fs::exists(other + "/part")) << "not one of ours";
}

TEST(Quantize, NeverWritesOverItsSource) {
  const CheckpointCopy copy("bf16-gqa4");
  const std::string folder = copy.folder();
  const std::string parent = fs::path(folder).parent_path();
  const std::string link = copy.path("link");
  fs::create_directory_symlink(folder, link);
  for (const std::string& target : {folder, folder + "/.", folder + "/inside", parent, link}) {
    const std::string message = quantize(folder, {.folder = target, .replace = true});
    EXPECT_EQ(message, target + ": is, holds or lies in the folder that is read (" + folder +
                           "); name another one");
  }
  EXPECT_EQ(quantize(folder, {.folder = copy.path("bf16-gqa4-s8")}), "(no error)");
}

class QuantizedCopy : public testing::Test {
 protected:
  QuantizedCopy() {
    EXPECT_EQ(quantize(golden_folder("bf16-gqa4"), {.folder = directory_.path("q")}), "(no error)");
    copy_ = std::make_unique<CheckpointCopy>("q", directory_.path("q"));
  }
  std::string error() const {
    const Result<Checkpoint> opened = Checkpoint::open(copy_->folder());
    if (!opened) return copy_->shown(opened.error().message);
    const Result<ModelWeights> weights = load_weights(copy_->open(), {.dtype = DType::kS8});
    return weights ? "(no error)" : copy_->shown(weights.error().message);
  }
  TemporaryDirectory directory_;
  std::unique_ptr<CheckpointCopy> copy_;
};

TEST_F(QuantizedCopy, ScalesMustBeFiniteAndNotNegative) {
  const std::string name = "model.layers.1.mlp.gate_proj.weight_scale";
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(error(), "(no error)");
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity, -0.25f}) {
    copy_->set_element(name, 79, bad);
    EXPECT_EQ(error(), fmt::format("DIR/model-00002-of-00002.safetensors: tensor \"{}\" has the "
                                   "scale {} for row 79; scales must be finite and not negative",
                                   name, bad));
  }
  copy_->set_element(name, 79, 0.0f);
  EXPECT_EQ(error(), "(no error)");
}

TEST_F(QuantizedCopy, ScalesMustBeThere) {
  copy_->rename("model.layers.0.self_attn.o_proj.weight_scale",
                "model.layers.0.self_attn.o_proj.weight_skale");
  EXPECT_EQ(error(),
            "DIR: tensor \"model.layers.0.self_attn.o_proj.weight_scale\" is not among its 39; are "
            "config.json and the weights of the same model?");
}

// The integers must not be taken for weights, nor weights for integers.
TEST_F(QuantizedCopy, WeightsAndConfigMustBeOfTheSameScheme) {
  nlohmann::json config = copy_->read_json("config.json");
  const nlohmann::json scheme = config["quantization_config"];
  config.erase("quantization_config");
  copy_->write_json("config.json", config);
  EXPECT_NE(error().find("is s8; it must be bf16 or f16 or f32"), std::string::npos) << error();
  for (const char* method : {"fp8", "gptq", "compressed-tensors"}) {
    config["quantization_config"] = {{"quant_method", method}, {"bits", 4}};
    copy_->write_json("config.json", config);
    EXPECT_EQ(error(), fmt::format("DIR/config.json: quantization_config: quant_method is \"{}\"; "
                                   "it must be \"gapless-a8w8\", made from the bf16 model by "
                                   "`gapless quantize`",
                                   method));
  }
  config["quantization_config"] = {{"bits", 4}};
  copy_->write_json("config.json", config);
  EXPECT_NE(error().find("quant_method is missing"), std::string::npos);
  config["quantization_config"] = 8;
  copy_->write_json("config.json", config);
  EXPECT_EQ(error(), "DIR/config.json: quantization_config is 8; it must be an object");
  config["quantization_config"] = scheme;
  copy_->write_json("config.json", config);
  EXPECT_EQ(error(), "(no error)");

  const CheckpointCopy plain("bf16-gqa4");
  config = plain.read_json("config.json");
  config["quantization_config"] = scheme;
  plain.write_json("config.json", config);
  const Result<ModelWeights> weights = load_weights(plain.open(), {.dtype = DType::kS8});
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("is bf16; it must be s8"), std::string::npos);
}

}  // namespace
}  // namespace gapless
