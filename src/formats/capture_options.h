// SPDX-License-Identifier: Apache-2.0
//
// What is asked of every reader that makes a table of kernels.

#pragma once

#include "base/file.h"
#include "trace/capture_table.h"

namespace gapless {

struct CaptureReadOptions {
  // Of rows that do not say their device: the rank, where the caller knows it.
  int32_t default_device = CaptureTable::kNoDevice;
  // The host's calls and marked ranges too; launches are kept in any case.
  bool keep_host = false;
  Progress progress = {};
};

}  // namespace gapless
