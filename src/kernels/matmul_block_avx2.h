// SPDX-License-Identifier: Apache-2.0
//
// The inner loop of the matmul on 256 bits: as matmul_block_avx512.h, with half the width and half
// the registers. A panel is two vectors; up to two rows take two panels side by side, more rows
// one. The hardware prefetcher follows so few streams by itself.
//
// For level files only: everything is in an anonymous namespace.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/matmul_levels.h"
#include "kernels/vector_avx2.h"

namespace gapless {
namespace {

template <int... kIndex, typename F>
[[gnu::always_inline]] inline void unroll_over(std::integer_sequence<int, kIndex...>, F&& body) {
  (body(std::integral_constant<int, kIndex>{}), ...);
}
template <int kCount, typename F>
[[gnu::always_inline]] inline void unroll(F&& body) {
  unroll_over(std::make_integer_sequence<int, kCount>{}, body);
}

constexpr int64_t kHalfLine = kLineBytes / 2;
constexpr int64_t kRowsAtOnce = 4;  // divides kRowGroup

struct Block {
  const std::byte* lines = nullptr;
  int64_t stride = 0;  // between panels
  const std::byte* rows = nullptr;
  int64_t step_bytes = 0;  // from one step of the rows to the next: 4 for each row of their group
  int64_t line_count = 0;
  std::byte* sums = nullptr;  // [panel][row][16]
  int64_t sums_stride = 0;    // between panels
  bool is_first = false;      // the sums begin at zero
};

// `Line` has: Sum, Weights (of half a panel), Element, kSteps, zero, load, store, weights<step>,
// element(row) and add.
template <typename Line, int MR, int NR>
[[gnu::noinline]] void add_block(const Block& block) {
  constexpr int kHalves = NR * 2;
  typename Line::Sum sums[MR][kHalves];
  const auto half_of = [](int half, int64_t stride) {
    return half / 2 * stride + half % 2 * kHalfLine;
  };
  unroll<MR>([&](auto m) {
    unroll<kHalves>([&](auto h) {
      const std::byte* from = block.sums + half_of(h, block.sums_stride) + m * kLineBytes;
      sums[m][h] = block.is_first ? Line::zero() : Line::load(from);
    });
  });
  const std::byte* line = block.lines;
  const std::byte* row = block.rows;
  for (int64_t i = 0; i < block.line_count; ++i) {
    unroll<Line::kSteps>([&](auto step) {
      typename Line::Weights weights[kHalves];
      unroll<kHalves>([&](auto h) {
        weights[h] = Line::template weights<step>(line + h / 2 * block.stride,
                                                  std::integral_constant<int, h % 2>{});
      });
      unroll<MR>([&](auto m) {
        const typename Line::Element element = Line::element(row + m * 4);
        unroll<kHalves>([&](auto h) { sums[m][h] = Line::add(sums[m][h], weights[h], element); });
      });
      row += block.step_bytes;
    });
    line += kLineBytes;
  }
  unroll<MR>([&](auto m) {
    unroll<kHalves>([&](auto h) {
      Line::store(block.sums + half_of(h, block.sums_stride) + m * kLineBytes, sums[m][h]);
    });
  });
}

template <typename Line>
void add_rows_block(const Block& block, int row_count, int panel_count) {
  if (row_count == 1)
    return panel_count == 2 ? add_block<Line, 1, 2>(block) : add_block<Line, 1, 1>(block);
  if (row_count == 2)
    return panel_count == 2 ? add_block<Line, 2, 2>(block) : add_block<Line, 2, 1>(block);
  return row_count == 3 ? add_block<Line, 3, 1>(block) : add_block<Line, 4, 1>(block);
}

// All rows over `panel_count` panels from `panel` on, as many at a time as there are registers for.
template <typename Line>
void sum_some_panels(const PanelSums& job, int panel, int panel_count) {
  constexpr int64_t kRowBytes = int64_t{4} * Line::kSteps;  // of one row a line
  const int64_t end = job.first_line + job.line_count;
  for (int64_t first = job.first_line; first < end; first += kAvx2BlockLines) {
    const int64_t count = first + kAvx2BlockLines < end ? kAvx2BlockLines : end - first;
    for (int64_t row = 0; row < job.m; row += kRowsAtOnce) {
      const int64_t group = row / kRowGroup * kRowGroup;
      const int64_t group_rows = job.m - group < kRowGroup ? job.m - group : kRowGroup;
      const int64_t row_count = job.m - row < kRowsAtOnce ? job.m - row : kRowsAtOnce;
      add_rows_block<Line>(
          {.lines = job.panels + panel * job.panel_stride + first * kLineBytes,
           .stride = job.panel_stride,
           .rows = job.rows + (group * job.panel_lines + first * group_rows) * kRowBytes +
                   (row - group) * 4,
           .step_bytes = group_rows * 4,
           .line_count = count,
           .sums = static_cast<std::byte*>(job.sums) + (panel * job.m + row) * kLineBytes,
           .sums_stride = job.m * kLineBytes,
           .is_first = first == job.first_line},
          static_cast<int>(row_count), panel_count);
    }
  }
}

template <typename Line>
void sum_panels_with(const PanelSums& job) {
  const int at_once = job.m <= 2 ? 2 : 1;
  int panel = 0;
  for (; panel + at_once <= job.panel_count; panel += at_once)
    sum_some_panels<Line>(job, panel, at_once);
  if (panel < job.panel_count) sum_some_panels<Line>(job, panel, 1);
}

}  // namespace
}  // namespace gapless
