// SPDX-License-Identifier: Apache-2.0

#include "model/weights.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/half.h"
#include "model/checkpoint_test_support.h"

namespace gapless {
namespace {

constexpr DType kDTypes[] = {DType::kS8, DType::kBf16, DType::kF16, DType::kF32};

// Elements of a tensor of the checkpoint as they are stored.
struct Stored {
  Stored(const Checkpoint& checkpoint, const std::string& name) : tensor(*checkpoint.find(name)) {}
  int64_t rows() const { return tensor.shape.front(); }
  int64_t columns() const { return tensor.shape.back(); }
  float at(int64_t row, int64_t column) const {
    return load_as_float(*tensor.dtype, tensor.bytes.data(), row * columns() + column);
  }
  const StoredTensor& tensor;
};

// s8: the scheme again, from its definition.
void expect_quantized_row(const Stored& stored, int64_t row, const PackedMatrix& matrix,
                          int which) {
  float amax = 0.0f;
  for (int64_t k = 0; k < stored.columns(); ++k) amax = std::max(amax, std::abs(stored.at(row, k)));
  const float scale = amax / 127.0f;
  for (int64_t k = 0; k < stored.columns(); ++k) {
    const float expected = std::nearbyint(stored.at(row, k) / scale) * scale;
    ASSERT_EQ(matrix.value(row, k, which), expected) << row << ", " << k;
  }
}

void expect_holds(const PackedMatrix& matrix, const Checkpoint& checkpoint, const std::string& name,
                  DType dtype, int which = 0) {
  SCOPED_TRACE(fmt::format("{} in {}", name, dtype_name(dtype)));
  const Stored stored(checkpoint, name);
  ASSERT_EQ(matrix.dtype(), dtype);
  ASSERT_EQ(matrix.n(), stored.rows());
  ASSERT_EQ(matrix.k(), stored.columns());
  for (int64_t row = 0; row < stored.rows(); ++row) {
    if (dtype == DType::kS8) {
      expect_quantized_row(stored, row, matrix, which);
      continue;
    }
    for (int64_t k = 0; k < stored.columns(); ++k)
      ASSERT_EQ(matrix.value(row, k, which), cast_through(dtype, stored.at(row, k)));
  }
}

void expect_holds(const std::vector<float>& values, const Checkpoint& checkpoint,
                  const std::string& name) {
  const Stored stored(checkpoint, name);
  ASSERT_EQ(std::ssize(values), stored.columns());
  for (int64_t i = 0; i < stored.columns(); ++i)
    ASSERT_EQ(values[static_cast<size_t>(i)], stored.at(0, i)) << name;
}

void expect_layer_holds(const LayerWeights& layer, const Checkpoint& checkpoint, int index,
                        const WeightOptions& options) {
  const auto name = [index](LayerWeight weight) { return layer_weight_name(index, weight); };
  const DType dtype = options.dtype;
  expect_holds(layer.input_norm, checkpoint, name(LayerWeight::kInputNorm));
  expect_holds(layer.q_norm, checkpoint, name(LayerWeight::kQNorm));
  expect_holds(layer.k_norm, checkpoint, name(LayerWeight::kKNorm));
  expect_holds(layer.post_norm, checkpoint, name(LayerWeight::kPostNorm));
  expect_holds(layer.q, checkpoint, name(LayerWeight::kQ), dtype);
  expect_holds(layer.k, checkpoint, name(LayerWeight::kK), dtype);
  expect_holds(layer.v, checkpoint, name(LayerWeight::kV), dtype);
  expect_holds(layer.out, checkpoint, name(LayerWeight::kOut), dtype);
  expect_holds(layer.down, checkpoint, name(LayerWeight::kDown), dtype);
  const bool dual = options.dual_gate_up;
  EXPECT_EQ(layer.gate_up.n() == 0, !dual);
  EXPECT_EQ(layer.gate.n() == 0, dual);
  EXPECT_EQ(layer.up.n() == 0, dual);
  EXPECT_EQ(layer.gate_up.interleave(), dual ? Interleave::kPairs : Interleave::kNone);
  expect_holds(dual ? layer.gate_up : layer.gate, checkpoint, name(LayerWeight::kGate), dtype, 0);
  expect_holds(dual ? layer.gate_up : layer.up, checkpoint, name(LayerWeight::kUp), dtype,
               dual ? 1 : 0);
}

std::string load_error(const CheckpointCopy& copy, const WeightOptions& options) {
  const Result<ModelWeights> weights = load_weights(copy.open(), options);
  return weights ? "(no error)" : copy.shown(weights.error().message);
}

TEST(Weights, AreThoseOfTheCheckpointInEveryType) {
  for (const std::string name : kGoldenNames) {
    const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder(name));
    for (const DType dtype : kDTypes) {
      for (const bool dual : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, dual {}", name, dual));
        const WeightOptions options = {.dtype = dtype, .dual_gate_up = dual, .thread_count = 2};
        Result<ModelWeights> loaded = load_weights(checkpoint, options);
        ASSERT_TRUE(loaded) << loaded.error().message;
        const ModelWeights weights = std::move(loaded).value();
        EXPECT_EQ(weights.config, checkpoint->config());
        EXPECT_EQ(weights.dtype, dtype);
        EXPECT_EQ(weights.dual_gate_up, dual);
        ASSERT_EQ(std::ssize(weights.layers), checkpoint->config().layers);
        for (int i = 0; i < checkpoint->config().layers; ++i)
          expect_layer_holds(weights.layers[static_cast<size_t>(i)], *checkpoint, i, options);
      }
    }
  }
}

TEST(Weights, HaveAHeadThatIsNeverS8) {
  for (const std::string name : kGoldenNames) {
    const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder(name));
    const bool tied = checkpoint->config().tied_embeddings;
    const std::string head(tied ? kEmbeddingName : kHeadName);
    for (const DType dtype : kDTypes) {
      const Result<ModelWeights> weights = load_weights(checkpoint, {.dtype = dtype});
      ASSERT_TRUE(weights) << weights.error().message;
      ASSERT_TRUE(weights->has_head);
      expect_holds(weights->final_norm, *checkpoint, std::string(kFinalNormName));
      const DType head_dtype = dtype == DType::kS8 ? checkpoint->config().dtype : dtype;
      expect_holds(weights->head, *checkpoint, head, head_dtype);
      // The table is the mapped file's, not a copy.
      EXPECT_EQ(weights->embedding.dtype, checkpoint->config().dtype);
      EXPECT_EQ(weights->embedding.rows, checkpoint->find(kEmbeddingName)->bytes.data());
    }
  }
}

