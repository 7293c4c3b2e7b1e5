// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_csv_reader.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "formats/ascend_kinds.h"

namespace gapless {
namespace {

Result<void> refuse_lfs_pointer(CsvReader& csv, CsvRecord& record, const std::string& path) {
  constexpr std::string_view kSize = "size ";
  std::string size = "unknown";
  while (GAPLESS_TRY(csv.next(record))) {
    if (record.text.starts_with(kSize)) size = std::string(record.text.substr(kSize.size()));
  }
  return fail(ErrorCode::kInvalidInput,
              "{}: a git-lfs pointer in the place of the file (size {} bytes); run `git lfs pull` "
              "in its repository first",
              path, size);
}

// A header that comes after other files may still have its byte order mark.
std::string_view header_text(const CsvRecord& record) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::string_view text = record.text;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

// Of the columns without which there are no kernels, those that the record does not name.
std::string missing_columns(const CsvRecord& record) {
  constexpr std::pair<AscendColumn, std::string_view> kNeeded[] = {
      {AscendColumn::kName, "Name"},
      {AscendColumn::kStart, "Start Time(us)"},
      {AscendColumn::kDuration, "Duration(us)"}};
  std::string missing;
  for (const std::pair<AscendColumn, std::string_view>& needed : kNeeded) {
    const auto is_needed = [&needed](const CsvField& cell) {
      return ascend_column(cell.text) == needed.first;
    };
    if (std::any_of(record.fields.begin(), record.fields.end(), is_needed)) continue;
    if (!missing.empty()) missing += ", ";
    missing += needed.second;
  }
  return missing;
}

// The first line is no header: says why, as far as one can see.
Error no_header(const std::string& path, const CsvRecord& record) {
  constexpr size_t kShownBytes = 80;
  const std::string_view text = record.text;
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") ||
      text.substr(0, 4).find('\0') != std::string_view::npos) {
    return fail(ErrorCode::kInvalidInput,
                "{}: UTF-16 text; run `iconv -f UTF-16 -t UTF-8` on it first", path);
  }
  if (text.starts_with("PK\x03\x04")) {
    return fail(ErrorCode::kInvalidInput,
                "{}: a zip archive or a spreadsheet; unpack it, or export the CSV file again",
                path);
  }
  if (const char separator = foreign_separator(text); separator != 0) {
    const std::string name = separator == '\t' ? "a tab" : fmt::format("'{}'", separator);
    return fail(ErrorCode::kInvalidInput,
                "{}: columns are separated by {}, as a spreadsheet saves them; separate them by "
                "',' and write decimals with '.'",
                path, name);
  }
  return fail(ErrorCode::kInvalidInput,
              "{}: no kernel table: its first line has no column {}; it begins with \"{}\"", path,
              missing_columns(record), text.substr(0, kShownBytes));
}

}  // namespace

RecentTexts::RecentTexts(NameTable& names) : names_(names), slots_(kSlots, kNoIndex) {}

uint32_t RecentTexts::intern(std::string_view text) {
  uint32_t& slot = slots_[std::hash<std::string_view>()(text) % kSlots];
  if (slot == kNoIndex || names_[slot] != text) slot = names_.intern(text);
  return slot;
}

AscendCsvReader::AscendCsvReader(CaptureTable& table, const AscendCsvOptions& options)
    : table_(table), options_(options), texts_(table.names) {}

Result<void> AscendCsvReader::read(InputStream& input, bool is_compressed, Progress progress) {
  path_ = input.name();
  is_compressed_ = is_compressed;
  record_count_ = 0;
  CsvReader csv(input, {}, std::move(progress));
  GAPLESS_TRY(read_header(csv));
  while (GAPLESS_TRY(csv.next(record_))) GAPLESS_TRY(add_record(csv));
  if (!input.damage().empty()) {
    table_.findings.push_back(
        {Severity::kWarning, "cut-short",
         fmt::format("{}: {}; rows before that are here", path_, input.damage()), kNoIndex, 1});
  }
  return {};
}

Result<void> AscendCsvReader::read_header(CsvReader& csv) {
  do {
    if (!GAPLESS_TRY(csv.next(record_))) {
      return fail(ErrorCode::kInvalidInput, "{}: empty; a kernel table begins with a header",
                  path_);
    }
    ++record_count_;
  } while (record_.is_blank());
  if (looks_like_lfs_pointer(record_.text)) return refuse_lfs_pointer(csv, record_, path_);
  const std::optional<AscendHeader> header = parse_ascend_header(record_.fields);
  if (!header) return no_header(path_, record_);
  has_byte_order_mark_ = csv.has_byte_order_mark();
  set_header(*header);
  return {};
}

