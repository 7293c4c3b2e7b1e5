// SPDX-License-Identifier: Apache-2.0
//
// Weights on the GPU against those that the CPU makes or loads, packed by pack_cuda_weights: bit
// for bit.

#include "model/cuda_weights.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "base/temporary_directory.h"
#include "cuda/fill.h"
#include "cuda/gpu_test_support.h"
#include "cuda/kv_pages.h"
#include "cuda/matmul.h"
#include "model/checkpoint_test_support.h"
#include "model/cuda_decoder.h"
#include "model/cuda_weight_plan.h"
#include "model/layer_reference.h"
#include "model/quantize.h"
#include "model/random_values.h"

namespace gapless {
namespace {

// Nothing is a multiple of 64 that need not be.
ModelConfig small_config(bool tied) {
  return {.name = "small",
          .layers = 2,
          .hidden = 48,
          .intermediate = 80,
          .q_heads = 5,
          .kv_heads = 1,
          .head_dim = 64,
          .vocabulary = 160,
          .max_positions = 64,
          .rope_theta = 1e6,
          .rms_eps = 1e-6,
          .tied_embeddings = tied};
}

// Several tiles and bricks, and a k that is padded.
ModelConfig larger_config() {
  ModelConfig config = small_config(false);
  config.name = "larger";
  config.layers = 1;
  config.hidden = 400;
  config.intermediate = 720;
  config.q_heads = 6;
  config.kv_heads = 2;
  config.vocabulary = 272;
  return config;
}

// On a GPU of 112 to 140 SMs its gate and up have small tiles.
ModelConfig wide_config() {
  ModelConfig config = small_config(false);
  config.name = "wide";
  config.layers = 1;
  config.intermediate = 3584;
  return config;
}

// ---- Plans and errors.

TEST(CudaWeights, KIsPaddedToWholeBricksOfEitherType) {
  EXPECT_EQ(cuda_padded_k(1), 64);
  EXPECT_EQ(cuda_padded_k(64), 64);
  EXPECT_EQ(cuda_padded_k(80), 128);
  EXPECT_EQ(cuda_padded_k(17408), 17408);
}

TEST(CudaWeights, QkvIsOneMatrixAndGateAndUpAreOneOrTwo) {
  const ModelConfig config = small_config(false);
  const std::vector<CudaMatrixPlan> dual = plan_cuda_layer(config, 1, {.dtype = DType::kS8});
  ASSERT_EQ(dual.size(), 4u);
  EXPECT_EQ(dual[0].place, &CudaLayerWeights::qkv);
  EXPECT_EQ(dual[0].shape.columns, 320 + 64 + 64);
  EXPECT_EQ(dual[0].shape.k, 64);
  EXPECT_EQ(dual[0].columns(), 48);
  ASSERT_EQ(dual[0].parts.size(), 3u);
  EXPECT_EQ(dual[0].parts[2].name, "model.layers.1.self_attn.v_proj.weight");
  EXPECT_EQ(dual[2].place, &CudaLayerWeights::gate_up);
  EXPECT_TRUE(dual[2].shape.is_gated);
  EXPECT_EQ(dual[2].shape.columns, 80);
  EXPECT_EQ(dual[3].shape.k, 128);
  EXPECT_EQ(dual[3].columns(), 80);
  const std::vector<CudaMatrixPlan> apart = plan_cuda_layer(config, 1, {.dual_gate_up = false});
  ASSERT_EQ(apart.size(), 5u);
  EXPECT_EQ(apart[2].place, &CudaLayerWeights::gate);
  EXPECT_EQ(apart[3].place, &CudaLayerWeights::up);
  EXPECT_FALSE(apart[3].shape.is_gated);
  EXPECT_EQ(plan_cuda_head(config).parts[0].name, "lm_head.weight");
  EXPECT_EQ(plan_cuda_head(small_config(true)).parts[0].name, "model.embed_tokens.weight");
}

// In bf16 every matrix of a layer of Qwen3-14B is a whole number of steps of 2 MiB.
TEST(CudaWeights, BytesOfAModelAreThoseOfItsAllocations) {
  const ModelConfig config = find_model_config("qwen3-14b").value();
  constexpr int64_t kStep = int64_t{2} << 20;
  const int64_t weights = int64_t{5120} * (7168 + 5120 + 2 * 17408 + 17408);
  const int64_t norms = (2 * 5120 + 2 * 128) * 4;
  const int64_t table = (int64_t{151936} * 5120 * 2 + kStep - 1) / kStep * kStep;
  EXPECT_EQ(cuda_weights_bytes(config, {.with_head = false}).value(), 40 * (2 * weights + norms));
  EXPECT_EQ(cuda_weights_bytes(config, {}).value(),
            40 * (2 * weights + norms) + 2 * table + 5120 * 4);
  // s8: half of qkv, out, gate_up and down are 17.5, 12.5, 85 and 42.5 steps.
  const int64_t scales = (7168 + 5120 + 2 * 17408 + 5120) * 4;
  EXPECT_EQ(
      cuda_weights_bytes(config, {.dtype = DType::kS8, .layers = 1, .with_head = false}).value(),
      (18 + 13 + 85 + 43) * kStep + scales + norms);
  const int64_t f32_more =
      cuda_weights_bytes(config, {}, DType::kF32).value() - cuda_weights_bytes(config, {}).value();
  EXPECT_EQ(f32_more, (int64_t{151936} * 5120 * 4 + kStep - 1) / kStep * kStep - table);
}

TEST(CudaWeights, OtherTypesAreErrors) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  const Result<CudaModelWeights> made =
      make_synthetic_cuda_weights(small_config(false), 0, {.dtype = DType::kF16});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "the GPU runs bf16 and a8w8 (s8) weights, not f16");
  const Result<CudaModelWeights> loaded =
      load_cuda_weights(open_checkpoint(golden_folder("f32-gqa5")), {.dtype = DType::kF32});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message, "the GPU runs bf16 and a8w8 (s8) weights, not f32");
}