TEST(Weights, KeepTheMappingOfTheEmbeddingAlive) {
  std::weak_ptr<const Checkpoint> watched;
  EmbeddingTable table;
  {
    std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder("bf16-gqa4"));
    watched = checkpoint;
    ModelWeights weights = load_weights(std::move(checkpoint), {}).value();
    table = std::move(weights.embedding);
  }
  EXPECT_FALSE(watched.expired());
  table = EmbeddingTable();
  EXPECT_TRUE(watched.expired());
}

TEST(Weights, AreOnlyThoseAskedFor) {
  const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder("f32-gqa5"));
  const WeightOptions options = {.dtype = DType::kF32, .layers = 1, .with_head = false};
  const Result<ModelWeights> weights = load_weights(checkpoint, options);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->config.layers, 1);
  ASSERT_EQ(weights->layers.size(), 1u);
  expect_layer_holds(weights->layers[0], *checkpoint, 0, options);
  EXPECT_FALSE(weights->has_head);
  EXPECT_EQ(weights->embedding.rows, nullptr);
  EXPECT_TRUE(weights->final_norm.empty());
  EXPECT_EQ(weights->head.n(), 0);
}

TEST(Weights, CountTheBytesOfTheMatricesThatAreThere) {
  const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder("bf16-gqa4"));
  const ModelWeights dual = load_weights(checkpoint, {.dtype = DType::kBf16}).value();
  const ModelWeights single =
      load_weights(checkpoint, {.dtype = DType::kBf16, .dual_gate_up = false}).value();
  // q [512][48], k and v [128][48], out [48][512], gate and up [80][48], down [48][80].
  const int64_t elements = 512 * 48 + 2 * 128 * 48 + 48 * 512 + 2 * 80 * 48 + 48 * 80;
  EXPECT_EQ(dual.layers[0].weight_bytes(), elements * 2);
  EXPECT_EQ(single.layers[1].weight_bytes(), elements * 2);
}

