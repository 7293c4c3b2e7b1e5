// SPDX-License-Identifier: Apache-2.0

#include "kernels/kv_cache.h"

#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "kernels/kernel_test_support.h"

namespace gapless {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBf16, DType::kS8};

std::string shape_error(const KvShape& shape) {
  const Result<void> result = check_kv_shape(shape);
  return result ? "" : result.error().message;
}

TEST(KvCache, RefusesShapesThatTheKernelsDoNotKnow) {
  EXPECT_EQ(shape_error({DType::kBf16, 8, 128, 128}), "");
  EXPECT_EQ(shape_error({DType::kS32, 8, 128, 128}),
            "kv pages of s32: f32, f16, bf16 and s8 are known");
  EXPECT_EQ(shape_error({DType::kF16, 0, 128, 128}), "0 kv heads: 1 to 1024 are possible");
  EXPECT_EQ(shape_error({DType::kF16, 1025, 128, 128}), "1025 kv heads: 1 to 1024 are possible");
  EXPECT_EQ(shape_error({DType::kF16, 8, 96, 128}), "head_dim 96: 64, 128 and 256 are known");
  for (const int tokens : {0, 8, 24, 272}) {
    EXPECT_EQ(shape_error({DType::kF16, 8, 128, tokens}),
              fmt::format("pages of {} tokens: a multiple of 16 from 16 to 256 is needed", tokens));
  }
}

TEST(KvCache, CountsBytesOfBlocksHeadsAndPages) {
  const KvShape bf16{DType::kBf16, 8, 128, 128};
  EXPECT_EQ(kv_block_bytes(bf16), 32768);
  EXPECT_EQ(kv_head_bytes(bf16), 65536);
  EXPECT_EQ(kv_page_bytes(bf16), 524288);
  const KvShape s8{DType::kS8, 2, 64, 16};
  EXPECT_EQ(kv_block_bytes(s8), 1024);
  EXPECT_EQ(kv_head_bytes(s8), 2 * 1024 + 2 * 16 * 4);
  EXPECT_EQ(kv_page_bytes(s8), 2 * 2176);
}

TEST(KvCache, LaysKeysByDimAndValuesByToken) {
  const KvShape shape{DType::kF32, 2, 64, 16};
  GuardedArray<std::byte> data(kv_page_bytes(shape) * 2);
  const KvPages pages{shape, data.data(), 2};
  const std::vector<float> key = normal_values(64, 1);
  const std::vector<float> value = normal_values(64, 2);
  write_kv(pages, 1, 5, 1, key.data(), value.data());
  const float* block = reinterpret_cast<float*>(kv_head_block(pages, 1, 1));
  EXPECT_EQ(reinterpret_cast<const std::byte*>(block), data.data() + 3 * kv_head_bytes(shape));
  for (int dim = 0; dim < 64; ++dim) {
    EXPECT_EQ(block[dim * 16 + 5], key[static_cast<size_t>(dim)]);
    EXPECT_EQ(block[64 * 16 + 5 * 64 + dim], value[static_cast<size_t>(dim)]);
  }
}

TEST(KvCache, PairsDimsOfBf16KeysAndTokensOfBf16Values) {
  const KvShape shape{DType::kBf16, 1, 64, 16};
  GuardedArray<std::byte> data(kv_page_bytes(shape));
  const KvPages pages{shape, data.data(), 1};
  const std::vector<float> key = normal_values(64, 1);
  const std::vector<float> value = normal_values(64, 2);
  write_kv(pages, 0, 5, 0, key.data(), value.data());
  const uint16_t* keys = reinterpret_cast<uint16_t*>(data.data());
  const uint16_t* values = keys + 64 * 16;
  for (int dim = 0; dim < 64; ++dim) {
    const size_t at = static_cast<size_t>(dim);
    EXPECT_EQ(keys[dim / 2 * 32 + 5 * 2 + dim % 2], to_bf16(key[at]).bits);
    EXPECT_EQ(values[2 * 128 + dim * 2 + 1], to_bf16(value[at]).bits);
  }
}

