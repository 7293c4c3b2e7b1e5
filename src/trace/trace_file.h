// SPDX-License-Identifier: Apache-2.0
//
// Gapless trace files into a Trace: the recorder's (raw records, in ticks) and those of
// write_trace_file (columns).

#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "trace/chunk_reader.h"
#include "trace/trace.h"

namespace gapless {

Result<Trace> read_trace_file(const std::string& path, const Progress& progress = {});

// The same from memory; `name` is for messages.
Result<Trace> read_trace_bytes(std::span<const std::byte> file, const std::string& name,
                               const Progress& progress = {});

}  // namespace gapless
