// SPDX-License-Identifier: Apache-2.0

#include "kernels/packed_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "kernels/packed_matrix.h"
#include "kernels/packed_rows_levels.h"

namespace gapless {
namespace {

constexpr int64_t kUnitBytes = 4;  // what one row has in one step of a line
constexpr float kSmallestAmax = 1e-4f;
constexpr uint32_t kInfinityBits = 0x7f800000u;

int64_t line_count(DType weights, int64_t k) { return (k + line_k(weights) - 1) / line_k(weights); }
int64_t units_a_line(RowFormat format, DType weights) {
  return format == RowFormat::kF32 ? line_k(weights) : 1;
}
int64_t round_up(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

// Where a row's units lie: the first, and the distance to the next.
struct Units {
  uint32_t* first = nullptr;
  int64_t stride = 0;
};
Units units_of(const PackedRows& rows, int64_t row) {
  const int64_t group = row / kRowGroup * kRowGroup;
  const int64_t group_rows = std::min<int64_t>(kRowGroup, rows.m - group);
  const int64_t units = line_count(rows.weights, rows.k) * units_a_line(rows.format, rows.weights);
  return {reinterpret_cast<uint32_t*>(rows.data) + group * units + (row - group), group_rows};
}

const RowLoops& loops_of(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return avx512::row_loops();
  if (level >= CpuLevel::kAvx2) return avx2::row_loops();
#endif
  static_cast<void>(level);
  return portable::row_loops();
}

RowPart part_of(const RowSource& source, int64_t row, int64_t k, int64_t count) {
  const int64_t element = row * source.row_stride + k;
  return {.dtype = source.dtype,
          .data = static_cast<const std::byte*>(source.data) + element * dtype_bytes(source.dtype),
          .gamma = source.gamma == nullptr ? nullptr : source.gamma + k,
          .count = count};
}

// A piece of a row goes through a small block of contiguous elements, which is what the level's
// loops are good at, and from there to its units.
constexpr int64_t kPiece = 1024;  // elements: whole units of every format
struct Piece {
  alignas(64) uint32_t units[kPiece];
};

void spread(const Piece& piece, int64_t unit_count, const Units& to, int64_t first_unit) {
  uint32_t* unit = to.first + first_unit * to.stride;
  for (int64_t i = 0; i < unit_count; ++i, unit += to.stride) *unit = piece.units[i];
}

void quantize_row(const RowLoops& loops, const RowSource& source, int64_t row,
                  const PackedRows& rows) {
  const uint32_t amax_bits = loops.largest_magnitude(part_of(source, row, 0, rows.k));
  const float amax = std::max(std::bit_cast<float>(amax_bits), kSmallestAmax);
  const bool is_finite = amax_bits < kInfinityBits;
  rows.scales[row] = is_finite ? amax / 127.0f : std::numeric_limits<float>::quiet_NaN();
  const float inverse = is_finite ? 127.0f / amax : 0.0f;
  const Units units = units_of(rows, row);
  Piece piece;
  int8_t* quantized = reinterpret_cast<int8_t*>(piece.units);
  int32_t sum = 0;
  for (int64_t k = 0; k < rows.k; k += kPiece) {
    const int64_t count = std::min(kPiece, rows.k - k);
    const int64_t unit_count = (count + 3) / 4;
    piece.units[unit_count - 1] = 0;
    if (is_finite)
      sum += loops.quantize(part_of(source, row, k, count), inverse, quantized);
    else
      std::fill_n(piece.units, unit_count, 0u);
    spread(piece, unit_count, units, k / 4);
  }
  rows.sums[row] = sum;
}

void cast_row_to_bf16(const RowLoops& loops, const RowSource& source, int64_t row,
                      const PackedRows& rows) {
  const Units units = units_of(rows, row);
  Piece piece;
  for (int64_t k = 0; k < rows.k; k += kPiece) {
    const int64_t count = std::min(kPiece, rows.k - k);
    const int64_t unit_count = (count + 1) / 2;
    piece.units[unit_count - 1] = 0;
    loops.cast_to_bf16(part_of(source, row, k, count), reinterpret_cast<uint16_t*>(piece.units));
    spread(piece, unit_count, units, k / 2);
  }
}

void cast_row_through(const RowLoops& loops, const RowSource& source, int64_t row,
                      const PackedRows& rows) {
  const Units units = units_of(rows, row);
  const int64_t padded = line_count(rows.weights, rows.k) * line_k(rows.weights);
  Piece piece;
  for (int64_t k = 0; k < rows.k; k += kPiece) {
    const int64_t count = std::min(kPiece, rows.k - k);
    loops.cast_through(part_of(source, row, k, count), rows.weights,
                       reinterpret_cast<float*>(piece.units));
    spread(piece, count, units, k);
  }
  for (int64_t k = rows.k; k < padded; ++k) units.first[k * units.stride] = 0;
}

}  // namespace

RowFormat row_format(DType weights, CpuLevel level) {
  if (weights == DType::kS8) return RowFormat::kS8x4;
  return weights == DType::kBf16 && level >= CpuLevel::kAvx512Bf16 ? RowFormat::kBf16x2
                                                                   : RowFormat::kF32;
}

int64_t packed_rows_bytes(DType weights, CpuLevel level, int64_t m, int64_t k) {
  return m * line_count(weights, k) * units_a_line(row_format(weights, level), weights) *
         kUnitBytes;
}

int64_t packed_rows_block_bytes(DType weights, CpuLevel level, int64_t m, int64_t k) {
  const int64_t data = round_up(packed_rows_bytes(weights, level, m, k));
  return weights == DType::kS8 ? data + 2 * round_up(m * 4) : data;
}

PackedRows packed_rows_in(std::byte* block, DType weights, CpuLevel level, int64_t m, int64_t k) {
  PackedRows rows = {
      .format = row_format(weights, level), .weights = weights, .m = m, .k = k, .data = block};
  if (weights != DType::kS8) return rows;
  std::byte* behind = block + round_up(packed_rows_bytes(weights, level, m, k));
  rows.scales = reinterpret_cast<float*>(behind);
  rows.sums = reinterpret_cast<int32_t*>(behind + round_up(m * 4));
  return rows;
}

void pack_rows(CpuLevel level, const RowSource& source, int64_t row, int64_t count,
               const PackedRows& rows) {
  GAPLESS_DCHECK(rows.format == row_format(rows.weights, level));
  GAPLESS_DCHECK(row >= 0 && count >= 0 && row + count <= rows.m);
  const RowLoops& loops = loops_of(level);
  for (int64_t i = row; i < row + count; ++i) {
    switch (rows.format) {
      case RowFormat::kS8x4:
        quantize_row(loops, source, i, rows);
        break;
      case RowFormat::kBf16x2:
        cast_row_to_bf16(loops, source, i, rows);
        break;
      case RowFormat::kF32:
        cast_row_through(loops, source, i, rows);
        break;
    }
  }
}

}  // namespace gapless
