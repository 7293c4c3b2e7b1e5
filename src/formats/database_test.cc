// SPDX-License-Identifier: Apache-2.0

#include "formats/database.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "formats/database_rows.h"
#include "formats/database_test_support.h"

namespace gapless {
namespace {

constexpr char kThreeRows[] =
    "CREATE TABLE t (a INTEGER, b TEXT);"
    "INSERT INTO t VALUES (1, 'one'), (2, NULL), (3, 'three');";

// Every value of the first column.
std::vector<int64_t> first_column(const Database& database, std::string_view table,
                                  std::string_view column) {
  std::vector<int64_t> values;
  Result<Query> query = Query::scan(database, table, {{column}});
  EXPECT_TRUE(query.has_value()) << query.error().message;
  while (query) {
    const Result<bool> more = query->next();
    if (!more || !*more) break;
    values.push_back(query->integer(0).value_or(-1));
  }
  return values;
}

std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = file_text(entry.path().string());
  }
  return files;
}

std::string open_error(const std::string& path) {
  const Result<Database> database = Database::open(path);
  return database ? "no error" : database.error().message;
}

TEST(Database, ReadsRowsAndProbesColumns) {
  const Result<Database> database = database_of(database_text(kThreeRows));
  ASSERT_TRUE(database.has_value()) << database.error().message;
  EXPECT_TRUE(database->has_table("t"));
  EXPECT_FALSE(database->has_table("u"));
  EXPECT_EQ(database->column("t", {"x", "b", "a"}), "b");
  EXPECT_FALSE(database->column("t", {"x"}).has_value());
  EXPECT_FALSE(database->column("u", {"a"}).has_value());
  Result<Query> query = Query::scan(*database, "t", {{"b"}, {"a"}, {"absent"}});
  ASSERT_TRUE(query.has_value());
  ASSERT_TRUE(*query->next());
  EXPECT_EQ(query->text(0), "one");
  EXPECT_EQ(query->integer(1), 1);
  EXPECT_TRUE(query->is_null(2));
  EXPECT_FALSE(query->integer(2).has_value());
  ASSERT_TRUE(*query->next());
  EXPECT_EQ(query->text(0), "");
  ASSERT_TRUE(*query->next());
  EXPECT_FALSE(*query->next());
  EXPECT_EQ(query->row_count(), 3u);
}

TEST(Database, ReadsWholeNumbersExactly) {
  const Result<Database> database = database_of(database_text(
      "CREATE TABLE t (a); INSERT INTO t VALUES (1736410576431631807), ('1736410576431631809'),"
      "(' 12\t'), (3.0), (3.5), ('x1'), ('1x'), (''), (NULL), (x'31'), (1e300),"
      "('9223372036854775808'), (-9223372036854775808);"));
  ASSERT_TRUE(database.has_value());
  Result<Query> query = Query::scan(*database, "t", {{"a"}});
  ASSERT_TRUE(query.has_value());
  const std::vector<std::optional<int64_t>> expected = {1736410576431631807,
                                                        1736410576431631809,
                                                        12,
                                                        3,
                                                        std::nullopt,
                                                        std::nullopt,
                                                        std::nullopt,
                                                        std::nullopt,
                                                        std::nullopt,
                                                        std::nullopt,
                                                        std::nullopt,
                                                        std::nullopt,
                                                        INT64_MIN};
  for (const std::optional<int64_t>& value : expected) {
    ASSERT_TRUE(*query->next());
    EXPECT_EQ(query->integer(0), value) << query->row_count();
  }
}

TEST(Database, OpensAnyPathAndLeavesNothingBesideTheFile) {
  const TemporaryDirectory folder;
  for (const std::string name : {"plain.db", "a b?c#d%41&e=\xc3\xa9.db", "x;y'\"z"}) {
    change_database(folder.path(name), kThreeRows);
    const std::map<std::string, std::string> before = files_in(folder.path());
    {
      const Result<Database> database = Database::open(folder.path(name));
      ASSERT_TRUE(database.has_value()) << database.error().message;
      EXPECT_EQ(first_column(*database, "t", "a"), (std::vector<int64_t>{1, 2, 3}));
    }
    EXPECT_EQ(files_in(folder.path()), before);
  }
}

