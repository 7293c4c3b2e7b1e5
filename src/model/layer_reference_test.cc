// SPDX-License-Identifier: Apache-2.0
//
// The reference of a layer against layers so small that the answer is obvious. Against transformers
// it is in reference_model_test.cc.

#include "model/layer_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/half.h"

namespace gapless {
namespace {

TEST(ReadPackedRow, GivesWhatValueGives) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const DType dtype : {DType::kS8, DType::kBf16, DType::kF16, DType::kF32}) {
    for (const Interleave interleave : {Interleave::kNone, Interleave::kPairs}) {
      for (const int64_t k : {1, 2, 3, 5, 8, 31}) {
        const int64_t n = 37;
        PackedMatrix matrix = std::move(*PackedMatrix::create(dtype, n, k, interleave));
        const int count = interleave == Interleave::kPairs ? 2 : 1;
        std::vector<float> source(static_cast<size_t>(n * k));
        for (int which = 0; which < count; ++which) {
          for (float& value : source) value = normal(random);
          matrix.set_rows(0, n, DType::kF32, source.data(), which);
        }
        std::vector<double> row(static_cast<size_t>(k));
        for (int which = 0; which < count; ++which) {
          for (int64_t i = 0; i < n; ++i) {
            const float scale = read_packed_row(matrix, i, which, row.data());
            for (int64_t j = 0; j < k; ++j) {
              EXPECT_EQ(static_cast<float>(row[static_cast<size_t>(j)]) * scale,
                        matrix.value(i, j, which));
            }
          }
        }
      }
    }
  }
}

// A layer whose heads have two dimensions, with zeros for matrices and ones for norms; keys and
// values are kept as they are. Row r of a run is token r of one sequence.
class TinyLayer : public ReferenceCache {
 public:
  TinyLayer(int hidden, int q_heads, int kv_heads) {
    config_.layers = 1;
    config_.hidden = hidden;
    config_.intermediate = hidden;
    config_.q_heads = q_heads;
    config_.kv_heads = kv_heads;
    config_.head_dim = 2;
    config_.rope_theta = 1e4;
    config_.rms_eps = 1e-12;
    const std::vector<float> ones(static_cast<size_t>(hidden), 1.0f);
    weights_.input_norm = ones;
    weights_.post_norm = ones;
    weights_.q_norm = {1.0f, 1.0f};
    weights_.k_norm = {1.0f, 1.0f};
    weights_.q = zeros(DType::kF32, 2 * q_heads, hidden);
    weights_.k = zeros(DType::kF32, 2 * kv_heads, hidden);
    weights_.v = zeros(DType::kF32, 2 * kv_heads, hidden);
    weights_.out = zeros(DType::kF32, hidden, 2 * q_heads);
    weights_.gate = zeros(DType::kF32, hidden, hidden);
    weights_.up = zeros(DType::kF32, hidden, hidden);
    weights_.down = zeros(DType::kF32, hidden, hidden);
  }

  static PackedMatrix zeros(DType dtype, int n, int k) {
    return std::move(*PackedMatrix::create(dtype, n, k));
  }
  static void fill(PackedMatrix& matrix, const std::vector<float>& values) {
    GAPLESS_CHECK(std::ssize(values) == matrix.n() * matrix.k());
    matrix.set_rows(0, matrix.n(), DType::kF32, values.data());
  }
  LayerWeights& weights() { return weights_; }

  std::vector<double> run(const std::vector<float>& x, bool deferred_norm = true,
                          DType kv_dtype = DType::kF32) {
    const size_t row_count = x.size() / static_cast<size_t>(config_.hidden);
    std::vector<int32_t> lengths(row_count);
    for (size_t row = 0; row < row_count; ++row) lengths[row] = static_cast<int32_t>(row) + 1;
    keys_.assign(static_cast<size_t>(config_.kv_heads), {});
    values_.assign(static_cast<size_t>(config_.kv_heads), {});
    return layer_reference({.config = &config_,
                            .weights = &weights_,
                            .kv_dtype = kv_dtype,
                            .deferred_norm = deferred_norm,
                            .lengths = lengths,
                            .x = x.data(),
                            .cache = this});
  }

  void store(int /*layer*/, int /*row*/, int kv_head, const float* key,
             const float* value) override {
    std::vector<float>& keys = keys_[static_cast<size_t>(kv_head)];
    std::vector<float>& values = values_[static_cast<size_t>(kv_head)];
    keys.insert(keys.end(), key, key + 2);
    values.insert(values.end(), value, value + 2);
  }
  void load(int /*layer*/, int row, int kv_head, float* keys, float* values) const override {
    const int count = 2 * (row + 1);
    std::copy_n(keys_[static_cast<size_t>(kv_head)].begin(), count, keys);
    std::copy_n(values_[static_cast<size_t>(kv_head)].begin(), count, values);
  }

 private:
  ModelConfig config_;
  LayerWeights weights_;
  std::vector<std::vector<float>> keys_;  // by kv head
  std::vector<std::vector<float>> values_;
};