TEST(CudaWeights, AShapeThatTheMatmulsCannotRunIsAnErrorWithTheTensor) {
  ModelConfig config = small_config(false);
  config.hidden = 56;
  EXPECT_EQ(cuda_weights_bytes(config, {}).error().message,
            "model.layers.0.self_attn.o_proj.weight: 56 columns; plain weights on a GPU have a "
            "multiple of 16");
  config = small_config(false);
  config.vocabulary = 163;
  EXPECT_EQ(cuda_weights_bytes(config, {}).error().message,
            "lm_head.weight: 163 columns; plain weights on a GPU have a multiple of 16");
  EXPECT_TRUE(cuda_weights_bytes(config, {.with_head = false}));
}

TEST(CudaWeights, OptionsThatMakeNoSenseAreErrors) {
  EXPECT_EQ(cuda_weights_bytes(small_config(false), {.layers = 3}).error().message,
            "3 layers of a model that has 2");
  ModelConfig config = small_config(false);
  config.head_dim = 63;
  EXPECT_EQ(make_synthetic_cuda_weights(config, 0, {}).error().message,
            "small: head_dim is 63; the attention knows 64, 128 and 256");
}

TEST(CudaWeights, MoreThanIsFreeIsAnErrorWithBothNumbers) {
  const ModelConfig config = find_model_config("qwen3-14b").value();
  const CudaMemory memory = {.free_bytes = 20'000'000'000, .total_bytes = 24'000'000'000};
  const int64_t needed = cuda_weights_bytes(config, {}).value();
  EXPECT_TRUE(check_cuda_memory(config, DType::kBf16, memory.free_bytes, memory));
  const Result<void> checked = check_cuda_memory(config, DType::kBf16, needed, memory);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message, "40 layers of " + config.name +
                                         " in bf16 take 29.5 GB of GPU memory, and 20.0 of 24.0 "
                                         "GB are free; take fewer layers or s8");
}

