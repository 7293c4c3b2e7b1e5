// SPDX-License-Identifier: Apache-2.0

#include "trace/collective_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <span>
#include <tuple>

#include "base/check.h"

namespace gapless {
namespace {

// How far a kernel may begin before its summary, or reach beyond it.
constexpr int64_t kSlackNs = 1'000;
// Durations that differ by one in so many, or by the slack, are the same.
constexpr int64_t kDurationShare = 20;
// Summaries of one type that are looked at on either side of a kernel: those that begin with it,
// and those before it that may be as late as it is. More of them at once are seen in no capture,
// and without a bound such a file would take time in the square of its rows.
constexpr size_t kMostBeginning = 8;
constexpr size_t kMostEarlier = 64;
constexpr std::string_view kRuleNames[] = {"interval", "readme", "none"};

bool is_collective(KernelKind kind) {
  return kind == KernelKind::kCollective || kind == KernelKind::kFragment;
}

// A row of a collective, with what it is sorted by.
struct Span {
  int32_t device = 0;
  uint32_t type = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t row = 0;

  int64_t duration_ns() const { return end_ns - start_ns; }
};

bool is_same_kind(const Span& a, const Span& b) { return a.device == b.device && a.type == b.type; }

std::vector<Span> spans_of(const CaptureTable& table, KernelKind kind) {
  std::vector<Span> spans;
  for (uint32_t row = 0; row < table.size(); ++row) {
    if (table.kind[row] != kind) continue;
    spans.push_back(
        {table.device[row], table.type[row], table.start_ns[row], table.end_ns(row), row});
  }
  return spans;
}

void sort_spans(std::vector<Span>& spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.device, a.type, a.start_ns, a.row) <
           std::tie(b.device, b.type, b.start_ns, b.row);
  });
}

bool belongs(const Span& fragment, const Span& summary) {
  if (fragment.start_ns < summary.start_ns - kSlackNs) return false;
  if (fragment.start_ns > summary.end_ns + kSlackNs) return false;
  if (fragment.end_ns <= summary.end_ns + kSlackNs) return true;
  const int64_t tolerance_ns = std::max(kSlackNs, summary.duration_ns() / kDurationShare);
  return std::abs(fragment.duration_ns() - summary.duration_ns()) <= tolerance_ns;
}

// A kernel and a summary that begin at the same time, give or take the slack.
struct Pair {
  int64_t distance_ns = 0;  // of their starts and of their ends
  uint32_t fragment = 0;    // of the group
  uint32_t summary = 0;
};

bool is_nearer(const Pair& a, const Pair& b) {
  return std::tie(a.distance_ns, a.fragment, a.summary) <
         std::tie(b.distance_ns, b.fragment, b.summary);
}

// Summaries and kernels of one device and type, both in the order of their starts.
class GroupMatch {
 public:
  GroupMatch(std::span<const Span> summaries, std::span<const Span> fragments)
      : summaries_(summaries), fragments_(fragments), summary_of_(fragments.size(), kNoIndex) {
    latest_end_ns_.reserve(summaries.size());
    for (const Span& summary : summaries) {
      const int64_t before_ns = latest_end_ns_.empty() ? summary.end_ns : latest_end_ns_.back();
      latest_end_ns_.push_back(std::max(before_ns, summary.end_ns));
    }
  }

  // By fragment: its summary, of the group; kNoIndex: none.
  const std::vector<uint32_t>& run() {
    size_t near = 0;  // the first summary that begins no earlier than the fragment, but for slack
    for (uint32_t at = 0; at < fragments_.size(); ++at) {
      const int64_t start_ns = fragments_[at].start_ns;
      for (; near < summaries_.size() && summaries_[near].start_ns < start_ns - kSlackNs; ++near) {
        add_open(static_cast<uint32_t>(near));
      }
      const size_t pair_count = pairs_.size();
      add_pairs(at, near);
      if (pairs_.size() == pair_count) summary_of_[at] = find_earlier(fragments_[at], near);
    }
    take_pairs();
    return summary_of_;
  }

 private:
  // `open_` holds those summaries that none behind them outlasts: their ends descend.
  void add_open(uint32_t summary) {
    while (!open_.empty() && summaries_[open_.back()].end_ns <= summaries_[summary].end_ns) {
      open_.pop_back();
    }
    open_.push_back(summary);
  }

