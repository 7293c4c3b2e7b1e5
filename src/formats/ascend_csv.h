// SPDX-License-Identifier: Apache-2.0
//
// The kernel tables of the Ascend profiler: kernel_details.csv and op_summary*.csv, of every year
// and level, into a CaptureTable; trace_of() makes a Trace of that.
//
// Known by the header, never by the name of the file. Read in one pass in the memory of one window
// beside the table itself: a million rows of 400 bytes take about a second. Times go from text to
// int64 nanoseconds; what stands beyond the third decimal is rounded half away from zero, as
// everywhere here. Every record is a row of the table or counted in a finding that says why not.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/input_stream.h"
#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

struct AscendCsvOptions {
  // Of rows in files without a Device_id column: the rank, where the caller knows it.
  int32_t default_device = CaptureTable::kNoDevice;
  // Rows that are the same in device, stream, task, context, start, duration and name come from
  // files that were put together twice; one of them is kept.
  bool keep_duplicates = false;
  Progress progress = {};
};

// Whether a file that begins like this (4 KiB are enough) is one. True as well for tables that
// read_ascend_csv refuses with a reason: UTF-16, or columns separated by something else.
bool looks_like_ascend_csv(std::string_view first_bytes);
// What git leaves in the place of a large file that was not fetched.
bool looks_like_lfs_pointer(std::string_view first_bytes);

// All files as one capture: slices, or files of several devices. Rows are put in the order of
// device, start, file. Error when a file cannot be read or is no such table, when numbers have
// commas in them, or when no row is left.
Result<CaptureTable> read_ascend_csv(std::span<const std::string> paths,
                                     const AscendCsvOptions& options = {});
// One file that need not be on a disk.
Result<CaptureTable> read_ascend_csv(InputStream input, const AscendCsvOptions& options = {});

}  // namespace gapless
