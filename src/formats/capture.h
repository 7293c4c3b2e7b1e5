// SPDX-License-Identifier: Apache-2.0
//
// Any file or folder with kernels in it, as a table of them.

#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "formats/capture_options.h"
#include "formats/format.h"
#include "trace/capture_table.h"

namespace gapless {

// Whether the format is a table of kernels, and nothing else.
bool is_capture(Format format);

// Several paths are one capture (slices, ranks) and must then be kernel tables of the Ascend
// profiler. Error when there are no kernels.
Result<CaptureTable> read_capture(std::span<const std::string> paths,
                                  const CaptureReadOptions& options = {});

}  // namespace gapless
