// SPDX-License-Identifier: Apache-2.0
//
// The header of an Ascend kernel table: which column of a file holds what we know.
//
// Writers of different years spell a column in different ways: kernel_details.csv renames those of
// op_summary.csv, both lost and gained columns over time, and wrappers mix the two. A column is
// known by its name without case, spaces and underscores, wherever it stands; all others are left
// alone.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/csv_reader.h"

namespace gapless {

enum class AscendColumn : uint8_t {
  kStep,
  kDevice,
  kTask,
  kStream,
  kName,
  kType,
  kCore,
  kStart,
  kDuration,
  kInputShapes,
  kOutputShapes,
  kContext,
};
inline constexpr int kAscendColumnCount = 12;

struct AscendHeader {
  static constexpr uint32_t kMissing = 0xffffffff;

  std::array<uint32_t, kAscendColumnCount> places;  // where each stands, or kMissing
  uint32_t column_count = 0;
  uint32_t repeated_count = 0;  // columns that say what another one said already; the first counts

  uint32_t place(AscendColumn column) const { return places[static_cast<size_t>(column)]; }
  bool has(AscendColumn column) const { return place(column) != kMissing; }
};

// Nothing: no column that we know.
std::optional<AscendColumn> ascend_column(std::string_view cell);

// Nothing when a name, a start or a duration is missing: without them there are no kernels. The
// cells may have been read from any place in a file.
std::optional<AscendHeader> parse_ascend_header(std::span<const CsvField> cells);

// The cells of a header line; they hold no separators of their own.
std::vector<CsvField> split_cells(std::string_view line, char separator);

// A first line whose columns are separated by something else than a comma: that separator. 0: no.
char foreign_separator(std::string_view first_line);

}  // namespace gapless
