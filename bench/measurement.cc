// SPDX-License-Identifier: Apache-2.0

#include "bench/measurement.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <malloc.h>
#include <nlohmann/json.hpp>
#include <sched.h>

#include "base/check.h"
#include "base/file.h"
#include "gapless/trace.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

int64_t read_clock_ns(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A line of /proc/self/status, in bytes.
uint64_t status_bytes(std::string_view key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return std::strtoull(line.c_str() + key.size(), nullptr, 10) << 10;
  }
  return 0;
}

// Three digits that matter, never an exponent.
std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 100.0) return fmt::format("{:.0f}", value);
  if (size >= 10.0) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

Json to_json(const Figure& figure) {
  Json json;
  json["unit"] = figure.unit;
  json["median"] = median(figure.values);
  json["p10"] = quantile(figure.values, 0.1);
  json["p90"] = quantile(figure.values, 0.9);
  json["min"] = quantile(figure.values, 0.0);
  json["max"] = quantile(figure.values, 1.0);
  json["rounds"] = figure.values;
  return json;
}

Json to_json(const Row& row) {
  Json json;
  json["group"] = row.group;
  json["what"] = row.what;
  json["figure"] = to_json(row.figure);
  if (row.limit) {
    json["against"] = row.against;
    json["limit"] = to_json(*row.limit);
    json["ratio"] = ratio(row.figure, *row.limit);
  }
  if (!row.goal.empty()) json["goal"] = row.goal;
  if (row.met) json["met"] = *row.met;
  if (!row.note.empty()) json["note"] = row.note;
  return json;
}

Figure figure_from(const Json& json) {
  return {json.at("unit").get<std::string>(), json.at("rounds").get<std::vector<double>>()};
}

Row row_from(const Json& json) {
  Row row;
  row.group = json.at("group").get<std::string>();
  row.what = json.at("what").get<std::string>();
  row.figure = figure_from(json.at("figure"));
  row.against = json.value("against", "");
  if (json.contains("limit")) row.limit = figure_from(json.at("limit"));
  row.goal = json.value("goal", "");
  if (json.contains("met")) row.met = json.at("met").get<bool>();
  row.note = json.value("note", "");
  return row;
}

void print_row(const Row& row) {
  std::string line = fmt::format("  {:<58} {}", row.what, figure_text(row.figure));
  if (row.limit) {
    line += fmt::format("; {} {}: {:.2f}x", row.against, figure_text(*row.limit),
                        ratio(row.figure, *row.limit));
  }
  if (!row.note.empty()) line += "; " + row.note;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  GAPLESS_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double part = place - static_cast<double>(below);
  return values[below] + part * (values[above] - values[below]);
}

double median(const std::vector<double>& values) { return quantile(values, 0.5); }

double ratio(const Figure& figure, const Figure& limit) {
  if (figure.values.size() != limit.values.size()) {
    return median(figure.values) / median(limit.values);
  }
  std::vector<double> ratios;
  for (size_t i = 0; i < limit.values.size(); ++i) {
    ratios.push_back(figure.values[i] / limit.values[i]);
  }
  return median(ratios);
}

Row& compare(Row& row, std::string against, Figure limit) {
  row.against = std::move(against);
  row.limit = std::move(limit);
  return row;
}

Row& expect_at_most(Row& row, double bound) {
  row.goal = fmt::format("<= {} {}", bound, row.figure.unit);
  row.met = median(row.figure.values) <= bound;
  return row;
}

Row& expect_at_least(Row& row, double bound) {
  row.goal = fmt::format(">= {} {}", bound, row.figure.unit);
  row.met = median(row.figure.values) >= bound;
  return row;
}

Row& expect_ratio_at_most(Row& row, double bound) {
  GAPLESS_CHECK(row.limit.has_value());
  row.goal = fmt::format("<= {}x", bound);
  row.met = ratio(row.figure, *row.limit) <= bound;
  return row;
}

std::string figure_text(const Figure& figure) {
  if (figure.values.empty()) return "-";
  std::string middle = short_number(median(figure.values)) + " " + figure.unit;
  if (figure.values.size() == 1) return middle;
  return fmt::format("{} ({}-{})", middle, short_number(quantile(figure.values, 0.1)),
                     short_number(quantile(figure.values, 0.9)));
}

Result<BenchOptions> parse_bench_options(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--json" && has_value) {
      options.json_path = argv[++i];
    } else if (argument == "--folder" && has_value) {
      options.folder = argv[++i];
    } else {
      return fail(ErrorCode::kUsage,
                  "{}: unknown argument '{}'; usage: [--quick] [--folder DIR] [--json FILE]",
                  argv[0], argument);
    }
  }
  return options;
}

int run_bench_program(int argc, char** argv,
                      Result<std::vector<Row>> (*measure)(const BenchOptions&)) {
  const Result<BenchOptions> options = parse_bench_options(argc, argv);
  if (!options) {
    fmt::print(stderr, "{}\n", options.error().message);
    return 2;
  }
  const Result<std::vector<Row>> rows = measure(*options);
  if (!rows) {
    fmt::print(stderr, "{}: {}\n", argv[0], rows.error().message);
    return 1;
  }
  for (const Row& row : *rows) print_row(row);
  if (options->json_path.empty()) return 0;
  const Result<void> written = write_rows(*rows, options->json_path);
  if (!written) fmt::print(stderr, "{}: {}\n", argv[0], written.error().message);
  return written ? 0 : 1;
}

Result<void> write_rows(const std::vector<Row>& rows, const std::string& path) {
  Json json = Json::array();
  for (const Row& row : rows) json.push_back(to_json(row));
  return write_text_file(path, json.dump(1) + "\n");
}

Result<std::vector<Row>> read_rows(const std::string& path) {
  const std::string text = GAPLESS_TRY(read_text_file(path));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array()) return fail(ErrorCode::kInvalidInput, "{}: not a list of rows", path);
  std::vector<Row> rows;
  try {
    for (const Json& row : json) rows.push_back(row_from(row));
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kInvalidInput, "{}: row {} is damaged: {}", path, rows.size(),
                error.what());
  }
  return rows;
}

Result<void> pass_over_file(const std::string& path) {
  const MappedFile file = GAPLESS_TRY(MappedFile::open(path));
  uint64_t sum = 0;
  for (size_t i = 0; i + sizeof(uint64_t) <= file.bytes().size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, file.bytes().data() + i, sizeof(word));
    sum += word;
  }
  asm volatile("" ::"r"(sum));
  return {};
}

bool pin_thread(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return sched_setaffinity(0, sizeof(cores), &cores) == 0;
}

int64_t thread_cpu_ns() { return read_clock_ns(CLOCK_THREAD_CPUTIME_ID); }
int64_t wall_ns() { return read_clock_ns(CLOCK_MONOTONIC); }

double measure_tick_ns() {
  constexpr int64_t kWindowNs = 100'000'000;
  const int64_t begin_ns = wall_ns();
  const uint64_t begin_ticks = read_ticks();
  int64_t end_ns = begin_ns;
  while (end_ns - begin_ns < kWindowNs) end_ns = wall_ns();
  return static_cast<double>(end_ns - begin_ns) / static_cast<double>(read_ticks() - begin_ticks);
}

bool reset_peak_memory() {
  malloc_trim(0);
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  return static_cast<bool>(file.flush());
}

uint64_t peak_memory_bytes() { return status_bytes("VmHWM:"); }
uint64_t resident_bytes() { return status_bytes("VmRSS:"); }

}  // namespace gapless
