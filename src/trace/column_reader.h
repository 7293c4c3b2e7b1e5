// SPDX-License-Identifier: Apache-2.0
//
// Column chunks into a Trace, with every number checked against what it points to.

#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/chunk_reader.h"
#include "trace/metadata_reader.h"
#include "trace/trace.h"

namespace gapless {

// Fails when the columns do not fit together; `name` is for messages. A table that is cut short
// keeps the rows that all its columns have, and says so.
Result<Trace> read_columns(const std::vector<FoundChunk>& chunks, const Metadata& metadata,
                           const std::string& name);

}  // namespace gapless
