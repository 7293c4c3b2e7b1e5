// SPDX-License-Identifier: Apache-2.0
//
// The columns of a written Ascend kernel table: which ones each header has, and what they are
// called. For ascend_csv_writer.cc.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/ascend_csv_writer.h"

namespace gapless {

enum class WrittenColumn : uint8_t {
  kModelName,
  kStep,
  kDevice,
  kModelId,
  kTask,
  kStream,
  kInferId,
  kName,
  kType,
  kOpState,
  kCore,
  kStart,
  kDuration,
  kWait,
  kBlocks,
  kMixBlocks,
  kHf32,
  kInputShapes,
  kInputTypes,
  kInputFormats,
  kOutputShapes,
  kOutputTypes,
  kOutputFormats,
  kContext,
  kCounters,  // all of them: the one entry that is several columns
  kExtra,
};

inline constexpr int kCounterCount = 25;

struct WrittenCell {
  WrittenColumn column = WrittenColumn::kExtra;
  std::string header;                        // of kCounters all of them, with commas
  const AscendExtraColumn* extra = nullptr;  // of kExtra
};

// In order. The options must outlive the result.
std::vector<WrittenCell> written_columns(const AscendWriteOptions& options, bool has_steps);

}  // namespace gapless