const std::vector<float> kIdentity2 = {1.0f, 0.0f, 0.0f, 1.0f};

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
}

TEST(LayerReference, WithoutWeightsIsTheResidual) {
  TinyLayer layer(2, 1, 1);
  expect_near(layer.run({3.0f, -4.0f}), {3.0, -4.0}, 0.0);
}

// The only token has all of the probability. The rms of (7, 1) is 5; gamma takes (1.4, 0.2) to
// (1.4, 0.4), the values are twice and thrice that.
TEST(LayerReference, AttendsToTheOnlyTokenWithItsNormedValue) {
  TinyLayer layer(2, 1, 1);
  layer.weights().input_norm = {1.0f, 2.0f};
  TinyLayer::fill(layer.weights().v, {2.0f, 0.0f, 0.0f, 3.0f});
  TinyLayer::fill(layer.weights().out, kIdentity2);
  expect_near(layer.run({7.0f, 1.0f}, true), {7.0 + 2.8, 1.0 + 1.2});
  expect_near(layer.run({7.0f, 1.0f}, false), {7.0 + 2.8, 1.0 + 1.2});
}

// Queries and keys of zero give every token the same score.
TEST(LayerReference, AveragesTheValuesOfEqualScores) {
  TinyLayer layer(2, 1, 1);
  TinyLayer::fill(layer.weights().v, kIdentity2);
  TinyLayer::fill(layer.weights().out, kIdentity2);
  expect_near(layer.run({1.0f, 1.0f, 1.0f, -1.0f}), {2.0, 2.0, 2.0, -1.0});
}

// Both queries and both keys are (1, 1) before they are turned, by 0 and by 1 radian: the scores of
// the second token are 2 cos(1) / sqrt(2) and 2 / sqrt(2).
TEST(LayerReference, TurnsQueriesAndKeysByTheirPosition) {
  TinyLayer layer(2, 1, 1);
  TinyLayer::fill(layer.weights().q, {1.0f, 0.0f, 1.0f, 0.0f});
  TinyLayer::fill(layer.weights().k, {1.0f, 0.0f, 1.0f, 0.0f});
  TinyLayer::fill(layer.weights().v, kIdentity2);
  TinyLayer::fill(layer.weights().out, kIdentity2);
  const double first = 1.0 / (1.0 + std::exp(std::sqrt(2.0) * (1.0 - std::cos(1.0))));
  const std::vector<double> y = layer.run({1.0f, 1.0f, 1.0f, -1.0f});
  expect_near(y, {2.0, 2.0, 2.0, -1.0 + first - (1.0 - first)});
}

// The same with a cache that is called bf16: q and the probabilities are cast, the larger of which
// is 1 before the division. (The keys are cast by the cache, which is ours and does not.)
TEST(LayerReference, CastsQueriesAndProbabilitiesForABf16Cache) {
  TinyLayer layer(2, 1, 1);
  TinyLayer::fill(layer.weights().q, {1.0f, 0.0f, 1.0f, 0.0f});
  TinyLayer::fill(layer.weights().k, {1.0f, 0.0f, 1.0f, 0.0f});
  TinyLayer::fill(layer.weights().v, kIdentity2);
  TinyLayer::fill(layer.weights().out, kIdentity2);
  const auto cast = [](double value) {
    return static_cast<double>(cast_through(DType::kBf16, static_cast<float>(value)));
  };
  const double key0 = std::cos(1.0) - std::sin(1.0);
  const double key1 = std::cos(1.0) + std::sin(1.0);
  const double far = (cast(key0) + cast(key1)) / std::sqrt(2.0);
  const double near = (cast(key0) * key0 + cast(key1) * key1) / std::sqrt(2.0);
  const double first = cast(std::exp(far - near));
  const std::vector<double> y = layer.run({1.0f, 1.0f, 1.0f, -1.0f}, true, DType::kBf16);
  expect_near(y, {2.0, 2.0, 2.0, -1.0 + (first - 1.0) / (first + 1.0)});
}

// q and k are normed: their lengths do not count, those of the norms' weights do. The keys of the
// two tokens are opposite.
TEST(LayerReference, NormsQueriesAndKeysByHead) {
  TinyLayer layer(2, 1, 1);
  layer.weights().q_norm = {3.0f, 0.0f};
  layer.weights().k_norm = {0.5f, 0.0f};
  TinyLayer::fill(layer.weights().q, {100.0f, 0.0f, 100.0f, 0.0f});
  TinyLayer::fill(layer.weights().k, {0.0f, 0.01f, 0.0f, 0.01f});
  TinyLayer::fill(layer.weights().v, kIdentity2);
  TinyLayer::fill(layer.weights().out, kIdentity2);
  const double near = -1.5 / std::sqrt(2.0);
  const double far = 1.5 * std::cos(1.0) / std::sqrt(2.0);
  const double first = 1.0 / (1.0 + std::exp(near - far));
  const std::vector<double> y = layer.run({1.0f, 1.0f, 1.0f, -1.0f});
  expect_near(y, {2.0, 2.0, 2.0, -1.0 + first - (1.0 - first)});
}

