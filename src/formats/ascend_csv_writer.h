// SPDX-License-Identifier: Apache-2.0
//
// A CaptureTable as the Ascend profiler would write it: kernel_details.csv or op_summary*.csv, with
// the columns of any year and the quirks of their cells.
//
// For captures that were made up; what was read is written back by copying its text. Cells that a
// table does not hold (block counts, data types, counters of the cores) follow from those that it
// does, in a plausible way. Times go from int64 nanoseconds to text; no double is involved. About
// a second for a million rows with all columns.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

// Which columns there are, by year and level:
//   0   level 0 of 2023: Name to Block Dim
//   1   with Step Id
//   2   2025: with Device_id
//   3   2026: Block Num
//   4   with shapes
//   5   all columns of 2023
//   6   with HF32 Eligible
//   7   2024: with OP State
//   8   2025: with Device_id
//   9   2026: Block Num
//   10  MindSpore: Step ID
//   11  collectives alone: no blocks, no shapes
//   12  an exported graph: Model Name, Infer ID
inline constexpr int kAscendHeaderCount = 13;

enum class AscendNaming : uint8_t {
  kKernelDetails = 0,  // "Name", "Start Time(us)"
  kOpSummary = 1,      // "Op Name", "Task Start Time(us)"
  kMixed = 2           // "Name", but "Task Start Time(us)"
};

enum class AscendStartStyle : uint8_t {
  kTab = 0,        // 1764246877073569.640 and a tab behind it
  kQuotedTab = 1,  // the same in quotes
  kPlain = 2
};

// A column of texts. One with the header of a column that is there replaces it; any other is added
// at the end.
struct AscendExtraColumn {
  std::string header;
  std::vector<uint32_t> text;  // one entry a row: of the table's names; kNoIndex: N/A
};

struct AscendWriteOptions {
  int header = 9;
  AscendNaming naming = AscendNaming::kKernelDetails;
  bool has_counters = true;  // those of PipeUtilization, in headers 5 to 10 and 12
  bool has_types = true;     // false: as at level 0, no types and no cores but of collectives
  AscendStartStyle start_style = AscendStartStyle::kTab;
  bool triple_quotes = true;  // around shapes; false: one pair
  bool trims_zeros = false;   // of durations: 6.54 and not 6.540
  bool carriage_returns = true;
  bool byte_order_mark = false;
  bool ends_with_line_break = true;
  // Cells that a table does not hold are plausible; false: N/A, for captures that were measured.
  bool makes_up_cells = true;

  // Which rows in which order; empty: all as they stand. A row may be there several times.
  std::vector<uint32_t> rows = {};
  std::vector<uint32_t> headers_before = {};  // places in `rows`, ascending: the header once more
  std::vector<AscendExtraColumn> extra_columns = {};
  Progress progress = {};
};

// The columns, without a line end. `has_steps`: headers 2 to 4, 8, 9, 11 and 12 may have a step.
std::string ascend_header_text(const AscendWriteOptions& options, bool has_steps);

// Returns the bytes written. Error when the file cannot be written, or when an option does not fit
// the table.
Result<uint64_t> write_ascend_csv(const CaptureTable& table, const std::string& path,
                                  const AscendWriteOptions& options = {});

// The same as slices of `slice_rows` in a folder: op_summary_slice_0_<stamp>.csv and so on, or
// op_summary_<stamp>.csv when one is enough. Returns the paths.
inline constexpr uint64_t kAscendSliceRows = 1'000'000;
Result<std::vector<std::string>> write_ascend_slices(const CaptureTable& table,
                                                     const std::string& folder,
                                                     const AscendWriteOptions& options = {},
                                                     uint64_t slice_rows = kAscendSliceRows);

}  // namespace gapless
