// SPDX-License-Identifier: Apache-2.0
//
// DatabaseRows: what readers of profilers' databases share. Scans of tables that may be missing or
// damaged, texts by number, checked times, and the account of every row.
//
// Tables are joined here and not in SQL: one pass over each in the order of the file, with sorted
// lists of numbers to look others up. A million rows take about a second.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/ascend_row_events.h"
#include "formats/capture_options.h"
#include "formats/database.h"
#include "trace/capture_table.h"

namespace gapless {

// Numbers by an identifier of the file. Identifiers mostly come in order, when adding and when
// asking, and then nothing is searched.
class IdIndex {
 public:
  void add(int64_t id, uint32_t value);
  // After the last add(). Of those with one identifier the first stays; returns how many others
  // there were.
  uint64_t finish();
  // kNoIndex: not there.
  uint32_t find(int64_t id) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    int64_t id = 0;
    uint32_t value = 0;
  };
  std::vector<Entry> entries_;  // by id
  mutable size_t last_ = 0;     // where the last one was found
};

// The texts that numbers in other tables stand for. Those that nobody asks for are not in `names`.
class TextIds {
 public:
  explicit TextIds(NameTable& names) : names_(names) {}

  void add(int64_t id, std::string_view text);
  void finish() { index_.finish(); }
  // Empty: there is none.
  std::string_view text(int64_t id) const;
  uint32_t intern(int64_t id);
  // What a cell says, as a number of a text or as text; kNoIndex: nothing, or "N/A".
  uint32_t intern_cell(const Query& row, int column);

 private:
  NameTable& names_;
  IdIndex index_;
  std::string bytes_;               // of all texts, one after another
  std::vector<size_t> ends_;        // of each
  std::vector<uint32_t> names_of_;  // of each, in `names_`; kNoIndex: not yet
};

class DatabaseRows {
 public:
  DatabaseRows(const Database& database, CaptureTable& table, const CaptureReadOptions& options);

  using Visit = std::function<void(const Query& row)>;
  // Visits all rows of a table, none when it is not there, those before the damage when it is
  // damaged: that becomes a finding.
  void scan(std::string_view table, const std::vector<ColumnNames>& columns, const Visit& visit);
  // A table of (id, value).
  void read_texts(std::string_view table);

  // Start and end in the columns `first` and `first` + 1. False, and counted: not a row. Starts of
  // `earliest_ns` and later are good.
  bool set_times(const Query& row, int first, int64_t earliest_ns, KernelRow& kernel);
  // A device, stream or task; kNoIndex: absent, as -1 and 4294967295 are. What is no number of 31
  // bits is counted.
  uint32_t number(const Query& row, int column);
  void set_name(const Query& row, int column, KernelRow& kernel);
  void set_no_name(KernelRow& kernel);
  // `context` tells rows apart that are the same in all else; kNoIndex: none.
  void append(const KernelRow& kernel, uint32_t context = kNoIndex);
  // Rows that are none of ours, by what they are.
  void count_other(std::string_view what);

  // A type made of the name, for a row that says none.
  uint32_t derived_type_of(uint32_t name);

  // A span of the host with its times in the first two columns.
  void add_host(const Query& row, int64_t process, int64_t thread, uint32_t name,
                std::string_view category);

  void note(RowEvent event);
  void add_finding(Severity severity, std::string_view code, uint64_t count, std::string text);
  void add_property(std::string_view key, std::string_view value);

  // Puts the rows in order and reports what happened to others. Error when there are rows and none
  // can be used.
  Result<void> finish();

  TextIds& texts() { return texts_; }
  CaptureTable& table() { return table_; }
  const Database& database() const { return database_; }
  const CaptureReadOptions& options() const { return options_; }

 private:
  uint64_t drop_duplicates(std::vector<uint32_t>& rows) const;
  void report_others();
  void report_order(uint64_t duplicate_count);
  void report_launches();

  const Database& database_;
  CaptureTable& table_;
  const CaptureReadOptions& options_;
  RowEvents events_;
  TextIds texts_;
  std::vector<uint32_t> contexts_;       // of each row, as they came
  std::vector<uint32_t> derived_types_;  // by name; kNoIndex: not made yet
  std::map<std::string, uint64_t, std::less<>> others_;
  uint64_t other_count_ = 0;
  uint64_t unnamed_count_ = 0;
  uint64_t bad_host_count_ = 0;
  uint64_t scanned_count_ = 0;
  bool is_damaged_ = false;

  // Of the table that is being scanned.
  std::map<int32_t, int64_t> latest_start_ns_;  // by device, to find where the order breaks
  std::string place_;
  uint64_t record_ = 0;
};

}  // namespace gapless
