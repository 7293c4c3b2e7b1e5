// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_summary.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace gapless {
namespace {

constexpr std::string_view kPolicyNames[] = {"full", "anchor", "block"};
// Of fewer passes none can be told to be unlike the others.
constexpr size_t kFewestCompared = 3;
constexpr int64_t kDeviations = 5;
constexpr int64_t kShare = 20;

// Rows of one device: [begin, end) of the table.
struct RowRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

RowRange rows_of_device(const CaptureTable& table, int32_t device) {
  const auto range = std::equal_range(table.device.begin(), table.device.end(), device);
  return {static_cast<uint32_t>(range.first - table.device.begin()),
          static_cast<uint32_t>(range.second - table.device.begin())};
}

// What windows of one table need, made once.
class RowOrder {
 public:
  RowOrder(const CaptureTable& table, WindowPolicy policy) : table_(table) {
    latest_end_ns_.resize(table.size());
    for (size_t row = 0; row < table.size(); ++row) {
      const bool is_first = row == 0 || table.device[row] != table.device[row - 1];
      const int64_t end_ns = table.end_ns(row);
      latest_end_ns_[row] = is_first ? end_ns : std::max(latest_end_ns_[row - 1], end_ns);
    }
    if (policy == WindowPolicy::kBlock && !table.text_offset.empty()) find_blocks();
  }

  // Of this row and all before it on its device.
  int64_t latest_end_ns(uint32_t row) const { return latest_end_ns_[row]; }

  // The number of the run in the file that holds `row`: one for each device without an order.
  uint64_t block_number(uint32_t row) const {
    return block_of_row_.empty() ? rows_of_device(table_, table_.device[row]).begin
                                 : block_of_row_[row];
  }

  // Rows of the same run in the file as `row`, ascending.
  std::vector<uint32_t> block_of(uint32_t row) const {
    std::vector<uint32_t> rows;
    if (block_of_row_.empty()) {
      const RowRange device = rows_of_device(table_, table_.device[row]);
      rows.resize(device.end - device.begin);
      std::iota(rows.begin(), rows.end(), device.begin);
      return rows;
    }
    const uint32_t block = block_of_row_[row];
    const auto begin = file_order_.begin() + first_of_block_[block];
    const auto end = file_order_.begin() + first_of_block_[block + 1];
    rows.assign(begin, end);
    std::sort(rows.begin(), rows.end());
    return rows;
  }

 private:
  // A block ends where a row of the device starts before the one above it.
  void find_blocks() {
    file_order_.resize(table_.size());
    std::iota(file_order_.begin(), file_order_.end(), 0u);
    std::sort(file_order_.begin(), file_order_.end(), [this](uint32_t a, uint32_t b) {
      return std::tie(table_.device[a], table_.source[a], table_.text_offset[a], a) <
             std::tie(table_.device[b], table_.source[b], table_.text_offset[b], b);
    });
    block_of_row_.resize(table_.size());
    for (uint32_t at = 0; at < file_order_.size(); ++at) {
      const uint32_t row = file_order_[at];
      const uint32_t above = at == 0 ? row : file_order_[at - 1];
      const bool is_first = at == 0 || table_.device[row] != table_.device[above] ||
                            table_.start_ns[row] < table_.start_ns[above];
      if (is_first) first_of_block_.push_back(at);
      block_of_row_[row] = static_cast<uint32_t>(first_of_block_.size() - 1);
    }
    first_of_block_.push_back(static_cast<uint32_t>(file_order_.size()));
  }

