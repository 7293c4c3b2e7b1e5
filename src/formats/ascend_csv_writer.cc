// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_csv_writer.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/decimal.h"
#include "base/mix_bits.h"
#include "formats/ascend_columns.h"

namespace gapless {
namespace {

using Column = WrittenColumn;

constexpr std::string_view kMissing = "N/A";
constexpr std::string_view kNoModel = "4294967295";
constexpr std::string_view kSliceStamp = "20251127123437";
constexpr size_t kProgressRows = 32 * 1024;
// Doubles of sixteen digits are so far apart: where the profiler's waiting times come from.
constexpr int64_t kDoubleGridNs = 250;
constexpr int kCubeBlocks = 20;
constexpr int kVectorBlocks = 40;
constexpr int64_t kCyclesPerUs = 1800;

// Cells that follow from a shape text.
struct ShapeCells {
  std::string shapes;
  std::string types;
  std::string formats;
  bool is_made = false;
};

// What a core's row has counters of.
enum class CoreClass : uint8_t { kOther, kCube, kVector, kMixed };

CoreClass core_class(std::string_view core) {
  if (core == "AI_CORE") return CoreClass::kCube;
  if (core == "AI_VECTOR_CORE") return CoreClass::kVector;
  return core.starts_with("MIX_") ? CoreClass::kMixed : CoreClass::kOther;
}

void append_integer(std::string& out, int64_t value) {
  char text[24];
  out.append(text, write_integer(text, value));
}

void append_microseconds(std::string& out, int64_t ns) {
  char text[32];
  out.append(text, write_microseconds(text, ns));
}

// 0.345 for 345.
void append_ratio(std::string& out, int64_t permille) { append_microseconds(out, permille); }

void append_quoted_if_needed(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char letter : text) {
    if (letter == '"') out += '"';
    out += letter;
  }
  out += '"';
}

class RowWriter {
 public:
  RowWriter(const CaptureTable& table, const AscendWriteOptions& options, bool has_steps)
      : table_(table),
        options_(options),
        cells_(written_columns(options, has_steps)),
        shapes_(table.names.size()),
        line_end_(options.carriage_returns ? "\r\n" : "\n") {
    classes_.reserve(table.names.size());
    for (uint32_t name = 0; name < table.names.size(); ++name) {
      classes_.push_back(core_class(table.names[name]));
    }
  }

  Result<uint64_t> write(const std::string& path, std::span<const uint32_t> rows,
                         std::span<const uint32_t> headers_before);
  std::string header() const;

 private:
  void append_cell(const WrittenCell& cell, uint32_t row);
  void append_place_cell(Column column, uint32_t row);
  void append_kernel_cell(Column column, uint32_t row);
  void append_shape_cell(Column column, uint32_t row);
  void append_text(uint32_t name);
  void append_start(int64_t start_ns);
  void append_duration(int64_t duration_ns);
  void append_wait(uint32_t row);
  void append_counters(uint32_t row);
  void append_core_counters(uint32_t row, bool is_used, int unit_count);
  const ShapeCells& shape_cells(uint32_t name);
  bool is_collective(uint32_t row) const {
    return table_.kind[row] == KernelKind::kCollective || table_.kind[row] == KernelKind::kFragment;
  }
  CoreClass class_of(uint32_t row) const {
    if (!options_.has_types || is_collective(row)) return CoreClass::kOther;
    if (table_.core[row] == kNoIndex) return CoreClass::kOther;
    return classes_[table_.core[row]];
  }

