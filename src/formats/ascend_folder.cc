// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_folder.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "base/input_stream.h"
#include "formats/ascend_communication.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_db.h"
#include "formats/ascend_step_trace.h"
#include "formats/json_kernels.h"

namespace gapless {
namespace {

void add_unread(std::vector<Finding>& findings, const std::string& text) {
  findings.push_back({Severity::kWarning, "source-unread", text, kNoIndex, 1});
}

// Numbers of texts of one table as those of another.
class TextMap {
 public:
  TextMap(const NameTable& from, NameTable& to)
      : from_(from), to_(to), numbers_(from.size(), kNoIndex) {}

  uint32_t operator()(uint32_t text) {
    if (text == kNoIndex) return kNoIndex;
    if (numbers_[text] == kNoIndex) numbers_[text] = to_.intern(from_[text]);
    return numbers_[text];
  }

 private:
  const NameTable& from_;
  NameTable& to_;
  std::vector<uint32_t> numbers_;
};

// A column that one of the two tables has must be there for all rows.
void append_optional(std::vector<int64_t>& to, size_t to_rows, const std::vector<int64_t>& from,
                     size_t from_rows) {
  if (to.empty() && from.empty()) return;
  to.resize(to_rows, kAbsent);
  to.insert(to.end(), from.begin(), from.end());
  to.resize(to_rows + from_rows, kAbsent);
}

void append_rows(CaptureTable& table, const CaptureTable& more) {
  const size_t old_size = table.size();
  const uint32_t first_source = static_cast<uint32_t>(table.sources.size());
  const bool has_text = (old_size == 0 || table.text_offset.size() == old_size) &&
                        more.text_offset.size() == more.size();
  TextMap text(more.names, table.names);
  for (size_t row = 0; row < more.size(); ++row) {
    KernelRow copy;
    copy.start_ns = more.start_ns[row];
    copy.duration_ns = more.duration_ns[row];
    copy.device = more.device[row];
    copy.stream = more.stream[row];
    copy.task = more.task[row];
    copy.name = text(more.name[row]);
    copy.type = text(more.type[row]);
    copy.core = text(more.core[row]);
    copy.input_shapes = text(more.input_shapes[row]);
    copy.output_shapes = text(more.output_shapes[row]);
    copy.step = text(more.step[row]);
    copy.kind = more.kind[row];
    copy.source = more.source[row] + first_source;
    if (!more.launch_ns.empty()) copy.launch_ns = more.launch_ns[row];
    table.append(copy);
  }
  append_optional(table.wait_ns, old_size, more.wait_ns, more.size());
  append_optional(table.transit_ns, old_size, more.transit_ns, more.size());
  if (has_text) {
    table.text_offset.insert(table.text_offset.end(), more.text_offset.begin(),
                             more.text_offset.end());
    table.text_bytes.insert(table.text_bytes.end(), more.text_bytes.begin(), more.text_bytes.end());
  } else {
    table.text_offset.clear();
    table.text_bytes.clear();
  }
  for (HostSpan span : more.host) {
    span.name = text(span.name);
    span.category = text(span.category);
    table.host.push_back(span);
  }
}

// All of `more` behind what is there; the order of rows is made later.
void append_capture(CaptureTable& table, CaptureTable&& more) {
  append_rows(table, more);
  const auto move_to = [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_to(more.sources, table.sources);
  move_to(more.findings, table.findings);
  for (Property& property : more.properties) {
    const auto has_key = [&property](const Property& other) { return other.key == property.key; };
    if (std::none_of(table.properties.begin(), table.properties.end(), has_key)) {
      table.properties.push_back(std::move(property));
    }
  }
  if (table.steps.empty()) table.steps = std::move(more.steps);  // they are of one device
  if (table.format.empty()) table.format = more.format;
  if (table.format != more.format) table.format = "ascend-folder";
  table.types_derived = table.types_derived || more.types_derived;
  table.derived_type_count += more.derived_type_count;
  table.dropped_count += more.dropped_count;
  table.order_break_count += more.order_break_count;
}

void put_in_order(CaptureTable& table) {
  const std::vector<uint32_t> rows = rows_in_order(table);
  if (!std::is_sorted(rows.begin(), rows.end())) keep_rows(table, rows);
  std::stable_sort(table.host.begin(), table.host.end(),
                   [](const HostSpan& a, const HostSpan& b) { return a.begin_ns < b.begin_ns; });
}

// A file among slices that cannot be read must not cost the others.
std::optional<CaptureTable> read_tables(const std::vector<std::string>& paths,
                                        const CaptureReadOptions& options,
                                        std::vector<Finding>& findings) {
  if (paths.empty()) return std::nullopt;
  const AscendCsvOptions csv_options{.default_device = options.default_device,
                                     .progress = options.progress};
  Result<CaptureTable> table = read_ascend_csv(paths, csv_options);
  if (table) return std::move(*table);
  std::vector<std::string> readable;
  for (const std::string& path : paths) {
    const Result<CaptureTable> alone = read_ascend_csv(std::span(&path, 1), csv_options);
    if (alone) {
      readable.push_back(path);
    } else {
      add_unread(findings, alone.error().message);
    }
  }
  if (readable.empty()) return std::nullopt;
  table = read_ascend_csv(readable, csv_options);
  if (table) return std::move(*table);
  add_unread(findings, table.error().message);
  return std::nullopt;
}

std::optional<CaptureTable> read_databases(const std::vector<std::string>& paths,
                                           const CaptureReadOptions& options,
                                           std::vector<Finding>& findings) {
  for (const std::string& path : paths) {
    Result<CaptureTable> table = read_ascend_db(path, options);
    if (table && table->size() > 0) return std::move(*table);
    add_unread(findings,
               table ? fmt::format("{}: a database without kernels", path) : table.error().message);
  }
  return std::nullopt;
}

// All slices together.
std::optional<CaptureTable> read_timelines(const std::vector<std::string>& paths,
                                           const CaptureReadOptions& options,
                                           std::vector<Finding>& findings) {
  std::optional<CaptureTable> whole;
  for (const std::string& path : paths) {
    Result<InputStream> input = InputStream::open_file(path);
    Result<CaptureTable> table = input ? read_json_kernels(std::move(*input), options)
                                       : Result<CaptureTable>(std::move(input).error());
    if (!table || table->size() == 0) {
      add_unread(findings, table ? fmt::format("{}: a timeline without kernels", path)
                                 : table.error().message);
    } else if (!whole) {
      whole = std::move(*table);
    } else {
      append_capture(*whole, std::move(*table));
    }
  }
  if (whole && paths.size() > 1) put_in_order(*whole);
  return whole;
}

// The number in "op_summary_slice_3_20261116.csv"; nothing: it is no slice.
std::optional<uint32_t> slice_number(std::string_view path) {
  constexpr std::string_view kSlice = "_slice_";
  const size_t begin = path.rfind(kSlice);
  if (begin == std::string_view::npos) return std::nullopt;
  const char* first = path.data() + begin + kSlice.size();
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(first, path.data() + path.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

// Slices are numbered from 0 without gaps: what a missing one held lies within some pass.
void report_missing_slices(const AscendFolder& folder, std::vector<Finding>& findings) {
  std::set<uint32_t> numbers;
  for (const std::string& path : folder.tables) {
    if (const std::optional<uint32_t> number = slice_number(path)) numbers.insert(*number);
  }
  if (numbers.empty() || *numbers.rbegin() + uint64_t{1} == numbers.size()) return;
  const uint64_t missing = *numbers.rbegin() + uint64_t{1} - numbers.size();
  findings.push_back({Severity::kWarning, "slices-missing",
                      fmt::format("{}: {} of the slices 0 to {} are not there: passes beside the "
                                  "gaps are not whole, whatever they look like",
                                  folder.path, missing, *numbers.rbegin()),
                      kNoIndex, missing});
}

// Nothing: no source has kernels; `findings` say why.
std::optional<CaptureTable> read_best_source(const AscendFolder& folder,
                                             const CaptureReadOptions& options,
                                             std::vector<Finding>& findings) {
  std::optional<CaptureTable> table = read_tables(folder.tables, options, findings);
  report_missing_slices(folder, findings);
  if (table && table->size() == 0) {
    findings.insert(findings.end(), table->findings.begin(), table->findings.end());
    table.reset();
  }
  if (!table) table = read_databases(folder.databases, options, findings);
  if (!table) table = read_timelines(folder.timelines, options, findings);
  return table;
}

void cross_check(const AscendFolder& folder, std::string_view key, CaptureTable& table) {
  if (!folder.step_trace.empty()) {
    Result<InputStream> input = InputStream::open_file(folder.step_trace);
    const Result<StepTrace> trace =
        input ? read_step_trace(std::move(*input)) : Result<StepTrace>(std::move(input).error());
    if (trace) {
      check_step_trace(*trace, key, table);
    } else {
      add_unread(table.findings, trace.error().message);
    }
  }
  if (!folder.communication.empty()) {
    Result<InputStream> input = InputStream::open_file(folder.communication);
    const Result<CommunicationJoin> join =
        input ? join_communication_json(std::move(*input), table)
              : Result<CommunicationJoin>(std::move(input).error());
    if (join) return;
    add_unread(table.findings, join.error().message);
  }
  if (folder.analysis_database.empty()) return;
  const Result<uint64_t> count = join_ascend_analysis_db(table, folder.analysis_database);
  if (!count) {
    add_unread(table.findings, count.error().message);
    return;
  }
  table.findings.push_back(
      {Severity::kInfo, "communication-joined",
       fmt::format("{}: wait and transit of {} collectives", folder.analysis_database, *count),
       kNoIndex, *count});
}

// Before names of properties: the rank's where each folder has one of its own, else their places.
std::string property_key(const std::vector<AscendFolder>& folders, const AscendFolder& folder) {
  if (folders.size() == 1) return "ascend.";
  std::set<int32_t> ranks;
  for (const AscendFolder& other : folders) {
    if (other.rank >= 0) ranks.insert(other.rank);
  }
  if (ranks.size() == folders.size()) return fmt::format("ascend.rank{}.", folder.rank);
  return fmt::format("ascend.folder{}.", &folder - folders.data());
}

struct RankTable {
  AscendFolder folder;
  CaptureTable table;
};

// One number for each device of each rank: the ranks' own where each has one device and a rank of
// its own, else counted up.
void number_devices(std::vector<RankTable>& ranks) {
  std::vector<std::set<int32_t>> devices;
  std::set<int32_t> all_devices;
  std::set<int32_t> all_ranks;
  size_t device_count = 0;
  for (const RankTable& rank : ranks) {
    devices.emplace_back(rank.table.device.begin(), rank.table.device.end());
    all_devices.insert(devices.back().begin(), devices.back().end());
    device_count += devices.back().size();
    if (rank.folder.rank >= 0) all_ranks.insert(rank.folder.rank);
  }
  if (all_devices.size() == device_count) return;
  const bool by_rank = all_ranks.size() == ranks.size() && device_count == ranks.size();
  int32_t next_device = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::map<int32_t, int32_t> numbers;
    for (const int32_t device : devices[i]) {
      numbers[device] = by_rank ? ranks[i].folder.rank : next_device++;
    }
    for (int32_t& device : ranks[i].table.device) device = numbers[device];
  }
  ranks.front().table.findings.push_back(
      {Severity::kInfo, "devices-are-ranks",
       fmt::format("{} ranks have {} device numbers between them: devices are numbered by {} here",
                   ranks.size(), all_devices.size(),
                   by_rank ? "rank" : "the order of their folders"),
       kNoIndex, ranks.size()});
}

// Ranks of one run overlap in time.
void compare_ranks(const std::vector<RankTable>& ranks, std::vector<Finding>& findings) {
  int64_t first_end_ns = std::numeric_limits<int64_t>::max();
  int64_t last_begin_ns = std::numeric_limits<int64_t>::min();
  for (const RankTable& rank : ranks) {
    const auto [begin, last] =
        std::minmax_element(rank.table.start_ns.begin(), rank.table.start_ns.end());
    first_end_ns = std::min(first_end_ns, *last);
    last_begin_ns = std::max(last_begin_ns, *begin);
  }
  if (last_begin_ns <= first_end_ns) return;
  findings.push_back(
      {Severity::kWarning, "ranks-apart",
       fmt::format("one of {} ranks ends {} ns before another begins: they are no ranks of one "
                   "run; read them one by one",
                   ranks.size(), last_begin_ns - first_end_ns),
       kNoIndex, 1});
}

Result<CaptureTable> join_ranks(std::vector<RankTable> ranks, std::vector<Finding> findings,
                                const std::string& path) {
  if (ranks.empty()) {
    std::string reasons;
    for (const Finding& finding : findings) {
      if (finding.code == "source-unread")
        reasons += (reasons.empty() ? ": " : "; ") + finding.text;
    }
    return fail(ErrorCode::kInvalidInput, "{}: no source of kernels can be read{}", path, reasons);
  }
  number_devices(ranks);
  uint64_t row_count = 0;
  for (const RankTable& rank : ranks) row_count += rank.table.size();
  if (row_count >= kNoIndex) {
    return fail(ErrorCode::kInvalidInput,
                "{}: {} rows in all ranks; {} at most can be read at once", path, row_count,
                kNoIndex - 1);
  }
  CaptureTable table;
  const size_t rank_count = ranks.size();
  if (rank_count > 1) compare_ranks(ranks, findings);
  if (rank_count == 1) table = std::move(ranks.front().table);
  for (size_t i = 0; rank_count > 1 && i < rank_count; ++i) {
    append_capture(table, std::move(ranks[i].table));
    ranks[i].table = {};
  }
  if (rank_count > 1) put_in_order(table);
  table.findings.insert(table.findings.begin(), findings.begin(), findings.end());
  table.properties.push_back({"ascend.folder", path});
  table.properties.push_back({"ascend.rank_count", std::to_string(rank_count)});
  return table;
}

}  // namespace

Result<CaptureTable> read_ascend_folder(const std::string& path,
                                        const CaptureReadOptions& options) {
  const std::vector<AscendFolder> folders = find_ascend_folders(path);
  if (folders.empty()) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no output of the Ascend profiler in it; looked for kernel_details.csv, "
                "op_summary*.csv, trace_view.json, msprof*.json and databases, two levels deep",
                path);
  }
  std::vector<RankTable> ranks;
  std::vector<Finding> findings;
  for (const AscendFolder& folder : folders) {
    if (!folder.is_finished) {
      findings.push_back({Severity::kWarning, "incomplete",
                          fmt::format("{}: no analyse.done: the profiler's analysis did not end, "
                                      "and files may be incomplete",
                                      folder.path),
                          kNoIndex, 1});
    }
    CaptureReadOptions rank_options = options;
    if (folder.rank >= 0) rank_options.default_device = folder.rank;
    if (folder.device >= 0) rank_options.default_device = folder.device;
    std::optional<CaptureTable> table = read_best_source(folder, rank_options, findings);
    if (!table) continue;
    const std::string key = property_key(folders, folder);
    cross_check(folder, key, *table);
    ranks.push_back({folder, std::move(*table)});
  }
  return join_ranks(std::move(ranks), std::move(findings), path);
}

}  // namespace gapless
