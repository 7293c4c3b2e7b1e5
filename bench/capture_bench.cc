// SPDX-License-Identifier: Apache-2.0
//
// How quickly forward passes are found in a capture of a million rows, and in how much memory; and
// how quickly kernels are found in a timeline that is mostly the host's. The files are made here
// and are in the page cache. The limit is a pass over their bytes.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "analysis/pass_summary.h"
#include "analysis/passes.h"
#include "analysis/synthetic_capture.h"
#include "base/file.h"
#include "bench/measurement.h"
#include "formats/ascend_csv_writer.h"
#include "formats/capture.h"

namespace gapless {
namespace {

constexpr uint32_t kPasses = 1052;  // of 951 rows
constexpr uint32_t kQuickPasses = 20;
constexpr uint32_t kHostEvents = 2'000'000;
constexpr uint32_t kQuickHostEvents = 20'000;
constexpr uint32_t kEventsPerKernel = 50;
constexpr double kGoalS = 5.0;
constexpr double kGoalMib = 1024.0;
constexpr double kMebibyte = 1 << 20;

enum Part : uint8_t { kAll, kRead, kPassesFound, kSummaries, kPartCount };
constexpr std::string_view kPartNames[kPartCount] = {"read and find passes", "read", "find passes",
                                                     "count collectives once, add up"};

struct Figures {
  std::vector<Figure> parts = std::vector<Figure>(kPartCount, Figure{"s", {}});
  Figure pass{"s", {}};  // over the bytes
  Figure memory{"MiB", {}};
};

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

Result<double> time_pass(const std::string& path) {
  const int64_t begin_ns = wall_ns();
  GAPLESS_TRY(pass_over_file(path));
  return seconds(wall_ns() - begin_ns);
}

Result<void> run_table_round(const std::string& path, uint32_t pass_count, Figures& figures) {
  figures.pass.values.push_back(GAPLESS_TRY(time_pass(path)));
  reset_peak_memory();
  const int64_t begin_ns = wall_ns();
  const CaptureTable table = GAPLESS_TRY(read_capture({&path, 1}));
  const int64_t read_ns = wall_ns();
  const FoundPasses found = GAPLESS_TRY(find_passes(table));
  const int64_t found_ns = wall_ns();
  const CollectiveRows collectives = find_collective_rows(table, DedupRule::kInterval);
  const std::vector<PassSummary> summaries =
      summarise_passes(table, found, collectives, WindowPolicy::kFull);
  const int64_t end_ns = wall_ns();
  if (summaries.size() != pass_count) {
    return fail(ErrorCode::kInvalidInput, "{}: {} passes found, {} made", path, summaries.size(),
                pass_count);
  }
  figures.parts[kAll].values.push_back(seconds(end_ns - begin_ns));
  figures.parts[kRead].values.push_back(seconds(read_ns - begin_ns));
  figures.parts[kPassesFound].values.push_back(seconds(found_ns - read_ns));
  figures.parts[kSummaries].values.push_back(seconds(end_ns - found_ns));
  figures.memory.values.push_back(static_cast<double>(peak_memory_bytes()) / kMebibyte);
  return {};
}

Result<void> measure_table(const BenchOptions& options, std::vector<Row>& rows) {
  const std::string path = options.folder + "/kernel_details.csv";
  const uint32_t pass_count = options.quick ? kQuickPasses : kPasses;
  uint64_t row_count = 0;
  {
    const SyntheticCapture capture =
        GAPLESS_TRY(make_synthetic_capture({.pass_count = pass_count}));
    row_count = capture.table.size();
    GAPLESS_TRY(write_ascend_csv(capture.table, path));
  }
  const double megabytes = static_cast<double>(std::filesystem::file_size(path)) * 1e-6;
  Figures figures;
  for (int round = 0; round < (options.quick ? 1 : 7); ++round) {
    GAPLESS_TRY(run_table_round(path, pass_count, figures));
  }
  std::filesystem::remove(path);
  for (size_t part = 0; part < kPartCount; ++part) {
    Row row{"captures",
            fmt::format("kernel table, {}", kPartNames[part]),
            figures.parts[part],
            "",
            {},
            "",
            {},
            ""};
    if (part == kAll) {
      expect_at_most(row, kGoalS);
      row.note = fmt::format("{} rows, {:.0f} MB", row_count, megabytes);
    }
    if (part == kRead) compare(row, "a pass over the bytes", figures.pass);
    rows.push_back(std::move(row));
  }
  Row memory{"captures", "kernel table, peak memory", figures.memory, "", {}, "", {}, ""};
  rows.push_back(expect_at_most(memory, kGoalMib));
  return {};
}

// Operators of the host, and a launch and a kernel after every so many.
Result<void> write_timeline(const std::string& path, uint32_t event_count) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  file.append("{\"traceEvents\": [\n");
  for (uint32_t i = 0; i < event_count; ++i) {
    file.append(fmt::format(
        "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::linear\", \"pid\": 7, \"tid\": "
        "7, \"ts\": {}.125, \"dur\": 3.500, \"args\": {{\"External id\": {}, \"Sequence number\": "
        "{}, \"Fwd thread id\": 0}}}},\n",
        4 * i, i, i));
    if (i % kEventsPerKernel == 0) {
      file.append(fmt::format(
          "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": "
          "7, \"tid\": 7, \"ts\": {0}.500, \"dur\": 1, \"args\": {{\"correlation\": {1}}}}},\n"
          "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void gemm<float>(int)\", \"pid\": 0, "
          "\"tid\": 7, \"ts\": {0}.900, \"dur\": 2, \"args\": {{\"device\": 0, \"stream\": 7, "
          "\"correlation\": {1}}}}},\n",
          4 * i, i));
    }
  }
  file.append("{}]}\n");
  return file.commit();
}

Result<void> measure_timeline(const BenchOptions& options, std::vector<Row>& rows) {
  const std::string path = options.folder + "/kineto.json";
  const uint32_t event_count = options.quick ? kQuickHostEvents : kHostEvents;
  GAPLESS_TRY(write_timeline(path, event_count));
  const double megabytes = static_cast<double>(std::filesystem::file_size(path)) * 1e-6;
  Figure rate{"MB/s", {}};
  Figure limit{"MB/s", {}};
  Figure memory{"MiB", {}};
  for (int round = 0; round < (options.quick ? 1 : 7); ++round) {
    limit.values.push_back(megabytes / GAPLESS_TRY(time_pass(path)));
    reset_peak_memory();
    const int64_t begin_ns = wall_ns();
    const CaptureTable table = GAPLESS_TRY(read_capture({&path, 1}));
    rate.values.push_back(megabytes / seconds(wall_ns() - begin_ns));
    memory.values.push_back(static_cast<double>(peak_memory_bytes()) / kMebibyte);
    const uint64_t kernel_count = (event_count + kEventsPerKernel - 1) / kEventsPerKernel;
    if (table.size() != kernel_count) {
      return fail(ErrorCode::kInvalidInput, "{}: {} kernels of {}", path, table.size(),
                  kernel_count);
    }
  }
  std::filesystem::remove(path);
  Row row{"captures", "timeline, kernels among operators", rate, "", {}, "", {}, ""};
  row.note = fmt::format("{:.0f} MB", megabytes);
  rows.push_back(compare(row, "a pass over the bytes", limit));
  rows.push_back({"captures", "timeline, peak memory", memory, "", {}, "", {}, ""});
  return {};
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  std::vector<Row> rows;
  fmt::print("captures: kernel table\n");
  GAPLESS_TRY(measure_table(options, rows));
  fmt::print("captures: timeline\n");
  GAPLESS_TRY(measure_timeline(options, rows));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
