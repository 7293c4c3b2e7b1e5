// SPDX-License-Identifier: Apache-2.0

#include "report/text_table.h"

#include <algorithm>
#include <cstdint>

#include <fmt/core.h>

namespace gapless {
namespace {

// Code points, which is what a terminal shows as one cell for most scripts.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string align_columns(const std::vector<TableRow>& rows, std::string_view alignment,
                          std::string_view indent) {
  std::vector<size_t> widths;
  for (const TableRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const TableRow& row : rows) {
    text += indent;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += "  ";
      const std::string padding(widths[i] - width_of(row[i]), ' ');
      const bool right = i < alignment.size() && alignment[i] == 'r';
      text += right ? padding + row[i] : row[i] + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

void add_fact(std::string& text, std::string_view key, std::string_view value, int column) {
  text += fmt::format("{:<{}}{}\n", key, column, value);
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

std::string table_name(std::string_view name) {
  constexpr size_t kLongest = 52;
  constexpr size_t kEnd = 16;
  constexpr std::string_view kLeftOut = "...";
  std::string text = printable(name);
  if (text.size() <= kLongest) return text;
  return text.substr(0, kLongest - kEnd - kLeftOut.size()) + std::string(kLeftOut) +
         text.substr(text.size() - kEnd);
}

}  // namespace gapless
