// SPDX-License-Identifier: Apache-2.0

#include "formats/database.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/core.h>
#include <sqlite3.h>

namespace gapless {
namespace {

constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr size_t kHeaderBytes = 100;
// A scan takes two or three steps of the machine a column, which takes a byte at least, and some
// more a row. Damaged pages that lead to each other could keep it going for ever.
constexpr uint64_t kStepsPerByte = 4;
constexpr uint64_t kLeastSteps = 1'000'000;
constexpr int kStepsPerCall = 1000;
// Text of a UTF-16 file grows when it becomes UTF-8.
constexpr uint64_t kTextPerByte = 2;
constexpr uint64_t kLeastText = 1 << 20;

// Characters that mean something in a URI, and all that are not plain, as %41.
std::string uri_of(const std::string& path) {
  std::string uri = path.starts_with('/') ? "file://" : "file:";
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '/' || c == '.' || c == '-' || c == '_';
    if (is_plain) {
      uri += c;
    } else {
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return uri;
}

std::string sql_name(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

uint64_t file_bytes(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

uint32_t big_endian(std::span<const std::byte> bytes) {
  uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<uint32_t>(byte);
  return value;
}

// Why a file with these first bytes is no database.
Result<void> check_header(const std::string& path, std::span<const std::byte> bytes,
                          uint64_t size) {
  constexpr size_t kShownBytes = 16;
  if (size == 0) return fail(ErrorCode::kInvalidInput, "{}: an empty file, no database", path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!looks_like_database(text)) {
    std::string shown(text.substr(0, kShownBytes));
    for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '.';
    return fail(ErrorCode::kInvalidInput, "{}: no SQLite database: it begins with \"{}\"", path,
                shown);
  }
  if (size < kHeaderBytes) {
    return fail(ErrorCode::kInvalidInput,
                "{}: a database that ends in its header, after {} of {} bytes", path, size,
                kHeaderBytes);
  }
  return {};
}

// Called every kStepsPerCall steps; anything but 0 stops the query.
int count_steps(void* budget_steps) {
  uint64_t& left = *static_cast<uint64_t*>(budget_steps);
  if (left < kStepsPerCall) return 1;
  left -= kStepsPerCall;
  return 0;
}

void set_limits(sqlite3* handle) {
  constexpr std::pair<int, int> kLimits[] = {
      {SQLITE_LIMIT_LENGTH, 64 << 20},    {SQLITE_LIMIT_SQL_LENGTH, 1 << 20},
      {SQLITE_LIMIT_EXPR_DEPTH, 50},      {SQLITE_LIMIT_COMPOUND_SELECT, 3},
      {SQLITE_LIMIT_VDBE_OP, 100'000},    {SQLITE_LIMIT_FUNCTION_ARG, 8},
      {SQLITE_LIMIT_ATTACHED, 0},         {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50},
      {SQLITE_LIMIT_VARIABLE_NUMBER, 10}, {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
      {SQLITE_LIMIT_WORKER_THREADS, 0}};
  for (const std::pair<int, int>& limit : kLimits) {
    sqlite3_limit(handle, limit.first, limit.second);
  }
  constexpr std::pair<int, int> kSwitches[] = {{SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                               {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                                               {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                               {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
                                               {SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1}};
  for (const std::pair<int, int>& setting : kSwitches) {
    sqlite3_db_config(handle, setting.first, setting.second, nullptr);
  }
}

}  // namespace

bool looks_like_database(std::string_view first_bytes) { return first_bytes.starts_with(kMagic); }

void Database::Close::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }

void Query::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Result<Database> Database::open(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) return fail(ErrorCode::kSystem, "{}: {}", path, error.message());
  if (!std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::kInvalidInput, "{}: not a plain file, so no database", path);
  }
  std::array<std::byte, kHeaderBytes> header = {};
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kSystem, "{}: cannot be opened for reading", path);
  file.read(reinterpret_cast<char*>(header.data()), kHeaderBytes);
  const std::span<const std::byte> bytes(header.data(), static_cast<size_t>(file.gcount()));
  Database database;
  database.path_ = path;
  database.bytes_ = file_bytes(path);
  GAPLESS_TRY(check_header(path, bytes, database.bytes_));
  const uint64_t log_bytes = file_bytes(path + "-wal");
  if (log_bytes > 0) {
    database.bytes_ += log_bytes;
    const Result<void> with_log = database.connect(Way::kWithLog);
    if (with_log) return database;
    database.bytes_ -= log_bytes;
    database.troubles_.push_back(
        fmt::format("{} bytes of changes in {}-wal could not be read ({}) and are missing here",
                    log_bytes, path, with_log.error().message));
  }
  database.compare_size(bytes, database.bytes_);
  if (file_bytes(path + "-journal") > 0) {
    database.troubles_.push_back(fmt::format(
        "{}-journal lies beside the file: a program stopped while it changed the database", path));
  }
  GAPLESS_TRY(database.connect(Way::kImmutable));
  return database;
}

Result<Database> Database::from_memory(std::span<const std::byte> bytes, std::string name) {
  constexpr size_t kVersions = 18;  // two bytes of the header: 2 where there is a write-ahead log
  constexpr std::byte kNoLog{1};
  GAPLESS_TRY(check_header(name, bytes.first(std::min(bytes.size(), kHeaderBytes)), bytes.size()));
  Database database;
  database.path_ = std::move(name);
  database.bytes_ = bytes.size();
  database.compare_size(bytes.first(kHeaderBytes), bytes.size());
  database.memory_.assign(bytes.begin(), bytes.end());
  database.memory_[kVersions] = kNoLog;
  database.memory_[kVersions + 1] = kNoLog;
  GAPLESS_TRY(database.connect(Way::kMemory));
  return database;
}

void Database::compare_size(std::span<const std::byte> header, uint64_t bytes) {
  const uint64_t stored = big_endian(header.subspan(16, 2));
  const uint64_t page_bytes = stored == 1 ? 65536 : stored;
  const uint64_t needed = page_bytes * big_endian(header.subspan(28, 4));
  // The number of pages counts when it was written together with the last change.
  if (big_endian(header.subspan(24, 4)) != big_endian(header.subspan(92, 4))) return;
  is_cut_short_ = bytes < needed;
  if (!is_cut_short_) return;
  troubles_.push_back(
      fmt::format("{} ends after {} of {} bytes; rows before that are here", path_, bytes, needed));
}

// The log is read without locks and without the index that SQLite would leave beside the file: the
// connection believes that it is alone.
Result<void> Database::connect(Way way) {
  const std::string uri = way == Way::kMemory      ? ":memory:"
                          : way == Way::kImmutable ? uri_of(path_) + "?immutable=1"
                                                   : uri_of(path_) + "?mode=ro&vfs=unix-none";
  constexpr int kFlags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
  const int access = way == Way::kMemory ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  Error first_error;
  for (const bool is_lenient : {false, true}) {
    sqlite3* handle = nullptr;
    const int status = sqlite3_open_v2(uri.c_str(), &handle, kFlags | access, nullptr);
    handle_.reset(handle);
    if (status != SQLITE_OK) {
      return fail(ErrorCode::kSystem, "{}: cannot be opened: {}", path_, sqlite3_errstr(status));
    }
    budget_ = std::make_unique<Budget>();
    set_limits(handle);
    sqlite3_progress_handler(handle, kStepsPerCall, count_steps, &budget_->steps);
    if (way == Way::kMemory) {
      sqlite3_deserialize(handle, "main", reinterpret_cast<unsigned char*>(memory_.data()),
                          static_cast<sqlite3_int64>(memory_.size()),
                          static_cast<sqlite3_int64>(memory_.size()), SQLITE_DESERIALIZE_READONLY);
    }
    Result<void> listed = configure(is_lenient);
    if (listed) listed = list_tables();
    // A file that lost its end is refused, unless the connection says that it knows.
    if (listed) return {};
    if (!is_lenient) first_error = listed.error();
  }
  return first_error;
}

Result<void> Database::configure(bool is_lenient) {
  std::string sql =
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA mmap_size=0; PRAGMA cell_size_check=ON; "
      "PRAGMA trusted_schema=OFF; PRAGMA query_only=ON; PRAGMA temp_store=MEMORY;";
  if (is_lenient) sql += "PRAGMA writable_schema=ON;";
  budget_->steps = kLeastSteps;
  const int status = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (status == SQLITE_OK) return {};
  return fail(ErrorCode::kInvalidInput, "{}: a damaged database: {}", path_,
              sqlite3_errmsg(handle_.get()));
}

// Plain tables alone: a view under the name of a table could compute for ever, and so could a
// virtual table, which has no page of its own.
Result<void> Database::list_tables() {
  const std::string sql =
      "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name IS NOT NULL";
  columns_.clear();
  Result<Query> query = Query::create(*this, sql);
  // Reading the list fails once when an entry in it is damaged, and then goes on without that.
  if (!query) query = Query::create(*this, sql);
  if (!query) return query.error();
  std::vector<std::string> tables;
  while (true) {
    const Result<bool> more = query->next();
    if (!more && tables.empty()) return more.error();
    if (!more) troubles_.push_back(more.error().message);
    if (!more || !*more) break;
    tables.emplace_back(query->text(0));
  }
  for (const std::string& table : tables) {
    const Result<void> listed = list_columns(table);
    if (!listed) troubles_.push_back(listed.error().message);
  }
  return {};
}

Result<void> Database::list_columns(const std::string& table) {
  constexpr int kName = 1;
  constexpr int kHidden = 6;  // computed columns are not 0
  Query query =
      GAPLESS_TRY(Query::create(*this, fmt::format("PRAGMA table_xinfo({})", sql_name(table))));
  std::vector<std::string> names;
  while (GAPLESS_TRY(query.next())) {
    if (query.integer(kHidden) == 0) names.emplace_back(query.text(kName));
  }
  columns_[table] = std::move(names);
  return {};
}

bool Database::has_table(std::string_view table) const {
  return columns_.find(table) != columns_.end();
}

bool Database::has_column(std::string_view table, std::string_view name) const {
  return column(table, {name}).has_value();
}

std::optional<std::string> Database::column(std::string_view table,
                                            const std::vector<std::string_view>& names) const {
  const auto found = columns_.find(table);
  if (found == columns_.end()) return std::nullopt;
  for (const std::string_view name : names) {
    const std::vector<std::string>& columns = found->second;
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) return std::string(name);
  }
  return std::nullopt;
}

Result<Query> Query::create(const Database& database, const std::string& sql) {
  Query query;
  sqlite3_stmt* statement = nullptr;
  query.path_ = database.path_;
  query.budget_ = database.budget_.get();
  query.budget_->steps = kLeastSteps + kStepsPerByte * database.bytes_;
  query.text_bytes_left_ = kLeastText + kTextPerByte * database.bytes_;
  const int status =
      sqlite3_prepare_v2(database.handle_.get(), sql.c_str(), -1, &statement, nullptr);
  query.statement_.reset(statement);
  if (status != SQLITE_OK || statement == nullptr) {
    return fail(ErrorCode::kInvalidInput, "{}: a damaged database: {}", database.path_,
                sqlite3_errmsg(database.handle_.get()));
  }
  query.column_count_ = sqlite3_column_count(statement);
  return query;
}

// Without an index, which a file may have for other columns in another order, or broken.
Result<Query> Query::scan(const Database& database, std::string_view table,
                          const std::vector<ColumnNames>& columns) {
  std::string sql = "SELECT ";
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::optional<std::string> name = database.column(table, columns[i]);
    if (i > 0) sql += ", ";
    sql += name ? sql_name(*name) : std::string("NULL");
  }
  return create(database, fmt::format("{} FROM {} NOT INDEXED", sql, sql_name(table)));
}

Result<bool> Query::next() {
  const int status = sqlite3_step(statement_.get());
  if (status == SQLITE_DONE) return false;
  if (status == SQLITE_INTERRUPT) {
    return fail(ErrorCode::kInvalidInput,
                "{}: stopped after row {}, for the file is too small for so many", path_,
                row_count_);
  }
  if (status != SQLITE_ROW) {
    return fail(ErrorCode::kInvalidInput, "{}: damaged behind row {}: {}", path_, row_count_,
                sqlite3_errmsg(sqlite3_db_handle(statement_.get())));
  }
  ++row_count_;
  for (int column = 0; column < column_count_; ++column) {
    const int type = sqlite3_column_type(statement_.get(), column);
    if (type != SQLITE_TEXT && type != SQLITE_BLOB) continue;
    const uint64_t bytes = static_cast<uint64_t>(sqlite3_column_bytes(statement_.get(), column));
    if (bytes > text_bytes_left_) {
      return fail(ErrorCode::kInvalidInput,
                  "{}: stopped at row {}, for the file is too small for so much text", path_,
                  row_count_);
    }
    text_bytes_left_ -= bytes;
  }
  return true;
}

bool Query::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

std::optional<int64_t> Query::integer(int column) const {
  constexpr double kExact = 9007199254740992.0;  // 2^53: doubles below it are whole numbers exactly
  const int type = sqlite3_column_type(statement_.get(), column);
  if (type == SQLITE_INTEGER) return sqlite3_column_int64(statement_.get(), column);
  if (type == SQLITE_FLOAT) {
    const double value = sqlite3_column_double(statement_.get(), column);
    if (!(std::abs(value) < kExact) || value != std::trunc(value)) return std::nullopt;
    return static_cast<int64_t>(value);
  }
  if (type != SQLITE_TEXT) return std::nullopt;
  constexpr std::string_view kSpace = " \t\r\n";
  std::string_view digits = text(column);
  digits.remove_prefix(std::min(digits.find_first_not_of(kSpace), digits.size()));
  digits = digits.substr(0, digits.find_last_not_of(kSpace) + 1);
  int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end || digits.empty()) return std::nullopt;
  return value;
}

std::optional<double> Query::real(int column) const {
  const int type = sqlite3_column_type(statement_.get(), column);
  if (type != SQLITE_INTEGER && type != SQLITE_FLOAT) return std::nullopt;
  const double value = sqlite3_column_double(statement_.get(), column);
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

std::string_view Query::text(int column) const {
  const unsigned char* const text = sqlite3_column_text(statement_.get(), column);
  if (text == nullptr) return {};
  return {reinterpret_cast<const char*>(text),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

}  // namespace gapless
