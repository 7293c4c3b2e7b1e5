// SPDX-License-Identifier: Apache-2.0
//
// Which passes of a capture stand for it when it is held against a model: those that are whole and
// of the kind that most are.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/pass_summary.h"
#include "analysis/passes.h"
#include "base/result.h"

namespace gapless {

struct PassChoice {
  std::vector<uint32_t> passes;  // of FoundPasses; empty: none is whole, all rows are one pass
  std::string text;              // "18 of 20 passes: decode, 64 FusedInferAttentionScore each"
  std::vector<std::string> warnings;
};

// `pass`: the one with that number, of every device. Else whole passes of the phase and anchor
// count that most of them have. `summaries` has one entry a pass. Error when there is no pass of
// that number.
Result<PassChoice> choose_passes(const CaptureTable& table, const FoundPasses& found,
                                 std::span<const PassSummary> summaries,
                                 const std::optional<uint32_t>& pass);

// Devices that rows name; one when none does.
uint32_t device_count_of(const CaptureTable& table);

}  // namespace gapless