// Four query heads, two kv heads: the first two share the first one.
TEST(LayerReference, SharesKvHeadsAmongNeighbours) {
  TinyLayer layer(4, 4, 2);
  std::vector<float> v(16, 0.0f);
  v[0] = 10.0f;  // element 0 of kv head 0
  v[8] = 20.0f;  // element 0 of kv head 1
  TinyLayer::fill(layer.weights().v, v);
  std::vector<float> out(32, 0.0f);
  for (size_t head = 0; head < 4; ++head) out[head * 8 + head * 2] = 1.0f;
  TinyLayer::fill(layer.weights().out, out);
  expect_near(layer.run({1.0f, 1.0f, 1.0f, 1.0f}), {11.0, 11.0, 21.0, 21.0}, 1e-5);
}

// SiLU(0) is 0 and SiLU(100) is 100. h1 is x here, of rms 1.
TEST(LayerReference, PutsGateAndUpTogether) {
  TinyLayer layer(2, 1, 1);
  layer.weights().post_norm = {1.0f, 2.0f};
  TinyLayer::fill(layer.weights().gate, {0.0f, 0.0f, 100.0f, 0.0f});
  TinyLayer::fill(layer.weights().up, {5.0f, 5.0f, 0.0f, 0.02f});
  TinyLayer::fill(layer.weights().down, {0.0f, 1.0f, 1.0f, 0.0f});
  expect_near(layer.run({1.0f, 1.0f}), {5.0, 1.0}, 1e-5);
}

// 1 + 2^-10 is 1 in bf16, and so is what it is when normed: the 1 / rms that comes behind the cast
// is then not what the cast took away.
TEST(LayerReference, CastsWhereTheNormIs) {
  const float x = 1.0f + 0x1p-10f;
  TinyLayer layer(2, 1, 1);
  layer.weights().v = TinyLayer::zeros(DType::kBf16, 2, 2);
  TinyLayer::fill(layer.weights().v, kIdentity2);
  TinyLayer::fill(layer.weights().out, kIdentity2);
  layer.weights().q = TinyLayer::zeros(DType::kBf16, 2, 2);
  layer.weights().k = TinyLayer::zeros(DType::kBf16, 2, 2);
  const double wide = static_cast<double>(x);
  expect_near(layer.run({x, x}, true), {wide + 1.0 / wide, wide + 1.0 / wide});
  expect_near(layer.run({x, x}, false), {wide + 1.0, wide + 1.0});
}

// An s8 row (127, 0.4) is (127, 0).
TEST(LayerReference, QuantisesRowsForS8) {
  TinyLayer layer(2, 1, 1);
  layer.weights().q = TinyLayer::zeros(DType::kS8, 2, 2);
  layer.weights().k = TinyLayer::zeros(DType::kS8, 2, 2);
  layer.weights().v = TinyLayer::zeros(DType::kS8, 2, 2);
  TinyLayer::fill(layer.weights().v, kIdentity2);
  TinyLayer::fill(layer.weights().out, kIdentity2);
  const double rms = std::sqrt((127.0 * 127.0 + 0.4 * 0.4) / 2.0);
  expect_near(layer.run({127.0f, 0.4f}), {127.0 + 127.0 / rms, static_cast<double>(0.4f)}, 1e-5);
}

TEST(CompareClosely, CountsWhatIsOutside) {
  const std::vector<float> actual = {1.0f, 100.2f, 100.4f, 0.002f, -1.0f};
  const std::vector<double> expected = {1.0, 100.0, 100.0, 0.0, 1.0};
  const Closeness closeness = compare_closely(actual, expected, 3e-3);
  EXPECT_EQ(closeness.count, 5);
  EXPECT_EQ(closeness.outside_count, 2) << "100.4 is over 0.303 off, -1 is 2 off";
  EXPECT_EQ(closeness.not_finite_count, 0);
  EXPECT_DOUBLE_EQ(closeness.largest_difference, 2.0);
  EXPECT_DOUBLE_EQ(closeness.outside_share(), 0.4);
}

TEST(CompareClosely, CountsWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> actual = {nan, nan, infinity, infinity, infinity, 1.0f, 1.0f};
  const std::vector<double> expected = {1.0, nan, 1.0, infinity, -infinity, nan, infinity};
  const Closeness closeness = compare_closely(actual, expected, 3e-3);
  EXPECT_EQ(closeness.not_finite_count, 2) << "where 1 was expected";
  EXPECT_EQ(closeness.outside_count, 5) << "all but the equal ones";
  EXPECT_TRUE(std::isinf(closeness.largest_difference));
}

TEST(CompareClosely, TakesNothing) {
  const Closeness closeness = compare_closely({}, {}, 3e-3);
  EXPECT_EQ(closeness.count, 0);
  EXPECT_EQ(closeness.outside_share(), 0.0);
}

}  // namespace
}  // namespace gapless
