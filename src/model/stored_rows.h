// SPDX-License-Identifier: Apache-2.0
//
// Rows of a tensor as it lies in a checkpoint, and the check that they are numbers: s8 would hide
// what is not.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"

namespace gapless {

struct RowRange {
  int64_t row = 0;
  int64_t count = 0;
};

// Of a matrix; a vector is one row.
int64_t row_count(const StoredTensor& tensor);
int64_t row_elements(const StoredTensor& tensor);
const std::byte* row_data(const StoredTensor& tensor, int64_t row);

// Elements of kBf16, kF16 or kF32 must be finite, also after a cast to `kept_dtype` (one of these,
// or kS8, which has a scale for what is large). The error names file, tensor, row and column.
Result<void> check_finite(const Checkpoint& checkpoint, const StoredTensor& tensor, RowRange rows,
                          DType kept_dtype);

// "nan", "-inf", "70000"
std::string number_text(float value);

}  // namespace gapless
