// SPDX-License-Identifier: Apache-2.0

#include "kernels/kv_cache.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/half.h"

namespace gapless {

namespace {

constexpr float kSmallestAmax = 1e-4f;
constexpr float kS8Max = 127.0f;

// Where one element of a block lies, counted in elements. `outer` is the index that is grouped (dim
// of a key, token of a value), `inner` the one that runs (token of a key, dim of a value).
int64_t element_index(int group, int outer, int inner, int inner_count) {
  const int64_t row = outer / group;
  return (row * inner_count + inner) * group + outer % group;
}

int64_t key_index(const KvShape& shape, int token, int dim) {
  return element_index(kv_group(shape.dtype), dim, token, shape.page_tokens);
}

int64_t value_index(const KvShape& shape, int token, int dim) {
  return element_index(kv_group(shape.dtype), token, dim, shape.head_dim);
}

// One scale a token: the keys' first, then the values'.
float* scales_of(const KvPages& pages, std::byte* block) {
  return reinterpret_cast<float*>(block + 2 * kv_block_bytes(pages.shape));
}

float s8_scale(const float* values, int count) {
  float amax = kSmallestAmax;
  for (int i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::quiet_NaN();
    amax = std::fmax(amax, std::fabs(values[i]));
  }
  return amax / kS8Max;
}

int8_t quantize_s8(float value, float scale) {
  if (std::isnan(scale)) return 0;
  return static_cast<int8_t>(std::nearbyint(std::fmin(value / scale, kS8Max)));
}

void write_kv_s8(const KvPages& pages, std::byte* block, int token, const float* key,
                 const float* value) {
  const KvShape& shape = pages.shape;
  float* scales = scales_of(pages, block);
  const float key_scale = s8_scale(key, shape.head_dim);
  const float value_scale = s8_scale(value, shape.head_dim);
  scales[token] = key_scale;
  scales[shape.page_tokens + token] = value_scale;
  int8_t* keys = reinterpret_cast<int8_t*>(block);
  int8_t* values = keys + kv_block_bytes(shape);
  for (int dim = 0; dim < shape.head_dim; ++dim) {
    keys[key_index(shape, token, dim)] = quantize_s8(key[dim], key_scale);
    values[value_index(shape, token, dim)] = quantize_s8(value[dim], value_scale);
  }
}

void check_place(const KvPages& pages, int64_t page, int token, int kv_head) {
  GAPLESS_DCHECK(page >= 0 && page < pages.page_count);
  GAPLESS_DCHECK(token >= 0 && token < pages.shape.page_tokens);
  GAPLESS_DCHECK(kv_head >= 0 && kv_head < pages.shape.kv_heads);
}

}  // namespace

Result<void> check_kv_shape(const KvShape& shape) {
  const bool known = shape.dtype == DType::kF32 || shape.dtype == DType::kF16 ||
                     shape.dtype == DType::kBf16 || shape.dtype == DType::kS8;
  if (!known) {
    return fail(ErrorCode::kInvalidInput, "kv pages of {}: f32, f16, bf16 and s8 are known",
                dtype_name(shape.dtype));
  }
  if (shape.kv_heads < 1 || shape.kv_heads > kMaxKvHeads) {
    return fail(ErrorCode::kInvalidInput, "{} kv heads: 1 to {} are possible", shape.kv_heads,
                kMaxKvHeads);
  }
  if (shape.head_dim != 64 && shape.head_dim != 128 && shape.head_dim != 256) {
    return fail(ErrorCode::kInvalidInput, "head_dim {}: 64, 128 and 256 are known", shape.head_dim);
  }
  if (shape.page_tokens < 16 || shape.page_tokens > 256 || shape.page_tokens % 16 != 0) {
    return fail(ErrorCode::kInvalidInput,
                "pages of {} tokens: a multiple of 16 from 16 to 256 is needed", shape.page_tokens);
  }
  return {};
}

int64_t kv_block_bytes(const KvShape& shape) {
  return int64_t{shape.head_dim} * shape.page_tokens * dtype_bytes(shape.dtype);
}

int64_t kv_head_bytes(const KvShape& shape) {
  const int64_t scale_bytes =
      shape.dtype == DType::kS8 ? 2 * shape.page_tokens * int64_t{sizeof(float)} : 0;
  return 2 * kv_block_bytes(shape) + scale_bytes;
}

int64_t kv_page_bytes(const KvShape& shape) { return shape.kv_heads * kv_head_bytes(shape); }

std::byte* kv_head_block(const KvPages& pages, int64_t page, int kv_head) {
  return pages.data + page * kv_page_bytes(pages.shape) + kv_head * kv_head_bytes(pages.shape);
}

void write_kv(const KvPages& pages, int64_t page, int token, int kv_head, const float* key,
              const float* value) {
  check_place(pages, page, token, kv_head);
  const KvShape& shape = pages.shape;
  std::byte* block = kv_head_block(pages, page, kv_head);
  if (shape.dtype == DType::kS8) return write_kv_s8(pages, block, token, key, value);
  std::byte* values = block + kv_block_bytes(shape);
  for (int dim = 0; dim < shape.head_dim; ++dim) {
    store_from_float(shape.dtype, block, key_index(shape, token, dim), key[dim]);
    store_from_float(shape.dtype, values, value_index(shape, token, dim), value[dim]);
  }
}

void read_kv(const KvPages& pages, int64_t page, int token, int kv_head, float* key, float* value) {
  check_place(pages, page, token, kv_head);
  const KvShape& shape = pages.shape;
  std::byte* block = kv_head_block(pages, page, kv_head);
  const std::byte* values = block + kv_block_bytes(shape);
  for (int dim = 0; dim < shape.head_dim; ++dim) {
    const int64_t key_at = key_index(shape, token, dim);
    const int64_t value_at = value_index(shape, token, dim);
    if (shape.dtype == DType::kS8) {
      const float* scales = scales_of(pages, block);
      key[dim] = scales[token] * static_cast<float>(reinterpret_cast<int8_t*>(block)[key_at]);
      value[dim] = scales[shape.page_tokens + token] *
                   static_cast<float>(reinterpret_cast<const int8_t*>(values)[value_at]);
    } else {
      key[dim] = load_as_float(shape.dtype, block, key_at);
      value[dim] = load_as_float(shape.dtype, values, value_at);
    }
  }
}

}  // namespace gapless
