// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_header.h"

#include <algorithm>

namespace gapless {
namespace {

struct Alias {
  std::string_view spelling;  // as plain_spelling() makes it
  AscendColumn column;
};

constexpr Alias kAliases[] = {
    {"stepid", AscendColumn::kStep},
    {"deviceid", AscendColumn::kDevice},
    {"taskid", AscendColumn::kTask},
    {"streamid", AscendColumn::kStream},
    {"name", AscendColumn::kName},
    {"opname", AscendColumn::kName},
    {"type", AscendColumn::kType},
    {"optype", AscendColumn::kType},
    {"acceleratorcore", AscendColumn::kCore},
    {"tasktype", AscendColumn::kCore},
    {"starttime(us)", AscendColumn::kStart},
    {"taskstarttime(us)", AscendColumn::kStart},
    {"duration(us)", AscendColumn::kDuration},
    {"taskduration(us)", AscendColumn::kDuration},
    {"inputshapes", AscendColumn::kInputShapes},
    {"outputshapes", AscendColumn::kOutputShapes},
    {"contextid", AscendColumn::kContext},
};

// Longer than any alias with its spaces; a longer cell is no column that we know.
constexpr size_t kLongestCell = 64;

std::string plain_spelling(std::string_view cell) {
  constexpr std::string_view kIgnored = " \t_\"\r";
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (cell.starts_with(kByteOrderMark)) cell.remove_prefix(kByteOrderMark.size());
  std::string plain;
  if (cell.size() > kLongestCell) return plain;
  for (const char c : cell) {
    if (kIgnored.find(c) != std::string_view::npos) continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return plain;
}

}  // namespace

std::optional<AscendColumn> ascend_column(std::string_view cell) {
  const std::string plain = plain_spelling(cell);
  for (const Alias& alias : kAliases) {
    if (alias.spelling == plain) return alias.column;
  }
  return std::nullopt;
}

std::optional<AscendHeader> parse_ascend_header(std::span<const CsvField> cells) {
  AscendHeader header;
  header.places.fill(AscendHeader::kMissing);
  header.column_count = static_cast<uint32_t>(cells.size());
  for (uint32_t i = 0; i < cells.size(); ++i) {
    const std::optional<AscendColumn> column = ascend_column(cells[i].text);
    if (!column) continue;
    uint32_t& place = header.places[static_cast<size_t>(*column)];
    if (place == AscendHeader::kMissing) {
      place = i;
    } else {
      ++header.repeated_count;
    }
  }
  const bool is_complete = header.has(AscendColumn::kName) && header.has(AscendColumn::kStart) &&
                           header.has(AscendColumn::kDuration);
  if (!is_complete) return std::nullopt;
  return header;
}

std::vector<CsvField> split_cells(std::string_view line, char separator) {
  std::vector<CsvField> cells;
  size_t begin = 0;
  while (begin <= line.size()) {
    const size_t stop = std::min(line.find(separator, begin), line.size());
    cells.push_back({.text = line.substr(begin, stop - begin)});
    begin = stop + 1;
  }
  return cells;
}

char foreign_separator(std::string_view first_line) {
  for (const char separator : {';', '\t', '|'}) {
    if (parse_ascend_header(split_cells(first_line, separator))) return separator;
  }
  return 0;
}

}  // namespace gapless
