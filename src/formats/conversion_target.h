// SPDX-License-Identifier: Apache-2.0
//
// Where a conversion writes to, and in which format, from what the user said and left unsaid.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "formats/format.h"

namespace gapless {

// What a conversion was asked to do; an empty text or no format: not said.
struct ConversionRequest {
  std::string input = {};
  Format input_format = Format::kGapless;
  std::string output = {};
  std::optional<Format> to = {};
  bool compress = false;
};

// Where a conversion goes.
struct ConversionTarget {
  Format format = Format::kGapless;
  std::string path = {};
  bool compress = false;
};

// The format from `to`, else from the extension of `output`. Without an output a TraCR directory
// gets its files inside, named as its own tool names them, and another trace gets the output beside
// it. Refuses to write over the input.
Result<ConversionTarget> choose_target(const ConversionRequest& request);

// Bytes at `path` that write_trace left there; Paraver leaves three files.
uint64_t output_bytes(const ConversionTarget& target);

}  // namespace gapless
