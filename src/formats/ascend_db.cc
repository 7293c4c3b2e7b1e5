// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_db.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "formats/ascend_db_reader.h"

namespace gapless {
namespace {

// What an entry of CommAnalyzerTime says.
struct CollectiveParts {
  double start_us = 0.0;  // rounded: good for the order of entries, not for finding rows
  int64_t wait_ns = kAbsent;
  int64_t transit_ns = kAbsent;
};
using PartsByName = std::map<std::string, std::vector<CollectiveParts>, std::less<>>;

// The file has milliseconds as doubles.
int64_t nanoseconds(std::optional<double> milliseconds) {
  constexpr double kNsPerMs = 1e6;
  constexpr double kLargestMs = 1e9;
  if (!milliseconds || *milliseconds < 0.0 || *milliseconds > kLargestMs) return kAbsent;
  return std::llround(*milliseconds * kNsPerMs);
}

Result<PartsByName> read_parts(const Database& database) {
  const std::vector<ColumnNames> columns = {
      {"hccl_op_name"}, {"start_timestamp"}, {"wait_time"}, {"transit_time"}};
  PartsByName parts;
  Query row = GAPLESS_TRY(Query::scan(database, "CommAnalyzerTime", columns));
  while (true) {
    const Result<bool> more = row.next();
    if (!more && parts.empty()) return more.error();
    if (!more || !*more) break;
    std::string_view name = row.text(0);
    name = name.substr(0, name.find('@'));  // the group
    CollectiveParts entry;
    entry.start_us = row.real(1).value_or(0.0);
    entry.wait_ns = nanoseconds(row.real(2));
    entry.transit_ns = nanoseconds(row.real(3));
    parts[std::string(name)].push_back(entry);
  }
  for (auto& [name, entries] : parts) {
    std::stable_sort(
        entries.begin(), entries.end(),
        [](const CollectiveParts& a, const CollectiveParts& b) { return a.start_us < b.start_us; });
  }
  return parts;
}

}  // namespace

bool is_ascend_database(const Database& database) {
  const bool has_tasks =
      database.has_column("TASK", "startNs") && database.has_column("TASK", "globalTaskId");
  const bool has_collectives = database.has_column("COMMUNICATION_OP", "startNs") &&
                               database.has_column("COMMUNICATION_OP", "opName");
  return has_tasks || has_collectives;
}

Result<CaptureTable> read_ascend_db(const Database& database, const CaptureReadOptions& options) {
  if (!is_ascend_database(database)) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no database of the Ascend profiler: it has neither table TASK (startNs, "
                "globalTaskId) nor COMMUNICATION_OP (startNs, opName){}",
                database.path(),
                database.troubles().empty() ? "" : "; " + database.troubles().front());
  }
  CaptureTable table;
  table.format = "ascend-db";
  AscendDbReader reader(database, table, options);
  GAPLESS_TRY(reader.read());
  return table;
}

Result<CaptureTable> read_ascend_db(const std::string& path, const CaptureReadOptions& options) {
  const Database database = GAPLESS_TRY(Database::open(path));
  return read_ascend_db(database, options);
}

// A name comes again when a collective is repeated: entries and rows of one name are then paired in
// their order, and left alone when there are not as many of one as of the other.
Result<uint64_t> join_ascend_analysis_db(CaptureTable& table, const Database& database) {
  if (!database.has_column("CommAnalyzerTime", "hccl_op_name")) {
    return fail(ErrorCode::kInvalidInput,
                "{}: no analysis of the Ascend profiler: it has no table CommAnalyzerTime "
                "(hccl_op_name, wait_time, transit_time)",
                database.path());
  }
  const PartsByName parts = GAPLESS_TRY(read_parts(database));
  std::map<uint32_t, std::vector<size_t>> rows;  // of summaries, by name
  for (size_t row = 0; row < table.size(); ++row) {
    if (table.kind[row] == KernelKind::kCollective) rows[table.name[row]].push_back(row);
  }
  uint64_t joined_count = 0;
  uint64_t unclear_count = 0;
  for (const auto& [name, of_name] : rows) {
    const auto found = parts.find(table.names[name]);
    if (found == parts.end()) continue;
    if (found->second.size() != of_name.size()) {
      unclear_count += of_name.size();
      continue;
    }
    table.wait_ns.resize(table.size(), kAbsent);
    table.transit_ns.resize(table.size(), kAbsent);
    for (size_t i = 0; i < of_name.size(); ++i) {
      table.wait_ns[of_name[i]] = found->second[i].wait_ns;
      table.transit_ns[of_name[i]] = found->second[i].transit_ns;
    }
    joined_count += of_name.size();
  }
  if (unclear_count > 0) {
    table.findings.push_back(
        {Severity::kWarning, "collectives-unclear",
         fmt::format("{} collectives have names that {} has another number of times; waiting "
                     "and transit are not known for them",
                     unclear_count, database.path()),
         kNoIndex, unclear_count});
  }
  return joined_count;
}

Result<uint64_t> join_ascend_analysis_db(CaptureTable& table, const std::string& path) {
  const Database database = GAPLESS_TRY(Database::open(path));
  return join_ascend_analysis_db(table, database);
}

}  // namespace gapless
