// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "model/weights.h"

namespace gapless {
namespace {

constexpr DType kDTypes[] = {DType::kS8, DType::kBf16, DType::kF16, DType::kF32};

// Odd sizes: the last panel, the last line and the last hash are not whole.
ModelConfig small_config(bool tied = false) {
  return {.name = "small",
          .layers = 3,
          .hidden = 97,
          .intermediate = 131,
          .q_heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .vocabulary = 203,
          .max_positions = 64,
          .rope_theta = 1e6,
          .rms_eps = 1e-6,
          .tied_embeddings = tied};
}

ModelWeights make(const ModelConfig& config, uint64_t seed, const WeightOptions& options) {
  Result<ModelWeights> weights = make_synthetic_weights(config, seed, options);
  if (!weights) ADD_FAILURE() << weights.error().message;
  return std::move(weights).value();
}

bool same(const PackedMatrix& a, const PackedMatrix& b) {
  if (a.dtype() != b.dtype() || a.n() != b.n() || a.k() != b.k()) return false;
  if (a.panel_count() != b.panel_count()) return false;
  const size_t bytes = static_cast<size_t>(a.line_count() * kLineBytes);
  for (int64_t i = 0; i < a.panel_count(); ++i)
    if (std::memcmp(a.panel(i), b.panel(i), bytes) != 0) return false;
  if (a.dtype() != DType::kS8) return true;
  const size_t scales = static_cast<size_t>(a.panel_count() * kPanelRows) * sizeof(float);
  return std::memcmp(a.panel_scales(), b.panel_scales(), scales) == 0;
}

bool same(const LayerWeights& a, const LayerWeights& b) {
  return a.input_norm == b.input_norm && a.q_norm == b.q_norm && a.k_norm == b.k_norm &&
         a.post_norm == b.post_norm && same(a.q, b.q) && same(a.k, b.k) && same(a.v, b.v) &&
         same(a.out, b.out) && same(a.gate_up, b.gate_up) && same(a.gate, b.gate) &&
         same(a.up, b.up) && same(a.down, b.down);
}

bool same(const ModelWeights& a, const ModelWeights& b) {
  if (a.layers.size() != b.layers.size() || a.final_norm != b.final_norm) return false;
  for (size_t i = 0; i < a.layers.size(); ++i)
    if (!same(a.layers[i], b.layers[i])) return false;
  if (!same(a.head, b.head) || a.embedding.storage.size() != b.embedding.storage.size())
    return false;
  return std::memcmp(a.embedding.rows, b.embedding.rows, a.embedding.storage.size()) == 0;
}

TEST(SyntheticWeights, AreTheSameWithAnyNumberOfThreads) {
  for (const DType dtype : kDTypes) {
    for (const bool dual : {true, false}) {
      const WeightOptions one = {.dtype = dtype, .dual_gate_up = dual, .thread_count = 1};
      const WeightOptions three = {.dtype = dtype, .dual_gate_up = dual, .thread_count = 3};
      EXPECT_TRUE(same(make(small_config(), 7, one), make(small_config(), 7, three)));
    }
  }
}

TEST(SyntheticWeights, DifferWithTheSeed) {
  const ModelWeights a = make(small_config(), 0, {});
  const ModelWeights b = make(small_config(), 1, {});
  EXPECT_FALSE(same(a.layers[0].q, b.layers[0].q));
  EXPECT_NE(a.layers[0].input_norm, b.layers[0].input_norm);
  EXPECT_FALSE(same(a.head, b.head));
  EXPECT_NE(std::memcmp(a.embedding.rows, b.embedding.rows, a.embedding.storage.size()), 0);
}

TEST(SyntheticWeights, DifferFromLayerToLayerAndTensorToTensor) {
  const ModelWeights weights = make(small_config(), 7, {.dual_gate_up = false});
  EXPECT_FALSE(same(weights.layers[0].q, weights.layers[1].q));
  EXPECT_FALSE(same(weights.layers[1].down, weights.layers[2].down));
  EXPECT_NE(weights.layers[0].input_norm, weights.layers[1].input_norm);
  EXPECT_NE(weights.layers[0].input_norm, weights.layers[0].post_norm);
  EXPECT_FALSE(same(weights.layers[0].k, weights.layers[0].v));
  EXPECT_FALSE(same(weights.layers[0].gate, weights.layers[0].up));
}

TEST(SyntheticWeights, OfALayerDoNotDependOnHowManyThereAre) {
  const ModelWeights all = make(small_config(), 7, {});
  const ModelWeights one = make(small_config(), 7, {.layers = 1, .with_head = false});
  ModelConfig deeper = small_config();
  deeper.layers = 5;
  const ModelWeights more = make(deeper, 7, {});
  ASSERT_EQ(one.layers.size(), 1u);
  EXPECT_EQ(one.config.layers, 1);
  EXPECT_TRUE(same(one.layers[0], all.layers[0]));
  EXPECT_TRUE(same(more.layers[2], all.layers[2]));
  EXPECT_FALSE(one.has_head);
  EXPECT_EQ(one.embedding.rows, nullptr);
}

// bf16 is what all others are made of: f32 has its values, s8 is what quantising it gives.
TEST(SyntheticWeights, HaveTheSameValuesInEveryType) {
  const ModelWeights bf16 = make(small_config(), 7, {.dtype = DType::kBf16});
  const PackedMatrix& down = bf16.layers[1].down;
  const int64_t n = down.n();
  const int64_t k = down.k();
  std::vector<Bf16> values;
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i) values.push_back(to_bf16(down.value(row, i)));
  for (const DType dtype : kDTypes) {
    PackedMatrix expected = PackedMatrix::create(dtype, n, k).value();
    expected.set_rows(0, n, DType::kBf16, values.data());
    const ModelWeights made = make(small_config(), 7, {.dtype = dtype});
    EXPECT_TRUE(same(made.layers[1].down, expected)) << dtype_name(dtype);
    EXPECT_EQ(made.layers[1].q_norm, bf16.layers[1].q_norm);
    EXPECT_EQ(made.embedding.dtype, DType::kBf16);
    EXPECT_EQ(made.head.dtype(), dtype == DType::kS8 ? DType::kBf16 : dtype);
  }
}

TEST(SyntheticWeights, GateAndUpAreTheSamePairedOrAlone) {
  const ModelWeights dual = make(small_config(), 7, {});
  const ModelWeights single = make(small_config(), 7, {.dual_gate_up = false});
  const PackedMatrix& pair = dual.layers[0].gate_up;
  for (int64_t row = 0; row < pair.n(); ++row) {
    for (int64_t k = 0; k < pair.k(); ++k) {
      ASSERT_EQ(pair.value(row, k, 0), single.layers[0].gate.value(row, k));
      ASSERT_EQ(pair.value(row, k, 1), single.layers[0].up.value(row, k));
    }
  }
}

TEST(SyntheticWeights, ATiedHeadIsTheEmbedding) {
  const ModelWeights weights = make(small_config(true), 7, {.dtype = DType::kS8});
  const Bf16* table = static_cast<const Bf16*>(weights.embedding.rows);
  ASSERT_EQ(weights.head.n(), 203);
  for (int64_t row = 0; row < 203; ++row)
    for (int64_t k = 0; k < 97; ++k)
      ASSERT_EQ(weights.head.value(row, k), to_float(table[row * 97 + k]));
  const ModelWeights untied = make(small_config(), 7, {});
  EXPECT_NE(untied.head.value(0, 0), to_float(*static_cast<const Bf16*>(untied.embedding.rows)));
}

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
  double kurtosis = 0.0;
  double largest = 0.0;
};

