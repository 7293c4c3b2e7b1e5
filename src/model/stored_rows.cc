// SPDX-License-Identifier: Apache-2.0

#include "model/stored_rows.h"

#include <cmath>

#include <fmt/core.h>

#include "base/half.h"
#include "kernels/packed_matrix.h"

namespace gapless {
namespace {

Error bad_element(const Checkpoint& checkpoint, const StoredTensor& tensor, int64_t row,
                  DType kept_dtype) {
  const std::byte* data = row_data(tensor, row);
  int64_t column = 0;
  while (std::isfinite(cast_through(kept_dtype, load_as_float(*tensor.dtype, data, column))))
    ++column;
  const float value = load_as_float(*tensor.dtype, data, column);
  const std::string place = tensor.shape.size() < 2 ? fmt::format("element {}", column)
                                                    : fmt::format("row {}, column {}", row, column);
  const std::string why = std::isfinite(value)
                              ? fmt::format("{} cannot hold that", dtype_name(kept_dtype))
                              : std::string("weights must be finite");
  return fail(ErrorCode::kInvalidInput, "{}: tensor {} has {} in {}; {}",
              checkpoint.file_of(tensor.name).path(), quoted_name(tensor.name), number_text(value),
              place, why);
}

}  // namespace

int64_t row_count(const StoredTensor& tensor) {
  return tensor.shape.size() < 2 ? 1 : tensor.shape.front();
}

int64_t row_elements(const StoredTensor& tensor) {
  int64_t elements = 1;
  for (size_t i = tensor.shape.size() < 2 ? 0 : 1; i < tensor.shape.size(); ++i)
    elements *= tensor.shape[i];
  return elements;
}

const std::byte* row_data(const StoredTensor& tensor, int64_t row) {
  return tensor.bytes.data() + row * row_elements(tensor) * dtype_bytes(*tensor.dtype);
}

Result<void> check_finite(const Checkpoint& checkpoint, const StoredTensor& tensor, RowRange rows,
                          DType kept_dtype) {
  const DType kept = kept_dtype == DType::kS8 ? DType::kF32 : kept_dtype;
  for (int64_t row = rows.row; row < rows.row + rows.count; ++row) {
    const float largest =
        largest_magnitude(*tensor.dtype, row_data(tensor, row), row_elements(tensor));
    if (!std::isfinite(cast_through(kept, largest)))
      return bad_element(checkpoint, tensor, row, kept);
  }
  return {};
}

std::string number_text(float value) {
  // A NaN may have a sign, which says nothing.
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

}  // namespace gapless
