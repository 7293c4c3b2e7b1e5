// SPDX-License-Identifier: Apache-2.0
//
// The attention in plain loops, over the same blocks and pages as the other forms.

#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/attention_blocks.h"

namespace gapless {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

template <DType kDType>
float element(const std::byte* data, int64_t index) {
  if constexpr (kDType == DType::kS8) {
    return static_cast<float>(reinterpret_cast<const int8_t*>(data)[index]);
  } else if constexpr (kDType == DType::kBf16) {
    return to_float(reinterpret_cast<const Bf16*>(data)[index]);
  } else {
    return load_as_float(kDType, data, index);
  }
}

template <DType kDType>
struct PlainKernel {
  using Coefficient = float;
  static constexpr int kGroup = kv_group(kDType);
  static constexpr int kElementBytes = static_cast<int>(dtype_bytes(kDType));
  static constexpr bool kHasScales = kDType == DType::kS8;
  static constexpr int kCoefficientStride = kMaxHeadDim;
  static constexpr int kCoefficientElements = 1;

  static float cast_operand(float value) {
    return kDType == DType::kBf16 ? to_float(to_bf16(value)) : value;
  }
  static void take_coefficients(const float* from, int count, float* to) {
    for (int i = 0; i < count; ++i) to[i] = cast_operand(from[i]);
  }

  static void add_rows(const RowsJob<float>& job, LineStream& lines) {
    for (int head = 0; head < job.head_count; ++head) {
      float* out = job.out + head * job.out_stride;
      const float rescale = job.rescale == nullptr ? 0.0f : job.rescale[head];
      for (int column = 0; column < job.column_count; ++column) {
        out[column] = job.rescale == nullptr ? 0.0f : out[column] * rescale;
      }
    }
    float values[kMaxHeadDim];
    for (int row = 0; row < job.row_count; ++row) {
      prefetch_next(lines);
      const std::byte* data = job.rows + row / kGroup * job.row_bytes;
      for (int column = 0; column < job.column_count; ++column) {
        values[column] = element<kDType>(data, column * kGroup + row % kGroup);
      }
      for (int head = 0; head < job.head_count; ++head) {
        const float coefficient = job.coefficients[head * kCoefficientStride + row];
        float* out = job.out + head * job.out_stride;
        for (int column = 0; column < job.column_count; ++column) {
          out[column] += coefficient * values[column];
        }
      }
    }
  }

  static void softmax(const SoftmaxJob<float>& job) {
    float maximum = *job.maximum;
    for (int token = 0; token < job.token_count; ++token) {
      float& score = job.scores[token];
      score *= job.scale;
      if constexpr (kHasScales) score *= job.key_scales[token];
      if (score > maximum) maximum = score;
    }
    // Scores of -infinity alone have probabilities of 0 and not NaN: a later block may have others.
    const float base = maximum == kLowest ? 0.0f : maximum;
    float total = 0.0f;
    for (int token = 0; token < job.token_count; ++token) {
      const float probability = cast_operand(std::exp(job.scores[token] - base));
      total += probability;
      job.probabilities[token] = kHasScales ? probability * job.value_scales[token] : probability;
    }
    *job.rescale = std::exp(*job.maximum - base);
    *job.total = *job.total * *job.rescale + total;
    *job.maximum = maximum;
  }
};

// output = sum of the partials / sum of their totals, each relative to the largest maximum.
void merge_head(const AttentionMerge& merge, int head) {
  const int64_t stride = merge.partial_stride;
  const float* maxima = merge.partials + int64_t{merge.group_heads} * merge.head_dim + head;
  const float* totals = maxima + merge.group_heads;
  float maximum = kLowest;
  for (int64_t i = 0; i < merge.partial_count; ++i) {
    if (maxima[i * stride] > maximum) maximum = maxima[i * stride];
  }
  const float base = maximum == kLowest ? 0.0f : maximum;
  float sums[kMaxHeadDim] = {};
  float total = 0.0f;
  for (int64_t i = 0; i < merge.partial_count; ++i) {
    const float weight = std::exp(maxima[i * stride] - base);
    total += weight * totals[i * stride];
    const float* partial = merge.partials + i * stride + int64_t{head} * merge.head_dim;
    for (int dim = 0; dim < merge.head_dim; ++dim) sums[dim] += weight * partial[dim];
  }
  for (int dim = 0; dim < merge.head_dim; ++dim) {
    store_from_float(merge.output_dtype, merge.output, int64_t{head} * merge.head_dim + dim,
                     sums[dim] / total);
  }
}

}  // namespace

void portable::attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next) {
  switch (chunk.dtype) {
    case DType::kF32:
      return walk<PlainKernel<DType::kF32>>(chunk, next);
    case DType::kF16:
      return walk<PlainKernel<DType::kF16>>(chunk, next);
    case DType::kBf16:
      return walk<PlainKernel<DType::kBf16>>(chunk, next);
    default:
      return walk<PlainKernel<DType::kS8>>(chunk, next);
  }
}

void portable::merge_partials(const AttentionMerge& merge) {
  for (int head = 0; head < merge.group_heads; ++head) merge_head(merge, head);
}

}  // namespace gapless
