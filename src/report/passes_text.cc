// SPDX-License-Identifier: Apache-2.0
//
// The words of `gapless passes`: a sentence, facts, tables, findings.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/passes_report.h"
#include "report/text_table.h"

namespace gapless {
namespace {

constexpr size_t kMany = 16;      // more passes than that are not all listed
constexpr size_t kEndsShown = 3;  // of many passes: so many first and last ones,
constexpr size_t kOddShown = 8;   // and so many that are unlike the others
constexpr size_t kGroupsShown = 8;
constexpr size_t kFindingsShownPerCode = 4;

std::string source_text(const PassesOptions& options, const CaptureTable& table) {
  const std::string name = options.paths.empty() ? std::string("the capture")
                           : options.paths.size() == 1
                               ? printable(options.paths.front())
                               : fmt::format("{} and {} more", printable(options.paths.front()),
                                             options.paths.size() - 1);
  return fmt::format("{} ({})", name, printable(table.format));
}

void add_row_fact(std::string& text, const PassesInput& input, const PassesReport& report,
                  const PassesOptions& options) {
  const CaptureTable& table = input.table;
  std::string rows = fmt::format("{} kept", table.size());
  if (options.device) rows += fmt::format(" of {}", device_text(table, *options.device));
  rows += fmt::format(", {} dropped", table.dropped_count);
  if (table.order_break_count > 0)
    rows += fmt::format(", {} out of order in the file", table.order_break_count);
  const uint64_t outside = table.size() - std::min<uint64_t>(table.size(), report.rows_in_passes);
  if (outside > 0) rows += fmt::format("; {} in no pass", outside);
  if (table.derived_type_count > 0)
    rows += fmt::format("; types of {} made from names", table.derived_type_count);
  add_fact(text, "capture", source_text(options, table));
  add_fact(text, "rows", rows);
}

void add_dedup_fact(std::string& text, const PassesInput& input, DedupRule rule) {
  const CollectiveRows& rows = input.collectives;
  std::string line = std::string(dedup_rule_name(rule)) + ": ";
  if (rows.summary_count + rows.fragment_count == 0) {
    line += "no collectives";
  } else {
    line += fmt::format("{} and {} of them, {} merged ({} that would count twice)",
                        counted(rows.summary_count, "collective"),
                        counted(rows.fragment_count, "kernel"), rows.merged_count,
                        format_duration(rows.merged_ns));
    line += fmt::format(", {} without a collective, {} without a kernel",
                        counted(rows.lone_fragment_count, "kernel"),
                        counted(rows.lone_summary_count, "collective"));
  }
  if (rows.wrapper_count > 0)
    line += fmt::format("; {} on the AI CPU in no sum", counted(rows.wrapper_count, "wrapper"));
  add_fact(text, "collectives", line);
}

std::string permyriad_text(int64_t value) { return format_share(static_cast<double>(value) / 1e4); }

void add_window_fact(std::string& text, const PassesReport& report, WindowPolicy policy) {
  std::string line(window_policy_name(policy));
  if (report.lost_permyriad) {
    const PassSpread& lost = *report.lost_permyriad;
    line += fmt::format("; the window from first to last anchor {} {} of a pass's sum",
                        policy == WindowPolicy::kAnchor ? "loses" : "would lose",
                        permyriad_text(lost.median));
    if (lost.least != lost.most)
      line += fmt::format(" in the median ({} to {})", permyriad_text(lost.least),
                          permyriad_text(lost.most));
  }
  add_fact(text, "window", line);
}

void add_belief_fact(std::string& text, const PassesInput& input, const PassesOptions& options) {
  if (options.search.layers == 0) return;
  const uint32_t found = input.found.anchors_per_pass;
  const std::string belief = fmt::format("--layers {}", options.search.layers);
  if (options.search.method == PassMethod::kCount) {
    add_fact(text, "layers", belief + ": passes were counted off, not found");
  } else if (found == 0) {
    add_fact(text, "layers", belief + "; no pass is whole, so nothing was found to compare");
  } else if (found == options.search.layers) {
    add_fact(text, "layers", fmt::format("{}: as found", belief));
  } else {
    add_fact(text, "layers", fmt::format("{}, but {} were found", belief, found));
  }
}

void add_candidate_facts(std::string& text, const PassesInput& input) {
  constexpr size_t kShown = 3;
  std::string line;
  size_t count = 0;
  for (const AnchorCandidate& candidate : input.found.candidates) {
    if (candidate.type == input.found.anchor || candidate.type == kNoIndex) continue;
    if (++count > kShown) continue;
    line +=
        fmt::format("{}{}", line.empty() ? "" : "; ", printable(input.table.names[candidate.type]));
    if (!candidate.reason.empty()) line += fmt::format(" ({})", printable(candidate.reason));
  }
  if (count > kShown) line += fmt::format("; {} more", count - kShown);
  if (count > 0) add_fact(text, "other anchors", line);
}

std::string number_text(int64_t value) { return value < 0 ? "-" : std::to_string(value); }

std::string anchors_text(const ForwardPass& pass) {
  if (pass.draft_anchor_count == 0) return std::to_string(pass.anchor_count);
  return fmt::format("{}+{}", pass.anchor_count, pass.draft_anchor_count);
}

std::string collective_text(const PassSummary& summary) {
  if (summary.collective_ns == 0) return "-";
  const double share =
      static_cast<double>(summary.collective_ns) / static_cast<double>(summary.sum_ns());
  return fmt::format("{} {}", format_duration(summary.collective_ns), format_share(share));
}

std::string flags_text(const ForwardPass& pass, const PassSummary& summary) {
  std::string text;
  const auto add = [&text](std::string_view flag) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", flag);
  };
  if (pass.is_cut_at_start) add("cut at start");
  if (pass.is_cut_at_end) add("cut at end");
  if (summary.phase.is_dummy) add("dummy");
  if (!summary.outlier.empty()) add("outlier: " + printable(summary.outlier));
  return text;
}

std::string optional_duration(const std::optional<int64_t>& nanoseconds) {
  return nanoseconds ? format_duration(*nanoseconds) : "-";
}

// Which passes have lines in the table: all of a few; of many the ends and the odd ones.
std::vector<size_t> shown_passes(const PassesInput& input, size_t top) {
  const size_t count = input.found.passes.size();
  std::vector<size_t> shown;
  size_t odd_count = 0;
  for (size_t i = 0; i < count; ++i) {
    const ForwardPass& pass = input.found.passes[i];
    const bool is_end = i < kEndsShown || i + kEndsShown >= count;
    const bool is_odd = !input.summaries[i].outlier.empty() || !pass.is_whole();
    const bool is_shown = top > 0          ? i < top
                          : count <= kMany ? true
                                           : is_end || (is_odd && ++odd_count <= kOddShown);
    if (is_shown) shown.push_back(i);
  }
  return shown;
}

struct PassColumns {
  bool has_wait = false;
};

TableRow pass_header(const PassColumns& columns) {
  TableRow row = {"PASS",    "PHASE", "TOKENS", "SEQUENCES", "ANCHORS",      "ROWS",
                  "KERNELS", "SUM",   "UNION",  "WALL",      "COMMUNICATION"};
  if (columns.has_wait) row.insert(row.end(), {"WAIT", "TRANSIT"});
  row.push_back("FLAGS");
  return row;
}

TableRow pass_row(const PassesReport& report, const ForwardPass& pass, const PassSummary& summary,
                  const PassColumns& columns) {
  TableRow row = {pass_label(report, pass),
                  phase_text(summary.phase),
                  number_text(summary.phase.tokens),
                  number_text(summary.phase.sequences),
                  anchors_text(pass),
                  std::to_string(summary.row_count),
                  std::to_string(summary.kernel_count + summary.collective_count),
                  format_duration(summary.sum_ns()),
                  format_duration(summary.union_ns),
                  format_duration(summary.wall_ns),
                  collective_text(summary)};
  if (columns.has_wait)
    row.insert(row.end(),
               {optional_duration(summary.wait_ns), optional_duration(summary.transit_ns)});
  row.push_back(flags_text(pass, summary));
  return row;
}

std::string part_name(const DraftPart& part) {
  return part.draft == 0 ? "main" : fmt::format("draft {}", part.draft);
}

void add_draft_rows(std::vector<TableRow>& rows, const std::vector<DraftPart>& parts) {
  if (parts.size() < 2) return;
  for (const DraftPart& part : parts)
    rows.push_back({"", "  " + part_name(part), "", "", std::to_string(part.anchor_count),
                    std::to_string(part.row_count), "", format_duration(part.sum_ns),
                    format_duration(part.union_ns), format_duration(part.wall_ns)});
}

void add_pass_table(std::string& text, const PassesInput& input, const PassesReport& report,
                    size_t top) {
  PassColumns columns;
  for (const PassSummary& summary : input.summaries) {
    if (summary.wait_ns || summary.transit_ns) columns.has_wait = true;
  }
  std::vector<TableRow> rows = {pass_header(columns)};
  const std::vector<size_t> shown = shown_passes(input, top);
  size_t next = 0;
  for (const size_t i : shown) {
    if (i > next) rows.push_back({"...", fmt::format("{} more", i - next)});
    next = i + 1;
    rows.push_back(pass_row(report, input.found.passes[i], input.summaries[i], columns));
    if (!report.drafts.empty()) add_draft_rows(rows, report.drafts[i]);
  }
  const size_t count = input.found.passes.size();
  if (next < count) rows.push_back({"...", fmt::format("{} more", count - next)});
  text += "\n" + align_columns(rows, columns.has_wait ? "rlrrrrrrrrrrrl" : "rlrrrrrrrrrl");
}

std::string group_phase(const PassGroup& group) {
  if (group.is_dummy) return "dummy";
  return group.phase ? std::string(pass_phase_name(*group.phase)) : "unknown";
}

void add_group_table(std::string& text, const PassesInput& input, const PassesReport& report) {
  if (report.groups.empty()) return;
  std::vector<TableRow> rows = {{"KIND", "TOKENS", "ANCHORS", "PASSES", "KERNELS", "SUM", "UNION",
                                 "WALL", "SPREAD", "SHORTEST", "LONGEST", "MEDIAN PASS"}};
  size_t rest = 0;
  for (size_t i = 0; i < report.groups.size(); ++i) {
    const PassGroup& group = report.groups[i];
    if (i >= kGroupsShown) {
      rest += group.passes.size();
      continue;
    }
    const double spread = group.wall_ns.median == 0 ? 0.0
                                                    : static_cast<double>(group.wall_ns.deviation) /
                                                          static_cast<double>(group.wall_ns.median);
    rows.push_back({group_phase(group), number_text(group.tokens),
                    std::to_string(group.anchor_count), std::to_string(group.passes.size()),
                    std::to_string(group.kernel_count.median), format_duration(group.sum_ns.median),
                    format_duration(group.union_ns.median), format_duration(group.wall_ns.median),
                    group.passes.size() < 2 ? "-" : format_share(spread),
                    format_duration(group.wall_ns.least), format_duration(group.wall_ns.most),
                    pass_label(report, input.found.passes[group.median_pass])});
  }
  if (rest > 0)
    rows.push_back({fmt::format("{} other kinds", report.groups.size() - kGroupsShown), "", "",
                    std::to_string(rest)});
  text += "\n" + align_columns(rows, "lrrrrrrrrrrr");
}

void add_findings(std::string& text, const PassesInput& input) {
  std::map<std::string, uint64_t> count_of_code;
  std::string lines;
  for (const std::vector<Finding>* findings : {&input.found.findings, &input.table.findings}) {
    for (const Finding& finding : *findings) {
      if (++count_of_code[finding.code] > kFindingsShownPerCode) continue;
      add_fact(lines, severity_name(finding.severity),
               fmt::format("{}: {}", finding.code, printable(finding.text)));
    }
  }
  for (const auto& [code, count] : count_of_code) {
    if (count <= kFindingsShownPerCode) continue;
    add_fact(lines, "info",
             fmt::format("{} more of {} (--json lists them)", count - kFindingsShownPerCode, code));
  }
  if (!lines.empty()) text += "\n" + lines;
}

// What the kernels that count add up to.
int64_t counted_ns(const PassDetail& detail) {
  int64_t sum_ns = 0;
  for (const PassKernel& kernel : detail.kernels) {
    if (!kernel.is_wrapper) sum_ns += kernel.sum_ns;
  }
  return sum_ns;
}

std::string share_text(int64_t part_ns, int64_t whole_ns) {
  if (whole_ns == 0) return "-";
  return format_share(static_cast<double>(part_ns) / static_cast<double>(whole_ns));
}

TableRow kernel_row(const PassKernel& kernel, int64_t whole_ns) {
  const int64_t mean_ns =
      kernel.count == 0 ? 0 : kernel.sum_ns / static_cast<int64_t>(kernel.count);
  std::string note;
  if (kernel.is_wrapper) note = "in no sum";
  if (kernel.merged_count > 0) note = fmt::format("{} more merged", kernel.merged_count);
  return {printable(kernel.type),
          std::to_string(kernel.count),
          format_duration(kernel.sum_ns),
          kernel.is_wrapper ? "-" : share_text(kernel.sum_ns, whole_ns),
          format_duration(mean_ns),
          format_duration(kernel.least_ns),
          format_duration(kernel.most_ns),
          note};
}

std::string kernel_table(const PassDetail& detail, size_t top) {
  const int64_t whole_ns = counted_ns(detail);
  std::vector<TableRow> rows = {{"KERNEL", "COUNT", "SUM", "SHARE", "MEAN", "SHORTEST", "LONGEST"}};
  std::vector<TableRow> wrappers;
  PassKernel rest;
  size_t rest_types = 0;
  for (const PassKernel& kernel : detail.kernels) {
    if (kernel.is_wrapper) {
      wrappers.push_back(kernel_row(kernel, whole_ns));
    } else if (top == 0 || rows.size() <= top) {
      rows.push_back(kernel_row(kernel, whole_ns));
    } else {
      ++rest_types;
      rest.count += kernel.count;
      rest.sum_ns += kernel.sum_ns;
    }
  }
  if (rest_types > 0)
    rows.push_back({fmt::format("{} others", rest_types), std::to_string(rest.count),
                    format_duration(rest.sum_ns), share_text(rest.sum_ns, whole_ns)});
  rows.insert(rows.end(), wrappers.begin(), wrappers.end());
  return align_columns(rows, "lrrrrrrl");
}

void add_stream_table(std::string& text, const PassDetail& detail, int64_t wall_ns) {
  std::vector<TableRow> rows = {{"STREAM", "ROWS", "COUNTED", "SUM", "OF WALL"}};
  for (const PassStream& stream : detail.streams)
    rows.push_back({stream.stream == CaptureTable::kNoStream ? std::string("none")
                                                             : std::to_string(stream.stream),
                    std::to_string(stream.row_count), std::to_string(stream.counted_count),
                    format_duration(stream.sum_ns), share_text(stream.sum_ns, wall_ns)});
  text += "\n" + align_columns(rows, "rrrrr");
}

void add_draft_table(std::string& text, const PassDetail& detail) {
  if (detail.drafts.size() < 2) return;
  std::vector<TableRow> rows = {{"PART", "ANCHORS", "ROWS", "SUM", "UNION", "WALL"}};
  for (const DraftPart& part : detail.drafts)
    rows.push_back({part_name(part), std::to_string(part.anchor_count),
                    std::to_string(part.row_count), format_duration(part.sum_ns),
                    format_duration(part.union_ns), format_duration(part.wall_ns)});
  text += "\n" + align_columns(rows, "lrrrrr");
}

std::string gap_text(const std::optional<int64_t>& gap_ns, std::string_view which) {
  if (!gap_ns) return fmt::format("no pass {} it", which);
  if (*gap_ns < 0)
    return fmt::format("overlaps the pass {} it by {}", which, format_duration(-*gap_ns));
  return fmt::format("{} to the pass {} it", format_duration(*gap_ns), which);
}

std::string pass_title(const PassesInput& input, const PassesReport& report,
                       const PassDetail& detail) {
  const ForwardPass& pass = input.found.passes[detail.pass];
  const PassSummary& summary = input.summaries[detail.pass];
  const std::string flags = flags_text(pass, summary);
  return fmt::format("pass {} of {}: {}, {} anchors{}{}", pass_label(report, pass),
                     device_text(input.table, pass.device), phase_text(summary.phase),
                     anchors_text(pass), flags.empty() ? "" : "; ", flags);
}

void add_time_facts(std::string& text, const PassSummary& summary) {
  add_fact(text, "sum",
           fmt::format("{}: {} of compute, {} of communication, {} of copies",
                       format_duration(summary.sum_ns()), format_duration(summary.compute_ns),
                       format_duration(summary.collective_ns), format_duration(summary.copy_ns)));
  add_fact(
      text, "union",
      fmt::format("{}, of which {} with nothing but communication",
                  format_duration(summary.union_ns), format_duration(summary.collective_alone_ns)));
  add_fact(text, "wall", format_duration(summary.wall_ns));
  if (summary.wait_ns || summary.transit_ns)
    add_fact(text, "communication",
             fmt::format("{} waiting, {} moving bytes", optional_duration(summary.wait_ns),
                         optional_duration(summary.transit_ns)));
}

}  // namespace

