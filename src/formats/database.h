// SPDX-License-Identifier: Apache-2.0
//
// Database: a profiler's SQLite file, opened read-only and asked for what it has.
//
// Files come from many versions and other tools change them in place, so tables and columns are
// probed before they are named in a query. A file that is damaged gives what lies before that place
// and says where reading stopped. No exception, no write, no journal beside the file.
//
// A file may be made to harm: nothing in it is run (only plain tables are seen, no views, virtual
// tables or computed columns), and a query that gives more than the file can hold is stopped.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gapless {

class Database {
 public:
  // Error when it cannot be read or is no database. What a write-ahead log beside it holds is read
  // too.
  static Result<Database> open(const std::string& path);
  // One that need not be on a disk. `name` is for messages.
  static Result<Database> from_memory(std::span<const std::byte> bytes, std::string name);

  bool has_table(std::string_view table) const;
  bool has_column(std::string_view table, std::string_view name) const;
  // The first of `names` that the table has as a column; nothing: none of them.
  std::optional<std::string> column(std::string_view table,
                                    const std::vector<std::string_view>& names) const;
  const std::string& path() const { return path_; }

  // The file ends before its last page.
  bool is_cut_short() const { return is_cut_short_; }
  // What is wrong with the file as a whole, or could not be read of it: sentences.
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  friend class Query;
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  // What one query may still do; where the database finds it when it asks.
  struct Budget {
    uint64_t steps = 0;
  };
  enum class Way : uint8_t { kImmutable, kWithLog, kMemory };

  Database() = default;
  Result<void> connect(Way way);
  Result<void> configure(bool is_lenient);
  Result<void> list_tables();
  Result<void> list_columns(const std::string& table);
  void compare_size(std::span<const std::byte> header, uint64_t bytes);

  std::string path_;
  std::vector<std::byte> memory_;  // of from_memory; before the handle that reads it
  std::unique_ptr<Budget> budget_;
  std::unique_ptr<sqlite3, Close> handle_;
  std::map<std::string, std::vector<std::string>, std::less<>> columns_;  // by table
  uint64_t bytes_ = 0;
  bool is_cut_short_ = false;
  std::vector<std::string> troubles_;
};

// The names that a column has had.
using ColumnNames = std::vector<std::string_view>;

// One SELECT, row by row. The database must outlive it, and there must be one at a time.
class Query {
 public:
  static Result<Query> create(const Database& database, const std::string& sql);
  // All rows of a table as they lie in the file; a column that it does not have is null.
  static Result<Query> scan(const Database& database, std::string_view table,
                            const std::vector<ColumnNames>& columns);

  // False: no more rows. Error when the file is damaged there.
  Result<bool> next();
  uint64_t row_count() const { return row_count_; }
  bool is_null(int column) const;
  // Text that holds a whole number counts as one; nothing for null, a fraction or other text.
  std::optional<int64_t> integer(int column) const;
  std::optional<double> real(int column) const;
  // Until the next call of next(). Empty for null.
  std::string_view text(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::string path_;
  Database::Budget* budget_ = nullptr;
  int column_count_ = 0;
  uint64_t row_count_ = 0;
  uint64_t text_bytes_left_ = 0;
};

// "SQLite format 3\0" at the begin of a file.
bool looks_like_database(std::string_view first_bytes);

}  // namespace gapless
