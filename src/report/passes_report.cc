// SPDX-License-Identifier: Apache-2.0

#include "report/passes_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using GroupKey = std::tuple<int, int64_t, uint32_t, bool>;  // phase, tokens, anchors, dummy

constexpr int kNoPhase = 99;

GroupKey key_of(const PassSummary& summary, const ForwardPass& pass) {
  const PhaseGuess& guess = summary.phase;
  return {guess.phase ? static_cast<int>(*guess.phase) : kNoPhase, guess.tokens, pass.anchor_count,
          guess.is_dummy};
}

template <typename Value>
PassSpread spread_over(const std::vector<size_t>& passes, Value value) {
  std::vector<int64_t> values;
  for (const size_t pass : passes) values.push_back(value(pass));
  return spread_of(std::move(values));
}

void measure(PassGroup& group, const std::vector<PassSummary>& summaries) {
  const auto wall = [&](size_t pass) { return summaries[pass].wall_ns; };
  group.wall_ns = spread_over(group.passes, wall);
  group.sum_ns = spread_over(group.passes, [&](size_t pass) { return summaries[pass].sum_ns(); });
  group.union_ns = spread_over(group.passes, [&](size_t pass) { return summaries[pass].union_ns; });
  group.kernel_count = spread_over(group.passes, [&](size_t pass) {
    return static_cast<int64_t>(summaries[pass].kernel_count + summaries[pass].collective_count);
  });
  group.median_pass = *std::find_if(group.passes.begin(), group.passes.end(), [&](size_t pass) {
    return wall(pass) == group.wall_ns.median;
  });
}

std::vector<PassGroup> groups_of(const PassesInput& input, bool with_cut) {
  std::map<GroupKey, PassGroup> by_key;
  for (size_t i = 0; i < input.found.passes.size(); ++i) {
    const ForwardPass& pass = input.found.passes[i];
    const PassSummary& summary = input.summaries[i];
    if (!pass.is_whole() && !with_cut) continue;
    PassGroup& group = by_key[key_of(summary, pass)];
    group.phase = summary.phase.phase;
    group.tokens = summary.phase.tokens;
    group.anchor_count = pass.anchor_count;
    group.is_dummy = summary.phase.is_dummy;
    group.passes.push_back(i);
  }
  std::vector<PassGroup> groups;
  for (auto& [key, group] : by_key) {
    measure(group, input.summaries);
    groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const PassGroup& a, const PassGroup& b) {
    if (a.is_dummy != b.is_dummy) return b.is_dummy;
    if (a.passes.size() != b.passes.size()) return a.passes.size() > b.passes.size();
    return a.passes.front() < b.passes.front();
  });
  return groups;
}

std::string devices_text(const PassesInput& input, const std::vector<int32_t>& devices) {
  constexpr size_t kNamed = 4;
  if (devices.size() > kNamed)
    return fmt::format("{} {}s", devices.size(), input.table.device_word);
  std::string text;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (i > 0) text += i + 1 == devices.size() ? " and " : ", ";
    text += device_text(input.table, devices[i]);
  }
  return text;
}

// "18 decode and 2 prefill", over the passes that count.
std::string phases_text(const std::vector<PassGroup>& groups) {
  std::map<std::pair<bool, int>, size_t> counts;
  for (const PassGroup& group : groups) {
    const int phase = group.phase ? static_cast<int>(*group.phase) : kNoPhase;
    counts[{group.is_dummy, phase}] += group.passes.size();
  }
  std::vector<std::pair<size_t, std::string>> parts;
  for (const auto& [key, count] : counts) {
    const std::string_view phase = key.second == kNoPhase
                                       ? std::string_view("of unknown phase")
                                       : pass_phase_name(static_cast<PassPhase>(key.second));
    const std::string word = key.first ? std::string("dummy") : std::string(phase);
    if (!parts.empty() && parts.back().second == word) {
      parts.back().first += count;
      continue;
    }
    parts.emplace_back(count, word);
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += fmt::format("{} {}", parts[i].first, parts[i].second);
  }
  return text;
}

std::string anchor_text(const PassesInput& input) {
  const FoundPasses& found = input.found;
  if (found.anchor == kNoIndex) return "";
  std::string text =
      found.anchors_per_pass > 0 ? fmt::format("{} ", found.anchors_per_pass) : std::string();
  text += fmt::format("{}{}", printable(input.table.names[found.anchor]),
                      found.anchors_per_pass > 0 ? " a pass" : " as anchors");
  for (const AnchorCandidate& candidate : found.candidates) {
    if (candidate.type != found.anchor || candidate.reason.empty()) continue;
    return text + fmt::format(" ({})", printable(candidate.reason));
  }
  return text;
}

std::string counts_text(const PassesInput& input, const PassesReport& report) {
  const size_t all = input.found.passes.size();
  const std::string whose = devices_text(input, report.devices);
  const std::string of =
      all == 1 ? fmt::format("1 pass of {}", whose) : fmt::format("{} passes of {}", all, whose);
  const size_t cut = all - report.whole_count;
  if (cut == 0) return of + (all == 1 ? ", whole" : ", all whole");
  if (report.whole_count == 0) return of + (all == 1 ? ", which is cut" : ", all cut");
  return of + fmt::format(", {} whole and {} cut", report.whole_count, cut);
}