void AscendCsvReader::set_header(const AscendHeader& header) {
  constexpr std::string_view kUsualLineEnd = "\r\n";  // of Python's csv.writer
  header_ = header;
  KernelSource source;
  source.path = path_;
  source.header = std::string(header_text(record_));
  source.line_end = record_.line_end.empty() ? kUsualLineEnd : record_.line_end;
  source.has_byte_order_mark = has_byte_order_mark_;
  source.is_compressed = is_compressed_;
  table_.sources.push_back(std::move(source));
  if (header.repeated_count == 0) return;
  table_.findings.push_back(
      {Severity::kWarning, "repeated-columns",
       fmt::format("{}: {} columns say what another column says; the first is taken", path_,
                   header.repeated_count),
       kNoIndex, header.repeated_count});
}

// Files that were put together bring their headers, which may be of another year.
bool AscendCsvReader::take_repeated_header() {
  const std::optional<AscendHeader> header = parse_ascend_header(record_.fields);
  if (!header) return false;
  if (header_text(record_) == table_.sources.back().header) {
    note(RowEvent::kRepeatedHeader);
  } else {
    note(RowEvent::kChangedHeader);
    set_header(*header);
  }
  return true;
}

Result<void> AscendCsvReader::add_record(CsvReader& csv) {
  ++record_count_;
  if (record_.is_blank()) {
    note(RowEvent::kBlankLine);
    return {};
  }
  if (record_.has_line_breaks) GAPLESS_TRY(split_lines(csv));
  // Where the file stops, the quote's other half is missing, and nothing is wrong with it.
  if (record_.has_unclosed_quote && !record_.line_end.empty()) note(RowEvent::kBrokenQuotes);
  GAPLESS_TRY(add_row());
  return {};
}

// A record over several lines is a row with a line break in a name, or several rows between quotes
// that do not belong together: then its first line is a row by itself, or the whole is none.
Result<void> AscendCsvReader::split_lines(CsvReader& csv) {
  const bool may_be_row = record_.fields.size() == header_.column_count;
  csv.end_at_line_break(record_);
  AscendCells cells;
  const bool is_row = !arrange_cells(header_, record_, cells) && cells_fit(cells);
  if (!may_be_row || is_row) return {};
  csv.take_back(record_);
  GAPLESS_TRY(csv.next(record_));
  return {};
}

// False when there is no row in the record.
Result<bool> AscendCsvReader::add_row() {
  constexpr size_t kMaxRows = kNoIndex - 1;
  if (table_.size() >= kMaxRows) {
    return fail(ErrorCode::kInvalidInput, "{}: more than {} rows", path_, kMaxRows);
  }
  AscendCells cells;
  const std::optional<RowEvent> arranged = arrange_cells(header_, record_, cells);
  const std::string_view start = cells.trimmed(AscendColumn::kStart);
  const bool may_be_header = start.empty() || start.front() < '0' || start.front() > '9';
  if (may_be_header && take_repeated_header()) return false;
  ++table_.sources.back().row_count;
  if (arranged) note(*arranged);
  if (arranged && is_dropped(*arranged)) return false;

  KernelRow row;
  row.source = static_cast<uint32_t>(table_.sources.size() - 1);
  if (!GAPLESS_TRY(set_times(cells, row))) return false;
  set_numbers(cells, row);
  set_texts(cells, row);
  const AscendNumber context = parse_ascend_number(cells.at(AscendColumn::kContext).text);
  append(row, context.value.value_or(kNoIndex));
  return true;
}

Result<bool> AscendCsvReader::set_times(const AscendCells& cells, KernelRow& row) {
  const AscendTime start = parse_ascend_time(cells.at(AscendColumn::kStart).text);
  const AscendTime duration = parse_ascend_time(cells.at(AscendColumn::kDuration).text);
  if (start.has_comma || duration.has_comma) {
    const AscendColumn column = start.has_comma ? AscendColumn::kStart : AscendColumn::kDuration;
    return fail(ErrorCode::kInvalidInput,
                "{}: record {} has the time \"{}\"; write decimals with '.' and nothing between "
                "thousands",
                path_, record_count_, cells.trimmed(column));
  }
  const auto dropped = [this](RowEvent event) {
    note(event);
    return false;
  };
  if (start.is_missing) return dropped(RowEvent::kNoStart);
  if (duration.is_missing) return dropped(RowEvent::kNoDuration);
  if (!start.is_number || !duration.is_number) return dropped(RowEvent::kNotANumber);
  if (start.has_exponent) return dropped(RowEvent::kStartExponent);
  if (start.ns <= 0) return dropped(RowEvent::kStartNotPositive);
  if (duration.ns < 0) return dropped(RowEvent::kDurationNegative);
  if (start.ns > kMaxTimeNs || duration.ns > kMaxTimeNs - start.ns) {
    return dropped(RowEvent::kTimeOutOfRange);
  }
  if (duration.is_rounded) note(RowEvent::kRoundedDuration);
  row.start_ns = start.ns;
  row.duration_ns = duration.ns;
  return true;
}

