// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_step_trace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "base/csv_reader.h"
#include "base/decimal.h"
#include "formats/ascend_cells.h"
#include "formats/ascend_header.h"

namespace gapless {
namespace {

constexpr uint64_t kRoundingNs = 1000;  // besides 1 ns a row

constexpr std::string_view kTimeNames[kStepTimeCount] = {
    "computing",  "communication(notoverlapped)",
    "overlapped", "communication",
    "free",       "stage",
    "bubble",     "preparing"};
constexpr std::string_view kPropertyNames[kStepTimeCount] = {
    "computing", "not_overlapped", "overlapped", "communication",
    "free",      "stage",          "bubble",     "preparing"};

// Without case, spaces and underscores.
std::string folded(std::string_view cell) {
  std::string text;
  for (const char c : cell) {
    if (c == ' ' || c == '_' || c == '\t' || c == '"') continue;
    text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

// Where the columns stand.
struct StepColumns {
  std::optional<size_t> device;
  std::optional<size_t> step;
  std::array<std::optional<size_t>, kStepTimeCount> times;
  size_t count = 0;
  bool is_cluster = false;

  bool is_step_trace() const {
    return step && times[static_cast<size_t>(StepTime::kComputing)] &&
           times[static_cast<size_t>(StepTime::kCommunication)] &&
           times[static_cast<size_t>(StepTime::kFree)] && !is_cluster;
  }
};

StepColumns find_columns(const std::vector<CsvField>& cells) {
  StepColumns columns;
  columns.count = cells.size();
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string name = folded(cells[i].text);
    if (name == "deviceid" && !columns.device) columns.device = i;
    if ((name == "step" || name == "stepid") && !columns.step) columns.step = i;
    if (name == "type" || name == "index") columns.is_cluster = true;
    for (size_t time = 0; time < kStepTimeCount; ++time) {
      if (name == kTimeNames[time] && !columns.times[time]) columns.times[time] = i;
    }
  }
  return columns;
}

// Nothing: a cell is missing or no number.
std::optional<StepTraceRow> parse_row(const StepColumns& columns, const CsvRecord& record) {
  if (record.fields.size() != columns.count) return std::nullopt;
  const auto cell = [&record](size_t place) { return without_space(record.fields[place].text); };
  StepTraceRow row;
  row.step = std::string(cell(*columns.step));
  if (columns.device) {
    const std::optional<int64_t> device = parse_decimal(cell(*columns.device), 0);
    if (!device || *device > std::numeric_limits<int32_t>::max()) return std::nullopt;
    if (*device >= 0) row.device = static_cast<int32_t>(*device);
  }
  for (size_t time = 0; time < kStepTimeCount; ++time) {
    if (!columns.times[time]) continue;
    const std::string_view text = cell(*columns.times[time]);
    const std::optional<int64_t> ns = parse_decimal(text, 3);
    if (!text.empty() && (!ns || *ns > kMaxTimeNs || *ns < -kMaxTimeNs)) return std::nullopt;
    row.ns[time] = ns;
  }
  const bool has_sums = row.at(StepTime::kComputing) && row.at(StepTime::kCommunication);
  return has_sums ? std::optional(std::move(row)) : std::nullopt;
}

// What a row of the step trace says and what the table does.
struct Comparison {
  int64_t computing_ns = 0;
  int64_t communication_ns = 0;
  int64_t step_ns = 0;   // computing, communication that nothing hides, and free
  int64_t stage_ns = 0;  // the same by the profiler's own account
  bool has_stage = true;

  uint64_t compute_count = 0;
  uint64_t collective_count = 0;
  int64_t compute_sum_ns = 0;
  int64_t compute_union_ns = 0;
  int64_t collective_sum_ns = 0;
  int64_t collective_union_ns = 0;
};

void add_ns(int64_t& sum_ns, int64_t ns) {
  if (!__builtin_add_overflow(sum_ns, ns, &sum_ns)) return;
  sum_ns = ns < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

bool is_near(int64_t a, int64_t b, uint64_t row_count) {
  const uint64_t difference = a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                                    : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
  return difference <= kRoundingNs + row_count;
}

// Where kernels of several streams overlap, the profiler's own overlap analysis may have merged
// them before it added them up.
bool agrees(const Comparison& c) {
  const bool computing = is_near(c.computing_ns, c.compute_sum_ns, c.compute_count) ||
                         is_near(c.computing_ns, c.compute_union_ns, c.compute_count);
  const bool communication = is_near(c.communication_ns, c.collective_sum_ns, c.collective_count) ||
                             is_near(c.communication_ns, c.collective_union_ns, c.collective_count);
  return computing && communication && (!c.has_stage || is_near(c.step_ns, c.stage_ns, 0));
}

// Sum and union of rows, which come in the order of their start.
struct Busy {
  uint64_t count = 0;
  int64_t sum_ns = 0;
  int64_t union_ns = 0;
  int64_t end_ns = std::numeric_limits<int64_t>::min();

  void add(int64_t start_ns, int64_t duration_ns) {
    ++count;
    add_ns(sum_ns, duration_ns);
    const int64_t stop_ns = start_ns + duration_ns;
    if (stop_ns <= end_ns) return;
    union_ns += stop_ns - std::max(start_ns, end_ns);
    end_ns = stop_ns;
  }
};

// Which rows of the table a row of the step trace tells of.
struct RowFilter {
  std::optional<int32_t> device;
  uint32_t step = kNoIndex;
  bool is_of_step = false;
};

void add_table(const CaptureTable& table, const RowFilter& filter, Comparison& comparison) {
  Busy compute;
  Busy collectives;
  int32_t device = CaptureTable::kNoDevice;
  const auto close_device = [&] {
    comparison.compute_union_ns += std::exchange(compute.union_ns, 0);
    comparison.collective_union_ns += std::exchange(collectives.union_ns, 0);
    compute.end_ns = collectives.end_ns = std::numeric_limits<int64_t>::min();
  };
  for (size_t row = 0; row < table.size(); ++row) {
    if (filter.device && table.device[row] != *filter.device) continue;
    if (filter.is_of_step && table.step[row] != filter.step) continue;
    if (table.device[row] != device) close_device();
    device = table.device[row];
    const KernelKind kind = table.kind[row];
    if (kind == KernelKind::kCompute || kind == KernelKind::kAiCpu) {
      compute.add(table.start_ns[row], table.duration_ns[row]);
    } else if (kind == KernelKind::kCollective) {
      collectives.add(table.start_ns[row], table.duration_ns[row]);
    }
  }
  close_device();
  comparison.compute_count += compute.count;
  comparison.collective_count += collectives.count;
  comparison.compute_sum_ns += compute.sum_ns;
  comparison.collective_sum_ns += collectives.sum_ns;
}

void add_step(const StepTraceRow& row, Comparison& comparison) {
  const std::optional<int64_t> stage_ns = row.at(StepTime::kStage);
  const std::optional<int64_t> shown_ns = row.at(StepTime::kNotOverlapped);
  const std::optional<int64_t> free_ns = row.at(StepTime::kFree);
  add_ns(comparison.computing_ns, row.at(StepTime::kComputing).value_or(0));
  add_ns(comparison.communication_ns, row.at(StepTime::kCommunication).value_or(0));
  comparison.has_stage = comparison.has_stage && stage_ns && shown_ns && free_ns;
  if (!comparison.has_stage) return;
  add_ns(comparison.step_ns, row.at(StepTime::kComputing).value_or(0));
  add_ns(comparison.step_ns, *shown_ns);
  add_ns(comparison.step_ns, *free_ns);
  add_ns(comparison.stage_ns, *stage_ns);
  add_ns(comparison.stage_ns, row.at(StepTime::kBubble).value_or(0));
}

std::string microseconds(int64_t ns) {
  char text[24];
  return std::string(text, write_microseconds(text, ns));
}

std::string comparison_text(const Comparison& c) {
  std::string text = fmt::format(
      "computing {} us against {} us of {} kernels, communication {} us against {} us of {} "
      "collectives",
      microseconds(c.computing_ns), microseconds(c.compute_sum_ns), c.compute_count,
      microseconds(c.communication_ns), microseconds(c.collective_sum_ns), c.collective_count);
  if (c.has_stage) {
    text += fmt::format(", computing + not overlapped + free {} us against stage + bubble {} us",
                        microseconds(c.step_ns), microseconds(c.stage_ns));
  }
  return text;
}

// Rows that have no device of their own are those of the only one there is.
std::optional<int32_t> device_filter(const StepTraceRow& row, const std::set<int32_t>& devices) {
  if (!row.device || (devices.size() <= 1 && !devices.contains(*row.device))) return std::nullopt;
  return row.device;
}

std::vector<Comparison> compare_steps(const StepTrace& trace, const CaptureTable& table,
                                      const std::set<int32_t>& devices) {
  std::vector<Comparison> comparisons;
  for (const StepTraceRow& row : trace.rows) {
    Comparison& comparison = comparisons.emplace_back();
    add_step(row, comparison);
    add_table(table, {device_filter(row, devices), table.names.find(row.step), true}, comparison);
  }
  return comparisons;
}

// All steps of a device together are all of its rows.
std::vector<Comparison> compare_devices(const StepTrace& trace, const CaptureTable& table,
                                        const std::set<int32_t>& devices) {
  std::map<std::optional<int32_t>, Comparison> by_device;
  for (const StepTraceRow& row : trace.rows) {
    add_step(row, by_device[device_filter(row, devices)]);
  }
  std::vector<Comparison> comparisons;
  for (auto& [device, comparison] : by_device) {
    add_table(table, {.device = device}, comparison);
    comparisons.push_back(comparison);
  }
  return comparisons;
}

std::vector<Comparison> compare(const StepTrace& trace, const CaptureTable& table) {
  const auto has_step = [](uint32_t step) { return step != kNoIndex; };
  const auto names_step = [](const StepTraceRow& row) { return !row.step.empty(); };
  const bool by_step = std::any_of(table.step.begin(), table.step.end(), has_step) &&
                       std::all_of(trace.rows.begin(), trace.rows.end(), names_step);
  const std::set<int32_t> devices(table.device.begin(), table.device.end());
  return by_step ? compare_steps(trace, table, devices) : compare_devices(trace, table, devices);
}

void add_properties(const StepTrace& trace, std::string_view key, CaptureTable& table) {
  for (size_t time = 0; time < kStepTimeCount; ++time) {
    int64_t sum_ns = 0;
    bool is_there = false;
    for (const StepTraceRow& row : trace.rows) {
      if (!row.ns[time]) continue;
      is_there = true;
      add_ns(sum_ns, *row.ns[time]);
    }
    if (!is_there) continue;
    table.properties.push_back(
        {fmt::format("{}step_trace.{}_ns", key, kPropertyNames[time]), std::to_string(sum_ns)});
  }
}

}  // namespace

bool looks_like_step_trace(std::string_view first_bytes) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
  if (first_bytes.starts_with(kUtf8Mark)) first_bytes.remove_prefix(kUtf8Mark.size());
  const std::string_view line = first_bytes.substr(0, first_bytes.find_first_of("\r\n"));
  return find_columns(split_cells(line, ',')).is_step_trace();
}

Result<StepTrace> read_step_trace(InputStream input) {
  constexpr size_t kMaxRows = 10'000;  // each is held against the whole table
  StepTrace trace;
  trace.path = input.name();
  CsvReader csv(input, {});
  CsvRecord record;
  const bool has_header = GAPLESS_TRY(csv.next(record));
  const StepColumns columns = has_header ? find_columns(record.fields) : StepColumns{};
  if (!columns.is_step_trace()) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no step trace: its first line must have the columns Step, Computing, "
                "Communication and Free, and no Type",
                trace.path);
  }
  while (GAPLESS_TRY(csv.next(record))) {
    if (record.is_blank()) continue;
    std::optional<StepTraceRow> row = parse_row(columns, record);
    if (row && trace.rows.size() < kMaxRows) {
      trace.rows.push_back(std::move(*row));
    } else {
      ++trace.unread_count;
    }
  }
  return trace;
}

