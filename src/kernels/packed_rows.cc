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
// loops are good at, and from there to its units. All rows of a group do so piece by piece: the
// lines that they share stay in L1 (1024 elements of 16 rows are 16 to 64 KiB).
constexpr int64_t kPiece = 1024;  // elements: whole units of every format
struct Piece {
  alignas(64) uint32_t units[kPiece];
};

void spread(const Piece& piece, int64_t unit_count, const Units& to, int64_t first_unit) {
  uint32_t* unit = to.first + first_unit * to.stride;
  for (int64_t i = 0; i < unit_count; ++i, unit += to.stride) *unit = piece.units[i];
}

// What quantising a row needs to know of all of it. An inverse of 0 makes zeros of the row.
float set_scale(const RowLoops& loops, const RowSource& source, int64_t row,
                const PackedRows& rows) {
  const uint32_t amax_bits = loops.largest_magnitude(part_of(source, row, 0, rows.k));
  const float amax = std::max(std::bit_cast<float>(amax_bits), kSmallestAmax);
  const bool is_finite = amax_bits < kInfinityBits;
  rows.scales[row] = is_finite ? amax / 127.0f : std::numeric_limits<float>::quiet_NaN();
  return is_finite ? 127.0f / amax : 0.0f;
}

// Each gives how many units of the piece it filled; the part is never empty.
int64_t quantize_piece(const RowLoops& loops, const RowPart& part, float inverse, Piece& piece,
                       int32_t& sum) {
  const int64_t unit_count = (part.count + 3) / 4;
  piece.units[unit_count - 1] = 0;
  if (inverse != 0.0f)
    sum += loops.quantize(part, inverse, reinterpret_cast<int8_t*>(piece.units));
  else
    std::fill_n(piece.units, unit_count, 0u);
  return unit_count;
}

int64_t cast_piece_to_bf16(const RowLoops& loops, const RowPart& part, Piece& piece) {
  const int64_t unit_count = (part.count + 1) / 2;
  piece.units[unit_count - 1] = 0;
  loops.cast_to_bf16(part, reinterpret_cast<uint16_t*>(piece.units));
  return unit_count;
}

// `end` is behind the row's last element, zeros included that fill its last line.
int64_t cast_piece_through(const RowLoops& loops, const RowPart& part, DType weights, int64_t k,
                           int64_t end, Piece& piece) {
  loops.cast_through(part, weights, reinterpret_cast<float*>(piece.units));
  const int64_t unit_count = std::min(kPiece, end - k);
  for (int64_t i = part.count; i < unit_count; ++i) piece.units[i] = 0;
  return unit_count;
}

// Rows [row, row + count) of one group.
void pack_group(const RowLoops& loops, const RowSource& source, int64_t row, int64_t count,
                const PackedRows& rows) {
  const bool is_s8 = rows.format == RowFormat::kS8x4;
  float inverses[kRowGroup] = {};
  int32_t sums[kRowGroup] = {};
  for (int64_t i = 0; is_s8 && i < count; ++i)
    inverses[i] = set_scale(loops, source, row + i, rows);
  const int64_t padded_k = line_count(rows.weights, rows.k) * line_k(rows.weights);
  Piece piece;
  for (int64_t k = 0; k < rows.k; k += kPiece) {
    for (int64_t i = 0; i < count; ++i) {
      const RowPart part = part_of(source, row + i, k, std::min(kPiece, rows.k - k));
      int64_t unit_count = 0;
      int64_t elements_a_unit = 1;
      if (is_s8) {
        unit_count = quantize_piece(loops, part, inverses[i], piece, sums[i]);
        elements_a_unit = 4;
      } else if (rows.format == RowFormat::kBf16x2) {
        unit_count = cast_piece_to_bf16(loops, part, piece);
        elements_a_unit = 2;
      } else {
        unit_count = cast_piece_through(loops, part, rows.weights, k, padded_k, piece);
      }
      spread(piece, unit_count, units_of(rows, row + i), k / elements_a_unit);
    }
  }
  for (int64_t i = 0; is_s8 && i < count; ++i) rows.sums[row + i] = sums[i];
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
  for (int64_t i = row; i < row + count;) {
    const int64_t group_end = std::min((i / kRowGroup + 1) * kRowGroup, row + count);
    pack_group(loops, source, i, group_end - i, rows);
    i = group_end;
  }
}

}  // namespace gapless