Moments moments_of(const PackedMatrix& matrix) {
  Moments moments;
  const double count = static_cast<double>(matrix.n() * matrix.k());
  double squares = 0.0;
  double fourths = 0.0;
  for (int64_t row = 0; row < matrix.n(); ++row) {
    for (int64_t k = 0; k < matrix.k(); ++k) {
      const double value = matrix.value(row, k);
      moments.mean += value / count;
      squares += value * value / count;
      fourths += value * value * value * value / count;
      moments.largest = std::max(moments.largest, std::abs(value));
    }
  }
  moments.deviation = std::sqrt(squares);
  moments.kurtosis = fourths / (squares * squares);
  return moments;
}

// Bounds are six deviations of what so many independent normal numbers would give.
TEST(SyntheticWeights, AreNormalWithTheDeviationOfTheirRole) {
  const ModelWeights weights =
      make(small_config(), 7, {.dtype = DType::kF32, .dual_gate_up = false});
  const LayerWeights& layer = weights.layers[0];
  const struct {
    const PackedMatrix* matrix;
    double deviation;
  } cases[] = {{&layer.q, 1.0 / std::sqrt(97.0)},      {&layer.gate, 1.0 / std::sqrt(97.0)},
               {&layer.up, 1.0 / std::sqrt(97.0)},     {&layer.out, 0.25 / std::sqrt(256.0)},
               {&layer.down, 0.25 / std::sqrt(131.0)}, {&weights.head, 1.0 / std::sqrt(97.0)}};
  for (const auto& each : cases) {
    const Moments moments = moments_of(*each.matrix);
    const double count = static_cast<double>(each.matrix->n() * each.matrix->k());
    EXPECT_NEAR(moments.mean / each.deviation, 0.0, 6.0 / std::sqrt(count));
    EXPECT_NEAR(moments.deviation / each.deviation, 1.0, 6.0 / std::sqrt(2.0 * count) + 1e-3);
    EXPECT_NEAR(moments.kurtosis, 3.0, 6.0 * std::sqrt(24.0 / count) + 0.05);
    EXPECT_GT(moments.largest / each.deviation, 3.0);
    EXPECT_LT(moments.largest / each.deviation, 4.0);
  }
}

