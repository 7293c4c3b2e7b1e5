// SPDX-License-Identifier: Apache-2.0
//
// One proc folder of a TraCR directory by itself: its metadata, its records with the clock
// repaired, without the threads of earlier runs, cut into stretches that can be merged by time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"
#include "formats/tracr.h"
#include "formats/tracr_clock.h"
#include "formats/tracr_metadata.h"
#include "trace/trace.h"

namespace gapless {

// A stretch of a thread whose times go up; the threads of a proc are merged run by run.
struct TracrRun {
  uint32_t thread;
  size_t next;
  size_t end;
};

struct PreparedTracrProc {
  std::string name;
  int64_t number = 0;
  TracrMetadata metadata;
  std::vector<TracrThreadRecords> threads;
  std::vector<TracrRun> runs;
  std::vector<Finding> findings;
  size_t record_count = 0;
  int64_t first_ns = 0;

  // Sentences begin with the proc they are about.
  void add_finding(Severity severity, std::string_view code, std::string_view text,
                   uint64_t count = 1);
};

// Never fails: what cannot be read is left out with a finding.
PreparedTracrProc prepare_tracr_proc(const TracrProc& source, const ReadOptions& options);

// 7 for ("proc.7", "proc."); nothing when the rest of the name is not a number.
std::optional<int64_t> number_after(std::string_view name, std::string_view prefix);

}  // namespace gapless