  const CaptureTable& table_;
  const AscendWriteOptions& options_;
  std::vector<WrittenCell> cells_;
  std::vector<ShapeCells> shapes_;  // by name
  std::vector<CoreClass> classes_;  // by name
  std::string_view line_end_;
  std::string line_;
  uint32_t last_row_ = kNoIndex;
};

std::string RowWriter::header() const {
  std::string text;
  for (const WrittenCell& cell : cells_) {
    if (!text.empty()) text += ',';
    text += cell.header;
  }
  return text;
}

// Names in kernel_details.csv are quoted where that is needed; op_summary*.csv never quotes.
void RowWriter::append_text(uint32_t name) {
  if (name == kNoIndex) {
    line_ += kMissing;
  } else if (options_.naming == AscendNaming::kOpSummary) {
    line_ += table_.names[name];
  } else {
    append_quoted_if_needed(line_, table_.names[name]);
  }
}

void RowWriter::append_start(int64_t start_ns) {
  const bool is_quoted = options_.start_style == AscendStartStyle::kQuotedTab;
  if (is_quoted) line_ += '"';
  append_microseconds(line_, start_ns);
  if (options_.start_style != AscendStartStyle::kPlain) line_ += '\t';
  if (is_quoted) line_ += '"';
}

void RowWriter::append_duration(int64_t duration_ns) {
  append_microseconds(line_, duration_ns);
  if (!options_.trims_zeros) return;
  while (line_.back() == '0' && line_[line_.size() - 2] != '.') line_.pop_back();
}

// From the end of the row above, whatever its stream; the profiler loses digits on the way.
void RowWriter::append_wait(uint32_t row) {
  const bool is_recent = options_.header >= 8;
  if (last_row_ == kNoIndex) {
    line_ += '0';
    return;
  }
  int64_t wait_ns = table_.start_ns[row] - table_.end_ns(last_row_);
  if (is_recent) {
    const auto grid = [](int64_t time_ns) {
      return (time_ns + kDoubleGridNs / 2) / kDoubleGridNs * kDoubleGridNs;
    };
    wait_ns = grid(table_.start_ns[row]) - grid(table_.end_ns(last_row_));
  }
  append_microseconds(line_, std::max<int64_t>(wait_ns, 0));
  if (is_recent) line_ += "000";
}

const ShapeCells& RowWriter::shape_cells(uint32_t name) {
  ShapeCells& cells = shapes_[name];
  if (cells.is_made) return cells;
  const std::string_view shapes = table_.names[name];
  cells.is_made = true;
  cells.shapes = options_.triple_quotes ? fmt::format("\"\"\"{}\"\"\"", shapes)
                                        : fmt::format("\"{}\"", shapes);
  size_t begin = 0;
  while (begin <= shapes.size()) {
    const size_t end = std::min(shapes.find(';', begin), shapes.size());
    if (begin > 0) cells.types += ';';
    if (begin > 0) cells.formats += ';';
    cells.types += end == begin ? "DT_UNDEFINED" : "DT_BF16";
    cells.formats += end == begin ? "NULL" : "ND";
    begin = end + 1;
  }
  return cells;
}

void RowWriter::append_shape_cell(Column column, uint32_t row) {
  const bool is_input = column == Column::kInputShapes || column == Column::kInputTypes ||
                        column == Column::kInputFormats;
  const uint32_t name = is_input ? table_.input_shapes[row] : table_.output_shapes[row];
  if (name == kNoIndex) {
    line_ += kMissing;
    return;
  }
  const ShapeCells& cells = shape_cells(name);
  if (column == Column::kInputShapes || column == Column::kOutputShapes) {
    line_ += cells.shapes;
  } else if (column == Column::kInputTypes || column == Column::kOutputTypes) {
    line_ += cells.types;
  } else {
    line_ += cells.formats;
  }
}

// 0 for each of those of a core that the kernel does not use. Times and shares are those of the
// kernel's name, so that rows of one kernel are alike.
void RowWriter::append_core_counters(uint32_t row, bool is_used, int unit_count) {
  if (!is_used) {
    line_ += "0.0,0";
    for (int unit = 0; unit < unit_count; ++unit) line_ += ",0.0,0.0";
    line_ += ",0.0";
    return;
  }
  uint64_t bits = mix_bits(table_.name[row] + static_cast<uint64_t>(unit_count));
  const int64_t active_ns = table_.duration_ns[row] / 100 * 97;
  append_microseconds(line_, active_ns);
  line_ += ',';
  append_integer(line_, active_ns * kCyclesPerUs / 1000 * kCubeBlocks);
  for (int unit = 0; unit < unit_count; ++unit, bits >>= 10) {
    const int64_t permille = static_cast<int64_t>(bits % 1000);
    line_ += ',';
    append_microseconds(line_, active_ns * permille / 1000);
    line_ += ',';
    append_ratio(line_, permille);
  }
  line_ += ',';
  append_ratio(line_, static_cast<int64_t>(bits % 50));
}

void RowWriter::append_counters(uint32_t row) {
  const CoreClass core = class_of(row);
  if (core == CoreClass::kOther) {
    line_ += kMissing;
    for (int i = 1; i < kCounterCount; ++i) line_ += ",N/A";
    return;
  }
  append_core_counters(row, core != CoreClass::kVector, 5);
  line_ += ',';
  append_core_counters(row, core != CoreClass::kCube, 4);
  line_ += core == CoreClass::kVector ? ",0" : ",95.517";
}

void RowWriter::append_place_cell(Column column, uint32_t row) {
  if (column == Column::kStep) {
    if (table_.step[row] != kNoIndex) line_ += table_.names[table_.step[row]];
  } else if (column == Column::kDevice && table_.device[row] != CaptureTable::kNoDevice) {
    append_integer(line_, table_.device[row]);
  } else if (column == Column::kTask && table_.task[row] != kNoIndex) {
    append_integer(line_, table_.task[row]);
  } else if (column == Column::kStream && table_.stream[row] != CaptureTable::kNoStream) {
    append_integer(line_, table_.stream[row]);
  } else if (column == Column::kModelId) {
    line_ += kNoModel;
  } else {
    line_ += kMissing;
  }
}

void RowWriter::append_kernel_cell(Column column, uint32_t row) {
  const bool is_shape = column == Column::kInputShapes || column == Column::kOutputShapes;
  if (!options_.makes_up_cells && !is_shape) {
    line_ += kMissing;
    return;
  }
  const CoreClass core = class_of(row);
  const bool is_mixed = core == CoreClass::kMixed;
  switch (column) {
    case Column::kOpState:
      line_ += is_collective(row) ? "N/A" : "dynamic";
      break;
    case Column::kBlocks:
      append_integer(line_, core == CoreClass::kOther    ? 0
                            : core == CoreClass::kVector ? kVectorBlocks
                                                         : kCubeBlocks);
      break;
    case Column::kMixBlocks:
      if (is_collective(row)) {
        line_ += kMissing;
      } else {
        append_integer(line_, is_mixed ? kVectorBlocks : 0);
      }
      break;
    case Column::kHf32:
      line_ += is_collective(row) ? "N/A" : "NO";
      break;
    case Column::kContext:
      line_ += is_mixed ? "0" : "N/A";
      break;
    default:
      append_shape_cell(column, row);
      break;
  }
}

void RowWriter::append_cell(const WrittenCell& cell, uint32_t row) {
  switch (cell.column) {
    case Column::kModelName:
    case Column::kStep:
    case Column::kDevice:
    case Column::kModelId:
    case Column::kTask:
    case Column::kStream:
    case Column::kInferId:
      append_place_cell(cell.column, row);
      break;
    case Column::kName:
      append_text(table_.name[row]);
      break;
    case Column::kType:
      append_text(options_.has_types ? table_.type[row] : kNoIndex);
      break;
    case Column::kCore:
      if (is_collective(row) && table_.core[row] == kNoIndex) {
        line_ += "COMMUNICATION";  // what makes it a collective for those who read this
      } else {
        append_text(options_.has_types || is_collective(row) ? table_.core[row] : kNoIndex);
      }
      break;
    case Column::kStart:
      append_start(table_.start_ns[row]);
      break;
    case Column::kDuration:
      append_duration(table_.duration_ns[row]);
      break;
    case Column::kWait:
      append_wait(row);
      break;
    case Column::kCounters:
      append_counters(row);
      break;
    case Column::kExtra:
      append_text(cell.extra->text[row]);
      break;
    default:
      append_kernel_cell(cell.column, row);
      break;
  }
}

Result<uint64_t> RowWriter::write(const std::string& path, std::span<const uint32_t> rows,
                                  std::span<const uint32_t> headers_before) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  const std::string header_text = header();
  if (options_.byte_order_mark) file.append("\xef\xbb\xbf");
  file.append(header_text);
  last_row_ = kNoIndex;
  for (size_t place = 0; place < rows.size(); ++place) {
    line_ = line_end_;
    while (!headers_before.empty() && headers_before.front() == place) {
      line_ += header_text;
      line_ += line_end_;
      headers_before = headers_before.subspan(1);
    }
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (i > 0) line_ += ',';
      append_cell(cells_[i], rows[place]);
    }
    last_row_ = rows[place];
    file.append(line_);
    if (options_.progress && place % kProgressRows == 0) options_.progress(place, rows.size());
  }
  if (options_.ends_with_line_break) file.append(line_end_);
  const uint64_t bytes = file.bytes_written();
  GAPLESS_TRY(file.commit());
  return bytes;
}

