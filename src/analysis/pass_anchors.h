// SPDX-License-Identifier: Apache-2.0
//
// Which kernels are the anchors: those that every layer of a pass has once.
//
// Attention is the first choice, by the names that Ascend, CUDA and our own kernels have; the gated
// delta rule the second; then what a feed-forward block has; then whatever comes at the most even
// distances. An indexer is none: layers that share its result do not have it. Nor are kernels that
// put partial results of attention together, and those of backward passes.
//
// A capture can have one attention kernel in prefill and another in decode or in drafts. Both are
// anchors then: the types of one family join as long as they rarely stand beside each other or are
// few. Where they alternate they are two kernels of one layer, and only the better one counts.

#pragma once

#include <string>
#include <vector>

#include "analysis/passes.h"
#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

struct AnchorChoice {
  uint32_t type = kNoIndex;                 // of the table's names: the best, or the one asked for
  std::vector<uint32_t> types;              // all that are anchors; one if it was asked for
  std::vector<AnchorCandidate> candidates;  // the best first
  std::vector<uint8_t> is_anchor;           // by row
  bool is_guess = false;  // nothing but even distances speaks for it, and nobody asked for it
};

// `wanted`: a type or a name, exact or (if there is none) without regard to case and punctuation.
// Empty: chosen. Error when there is none; the message names those that there are.
Result<AnchorChoice> choose_anchors(const CaptureTable& table, const std::string& wanted);

}  // namespace gapless