TEST(Weights, ReportProgressFromTheCallingThreadUntilAllIsDone) {
  const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder("bf16-gqa4"));
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<uint64_t> done;
  uint64_t last_total = 0;
  const Progress progress = [&](uint64_t now, uint64_t total) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_LE(now, total);
    EXPECT_GE(now, done.empty() ? 0 : done.back());
    done.push_back(now);
    last_total = total;
  };
  ASSERT_TRUE(
      load_weights(checkpoint, {.dtype = DType::kS8, .thread_count = 3, .progress = progress}));
  ASSERT_GT(done.size(), 2u);
  EXPECT_EQ(done.front(), 0u);
  EXPECT_EQ(done.back(), last_total);
  // Two layers of s8, and a head of bf16.
  const int64_t layer = 512 * 48 + 2 * 128 * 48 + 48 * 512 + 2 * 80 * 48 + 48 * 80;
  EXPECT_EQ(last_total, static_cast<uint64_t>(2 * layer + 160 * 48 * 2));
}

TEST(Weights, ThatAreNotFiniteAreNamedWithTheirPlace) {
  struct Case {
    std::string tensor;
    int64_t index;
    float value;
    std::string message;
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float kNan = std::nanf("");
  const Case cases[] = {
      {"model.layers.1.self_attn.q_norm.weight", 5, kNan,
       "DIR/model-00002-of-00002.safetensors: tensor \"model.layers.1.self_attn.q_norm.weight\" "
       "has nan in element 5; weights must be finite"},
      {"model.norm.weight", 47, -kInfinity,
       "DIR/model-00002-of-00002.safetensors: tensor \"model.norm.weight\" has -inf in element "
       "47; weights must be finite"},
      {"model.layers.0.mlp.down_proj.weight", 47 * 80 + 79, kNan,
       "DIR/model-00001-of-00002.safetensors: tensor \"model.layers.0.mlp.down_proj.weight\" has "
       "nan in row 47, column 79; weights must be finite"},
      {"model.layers.1.mlp.up_proj.weight", 3 * 48, kInfinity,
       "DIR/model-00002-of-00002.safetensors: tensor \"model.layers.1.mlp.up_proj.weight\" has "
       "inf in row 3, column 0; weights must be finite"},
      {"model.embed_tokens.weight", 159 * 48 + 7, -kNan,
       "DIR/model-00001-of-00002.safetensors: tensor \"model.embed_tokens.weight\" has nan in row "
       "159, column 7; weights must be finite"},
      {"lm_head.weight", 16 * 48 + 1, kInfinity,
       "DIR/model-00002-of-00002.safetensors: tensor \"lm_head.weight\" has inf in row 16, column "
       "1; weights must be finite"},
  };
  for (const Case& each : cases) {
    const CheckpointCopy copy("bf16-gqa4");
    ASSERT_EQ(load_error(copy, {}), "(no error)");
    copy.set_element(each.tensor, each.index, each.value);
    for (const DType dtype : kDTypes) {
      const int threads = dtype == DType::kS8 ? 1 : 3;
      EXPECT_EQ(load_error(copy, {.dtype = dtype, .thread_count = threads}), each.message)
          << dtype_name(dtype);
    }
  }
}

TEST(Weights, OfATiedTableAreCheckedToo) {
  const CheckpointCopy copy("f32-gqa4-tied");
  copy.set_element(kEmbeddingName, 17 * 48 + 3, std::nanf(""));
  EXPECT_NE(load_error(copy, {}).find("has nan in row 17, column 3"), std::string::npos);
  // Without the head nobody reads it.
  EXPECT_EQ(load_error(copy, {.with_head = false}), "(no error)");
}

// Of several, the first in the order of packing, whatever the threads do.
TEST(Weights, TheSameErrorComesFirstWithAnyNumberOfThreads) {
  const CheckpointCopy copy("f32-gqa5");
  for (const int64_t row : {2, 20, 40, 79})
    copy.set_element("model.layers.0.mlp.up_proj.weight", row * 48, std::nanf(""));
  for (int threads = 1; threads <= 5; ++threads)
    EXPECT_NE(load_error(copy, {.thread_count = threads}).find("row 2, column 0"),
              std::string::npos);
}

TEST(Weights, ThatTheTypeCannotHoldAreAnError) {
  const CheckpointCopy copy("f32-gqa5");
  copy.set_element("model.layers.0.self_attn.k_proj.weight", 48 + 2, -65520.0f);
  const std::string message = load_error(copy, {.dtype = DType::kF16});
  EXPECT_NE(message.find("has -65520 in row 1, column 2; f16 cannot hold that"), std::string::npos)
      << message;
  for (const DType dtype : {DType::kS8, DType::kBf16, DType::kF32})
    EXPECT_EQ(load_error(copy, {.dtype = dtype}), "(no error)");
  copy.set_element("model.layers.0.self_attn.k_proj.weight", 48 + 2, 3.4e38f);
  EXPECT_NE(load_error(copy, {.dtype = DType::kBf16}).find("bf16 cannot hold that"),
            std::string::npos);
  EXPECT_EQ(load_error(copy, {.dtype = DType::kF32}), "(no error)");
}

TEST(Weights, ThatAreMissingAreNamed) {
  const CheckpointCopy copy("bf16-gqa4");
  copy.rename("model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.heavy!");
  EXPECT_EQ(load_error(copy, {}),
            "DIR: tensor \"model.layers.1.mlp.up_proj.weight\" is not among its 25; are "
            "config.json and the weights of the same model?");
  EXPECT_EQ(load_error(copy, {.layers = 1}), "(no error)");
  copy.rename("lm_head.weight", "lm_head.heavy!");
  EXPECT_EQ(load_error(copy, {.layers = 1}),
            "DIR: tensor \"lm_head.weight\" is not among its 25; config.json says that embeddings "
            "are not tied");
  EXPECT_EQ(load_error(copy, {.layers = 1, .with_head = false}), "(no error)");
}

TEST(Weights, OfAnotherShapeAreRefused) {
  const CheckpointCopy copy("bf16-gqa5-tied");
  nlohmann::json config = copy.read_json("config.json");
  config["intermediate_size"] = 96;
  copy.write_json("config.json", config);
  EXPECT_EQ(load_error(copy, {}),
            "DIR/model.safetensors: tensor \"model.layers.0.mlp.gate_proj.weight\" has shape "
            "[80, 48]; by config.json it must be [96, 48]");
}

TEST(Weights, OptionsThatMakeNoSenseAreErrors) {
  const CheckpointCopy copy("bf16-gqa4");
  EXPECT_EQ(load_error(copy, {.dtype = DType::kS32}), "weights are s8, bf16, f16 or f32, not s32");
  EXPECT_EQ(load_error(copy, {.layers = 3}), "3 layers of a model that has 2");
  EXPECT_EQ(load_error(copy, {.layers = -1}), "-1 layers of a model that has 2");
  EXPECT_EQ(load_error(copy, {.thread_count = -1}), "-1 threads cannot pack weights");
}

}  // namespace
}  // namespace gapless
