// SPDX-License-Identifier: Apache-2.0
//
// The attention's kernel on vectors of 8 or 16 floats, for any way to read a page's elements.
//
// A tile is up to 6 heads by up to 4 vectors of columns: the accumulators stay in registers, and a
// row costs 4 loads, 6 broadcasts and 24 multiply-adds. More heads go over the tile again, which is
// in L1 by then.
//
// For level files only: everything is in an anonymous namespace. `Vector` has the arithmetic (see
// attention_avx512.cc), `Element` the page's elements.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/test_effort.h"
#include "kernels/attention_blocks.h"

namespace gapless {
namespace {

template <int kIndex>
struct Index {
  static constexpr int value = kIndex;
};

// Unrolled for sure: GCC 12 puts arrays of vectors on the stack when it unrolls loops late.
template <int... kIndex, typename F>
[[gnu::always_inline]] inline void unroll_over(std::integer_sequence<int, kIndex...>, F&& body) {
  (body(Index<kIndex>{}), ...);
}
template <int kCount, typename F>
[[gnu::always_inline]] inline void unroll(F&& body) {
  unroll_over(std::make_integer_sequence<int, kCount>{}, body);
}

// Sanitized builds have small tiles: large ones take the compiler minutes there.
constexpr int kMaxTileHeads = kSanitized ? 2 : 6;
// Floats (or pairs) from head to head. Not a power of two: the heads' lines are in different sets.
constexpr int kFloatStride = kMaxHeadDim + 16;

struct TilePlace {
  int head = 0;  // the first one
  int heads = 0;
  int column = 0;  // the first one
  int vectors = 0;
};

template <typename Kernel, int kHeads, int kVectors>
[[gnu::noinline]] void add_tile(const RowsJob<typename Kernel::Coefficient>& job,
                                const TilePlace& place, LineStream& stream) {
  using Vector = typename Kernel::Vector;
  using Floats = typename Vector::Floats;
  constexpr int kLanes = Vector::kLanes;
  constexpr int kTileBytes = kVectors * kLanes * Kernel::kGroup * Kernel::kElementBytes;
  // Three prefetches for four lines; the softmax does the others.
  constexpr int kLines = (kTileBytes * 3 / 4 + kLineBytes - 1) / kLineBytes;
  float* out = job.out + place.head * job.out_stride + place.column;
  Floats sums[kHeads][kVectors];
  unroll<kHeads>([&](auto h) {
    constexpr int kHead = decltype(h)::value;
    unroll<kVectors>([&](auto v) {
      constexpr int kVector = decltype(v)::value;
      const float* at = out + kHead * job.out_stride + kVector * kLanes;
      sums[kHead][kVector] =
          job.rescale == nullptr
              ? Vector::set(0.0f)
              : Vector::multiply(Vector::load(at), Vector::set(job.rescale[place.head + kHead]));
    });
  });
  LineStream lines = stream;
  const std::byte* row = job.rows + place.column * int64_t{Kernel::kGroup * Kernel::kElementBytes};
  const typename Kernel::Coefficient* coefficients =
      job.coefficients + place.head * Kernel::kCoefficientStride;
  for (int i = 0; i < job.row_count / Kernel::kGroup; ++i) {
    unroll<kLines>([&](auto) { prefetch_next(lines); });
    Kernel::template add_row<kHeads, kVectors>(sums, row, coefficients);
    row += job.row_bytes;
    coefficients += Kernel::kCoefficientsARow;
  }
  if (job.row_count % Kernel::kGroup != 0) {
    Kernel::template add_half_row<kHeads, kVectors>(sums, row, coefficients);
  }
  stream = lines;
  unroll<kHeads>([&](auto h) {
    constexpr int kHead = decltype(h)::value;
    unroll<kVectors>([&](auto v) {
      constexpr int kVector = decltype(v)::value;
      Vector::store(out + kHead * job.out_stride + kVector * kLanes, sums[kHead][kVector]);
    });
  });
}

// The tile for as many heads and vectors.
template <typename Kernel, int kHeads>
void add_heads(const RowsJob<typename Kernel::Coefficient>& job, const TilePlace& place,
               LineStream& lines) {
  constexpr int kMaxVectors = Kernel::Vector::kRegisters == 32 || kHeads <= 2 ? 4 : 2;
  if constexpr (kHeads > 1) {
    if (place.heads < kHeads) return add_heads<Kernel, kHeads - 1>(job, place, lines);
  }
  if constexpr (kMaxVectors == 4) {
    if (place.vectors == 4) return add_tile<Kernel, kHeads, 4>(job, place, lines);
  }
  if constexpr (Kernel::Vector::kLanes == 16) {
    if (place.vectors == 1) return add_tile<Kernel, kHeads, 1>(job, place, lines);
  }
  return add_tile<Kernel, kHeads, 2>(job, place, lines);
}

// How many vectors of columns are taken at once.
template <typename Vector>
int tile_vectors(int head_count, int columns_left) {
  const int limit = Vector::kRegisters == 32 || head_count <= 2 ? 4 : 2;
  if (limit == 4 && columns_left >= 4 * Vector::kLanes) return 4;
  return columns_left >= 2 * Vector::kLanes ? 2 : 1;
}

template <typename Kernel>
void add_all_rows(const RowsJob<typename Kernel::Coefficient>& job, LineStream& lines) {
  const int passes = (job.head_count + kMaxTileHeads - 1) / kMaxTileHeads;
  TilePlace place;
  while (place.column < job.column_count) {
    const int left = job.column_count - place.column;
    place.vectors = tile_vectors<typename Kernel::Vector>(job.head_count, left);
    place.head = 0;
    LineStream none;
    for (int pass = 0; pass < passes; ++pass) {
      const int passes_left = passes - pass;
      place.heads = (job.head_count - place.head + passes_left - 1) / passes_left;
      add_heads<Kernel, kMaxTileHeads>(job, place, pass == 0 ? lines : none);
      place.head += place.heads;
    }
    place.column += place.vectors * Kernel::Vector::kLanes;
  }
}

// The probabilities of one head. Scores of -infinity alone leave the maximum there; they are then
// taken relative to 0, which gives probabilities of 0 and not NaN: a later block may have others.
template <typename Kernel>
void softmax_block(const SoftmaxJob<typename Kernel::Coefficient>& job) {
  using Vector = typename Kernel::Vector;
  using Floats = typename Vector::Floats;
  const Floats lowest = Vector::set(-__builtin_inff());
  Floats largest = lowest;
  for (int token = 0; token < job.token_count; token += Vector::kLanes) {
    Floats scores = Vector::multiply(Vector::load(job.scores + token), Vector::set(job.scale));
    if constexpr (Kernel::kHasScales) {
      scores = Vector::multiply(scores, Vector::load(job.key_scales + token));
    }
    scores = Vector::keep_first(scores, job.token_count - token, lowest);
    largest = Vector::max(scores, largest);
    Vector::store(job.scores + token, scores);
  }
  const float block_maximum = Vector::max_lanes(largest);
  const float maximum = block_maximum > *job.maximum ? block_maximum : *job.maximum;
  const float base = maximum == -__builtin_inff() ? 0.0f : maximum;
  Floats total = Vector::set(0.0f);
  for (int token = 0; token < job.token_count; token += Vector::kLanes) {
    const Floats exponents = Vector::subtract(Vector::load(job.scores + token), Vector::set(base));
    const Floats probabilities = Kernel::cast_operand(Vector::exp(exponents));
    total = Vector::add(total, probabilities);
    Floats weights = probabilities;
    if constexpr (Kernel::kHasScales) {
      weights = Vector::multiply(weights, Vector::load(job.value_scales + token));
    }
    Kernel::store_operand(job.probabilities, token, weights);
  }
  *job.rescale = Vector::first_lane(Vector::exp(Vector::set(*job.maximum - base)));
  *job.total = *job.total * *job.rescale + Vector::sum_lanes(total);
  *job.maximum = maximum;
}

// A kernel whose operands are floats: all but the dot instruction on bf16.
template <typename VectorType, typename Element>
struct FloatKernel {
  using Vector = VectorType;
  using Floats = typename Vector::Floats;
  using Coefficient = float;
  static constexpr int kGroup = Element::kGroup;
  static constexpr int kElementBytes = Element::kBytes;
  static constexpr bool kHasScales = Element::kHasScales;
  static constexpr int kCoefficientStride = kFloatStride;
  static constexpr int kCoefficientElements = 1;
  static constexpr int kCoefficientsARow = kGroup;

