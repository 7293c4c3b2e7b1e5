// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_findings.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

namespace gapless {
namespace {

// A stream does one thing after the other: one row in so many may be out of step with its clock.
constexpr uint64_t kFewEarly = 10;

std::string sizes_text(const PassCounts& counts) {
  std::string text;
  for (const auto& [anchors, passes] : counts.whole) {
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", passes, anchors);
  }
  return text;
}

struct StreamOverlap {
  uint64_t rows = 0;  // kernels that have a stream
  uint64_t early = 0;
};

StreamOverlap count_stream_overlap(const CaptureTable& table) {
  StreamOverlap overlap;
  std::unordered_map<int32_t, int64_t> busy_until_ns;  // by stream, of one device
  for (size_t row = 0; row < table.size(); ++row) {
    if (row > 0 && table.device[row] != table.device[row - 1]) busy_until_ns.clear();
    const KernelKind kind = table.kind[row];
    if (kind != KernelKind::kCompute && kind != KernelKind::kAiCpu) continue;
    if (table.stream[row] == CaptureTable::kNoStream) continue;
    ++overlap.rows;
    const auto [it, is_first] = busy_until_ns.try_emplace(table.stream[row], table.end_ns(row));
    if (is_first) continue;
    if (table.start_ns[row] < it->second) ++overlap.early;
    it->second = std::max(it->second, table.end_ns(row));
  }
  return overlap;
}

}  // namespace

PassCounts count_passes(const FoundPasses& found) {
  PassCounts counts;
  for (const ForwardPass& pass : found.passes) {
    counts.anchors += pass.anchor_count + pass.draft_anchor_count;
    counts.draft_anchors += pass.draft_anchor_count;
    counts.drafts += pass.draft_count;
    if (pass.is_whole()) {
      ++counts.whole[pass.anchor_count];
    } else {
      ++counts.cut_passes;
      counts.cut_anchors += pass.anchor_count;
    }
  }
  return counts;
}

uint32_t usual_anchors(const PassCounts& counts) {
  uint32_t usual = 0;
  uint32_t most = 0;
  for (const auto& [anchors, passes] : counts.whole) {
    if (passes <= most) continue;
    most = passes;
    usual = anchors;
  }
  return usual;
}

void add_finding(FoundPasses& found, Severity severity, std::string_view code, std::string text,
                 uint64_t count) {
  found.findings.push_back(
      {.severity = severity, .code = std::string(code), .text = std::move(text), .count = count});
}

void add_count_findings(const PassOptions& options, const PassCounts& counts, FoundPasses& found) {
  const uint32_t usual = found.anchors_per_pass;
  const uint32_t unit = options.layers > 0 ? options.layers : usual;
  if (options.layers > 0 && usual != options.layers && options.method == PassMethod::kSignature) {
    add_finding(found, Severity::kWarning, "layers-differ",
                usual == 0
                    ? fmt::format("{} layers were expected and no pass is whole", options.layers)
                    : fmt::format("{} layers were expected and passes have {} anchors",
                                  options.layers, usual),
                usual);
  }
  if (unit > 0 && counts.anchors % unit != 0) {
    add_finding(
        found, Severity::kInfo, "anchor-remainder",
        fmt::format("{} anchors are {} times {} and {} more: {} are in {} cut passes, {} in "
                    "{} drafts",
                    counts.anchors, counts.anchors / unit, unit, counts.anchors % unit,
                    counts.cut_anchors, counts.cut_passes, counts.draft_anchors, counts.drafts),
        counts.anchors % unit);
  }
  if (counts.whole.size() > 1) {
    add_finding(found, Severity::kInfo, "pass-sizes",
                fmt::format("whole passes differ in their anchors: {}", sizes_text(counts)),
                counts.whole.size());
  }
  if (counts.cut_passes > 0) {
    add_finding(found, Severity::kInfo, "cut-passes",
                fmt::format("{} passes of {} are cut by the begin or end of the capture",
                            counts.cut_passes, found.passes.size()),
                counts.cut_passes);
  }
  if (counts.drafts > 0) {
    add_finding(found, Severity::kInfo, "drafts",
                fmt::format("{} drafts with {} anchors belong to the passes before them",
                            counts.drafts, counts.draft_anchors),
                counts.drafts);
  }
}

void add_anchor_findings(const CaptureTable& table, uint32_t by_gap_count, FoundPasses& found) {
  if (found.anchor_types.size() > 1) {
    std::string names;
    for (const uint32_t type : found.anchor_types) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", table.names[type]);
    }
    add_finding(found, Severity::kInfo, "anchor-family",
                fmt::format("{} types are anchors, in passes of their own each: {}",
                            found.anchor_types.size(), names),
                found.anchor_types.size());
  }
  if (by_gap_count > 0) {
    add_finding(
        found, Severity::kInfo, "split-by-gap",
        fmt::format("where {} passes begin is told by gaps alone: nothing is sampled before",
                    by_gap_count),
        by_gap_count);
  }
}

void add_overlap_findings(const CaptureTable& table, uint64_t late_count, FoundPasses& found) {
  if (late_count > 0) {
    add_finding(found, Severity::kInfo, "passes-overlap",
                fmt::format("{} rows that sample start after the next pass began, on streams of "
                            "their own; they count as rows of the pass in which they start",
                            late_count),
                late_count);
  }
  const StreamOverlap overlap = count_stream_overlap(table);
  if (overlap.early * kFewEarly > overlap.rows) {
    add_finding(found, Severity::kWarning, "streams-overlap",
                fmt::format("{} of {} rows begin before another one on their stream has ended; "
                            "rows of several devices or ranks may be mixed",
                            overlap.early, overlap.rows),
                overlap.early);
  }
}

// A kernel that nothing but its distances makes an anchor is believed when most passes that it
// gives are of one size. Anything recurs somehow, also where nothing is a forward pass.
Result<void> check_guess(const CaptureTable& table, const PassCounts& counts, FoundPasses& found) {
  uint32_t whole = 0;
  uint32_t usual = 0;
  for (const auto& [anchors, passes] : counts.whole) {
    whole += passes;
    if (anchors == found.anchors_per_pass) usual = passes;
  }
  const AnchorCandidate& candidate = found.candidates.front();
  if (usual < 2 || usual * 2 < whole) {
    return fail(ErrorCode::kInvalidInput,
                "no attention kernel among {} rows, and none that recurs in passes of one size: {} "
                "({}) would give {} passes of {} sizes; an anchor that is named is taken as it is",
                table.size(), table.names[found.anchor], candidate.reason, whole,
                counts.whole.size());
  }
  add_finding(found, Severity::kWarning, "weak-anchor",
              fmt::format("no attention kernel is here; {} is the anchor because {} of {} whole "
                          "passes then have {} of it",
                          table.names[found.anchor], usual, whole, found.anchors_per_pass),
              whole);
  return {};
}

}  // namespace gapless
