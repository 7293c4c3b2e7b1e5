// SPDX-License-Identifier: Apache-2.0
//
// View: which elements of a buffer a task touches: an offset, a shape and strides, in elements.
//
// 64 bytes without padding, unused dimensions zero: two views that are written alike compare and
// hash as bytes, which is what makes the tensor map's first lookup cheap.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "base/dtype.h"

namespace gapless {

// A buffer, by number. Given out by a TaskSink; valid until the buffer's scope ends. The upper bits
// count how often a stream has given out the index, so that a stale id is noticed.
struct BufferId {
  static constexpr uint32_t kIndexBits = 20;
  static constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;
  uint32_t id = 0xffffffff;
  uint32_t index() const { return id & kIndexMask; }
  bool operator==(const BufferId&) const = default;
};

inline constexpr int kMaxRank = 4;

struct View {
  BufferId buffer;
  DType dtype = DType::kU8;
  uint8_t rank = 0;  // 0: one element
  uint16_t reserved = 0;
  int64_t offset = 0;                        // of the first element, from the buffer's begin
  std::array<int32_t, kMaxRank> shape = {};  // outermost first
  std::array<int64_t, kMaxRank> strides = {};
  bool operator==(const View&) const = default;
};
static_assert(sizeof(View) == 64);
static_assert(std::has_unique_object_representations_v<View>);

// The whole of a dense buffer, rows after rows. At most kMaxRank dimensions.
View dense_view(BufferId buffer, DType dtype, std::initializer_list<int64_t> shape);
// [begin, begin + count) of one dimension. Stays within the view it is cut from: checked.
View slice(const View& view, int dimension, int64_t begin, int64_t count);
// Rows [row, row + rows) x columns [column, column + columns) of the last two dimensions.
struct Tile {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};
View tile(const View& view, const Tile& tile);

// At most the largest int64_t.
int64_t element_count(const View& view);
// "bf16[16,256] strides [5120,1] at 512": what messages say about a view.
std::string view_text(const View& view);

}  // namespace gapless
