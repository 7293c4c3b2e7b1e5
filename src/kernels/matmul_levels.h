// SPDX-License-Identifier: Apache-2.0
//
// What a CpuLevel gives to the matmul: the sums of a few panels, and the epilogue over them.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul.h"

namespace gapless {

inline constexpr int kMaxPanelsAtOnce = 12;
// Lines of a panel that all rows go over before the next ones, and how far ahead lines of a single
// panel are prefetched. With up to 16 rows each line is read once and only the distance matters;
// with more, blocks are read again from L2.
inline constexpr int64_t kBlockLines = 320;
inline constexpr int64_t kAvx2BlockLines = 128;  // of one or two panels: 8 KiB each, in L1

// The sums of `panel_count` neighbouring panels over lines [first_line, first_line + line_count)
// for all rows: sums[panel][row][16], int32 for s8 weights, f32 otherwise.
struct PanelSums {
  const std::byte* panels = nullptr;  // line 0 of the first one
  int64_t panel_stride = 0;
  int panel_count = 0;  // as panels_at_once() gives
  int64_t first_line = 0;
  int64_t line_count = 0;
  int64_t panel_lines = 0;  // of a whole panel: where the rows of the next group begin
  DType weights = DType::kF32;
  int64_t m = 0;
  const std::byte* rows = nullptr;
  // The line of the first panel that the caller will read next, when it knows: that line of as many
  // panels, and those behind it, are prefetched towards the end. They need not all exist.
  const std::byte* next_lines = nullptr;
  void* sums = nullptr;
};

// Turns the sums of neighbouring panels into columns of y. Plain fields only: level files must not
// instantiate what other files use too.
struct PanelOutput {
  bool is_s8 = false;
  bool is_pair = false;
  int64_t m = 0;
  int panel_count = 0;
  int64_t first_column = 0;             // of y
  int64_t columns_left = 0;             // of y, from first_column on; may end within a panel
  const float* panel_scales = nullptr;  // s8: [panel][16]
  const float* row_scales = nullptr;    // s8: [m]
  const int32_t* row_sums = nullptr;    // s8: [m]
  int slice_count = 1;
  const void* const* sums = nullptr;  // of each slice, in order: [panel][row][16]
  MatmulOutput output;
};

// How many panels are finished together, and how many of the `left` ones of these are read side by
// side for `m` rows: as many as there are registers for. With 9 and more rows it is one: 16 rows x
// 1 panel reads each line once, where 4 groups of 4 rows x 6 panels would read it four times.
int panels_together(int64_t m);
int panels_at_once(int64_t m, int64_t left);

namespace portable {
void sum_panels(const PanelSums& job);
void finish_panels(const PanelOutput& job);
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
void sum_panels(const PanelSums& job);
void finish_panels(const PanelOutput& job);
}  // namespace avx2

namespace avx2_vnni {
void sum_panels(const PanelSums& job);  // s8 only
}  // namespace avx2_vnni

namespace avx512 {
void sum_panels(const PanelSums& job);
void finish_panels(const PanelOutput& job);
}  // namespace avx512

namespace avx512_bf16 {
void sum_panels(const PanelSums& job);  // bf16 only
}  // namespace avx512_bf16
#endif

}  // namespace gapless