  const CaptureTable& table_;
  std::vector<int64_t> latest_end_ns_;
  std::vector<uint32_t> file_order_;  // rows by device, and then as in their files
  std::vector<uint32_t> block_of_row_;
  std::vector<uint32_t> first_of_block_;  // places in file_order_, and one more
};

// Rows before `first` that run beyond `begin_ns`.
uint32_t count_reaching_in(const CaptureTable& table, const RowOrder& order, uint32_t first,
                           int64_t begin_ns) {
  uint32_t count = 0;
  for (uint32_t row = first; row > 0 && table.device[row - 1] == table.device[first]; --row) {
    if (order.latest_end_ns(row - 1) <= begin_ns) break;
    if (table.end_ns(row - 1) > begin_ns) ++count;
  }
  return count;
}

PassWindow window_of_rows(const CaptureTable& table, const RowOrder& order,
                          std::vector<uint32_t> rows) {
  PassWindow window;
  if (rows.empty()) return window;
  window.begin_ns = table.start_ns[rows.front()];
  window.end_ns = window.begin_ns;
  for (const uint32_t row : rows) window.end_ns = std::max(window.end_ns, table.end_ns(row));
  window.straddling_count = count_reaching_in(table, order, rows.front(), window.begin_ns);
  window.rows = std::move(rows);
  return window;
}

PassWindow anchor_window(const CaptureTable& table, const RowOrder& order,
                         const ForwardPass& pass) {
  PassWindow window;
  window.begin_ns = table.start_ns[pass.first_anchor];
  window.end_ns = table.end_ns(pass.last_anchor);
  const RowRange device = rows_of_device(table, table.device[pass.first_anchor]);
  const auto starts = table.start_ns.begin();
  const uint32_t first = static_cast<uint32_t>(
      std::lower_bound(starts + device.begin, starts + device.end, window.begin_ns) - starts);
  window.straddling_count = count_reaching_in(table, order, first, window.begin_ns);
  for (uint32_t row = first; row < device.end && table.start_ns[row] <= window.end_ns; ++row) {
    if (table.end_ns(row) <= window.end_ns) {
      window.rows.push_back(row);
    } else if (table.start_ns[row] < window.end_ns) {
      ++window.straddling_count;
    }
  }
  return window;
}

PassWindow make_window(const CaptureTable& table, const RowOrder& order, const ForwardPass& pass,
                       WindowPolicy policy) {
  if (policy == WindowPolicy::kAnchor) return anchor_window(table, order, pass);
  if (policy == WindowPolicy::kBlock) {
    return window_of_rows(table, order, order.block_of(pass.first_anchor));
  }
  std::vector<uint32_t> rows(pass.end_row - pass.first_row);
  std::iota(rows.begin(), rows.end(), pass.first_row);
  return window_of_rows(table, order, std::move(rows));
}

bool is_collective(KernelKind kind) {
  return kind == KernelKind::kCollective || kind == KernelKind::kFragment;
}

// The length of a union of spans that come in the order of their starts.
struct SpanUnion {
  int64_t length_ns = 0;
  int64_t end_ns = 0;
  bool is_empty = true;

  void add(int64_t from_ns, int64_t to_ns) {
    const int64_t begin_ns = is_empty ? from_ns : std::max(from_ns, end_ns);
    if (to_ns > begin_ns) length_ns += to_ns - begin_ns;
    end_ns = is_empty ? to_ns : std::max(end_ns, to_ns);
    is_empty = false;
  }
};

void add_known(const std::vector<int64_t>& column, uint32_t row, std::optional<int64_t>& sum) {
  if (column.empty() || column[row] == kAbsent) return;
  sum = sum.value_or(0) + column[row];
}

void add_time(const CaptureTable& table, uint32_t row, PassSummary& summary) {
  const int64_t duration_ns = table.duration_ns[row];
  if (is_collective(table.kind[row])) {
    ++summary.collective_count;
    summary.collective_ns += duration_ns;
    add_known(table.wait_ns, row, summary.wait_ns);
    add_known(table.transit_ns, row, summary.transit_ns);
    return;
  }
  ++summary.kernel_count;
  (table.kind[row] == KernelKind::kCopy ? summary.copy_ns : summary.compute_ns) += duration_ns;
}

void add_rows(const CaptureTable& table, const CollectiveRows& collectives,
              std::span<const uint32_t> rows, PassSummary& summary) {
  SpanUnion all;
  SpanUnion others;  // than collectives
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  bool has_rows = false;
  summary.row_count = rows.size();
  for (const uint32_t row : rows) {
    if (table.kind[row] == KernelKind::kAiCpuCollective) {
      ++summary.wrapper_count;
      continue;
    }
    const int64_t start_ns = table.start_ns[row];
    const int64_t end_ns = table.end_ns(row);
    if (!has_rows) first_ns = start_ns;
    last_ns = has_rows ? std::max(last_ns, end_ns) : end_ns;
    has_rows = true;
    if (!collectives.counts(row)) continue;
    add_time(table, row, summary);
    all.add(start_ns, end_ns);
    if (!is_collective(table.kind[row])) others.add(start_ns, end_ns);
  }
  summary.union_ns = all.length_ns;
  summary.collective_alone_ns = all.length_ns - others.length_ns;
  summary.wall_ns = last_ns - first_ns;
}

int64_t sum_of_pass(const CaptureTable& table, const CollectiveRows& collectives,
                    const ForwardPass& pass) {
  int64_t sum_ns = 0;
  for (uint32_t row = pass.first_row; row < pass.end_row; ++row) {
    if (collectives.counts(row)) sum_ns += table.duration_ns[row];
  }
  return sum_ns;
}

double lost_share(int64_t full_ns, int64_t window_ns) {
  if (full_ns <= 0 || window_ns >= full_ns) return 0.0;
  return static_cast<double>(full_ns - window_ns) / static_cast<double>(full_ns);
}

// A type and how many rows of it there are; in the order of the types' numbers.
using TypeCounts = std::vector<std::pair<uint32_t, uint64_t>>;

class TypeCounter {
 public:
  TypeCounter(const CaptureTable& table, const CollectiveRows& collectives)
      : table_(table),
        has_summaries_(collectives.summary_count > 0),
        counts_(table.names.size() + 1, 0) {}

