// SPDX-License-Identifier: Apache-2.0
//
// Chrome trace-event JSON: what chrome://tracing, Perfetto, Kineto and the Ascend profiler write
// and viewers open. Read in bounded memory beside the trace itself; written in one pass.
//
// A trace that was written here comes back as it was: spans, tasks, edges, counters, instants,
// flows, lanes and devices. Tasks without a start or an end are not in the file; "gapless_left_out"
// among its properties says how many.

#pragma once

#include <string>
#include <string_view>

#include "base/input_stream.h"
#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

// An error when the file is empty, is not JSON or holds no list of events. What could not be kept
// of the rest, and where the file stops or is damaged, is in the findings.
Result<Trace> read_chrome_json(InputStream input, const ReadOptions& options);

// Times start at 0, so that viewers, which hold them as doubles, show every nanosecond; the true
// first time is in "otherData". With options.compress the file is gzip.
Result<void> write_chrome_json(const Trace& trace, const std::string& path,
                               const WriteOptions& options);

// Whether a file that begins like this (a few hundred bytes are enough) is worth reading as one.
bool looks_like_chrome_json(std::string_view first_bytes);

// Names that the writer gives and the reader knows again.
inline constexpr std::string_view kChromeOriginKey = "gapless_origin_ns";
inline constexpr std::string_view kChromeWallKey = "gapless_wall_minus_time_ns";
inline constexpr std::string_view kChromeLeftOutKey = "gapless_left_out";
inline constexpr std::string_view kChromeTaskCategory = "task";
inline constexpr std::string_view kChromeEdgeCategory = "edge";
inline constexpr std::string_view kChromeUnknownKernel = "(unknown kernel)";

}  // namespace gapless