void check_step_trace(const StepTrace& trace, std::string_view key, CaptureTable& table) {
  if (trace.unread_count > 0) {
    table.findings.push_back(
        {Severity::kWarning, "step-trace-unread",
         fmt::format("{}: {} lines are no steps: cut short, or a time is no number", trace.path,
                     trace.unread_count),
         kNoIndex, trace.unread_count});
  }
  if (trace.rows.empty()) return;
  add_properties(trace, key, table);
  const std::vector<Comparison> comparisons = compare(trace, table);
  const auto differs = [](const Comparison& comparison) { return !agrees(comparison); };
  const auto first = std::find_if(comparisons.begin(), comparisons.end(), differs);
  const bool all_agree = first == comparisons.end();
  const uint64_t differing =
      static_cast<uint64_t>(std::count_if(comparisons.begin(), comparisons.end(), differs));
  const uint64_t count = all_agree ? comparisons.size() : differing;
  std::string text = fmt::format("{}: {} of {} sums are those of the rows: {}", trace.path,
                                 comparisons.size() - differing, comparisons.size(),
                                 comparison_text(all_agree ? comparisons.front() : *first));
  table.findings.push_back({all_agree ? Severity::kInfo : Severity::kWarning,
                            all_agree ? "step-trace-agrees" : "step-trace-differs", std::move(text),
                            kNoIndex, count});
}

}  // namespace gapless
