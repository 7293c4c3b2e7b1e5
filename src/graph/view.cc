// SPDX-License-Identifier: Apache-2.0

#include "graph/view.h"

#include <cstddef>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "base/check.h"

namespace gapless {

View dense_view(BufferId buffer, DType dtype, std::initializer_list<int64_t> shape) {
  GAPLESS_CHECK(shape.size() <= static_cast<size_t>(kMaxRank));
  View view;
  view.buffer = buffer;
  view.dtype = dtype;
  view.rank = static_cast<uint8_t>(shape.size());
  int64_t stride = 1;
  for (size_t dimension = shape.size(); dimension-- > 0;) {
    const int64_t extent = shape.begin()[dimension];
    GAPLESS_CHECK(extent >= 0);
    GAPLESS_CHECK(extent <= std::numeric_limits<int32_t>::max());
    view.shape[dimension] = static_cast<int32_t>(extent);
    view.strides[dimension] = stride;
    GAPLESS_CHECK(!__builtin_mul_overflow(stride, extent, &stride));
  }
  return view;
}

View slice(const View& view, int dimension, int64_t begin, int64_t count) {
  GAPLESS_CHECK(dimension >= 0);
  GAPLESS_CHECK(dimension < view.rank);
  const size_t at = static_cast<size_t>(dimension);
  GAPLESS_CHECK(begin >= 0);
  GAPLESS_CHECK(count >= 0);
  GAPLESS_CHECK(begin <= view.shape[at]);
  GAPLESS_CHECK(count <= view.shape[at] - begin);
  View part = view;
  part.offset += begin * view.strides[at];
  part.shape[at] = static_cast<int32_t>(count);
  return part;
}

View tile(const View& view, const Tile& tile) {
  GAPLESS_CHECK(view.rank >= 2);
  const View rows = slice(view, view.rank - 2, tile.row, tile.rows);
  return slice(rows, view.rank - 1, tile.column, tile.columns);
}

int64_t element_count(const View& view) {
  int64_t count = 1;
  for (size_t dimension = 0; dimension < view.rank; ++dimension) {
    if (view.shape[dimension] == 0) return 0;
    // Broadcast dimensions may be of any extent; more elements than can be counted are "very many".
    if (__builtin_mul_overflow(count, view.shape[dimension], &count)) {
      count = std::numeric_limits<int64_t>::max();
    }
  }
  return count;
}

std::string view_text(const View& view) {
  const std::span<const int32_t> shape(view.shape.data(), view.rank);
  const std::span<const int64_t> strides(view.strides.data(), view.rank);
  return fmt::format("{}[{}] strides [{}] at {}", dtype_name(view.dtype), fmt::join(shape, ","),
                     fmt::join(strides, ","), view.offset);
}

}  // namespace gapless