// Goal: the error names what is too much. Method: 14B on a device of 24 GB, of 32 and of 48.
TEST(CudaDecoderMemory, WhatDoesNotFitIsAnErrorThatSaysWhatToMakeSmaller) {
  const ModelConfig config = find_model_config("qwen3-14b").value();
  const auto error_of = [&](DType dtype, int sequences, int length, int64_t free_bytes) {
    const WeightOptions weights = {.dtype = dtype};
    const Result<void> checked = check_cuda_decoder_memory(
        config, weights, {.max_sequences = sequences, .max_length = length},
        cuda_weights_bytes(config, weights).value(),
        {.free_bytes = free_bytes, .total_bytes = free_bytes + 1'000'000'000});
    return checked ? "" : checked.error().message;
  };
  EXPECT_EQ(error_of(DType::kBf16, 1, 129, 23'000'000'000),
            "40 layers of qwen3-14b in bf16 take 29.5 GB of GPU memory, and 23.0 of 24.0 GB are "
            "free; take fewer layers or s8")
      << "not the cache, which is small";
  EXPECT_EQ(error_of(DType::kBf16, 16, 4096, 31'000'000'000),
            "keys and values of 16 sequences of 4096 tokens in 40 layers take 10.7 GB of GPU "
            "memory, the weights 29.5 GB and a step 0.4 GB, and 31.0 of 32.0 GB are free; take "
            "fewer or shorter sequences, or fewer layers");
  EXPECT_EQ(error_of(DType::kBf16, 16, 4096, 47'000'000'000), "");
  const int64_t weights = cuda_weights_bytes(config, {}).value();
  const CudaDecoderOptions options = {.max_sequences = 1, .max_length = 40960};
  const int64_t needed = weights + cuda_decoder_bytes(config, {}, options);
  EXPECT_EQ(error_of(DType::kBf16, 1, 40960, needed), "");
  EXPECT_NE(error_of(DType::kBf16, 1, 40960, needed - 1), "");
  EXPECT_GT(needed - weights, cuda_kv_cache_bytes(config, options) + 300'000'000)
      << "logits, partial results of the attention and what kernels leave for each other";
}

TEST(CudaWeights, QuantisedCheckpointsStayQuantised) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  const TemporaryDirectory directory;
  const std::string folder = directory.path("s8");
  const std::shared_ptr<const Checkpoint> golden = open_checkpoint(golden_folder("bf16-gqa4"));
  ASSERT_TRUE(quantize_checkpoint(*golden, {.folder = folder, .thread_count = 1}));
  const Result<CudaModelWeights> loaded = load_cuda_weights(open_checkpoint(folder), {});
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("cannot be bf16 again"), std::string::npos)
      << loaded.error().message;
}

// ---- On the device.

std::vector<std::byte> bytes_of(const DeviceBuffer& buffer) {
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.bytes()));
  const Result<void> copied = buffer.copy_to_host(bytes.data(), buffer.bytes());
  if (!copied) ADD_FAILURE() << copied.error().message;
  return bytes;
}

template <typename T>
std::vector<T> values_of(const DeviceBuffer& buffer) {
  const std::vector<std::byte> bytes = bytes_of(buffer);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Half of a packed matrix of the CPU.
struct HostMatrix {
  const PackedMatrix* matrix = nullptr;
  int which = 0;
};

// Rows of such matrices, one below the other, with k padded.
struct HostRows {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
};

HostRows read_rows(const std::vector<HostMatrix>& matrices, DType dtype, int64_t k) {
  HostRows rows;
  for (const HostMatrix& from : matrices) {
    std::vector<double> values(static_cast<size_t>(from.matrix->k()));
    for (int64_t row = 0; row < from.matrix->n(); ++row) {
      rows.scales.push_back(read_packed_row(*from.matrix, row, from.which, values.data()));
      const size_t at = rows.bytes.size();
      rows.bytes.resize(at + static_cast<size_t>(k * dtype_bytes(dtype)));
      for (size_t i = 0; i < values.size(); ++i) {
        if (dtype == DType::kS8) {
          rows.bytes[at + i] = static_cast<std::byte>(static_cast<int8_t>(values[i]));
        } else {
          store_from_float(dtype, rows.bytes.data() + at, static_cast<int64_t>(i),
                           static_cast<float>(values[i]));
        }
      }
    }
  }
  return rows;
}

void expect_matrix(const CudaMatrix& made, const std::vector<HostMatrix>& matrices,
                   const std::vector<HostMatrix>& ups = {}) {
  const CudaWeightShape& shape = made.shape;
  const HostRows rows = read_rows(matrices, shape.dtype, shape.k);
  const HostRows up = read_rows(ups, shape.dtype, shape.k);
  ASSERT_EQ(shape.is_gated, !ups.empty());
  ASSERT_EQ(std::ssize(rows.scales), shape.columns);
  EXPECT_EQ(shape.tile_rows, best_tile_rows(shape, cuda_limits().value()));
  std::vector<std::byte> packed(static_cast<size_t>(cuda_weight_bytes(shape)));
  const void* up_bytes = shape.is_gated ? up.bytes.data() : nullptr;
  ASSERT_TRUE(pack_cuda_weights({shape, rows.bytes.data(), up_bytes}, packed));
  EXPECT_TRUE(bytes_of(made.weights) == packed);
  EXPECT_EQ(made.weight_bytes(), std::ssize(packed));
  if (shape.dtype != DType::kS8) {
    EXPECT_EQ(made.scales.bytes(), 0);
    return;
  }
  std::vector<float> scales(static_cast<size_t>(cuda_weight_rows(shape)));
  const float* up_scales = shape.is_gated ? up.scales.data() : nullptr;
  ASSERT_TRUE(pack_cuda_scales({shape, rows.scales.data(), up_scales}, scales));
  EXPECT_EQ(values_of<float>(made.scales), scales);
}

void expect_layer(const CudaLayerWeights& made, const LayerWeights& host, bool dual_gate_up) {
  std::vector<float> norms;
  for (const std::vector<float>* norm :
       {&host.input_norm, &host.post_norm, &host.q_norm, &host.k_norm})
    norms.insert(norms.end(), norm->begin(), norm->end());
  EXPECT_EQ(values_of<float>(made.norms), norms);
  const float* const begin = reinterpret_cast<const float*>(made.norms.data());
  EXPECT_EQ(made.input_norm, begin);
  EXPECT_EQ(made.post_norm, begin + host.input_norm.size());
  EXPECT_EQ(made.q_norm, begin + 2 * host.input_norm.size());
  EXPECT_EQ(made.k_norm, made.q_norm + host.q_norm.size());
  expect_matrix(made.qkv, {{&host.q}, {&host.k}, {&host.v}});
  expect_matrix(made.out, {{&host.out}});
  expect_matrix(made.down, {{&host.down}});
  if (dual_gate_up) {
    expect_matrix(made.gate_up, {{&host.gate_up, 0}}, {{&host.gate_up, 1}});
    EXPECT_EQ(made.gate.weights.bytes() + made.up.weights.bytes(), 0);
  } else {
    expect_matrix(made.gate, {{&host.gate}});
    expect_matrix(made.up, {{&host.up}});
    EXPECT_EQ(made.gate_up.weights.bytes(), 0);
  }
}

void expect_model(const Result<CudaModelWeights>& made, const Result<ModelWeights>& host) {
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_EQ(made->config, host->config);
  EXPECT_EQ(made->dtype, host->dtype);
  EXPECT_EQ(made->dual_gate_up, host->dual_gate_up);
  ASSERT_EQ(made->layers.size(), host->layers.size());
  for (size_t i = 0; i < made->layers.size(); ++i)
    expect_layer(made->layers[i], host->layers[i], host->dual_gate_up);
  ASSERT_EQ(made->has_head, host->has_head);
  if (!host->has_head) {
    EXPECT_EQ(made->embedding.bytes() + made->head.weights.bytes(), 0);
    return;
  }
  EXPECT_EQ(values_of<float>(made->final_norm), host->final_norm);
  expect_matrix(made->head, {{&host->head}});
  ASSERT_EQ(made->embedding_dtype, host->embedding.dtype);
  const ModelConfig& config = host->config;
  ASSERT_EQ(made->embedding.bytes(),
            int64_t{config.vocabulary} * config.hidden * dtype_bytes(host->embedding.dtype));
  const std::vector<std::byte> embedding = bytes_of(made->embedding);
  EXPECT_EQ(std::memcmp(embedding.data(), host->embedding.rows, embedding.size()), 0);
}

class CudaWeightsOnDevice : public GpuTest {};

TEST_F(CudaWeightsOnDevice, SyntheticOnesAreThoseOfTheCpu) {
  for (const ModelConfig& config :
       {small_config(false), small_config(true), larger_config(), wide_config()}) {
    for (const DType dtype : {DType::kBf16, DType::kS8}) {
      for (const bool dual : {true, false}) {
        SCOPED_TRACE(config.name + (config.tied_embeddings ? " tied " : " ") +
                     std::string(dtype_name(dtype)) + (dual ? " dual" : ""));
        const WeightOptions options = {.dtype = dtype, .dual_gate_up = dual, .thread_count = 1};
        expect_model(make_synthetic_cuda_weights(config, 7, options),
                     make_synthetic_weights(config, 7, options));
      }
    }
  }
}

TEST_F(CudaWeightsOnDevice, LoadedOnesAreThoseOfTheCpu) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  for (const char* name : kGoldenNames) {
    const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder(name));
    for (const DType dtype : {DType::kBf16, DType::kS8}) {
      for (const bool dual : {true, false}) {
        SCOPED_TRACE(std::string(name) + " " + std::string(dtype_name(dtype)) +
                     (dual ? " dual" : ""));
        const WeightOptions options = {.dtype = dtype, .dual_gate_up = dual, .thread_count = 2};
        expect_model(load_cuda_weights(checkpoint, options), load_weights(checkpoint, options));
      }
    }
  }
}

TEST_F(CudaWeightsOnDevice, StoredS8IsLoadedAsItIs) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  const TemporaryDirectory directory;
  const std::string folder = directory.path("s8");
  const std::shared_ptr<const Checkpoint> golden = open_checkpoint(golden_folder("f32-gqa5"));
  ASSERT_TRUE(quantize_checkpoint(*golden, {.folder = folder, .thread_count = 1}));
  const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(folder);
  const WeightOptions options = {.dtype = DType::kS8, .thread_count = 1};
  expect_model(load_cuda_weights(checkpoint, options), load_weights(checkpoint, options));
}

