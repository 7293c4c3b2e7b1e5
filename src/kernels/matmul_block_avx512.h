// SPDX-License-Identifier: Apache-2.0
//
// The inner loop of the matmul on 512 bits, for any way to multiply a line by a row's elements.
//
// A block is `lines` lines of NR panels by MR rows: MR x NR accumulators stay in registers, each
// line costs NR loads, MR broadcasts a step and MR x NR multiply-adds. All rows go over the block
// before the next one is read, so that memory is read once and the groups of rows read L2; the
// prefetches of a block to come are dealt out over the groups of rows, each line once.
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

// Into L2: in L1 the lines to come would push out those in use. On Zen 4 this is 29 GB/s a core
// against 20 with prefetcht0. GCC deletes calls whose only effect is _mm_prefetch.
[[gnu::always_inline]] inline void prefetch_line(const std::byte* line) {
  asm volatile("prefetcht1 %0" : : "m"(*line));
}

constexpr int kWidePanels = 6;

// One block for one group of rows.
struct Block {
  const std::byte* lines = nullptr;
  int64_t stride = 0;  // between panels
  const std::byte* rows = nullptr;
  int64_t line_count = 0;
  const std::byte* prefetch = nullptr;       // the first panel whose lines are all prefetched
  const std::byte* prefetch_half = nullptr;  // half the lines of one more
  std::byte* sums = nullptr;                 // [panel][row][16]
  int64_t sums_stride = 0;                   // between panels
  bool is_first = false;                     // the sums begin at zero
};

// Prefetches kHalves / 2 lines for each line. `Line` has: Sum (the accumulator), kSteps and
// kRowBytes (of one row a line), zero, load, store, weights(line, step) and add(sum, weights, row
// element at, step).
template <typename Line, int MR, int NR, int kHalves>
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
  const std::byte* prefetch_half = block.prefetch_half;
  const int64_t stride = block.stride;
  for (int64_t i = 0; i < block.line_count; ++i) {
    unroll<kHalves / 2>([&](auto n) { prefetch_line(prefetch + n * stride); });
    if constexpr (kHalves % 2 == 1) {
      if (i % 2 == 0) prefetch_line(prefetch_half + i / 2 * kLineBytes);
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
    if constexpr (kHalves > 1) prefetch += kLineBytes;
  }
  unroll<MR>([&](auto m) {
    unroll<NR>([&](auto n) {
      Line::store(block.sums + n * block.sums_stride + m * kLineBytes, sums[m][n]);
    });
  });
}

template <typename Line, int MR, int NR>
void add_block_prefetching(const Block& block, int halves) {
  if (halves == 0) return add_block<Line, MR, NR, 0>(block);
  if constexpr (NR == kWidePanels) {
    if (halves == 1) return add_block<Line, MR, NR, 1>(block);
    if (halves == 2) return add_block<Line, MR, NR, 2>(block);
    if (halves == 3) return add_block<Line, MR, NR, 3>(block);
    if (halves == 4) return add_block<Line, MR, NR, 4>(block);
    if (halves == 6) return add_block<Line, MR, NR, 6>(block);
  }
  add_block<Line, MR, NR, 2 * NR>(block);
}

template <typename Line, int NR>
void add_rows_block(const Block& block, int row_count, int halves) {
  switch (row_count) {
    case 1:
      return add_block_prefetching<Line, 1, NR>(block, halves);
    case 2:
      return add_block_prefetching<Line, 2, NR>(block, halves);
    case 3:
      return add_block_prefetching<Line, 3, NR>(block, halves);
    default:
      // 4 x 8 accumulators would not leave a register for the weights.
      if constexpr (NR <= kWidePanels) add_block_prefetching<Line, 4, NR>(block, halves);
  }
}

// The lines of a block to come, to be prefetched: half panels, dealt out to the groups of rows as
// evenly as they can be. More at a time would fill the core's buffers for misses and hold up what
// is being computed. The narrow rests leave it all to the first group: they are few.
template <int NR>
struct BlockAhead {
  const std::byte* lines = nullptr;  // of the first panel; nothing when nobody knows
  int64_t stride = 0;
  int64_t half_bytes = 0;
  int halves_at_once = 0;
  int halves_done = 0;

  // Adds this group's share to the block and returns how many halves it is.
  int give(Block& block) {
    const int left = lines == nullptr ? 0 : 2 * NR - halves_done;
    const int halves = left < halves_at_once ? left : halves_at_once;
    if (halves == 0) return 0;
    const int first = halves_done;
    halves_done += halves;
    const bool half_first = first % 2 == 1;
    const int whole = (first + 1) / 2;  // the first panel of which this group takes both halves
    block.prefetch = lines + whole * stride;
    block.prefetch_half = half_first ? lines + first / 2 * stride + half_bytes
                                     : lines + (whole + halves / 2) * stride;
    return halves;
  }
};

template <int NR>
int halves_at_once(int groups) {
  if (NR != kWidePanels || groups == 1) return 2 * NR;
  return groups <= 3 ? (NR + groups - 1) / groups * 2 : (2 * NR + groups - 1) / groups;
}

// Where line `line` of this job lies, or of the one that comes next.
const std::byte* lines_ahead(const PanelSums& job, int64_t line) {
  const int64_t behind = line - (job.first_line + job.line_count);
  if (behind < 0) return job.panels + line * kLineBytes;
  return job.next_lines == nullptr ? nullptr : job.next_lines + behind * kLineBytes;
}

template <typename Line, int NR>
void sum_panels_of(const PanelSums& job) {
  constexpr int64_t kRowBytes = int64_t{4} * Line::kSteps;  // of one row a line
  const int groups = static_cast<int>((job.m + kRowGroup - 1) / kRowGroup);
  const int64_t end = job.first_line + job.line_count;
  for (int64_t first = job.first_line; first < end; first += kBlockLines) {
    const int64_t count = first + kBlockLines < end ? kBlockLines : end - first;
    BlockAhead<NR> ahead = {.lines = lines_ahead(job, first + kBlockLines),
                            .stride = job.panel_stride,
                            .half_bytes = (count + 1) / 2 * kLineBytes,
                            .halves_at_once = halves_at_once<NR>(groups)};
    for (int64_t row = 0; row < job.m; row += kRowGroup) {
      const int64_t row_count = job.m - row < kRowGroup ? job.m - row : kRowGroup;
      Block block = {.lines = job.panels + first * kLineBytes,
                     .stride = job.panel_stride,
                     .rows = job.rows + (row * job.panel_lines + first * row_count) * kRowBytes,
                     .line_count = count,
                     .sums = static_cast<std::byte*>(job.sums) + row * kLineBytes,
                     .sums_stride = job.m * kLineBytes,
                     .is_first = first == job.first_line};
      const int halves = ahead.give(block);
      add_rows_block<Line, NR>(block, static_cast<int>(row_count), halves);
    }
  }
}

template <typename Line>
void sum_panels_with(const PanelSums& job) {
  switch (job.panel_count) {
    case 1:
      return sum_panels_of<Line, 1>(job);
    case 2:
      return sum_panels_of<Line, 2>(job);
    case 4:
      return sum_panels_of<Line, 4>(job);
    case 6:
      return sum_panels_of<Line, 6>(job);
    default:
      return sum_panels_of<Line, 8>(job);
  }
}

}  // namespace
}  // namespace gapless
