// SPDX-License-Identifier: Apache-2.0
//
// Forward passes in a capture that does not mark them.
//
// Every layer of a model has one attention kernel: an anchor. Within a pass the kernels between one
// anchor and the next repeat; where a pass ends and the next begins they do not. A pass is what
// lies between two such places, so that no time, no gap and no number of layers has to be known.
// Where sampling on a stream of its own goes on among the layers of the next pass, the stream of
// the anchors decides.
// How many anchors a pass has is found, and held against what the caller believes. Costs a few
// passes over the rows: a million in well under a second, 13 bytes a row beside the result.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

enum class PassMethod : uint8_t {
  kSignature = 0,  // at the places where the kernels between anchors change
  kCount = 1       // every `layers` anchors, as published: for comparison
};

struct PassOptions {
  std::string anchor = {};  // type of the kernel; empty: chosen among attention kernels
  uint32_t layers = 0;      // anchors of a pass, as the caller believes; 0: no belief
  PassMethod method = PassMethod::kSignature;
};

// A kernel that was looked at as the anchor.
struct AnchorCandidate {
  uint32_t type = kNoIndex;  // of the table's names
  uint64_t count = 0;
  double score = 0.0;  // the largest is taken
  std::string reason;  // one clause with its numbers
};

// What the data cannot tell, and what is said then:
//  - a capture that ends behind the last anchor of a pass and before anything is sampled looks like
//    the pass of an idle worker, which samples nothing: it counts as whole if an earlier pass has
//    as many anchors, or if it ends in kernels that no layer has; otherwise as cut;
//  - a single pass whose first or last kernels are those of layers counts as cut there;
//  - where no pass samples, none begins the capture and there is no gap, the row between two passes
//    is at the largest gap that there is. Anchors and their numbers are not affected;
//  - whether sampling that is late is of this pass or of the one before: a row is of the pass in
//    which it starts (finding "passes-overlap"), and a last pass that no other is like counts as
//    cut if its own stream does not show that it ends.
struct ForwardPass {
  int32_t device = CaptureTable::kNoDevice;
  uint32_t index = 0;  // among those of its device, in the order of time
  // Rows [first_row, end_row) of the table: from the pass's first kernel to the next pass's.
  uint32_t first_row = 0;
  uint32_t end_row = 0;
  uint32_t first_anchor = 0;  // rows
  uint32_t last_anchor = 0;   // of the main pass, not of its drafts
  uint32_t anchor_count = 0;  // of the main pass; 0: the capture begins in its drafts
  uint32_t draft_count = 0;   // sub-passes after it (MTP)
  uint32_t draft_anchor_count = 0;
  // The capture begins or ends within it.
  bool is_cut_at_start = false;
  bool is_cut_at_end = false;

  bool is_whole() const { return !is_cut_at_start && !is_cut_at_end; }
};

struct FoundPasses {
  std::vector<ForwardPass> passes;     // by device and time
  uint32_t anchor = kNoIndex;          // its type, of the table's names
  std::vector<uint32_t> anchor_types;  // all, when phases have anchors of their own; `anchor` first
  // Of whole passes, the number that most have; 0: none is whole.
  uint32_t anchors_per_pass = 0;
  std::vector<AnchorCandidate> candidates;  // the best first
  std::vector<uint8_t> is_anchor;           // by row: 1 main pass, 2 draft
  std::vector<uint8_t> draft_of_row;        // by row: 1 the first draft; 0: the main pass
  // What a reader must know: a remainder, a belief that does not hold, passes of other sizes.
  std::vector<Finding> findings;
};

// Rows must be in the order of device and start. Error when there is no anchor, or the one that was
// asked for is not there (the message names those that are).
Result<FoundPasses> find_passes(const CaptureTable& table, const PassOptions& options = {});

}  // namespace gapless
