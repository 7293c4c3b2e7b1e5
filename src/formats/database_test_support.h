// SPDX-License-Identifier: Apache-2.0
//
// Databases for tests: made with SQL, cut and damaged as wanted.

#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "formats/database.h"
#include "trace/capture_table.h"
#include "trace/capture_table_test_support.h"

namespace gapless {

inline void run_sql(sqlite3* handle, const std::string& sql) {
  char* message = nullptr;
  const int status = sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, &message);
  EXPECT_EQ(status, SQLITE_OK) << (message == nullptr ? "" : message) << " in " << sql;
  sqlite3_free(message);
}

// Runs the statements on the file, which is made when it is not there.
inline void change_database(const std::string& path, const std::string& sql) {
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &handle), SQLITE_OK) << path;
  run_sql(handle, sql);
  sqlite3_close(handle);
}

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The file of a database made with these statements.
inline std::string database_text(const std::string& sql) {
  sqlite3* handle = nullptr;
  EXPECT_EQ(sqlite3_open(":memory:", &handle), SQLITE_OK);
  run_sql(handle, sql);
  sqlite3_int64 size = 0;
  unsigned char* const bytes = sqlite3_serialize(handle, "main", &size, 0);
  std::string text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(handle);
  return text;
}

inline Result<Database> database_of(std::string_view text) {
  return Database::from_memory(std::as_bytes(std::span(text.data(), text.size())), "test.db");
}

inline uint64_t finding_number(const CaptureTable& table, std::string_view code) {
  uint64_t count = 0;
  for (const Finding& finding : table.findings) count += finding.code == code ? finding.count : 0;
  return count;
}

inline std::string_view name_at(const CaptureTable& table, uint32_t id) {
  return id == kNoIndex ? "(none)" : table.names[id];
}

}  // namespace gapless
