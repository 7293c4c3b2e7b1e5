// SPDX-License-Identifier: Apache-2.0
//
// Which rows of a capture tell of the same collective, so that its time is counted once.
//
// A collective has a summary row without a stream and, when its work runs on vector cores, kernels
// on streams whose times differ a little ("AivKernel"): the same time again. They are not one to
// one: a summary may have several kernels, and a kernel none. Costs a sort and one pass.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/capture_table.h"

namespace gapless {

enum class DedupRule : uint8_t {
  // Of one device and type: a kernel belongs to the summary in whose time it begins, give or take
  // 1 us, and ends, or which is as long (1 us or 5 %). Of several the nearest, and none takes the
  // kernel of another that began with it. The summary counts; a kernel without one counts for
  // itself.
  kInterval = 0,
  // As published: of rows of one type that start in the same microsecond the longest counts.
  kReadme = 1,
  kNone = 2  // every row counts
};
std::string_view dedup_rule_name(DedupRule rule);
std::optional<DedupRule> dedup_rule_by_name(std::string_view name);

struct CollectiveRows {
  // By row of the table: the row whose time counts for it. Itself: it counts, as every kernel that
  // is no collective does. kNoIndex: a wrapper on the AI CPU, which is in no sum.
  std::vector<uint32_t> counted_by;

  uint64_t summary_count = 0;
  uint64_t fragment_count = 0;
  uint64_t wrapper_count = 0;
  uint64_t merged_count = 0;         // rows that another one counts for
  uint64_t lone_fragment_count = 0;  // kernels that no summary counts for
  uint64_t lone_summary_count = 0;   // summaries that have no kernel
  int64_t merged_ns = 0;             // what would be counted twice

  bool counts(size_t row) const { return counted_by[row] == row; }
};

CollectiveRows find_collective_rows(const CaptureTable& table, DedupRule rule);

}  // namespace gapless
