// SPDX-License-Identifier: Apache-2.0
//
// What rocprofv3 writes with --output-format json: kernel dispatches and copies on the queues of
// agents, with names from the table of kernel symbols.

#pragma once

#include <string_view>

#include "base/input_stream.h"
#include "base/result.h"
#include "formats/capture_options.h"
#include "trace/capture_table.h"

namespace gapless {

bool looks_like_rocprof(std::string_view first_bytes);
Result<CaptureTable> read_rocprof_json(InputStream input, const CaptureReadOptions& options = {});

}  // namespace gapless