// A generator that repeats itself, in a row or from row to row, would show here.
TEST(SyntheticWeights, NeighboursAreNotAlike) {
  const ModelWeights weights = make(small_config(), 7, {.dtype = DType::kF32});
  const PackedMatrix& q = weights.layers[0].q;
  for (int64_t distance = 1; distance <= 16; ++distance) {
    double along = 0.0;
    double across = 0.0;
    const int64_t rows = q.n() - distance;
    const int64_t columns = q.k() - distance;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        along += double{q.value(row, k)} * q.value(row, k + distance) * 97.0;
        across += double{q.value(row, k)} * q.value(row + distance, k) * 97.0;
      }
    }
    const double count = static_cast<double>(rows * columns);
    EXPECT_LT(std::abs(along), 6.0 * std::sqrt(count)) << distance;
    EXPECT_LT(std::abs(across), 6.0 * std::sqrt(count)) << distance;
  }
}

TEST(SyntheticWeights, NormsAreOneWithinATenth) {
  const ModelWeights weights = make(small_config(), 7, {});
  float smallest = 2.0f;
  float largest = 0.0f;
  for (const float value : weights.layers[0].input_norm) {
    EXPECT_EQ(value, cast_through(DType::kBf16, value));
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  EXPECT_GE(smallest, cast_through(DType::kBf16, 0.9f));
  EXPECT_LT(smallest, 0.92f);
  EXPECT_LE(largest, cast_through(DType::kBf16, 1.1f));
  EXPECT_GT(largest, 1.08f);
}

double rms(const std::vector<double>& x) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

std::vector<double> times(const PackedMatrix& matrix, const std::vector<double>& x, int which = 0) {
  std::vector<double> y(static_cast<size_t>(matrix.n()), 0.0);
  for (int64_t row = 0; row < matrix.n(); ++row)
    for (int64_t k = 0; k < matrix.k(); ++k)
      y[static_cast<size_t>(row)] += matrix.value(row, k, which) * x[static_cast<size_t>(k)];
  return y;
}

std::vector<double> normed(const std::vector<double>& x, const std::vector<float>& gamma) {
  std::vector<double> y = x;
  const double scale = 1.0 / rms(x);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= scale * gamma[i];
  return y;
}

// One token through many layers; with one token attention gives v back, the most it ever gives.
TEST(SyntheticWeights, ActivationsStayNearOneThroughFortyLayers) {
  ModelConfig config = small_config();
  config.layers = 40;
  const ModelWeights weights = make(config, 3, {.dtype = DType::kF32});
  const Bf16* table = static_cast<const Bf16*>(weights.embedding.rows);
  std::vector<double> x;
  for (int64_t i = 0; i < config.hidden; ++i) x.push_back(to_float(table[5 * config.hidden + i]));
  EXPECT_NEAR(rms(x), 1.0, 0.3);
  for (const LayerWeights& layer : weights.layers) {
    const std::vector<double> value = times(layer.v, normed(x, layer.input_norm));
    EXPECT_NEAR(rms(value), 1.0, 0.4);
    std::vector<double> heads;
    for (size_t head = 0; head < 4; ++head)
      for (size_t i = 0; i < 64; ++i) heads.push_back(value[head / 2 * 64 + i]);
    const std::vector<double> attended = times(layer.out, heads);
    for (size_t i = 0; i < x.size(); ++i) x[i] += attended[i];
    const std::vector<double> post = normed(x, layer.post_norm);
    std::vector<double> inner = times(layer.gate_up, post, 0);
    const std::vector<double> up = times(layer.gate_up, post, 1);
    EXPECT_NEAR(rms(inner), 1.0, 0.4);
    for (size_t i = 0; i < inner.size(); ++i) inner[i] *= up[i] / (1.0 + std::exp(-inner[i]));
    const std::vector<double> added = times(layer.down, inner);
    for (size_t i = 0; i < x.size(); ++i) x[i] += added[i];
    EXPECT_GT(rms(x), 0.7);
    EXPECT_LT(rms(x), 3.0);
  }
  EXPECT_NEAR(rms(times(weights.head, normed(x, weights.final_norm))), 1.0, 0.3);
}

TEST(SyntheticWeights, MoreThanTheMachineHasIsAnError) {
  ModelConfig config = small_config();
  config.layers = 1024;
  config.hidden = 65536;
  config.intermediate = 1 << 20;
  const Result<ModelWeights> weights = make_synthetic_weights(config, 0, {.dtype = DType::kF32});
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("1024 layers of small in f32 take 84"), std::string::npos)
      << weights.error().message;
  EXPECT_NE(weights.error().message.find("GB are free; take fewer layers"), std::string::npos);
}

TEST(SyntheticWeights, AConfigThatMakesNoSenseIsAnError) {
  ModelConfig config = small_config();
  config.head_dim = 63;
  const Result<ModelWeights> weights = make_synthetic_weights(config, 0, {});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().message, "small: head_dim is 63; the attention knows 64, 128 and 256");
}

}  // namespace
}  // namespace gapless
