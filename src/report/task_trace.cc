// SPDX-License-Identifier: Apache-2.0

#include "report/task_trace.h"

#include <algorithm>
#include <utility>

#include "analysis/passes.h"
#include "base/input_stream.h"
#include "formats/capture.h"
#include "formats/json_kernels.h"
#include "trace/capture_trace.h"

namespace gapless {
namespace {

// Whole passes of the first device. A capture without passes is one step from its first kernel to
// its last, and says so.
void add_passes(CaptureTable& table) {
  Result<FoundPasses> found = find_passes(table);
  if (!found) {
    table.findings.push_back(
        {Severity::kInfo, "no-passes",
         "no forward passes were found, so the whole capture is one step: " + found.error().message,
         kNoIndex, 0});
    return;
  }
  for (const ForwardPass& pass : found->passes) {
    if (pass.device != found->passes.front().device || !pass.is_whole()) continue;
    int64_t end_ns = table.start_ns[pass.first_row];
    for (uint32_t row = pass.first_row; row < pass.end_row; ++row) {
      end_ns = std::max(end_ns, table.end_ns(row));
    }
    const int64_t begin_ns = table.start_ns[pass.first_row];
    // What a pass still runs when the next begins is the next one's beginning.
    if (!table.steps.empty()) {
      table.steps.back().end_ns = std::min(table.steps.back().end_ns, begin_ns);
    }
    table.steps.push_back({begin_ns, end_ns, pass.index});
  }
  for (Finding& finding : found->findings) table.findings.push_back(std::move(finding));
}

}  // namespace

Result<Trace> read_task_trace(const std::string& path, const ReadOptions& options) {
  const Format format = GAPLESS_TRY(detect_format(path));
  const CaptureReadOptions capture_options = {.keep_host = true, .progress = options.progress};
  CaptureTable table;
  if (is_capture(format)) {
    table = GAPLESS_TRY(read_capture({&path, 1}, capture_options));
  } else if (format == Format::kChromeJson) {
    InputStream input = GAPLESS_TRY(InputStream::open_file(path));
    table = GAPLESS_TRY(read_json_kernels(std::move(input), capture_options));
  }
  if (table.size() == 0) return read_trace(path, options);
  add_passes(table);
  return trace_of(table);
}

}  // namespace gapless