TEST_F(CudaWeightsOnDevice, FewerLayersWithoutAHeadAreTheFirstOnes) {
  const WeightOptions options = {
      .dtype = DType::kS8, .layers = 1, .with_head = false, .thread_count = 1};
  expect_model(make_synthetic_cuda_weights(small_config(false), 7, options),
               make_synthetic_weights(small_config(false), 7, options));
}

TEST_F(CudaWeightsOnDevice, AWeightThatIsNotANumberIsAnError) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  const CheckpointCopy copy("bf16-gqa4");
  copy.set_element(layer_weight_name(1, LayerWeight::kV), 3, std::nanf(""));
  const Result<CudaModelWeights> loaded =
      load_cuda_weights(copy.open(), {.dtype = DType::kS8, .thread_count = 1});
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("has nan in row 0, column 3; weights must be finite"),
            std::string::npos)
      << loaded.error().message;
}

TEST_F(CudaWeightsOnDevice, MoreThanTheDeviceHasIsAnError) {
  ModelConfig config = small_config(false);
  config.layers = 1024;
  config.hidden = 8192;
  config.intermediate = 65536;
  const Result<CudaModelWeights> made = make_synthetic_cuda_weights(config, 0, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message.find("1024 layers of small in bf16 take 3313.6 GB of GPU memory"),
            0u)
      << made.error().message;
}

