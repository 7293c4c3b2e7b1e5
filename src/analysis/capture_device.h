// SPDX-License-Identifier: Apache-2.0
//
// DeviceCapture: puts the passes of one device on its streams, one after the other, and keeps the
// truth about each row.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/capture_draws.h"
#include "analysis/capture_plan.h"
#include "analysis/synthetic_capture.h"
#include "trace/capture_table.h"

namespace gapless {

// A row before it is sorted into the table.
struct MadeRow {
  KernelRow row;
  uint32_t pass = 0;
  uint32_t summary = kNoIndex;  // a MadeRow
  uint8_t draft = 0;
  bool is_anchor = false;
};

// The model, the options and the names must outlive it.
class DeviceCapture {
 public:
  DeviceCapture(const CaptureModel& model, const CaptureOptions& options, int32_t device,
                NameTable& names);

  // Ranks do not begin together.
  void delay(int64_t limit_ns) { now_ns_ = grid(now_ns_ + draws_.between(0, limit_ns)); }

  void add_pass(const PassPlan& plan, uint32_t pass);

  CaptureDraws& draws() { return draws_; }
  std::vector<MadeRow>& rows() { return rows_; }

 private:
  int64_t grid(int64_t time_ns) const { return time_ns - time_ns % options_.tick_ns; }
  int64_t length(int64_t time_ns) const { return std::max(grid(time_ns), options_.tick_ns); }

  MadeRow make_row(const PlannedKernel& kernel, int64_t start_ns, int64_t duration_ns);
  uint32_t add_row(const MadeRow& row);
  uint32_t next_task(KernelPlace place);
  void add_compute(const PlannedKernel& kernel);
  void add_collective(const PlannedKernel& kernel, int fragment_count);
  void add_fragments(const PlannedKernel& kernel, uint32_t summary, int count);
  void add_wrapper(const PlannedKernel& kernel, uint32_t summary);
  void add_lone_fragment(const PlannedKernel& collective);
  int64_t gap_before(const PlannedKernel& kernel);
  // How many of something there are in this pass, when there are `permille` / 1000 in the mean.
  int count_of(int32_t permille);

  const CaptureModel& model_;
  const CaptureOptions& options_;
  NameTable& names_;
  CaptureDraws draws_;
  int32_t device_;
  int64_t now_ns_ = 0;
  int64_t last_start_ns_ = 0;
  uint32_t pass_ = 0;
  uint32_t step_ = kNoIndex;  // of names_
  std::vector<MadeRow> rows_;
  uint32_t last_wrapper_ = kNoIndex;                    // of rows_
  std::array<uint32_t, kKernelPlaceCount> tasks_ = {};  // the next number of each place
  std::map<uint32_t, uint32_t> collective_counts_;      // by communicator
};

}  // namespace gapless