TEST(Database, ReadsWhatLiesInTheLogAndChangesNothing) {
  const TemporaryDirectory folder;
  const TemporaryDirectory copy;
  change_database(folder.path("a.db"), std::string("PRAGMA journal_mode=WAL;") + kThreeRows);
  sqlite3* writer = nullptr;
  ASSERT_EQ(sqlite3_open(folder.path("a.db").c_str(), &writer), SQLITE_OK);
  run_sql(writer, "PRAGMA wal_autocheckpoint=0; INSERT INTO t VALUES (4, 'in the log');");
  // As a program that was killed leaves them.
  for (const std::string name : {"a.db", "a.db-wal"}) {
    std::filesystem::copy_file(folder.path(name), copy.path(name));
  }
  sqlite3_close(writer);
  const std::map<std::string, std::string> before = files_in(copy.path());
  ASSERT_EQ(before.size(), 2u);
  {
    const Result<Database> database = Database::open(copy.path("a.db"));
    ASSERT_TRUE(database.has_value()) << database.error().message;
    EXPECT_EQ(first_column(*database, "t", "a"), (std::vector<int64_t>{1, 2, 3, 4}));
    EXPECT_TRUE(database->troubles().empty());
  }
  EXPECT_TRUE(files_in(copy.path()) == before);
  // An empty log is no log; the file says that it has one.
  std::ofstream(copy.path("a.db-wal"), std::ios::binary | std::ios::trunc).close();
  const Result<Database> database = Database::open(copy.path("a.db"));
  ASSERT_TRUE(database.has_value()) << database.error().message;
  EXPECT_EQ(first_column(*database, "t", "a"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(files_in(copy.path()).size(), 2u);
}

TEST(Database, SaysWhenAChangeWasCutOff) {
  const TemporaryDirectory folder;
  change_database(folder.path("a.db"), kThreeRows);
  std::ofstream(folder.path("a.db-journal")) << "something";
  const Result<Database> database = Database::open(folder.path("a.db"));
  ASSERT_TRUE(database.has_value()) << database.error().message;
  ASSERT_EQ(database->troubles().size(), 1u);
  EXPECT_NE(database->troubles()[0].find("-journal lies beside"), std::string::npos);
}

TEST(Database, RefusesWhatIsNone) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path("empty")).close();
  std::ofstream(folder.path("text")) << "Name,Type\n1,2";
  std::ofstream(folder.path("short"), std::ios::binary)
      << std::string("SQLite format 3\0\x10\0", 18);
  EXPECT_NE(open_error(folder.path("empty")).find("an empty file"), std::string::npos);
  EXPECT_NE(open_error(folder.path("text")).find("it begins with \"Name,Type.1,2\""),
            std::string::npos);
  EXPECT_NE(open_error(folder.path("short")).find("after 18 of 100 bytes"), std::string::npos);
  EXPECT_NE(open_error(folder.path("absent")).find("No such file"), std::string::npos);
  EXPECT_NE(open_error(folder.path()).find("not a plain file"), std::string::npos);
  EXPECT_TRUE(looks_like_database(database_text(kThreeRows)));
  EXPECT_FALSE(looks_like_database("SQLite format 3"));
}

TEST(Database, SeesPlainTablesAlone) {
  const Result<Database> database = database_of(database_text(
      "CREATE TABLE plain (a INTEGER, b INTEGER AS (a * 2) VIRTUAL, c AS (a) STORED);"
      "CREATE VIEW v AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"
      " SELECT x AS a FROM r;"
      "CREATE VIRTUAL TABLE f USING fts5(a);"));
  ASSERT_TRUE(database.has_value()) << database.error().message;
  EXPECT_TRUE(database->has_table("plain"));
  EXPECT_FALSE(database->has_table("v"));
  EXPECT_FALSE(database->has_table("f"));
  EXPECT_TRUE(database->has_column("plain", "a"));
  EXPECT_FALSE(database->has_column("plain", "b")) << "computed";
  EXPECT_FALSE(database->has_column("plain", "c")) << "computed";
}

TEST(Database, StopsAQueryThatTheFileIsTooSmallFor) {
  const Result<Database> database = database_of(database_text(kThreeRows));
  ASSERT_TRUE(database.has_value());
  Result<Query> query = Query::create(
      *database, "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r");
  ASSERT_TRUE(query.has_value());
  Result<bool> more = query->next();
  while (more && *more) more = query->next();
  ASSERT_FALSE(more.has_value());
  EXPECT_NE(more.error().message.find("too small for so many"), std::string::npos);
  Result<Query> large =
      Query::create(*database, "SELECT a.b, hex(zeroblob(900000)) FROM t a, t b, t c");
  ASSERT_TRUE(large.has_value());
  more = large->next();
  while (more && *more) more = large->next();
  ASSERT_FALSE(more.has_value());
  EXPECT_NE(more.error().message.find("too small for so much text"), std::string::npos);
}

TEST(Database, KeepsRowsBeforeThePlaceWhereItEnds) {
  std::string sql = "PRAGMA page_size=512; CREATE TABLE t (a INTEGER, b TEXT);";
  for (int i = 1; i <= 60; ++i) {
    sql += "INSERT INTO t VALUES (" + std::to_string(i) + ", '" + std::string(80, 'x') + "');";
  }
  const std::string text = database_text(sql);
  const size_t cut = text.size() / 2 / 512 * 512;
  const Result<Database> database = database_of(std::string_view(text).substr(0, cut));
  ASSERT_TRUE(database.has_value()) << database.error().message;
  EXPECT_TRUE(database->is_cut_short());
  EXPECT_NE(database->troubles().at(0).find("ends after " + std::to_string(cut) + " of " +
                                            std::to_string(text.size())),
            std::string::npos);
  const std::vector<int64_t> values = first_column(*database, "t", "a");
  EXPECT_GT(values.size(), 10u);
  EXPECT_LT(values.size(), 60u);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<int64_t>(i) + 1);
}

TEST(IdIndex, FindsWhatWasAddedFirst) {
  IdIndex index;
  const std::vector<int64_t> ids = {7, 3, 3, INT64_MIN, INT64_MAX, 8, 9, 7};
  for (size_t i = 0; i < ids.size(); ++i) index.add(ids[i], static_cast<uint32_t>(i));
  EXPECT_EQ(index.finish(), 2u);
  EXPECT_EQ(index.find(7), 0u);
  EXPECT_EQ(index.find(3), 1u);
  EXPECT_EQ(index.find(INT64_MIN), 3u);
  EXPECT_EQ(index.find(INT64_MAX), 4u);
  EXPECT_EQ(index.find(8), 5u);
  EXPECT_EQ(index.find(9), 6u);
  EXPECT_EQ(index.find(10), kNoIndex);
  EXPECT_EQ(index.find(0), kNoIndex);
  EXPECT_EQ(IdIndex().find(0), kNoIndex);
}

}  // namespace
}  // namespace gapless