TEST_F(CudaWeightsOnDevice, ProgressEndsWhereItSaid) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  const auto progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, done_bytes);
    done_bytes = done;
    total_bytes = total;
  };
  for (const bool is_loaded : {false, true}) {
    done_bytes = 0;
    const WeightOptions options = {.thread_count = 1, .progress = progress};
    const Result<CudaModelWeights> weights =
        is_loaded ? load_cuda_weights(open_checkpoint(golden_folder("bf16-gqa4")), options)
                  : make_synthetic_cuda_weights(small_config(false), 7, options);
    ASSERT_TRUE(weights) << weights.error().message;
    int64_t packed_bytes = weights->head.weight_bytes();
    for (const CudaLayerWeights& layer : weights->layers) packed_bytes += layer.weight_bytes();
    EXPECT_EQ(done_bytes, total_bytes);
    EXPECT_EQ(static_cast<int64_t>(total_bytes), packed_bytes);
    EXPECT_GT(weights->device_bytes(), packed_bytes);
    EXPECT_LE(weights->device_bytes(), cuda_weights_bytes(weights->config, options).value());
  }
}

// What CpuDecoder::fill_sequence writes, from its two functions.
uint16_t kv_bits(const KvShape& shape, int layer, int head, int token, bool is_value, int dim) {
  std::vector<float> values(static_cast<size_t>(2 * shape.head_dim));
  const uint64_t place = (static_cast<uint64_t>(layer) * 1024 + static_cast<uint64_t>(head)) << 32 |
                         static_cast<uint64_t>(token);
  fill_normal(21, place, values);
  const size_t at = static_cast<size_t>(is_value ? shape.head_dim + dim : dim);
  const float value = is_value ? values[at] * 0.5f : values[at];
  return shape.dtype == DType::kBf16 ? to_bf16(value).bits : to_f16(value).bits;
}

