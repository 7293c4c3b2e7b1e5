// SPDX-License-Identifier: Apache-2.0
//
// RowEvents: what happened to the rows of a kernel table while they were read, counted by reason,
// with the place of the first.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "trace/capture_table.h"

namespace gapless {

enum class RowEvent : uint8_t {
  // The row is not in the table.
  kNoStart,
  kNoDuration,
  kStartExponent,
  kStartNotPositive,
  kDurationNegative,
  kTimeOutOfRange,
  kNotANumber,
  kShifted,
  kTooLong,
  kCutShort,
  // The row is in the table.
  kPadded,
  kNameJoined,
  kTailIgnored,
  kOddNumber,
  kRoundedDuration,
  kTypeDerived,
  kNoStep,
  // No row.
  kBlankLine,
  kRepeatedHeader,
  kChangedHeader,
  kBrokenQuotes,
};
inline constexpr int kRowEventCount = 21;

bool is_dropped(RowEvent event);
// What is wrong, as the end of a sentence: "have no start".
std::string_view row_event_text(RowEvent event);

class RowEvents {
 public:
  // `record` is its number in the file, 1 for the header.
  void count(RowEvent event, const std::string& path, uint64_t record);

  uint64_t count_of(RowEvent event) const { return entries_[static_cast<size_t>(event)].count; }
  uint64_t dropped_count() const;
  // The reason that dropped most rows; the first in the list of those that tie.
  RowEvent main_reason() const;
  // One finding for each event that happened.
  void report(CaptureTable& table) const;

 private:
  struct Entry {
    uint64_t count = 0;
    std::string path;  // of the first
    uint64_t record = 0;
  };
  std::array<Entry, kRowEventCount> entries_;
};

}  // namespace gapless
