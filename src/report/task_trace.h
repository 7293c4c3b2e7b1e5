// SPDX-License-Identifier: Apache-2.0
//
// What report, diff and whatif read: a trace of tasks, whatever the file is.
//
// As read_trace, except that a profiler's kernels are tasks (read_trace keeps the events of a JSON
// timeline as they are), and that the forward passes found among them are its steps, so that one of
// them is explained and not the whole capture. Where there are none, the steps that the profiler
// counted are. Devices of a capture have no common clock worth the name: one of them is read.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

// `device`: of a capture; nothing: the first. Error when it is not there.
Result<Trace> read_task_trace(const std::string& path, const ReadOptions& options = {},
                              std::optional<int32_t> device = std::nullopt);

}  // namespace gapless
