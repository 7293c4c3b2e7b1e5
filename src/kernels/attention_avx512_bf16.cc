// SPDX-License-Identifier: Apache-2.0
//
// The attention over bf16 pages with vdpbf16ps: two dims of a key, or two tokens' values, a lane
// and instruction. q and the probabilities are pairs of bf16 here.

#include "kernels/attention_avx512_vector.h"

namespace gapless {

namespace {

struct DotKernel {
  using Vector = Vector512;
  using Floats = __m512;
  using Coefficient = uint32_t;  // two bf16, the first in the lower half
  static constexpr int kGroup = 2;
  static constexpr int kElementBytes = 2;
  static constexpr bool kHasScales = false;
  static constexpr int kCoefficientStride = kFloatStride / 2;
  static constexpr int kCoefficientElements = 2;
  static constexpr int kCoefficientsARow = 1;

  static Floats cast_operand(Floats values) {
    return avx512::bf16_to_f32(avx512::f32_to_bf16(values));
  }
  static void store_operand(uint32_t* to, int index, Floats values) {
    avx512::store<DType::kBf16>(to, index, values);
  }
  static void take_coefficients(const float* from, int count, uint32_t* to) {
    for (int i = 0; i < count; i += Vector::kLanes) store_operand(to, i, Vector::load(from + i));
  }
  static void add_rows(const RowsJob<uint32_t>& job, LineStream& lines) {
    add_all_rows<DotKernel>(job, lines);
  }
  static void softmax(const SoftmaxJob<uint32_t>& job) { softmax_block<DotKernel>(job); }

  template <int kHeads, int kVectors, bool kIsHalf>
  [[gnu::always_inline]] static inline void add_pairs(Floats (&sums)[kHeads][kVectors],
                                                      const std::byte* row,
                                                      const uint32_t* coefficients) {
    __m512i values[kVectors];
    unroll<kVectors>([&](auto v) {
      constexpr int kVector = decltype(v)::value;
      values[kVector] = _mm512_loadu_si512(row + kVector * kLineBytes);
      if constexpr (kIsHalf) {
        values[kVector] = _mm512_and_si512(values[kVector], _mm512_set1_epi32(0xffff));
      }
    });
    unroll<kHeads>([&](auto h) {
      constexpr int kHead = decltype(h)::value;
      const int pair = static_cast<int>(coefficients[kHead * kCoefficientStride]);
      const __m512i factor = _mm512_set1_epi32(pair);
      unroll<kVectors>([&](auto v) {
        constexpr int kVector = decltype(v)::value;
        sums[kHead][kVector] =
            _mm512_dpbf16_ps(sums[kHead][kVector], reinterpret_cast<__m512bh>(values[kVector]),
                             reinterpret_cast<__m512bh>(factor));
      });
    });
  }
  template <int kHeads, int kVectors>
  [[gnu::always_inline]] static inline void add_row(Floats (&sums)[kHeads][kVectors],
                                                    const std::byte* row,
                                                    const uint32_t* coefficients) {
    add_pairs<kHeads, kVectors, false>(sums, row, coefficients);
  }
  // The last token of an odd number: what lies beside it is not there.
  template <int kHeads, int kVectors>
  [[gnu::always_inline]] static inline void add_half_row(Floats (&sums)[kHeads][kVectors],
                                                         const std::byte* row,
                                                         const uint32_t* coefficients) {
    add_pairs<kHeads, kVectors, true>(sums, row, coefficients);
  }
};

}  // namespace

void avx512_bf16::attend_chunk(const AttentionChunk& chunk, const AttentionChunk* next) {
  walk<DotKernel>(chunk, next);
}

}  // namespace gapless