bool has_steps(const CaptureTable& table) {
  return std::any_of(table.step.begin(), table.step.end(),
                     [](uint32_t step) { return step != kNoIndex; });
}

std::vector<uint32_t> all_rows(const CaptureTable& table) {
  std::vector<uint32_t> rows(table.size());
  std::iota(rows.begin(), rows.end(), uint32_t{0});
  return rows;
}

Result<void> check_options(const CaptureTable& table, const AscendWriteOptions& options) {
  if (options.header < 0 || options.header >= kAscendHeaderCount) {
    return fail(ErrorCode::kInvalidInput, "header {}; 0 to {} are possible", options.header,
                kAscendHeaderCount - 1);
  }
  for (const uint32_t row : options.rows) {
    if (row >= table.size()) {
      return fail(ErrorCode::kInvalidInput, "row {} of a table with {}", row, table.size());
    }
  }
  for (const AscendExtraColumn& extra : options.extra_columns) {
    if (extra.text.size() != table.size()) {
      return fail(ErrorCode::kInvalidInput, "column {} has {} cells for {} rows", extra.header,
                  extra.text.size(), table.size());
    }
  }
  if (!std::is_sorted(options.headers_before.begin(), options.headers_before.end())) {
    return fail(ErrorCode::kInvalidInput, "the places of repeated headers do not ascend");
  }
  return {};
}

}  // namespace

