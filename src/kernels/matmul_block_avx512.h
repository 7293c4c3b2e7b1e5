// SPDX-License-Identifier: Apache-2.0
//
// The inner loop of the matmul on 512 bits, for any way to multiply a line by a row's elements.
//
// A block is `lines` lines of NR panels by MR rows: MR x NR accumulators stay in registers, each
// line costs NR loads, MR broadcasts a step and MR x NR multiply-adds. Up to 16 rows go through
// together: each line is read once. More rows are several groups, which all go over a block before
// the next one is read. The first group prefetches.
//
// For level files only: everything is in an anonymous namespace.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <immintrin.h>

#include "kernels/matmul_levels.h"

namespace gapless {
namespace {

// Unrolled for sure: GCC 12 puts arrays of vectors on the stack when it unrolls loops late.
template <int... kIndex, typename F>
[[gnu::always_inline]] inline void unroll_over(std::integer_sequence<int, kIndex...>, F&& body) {
  (body(std::integral_constant<int, kIndex>{}), ...);
}
template <int kCount, typename F>
[[gnu::always_inline]] inline void unroll(F&& body) {
  unroll_over(std::make_integer_sequence<int, kCount>{}, body);
}

// How far ahead the lines of NR panels are prefetched, and into which cache. On one core of a Zen 4
// that reads 34 GB/s: 12 panels for one row 31.8 GB/s so, 29.2 with 4 lines into L1; 6 panels for
// four rows 29.2 so, 24 to 26 with any distance into L2, whose lines L1 misses once more while it
// has buffers for few. One panel is for many rows: arithmetic leaves much time, and their elements
// need the room in L1. GCC deletes calls whose only effect is _mm_prefetch.
template <int NR>
struct Ahead {
  static constexpr int64_t kLines = NR == 1 ? kBlockLines : NR > 6 ? 12 : 4;
  static constexpr bool kIntoL1 = NR > 1 && NR <= 6;
  [[gnu::always_inline]] static inline void prefetch(const std::byte* line) {
    if constexpr (kIntoL1) {
      asm volatile("prefetcht0 %0" : : "m"(*line));
    } else {
      asm volatile("prefetcht1 %0" : : "m"(*line));
    }
  }
};

// One block for one group of rows.
struct Block {
  const std::byte* lines = nullptr;
  int64_t stride = 0;  // between panels
  const std::byte* rows = nullptr;
  int64_t line_count = 0;
  const std::byte* prefetch = nullptr;  // what to prefetch instead, or nothing
  std::byte* sums = nullptr;            // [panel][row][16]
  int64_t sums_stride = 0;              // between panels
  bool is_first = false;                // the sums begin at zero
};

// `Line` has: Sum (the accumulator), kSteps (of 4 bytes of a row each) and Weights; zero, load,
// store, weights<step>(line), broadcast(row) and add.
template <typename Line, int MR, int NR, bool kPrefetches>
[[gnu::noinline]] void add_block(const Block& block) {
  typename Line::Sum sums[MR][NR];
  unroll<MR>([&](auto m) {
    unroll<NR>([&](auto n) {
      sums[m][n] = block.is_first ? Line::zero()
                                  : Line::load(block.sums + n * block.sums_stride + m * kLineBytes);
    });
  });
  const std::byte* line = block.lines;
  const std::byte* row = block.rows;
  const std::byte* prefetch = block.prefetch;
  const int64_t stride = block.stride;
  for (int64_t i = 0; i < block.line_count; ++i) {
    if constexpr (kPrefetches) {
      unroll<NR>([&](auto n) { Ahead<NR>::prefetch(prefetch + n * stride); });
      prefetch += kLineBytes;
    }
    unroll<Line::kSteps>([&](auto step) {
      typename Line::Weights weights[NR];
      unroll<NR>([&](auto n) { weights[n] = Line::template weights<step>(line + n * stride); });
      unroll<MR>([&](auto m) {
        const typename Line::Weights element = Line::broadcast(row + (step * MR + m) * 4);
        unroll<NR>([&](auto n) { sums[m][n] = Line::add(sums[m][n], weights[n], element); });
      });
    });
    line += kLineBytes;
    row += Line::kSteps * MR * 4;
  }
  unroll<MR>([&](auto m) {
    unroll<NR>([&](auto n) {
      Line::store(block.sums + n * block.sums_stride + m * kLineBytes, sums[m][n]);
    });
  });
}

// The block with as many rows: MR of them or fewer.
template <typename Line, int MR, int NR>
void add_rows_block(const Block& block, int64_t row_count) {
  if constexpr (MR > 1) {
    if (row_count < MR) return add_rows_block<Line, MR - 1, NR>(block, row_count);
  }
  if (block.prefetch == nullptr) return add_block<Line, MR, NR, false>(block);
  add_block<Line, MR, NR, true>(block);
}

// Where line `line` of this job lies, or of the one that comes next.
const std::byte* lines_ahead(const PanelSums& job, int64_t line) {
  const int64_t behind = line - (job.first_line + job.line_count);
  if (behind < 0) return job.panels + line * kLineBytes;
  return job.next_lines == nullptr ? nullptr : job.next_lines + behind * kLineBytes;
}

template <typename Line, int NR, int kMaxRows>
void sum_panels_of(const PanelSums& job) {
  constexpr int64_t kRowBytes = int64_t{4} * Line::kSteps;  // of one row a line
  constexpr int64_t kAhead = Ahead<NR>::kLines;
  const int64_t end = job.first_line + job.line_count;
  const int64_t own_end = end - kAhead;  // from here on the lines ahead are those of the next job
  int64_t count = 0;
  for (int64_t first = job.first_line; first < end; first += count) {
    count = first + kBlockLines < end ? kBlockLines : end - first;
    if (first < own_end && first + count > own_end) count = own_end - first;
    for (int64_t row = 0; row < job.m; row += kRowGroup) {
      const int64_t row_count = job.m - row < kRowGroup ? job.m - row : kRowGroup;
      add_rows_block<Line, kMaxRows, NR>(
          {.lines = job.panels + first * kLineBytes,
           .stride = job.panel_stride,
           .rows = job.rows + (row * job.panel_lines + first * row_count) * kRowBytes,
           .line_count = count,
           .prefetch = row == 0 ? lines_ahead(job, first + kAhead) : nullptr,
           .sums = static_cast<std::byte*>(job.sums) + row * kLineBytes,
           .sums_stride = job.m * kLineBytes,
           .is_first = first == job.first_line},
          row_count);
    }
  }
}

// Accumulators, weights and an element must fit 32 registers.
template <typename Line>
void sum_panels_with(const PanelSums& job) {
  switch (job.panel_count) {
    case 12:
      return sum_panels_of<Line, 12, 1>(job);
    case 6:
      return sum_panels_of<Line, 6, 4>(job);
    case 4:
      return sum_panels_of<Line, 4, 4>(job);
    case 2:
      return sum_panels_of<Line, 2, 4>(job);
    default:
      return sum_panels_of<Line, 1, 16>(job);
  }
}

}  // namespace
}  // namespace gapless
