// SPDX-License-Identifier: Apache-2.0
//
// What a forward pass consists of and how long it took: which rows are its own under each policy,
// their sum, their union and the wall clock, never confused; and which passes are unlike the
// others.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/pass_phase.h"
#include "analysis/passes.h"
#include "base/result.h"
#include "trace/capture_table.h"
#include "trace/collective_rows.h"

namespace gapless {

enum class WindowPolicy : uint8_t {
  kFull = 0,    // from the pass's first kernel to the next pass's
  kAnchor = 1,  // from the first anchor's start to the last anchor's end, as published
  kBlock = 2    // the whole run of rows, ascending in time in the file, that holds the first anchor
};
std::string_view window_policy_name(WindowPolicy policy);
std::optional<WindowPolicy> window_policy_by_name(std::string_view name);

struct PassWindow {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::vector<uint32_t> rows;     // of the table, ascending: within [begin_ns, end_ns] as a whole
  uint32_t straddling_count = 0;  // rows that only reach into it: left out
};
// kBlock needs the order of rows in their files; a table that has none is one block.
PassWindow pass_window(const CaptureTable& table, const FoundPasses& found, const ForwardPass& pass,
                       WindowPolicy policy);

struct PassSummary {
  PhaseGuess phase;
  uint64_t row_count = 0;
  uint64_t kernel_count = 0;      // that count: compute, AI CPU and copies
  uint64_t collective_count = 0;  // each once
  uint64_t wrapper_count = 0;     // on the AI CPU: in no time below
  int64_t compute_ns = 0;
  int64_t collective_ns = 0;  // each once
  int64_t copy_ns = 0;
  int64_t union_ns = 0;               // in which at least one row that counts runs
  int64_t collective_alone_ns = 0;    // in which collectives run and nothing else
  int64_t wall_ns = 0;                // of the window's rows: the first start to the last end
  std::optional<int64_t> wait_ns;     // of collectives: waiting for others, where it is known
  std::optional<int64_t> transit_ns;  // of collectives: moving bytes
  uint32_t straddling_count = 0;
  // Of the full pass's sum, what the window leaves out: 0 to 1.
  double lost_share = 0.0;
  std::string
      outlier;  // one clause with its numbers: how it is unlike the others; empty: it is not

  int64_t sum_ns() const { return compute_ns + collective_ns + copy_ns; }
};

// One for each pass, in order. Passes of one phase, token and anchor count are compared with each
// other: a wall time or sum beyond median +- max(5 x the median absolute deviation, 5 %), or
// kernels of other types or numbers than most. Those that are cut are compared with nothing.
std::vector<PassSummary> summarise_passes(const CaptureTable& table, const FoundPasses& found,
                                          const CollectiveRows& collectives, WindowPolicy policy);

}  // namespace gapless
