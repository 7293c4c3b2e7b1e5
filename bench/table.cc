// SPDX-License-Identifier: Apache-2.0
//
// Joins the rows that the benchmark programs wrote and prints them as one table; with --save also
// as JSON, with the machine and the commit they belong to. bench/run calls it.
//
// usage: bench_table [--save FILE --commit TEXT --command TEXT] ROWS.json ...

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "bench/measurement.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

struct TableOptions {
  std::string save_path;
  std::string commit = "unknown";
  std::string command;
  std::vector<std::string> row_paths;
};

Result<TableOptions> parse_options(int argc, char** argv) {
  TableOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    std::string* const value = argument == "--save"      ? &options.save_path
                               : argument == "--commit"  ? &options.commit
                               : argument == "--command" ? &options.command
                                                         : nullptr;
    if (value == nullptr) {
      if (argument.starts_with("--")) {
        return fail(ErrorCode::kUsage, "bench_table: unknown option '{}'", argument);
      }
      options.row_paths.emplace_back(argument);
      continue;
    }
    if (++i == argc) return fail(ErrorCode::kUsage, "bench_table: {} needs a value", argument);
    *value = argv[i];
  }
  return options;
}

// The first line of a file, or of those of its lines that begin with `key`, what follows a colon.
std::string line_of(const std::string& path, std::string_view key = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(": ");
    return key.empty() || colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

Json describe_run(const TableOptions& options) {
  utsname system = {};
  ::uname(&system);
  Json json;
  json["date"] = date_text();
  json["commit"] = options.commit;
  json["command"] = options.command;
  json["machine"]["cpu"] = line_of("/proc/cpuinfo", "model name");
  json["machine"]["cores"] = ::sysconf(_SC_NPROCESSORS_ONLN);
  json["machine"]["kernel"] = fmt::format("{} {}", system.sysname, system.release);
  json["machine"]["clocksource"] =
      line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  json["machine"]["governor"] = line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  json["machine"]["load"] = line_of("/proc/loadavg");
  json["machine"]["compiler"] = fmt::format("g++ {}", __VERSION__);
  return json;
}

using Cells = std::vector<std::string>;

Cells cells_of(const Row& row) {
  std::string limit;
  std::string times;
  if (row.limit) {
    limit = fmt::format("{} {}", row.against, figure_text(*row.limit));
    times = fmt::format("{:.2f}", ratio(row.figure, *row.limit));
  }
  const std::string met = !row.met ? "" : *row.met ? "yes" : "NO";
  return {row.what, figure_text(row.figure), limit, times, row.goal, met};
}

void print_line(const Cells& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    line += fmt::format("{:<{}}  ", cells[i], widths[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  fmt::print("{}\n", line);
}

void print_table(const std::vector<Row>& rows) {
  const Cells titles = {"what", "median (p10-p90)", "limit or peer, same run", "ratio", "goal",
                        "met"};
  std::vector<Cells> lines = {titles};
  for (const Row& row : rows) lines.push_back(cells_of(row));
  std::vector<size_t> widths(titles.size(), 0);
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  print_line(lines[0], widths);
  std::string group;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].group != group) fmt::print("-- {}\n", rows[i].group);
    group = rows[i].group;
    print_line(lines[i + 1], widths);
  }
}

void print_verdict(const std::vector<Row>& rows) {
  size_t goal_count = 0;
  size_t met_count = 0;
  for (const Row& row : rows) {
    goal_count += row.met ? 1 : 0;
    met_count += row.met && *row.met ? 1 : 0;
  }
  fmt::print("{} of {} goals met\n", met_count, goal_count);
}

Result<void> save(const TableOptions& options, const Json& run) {
  Json json = run;
  json["rows"] = Json::array();
  for (const std::string& path : options.row_paths) {
    const std::string text = GAPLESS_TRY(read_text_file(path));
    for (Json& row : Json::parse(text, nullptr, false)) json["rows"].push_back(std::move(row));
  }
  return write_text_file(options.save_path, json.dump(1) + "\n");
}

Result<void> run(const TableOptions& options) {
  std::vector<Row> rows;
  for (const std::string& path : options.row_paths) {
    for (Row& row : GAPLESS_TRY(read_rows(path))) rows.push_back(std::move(row));
  }
  const Json run = describe_run(options);
  const Json& machine = run["machine"];
  fmt::print("\n{}, {} cores, {}, commit {}, {}\n\n", machine["cpu"].get<std::string>(),
             machine["cores"].get<int64_t>(), machine["kernel"].get<std::string>(), options.commit,
             run["date"].get<std::string>());
  print_table(rows);
  print_verdict(rows);
  if (options.save_path.empty()) return {};
  GAPLESS_TRY(save(options, run));
  fmt::print("saved as {}\n", options.save_path);
  return {};
}

}  // namespace
}  // namespace gapless

// NOLINTNEXTLINE(bugprone-exception-escape): only without memory or standard output.
int main(int argc, char** argv) {
  const gapless::Result<gapless::TableOptions> options = gapless::parse_options(argc, argv);
  if (!options) {
    fmt::print(stderr, "{}\n", options.error().message);
    return 2;
  }
  const gapless::Result<void> done = gapless::run(*options);
  if (!done) fmt::print(stderr, "bench_table: {}\n", done.error().message);
  return done ? 0 : 1;
}
