// SPDX-License-Identifier: Apache-2.0
//
// The databases of the Ascend profiler: ascend_pytorch_profiler*.db, ascend_mindspore_profiler*.db
// and msprof_*.db.
//
// Known by its tables, never by its name. Kernels are TASK joined with COMPUTE_TASK_INFO,
// collectives COMMUNICATION_OP; launches come from the host's call with the same connection. Times
// are int64 nanoseconds in the file and stay so.

#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/capture_options.h"
#include "formats/database.h"
#include "trace/capture_table.h"

namespace gapless {

bool is_ascend_database(const Database& database);
Result<CaptureTable> read_ascend_db(const Database& database,
                                    const CaptureReadOptions& options = {});
Result<CaptureTable> read_ascend_db(const std::string& path,
                                    const CaptureReadOptions& options = {});

// Wait and transit of collectives out of analysis.db (CommAnalyzerTime), by the name of their
// summary row. Returns how many rows it was known for.
Result<uint64_t> join_ascend_analysis_db(CaptureTable& table, const Database& database);
Result<uint64_t> join_ascend_analysis_db(CaptureTable& table, const std::string& path);

}  // namespace gapless