  // Where collectives have summaries their kernels are left out: profilers list now one more, now
  // one less of them.
  TypeCounts count(std::span<const uint32_t> rows) {
    std::vector<uint32_t> seen;
    for (const uint32_t row : rows) {
      const KernelKind kind = table_.kind[row];
      if (kind == KernelKind::kAiCpuCollective) continue;
      if (kind == KernelKind::kFragment && has_summaries_) continue;
      const uint32_t type = std::min(table_.type[row], static_cast<uint32_t>(counts_.size() - 1));
      if (counts_[type]++ == 0) seen.push_back(type);
    }
    std::sort(seen.begin(), seen.end());
    TypeCounts counts;
    for (const uint32_t type : seen) {
      counts.emplace_back(type, counts_[type]);
      counts_[type] = 0;
    }
    return counts;
  }

 private:
  const CaptureTable& table_;
  bool has_summaries_;
  std::vector<uint64_t> counts_;  // by type; the last: rows without one
};

int64_t median_of(std::vector<int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  const int64_t below = *std::max_element(values.begin(), middle);
  return below + (*middle - below) / 2;
}

struct UsualRange {
  int64_t median_ns = 0;
  int64_t reach_ns = 0;
};

UsualRange usual_range(const std::vector<int64_t>& values) {
  UsualRange range;
  range.median_ns = median_of(values);
  std::vector<int64_t> deviations;
  for (const int64_t value : values) deviations.push_back(std::abs(value - range.median_ns));
  range.reach_ns =
      std::max(kDeviations * median_of(std::move(deviations)), std::abs(range.median_ns) / kShare);
  return range;
}

double milliseconds(int64_t time_ns) { return static_cast<double>(time_ns) * 1e-6; }

std::string unusual_time(std::string_view what, int64_t time_ns, const UsualRange& range) {
  if (std::abs(time_ns - range.median_ns) <= range.reach_ns) return {};
  return fmt::format("{} {:.3f} ms, where {:.3f} +- {:.3f} ms are usual", what,
                     milliseconds(time_ns), milliseconds(range.median_ns),
                     milliseconds(range.reach_ns));
}

// The first type of which there is another number than in most passes.
std::string unusual_types(const CaptureTable& table, const TypeCounts& counts,
                          const TypeCounts& most) {
  if (counts == most) return {};
  const auto say = [&table](uint32_t type, uint64_t has, uint64_t usual) {
    const std::string_view name = type < table.names.size() ? table.names[type] : "no type";
    return fmt::format("{} kernels of {}, where most passes have {}", has, name, usual);
  };
  size_t i = 0;
  for (; i < counts.size() && i < most.size(); ++i) {
    if (counts[i] == most[i]) continue;
    if (counts[i].first < most[i].first) return say(counts[i].first, counts[i].second, 0);
    if (most[i].first < counts[i].first) return say(most[i].first, 0, most[i].second);
    return say(counts[i].first, counts[i].second, most[i].second);
  }
  if (i < counts.size()) return say(counts[i].first, counts[i].second, 0);
  return say(most[i].first, 0, most[i].second);
}

// What more than half of the group has; null: there is no such.
const TypeCounts* majority_of(std::span<const uint32_t> group,
                              const std::vector<TypeCounts>& counts) {
  const TypeCounts* candidate = nullptr;
  size_t votes = 0;
  for (const uint32_t pass : group) {
    if (votes == 0) candidate = &counts[pass];
    votes = counts[pass] == *candidate ? votes + 1 : votes - 1;
  }
  const size_t holders = static_cast<size_t>(std::count_if(
      group.begin(), group.end(), [&](uint32_t pass) { return counts[pass] == *candidate; }));
  return 2 * holders > group.size() ? candidate : nullptr;
}

void find_outliers(const CaptureTable& table, std::span<const uint32_t> group,
                   const std::vector<TypeCounts>& counts, std::vector<PassSummary>& summaries) {
  if (group.size() < kFewestCompared) return;
  std::vector<int64_t> walls;
  std::vector<int64_t> sums;
  for (const uint32_t pass : group) {
    walls.push_back(summaries[pass].wall_ns);
    sums.push_back(summaries[pass].sum_ns());
  }
  const UsualRange wall = usual_range(walls);
  const UsualRange sum = usual_range(sums);
  const TypeCounts* most = majority_of(group, counts);
  for (const uint32_t pass : group) {
    PassSummary& summary = summaries[pass];
    if (most != nullptr) summary.outlier = unusual_types(table, counts[pass], *most);
    if (summary.outlier.empty()) {
      summary.outlier = unusual_time("wall time", summary.wall_ns, wall);
    }
    if (summary.outlier.empty()) summary.outlier = unusual_time("sum", summary.sum_ns(), sum);
  }
}

PhaseGuess phase_of(const FoundPasses& found, const ForwardPass& pass, PhaseReader& reader) {
  std::vector<uint32_t> rows(pass.end_row - pass.first_row);
  std::iota(rows.begin(), rows.end(), pass.first_row);
  std::vector<uint32_t> anchors;
  for (const uint32_t row : rows) {
    if (found.is_anchor[row] == 1) anchors.push_back(row);
  }
  PhaseGuess phase = reader.guess(rows, anchors, pass.draft_count);
  // What would have been sampled may lie behind the end of the capture.
  if (pass.is_cut_at_end) phase.is_dummy = false;
  return phase;
}

// Times and types of passes, one after the other. Passes of one block have the same window, which
// is summed once.
class SummaryMaker {
 public:
  SummaryMaker(const CaptureTable& table, const CollectiveRows& collectives, WindowPolicy policy)
      : table_(table),
        collectives_(collectives),
        policy_(policy),
        order_(table, policy),
        counter_(table, collectives) {}

