// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks share: figures with their spread, rows of the table, the clocks and the
// memory of the process. bench/README.md tells how figures are taken.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gapless {

// One value a round. Rounds go over all variants in turn, so that what disturbs the machine
// disturbs all alike, and value i of one figure belongs to value i of another.
struct Figure {
  std::string unit;  // "ns", "M/s", "MiB"
  std::vector<double> values;
};

// 0 <= share <= 1; linear between neighbours.
double quantile(std::vector<double> values, double share);
double median(const std::vector<double>& values);

// One line of the table.
struct Row {
  std::string group;
  std::string what;
  Figure figure;
  std::string against;          // the limit or the peer, measured in the same run
  std::optional<Figure> limit;  // its figure
  std::string goal;             // as text; empty: none was set
  std::optional<bool> met;      // by the median
  std::string note;
};

// The median over the rounds of figure / limit.
double ratio(const Figure& figure, const Figure& limit);

// These complete a row. A goal is judged by the median.
Row& compare(Row& row, std::string against, Figure limit);
Row& expect_at_most(Row& row, double bound);
Row& expect_at_least(Row& row, double bound);
Row& expect_ratio_at_most(Row& row, double bound);

// The cells of the line: "10.1 ns (9.9-10.6)".
std::string figure_text(const Figure& figure);

// ---- Command line and result of a benchmark program: --json FILE, --folder DIR, --quick.

struct BenchOptions {
  std::string json_path;     // empty: rows are only printed
  std::string folder = ".";  // for files that are deleted afterwards
  bool quick = false;        // one round, to see whether it works
};
Result<BenchOptions> parse_bench_options(int argc, char** argv);
// The whole of main(): options in, rows printed and written, errors as text and exit status.
int run_bench_program(int argc, char** argv,
                      Result<std::vector<Row>> (*measure)(const BenchOptions&));

Result<void> write_rows(const std::vector<Row>& rows, const std::string& path);
Result<std::vector<Row>> read_rows(const std::string& path);

// ---- The process.

// Adds up the words of the mapped file: the limit of whoever reads it.
Result<void> pass_over_file(const std::string& path);
// Keeps the calling thread on one core. False where that is not possible.
bool pin_thread(int core);
int64_t thread_cpu_ns();
int64_t wall_ns();
// How long one tick of read_ticks() is.
double measure_tick_ns();

// Largest resident set since reset_peak_memory(), and the present one, in bytes. 0: unknown.
bool reset_peak_memory();
uint64_t peak_memory_bytes();
uint64_t resident_bytes();

// Nothing before it is moved behind it by the compiler, nor the other way round.
inline void compiler_barrier() { asm volatile("" ::: "memory"); }

}  // namespace gapless
