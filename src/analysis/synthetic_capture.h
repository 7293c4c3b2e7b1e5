// SPDX-License-Identifier: Apache-2.0
//
// Captures made up for tests: forward passes of a model (capture_models.h) as the Ascend profiler
// would list them, with the truth about every row beside them.
//
// Collectives appear as a summary and, in AIV mode, as kernels whose times differ a little and of
// which there are a few more; wrappers, sampling, drafts, dummy passes and cut passes are as in
// serving captures. The same options give the same nanoseconds on every machine. A million rows
// take about a second.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/capture_models.h"
#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

struct CaptureOptions {
  std::string model = "qwen3-32b";
  PassPhase phase = PassPhase::kDecode;  // decode with drafts is speculative
  uint64_t seed = 1;
  uint32_t pass_count = 20;  // of each device, those that are cut included
  uint32_t device_count = 1;
  int32_t first_device = 0;

  // 0 or -1: as the model says.
  int64_t prefill_tokens = 0;
  int64_t sequences = 0;        // in decode
  int32_t draft_count = -1;     // sub-passes after each pass
  int32_t context_chunks = -1;  // of models with chunked prefill
  int64_t pass_gap_ns = -1;     // between passes; 0: none
  // Passes that are of another kind, in thousandths.
  int32_t prefill_permille = 0;
  int32_t mixed_permille = 0;
  int32_t dummy_permille = 0;

  // 1000: durations and gaps vary as the model says; 0: every one is the mean.
  int32_t noise_permille = 1000;
  // The capture begins or ends between two anchors of the first or last pass of a device.
  bool starts_mid_pass = false;
  bool ends_mid_pass = false;

  uint32_t passes_per_step = 0;  // 0: rows have no step
  int64_t first_start_ns = 1'764'246'877'073'569'640;
  int64_t tick_ns = 20;  // of the clock: all times are multiples
};

// Sums are over the rows that are in the capture. Wrappers on the AI CPU are rows of the pass and
// in none of its times.
struct MadePass {
  int32_t device = 0;
  uint32_t index = 0;  // among those of its device
  PassShape shape;
  bool is_cut_at_start = false;
  bool is_cut_at_end = false;

  uint32_t first_row = 0;  // of the table; the rows of a pass stand together
  uint32_t last_row = 0;
  uint32_t row_count = 0;
  uint32_t anchor_count = 0;  // those of drafts included
  uint32_t draft_anchor_count = 0;
  uint32_t collective_count = 0;  // each once

  int64_t begin_ns = 0;  // the first start
  int64_t end_ns = 0;    // the last end
  int64_t compute_ns = 0;
  int64_t collective_ns = 0;  // each once: of its summary, or of a kernel that has none
  int64_t union_ns = 0;       // in which at least one row runs whose time is in the sums

  int64_t sum_ns() const { return compute_ns + collective_ns; }
  int64_t wall_ns() const { return end_ns - begin_ns; }
};

struct SyntheticCapture {
  CaptureTable table;
  std::vector<MadePass> passes;  // by device and time

  // One entry a row of the table.
  std::vector<uint32_t> pass_of_row;     // of `passes`
  std::vector<uint8_t> draft_of_row;     // 1 for the first draft; 0: the main pass
  std::vector<uint8_t> is_anchor;        // 1: one of the layer's attention kernels
  std::vector<uint32_t> summary_of_row;  // of a collective's kernel or wrapper; kNoIndex: none
};

// Error when there is no such model, when it has no such phase, or when a number makes no sense.
Result<SyntheticCapture> make_synthetic_capture(const CaptureOptions& options);

}  // namespace gapless
