// SPDX-License-Identifier: Apache-2.0

#include "model/synthetic_values.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "model/weights.h"

namespace gapless {
namespace {

// Odd sizes: the last hash of a row is not used to its end.
ModelConfig odd_config(bool tied) {
  return {.name = "odd",
          .layers = 2,
          .hidden = 99,
          .intermediate = 130,
          .q_heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .vocabulary = 67,
          .max_positions = 64,
          .rope_theta = 1e6,
          .rms_eps = 1e-6,
          .tied_embeddings = tied};
}

__extension__ typedef unsigned __int128 Product;  // NOLINT(modernize-use-using)

// The formula of the header once more, an element at a time.
uint64_t mix(uint64_t value) {
  const Product product = static_cast<Product>(value) * (value ^ kSyntheticTwist);
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}
Bf16 element(const SyntheticValues& values, const WeightTensor& tensor, int64_t row,
             int64_t column) {
  const uint64_t key = mix(values.tensor_key(tensor) + static_cast<uint64_t>(row) * kSyntheticStep);
  const uint64_t bits = mix(key + static_cast<uint64_t>(column / 4) * kSyntheticStep);
  return values.table(tensor)[(bits >> (16 * (column % 4))) % kSyntheticTableSize];
}

void expect_same(const SyntheticValues& values, const WeightTensor& tensor,
                 const PackedMatrix& matrix) {
  SCOPED_TRACE(tensor.name);
  ASSERT_EQ(matrix.n(), tensor.rows);
  ASSERT_EQ(matrix.k(), tensor.columns);
  std::vector<Bf16> rows(static_cast<size_t>(tensor.rows * tensor.columns));
  values.make_rows(tensor, {.row = 0, .count = tensor.rows}, rows.data());
  for (int64_t row = 0; row < tensor.rows; ++row) {
    for (int64_t i = 0; i < tensor.columns; ++i) {
      const Bf16 made = rows[static_cast<size_t>(row * tensor.columns + i)];
      ASSERT_EQ(made.bits, element(values, tensor, row, i).bits) << row << ", " << i;
      ASSERT_EQ(to_float(made), matrix.value(row, i)) << row << ", " << i;
    }
  }
}

TEST(SyntheticValues, AreThoseOfTheFormulaAndOfSyntheticWeights) {
  for (const bool tied : {false, true}) {
    const ModelConfig config = odd_config(tied);
    const SyntheticValues values(config, 7);
    const Result<ModelWeights> weights =
        make_synthetic_weights(config, 7, {.dual_gate_up = false, .thread_count = 1});
    ASSERT_TRUE(weights) << weights.error().message;
    const LayerWeights& layer = weights->layers[1];
    expect_same(values, layer_tensor(config, 1, LayerWeight::kQ), layer.q);
    expect_same(values, layer_tensor(config, 1, LayerWeight::kV), layer.v);
    expect_same(values, layer_tensor(config, 1, LayerWeight::kOut), layer.out);
    expect_same(values, layer_tensor(config, 1, LayerWeight::kUp), layer.up);
    expect_same(values, layer_tensor(config, 1, LayerWeight::kDown), layer.down);
    expect_same(values, head_tensor(config), weights->head);
    EXPECT_EQ(values.make_norm(layer_tensor(config, 1, LayerWeight::kKNorm)), layer.k_norm);
  }
}

// A change of any of these bits would make yesterday's measurements and golden values another
// model's.
TEST(SyntheticValues, StayWhatTheyAre) {
  const ModelConfig config = odd_config(false);
  const SyntheticValues values(config, 7);
  const WeightTensor q = layer_tensor(config, 0, LayerWeight::kQ);
  std::vector<Bf16> row(99);
  values.make_rows(q, {.row = 3, .count = 1}, row.data());
  uint64_t sum = 0;
  for (const Bf16 value : row) sum = sum * 31 + value.bits;
  EXPECT_EQ(sum, 0x1a1a69e793702379u);
}

TEST(SyntheticValues, TensorsOfOneDeviationShareATable) {
  const ModelConfig config = odd_config(false);
  const SyntheticValues values(config, 7);
  const SyntheticTable& q = values.table(layer_tensor(config, 0, LayerWeight::kQ));
  EXPECT_EQ(&values.table(layer_tensor(config, 1, LayerWeight::kUp)), &q);
  EXPECT_EQ(&values.table(head_tensor(config)), &q);
  EXPECT_NE(&values.table(layer_tensor(config, 0, LayerWeight::kDown)), &q);
  EXPECT_NE(&values.table(embedding_tensor(config)), &q);
}

}  // namespace
}  // namespace gapless
