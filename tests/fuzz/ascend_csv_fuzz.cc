// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over the CSV reader and the kernel tables of the Ascend profiler. Whatever comes in,
// records must tile the input and not depend on the window; every row must be in the table or
// counted as dropped; rows must be in order, within the range of times, and lie where the table
// says; and tasks of one lane of the trace must not overlap.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "base/csv_reader.h"
#include "formats/ascend_csv.h"
#include "trace/capture_trace.h"

namespace {

using gapless::CaptureTable;
using gapless::CsvReader;
using gapless::CsvRecord;
using gapless::InputStream;
using gapless::Trace;

void require(bool condition) {
  if (!condition) std::abort();
}

InputStream stream_of(std::string_view text) {
  return InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "fuzz");
}

void check_records(std::string_view text) {
  InputStream wide_input = stream_of(text);
  InputStream narrow_input = stream_of(text);
  CsvReader wide(wide_input, {});
  CsvReader narrow(narrow_input, {.start_bytes = 16});
  CsvRecord a;
  CsvRecord b;
  bool is_first = true;
  uint64_t end = 0;
  while (true) {
    const gapless::Result<bool> more = wide.next(a);
    const gapless::Result<bool> more_narrow = narrow.next(b);
    require(more.has_value() && more_narrow.has_value() && *more == *more_narrow);
    if (!*more) return;
    if (is_first) end = wide.has_byte_order_mark() ? 3 : 0;
    is_first = false;
    require(a.offset == end && b.offset == end);
    require(a.text == b.text && a.line_end == b.line_end && a.fields.size() == b.fields.size());
    require(a.has_line_breaks == b.has_line_breaks);
    for (size_t i = 0; i < a.fields.size(); ++i) require(a.fields[i].text == b.fields[i].text);
    end += a.text.size() + a.line_end.size();
  }
}

void check_table(const CaptureTable& table, std::string_view text, bool is_gzip) {
  gapless::for_each_kernel_column(table, [&table](const auto& column) {
    require(column.empty() || column.size() == table.size());
  });
  require(table.start_ns.size() == table.size() && table.text_bytes.size() == table.size());
  uint64_t row_count = 0;
  for (const gapless::KernelSource& source : table.sources) row_count += source.row_count;
  require(row_count == table.size() + table.dropped_count);
  for (size_t row = 0; row < table.size(); ++row) {
    require(table.start_ns[row] > 0 && table.duration_ns[row] >= 0);
    require(table.end_ns(row) <= gapless::kMaxTimeNs);
    require(table.name[row] < table.names.size());
    require(table.source[row] < table.sources.size());
    require(is_gzip || table.text_offset[row] + table.text_bytes[row] <= text.size());
    if (row == 0 || table.device[row] != table.device[row - 1]) continue;
    require(table.start_ns[row] >= table.start_ns[row - 1]);
  }
}

void check_trace(const CaptureTable& table) {
  const Trace trace = gapless::trace_of(table);
  require(trace.tasks.size() == table.size());
  std::vector<int64_t> ends(trace.lanes.size(), 0);
  for (size_t row = 0; row < table.size(); ++row) {
    int64_t& end_ns = ends.at(trace.tasks.lane[row]);
    require(end_ns <= table.start_ns[row]);
    end_ns = table.end_ns(row);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_gzip = text.starts_with("\x1f\x8b");
  check_records(text);
  gapless::looks_like_ascend_csv(text);
  const gapless::Result<CaptureTable> table =
      gapless::read_ascend_csv(stream_of(text), {.keep_duplicates = size % 2 == 1});
  if (!table) return 0;
  check_table(*table, text, is_gzip);
  check_trace(*table);
  return 0;
}