  PassSummary make(const ForwardPass& pass) {
    const uint32_t index = static_cast<uint32_t>(counts_.size());
    if (policy_ == WindowPolicy::kBlock) {
      const auto [known, is_new] =
          made_.try_emplace(order_.block_number(pass.first_anchor), index, PassSummary());
      if (is_new) known->second.second = make_anew(pass);
      if (!is_new) {
        TypeCounts counts = counts_[known->second.first];
        counts_.push_back(std::move(counts));
      }
      return known->second.second;
    }
    return make_anew(pass);
  }

  // Of each pass so far.
  const std::vector<TypeCounts>& type_counts() const { return counts_; }

 private:
  PassSummary make_anew(const ForwardPass& pass) {
    PassSummary summary;
    const PassWindow window = make_window(table_, order_, pass, policy_);
    add_rows(table_, collectives_, window.rows, summary);
    summary.straddling_count = window.straddling_count;
    counts_.push_back(counter_.count(window.rows));
    return summary;
  }

  const CaptureTable& table_;
  const CollectiveRows& collectives_;
  WindowPolicy policy_;
  RowOrder order_;
  TypeCounter counter_;
  std::vector<TypeCounts> counts_;
  std::map<uint64_t, std::pair<uint32_t, PassSummary>> made_;  // by block: the pass that it is of
};

}  // namespace

std::string_view window_policy_name(WindowPolicy policy) {
  return kPolicyNames[static_cast<size_t>(policy)];
}

std::optional<WindowPolicy> window_policy_by_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kPolicyNames); ++i) {
    if (kPolicyNames[i] == name) return static_cast<WindowPolicy>(i);
  }
  return std::nullopt;
}

PassWindow pass_window(const CaptureTable& table, const FoundPasses&, const ForwardPass& pass,
                       WindowPolicy policy) {
  return make_window(table, RowOrder(table, policy), pass, policy);
}

std::vector<PassSummary> summarise_passes(const CaptureTable& table, const FoundPasses& found,
                                          const CollectiveRows& collectives, WindowPolicy policy) {
  using GroupKey = std::tuple<int, int64_t, uint32_t, bool>;
  SummaryMaker maker(table, collectives, policy);
  PhaseReader reader(table);
  std::vector<PassSummary> summaries;
  std::map<GroupKey, std::vector<uint32_t>> groups;
  for (const ForwardPass& pass : found.passes) {
    PassSummary summary = maker.make(pass);
    summary.phase = phase_of(found, pass, reader);
    summary.lost_share = lost_share(sum_of_pass(table, collectives, pass), summary.sum_ns());
    if (pass.is_whole()) {
      const PhaseGuess& phase = summary.phase;
      const int number = phase.phase.has_value() ? static_cast<int>(*phase.phase) : -1;
      groups[{number, phase.tokens, pass.anchor_count, phase.is_dummy}].push_back(
          static_cast<uint32_t>(summaries.size()));
    }
    summaries.push_back(std::move(summary));
  }
  for (const auto& [key, group] : groups) {
    find_outliers(table, group, maker.type_counts(), summaries);
  }
  return summaries;
}

}  // namespace gapless