  static Floats cast_operand(Floats values) { return Element::cast_operand(values); }
  static void store_operand(float* to, int index, Floats values) {
    Vector::store(to + index, values);
  }
  static void take_coefficients(const float* from, int count, float* to) {
    for (int i = 0; i < count; i += Vector::kLanes) {
      Vector::store(to + i, Element::cast_operand(Vector::load(from + i)));
    }
  }
  static void add_rows(const RowsJob<float>& job, LineStream& lines) {
    add_all_rows<FloatKernel>(job, lines);
  }
  static void softmax(const SoftmaxJob<float>& job) { softmax_block<FloatKernel>(job); }

  template <int kHeads, int kVectors, int kPart>
  [[gnu::always_inline]] static inline void add_part(Floats (&sums)[kHeads][kVectors],
                                                     const std::byte* row,
                                                     const float* coefficients) {
    constexpr int kVectorBytes = Vector::kLanes * kGroup * kElementBytes;
    Floats values[kVectors];
    unroll<kVectors>([&](auto v) {
      constexpr int kVector = decltype(v)::value;
      values[kVector] = Element::template load<kPart>(row + kVector * kVectorBytes);
    });
    unroll<kHeads>([&](auto h) {
      constexpr int kHead = decltype(h)::value;
      const Floats factor = Vector::set(coefficients[kHead * kCoefficientStride + kPart]);
      unroll<kVectors>([&](auto v) {
        constexpr int kVector = decltype(v)::value;
        sums[kHead][kVector] = Vector::multiply_add(values[kVector], factor, sums[kHead][kVector]);
      });
    });
  }
  template <int kHeads, int kVectors>
  [[gnu::always_inline]] static inline void add_row(Floats (&sums)[kHeads][kVectors],
                                                    const std::byte* row,
                                                    const float* coefficients) {
    add_part<kHeads, kVectors, 0>(sums, row, coefficients);
    if constexpr (kGroup == 2) add_part<kHeads, kVectors, 1>(sums, row, coefficients);
  }
  // The last token of an odd number: what lies beside it is not there.
  template <int kHeads, int kVectors>
  [[gnu::always_inline]] static inline void add_half_row(Floats (&sums)[kHeads][kVectors],
                                                         const std::byte* row,
                                                         const float* coefficients) {
    add_part<kHeads, kVectors, 0>(sums, row, coefficients);
  }
};

// output = sum of the partials / sum of their totals, each relative to the largest maximum.
template <typename Vector>
void merge_head(const AttentionMerge& merge, int head) {
  using Floats = typename Vector::Floats;
  const int64_t stride = merge.partial_stride;
  const int64_t sum_count = int64_t{merge.group_heads} * merge.head_dim;
  const float* maxima = merge.partials + sum_count + head;
  const float* totals = maxima + merge.group_heads;
  float maximum = -__builtin_inff();
  for (int64_t i = 0; i < merge.partial_count; ++i) {
    if (maxima[i * stride] > maximum) maximum = maxima[i * stride];
  }
  const float base = maximum == -__builtin_inff() ? 0.0f : maximum;
  alignas(64) float sums[kMaxHeadDim] = {};
  float total = 0.0f;
  for (int64_t i = 0; i < merge.partial_count; ++i) {
    const Floats weight = Vector::exp(Vector::set(maxima[i * stride] - base));
    total += Vector::first_lane(weight) * totals[i * stride];
    const float* partial = merge.partials + i * stride + int64_t{head} * merge.head_dim;
    for (int dim = 0; dim < merge.head_dim; dim += Vector::kLanes) {
      Vector::store(sums + dim, Vector::multiply_add(Vector::load(partial + dim), weight,
                                                     Vector::load(sums + dim)));
    }
  }
  for (int dim = 0; dim < merge.head_dim; dim += Vector::kLanes) {
    Vector::store_as(merge.output_dtype, merge.output, int64_t{head} * merge.head_dim + dim,
                     Vector::divide(Vector::load(sums + dim), Vector::set(total)));
  }
}

}  // namespace
}  // namespace gapless