std::string kind_text(const PassGroup& group) {
  std::string text = group.is_dummy ? "dummy"
                     : group.phase  ? std::string(pass_phase_name(*group.phase))
                                    : "unclassified";
  text += " pass";
  return group.tokens < 0
             ? text
             : text + fmt::format(" of {}", counted(static_cast<uint64_t>(group.tokens), "token"));
}

std::string verdict_of(const PassesInput& input, const PassesReport& report) {
  std::string text = counts_text(input, report);
  if (const std::string anchor = anchor_text(input); !anchor.empty()) text += ": " + anchor;
  if (report.groups.empty())
    return text + "; none is whole, so there are no statistics (--all takes the cut ones)";
  const PassGroup& group = report.groups.front();
  text += fmt::format("; {}", phases_text(report.groups));
  const std::string_view article = group.is_dummy || group.phase ? "a" : "an";
  text += fmt::format("; {} {} takes {}, in which something runs for {}, and kernels add up to {}",
                      article, kind_text(group), format_duration(group.wall_ns.median),
                      format_duration(group.union_ns.median), format_duration(group.sum_ns.median));
  if (group.passes.size() > 1) text += fmt::format(" (medians of {})", group.passes.size());
  return text;
}

// In hundredths of a percent, so that the statistics are those of integers.
std::optional<PassSpread> losses_of(const PassesInput& input) {
  std::vector<int64_t> values;
  for (size_t i = 0; i < input.found.passes.size(); ++i) {
    if (!input.found.passes[i].is_whole()) continue;
    values.push_back(std::llround(input.anchor_summaries[i].lost_share * 10'000.0));
  }
  if (values.empty()) return std::nullopt;
  return spread_of(std::move(values));
}

// Rows in the order of start; the time in which at least one of them runs.
class UnionTime {
 public:
  void add(int64_t start_ns, int64_t end_ns) {
    if (is_empty_ || start_ns > end_ns_) {
      total_ns_ += end_ns - start_ns;
      end_ns_ = end_ns;
      is_empty_ = false;
      return;
    }
    if (end_ns <= end_ns_) return;
    total_ns_ += end_ns - end_ns_;
    end_ns_ = end_ns;
  }
  int64_t total_ns() const { return total_ns_; }
  int64_t end_ns() const { return end_ns_; }

 private:
  int64_t total_ns_ = 0;
  int64_t end_ns_ = 0;
  bool is_empty_ = true;
};

template <typename Rows>
std::vector<DraftPart> drafts_of(const PassesInput& input, const Rows& rows) {
  struct Part {
    DraftPart part;
    UnionTime time;
    int64_t begin_ns = kAbsent;
    int64_t end_ns = kAbsent;
  };
  std::map<uint32_t, Part> parts;
  const CaptureTable& table = input.table;
  for (const uint32_t row : rows) {
    const uint32_t draft = input.found.draft_of_row.empty() ? 0 : input.found.draft_of_row[row];
    Part& part = parts[draft];
    part.part.draft = draft;
    ++part.part.row_count;
    if (!input.found.is_anchor.empty() && input.found.is_anchor[row] != 0) ++part.part.anchor_count;
    // As in the summaries: wrappers and what is counted elsewhere make no time.
    if (!input.collectives.counts(row)) continue;
    part.part.sum_ns += table.duration_ns[row];
    part.time.add(table.start_ns[row], table.end_ns(row));
    if (part.begin_ns == kAbsent) part.begin_ns = table.start_ns[row];
    part.end_ns = std::max(part.end_ns, table.end_ns(row));
  }
  std::vector<DraftPart> result;
  for (auto& [draft, part] : parts) {
    part.part.union_ns = part.time.total_ns();
    part.part.wall_ns = part.begin_ns == kAbsent ? 0 : part.end_ns - part.begin_ns;
    result.push_back(part.part);
  }
  return result;
}

std::vector<uint32_t> rows_between(uint32_t first, uint32_t end) {
  std::vector<uint32_t> rows;
  for (uint32_t row = first; row < end; ++row) rows.push_back(row);
  return rows;
}

std::string type_text(const CaptureTable& table, uint32_t row) {
  if (table.type[row] != kNoIndex) return std::string(table.names[table.type[row]]);
  if (table.name[row] != kNoIndex) return std::string(table.names[table.name[row]]);
  return "(no name)";
}

void count_kernel(PassKernel& kernel, int64_t duration_ns) {
  kernel.least_ns = kernel.count == 0 ? duration_ns : std::min(kernel.least_ns, duration_ns);
  kernel.most_ns = std::max(kernel.most_ns, duration_ns);
  kernel.sum_ns += duration_ns;
  ++kernel.count;
}

std::vector<PassKernel> kernels_of(const PassesInput& input, const std::vector<uint32_t>& rows) {
  const CaptureTable& table = input.table;
  std::map<std::pair<bool, std::string>, PassKernel> by_type;
  for (const uint32_t row : rows) {
    const bool is_wrapper = input.collectives.counted_by[row] == kNoIndex;
    std::string type = type_text(table, row);
    PassKernel& kernel = by_type[{is_wrapper, type}];
    kernel.type = std::move(type);
    kernel.is_wrapper = is_wrapper;
    const KernelKind kind = table.kind[row];
    if (kind == KernelKind::kCollective || kind == KernelKind::kFragment)
      kernel.is_collective = true;
    if (is_wrapper || input.collectives.counts(row)) {
      count_kernel(kernel, table.duration_ns[row]);
    } else {
      ++kernel.merged_count;
    }
  }
  std::vector<PassKernel> kernels;
  for (auto& [key, kernel] : by_type) kernels.push_back(std::move(kernel));
  std::stable_sort(kernels.begin(), kernels.end(), [](const PassKernel& a, const PassKernel& b) {
    if (a.is_wrapper != b.is_wrapper) return b.is_wrapper;
    return a.sum_ns > b.sum_ns;
  });
  return kernels;
}

std::vector<PassStream> streams_of(const PassesInput& input, const std::vector<uint32_t>& rows) {
  std::map<int32_t, PassStream> by_number;
  for (const uint32_t row : rows) {
    PassStream& stream = by_number[input.table.stream[row]];
    stream.stream = input.table.stream[row];
    ++stream.row_count;
    if (!input.collectives.counts(row)) continue;
    ++stream.counted_count;
    stream.sum_ns += input.table.duration_ns[row];
  }
  std::vector<PassStream> streams;
  for (const auto& [number, stream] : by_number) streams.push_back(stream);
  return streams;
}

// From the last end of one to the first start of the other. Wrappers hold waiting and do not count.
std::optional<int64_t> gap_between(const PassesInput& input, size_t before, size_t after) {
  const std::vector<ForwardPass>& passes = input.found.passes;
  if (after >= passes.size() || passes[before].device != passes[after].device) return std::nullopt;
  int64_t end_ns = kAbsent;
  for (uint32_t row = passes[before].first_row; row < passes[before].end_row; ++row) {
    if (input.collectives.counts(row)) end_ns = std::max(end_ns, input.table.end_ns(row));
  }
  if (end_ns == kAbsent) return std::nullopt;
  return input.table.start_ns[passes[after].first_row] - end_ns;
}

}  // namespace

PassSpread spread_of(std::vector<int64_t> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = (values.size() - 1) / 2;
  PassSpread spread = {.median = values[middle], .least = values.front(), .most = values.back()};
  for (int64_t& value : values) value = std::abs(value - spread.median);
  std::sort(values.begin(), values.end());
  spread.deviation = values[middle];
  return spread;
}

std::string device_text(const CaptureTable& table, int32_t device) {
  if (device == CaptureTable::kNoDevice) return "the device";
  return fmt::format("{} {}", printable(table.device_word), device);
}

std::string pass_label(const PassesReport& report, const ForwardPass& pass) {
  if (report.devices.size() < 2) return std::to_string(pass.index);
  return fmt::format("{}:{}", pass.device, pass.index);
}

std::string phase_text(const PhaseGuess& guess) {
  if (!guess.phase) return "unknown";
  if (guess.confidence >= 1.0) return std::string(pass_phase_name(*guess.phase));
  return fmt::format("{} ({:.2g})", pass_phase_name(*guess.phase), guess.confidence);
}

std::string_view pass_method_word(PassMethod method) {
  return method == PassMethod::kCount ? "count" : "signature";
}

PassesReport make_passes_report(const PassesInput& input, const PassesOptions& options) {
  PassesReport report;
  for (const ForwardPass& pass : input.found.passes) {
    if (pass.is_whole()) ++report.whole_count;
    report.rows_in_passes += pass.end_row - pass.first_row;
    if (report.devices.empty() || report.devices.back() != pass.device)
      report.devices.push_back(pass.device);
    if (options.with_drafts)
      report.drafts.push_back(drafts_of(input, rows_between(pass.first_row, pass.end_row)));
  }
  report.groups = groups_of(input, options.with_cut);
  report.lost_permyriad = losses_of(input);
  report.verdict = verdict_of(input, report);
  return report;
}

PassDetail make_pass_detail(const PassesInput& input, size_t pass, PassWindow window) {
  PassDetail detail;
  detail.pass = pass;
  detail.window = std::move(window);
  detail.kernels = kernels_of(input, detail.window.rows);
  detail.streams = streams_of(input, detail.window.rows);
  if (input.found.passes[pass].draft_count > 0)
    detail.drafts = drafts_of(input, detail.window.rows);
  if (pass > 0) detail.gap_before_ns = gap_between(input, pass - 1, pass);
  detail.gap_after_ns = gap_between(input, pass, pass + 1);
  return detail;
}

}  // namespace gapless
