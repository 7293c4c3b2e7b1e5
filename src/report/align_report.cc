// SPDX-License-Identifier: Apache-2.0

#include "report/align_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/diff_report.h"
#include "report/text_table.h"

namespace gapless {
namespace {

std::string duration_text(double nanoseconds) { return format_duration(std::llround(nanoseconds)); }

// Whole where they are; averages over passes with two decimals.
std::string count_text(double count) {
  if (count == 0.0) return "-";
  const double whole = std::round(count);
  return std::abs(count - whole) < 5e-3 ? fmt::format("{:.0f}", whole)
                                        : fmt::format("{:.2f}", count);
}

std::string type_text(const AlignRow& row) {
  return row.model_type.empty() ? row.type : fmt::format("{} = {}", row.type, row.model_type);
}

std::string counts_text(const AlignRow& row) {
  return fmt::format("{} -> {}", count_text(row.measured_count), count_text(row.model_count));
}

std::string ratio_text(const Alignment& alignment, const AlignOptions& options) {
  const double ratio = alignment.ratio;
  const char* place = alignment.is_close ? "within" : ratio < options.low_ratio ? "below" : "above";
  return fmt::format("ratio {:.3f}, {} {:.2f}..{:.2f}", ratio, place, options.low_ratio,
                     options.high_ratio);
}

// The row that moves the sum most.
std::string largest_text(const Alignment& alignment) {
  const auto largest = std::max_element(
      alignment.rows.begin(), alignment.rows.end(), [](const AlignRow& a, const AlignRow& b) {
        return std::abs(a.difference_ns()) < std::abs(b.difference_ns());
      });
  if (largest == alignment.rows.end() || std::llround(largest->difference_ns()) == 0)
    return "no type differs in time";
  std::string text = fmt::format("the largest difference is {} ({}", printable(type_text(*largest)),
                                 format_difference(largest->difference_ns()));
  if (!largest->shape.empty()) text += fmt::format(", shape {}", printable(largest->shape));
  if (largest->status == AlignStatus::kMiss) text += ", not modelled";
  if (largest->status == AlignStatus::kExtra) text += ", not measured";
  return text + ")";
}

std::string mismatches_text(const Alignment& alignment, bool by_shape) {
  constexpr size_t kNamed = 3;
  size_t compared = 0;
  size_t off = 0;
  std::string names;
  for (const AlignRow& row : alignment.rows) {
    if (row.status == AlignStatus::kMiss || row.status == AlignStatus::kExtra || !row.has_counts)
      continue;
    ++compared;
    if (!row.is_count_off()) continue;
    if (++off > kNamed) continue;
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", printable(type_text(row)),
                         counts_text(row));
  }
  const char* noun = by_shape ? "shapes" : "types";
  if (compared == 0) return "no counts can be compared";
  if (off == 0)
    return fmt::format("counts agree in all {} {} that both sides have", compared, noun);
  return fmt::format("counts differ in {} of {} {}: {}{}", off, compared, noun, names,
                     off > kNamed ? ", ..." : "");
}

std::string verdict_of(const Alignment& alignment, const AlignOptions& options) {
  if (!(alignment.measured_ns > 0.0)) return "nothing was measured that a model could be held to";
  std::string text =
      fmt::format("the model has {} for {} of measured kernel time a pass: {}",
                  duration_text(alignment.model_ns), duration_text(alignment.measured_ns),
                  ratio_text(alignment, options));
  const double allowed = std::max(options.high_ratio - 1.0, 1.0 - options.low_ratio);
  if (alignment.is_close && alignment.row_error > allowed)
    text += fmt::format(" because errors cancel: row by row the sides are {} apart",
                        format_share(alignment.row_error));
  return fmt::format("{}; {}; {}", text, largest_text(alignment),
                     mismatches_text(alignment, options.by_shape));
}

// "+1.6 %"; empty where there is nothing to compare.
std::string error_text(double error) { return fmt::format("{:+.1f} %", error * 100.0); }

TableRow table_row(const AlignRow& row, bool by_shape) {
  const bool is_on_both = row.status == AlignStatus::kHit || row.status == AlignStatus::kPartial;
  const auto mean = [](double ns, double count) {
    return count > 0.0 ? duration_text(ns / count) : std::string("-");
  };
  TableRow cells = {printable(type_text(row)), std::string(align_status_name(row.status)),
                    format_share(row.share), duration_text(row.measured_ns),
                    duration_text(row.model_ns)};
  cells.push_back(is_on_both ? error_text(row.time_error) : "-");
  const std::string each = mean(row.measured_ns, row.measured_count);
  const std::string model_each = mean(row.model_ns, row.model_count);
  if (!is_on_both) {
    const bool is_miss = row.status == AlignStatus::kMiss;
    const double count = is_miss ? row.measured_count : row.model_count;
    cells.insert(cells.end(), {count_text(count), "-", is_miss ? each : model_each, "-"});
  } else if (row.has_counts) {
    cells.insert(cells.end(),
                 {row.is_count_off() ? counts_text(row) : count_text(row.measured_count),
                  error_text(row.count_error), fmt::format("{} -> {}", each, model_each),
                  error_text(row.mean_error)});
  } else {
    cells.insert(cells.end(),
                 {row.is_composite ? counts_text(row) : std::string("-"), "-", "-", "-"});
  }
  if (by_shape) cells.push_back(printable(row.shape));
  return cells;
}

TableRow sum_row(const std::string& name, const AlignSum& sum, double measured_ns) {
  const bool has_error = sum.measured_ns > 0.0 && sum.model_ns > 0.0;
  return {name,
          "",
          format_share(measured_ns > 0.0 ? sum.measured_ns / measured_ns : 0.0),
          duration_text(sum.measured_ns),
          duration_text(sum.model_ns),
          has_error ? error_text(sum.ratio() - 1.0) : "-"};
}

std::string table_text(const AlignReport& report, size_t top) {
  const Alignment& alignment = report.alignment;
  const bool by_shape = report.options.by_shape;
  std::vector<TableRow> rows = {
      {"TYPE", "STATUS", "SHARE", "MEASURED", "MODEL", "ERROR", "COUNT", "ERROR", "EACH", "ERROR"}};
  if (by_shape) rows.front().push_back("SHAPE");
  AlignSum rest;
  for (size_t i = 0; i < alignment.rows.size(); ++i) {
    const AlignRow& row = alignment.rows[i];
    if (i < top) {
      rows.push_back(table_row(row, by_shape));
      continue;
    }
    ++rest.row_count;
    rest.measured_ns += row.measured_ns;
    rest.model_ns += row.model_ns;
  }
  if (rest.row_count > 0)
    rows.push_back(
        sum_row(rest.row_count == 1 ? "1 other" : fmt::format("{} others", rest.row_count), rest,
                alignment.measured_ns));
  rows.push_back(sum_row("pass", {alignment.rows.size(), alignment.measured_ns, alignment.model_ns},
                         alignment.measured_ns));
  return align_columns(rows, "llrrrrrrrrl");
}

std::string statuses_text(const AlignReport& report) {
  constexpr const char* kMeanings[kAlignStatusCount] = {
      "count and time agree", "both have it, count or time does not agree",
      "measured, not modelled", "modelled, not measured"};
  const Alignment& alignment = report.alignment;
  const auto share = [](double part, double whole) {
    return format_share(whole > 0.0 ? part / whole : 0.0);
  };
  std::vector<TableRow> rows = {{"STATUS", report.options.by_shape ? "ROWS" : "TYPES", "MEASURED",
                                 "SHARE", "MODEL", "SHARE", "MEANING"}};
  for (size_t i = 0; i < kAlignStatusCount; ++i) {
    const AlignSum& sum = alignment.by_status[i];
    rows.push_back({std::string(align_status_name(static_cast<AlignStatus>(i))),
                    std::to_string(sum.row_count), duration_text(sum.measured_ns),
                    share(sum.measured_ns, alignment.measured_ns), duration_text(sum.model_ns),
                    share(sum.model_ns, alignment.model_ns), kMeanings[i]});
  }
  return align_columns(rows, "lrrrrrl");
}

std::string side_text(const AlignedSide& side) {
  std::string text = printable(side.side.source);
  if (!side.passes.empty()) text += ", " + printable(side.passes);
  if (side.side.merged_count > 0)
    text += fmt::format("; {} left out that tell of a collective again",
                        counted(side.side.merged_count, "row"));
  if (side.side.wrapper_count > 0)
    text += fmt::format("; {} on the AI CPU left out", counted(side.side.wrapper_count, "wrapper"));
  return text;
}

void add_ratios(std::string& text, const AlignReport& report) {
  const Alignment& alignment = report.alignment;
  add_fact(
      text, "ratio",
      fmt::format("{:.3f} of all kernels (M6), {:.3f} without collectives, {:.3f} of what both "
                  "sides have",
                  alignment.ratio, alignment.compute.ratio(), alignment.matched.ratio()));
  std::string times = "sums of kernel times, as if one ran after the other";
  if (report.measured.wall_ns)
    times += fmt::format("; the wall time of a measured pass, {}, is in no ratio",
                         duration_text(*report.measured.wall_ns));
  add_fact(text, "times", times);
}

}  // namespace

Result<AlignReport> make_align_report(AlignedSide measured, AlignedSide model,
                                      const AlignOptions& options, const KernelMap& map) {
  AlignReport report;
  report.alignment = GAPLESS_TRY(align(measured.side, model.side, options, map));
  report.measured = std::move(measured);
  report.model = std::move(model);
  report.options = options;
  report.verdict = verdict_of(report.alignment, options);
  report.notes = report.alignment.warnings;
  for (const AlignedSide* side : {&report.measured, &report.model}) {
    for (const std::string& warning : side->warnings)
      report.notes.push_back(fmt::format("{}: {}", side->side.source, warning));
  }
  return report;
}

std::string align_text(const AlignReport& report, size_t top) {
  std::string text = report.verdict + "\n\n";
  add_fact(text, "measured", side_text(report.measured));
  add_fact(text, "model", side_text(report.model));
  add_ratios(text, report);
  text += "\n" + table_text(report, top);
  text += "\n" + statuses_text(report);
  if (!report.notes.empty()) text += "\n";
  for (const std::string& note : report.notes) add_fact(text, "note", printable(note));
  return text;
}

}  // namespace gapless
