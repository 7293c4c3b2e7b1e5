// SPDX-License-Identifier: Apache-2.0
//
// What kind of row a line of an Ascend kernel table is: compute, a collective, or a second account
// of a collective.
//
// A collective has a summary row that is on no stream, and, where it runs on vector cores, a kernel
// row on a stream that shows the same time again ("AivKernel"). One that the AI CPU dispatches has
// a wrapper row whose time is mostly waiting ("allgatherAicpuKernel"). Rows are only told apart
// here; who counts what once is for the analysis.

#pragma once

#include <string>
#include <string_view>

#include "trace/capture_table.h"

namespace gapless {

struct AscendRowText {
  std::string_view name;
  std::string_view type;  // empty: not said
  std::string_view core;  // empty: not said
  bool has_stream = false;
};
KernelKind ascend_kernel_kind(const AscendRowText& row);

// Cells that say nothing: empty, "N/A", "NaN", "-", "inf" and their relatives.
bool is_missing_cell(std::string_view cell);

// "[[1,1024],[1024,4096]]" as "1,1024;1024,4096"; other spellings as they are.
std::string_view plain_shapes(std::string_view shapes, std::string& buffer);

}  // namespace gapless
