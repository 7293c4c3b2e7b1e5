// SPDX-License-Identifier: Apache-2.0
//
// The kernels in a Chrome JSON trace of a profiler: Kineto (PyTorch on CUDA or ROCm) and the Ascend
// profiler's trace_view.json and msprof*.json.
//
// Streams through the file and keeps the device's rows and the launches alone: a file of gigabytes
// that is mostly the host's operators takes the memory of its kernels. Kineto's kernels are events
// of the category "kernel", "gpu_memcpy" or "gpu_memset", launched by the call with the same
// correlation (all kernels of a graph by one). Ascend's are those of the process "Ascend Hardware",
// with collectives from "HCCL" or "Communication"; flows lead to the launches.

#pragma once

#include <string>
#include <string_view>

#include "base/input_stream.h"
#include "base/result.h"
#include "formats/capture_options.h"
#include "trace/capture_table.h"

namespace gapless {

// An empty table (and no error) when the file is Chrome JSON without kernels of either kind: it is
// then a trace of something else. Findings count every event of the device that is not a row.
Result<CaptureTable> read_json_kernels(InputStream input, const CaptureReadOptions& options = {});

}  // namespace gapless
