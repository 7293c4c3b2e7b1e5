// SPDX-License-Identifier: Apache-2.0
//
// AscendCells: the cells of one record by column, also where the record has too few or too many.
//
// The profiler's writer does not quote, so a comma in a name moves all cells behind it; and cells
// get lost. A record of the wrong length is only believed where its cells look like what their
// columns hold. Nothing is ever moved silently.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/csv_reader.h"
#include "formats/ascend_header.h"
#include "formats/ascend_row_events.h"

namespace gapless {

struct AscendCells {
  const AscendHeader* header = nullptr;
  std::span<const CsvField> fields;
  uint32_t name_extra = 0;  // cells that the name has beyond its own
  uint32_t end = 0;         // cells from here on say nothing

  // The cell as it stands; an empty one when there is none. Not for a name of several cells.
  CsvField at(AscendColumn column) const;
  // The cell without white space around it.
  std::string_view trimmed(AscendColumn column) const;
  // The name, unescaped and trimmed; in `buffer` where it cannot be a view.
  std::string_view name(std::string& buffer) const;
};

// What to say about the record's length: nothing when it is that of the header, kPadded,
// kNameJoined, kTailIgnored, or one of the reasons to drop it.
std::optional<RowEvent> arrange_cells(const AscendHeader& header, const CsvRecord& record,
                                      AscendCells& cells);

// Whether the cells that we know are there and look like what their columns hold.
bool cells_fit(const AscendCells& cells);

std::string_view without_space(std::string_view text);

struct AscendTime {
  int64_t ns = 0;
  bool is_missing = false;
  bool is_number = false;
  bool has_exponent = false;
  bool has_comma = false;   // a decimal comma, or commas between thousands
  bool is_rounded = false;  // the text said more than nanoseconds
};
// Microseconds as text, e.g. "1764246877073569.640".
AscendTime parse_ascend_time(std::string_view cell);

// A device, stream, task or context: "N/A", 4294967295 and -1 are absent.
struct AscendNumber {
  std::optional<uint32_t> value;
  bool is_odd = false;  // neither a number nor absent
};
AscendNumber parse_ascend_number(std::string_view cell);

}  // namespace gapless
