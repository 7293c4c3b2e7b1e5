// SPDX-License-Identifier: Apache-2.0
//
// What is true of a synthetic capture, as JSON: its passes with their times, and the pass of each
// row. For checks of other programs against files that were made.

#pragma once

#include <string>

#include "analysis/synthetic_capture.h"

namespace gapless {

// Times are whole nanoseconds. `row_starts_ns` and `row_passes` have one entry a row, in order of
// device and start.
std::string capture_truth_json(const SyntheticCapture& capture);

}  // namespace gapless
