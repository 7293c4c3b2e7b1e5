// SPDX-License-Identifier: Apache-2.0

#include "model/checkpoint_source.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "base/temporary_directory.h"
#include "model/checkpoint_test_support.h"
#include "model/quantize.h"
#include "model/weights.h"

namespace gapless {
namespace {

constexpr int64_t kGap = 5;  // behind each row, not to be touched

CheckpointSource open_source(const std::shared_ptr<const Checkpoint>& checkpoint, DType dtype) {
  Result<CheckpointSource> source = CheckpointSource::open(checkpoint, {.dtype = dtype});
  if (!source) ADD_FAILURE() << source.error().message;
  return std::move(source).value();
}

// All rows but the first and the last, against the packed matrix of load_weights.
void expect_rows(const CheckpointSource& source, const WeightTensor& tensor,
                 const PackedMatrix& matrix) {
  SCOPED_TRACE(tensor.name);
  const DType dtype = matrix.dtype();
  const RowRange rows = {.row = 1, .count = tensor.rows - 2};
  const int64_t stride = tensor.columns + kGap;
  std::vector<std::byte> bytes(static_cast<size_t>(rows.count * stride * dtype_bytes(dtype)),
                               std::byte{0x7f});
  std::vector<float> scales(static_cast<size_t>(rows.count));
  const Result<void> read = source.read_rows(
      tensor, rows,
      {.dtype = dtype, .rows = bytes.data(), .stride = stride, .scales = scales.data()});
  ASSERT_TRUE(read) << read.error().message;
  for (int64_t row = 0; row < rows.count; ++row) {
    const std::byte* const data = bytes.data() + row * stride * dtype_bytes(dtype);
    const float scale = scales[static_cast<size_t>(row)];
    for (int64_t i = 0; i < tensor.columns; ++i) {
      const float value = dtype == DType::kS8
                              ? static_cast<float>(static_cast<int8_t>(data[i])) * scale
                              : load_as_float(dtype, data, i);
      ASSERT_EQ(value, matrix.value(rows.row + row, i)) << row << ", " << i;
    }
    for (int64_t i = tensor.columns * dtype_bytes(dtype); i < stride * dtype_bytes(dtype); ++i)
      ASSERT_EQ(data[i], std::byte{0x7f});
  }
}

void expect_rows_of(const std::shared_ptr<const Checkpoint>& checkpoint, DType dtype) {
  SCOPED_TRACE(checkpoint->folder() + std::string(" in ") + std::string(dtype_name(dtype)));
  const CheckpointSource source = open_source(checkpoint, dtype);
  const ModelConfig& config = checkpoint->config();
  const Result<ModelWeights> weights =
      load_weights(checkpoint, {.dtype = dtype, .dual_gate_up = false, .thread_count = 1});
  ASSERT_TRUE(weights) << weights.error().message;
  const LayerWeights& layer = weights->layers[1];
  expect_rows(source, layer_tensor(config, 1, LayerWeight::kK), layer.k);
  expect_rows(source, layer_tensor(config, 1, LayerWeight::kOut), layer.out);
  expect_rows(source, layer_tensor(config, 1, LayerWeight::kGate), layer.gate);
  expect_rows(source, layer_tensor(config, 1, LayerWeight::kDown), layer.down);
  if (dtype == DType::kBf16) expect_rows(source, head_tensor(config), weights->head);
  EXPECT_EQ(source.embedding_dtype(), weights->embedding.dtype);
}

TEST(CheckpointSource, RowsHaveTheValuesOfPackedWeights) {
  for (const char* name : kGoldenNames) {
    const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(golden_folder(name));
    for (const DType dtype : {DType::kBf16, DType::kS8}) expect_rows_of(checkpoint, dtype);
  }
}

TEST(CheckpointSource, StoredS8RowsAreGivenAsTheyAre) {
  const TemporaryDirectory directory;
  const std::string folder = directory.path("s8");
  const std::shared_ptr<const Checkpoint> golden = open_checkpoint(golden_folder("bf16-gqa4"));
  ASSERT_TRUE(quantize_checkpoint(*golden, {.folder = folder, .thread_count = 1}));
  expect_rows_of(open_checkpoint(folder), DType::kS8);
}

TEST(CheckpointSource, ARowThatIsNotANumberIsAnError) {
  const CheckpointCopy copy("f32-gqa5");
  const std::string name = layer_weight_name(1, LayerWeight::kV);
  copy.set_element(name, 2 * 48 + 7, std::numeric_limits<float>::quiet_NaN());
  const CheckpointSource source = open_source(copy.open(), DType::kS8);
  const WeightTensor tensor = layer_tensor(source.config(), 1, LayerWeight::kV);
  std::vector<std::byte> bytes(static_cast<size_t>(3 * tensor.columns));
  std::vector<float> scales(3);
  const RowTarget target = {
      .dtype = DType::kS8, .rows = bytes.data(), .stride = tensor.columns, .scales = scales.data()};
  EXPECT_TRUE(source.read_rows(tensor, {.row = 0, .count = 2}, target));
  const Result<void> read = source.read_rows(tensor, {.row = 0, .count = 3}, target);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("has nan in row 2, column 7; weights must be finite"),
            std::string::npos)
      << read.error().message;
}

// 3.4e38 is a number in f32 and in s8 with its scale, but not in bf16.
TEST(CheckpointSource, ARowThatBf16CannotHoldIsAnError) {
  const CheckpointCopy copy("f32-gqa5");
  copy.set_element(layer_weight_name(0, LayerWeight::kQ), 0, 3.4e38f);
  const CheckpointSource source = open_source(copy.open(), DType::kBf16);
  const WeightTensor tensor = layer_tensor(source.config(), 0, LayerWeight::kQ);
  std::vector<std::byte> bytes(static_cast<size_t>(2 * tensor.columns));
  const Result<void> read =
      source.read_rows(tensor, {.row = 0, .count = 1},
                       {.dtype = DType::kBf16, .rows = bytes.data(), .stride = tensor.columns});
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("row 0, column 0; bf16 cannot hold that"), std::string::npos)
      << read.error().message;
}

}  // namespace
}  // namespace gapless
