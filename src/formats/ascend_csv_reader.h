// SPDX-License-Identifier: Apache-2.0
//
// AscendCsvReader: the rows of one kernel table after another, appended to a CaptureTable in the
// order of the files. Part of ascend_csv.h.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/csv_reader.h"
#include "base/input_stream.h"
#include "base/result.h"
#include "formats/ascend_cells.h"
#include "formats/ascend_csv.h"
#include "formats/ascend_header.h"
#include "formats/ascend_row_events.h"
#include "trace/capture_table.h"

namespace gapless {

// Numbers of texts that come again and again, in front of a NameTable: a hit costs a hash and a
// comparison, and allocates nothing.
class RecentTexts {
 public:
  explicit RecentTexts(NameTable& names);
  uint32_t intern(std::string_view text);

 private:
  static constexpr size_t kSlots = 4096;
  NameTable& names_;
  std::vector<uint32_t> slots_;
};

class AscendCsvReader {
 public:
  AscendCsvReader(CaptureTable& table, const AscendCsvOptions& options);

  // Appends the rows of one file. Error when it is no kernel table, or cannot be read.
  Result<void> read(InputStream& input, bool is_compressed, Progress progress);

  const RowEvents& events() const { return events_; }
  // The Context ID of each row, in the order of reading; kNoIndex: none.
  const std::vector<uint32_t>& contexts() const { return contexts_; }

 private:
  Result<void> read_header(CsvReader& csv);
  Result<void> add_record(CsvReader& csv);
  Result<void> split_lines(CsvReader& csv);
  Result<bool> add_row();
  void set_header(const AscendHeader& header);
  bool take_repeated_header();
  Result<bool> set_times(const AscendCells& cells, KernelRow& row);
  void set_numbers(const AscendCells& cells, KernelRow& row);
  void set_texts(const AscendCells& cells, KernelRow& row);
  uint32_t text_id(std::string_view text);
  uint32_t shapes_id(const CsvField& cell);
  uint32_t derived_type_of(uint32_t name);
  void append(const KernelRow& row, uint32_t context);
  void note(RowEvent event) { events_.count(event, path_, record_count_); }

  CaptureTable& table_;
  const AscendCsvOptions& options_;
  RowEvents events_;
  RecentTexts texts_;
  std::vector<uint32_t> contexts_;
  std::vector<uint32_t> derived_types_;         // by name; kNoIndex: not made yet
  std::map<int32_t, int64_t> latest_start_ns_;  // by device, to find where the order breaks

  // Of the file that is being read.
  std::string path_;
  bool is_compressed_ = false;
  bool has_byte_order_mark_ = false;
  uint64_t record_count_ = 0;
  AscendHeader header_;
  CsvRecord record_;
  std::string buffer_;
};

}  // namespace gapless
