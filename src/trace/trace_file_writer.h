// SPDX-License-Identifier: Apache-2.0
//
// A Trace into a Gapless trace file: packed chunks of columns, compressed if wished.

#pragma once

#include <string>

#include "base/file.h"
#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

struct TraceFileOptions {
  bool compress = false;  // each chunk with zstd, at its quickest level
  Progress progress;
};

Result<void> write_trace_file(const Trace& trace, const std::string& path,
                              const TraceFileOptions& options = {});

}  // namespace gapless
