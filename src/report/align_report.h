// SPDX-License-Identifier: Apache-2.0
//
// AlignReport: a model held against a measured pass, in a sentence, a table and JSON. What `gapless
// align` prints.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/align.h"
#include "base/result.h"

namespace gapless {

// A side and where its numbers come from.
struct AlignedSide {
  AlignSide side;
  std::string passes;  // which passes they are, in words; empty: a table that does not say
  std::optional<double> wall_ns;  // of a pass, where there is a clock: shown, and in no ratio
  std::vector<std::string> warnings;
};

struct AlignReport {
  AlignedSide measured;
  AlignedSide model;
  AlignOptions options;
  Alignment alignment;
  std::string verdict;
  std::vector<std::string> notes;  // all warnings
};

Result<AlignReport> make_align_report(AlignedSide measured, AlignedSide model,
                                      const AlignOptions& options, const KernelMap& map = {});

// The verdict, both sides, `top` rows of the table, shares by status.
std::string align_text(const AlignReport& report, size_t top = 20);
std::string align_json(const AlignReport& report);

}  // namespace gapless