  void add_pairs(uint32_t at, size_t near) {
    const Span& fragment = fragments_[at];
    // Where very many begin at once, those around the fragment's own place among them.
    const auto from = summaries_.begin() + static_cast<std::ptrdiff_t>(near);
    const auto middle =
        std::lower_bound(from, summaries_.end(), fragment,
                         [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
    const size_t place = static_cast<size_t>(middle - summaries_.begin());
    size_t summary = std::max(near, place - std::min(place, kMostBeginning));
    const size_t end = std::min(summaries_.size(), place + kMostBeginning);
    for (; summary < end && summaries_[summary].start_ns <= fragment.start_ns + kSlackNs;
         ++summary) {
      const Span& other = summaries_[summary];
      if (!belongs(fragment, other)) continue;
      pairs_.push_back(
          {std::abs(fragment.start_ns - other.start_ns) + std::abs(fragment.end_ns - other.end_ns),
           at, static_cast<uint32_t>(summary)});
    }
  }

  // The last summary before `near` to which the fragment belongs.
  uint32_t find_earlier(const Span& fragment, size_t near) const {
    // In whose time it lies: the last open one that ends no earlier.
    const auto outlasted = std::partition_point(open_.begin(), open_.end(), [&](uint32_t summary) {
      return summaries_[summary].end_ns >= fragment.end_ns - kSlackNs;
    });
    const uint32_t inside = outlasted == open_.begin() ? kNoIndex : *(outlasted - 1);
    const size_t first = inside == kNoIndex ? 0 : inside + 1;
    // Or behind that one, one that is as long and has not ended.
    for (size_t i = near, steps = 0; i > first && steps < kMostEarlier; --i, ++steps) {
      if (latest_end_ns_[i - 1] < fragment.start_ns - kSlackNs) break;
      if (belongs(fragment, summaries_[i - 1])) return static_cast<uint32_t>(i - 1);
    }
    return inside;
  }

  // The nearest first, and each summary only one, so that none takes the kernel of another that
  // began with it. What is left goes to the nearest, which then has several.
  void take_pairs() {
    std::sort(pairs_.begin(), pairs_.end(), is_nearer);
    std::vector<uint8_t> is_taken(summaries_.size(), 0);
    for (const Pair& pair : pairs_) {
      if (summary_of_[pair.fragment] != kNoIndex || is_taken[pair.summary] != 0) continue;
      summary_of_[pair.fragment] = pair.summary;
      is_taken[pair.summary] = 1;
    }
    for (const Pair& pair : pairs_) {
      if (summary_of_[pair.fragment] == kNoIndex) summary_of_[pair.fragment] = pair.summary;
    }
  }

  std::span<const Span> summaries_;
  std::span<const Span> fragments_;
  std::vector<int64_t> latest_end_ns_;  // of this summary and all before it
  std::vector<uint32_t> open_;
  std::vector<Pair> pairs_;
  std::vector<uint32_t> summary_of_;
};

void match_group(std::span<const Span> summaries, std::span<const Span> fragments,
                 CollectiveRows& rows) {
  GroupMatch match(summaries, fragments);
  const std::vector<uint32_t>& summary_of = match.run();
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (summary_of[i] == kNoIndex) continue;
    rows.counted_by[fragments[i].row] = summaries[summary_of[i]].row;
  }
}

// The end of the rows of one device and type that begin at `from`.
size_t end_of_group(const std::vector<Span>& spans, size_t from) {
  size_t end = from;
  while (end < spans.size() && is_same_kind(spans[end], spans[from])) ++end;
  return end;
}

// Where a file has no types, a kernel's was made of its name and does not say which collective it
// is of: all summaries of the device come into question.
void clear_unsaid_types(const CaptureTable& table, std::vector<Span>& fragments,
                        std::vector<Span>& summaries) {
  std::vector<int32_t> devices;
  for (Span& fragment : fragments) {
    const bool is_said =
        fragment.type != kNoIndex && !table.names[fragment.type].ends_with("AivKernel");
    if (is_said) continue;
    fragment.type = kNoIndex;
    if (devices.empty() || devices.back() != fragment.device) devices.push_back(fragment.device);
  }
  std::sort(devices.begin(), devices.end());
  const size_t count = summaries.size();
  for (size_t i = 0; i < count; ++i) {
    Span summary = summaries[i];
    if (summary.type == kNoIndex) continue;
    if (!std::binary_search(devices.begin(), devices.end(), summary.device)) continue;
    summary.type = kNoIndex;
    summaries.push_back(summary);
  }
}

void match_intervals(const CaptureTable& table, CollectiveRows& rows) {
  std::vector<Span> fragments = spans_of(table, KernelKind::kFragment);
  if (fragments.empty()) return;
  std::vector<Span> summaries = spans_of(table, KernelKind::kCollective);
  clear_unsaid_types(table, fragments, summaries);
  sort_spans(fragments);
  sort_spans(summaries);
  size_t summary = 0;
  for (size_t from = 0; from < fragments.size();) {
    const size_t end = end_of_group(fragments, from);
    const Span& first = fragments[from];
    while (summary < summaries.size() &&
           std::tie(summaries[summary].device, summaries[summary].type) <
               std::tie(first.device, first.type)) {
      ++summary;
    }
    size_t summary_end = summary;
    while (summary_end < summaries.size() && is_same_kind(summaries[summary_end], first)) {
      ++summary_end;
    }
    match_group({summaries.data() + summary, summary_end - summary},
                {fragments.data() + from, end - from}, rows);
    summary = summary_end;
    from = end;
  }
}

// The published program computed the microsecond in floating point, which at today's times is off
// by up to a quarter of one; here it is exact, so that a few rows differ.
int64_t microsecond_of(int64_t time_ns) {
  const int64_t whole = time_ns / 1'000;
  return time_ns % 1'000 < 0 ? whole - 1 : whole;
}

// The longest row of those in [begin, end); of several a summary, and then the first.
uint32_t longest_row(const CaptureTable& table, std::span<const Span> spans) {
  const Span* longest = spans.data();
  for (const Span& span : spans) {
    const bool is_longer = span.duration_ns() > longest->duration_ns();
    const bool is_as_long = span.duration_ns() == longest->duration_ns();
    const bool is_preferred = table.kind[span.row] == KernelKind::kCollective &&
                              table.kind[longest->row] == KernelKind::kFragment;
    if (is_longer || (is_as_long && is_preferred)) longest = &span;
  }
  return longest->row;
}

void match_microseconds(const CaptureTable& table, CollectiveRows& rows) {
  std::vector<Span> spans = spans_of(table, KernelKind::kCollective);
  const std::vector<Span> fragments = spans_of(table, KernelKind::kFragment);
  spans.insert(spans.end(), fragments.begin(), fragments.end());
  sort_spans(spans);
  for (size_t from = 0; from < spans.size();) {
    size_t end = from;
    while (end < spans.size() && is_same_kind(spans[end], spans[from]) &&
           microsecond_of(spans[end].start_ns) == microsecond_of(spans[from].start_ns)) {
      ++end;
    }
    const std::span<const Span> same(spans.data() + from, end - from);
    const uint32_t longest = longest_row(table, same);
    for (const Span& span : same) rows.counted_by[span.row] = longest;
    from = end;
  }
}

// A row is alone when no row of the other kind shares a counted row with it.
void count_rows(const CaptureTable& table, CollectiveRows& rows) {
  // By row that counts.
  std::vector<bool> has_summary(table.size(), false);
  std::vector<bool> has_kernel(table.size(), false);
  for (size_t row = 0; row < table.size(); ++row) {
    if (!is_collective(table.kind[row])) continue;
    const bool is_summary = table.kind[row] == KernelKind::kCollective;
    (is_summary ? has_summary : has_kernel)[rows.counted_by[row]] = true;
  }
  for (size_t row = 0; row < table.size(); ++row) {
    if (table.kind[row] == KernelKind::kAiCpuCollective) ++rows.wrapper_count;
    if (!is_collective(table.kind[row])) continue;
    const uint32_t counted = rows.counted_by[row];
    const bool is_alone = !has_summary[counted] || !has_kernel[counted];
    if (table.kind[row] == KernelKind::kCollective) {
      ++rows.summary_count;
      if (is_alone) ++rows.lone_summary_count;
    } else {
      ++rows.fragment_count;
      if (is_alone) ++rows.lone_fragment_count;
    }
    if (rows.counts(row)) continue;
    ++rows.merged_count;
    rows.merged_ns += table.duration_ns[row];
  }
}

}  // namespace

std::string_view dedup_rule_name(DedupRule rule) { return kRuleNames[static_cast<size_t>(rule)]; }

std::optional<DedupRule> dedup_rule_by_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kRuleNames); ++i) {
    if (kRuleNames[i] == name) return static_cast<DedupRule>(i);
  }
  return std::nullopt;
}

CollectiveRows find_collective_rows(const CaptureTable& table, DedupRule rule) {
  GAPLESS_CHECK(table.size() < kNoIndex);
  CollectiveRows rows;
  rows.counted_by.resize(table.size());
  std::iota(rows.counted_by.begin(), rows.counted_by.end(), 0u);
  for (size_t row = 0; row < table.size(); ++row) {
    if (table.kind[row] == KernelKind::kAiCpuCollective) rows.counted_by[row] = kNoIndex;
  }
  if (rule == DedupRule::kInterval) match_intervals(table, rows);
  if (rule == DedupRule::kReadme) match_microseconds(table, rows);
  count_rows(table, rows);
  return rows;
}

}  // namespace gapless
