// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_csv.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "formats/ascend_csv_reader.h"

namespace gapless {
namespace {

constexpr int64_t kHourNs = 3'600'000'000'000;

void add_finding(CaptureTable& table, Severity severity, std::string_view code, uint64_t count,
                 std::string text) {
  table.findings.push_back({severity, std::string(code), std::move(text), kNoIndex, count});
}

// Takes rows out of `rows` (in the order of device and start) that equal one before them in the
// order of the files. Only rows that start together can.
uint64_t drop_duplicates(const CaptureTable& table, const std::vector<uint32_t>& contexts,
                         std::vector<uint32_t>& rows) {
  const auto key = [&](uint32_t row) {
    return std::make_tuple(table.duration_ns[row], table.name[row], table.stream[row],
                           table.task[row], contexts[row]);
  };
  const auto is_before = [&key](uint32_t a, uint32_t b) { return key(a) < key(b); };
  const auto is_same = [&key](uint32_t a, uint32_t b) { return key(a) == key(b); };
  auto begin = rows.begin();
  auto used = rows.begin();
  while (begin != rows.end()) {
    const auto starts_later = [&table, first = *begin](uint32_t row) {
      return table.start_ns[row] != table.start_ns[first] ||
             table.device[row] != table.device[first];
    };
    const auto end = std::find_if(begin + 1, rows.end(), starts_later);
    auto kept_end = end;
    if (end - begin > 1) {
      std::stable_sort(begin, end, is_before);
      kept_end = std::unique(begin, end, is_same);
      std::sort(begin, kept_end);  // rows are numbered in the order of the files
    }
    used = std::copy(begin, kept_end, used);
    begin = end;
  }
  const uint64_t dropped_count = static_cast<uint64_t>(rows.end() - used);
  rows.erase(used, rows.end());
  return dropped_count;
}

void put_in_order(CaptureTable& table, const AscendCsvReader& reader, bool keep_duplicates) {
  std::vector<uint32_t> rows = rows_in_order(table);
  const uint64_t duplicate_count =
      keep_duplicates ? 0 : drop_duplicates(table, reader.contexts(), rows);
  if (duplicate_count > 0 || !std::is_sorted(rows.begin(), rows.end())) keep_rows(table, rows);
  table.dropped_count += duplicate_count;
  if (duplicate_count > 0) {
    add_finding(table, Severity::kWarning, "duplicate-rows", duplicate_count,
                fmt::format("{} rows equal another one in device, stream, task, start, duration "
                            "and name; dropped",
                            duplicate_count));
  }
  if (table.order_break_count > 0) {
    add_finding(table, Severity::kInfo, "order-breaks", table.order_break_count,
                fmt::format("{} rows start before the row of their device above them; all rows "
                            "were put in order",
                            table.order_break_count));
  }
}

// When one file has rows of one device.
struct FileRange {
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  int32_t device = 0;
  uint32_t source = 0;
};

// In the order of device and time.
std::vector<FileRange> file_ranges(const CaptureTable& table) {
  std::map<std::pair<int32_t, std::string_view>, FileRange> ranges;  // by device and path
  for (size_t row = 0; row < table.size(); ++row) {
    const uint32_t source = table.source[row];
    const int64_t start_ns = table.start_ns[row];
    const FileRange fresh{start_ns, start_ns, table.device[row], source};
    const auto entry =
        ranges.try_emplace({table.device[row], table.sources[source].path}, fresh).first;
    entry->second.last_ns = start_ns;  // rows are in the order of their start
  }
  std::vector<FileRange> sorted;
  for (const auto& [key, range] : ranges) sorted.push_back(range);
  std::sort(sorted.begin(), sorted.end(), [](const FileRange& a, const FileRange& b) {
    return std::tie(a.device, a.first_ns, a.source) < std::tie(b.device, b.first_ns, b.source);
  });
  return sorted;
}

// Slices of one capture follow each other. Files that overlap are of several ranks or captures, and
// such that lie hours apart are not of one clock.
void compare_files(CaptureTable& table) {
  if (table.sources.size() < 2) return;
  const std::vector<FileRange> ranges = file_ranges(table);
  size_t before = 0;  // of the files so far, the one that ends last
  for (size_t i = 1; i < ranges.size(); ++i) {
    const FileRange& a = ranges[before];
    const FileRange& b = ranges[i];
    if (a.device != b.device || b.last_ns > a.last_ns) before = i;
    if (a.device != b.device) continue;
    const std::string names =
        fmt::format("{} and {}", table.sources[a.source].path, table.sources[b.source].path);
    if (b.first_ns < a.last_ns) {
      add_finding(table, Severity::kWarning, "files-overlap", 1,
                  fmt::format("{} have rows of one device at the same time: they are no slices of "
                              "one capture; read ranks one by one",
                              names));
    } else if (b.first_ns - a.last_ns > kHourNs) {
      add_finding(table, Severity::kWarning, "files-apart", 1,
                  fmt::format("{} lie {} hours apart: times of different captures cannot be "
                              "compared",
                              names, (b.first_ns - a.last_ns) / kHourNs));
    }
  }
}

void report_kinds(CaptureTable& table) {
  const std::array<KernelSum, kKernelKindCount> sums = kernel_sums(table);
  const auto count_of = [&sums](KernelKind kind) { return sums[static_cast<size_t>(kind)].count; };
  const uint64_t summary_count = count_of(KernelKind::kCollective);
  const uint64_t fragment_count = count_of(KernelKind::kFragment);
  const uint64_t wrapper_count = count_of(KernelKind::kAiCpuCollective);
  const std::array<uint64_t, 3> accounts = {summary_count, fragment_count, wrapper_count};
  if (std::count(accounts.begin(), accounts.end(), 0u) > 1) return;
  add_finding(table, Severity::kInfo, "collectives-repeated", fragment_count + wrapper_count,
              fmt::format("{} summaries of collectives, {} of their kernels on streams and {} AI "
                          "CPU wrappers are here: the same time more than once",
                          summary_count, fragment_count, wrapper_count));
}

Result<void> finish(CaptureTable& table, const AscendCsvReader& reader,
                    const AscendCsvOptions& options) {
  const RowEvents& events = reader.events();
  table.dropped_count = events.dropped_count();
  if (table.size() == 0 && table.dropped_count > 0) {
    const RowEvent reason = events.main_reason();
    return fail(ErrorCode::kInvalidInput, "{}: none of the {} rows can be used: {} {}",
                table.sources.front().path, table.dropped_count, events.count_of(reason),
                row_event_text(reason));
  }
  if (table.size() == 0) {
    add_finding(table, Severity::kWarning, "no-rows", 1,
                fmt::format("{}: a header and no rows", table.sources.front().path));
  }
  const uint64_t tail_count = events.count_of(RowEvent::kTailIgnored);
  if (table.size() > 1 && tail_count == table.size()) {
    return fail(
        ErrorCode::kInvalidInput,
        "{}: each of its {} rows has more cells than the header has columns: the numbers in "
        "it may have decimal commas",
        table.sources.front().path, tail_count);
  }
  table.types_derived = table.derived_type_count > 0;
  put_in_order(table, reader, options.keep_duplicates);
  events.report(table);
  report_kinds(table);
  compare_files(table);
  return {};
}

bool starts_as_gzip(const std::string& path) {
  char magic[2] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return magic[0] == '\x1f' && magic[1] == '\x8b';
}

uint64_t file_bytes(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

// The first line with anything on it. Of UTF-16 the half of the bytes that are text.
std::string first_line(std::string_view bytes) {
  std::string text(bytes);
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) {
    text.erase(0, 2);
    std::erase(text, '\0');
  }
  const size_t begin = text.find_first_not_of("\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_first_of("\r\n", begin) - begin);
}

}  // namespace

bool looks_like_ascend_csv(std::string_view first_bytes) {
  constexpr size_t kLookedAtBytes = 16 << 10;
  const std::string line = first_line(first_bytes.substr(0, kLookedAtBytes));
  return parse_ascend_header(split_cells(line, ',')) || foreign_separator(line) != 0;
}

bool looks_like_lfs_pointer(std::string_view first_bytes) {
  return first_bytes.starts_with("version https://git-lfs");
}

Result<CaptureTable> read_ascend_csv(std::span<const std::string> paths,
                                     const AscendCsvOptions& options) {
  if (paths.empty()) return fail(ErrorCode::kUsage, "no kernel table to read");
  uint64_t total_bytes = 0;
  for (const std::string& path : paths) total_bytes += file_bytes(path);
  CaptureTable table;
  table.format = "ascend-csv";
  AscendCsvReader reader(table, options);
  uint64_t done_bytes = 0;
  for (const std::string& path : paths) {
    InputStream input = GAPLESS_TRY(InputStream::open_file(path));
    Progress progress;
    if (options.progress) {
      progress = [&options, done_bytes, total_bytes](uint64_t done, uint64_t) {
        options.progress(done_bytes + done, total_bytes);
      };
    }
    GAPLESS_TRY(reader.read(input, starts_as_gzip(path), std::move(progress)));
    done_bytes += file_bytes(path);
  }
  GAPLESS_TRY(finish(table, reader, options));
  return table;
}

Result<CaptureTable> read_ascend_csv(InputStream input, const AscendCsvOptions& options) {
  CaptureTable table;
  table.format = "ascend-csv";
  AscendCsvReader reader(table, options);
  GAPLESS_TRY(reader.read(input, false, options.progress));
  GAPLESS_TRY(finish(table, reader, options));
  return table;
}

}  // namespace gapless
