// SPDX-License-Identifier: Apache-2.0
//
// What is said about passes that were found: how many anchors they have, what is left over, and
// what speaks against them.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "analysis/passes.h"
#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

struct PassCounts {
  std::map<uint32_t, uint32_t> whole;  // passes by number of anchors
  uint64_t anchors = 0;
  uint64_t draft_anchors = 0;
  uint64_t cut_anchors = 0;
  uint32_t cut_passes = 0;
  uint32_t drafts = 0;
};

PassCounts count_passes(const FoundPasses& found);
// Of whole passes, the number of anchors that most have; 0: none is whole.
uint32_t usual_anchors(const PassCounts& counts);

void add_finding(FoundPasses& found, Severity severity, std::string_view code, std::string text,
                 uint64_t count);
// What a reader must know of the numbers of anchors.
void add_count_findings(const PassOptions& options, const PassCounts& counts, FoundPasses& found);
// Of anchors of several types, and of passes of which only a gap tells where they begin.
void add_anchor_findings(const CaptureTable& table, uint32_t by_gap_count, FoundPasses& found);
// Of rows that sample while the next pass runs, and of streams that seem to do two things at once.
void add_overlap_findings(const CaptureTable& table, uint64_t late_count, FoundPasses& found);

// Error when an anchor that nothing but its distances speaks for gives passes of many sizes.
Result<void> check_guess(const CaptureTable& table, const PassCounts& counts, FoundPasses& found);

}  // namespace gapless
