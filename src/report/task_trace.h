// SPDX-License-Identifier: Apache-2.0
//
// What report, diff and whatif read: a trace of tasks, whatever the file is.
//
// As read_trace, except that a profiler's kernels are tasks (read_trace keeps the events of a JSON
// timeline as they are), and that the forward passes found among them are its steps, so that one of
// them is explained and not the whole capture.

#pragma once

#include <string>

#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

Result<Trace> read_task_trace(const std::string& path, const ReadOptions& options = {});

}  // namespace gapless
