// SPDX-License-Identifier: Apache-2.0

#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul_levels.h"

namespace gapless {

int panels_together(int64_t m) { return m == 1 ? kMaxPanelsAtOnce : 6; }

int panels_at_once(int64_t m, int64_t left) {
  if (m > 4) return 1;
  if (m == 1 && left >= kMaxPanelsAtOnce) return kMaxPanelsAtOnce;
  if (left >= 6) return 6;
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

namespace {

void sum_panels(CpuLevel level, const PanelSums& job) {
#if defined(__x86_64__)
  const bool is_s8 = job.weights == DType::kS8;
  if (level == CpuLevel::kAvx512Bf16 && job.weights == DType::kBf16)
    return avx512_bf16::sum_panels(job);
  if (level >= CpuLevel::kAvx512) return avx512::sum_panels(job);
  if (level == CpuLevel::kAvx2Vnni && is_s8) return avx2_vnni::sum_panels(job);
  if (level >= CpuLevel::kAvx2) return avx2::sum_panels(job);
#endif
  static_cast<void>(level);
  portable::sum_panels(job);
}

void finish_panels(CpuLevel level, const PanelOutput& job) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return avx512::finish_panels(job);
  if (level >= CpuLevel::kAvx2) return avx2::finish_panels(job);
#endif
  static_cast<void>(level);
  portable::finish_panels(job);
}

PanelSums sums_of(const MatmulArgs& args, int64_t panel, int64_t panel_count) {
  const PackedMatrix& weights = *args.weights;
  return {.panels = weights.panel(panel),
          .panel_stride = weights.panel_stride(),
          .panel_count = static_cast<int>(panel_count),
          .panel_lines = weights.line_count(),
          .weights = weights.dtype(),
          .m = args.rows.m,
          .rows = args.rows.data};
}

PanelOutput output_of(const MatmulArgs& args, int64_t panel, int64_t panel_count, int slice_count,
                      const void* const* sums) {
  const PackedMatrix& weights = *args.weights;
  const bool is_s8 = weights.dtype() == DType::kS8;
  const bool is_pair = weights.interleave() == Interleave::kPairs;
  const int64_t first_column = (is_pair ? panel / 2 : panel) * kPanelRows;
  return {.is_s8 = is_s8,
          .is_pair = is_pair,
          .m = args.rows.m,
          .panel_count = static_cast<int>(panel_count),
          .first_column = first_column - args.output.first_column,
          .columns_left = weights.n() - first_column,
          .panel_scales = is_s8 ? weights.panel_scales() + panel * kPanelRows : nullptr,
          .row_scales = args.rows.scales,
          .row_sums = args.rows.sums,
          .slice_count = slice_count,
          .sums = sums,
          .output = args.output};
}

struct PanelRange {
  int64_t first_line = 0;
  int64_t line_count = 0;
};

// The sums of neighbouring panels, as many at a time as the level can read side by side. `next` is
// the panel that will be read after them, or -1.
void sum_neighbours(CpuLevel level, const MatmulArgs& args, int64_t panel, int64_t panel_count,
                    int64_t next, const PanelRange& lines, std::byte* sums) {
  const int64_t end = panel + panel_count;
  while (panel < end) {
    const int64_t count = panels_at_once(args.rows.m, end - panel);
    PanelSums job = sums_of(args, panel, count);
    job.first_line = lines.first_line;
    job.line_count = lines.line_count;
    job.sums = sums;
    panel += count;
    sums += matmul_sums_bytes(args.rows.m, count);
    const int64_t ahead = panel < end ? panel : next;
    if (ahead >= 0) job.next_lines = args.weights->panel(ahead) + lines.first_line * kLineBytes;
    sum_panels(level, job);
  }
}

void check_panels(const MatmulArgs& args, int64_t first_panel, int64_t panel_count) {
  GAPLESS_DCHECK(first_panel >= 0);
  GAPLESS_DCHECK(panel_count >= 0);
  GAPLESS_DCHECK(first_panel + panel_count <= args.weights->panel_count());
  GAPLESS_DCHECK(args.weights->interleave() == Interleave::kNone ||
                 (first_panel % 2 == 0 && panel_count % 2 == 0));
}

Result<void> check_output(const MatmulArgs& args) {
  const MatmulOutput& output = args.output;
  const int64_t n = args.weights->n();
  if (output.dtype != DType::kF32 && output.dtype != DType::kBf16 && output.dtype != DType::kF16)
    return fail(ErrorCode::kInvalidInput, "a matmul stores f32, bf16 or f16, not {}",
                dtype_name(output.dtype));
  if (output.data == nullptr) return fail(ErrorCode::kInvalidInput, "a matmul needs an output");
  if (output.row_stride < n)
    return fail(ErrorCode::kInvalidInput,
                "the matmul's output has rows of {} elements, the weights give {} columns",
                output.row_stride, n);
  if (output.residual != nullptr && output.residual == output.data && output.dtype != DType::kF32)
    return fail(ErrorCode::kInvalidInput,
                "the matmul's output is {} and cannot lie on its f32 residual",
                dtype_name(output.dtype));
  if (output.residual != nullptr && output.residual_stride < n)
    return fail(ErrorCode::kInvalidInput,
                "the matmul's residual has rows of {} elements, the weights give {} columns",
                output.residual_stride, n);
  return {};
}

}  // namespace

Result<void> check_matmul(CpuLevel level, const MatmulArgs& args) {
  if (args.weights == nullptr || args.weights->n() == 0)
    return fail(ErrorCode::kInvalidInput, "a matmul needs weights");
  const PackedMatrix& weights = *args.weights;
  const PackedRows& rows = args.rows;
  if (rows.m < 1 || rows.m > kMaxMatmulRows)
    return fail(ErrorCode::kInvalidInput, "a matmul takes 1 to {} rows, not {}", kMaxMatmulRows,
                rows.m);
  if (weights.k() > kMaxMatmulK)
    return fail(ErrorCode::kInvalidInput, "k = {}; a matmul takes 1 to {}", weights.k(),
                kMaxMatmulK);
  if (rows.k != weights.k())
    return fail(ErrorCode::kInvalidInput, "rows of {} elements do not fit weights with k = {}",
                rows.k, weights.k());
  if (rows.weights != weights.dtype() || rows.format != row_format(weights.dtype(), level))
    return fail(ErrorCode::kInvalidInput,
                "the rows were packed for {} weights or another CPU level, the weights are {} at "
                "level {}",
                dtype_name(rows.weights), dtype_name(weights.dtype()), cpu_level_name(level));
  const bool has_scales = rows.scales != nullptr && rows.sums != nullptr;
  if (rows.data == nullptr || (weights.dtype() == DType::kS8 && !has_scales))
    return fail(ErrorCode::kInvalidInput, "a matmul needs packed rows");
  return check_output(args);
}

void matmul_tile(CpuLevel level, const MatmulArgs& args, int64_t first_panel, int64_t panel_count,
                 int64_t next_panel) {
  check_panels(args, first_panel, panel_count);
  alignas(64) std::byte sums[kMaxPanelsAtOnce * kMaxMatmulRows * kLineBytes];
  const void* const slices[] = {sums};
  const int64_t end = first_panel + panel_count;
  const PanelRange lines = {.line_count = args.weights->line_count()};
  for (int64_t panel = first_panel; panel < end;) {
    const int64_t count = std::min<int64_t>(panels_together(args.rows.m), end - panel);
    const int64_t next = panel + count < end ? panel + count : next_panel;
    sum_neighbours(level, args, panel, count, next, lines, sums);
    finish_panels(level, output_of(args, panel, count, 1, slices));
    panel += count;
  }
}

void matmul_slice(CpuLevel level, const MatmulArgs& args, int64_t first_panel, int64_t panel_count,
                  int64_t first_line, int64_t line_count, void* sums) {
  check_panels(args, first_panel, panel_count);
  GAPLESS_DCHECK(first_line + line_count <= args.weights->line_count());
  if (line_count == 0) {
    std::memset(sums, 0, static_cast<size_t>(matmul_sums_bytes(args.rows.m, panel_count)));
    return;
  }
  sum_neighbours(level, args, first_panel, panel_count, -1,
                 {.first_line = first_line, .line_count = line_count},
                 static_cast<std::byte*>(sums));
}

void matmul_combine(CpuLevel level, const MatmulArgs& args, int64_t first_panel,
                    int64_t panel_count, int slice_count, const void* const* sums) {
  check_panels(args, first_panel, panel_count);
  finish_panels(level, output_of(args, first_panel, panel_count, slice_count, sums));
}

int64_t matmul_sums_bytes(int64_t m, int64_t panel_count) { return panel_count * m * kLineBytes; }

}  // namespace gapless
