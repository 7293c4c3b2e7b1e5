// SPDX-License-Identifier: Apache-2.0
//
// PackedMatrix: the weights of y = x W^T in the order in which the kernels stream them.
//
// W has n rows (output columns of y) of k elements. 16 rows make a panel; one line of 64 bytes
// holds all 16 rows at the next few k:
//
//   s8    [panel][k / 4][16 rows][4]  stored as w + 128 (u8): see matmul.h
//   bf16  [panel][k / 2][16 rows][2]
//   f16   [panel][k][16 rows]         a line is two k
//   f32   [panel][k][16 rows]
//
// k and n are padded with zeros to whole lines and panels. A panel is followed by kPanelGap bytes,
// so that panels read side by side do not fall into the same sets of the L1 cache. Memory comes in
// huge pages.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/huge_buffer.h"
#include "base/result.h"

namespace gapless {

inline constexpr int kPanelRows = 16;
inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kPanelGap = 64;

// How many k one line holds: 4, 2, 2, 1.
constexpr int line_k(DType dtype) { return static_cast<int>(4 / dtype_bytes(dtype)); }

// Whether two matrices lie in one, panel by panel: gate, up, gate, up, ... The matmul's epilogue
// then has both values of a column at hand.
enum class Interleave : uint8_t { kNone, kPairs };

// The largest |x| of a row of kBf16, kF16 or kF32; infinite or a NaN when an element is.
float largest_magnitude(DType dtype, const void* row, int64_t count);
// What set_rows makes of a row in an s8 matrix: writes `count` elements and returns the scale.
float quantize_row(DType source_dtype, const void* source, int64_t count, int8_t* quantized);

class PackedMatrix {
 public:
  PackedMatrix() = default;
  // All zeros. kS8, kBf16, kF16 or kF32. With kPairs, `n` is that of one of the two matrices.
  static Result<PackedMatrix> create(DType dtype, int64_t n, int64_t k,
                                     Interleave interleave = Interleave::kNone);

  // Fills `count` rows from `row` on from row-major `source` (kBf16, kF16 or kF32; rows are k
  // elements). Into an s8 matrix each row is quantised: scale = amax / 127, round to nearest even.
  // `which` is 0, or 1 for the second of a pair. Rows may be filled in any order and by several
  // threads, each row by one.
  void set_rows(int64_t row, int64_t count, DType source_dtype, const void* source, int which = 0);
  // The same for weights that are s8 already, with the scale of each row.
  void set_quantized_rows(int64_t row, int64_t count, const int8_t* source, const float* scales,
                          int which = 0);

  DType dtype() const { return dtype_; }
  Interleave interleave() const { return interleave_; }
  int64_t n() const { return n_; }  // of one of the two when interleaved
  int64_t k() const { return k_; }
  int64_t line_count() const { return line_count_; }    // of a panel
  int64_t panel_count() const { return panel_count_; }  // of all: even when interleaved
  int64_t panel_stride() const { return line_count_ * kLineBytes + kPanelGap; }
  const std::byte* panel(int64_t index) const { return data_.data() + index * panel_stride(); }
  // What a matmul reads: lines without the gaps, and the scales.
  int64_t weight_bytes() const;
  // s8: one for each row of each panel, as the panels lie (kPanelRows * panel_count()). Others:
  // nothing.
  const float* panel_scales() const { return scales_.data(); }

  // One weight as the kernels see it (dequantised): for tests and references.
  float value(int64_t row, int64_t k, int which = 0) const;

 private:
  template <typename Convert>
  void place_rows(int64_t row, int64_t count, int which, const Convert& convert);
  void convert_rows(int64_t row, int64_t count, DType source_dtype, const std::byte* source,
                    int which);
  size_t scale_index(int64_t row, int which) const;
  std::byte* element(int64_t row, int64_t k, int which) const;
  int64_t panel_of(int64_t row, int which) const;

  DType dtype_ = DType::kF32;
  Interleave interleave_ = Interleave::kNone;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t line_count_ = 0;
  int64_t panel_count_ = 0;
  HugeBuffer data_;
  std::vector<float> scales_;
};

}  // namespace gapless
