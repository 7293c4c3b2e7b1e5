// SPDX-License-Identifier: Apache-2.0
//
// Made on the GPU against the formula on the host, packed there by pack_cuda_weights. That the
// formula is that of the CPU's weights and cache is tested in src/model/cuda_weights_test.cc.

#include "cuda/fill.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "cuda/gpu_test_support.h"
#include "kernels/packed_matrix.h"

namespace gapless {
namespace {

constexpr FillHash kHash = {.step = 0x9e3779b97f4a7c15u, .twist = 0xd6e8feb86659fd93u};
constexpr uint64_t kKeys[] = {0x0123456789abcdefu, 0xfedcba9876543210u, 0xffffffffffffff01u};

__extension__ typedef unsigned __int128 Product;  // NOLINT(modernize-use-using)

uint64_t mix(uint64_t value) {
  const Product product = static_cast<Product>(value) * (value ^ kHash.twist);
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

using Table = std::vector<Bf16>;

// Values of either sign, up to `largest`.
Table make_table(float largest) {
  Table table;
  for (int i = 0; i < kFillTableSize; ++i)
    table.push_back(to_bf16(largest * (static_cast<float>(i * 2 + 1) / kFillTableSize - 1.0f)));
  return table;
}

Bf16 number(const Table& table, uint64_t key, int64_t row, int64_t column) {
  const uint64_t row_key = mix(key + static_cast<uint64_t>(row) * kHash.step);
  const uint64_t bits = mix(row_key + static_cast<uint64_t>(column / 4) * kHash.step);
  return table[(bits >> (16 * (column % 4))) % kFillTableSize];
}

struct FillCase {
  DType dtype = DType::kBf16;
  bool is_gated = false;
  std::vector<int64_t> part_rows;
  int64_t columns = 0;
  int64_t k = 0;
  float largest = 1.0f;
  int tile_rows = 128;

  CudaWeightShape shape() const {
    int64_t rows = 0;
    for (const int64_t part : part_rows) rows += part;
    return {dtype, is_gated ? rows / 2 : rows, k, is_gated, tile_rows};
  }
  std::vector<FillPart> parts() const {
    std::vector<FillPart> parts;
    for (size_t i = 0; i < part_rows.size(); ++i) parts.push_back({kKeys[i], part_rows[i]});
    return parts;
  }
  std::string name() const {
    return std::string(dtype_name(dtype)) + (is_gated ? " gated" : "") + " of " +
           std::to_string(shape().columns) + " x " + std::to_string(columns) + " up to " +
           std::to_string(largest);
  }
};

struct Packed {
  std::vector<std::byte> weights;
  std::vector<float> scales;
};

// Rows of all parts, one below the other, padded to k.
struct HostRows {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
};

HostRows host_rows(const FillCase& c, const Table& table) {
  HostRows rows;
  for (const FillPart& part : c.parts()) {
    for (int64_t row = 0; row < part.rows; ++row) {
      std::vector<Bf16> values(static_cast<size_t>(c.k));
      for (int64_t i = 0; i < c.columns; ++i)
        values[static_cast<size_t>(i)] = number(table, part.key, row, i);
      std::vector<std::byte> bytes(static_cast<size_t>(c.k * dtype_bytes(c.dtype)));
      if (c.dtype == DType::kS8) {
        int8_t* const quantized = reinterpret_cast<int8_t*>(bytes.data());
        rows.scales.push_back(quantize_row(DType::kBf16, values.data(), c.k, quantized));
      } else {
        std::memcpy(bytes.data(), values.data(), bytes.size());
      }
      rows.bytes.insert(rows.bytes.end(), bytes.begin(), bytes.end());
    }
  }
  return rows;
}

Result<Packed> pack_on_host(const FillCase& c, const Table& table) {
  const CudaWeightShape shape = c.shape();
  const HostRows rows = host_rows(c, table);
  Packed packed;
  packed.weights.resize(static_cast<size_t>(cuda_weight_bytes(shape)));
  const int64_t up_bytes = shape.columns * c.k * dtype_bytes(c.dtype);
  GAPLESS_TRY(pack_cuda_weights(
      {shape, rows.bytes.data(), c.is_gated ? rows.bytes.data() + up_bytes : nullptr},
      packed.weights));
  if (c.dtype != DType::kS8) return packed;
  packed.scales.resize(static_cast<size_t>(cuda_weight_rows(shape)));
  const float* up = c.is_gated ? rows.scales.data() + shape.columns : nullptr;
  GAPLESS_TRY(pack_cuda_scales({shape, rows.scales.data(), up}, packed.scales));
  return packed;
}

Result<DeviceBuffer> upload_table(const Table& table) {
  const int64_t bytes = static_cast<int64_t>(table.size() * sizeof(Bf16));
  DeviceBuffer buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "a test"));
  GAPLESS_TRY(buffer.copy_from_host(table.data(), bytes));
  return buffer;
}

// Memory is NaN before.
Result<Packed> make_on_device(const FillCase& c, const Table& table) {
  const CudaWeightShape shape = c.shape();
  const DeviceBuffer device_table = GAPLESS_TRY(upload_table(table));
  DeviceBuffer weights = GAPLESS_TRY(DeviceBuffer::allocate(cuda_weight_bytes(shape), "a test"));
  DeviceBuffer scales = GAPLESS_TRY(DeviceBuffer::allocate(cuda_weight_rows(shape) * 4, "a test"));
  GAPLESS_TRY(weights.fill(0xff));
  GAPLESS_TRY(scales.fill(0xff));
  const bool is_s8 = c.dtype == DType::kS8;
  const std::vector<FillPart> parts = c.parts();
  GAPLESS_TRY(
      launch_fill_weights({.shape = shape,
                           .columns = c.columns,
                           .numbers = {.table = device_table.data(), .hash = kHash},
                           .parts = parts,
                           .weights = weights.data(),
                           .scales = is_s8 ? reinterpret_cast<float*>(scales.data()) : nullptr},
                          nullptr));
  GAPLESS_TRY(synchronize(nullptr));
  Packed packed;
  packed.weights.resize(static_cast<size_t>(weights.bytes()));
  GAPLESS_TRY(weights.copy_to_host(packed.weights.data(), weights.bytes()));
  if (!is_s8) return packed;
  packed.scales.resize(static_cast<size_t>(cuda_weight_rows(shape)));
  GAPLESS_TRY(scales.copy_to_host(packed.scales.data(), scales.bytes()));
  return packed;
}

class CudaFillOnDevice : public GpuTest {};

void expect_made_as_packed(const FillCase& c) {
  SCOPED_TRACE(c.name());
  const Table table = make_table(c.largest);
  const Result<Packed> expected = pack_on_host(c, table);
  ASSERT_TRUE(expected) << expected.error().message;
  const Result<Packed> made = make_on_device(c, table);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(made->weights == expected->weights);
  ASSERT_EQ(made->scales.size(), expected->scales.size());
  EXPECT_EQ(std::memcmp(made->scales.data(), expected->scales.data(),
                        expected->scales.size() * sizeof(float)),
            0);
}

// Rows beyond the matrix, k beyond the numbers, parts that end inside a tile, a last hash that is
// not used to its end.
TEST_F(CudaFillOnDevice, WeightsAreThoseOfTheFormula) {
  for (const DType dtype : {DType::kBf16, DType::kS8}) {
    for (const int tile_rows : {128, 64}) {
      const auto expect_made = [&](bool is_gated, std::vector<int64_t> rows, int64_t columns,
                                   int64_t k) {
        expect_made_as_packed({.dtype = dtype,
                               .is_gated = is_gated,
                               .part_rows = std::move(rows),
                               .columns = columns,
                               .k = k,
                               .tile_rows = tile_rows});
      };
      expect_made(false, {48}, 48, 64);
      expect_made(false, {320, 64, 64}, 128, 128);
      expect_made(false, {100, 28}, 2053, 2112);
      expect_made(true, {80, 80}, 48, 64);
      expect_made(true, {264, 264}, 1027, 1088);
    }
  }
}

// Scales that are 1 for want of any number, tiny ones without all their bits, large ones.
TEST_F(CudaFillOnDevice, QuantisedRowsAreThoseOfPackedMatrix) {
  for (const float largest : {0.0f, 1e-38f, 3e-37f, 0.0139f, 1e30f}) {
    expect_made_as_packed(
        {.dtype = DType::kS8, .part_rows = {144}, .columns = 192, .k = 192, .largest = largest});
  }
}

TEST_F(CudaFillOnDevice, PlainRowsAreThoseOfTheFormula) {
  const Table table = make_table(2.0f);
  constexpr int64_t kRows = 37;
  constexpr int64_t kColumns = 88;
  constexpr int64_t kBytes = kRows * kColumns * 2;
  const Result<DeviceBuffer> device_table = upload_table(table);
  ASSERT_TRUE(device_table) << device_table.error().message;
  Result<DeviceBuffer> rows = DeviceBuffer::allocate(kBytes + 16, "a test");
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_TRUE(rows->fill(0xff));
  const Result<void> launched =
      launch_fill_rows({.columns = kColumns,
                        .numbers = {.table = device_table->data(), .hash = kHash},
                        .part = {kKeys[1], kRows},
                        .rows = rows->data()},
                       nullptr);
  ASSERT_TRUE(launched) << launched.error().message;
  std::vector<uint16_t> made(kRows * kColumns + 8);
  ASSERT_TRUE(rows->copy_to_host(made.data(), kBytes + 16));
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t i = 0; i < kColumns; ++i)
      ASSERT_EQ(made[static_cast<size_t>(row * kColumns + i)],
                number(table, kKeys[1], row, i).bits);
  EXPECT_EQ(made[kRows * kColumns], 0xffff) << "nothing is written behind the rows";
}

