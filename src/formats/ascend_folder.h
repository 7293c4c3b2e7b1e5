// SPDX-License-Identifier: Apache-2.0
//
// A whole folder of the Ascend profiler: "*_ascend_pt" and "*_ascend_ms" (kernel_details.csv,
// trace_view.json, a database) or "PROF_*" (op_summary*.csv, msprof*.json, a database), or a folder
// that holds several of them, one a rank.
//
// The best source is read (the kernel table, whose text can be written again; then the database;
// then the timeline), and held against what else lies there: the sums of step_trace_time.csv, which
// must be the table's to the nanosecond's rounding, and communication.json, which says how much of
// a collective was waiting. What disagrees is a finding with the numbers.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/capture_options.h"
#include "trace/capture_table.h"

namespace gapless {

// One rank's folder, and what was found in it.
struct AscendFolder {
  std::string path;
  int32_t rank = -1;    // -1: nothing says it
  int32_t device = -1;  // of "device_<id>" in the older layout, which is a folder for itself
  std::vector<std::string> tables;  // kernel_details.csv, or op_summary*.csv slices
  std::vector<std::string> databases;
  std::vector<std::string> timelines;
  std::string step_trace;  // "": not there; the same for the others
  std::string communication;
  std::string analysis_database;
  bool is_finished = true;  // false: the profiler's mark that its analysis ended is missing

  bool has_kernels() const { return !tables.empty() || !databases.empty() || !timelines.empty(); }
};

// Ranks in a folder, by rank and path; empty: it is no folder of this profiler. Looks at names of
// folders and at the content of files, two levels deep.
std::vector<AscendFolder> find_ascend_folders(const std::string& path);

// Whether the folder is one or has one in it, for the detection of formats: by names of folders as
// far as they tell, else by the begin of files.
bool is_ascend_folder(const std::string& path);

// All ranks as one table. Rows that do not say their device have the rank; when ranks share device
// numbers, devices are numbered by rank and the finding "devices-are-ranks" says so. A source that
// cannot be read is a finding ("source-unread"), and the next best is tried. Error when there is no
// such folder, or when no source of any rank has kernels.
Result<CaptureTable> read_ascend_folder(const std::string& path,
                                        const CaptureReadOptions& options = {});

}  // namespace gapless