struct KvFill {
  KvShape shape;
  std::vector<int32_t> sequence_pages;
  int64_t page_count = 0;
  int first_token = 0;
  int end_token = 0;
  int layer = 0;
};

// The layer's pages, which were 0xffff.
std::vector<uint16_t> fill_pages(const KvFill& fill) {
  const KvShape& shape = fill.shape;
  const int64_t bytes =
      fill.page_count * cuda_kv_page_bytes(shape.kv_heads, shape.head_dim, shape.page_tokens);
  DeviceBuffer pages = DeviceBuffer::allocate(bytes, "a test").value();
  const int64_t list_bytes = std::ssize(fill.sequence_pages) * 4;
  DeviceBuffer list = DeviceBuffer::allocate(list_bytes, "a test").value();
  EXPECT_TRUE(list.copy_from_host(fill.sequence_pages.data(), list_bytes));
  EXPECT_TRUE(pages.fill(0xff));
  const Result<void> launched =
      launch_fill_kv({.shape = shape,
                      .pages = pages.data(),
                      .page_count = fill.page_count,
                      .sequence_pages = reinterpret_cast<const int32_t*>(list.data()),
                      .first_token = fill.first_token,
                      .end_token = fill.end_token,
                      .layer = fill.layer,
                      .seed = 21},
                     nullptr);
  if (!launched) ADD_FAILURE() << launched.error().message;
  return values_of<uint16_t>(pages);
}

void expect_filled(const KvFill& fill) {
  const KvShape& shape = fill.shape;
  SCOPED_TRACE(std::string(dtype_name(shape.dtype)) + " " + std::to_string(shape.head_dim));
  const std::vector<uint16_t> made = fill_pages(fill);
  std::vector<uint16_t> expected(made.size(), 0xffff);
  const int64_t block = int64_t{shape.page_tokens} * shape.head_dim;
  for (int token = fill.first_token; token < fill.end_token; ++token) {
    const int64_t page = fill.sequence_pages[static_cast<size_t>(token / shape.page_tokens)];
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int dim = 0; dim < shape.head_dim; ++dim) {
        const int64_t at = (page * shape.kv_heads + head) * 2 * block +
                           cuda_kv_element(shape.head_dim, token % shape.page_tokens, dim);
        const size_t key = static_cast<size_t>(at);
        expected[key] = kv_bits(shape, fill.layer, head, token, false, dim);
        expected[key + static_cast<size_t>(block)] =
            kv_bits(shape, fill.layer, head, token, true, dim);
      }
    }
  }
  EXPECT_TRUE(made == expected);
}

TEST_F(CudaWeightsOnDevice, FilledKeysAndValuesAreThoseOfTheCpu) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    expect_filled({.shape = {dtype, 2, 64, 16},
                   .sequence_pages = {3, 0, 2},
                   .page_count = 5,
                   .first_token = 0,
                   .end_token = 37,
                   .layer = 0});
    expect_filled({.shape = {dtype, 3, 128, 32},
                   .sequence_pages = {1, 2},
                   .page_count = 3,
                   .first_token = 29,
                   .end_token = 35,
                   .layer = 39});
  }
}

}  // namespace
}  // namespace gapless