std::string ascend_header_text(const AscendWriteOptions& options, bool has_steps) {
  const CaptureTable empty;
  return RowWriter(empty, options, has_steps).header();
}

Result<uint64_t> write_ascend_csv(const CaptureTable& table, const std::string& path,
                                  const AscendWriteOptions& options) {
  GAPLESS_TRY(check_options(table, options));
  const std::vector<uint32_t> rows = options.rows.empty() ? all_rows(table) : options.rows;
  return RowWriter(table, options, has_steps(table)).write(path, rows, options.headers_before);
}

Result<std::vector<std::string>> write_ascend_slices(const CaptureTable& table,
                                                     const std::string& folder,
                                                     const AscendWriteOptions& options,
                                                     uint64_t slice_rows) {
  GAPLESS_TRY(check_options(table, options));
  if (slice_rows == 0) return fail(ErrorCode::kInvalidInput, "slices of 0 rows");
  GAPLESS_TRY(make_directories(folder));
  const std::vector<uint32_t> rows = options.rows.empty() ? all_rows(table) : options.rows;
  RowWriter writer(table, options, has_steps(table));
  std::vector<std::string> paths;
  const bool is_one = rows.size() <= slice_rows;
  for (uint64_t begin = 0; begin < rows.size() || paths.empty(); begin += slice_rows) {
    const uint64_t end = std::min<uint64_t>(begin + slice_rows, rows.size());
    std::vector<uint32_t> headers_before;
    for (const uint32_t place : options.headers_before) {
      if (place >= begin && place < end) {
        headers_before.push_back(static_cast<uint32_t>(place - begin));
      }
    }
    const std::string name =
        is_one ? fmt::format("op_summary_{}.csv", kSliceStamp)
               : fmt::format("op_summary_slice_{}_{}.csv", paths.size(), kSliceStamp);
    paths.push_back(folder + "/" + name);
    const std::span<const uint32_t> slice = std::span(rows).subspan(begin, end - begin);
    GAPLESS_TRY(writer.write(paths.back(), slice, headers_before));
  }
  return paths;
}

}  // namespace gapless