// ---- Errors, which need no GPU. The pointers are never followed.

// At a multiple of 16 bytes, as all that is made has to be.
alignas(16) constinit std::array<std::byte, 32> memory = {};

std::string weights_error(const FillCase& c, bool has_scales, const void* table,
                          std::byte* weights = memory.data()) {
  const std::vector<FillPart> parts = c.parts();
  float scale = 0.0f;
  const Result<void> launched = launch_fill_weights({.shape = c.shape(),
                                                     .columns = c.columns,
                                                     .numbers = {.table = table, .hash = kHash},
                                                     .parts = parts,
                                                     .weights = weights,
                                                     .scales = has_scales ? &scale : nullptr},
                                                    nullptr);
  return launched ? "no error" : launched.error().message;
}

TEST(CudaFill, WeightsThatCannotBeAreErrors) {
  const FillCase good = {.part_rows = {48}, .columns = 48, .k = 64};
  const int table = 0;
  EXPECT_EQ(weights_error(good, true, &table), "bf16 weights to make with scales");
  EXPECT_EQ(weights_error(good, false, nullptr), "numbers to make on a GPU without their table");
  EXPECT_EQ(weights_error(good, false, &table, nullptr),
            "numbers to make on a GPU without a place for them");
  EXPECT_EQ(weights_error(good, false, &table, &memory[8]),
            "numbers to make on a GPU do not begin at a multiple of 16 bytes");
  FillCase c = good;
  c.dtype = DType::kS8;
  EXPECT_EQ(weights_error(c, false, &table), "s8 weights to make without scales");
  c = good;
  c.columns = 65;
  EXPECT_EQ(weights_error(c, false, &table), "rows of 65 numbers in weights with a k of 64");
  c = good;
  c.part_rows = {47};
  EXPECT_EQ(weights_error(c, false, &table),
            "47 columns; plain weights on a GPU have a multiple of 16");
  c = good;
  c.part_rows = {16, 0};
  EXPECT_EQ(weights_error(c, false, &table), "a part of 0 rows in weights of 16 columns");
  c = good;
  c.is_gated = true;
  c.part_rows = {20, 12};
  EXPECT_EQ(weights_error(c, false, &table), "a part of 20 rows in weights of 16 columns");
  c.part_rows = {16};
  EXPECT_EQ(weights_error(c, false, &table), "gated weights in 1 parts; two can be made");
}

