// SPDX-License-Identifier: Apache-2.0
//
// A capture and its passes by hand, for tests of what is said about them: nothing is searched and
// nothing is summed up by the code that does so in earnest.

#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/passes_report.h"

namespace gapless {

struct HandMadeRow {
  std::string_view type;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int32_t stream = 2;
  KernelKind kind = KernelKind::kCompute;
};

struct MadeCapture {
  CaptureTable table;
  FoundPasses found;
  CollectiveRows collectives;
  std::vector<PassSummary> summaries;
  std::vector<PassSummary> anchor_summaries;

  PassesInput input() const { return {table, found, collectives, summaries, anchor_summaries}; }

  // Fragments belong to the row before them; wrappers count for nothing.
  void add_row(const HandMadeRow& made, int32_t device = 0) {
    const uint32_t row = static_cast<uint32_t>(table.size());
    const uint32_t type = table.names.intern(made.type);
    table.append({.start_ns = made.start_ns,
                  .duration_ns = made.duration_ns,
                  .device = device,
                  .stream = made.stream,
                  .name = type,
                  .type = type,
                  .kind = made.kind});
    uint32_t counted_by = row;
    if (made.kind == KernelKind::kAiCpuCollective) counted_by = kNoIndex;
    if (made.kind == KernelKind::kFragment) counted_by = row - 1;
    collectives.counted_by.push_back(counted_by);
    found.is_anchor.push_back(made.type == "Attention" ? 1 : 0);
    found.draft_of_row.push_back(0);
  }

  // A pass of the rows that were added since the last one.
  ForwardPass& add_pass(const PassSummary& summary, uint32_t anchor_count, int32_t device = 0) {
    ForwardPass pass;
    pass.device = device;
    if (!found.passes.empty() && found.passes.back().device == device)
      pass.index = found.passes.back().index + 1;
    pass.first_row = found.passes.empty() ? 0 : found.passes.back().end_row;
    pass.end_row = static_cast<uint32_t>(table.size());
    pass.first_anchor = pass.first_row;
    pass.last_anchor = pass.end_row - 1;
    pass.anchor_count = anchor_count;
    found.passes.push_back(pass);
    summaries.push_back(summary);
    anchor_summaries.push_back(summary);
    return found.passes.back();
  }

  PassWindow full_window(size_t pass) const {
    const ForwardPass& made = found.passes[pass];
    PassWindow window;
    window.begin_ns = table.start_ns[made.first_row];
    for (uint32_t row = made.first_row; row < made.end_row; ++row) {
      window.rows.push_back(row);
      window.end_ns = std::max(window.end_ns, table.end_ns(row));
    }
    return window;
  }
};

inline PassSummary summary_of(std::optional<PassPhase> phase, int64_t tokens, int64_t wall_ns) {
  PassSummary summary;
  summary.phase.phase = phase;
  summary.phase.confidence = phase ? 1.0 : 0.0;
  summary.phase.tokens = tokens;
  summary.phase.sequences = tokens;
  summary.row_count = 1;
  summary.kernel_count = 1;
  summary.compute_ns = wall_ns - 1'000;
  summary.union_ns = wall_ns - 2'000;
  summary.wall_ns = wall_ns;
  return summary;
}

// Passes of one attention kernel each, 10 us apart, that all take as long as `walls_us` says.
inline MadeCapture made_passes(const std::vector<int64_t>& walls_us) {
  MadeCapture capture;
  capture.table.format = "ascend-csv";
  int64_t start_ns = 1'764'246'877'073'569'640;
  for (const int64_t wall_us : walls_us) {
    capture.add_row({"Attention", start_ns, wall_us * 1'000});
    capture.add_pass(summary_of(PassPhase::kDecode, 16, wall_us * 1'000), 1);
    start_ns += wall_us * 1'000 + 10'000;
  }
  capture.found.anchor = capture.table.names.intern("Attention");
  capture.found.anchors_per_pass = 1;
  return capture;
}

}  // namespace gapless
