// SPDX-License-Identifier: Apache-2.0
//
// A table of what a model predicts, one line a kernel type and shape, as a side of an alignment.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "analysis/align.h"
#include "base/csv_reader.h"
#include "base/decimal.h"
#include "base/input_stream.h"

namespace gapless {
namespace {

enum class Column : uint8_t { kType, kShape, kEach, kTotal, kCount };
constexpr size_t kColumnCount = 5;

struct ColumnName {
  std::string_view name;  // lower case, letters and digits only
  Column column;
};
// "Total Time(us)" and "OP Type" are of the profiler's own statistics.
constexpr ColumnName kColumnNames[] = {
    {"type", Column::kType},         {"optype", Column::kType},       {"kerneltype", Column::kType},
    {"kernel", Column::kType},       {"shape", Column::kShape},       {"shapes", Column::kShape},
    {"inputshape", Column::kShape},  {"inputshapes", Column::kShape}, {"us", Column::kEach},
    {"timeus", Column::kEach},       {"durationus", Column::kEach},   {"meanus", Column::kEach},
    {"avgus", Column::kEach},        {"avgtimeus", Column::kEach},    {"totalus", Column::kTotal},
    {"totaltimeus", Column::kTotal}, {"count", Column::kCount}};

std::optional<Column> column_of(std::string_view cell) {
  std::string key;
  for (const char c : cell) {
    if (c >= 'A' && c <= 'Z') key += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) key += c;
  }
  for (const ColumnName& known : kColumnNames) {
    if (known.name == key) return known.column;
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// hcom_allReduce_, hccl_..., HcomAllReduce, ncclDevKernel_...
bool names_collective(std::string_view type) {
  for (const std::string_view beginning : {"hcom_", "hccl_", "nccl", "rccl"}) {
    if (type.starts_with(beginning)) return true;
  }
  return type.size() > 4 && type.starts_with("Hcom") && type[4] >= 'A' && type[4] <= 'Z';
}

class ModelTable {
 public:
  explicit ModelTable(const std::string& source, bool by_shape) : by_shape_(by_shape) {
    side_.source = source;
  }

  Result<AlignSide> read(std::string_view text) {
    InputStream input = InputStream::from_memory(std::as_bytes(std::span(text)), side_.source);
    CsvReader reader(input, {});
    CsvRecord record;
    while (GAPLESS_TRY(reader.next(record))) {
      const uint64_t lines =
          1 + static_cast<uint64_t>(std::count(record.text.begin(), record.text.end(), '\n'));
      if (record.has_unclosed_quote)
        return fail(ErrorCode::kInvalidInput, "{}:{}: a quote is opened and never closed",
                    side_.source, line_);
      if (!trimmed(record.text).empty() && !record.text.starts_with('#'))
        GAPLESS_TRY(has_header_ ? add_line(record) : read_header(record));
      line_ += lines;
    }
    if (!has_header_)
      return fail(ErrorCode::kInvalidInput, "{}: empty; must begin with a header like {}",
                  side_.source, kHeader);
    if (side_.entries.empty())
      return fail(ErrorCode::kInvalidInput, "{}: a header and no kernels", side_.source);
    return std::move(side_);
  }

 private:
  static constexpr std::string_view kHeader = "type,shape,us,count";

  bool has(Column column) const { return places_[static_cast<size_t>(column)].has_value(); }

  Result<void> read_header(const CsvRecord& record) {
    has_header_ = true;
    column_count_ = record.fields.size();
    for (size_t i = 0; i < column_count_; ++i) {
      const std::optional<Column> column = column_of(record.fields[i].text);
      if (!column) continue;
      std::optional<size_t>& place = places_[static_cast<size_t>(*column)];
      if (place)
        return fail(ErrorCode::kInvalidInput,
                    "{}:{}: columns {} and {} ({} and {}) say the same thing", side_.source, line_,
                    *place + 1, i + 1, trimmed(record.fields[*place].text),
                    trimmed(record.fields[i].text));
      place = i;
    }
    if (!has(Column::kType))
      return fail(ErrorCode::kInvalidInput,
                  "{}:{}: no column is called type; a header looks like {}", side_.source, line_,
                  kHeader);
    if (!has(Column::kEach) && !has(Column::kTotal))
      return fail(ErrorCode::kInvalidInput,
                  "{}:{}: no column is called us or total_us; a header looks like {}", side_.source,
                  line_, kHeader);
    side_.has_counts = has(Column::kCount) || !has(Column::kTotal);
    return {};
  }

  std::string cell(const CsvRecord& record, Column column) const {
    std::string text;
    const std::optional<size_t>& place = places_[static_cast<size_t>(column)];
    if (place) append_csv_unescaped(record.fields[*place], text);
    return std::string(trimmed(text));
  }

  Result<void> check_length(const CsvRecord& record) const {
    const size_t count = record.fields.size();
    const bool has_more =
        count > column_count_ &&
        !std::all_of(record.fields.begin() + static_cast<ptrdiff_t>(column_count_),
                     record.fields.end(),
                     [](const CsvField& field) { return trimmed(field.text).empty(); });
    if (count >= column_count_ && !has_more) return {};
    return fail(ErrorCode::kInvalidInput, "{}:{}: {} cells; the header has {}{}", side_.source,
                line_, count, column_count_,
                has_more ? " (a shape with commas stands in quotes)" : "");
  }

  // A number from 0 on, in 10^-scale_digits.
  Result<int64_t> number(const CsvRecord& record, Column column, int scale_digits) const {
    const std::string text = cell(record, column);
    const std::optional<int64_t> value = parse_decimal(text, scale_digits);
    if (value && *value >= 0) return *value;
    const size_t place = *places_[static_cast<size_t>(column)];
    return fail(ErrorCode::kInvalidInput, "{}:{}: column {} is \"{}\"; must be a number from 0 on",
                side_.source, line_, place + 1, text);
  }

  Result<void> add_line(const CsvRecord& record) {
    constexpr int kCountDigits = 6;  // counts may be averages over passes
    constexpr double kLargestNs = 4e18;
    GAPLESS_TRY(check_length(record));
    AlignEntry entry;
    entry.type = cell(record, Column::kType);
    if (entry.type.empty())
      return fail(ErrorCode::kInvalidInput, "{}:{}: the type is empty", side_.source, line_);
    if (by_shape_) entry.shape = normalised_shapes(cell(record, Column::kShape));
    entry.is_collective = names_collective(entry.type);
    entry.count = 1.0;
    if (has(Column::kCount))
      entry.count =
          static_cast<double>(GAPLESS_TRY(number(record, Column::kCount, kCountDigits))) * 1e-6;
    double total_ns = 0.0;
    if (has(Column::kTotal)) {
      entry.total_ns = GAPLESS_TRY(number(record, Column::kTotal, 3));
      total_ns = static_cast<double>(entry.total_ns);
    } else {
      const int64_t each_ns = GAPLESS_TRY(number(record, Column::kEach, 3));
      total_ns = static_cast<double>(each_ns) * entry.count;
      if (total_ns < kLargestNs) entry.total_ns = std::llround(total_ns);
    }
    sum_ns_ += total_ns;
    if (!(sum_ns_ < kLargestNs))
      return fail(ErrorCode::kInvalidInput,
                  "{}:{}: the times add up to {:.3g} s, which is too much", side_.source, line_,
                  sum_ns_ * 1e-9);
    if (entry.count == 0.0 && entry.total_ns > 0)
      return fail(ErrorCode::kInvalidInput, "{}:{}: {} of count 0 takes {} ns", side_.source, line_,
                  entry.type, entry.total_ns);
    if (entry.count > 0.0) side_.entries.push_back(std::move(entry));
    return {};
  }

  AlignSide side_;
  bool by_shape_;
  std::array<std::optional<size_t>, kColumnCount> places_;
  size_t column_count_ = 0;
  bool has_header_ = false;
  uint64_t line_ = 1;
  double sum_ns_ = 0.0;
};

}  // namespace

bool looks_like_align_csv(std::string_view first_bytes) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
  if (first_bytes.starts_with(kUtf8Mark)) first_bytes.remove_prefix(kUtf8Mark.size());
  // A header is the first line that is neither empty nor a comment.
  while (!first_bytes.empty()) {
    const size_t end = std::min(first_bytes.find('\n'), first_bytes.size());
    const std::string_view line = trimmed(first_bytes.substr(0, end));
    first_bytes.remove_prefix(std::min(end + 1, first_bytes.size()));
    if (line.empty() || line.front() == '#') continue;
    size_t known_count = 0;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t comma = std::min(line.find(',', begin), line.size());
      const std::optional<Column> column = column_of(line.substr(begin, comma - begin));
      if (column && *column != Column::kCount && *column != Column::kShape) ++known_count;
      begin = comma + 1;
    }
    return known_count > 0 && line.find(',') != std::string_view::npos;
  }
  return false;
}

Result<AlignSide> align_side_of_csv(std::string_view text, const std::string& source,
                                    bool by_shape) {
  return ModelTable(source, by_shape).read(text);
}

}  // namespace gapless