void AscendCsvReader::set_numbers(const AscendCells& cells, KernelRow& row) {
  constexpr uint32_t kLargest = std::numeric_limits<int32_t>::max();
  const AscendNumber device = parse_ascend_number(cells.at(AscendColumn::kDevice).text);
  const AscendNumber stream = parse_ascend_number(cells.at(AscendColumn::kStream).text);
  const AscendNumber task = parse_ascend_number(cells.at(AscendColumn::kTask).text);
  const bool has_device = device.value && *device.value <= kLargest;
  const bool has_stream = stream.value && *stream.value <= kLargest;
  row.device = has_device ? static_cast<int32_t>(*device.value) : options_.default_device;
  row.stream = has_stream ? static_cast<int32_t>(*stream.value) : CaptureTable::kNoStream;
  row.task = task.value.value_or(kNoIndex);
  const bool is_too_large =
      device.value.has_value() != has_device || stream.value.has_value() != has_stream;
  if (device.is_odd || stream.is_odd || task.is_odd || is_too_large) note(RowEvent::kOddNumber);
}

void AscendCsvReader::set_texts(const AscendCells& cells, KernelRow& row) {
  const std::string_view name = cells.name(buffer_);
  const std::string_view core = cells.trimmed(AscendColumn::kCore);
  std::string_view type = cells.trimmed(AscendColumn::kType);
  // An old exporter writes 0 for operators that it added itself.
  if (is_missing_cell(type) || type == "0") type = {};
  row.name = texts_.intern(name);
  row.core = text_id(core);
  row.kind = ascend_kernel_kind({.name = name,
                                 .type = type,
                                 .core = core,
                                 .has_stream = row.stream != CaptureTable::kNoStream});
  if (!type.empty()) {
    row.type = texts_.intern(type);
  } else if (!is_missing_cell(name)) {
    row.type = derived_type_of(row.name);
    ++table_.derived_type_count;
    note(RowEvent::kTypeDerived);
  }
  row.step = text_id(cells.trimmed(AscendColumn::kStep));
  if (header_.has(AscendColumn::kStep) && row.step == kNoIndex) note(RowEvent::kNoStep);
  row.input_shapes = shapes_id(cells.at(AscendColumn::kInputShapes));
  row.output_shapes = shapes_id(cells.at(AscendColumn::kOutputShapes));
}

uint32_t AscendCsvReader::text_id(std::string_view text) {
  return is_missing_cell(text) ? kNoIndex : texts_.intern(text);
}

// A cell of nothing but quotes is the shape of a scalar, and not a shape that nobody recorded.
uint32_t AscendCsvReader::shapes_id(const CsvField& cell) {
  constexpr std::string_view kAround = "\" \t";
  const bool has_quotes = cell.text.find('"') != std::string_view::npos;
  std::string_view shapes = cell.text;
  shapes.remove_prefix(std::min(shapes.find_first_not_of(kAround), shapes.size()));
  shapes = shapes.substr(0, shapes.find_last_not_of(kAround) + 1);
  if (is_missing_cell(shapes) && !(shapes.empty() && has_quotes)) return kNoIndex;
  return texts_.intern(plain_shapes(shapes, buffer_));
}

uint32_t AscendCsvReader::derived_type_of(uint32_t name) {
  if (name >= derived_types_.size()) derived_types_.resize(table_.names.size(), kNoIndex);
  uint32_t& type = derived_types_[name];
  if (type == kNoIndex) type = table_.names.intern(derived_kernel_type(table_.names[name]));
  return type;
}

void AscendCsvReader::append(const KernelRow& row, uint32_t context) {
  const auto [latest, is_first] = latest_start_ns_.try_emplace(row.device, row.start_ns);
  if (!is_first && row.start_ns < latest->second) ++table_.order_break_count;
  latest->second = row.start_ns;
  table_.append(row);
  table_.text_offset.push_back(record_.offset);
  table_.text_bytes.push_back(static_cast<uint32_t>(record_.text.size()));
  contexts_.push_back(context);
}

}  // namespace gapless
