// SPDX-License-Identifier: Apache-2.0
//
// Rows of cells as aligned text. Columns are two spaces apart and lines have no trailing space.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gapless {

using TableRow = std::vector<std::string>;

// `alignment` has one letter a column: 'l' or 'r'; columns beyond it are left-aligned. Every line
// begins with `indent`.
std::string align_columns(const std::vector<TableRow>& rows, std::string_view alignment,
                          std::string_view indent = "");

// Facts are "key  value" lines with the values in one column.
inline constexpr int kFactColumn = 16;
void add_fact(std::string& text, std::string_view key, std::string_view value,
              int column = kFactColumn);

// The text without what would break a line or steer a terminal: control characters become \xNN.
std::string printable(std::string_view text);

// A kernel's name for a table: printable, and of a long one the begin and the end, which differ
// where compilers put tilings into names.
std::string table_name(std::string_view name);

}  // namespace gapless