std::string passes_text(const PassesInput& input, const PassesReport& report,
                        const PassesOptions& options, size_t top) {
  std::string text = report.verdict + "\n\n";
  add_row_fact(text, input, report, options);
  add_dedup_fact(text, input, options.dedup);
  add_window_fact(text, report, options.window);
  add_belief_fact(text, input, options);
  add_candidate_facts(text, input);
  add_pass_table(text, input, report, top);
  add_group_table(text, input, report);
  add_findings(text, input);
  return text;
}

std::string pass_kernels_text(const PassesInput& input, const PassesReport& report,
                              const PassDetail& detail, size_t top) {
  return fmt::format("\n{}\n{}", pass_title(input, report, detail), kernel_table(detail, top));
}

std::string pass_detail_text(const PassesInput& input, const PassesReport& report,
                             const PassDetail& detail, const PassesOptions& options, size_t top) {
  const PassSummary& summary = input.summaries[detail.pass];
  std::string text = pass_title(input, report, detail) + "\n\n";
  add_fact(text, "window",
           fmt::format("{}: {} to {} ns, {}", window_policy_name(options.window),
                       detail.window.begin_ns, detail.window.end_ns,
                       format_duration(detail.window.end_ns - detail.window.begin_ns)));
  if (options.window != WindowPolicy::kFull)
    add_fact(text, "lost",
             fmt::format("{} of the whole pass's sum", format_share(summary.lost_share)));
  add_fact(text, "evidence",
           summary.phase.evidence.empty() ? "none" : printable(summary.phase.evidence));
  add_fact(text, "rows",
           fmt::format("{}, {} that only reach into the window left out", detail.window.rows.size(),
                       detail.window.straddling_count));
  add_time_facts(text, summary);
  add_fact(text, "neighbours",
           fmt::format("{}, {}", gap_text(detail.gap_before_ns, "before"),
                       gap_text(detail.gap_after_ns, "behind")));
  text += "\n" + kernel_table(detail, top);
  add_stream_table(text, detail, summary.wall_ns);
  add_draft_table(text, detail);
  return text;
}

}  // namespace gapless
