// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_cells.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/decimal.h"
#include "formats/ascend_kinds.h"

namespace gapless {
namespace {

bool consists_of(std::string_view text, std::string_view bytes) {
  return text.find_first_not_of(bytes) == std::string_view::npos;
}

bool fits_time(std::string_view cell) {
  return !cell.empty() && consists_of(cell, "0123456789.-") && parse_decimal(cell, 3).has_value();
}

bool fits_number(std::string_view cell) {
  return is_missing_cell(cell) || consists_of(cell, "0123456789");
}

bool fits_shapes(std::string_view cell) {
  return is_missing_cell(cell) || consists_of(cell, "0123456789,;-[] \"");
}

bool fits_core(std::string_view cell) {
  return is_missing_cell(cell) || (cell.front() >= 'A' && cell.front() <= 'Z' &&
                                   consists_of(cell, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"));
}

bool are_empty(std::span<const CsvField> fields) {
  return std::all_of(fields.begin(), fields.end(),
                     [](const CsvField& field) { return field.text.empty(); });
}

}  // namespace

bool cells_fit(const AscendCells& cells) {
  for (const AscendColumn column : {AscendColumn::kStart, AscendColumn::kDuration}) {
    if (!fits_time(cells.trimmed(column))) return false;
  }
  for (const AscendColumn column : {AscendColumn::kDevice, AscendColumn::kTask,
                                    AscendColumn::kStream, AscendColumn::kContext}) {
    if (!fits_number(cells.trimmed(column))) return false;
  }
  return fits_core(cells.trimmed(AscendColumn::kCore)) &&
         fits_shapes(cells.trimmed(AscendColumn::kInputShapes)) &&
         fits_shapes(cells.trimmed(AscendColumn::kOutputShapes));
}

std::string_view without_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

CsvField AscendCells::at(AscendColumn column) const {
  uint32_t place = header->place(column);
  if (place == AscendHeader::kMissing) return {};
  if (place > header->place(AscendColumn::kName)) place += name_extra;
  return place < end ? fields[place] : CsvField{};
}

std::string_view AscendCells::trimmed(AscendColumn column) const {
  return without_space(at(column).text);
}

std::string_view AscendCells::name(std::string& buffer) const {
  const CsvField first = at(AscendColumn::kName);
  if (name_extra > 0) {
    const CsvField& last = fields[header->place(AscendColumn::kName) + name_extra];
    const char* const end_of_last = last.text.data() + last.text.size();
    return without_space({first.text.data(), static_cast<size_t>(end_of_last - first.text.data())});
  }
  if (!first.has_quotes) return without_space(first.text);
  buffer.clear();
  append_csv_unescaped(first, buffer);
  return without_space(buffer);
}

std::optional<RowEvent> arrange_cells(const AscendHeader& header, const CsvRecord& record,
                                      AscendCells& cells) {
  const uint32_t count = static_cast<uint32_t>(record.fields.size());
  cells = {.header = &header, .fields = record.fields, .name_extra = 0, .end = count};
  if (count == header.column_count) return std::nullopt;
  if (count < header.column_count) {
    // The file's last record may have lost digits as well.
    if (record.line_end.empty()) return RowEvent::kCutShort;
    return cells_fit(cells) ? RowEvent::kPadded : RowEvent::kShifted;
  }
  cells.end = header.column_count;
  if (are_empty(cells.fields.subspan(header.column_count))) return std::nullopt;
  cells.end = std::max({header.place(AscendColumn::kName), header.place(AscendColumn::kStart),
                        header.place(AscendColumn::kDuration)}) +
              1;
  if (cells_fit(cells)) return RowEvent::kTailIgnored;
  cells.end = count;
  cells.name_extra = count - header.column_count;
  return cells_fit(cells) ? RowEvent::kNameJoined : RowEvent::kTooLong;
}

AscendTime parse_ascend_time(std::string_view cell) {
  constexpr int kNanosecondDigits = 3;
  AscendTime time;
  cell = without_space(cell);
  if (is_missing_cell(cell)) {
    time.is_missing = true;
    return time;
  }
  const std::optional<int64_t> ns = parse_decimal(cell, kNanosecondDigits);
  if (!ns) {
    time.has_comma = cell.find(',') != std::string_view::npos && consists_of(cell, "0123456789.,-");
    return time;
  }
  time.ns = *ns;
  time.is_number = true;
  const size_t last = cell.find_last_not_of("0123456789");
  if (last == std::string_view::npos || last == 0) return time;
  if (cell[last] == '.') {
    const std::string_view decimals = cell.substr(last + 1);
    time.is_rounded = decimals.size() > kNanosecondDigits &&
                      !consists_of(decimals.substr(kNanosecondDigits), "0");
  } else {
    time.has_exponent = true;  // nothing else stands between digits of a number
  }
  return time;
}

AscendNumber parse_ascend_number(std::string_view cell) {
  constexpr uint32_t kInvalid = 4294967295;
  AscendNumber number;
  cell = without_space(cell);
  if (is_missing_cell(cell) || cell == "-1") return number;
  uint32_t value = 0;
  const char* const end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  if (error != std::errc() || stop != end) {
    number.is_odd = true;
  } else if (value != kInvalid) {
    number.value = value;
  }
  return number;
}

}  // namespace gapless