// Goal: a token is read back as it was written, and nothing else changes.
// Method: all tokens of all heads are written in an odd order, with a copy of the page compared
// outside the token after each write.
TEST(KvCache, ReadsBackWhatWasWrittenAndLeavesTheRest) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const KvShape shape{dtype, 3, 64, 48};
    GuardedArray<std::byte> data(kv_page_bytes(shape));
    const KvPages pages{shape, data.data(), 1};
    std::vector<float> keys(3 * 48 * 64);
    std::vector<float> values(3 * 48 * 64);
    const auto row = [](std::vector<float>& rows, int i) { return rows.data() + i * 64; };
    for (int i = 0; i < 3 * 48; ++i) {
      const int place = i * 29 % (3 * 48);
      const std::vector<float> key = normal_values(64, static_cast<uint32_t>(place));
      const std::vector<float> value = normal_values(64, static_cast<uint32_t>(place) + 1000);
      write_kv(pages, 0, place % 48, place / 48, key.data(), value.data());
      read_kv(pages, 0, place % 48, place / 48, row(keys, place), row(values, place));
      for (int dim = 0; dim < 64; ++dim) {
        // An s8 step is amax / 127, and amax of 64 normal values is below 4.5.
        const float allowed = dtype == DType::kS8 ? 0.5f * 4.5f / 127.0f : 0.0f;
        const size_t at = static_cast<size_t>(dim);
        const float key_cast = dtype == DType::kS8 ? key[at] : cast_through(dtype, key[at]);
        const float value_cast = dtype == DType::kS8 ? value[at] : cast_through(dtype, value[at]);
        ASSERT_NEAR(row(keys, place)[dim], key_cast, allowed);
        ASSERT_NEAR(row(values, place)[dim], value_cast, allowed);
      }
    }
    std::vector<float> key(64);
    std::vector<float> value(64);
    for (int place = 0; place < 3 * 48; ++place) {
      read_kv(pages, 0, place % 48, place / 48, key.data(), value.data());
      ASSERT_EQ(std::memcmp(key.data(), row(keys, place), 64 * 4), 0);
      ASSERT_EQ(std::memcmp(value.data(), row(values, place), 64 * 4), 0);
    }
  }
}

TEST(KvCache, QuantizesToTheLargestMagnitudeOfAToken) {
  const KvShape shape{DType::kS8, 1, 64, 16};
  GuardedArray<std::byte> data(kv_page_bytes(shape));
  const KvPages pages{shape, data.data(), 1};
  std::vector<float> key(64, 0.0f);
  std::vector<float> value(64, 1e-6f);
  key[0] = -254.0f;
  key[1] = 127.0f;
  key[2] = 1.0f;  // half a step: to even
  key[3] = 3.0f;  // one and a half
  write_kv(pages, 0, 7, 0, key.data(), value.data());
  const int8_t* keys = reinterpret_cast<int8_t*>(data.data());
  EXPECT_EQ(keys[0 * 16 + 7], -127);
  EXPECT_EQ(keys[1 * 16 + 7], 64);
  EXPECT_EQ(keys[2 * 16 + 7], 0);
  EXPECT_EQ(keys[3 * 16 + 7], 2);
  const float* scales = reinterpret_cast<float*>(data.data() + 2 * kv_block_bytes(shape));
  EXPECT_EQ(scales[7], 2.0f);
  EXPECT_EQ(scales[16 + 7], 1e-4f / 127.0f);
}

TEST(KvCache, MakesAnS8TokenThatIsNotFiniteNan) {
  const KvShape shape{DType::kS8, 1, 64, 16};
  GuardedArray<std::byte> data(kv_page_bytes(shape));
  const KvPages pages{shape, data.data(), 1};
  std::vector<float> key(64, 1.0f);
  const std::vector<float> value(64, 2.0f);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    key[40] = bad;
    write_kv(pages, 0, 3, 0, key.data(), value.data());
    std::vector<float> key_read(64);
    std::vector<float> value_read(64);
    read_kv(pages, 0, 3, 0, key_read.data(), value_read.data());
    for (const float element : key_read) EXPECT_TRUE(std::isnan(element));
    for (const float element : value_read) EXPECT_EQ(element, 2.0f);
  }
}

}  // namespace
}  // namespace gapless
