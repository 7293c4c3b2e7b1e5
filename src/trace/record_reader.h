// SPDX-License-Identifier: Apache-2.0
//
// Raw records into a TraceBuilder: the chunks of each writer joined, the writers merged by time,
// ticks turned into nanoseconds. One pass, nothing copied.

#pragma once

#include <cstdint>
#include <vector>

#include "trace/chunk_reader.h"
#include "trace/metadata_reader.h"
#include "trace/trace_builder.h"

namespace gapless {

// Adds the names and lanes of `metadata` to the builder, then all records. Returns how many.
uint64_t read_records(const std::vector<FoundChunk>& chunks, const Metadata& metadata,
                      TraceBuilder& builder, const Progress& progress);

}  // namespace gapless