TEST(CudaFill, RowsThatAreNotWholeUnitsAreAnError) {
  const Result<void> launched =
      launch_fill_rows({.columns = 12,
                        .numbers = {.table = memory.data(), .hash = kHash},
                        .part = {kKeys[0], 3},
                        .rows = memory.data()},
                       nullptr);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().message,
            "3 rows of 12 numbers to make on a GPU; rows have a multiple of 8");
}

TEST(CudaFill, KeysAndValuesThatCannotBeAreErrors) {
  const int32_t pages[] = {0};
  const CudaFillKvArgs good = {
      .shape = {.dtype = DType::kBf16, .kv_heads = 2, .head_dim = 64, .page_tokens = 16},
      .pages = memory.data(),
      .page_count = 1,
      .sequence_pages = pages,
      .first_token = 3,
      .end_token = 3};
  EXPECT_TRUE(launch_fill_kv(good, nullptr)) << "no token is no work";
  CudaFillKvArgs args = good;
  args.shape.dtype = DType::kS8;
  EXPECT_EQ(launch_fill_kv(args, nullptr).error().message,
            "keys and values of s8; on a GPU they are bf16 or f16");
  args = good;
  args.end_token = 2;
  EXPECT_EQ(launch_fill_kv(args, nullptr).error().message,
            "tokens 3 to 2 of layer 0 cannot be filled");
  args = good;
  args.pages = nullptr;
  EXPECT_EQ(launch_fill_kv(args, nullptr).error().message, "keys and values to make without pages");
  args.pages = &memory[8];
  EXPECT_EQ(launch_fill_kv(args, nullptr).error().message,
            "keys and values to make on a GPU do not begin at a multiple of 16 bytes");
}

}  // namespace
}  // namespace gapless
