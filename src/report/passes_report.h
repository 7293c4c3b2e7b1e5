// SPDX-License-Identifier: Apache-2.0
//
// PassesReport: the forward passes of a capture, what kinds there are, which of them are unlike the
// others, and what was left out on the way. What `gapless passes` prints.
//
// Sums, unions and walls come from pass_summary.h; here they are grouped and put into words. Costs
// one walk over the rows of those passes that are looked at in detail.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/pass_summary.h"
#include "analysis/passes.h"
#include "trace/capture_table.h"
#include "trace/collective_rows.h"

namespace gapless {

// What a report is made of. All of it must live as long as the report.
struct PassesInput {
  const CaptureTable& table;
  const FoundPasses& found;
  const CollectiveRows& collectives;
  const std::vector<PassSummary>& summaries;         // one a pass
  const std::vector<PassSummary>& anchor_summaries;  // the same under WindowPolicy::kAnchor
};

struct PassesOptions {
  std::vector<std::string> paths = {};  // as the user gave them
  PassOptions search = {};
  WindowPolicy window = WindowPolicy::kFull;
  DedupRule dedup = DedupRule::kInterval;
  std::optional<int32_t> device = {};  // the rows of others were left out
  bool with_cut = false;               // cut passes count in the statistics, too
  bool with_drafts = false;            // drafts have lines of their own
};

// Median (the lower of two), least and most; `deviation` is the median distance from the median.
struct PassSpread {
  int64_t median = 0;
  int64_t least = 0;
  int64_t most = 0;
  int64_t deviation = 0;
};
PassSpread spread_of(std::vector<int64_t> values);

// Passes of one phase with as many tokens and anchors.
struct PassGroup {
  std::optional<PassPhase> phase;
  int64_t tokens = -1;
  uint32_t anchor_count = 0;
  bool is_dummy = false;
  std::vector<size_t> passes;  // of `found.passes`, in their order
  PassSpread sum_ns;
  PassSpread union_ns;
  PassSpread wall_ns;
  PassSpread kernel_count;  // collectives included
  size_t median_pass = 0;   // of `found.passes`: the one whose wall is the median
};

// A draft sub-pass, or what a pass has beside its drafts.
struct DraftPart {
  uint32_t draft = 0;  // 1 the first; 0: the main pass
  uint32_t anchor_count = 0;
  uint64_t row_count = 0;
  int64_t sum_ns = 0;
  int64_t union_ns = 0;
  int64_t wall_ns = 0;
};

struct PassesReport {
  std::string verdict;
  std::vector<int32_t> devices;  // that have passes
  size_t whole_count = 0;
  uint64_t rows_in_passes = 0;
  std::vector<PassGroup> groups;               // the most common first, dummies last
  std::optional<PassSpread> lost_permyriad;    // by the anchor window, of whole passes' sums
  std::vector<std::vector<DraftPart>> drafts;  // by pass, where they were asked for
};

PassesReport make_passes_report(const PassesInput& input, const PassesOptions& options);

// One screen: of many passes the first, the last and those that are unlike the others. `top` other
// than 0: that many passes, the first ones.
std::string passes_text(const PassesInput& input, const PassesReport& report,
                        const PassesOptions& options, size_t top = 0);

// "0:12" where there are several devices, else "12".
std::string pass_label(const PassesReport& report, const ForwardPass& pass);
// "NPU 3"; "the device" where the file does not say which.
std::string device_text(const CaptureTable& table, int32_t device);
// "decode", "decode (0.6)", "unknown".
std::string phase_text(const PhaseGuess& guess);
std::string_view pass_method_word(PassMethod method);

// A kernel type within a pass, or the wrappers of a collective.
struct PassKernel {
  std::string type;
  uint64_t count = 0;  // rows that count, or wrappers
  int64_t sum_ns = 0;  // of these
  int64_t least_ns = 0;
  int64_t most_ns = 0;
  uint64_t merged_count = 0;  // rows of the type that another one counts for
  bool is_collective = false;
  bool is_wrapper = false;  // in no sum
};

struct PassStream {
  int32_t stream = CaptureTable::kNoStream;
  uint64_t row_count = 0;
  uint64_t counted_count = 0;
  int64_t sum_ns = 0;  // of those that count
};

// One pass, kernel by kernel.
struct PassDetail {
  size_t pass = 0;  // of `found.passes`
  PassWindow window;
  std::vector<PassKernel> kernels;  // the longest first, wrappers last
  std::vector<PassStream> streams;  // by number
  std::vector<DraftPart> drafts;    // the main pass first; empty: it has none
  // From the last end of the pass before to its first start; negative: they overlap.
  std::optional<int64_t> gap_before_ns;
  std::optional<int64_t> gap_after_ns;
};
PassDetail make_pass_detail(const PassesInput& input, size_t pass, PassWindow window);

// `top` kernels; 0: all of them.
std::string pass_detail_text(const PassesInput& input, const PassesReport& report,
                             const PassDetail& detail, const PassesOptions& options,
                             size_t top = 12);
// The table of kernels alone, under a line that names the pass.
std::string pass_kernels_text(const PassesInput& input, const PassesReport& report,
                              const PassDetail& detail, size_t top = 12);

// Everything; `detail` is that of the pass whose kernels were asked for.
std::string passes_json(const PassesInput& input, const PassesReport& report,
                        const PassesOptions& options, const PassDetail* detail = nullptr);
std::string pass_detail_json(const PassesInput& input, const PassesReport& report,
                             const PassDetail& detail, const PassesOptions& options);

}  // namespace gapless
