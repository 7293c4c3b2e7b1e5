// SPDX-License-Identifier: Apache-2.0
//
// step_trace_time.csv of the Ascend profiler: what each step took in all, as an oracle for the rows
// that were read.
//
// The profiler made these sums of the same kernels, so they must be the table's but for rounding:
// "Computing" that of the kernels which are no collectives, "Communication" that of the summaries
// of collectives, and Computing + Communication(Not Overlapped) + Free the length of the step. Sums
// of doubles are read as the decimal text that they are.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_stream.h"
#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

enum class StepTime : uint8_t {
  kComputing,
  kNotOverlapped,
  kOverlapped,
  kCommunication,
  kFree,
  kStage,
  kBubble,
  kPreparing,
};
inline constexpr int kStepTimeCount = 8;

struct StepTraceRow {
  std::optional<int32_t> device;  // nothing: not said
  std::string step;               // "": the whole window
  std::array<std::optional<int64_t>, kStepTimeCount> ns;

  std::optional<int64_t> at(StepTime time) const { return ns[static_cast<size_t>(time)]; }
};

struct StepTrace {
  std::string path;
  std::vector<StepTraceRow> rows;
  uint64_t unread_count = 0;  // lines that are no such row
};

// Whether a file that begins like this is one, of a rank and not of a cluster.
bool looks_like_step_trace(std::string_view first_bytes);

// Error when it cannot be read or has no such header.
Result<StepTrace> read_step_trace(InputStream input);

// Adds properties ("ascend.step_trace.computing_ns": the sum over all rows) and a finding:
// "step-trace-agrees", or "step-trace-differs" with the numbers of the first row that does. Rows of
// a step are compared with the table's rows of that step; where the table has no steps, all with
// all. Differences up to 1 ns a row and 1 us are rounding. `key` goes before "step_trace" in names
// of properties: "ascend." or "ascend.rank3.".
void check_step_trace(const StepTrace& trace, std::string_view key, CaptureTable& table);

}  // namespace gapless
