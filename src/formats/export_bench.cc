// SPDX-License-Identifier: Apache-2.0
//
// How quickly a trace is written in each format, and how much memory that takes: two million spans
// with values on 76 lanes, on one core. Written to a file and, to tell the encoder from the file
// system, to /dev/null. The limits are the same number of ready bytes written and copied.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "base/file.h"
#include "bench/measurement.h"
#include "formats/format.h"
#include "trace/synthetic.h"
#include "trace/trace.h"

namespace gapless {
namespace {

constexpr uint32_t kLanes = 76;
constexpr uint32_t kSpans = 2'000'000;
constexpr size_t kBlockBytes = 1 << 20;  // of the plain copies
constexpr double kMebibyte = 1 << 20;

struct Target {
  std::string what;
  Format format;
  bool compress = false;
  double goal = 0.0;  // million slices a second, to a file; 0: none was set

  Figure to_file{"M/s", {}};  // slices by CPU time
  Figure to_null{"M/s", {}};
  Figure writing{"M/s", {}};  // the limits: the same bytes, ready
  Figure copying{"M/s", {}};
  Figure growth{"MiB", {}};  // of the resident set while it is written
  Figure model{"MiB", {}};
  uint64_t file_bytes = 0;
  double wall_s = 0.0;
  double small_growth = 0.0;  // with a quarter of the spans
};

std::vector<Target> make_targets() {
  return {
      {"Chrome JSON", Format::kChromeJson, false, 4.5},
      {"Perfetto protobuf", Format::kPerfetto, false, 12.0},
      {"FXT", Format::kFxt, false, 12.0},
      {"Paraver", Format::kParaver},
      {"native", Format::kGapless},
      {"native, zstd", Format::kGapless, true},
  };
}

// Paraver makes three files out of one name.
bool can_be_discarded(const Target& target) { return target.format != Format::kParaver; }

Trace make_trace(uint32_t spans) {
  SyntheticOptions options;
  options.lane_count = kLanes;
  options.spans_per_lane = (spans + kLanes - 1) / kLanes;
  options.values = true;
  return make_synthetic_trace(options);
}

double million_per_s(size_t slices, int64_t elapsed_ns) {
  return static_cast<double>(slices) * 1e3 / static_cast<double>(elapsed_ns);
}

Result<int64_t> time_write(const Trace& trace, const Target& target, const std::string& path) {
  const int64_t begin_ns = thread_cpu_ns();
  GAPLESS_TRY(write_trace(trace, path, target.format, {.compress = target.compress}));
  return thread_cpu_ns() - begin_ns;
}

// Bytes of all files in the folder, which are then removed.
uint64_t take_folder(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += entry.file_size();
    std::filesystem::remove(entry.path());
  }
  return bytes;
}

// The same way to the disk as the exporters', in blocks as large as theirs may be.
Result<int64_t> time_plain_write(const std::string& path, uint64_t bytes) {
  const std::string block(OutputFile::kMaxReserve, 'x');
  const int64_t begin_ns = thread_cpu_ns();
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  for (uint64_t done = 0; done < bytes; done += block.size()) {
    file.append({block.data(), std::min<uint64_t>(block.size(), bytes - done)});
  }
  GAPLESS_TRY(file.commit());
  const int64_t elapsed_ns = thread_cpu_ns() - begin_ns;
  ::unlink(path.c_str());
  return elapsed_ns;
}

// From memory that is not in the cache into a buffer that is, as an encoder does.
int64_t time_copy(uint64_t bytes) {
  constexpr size_t kSourceBytes = 64 << 20;
  static const std::vector<char> source(kSourceBytes, 'x');
  std::vector<char> block(kBlockBytes);
  const int64_t begin_ns = thread_cpu_ns();
  for (uint64_t done = 0; done < bytes; done += kBlockBytes) {
    std::memcpy(block.data(), source.data() + done % kSourceBytes, kBlockBytes);
    compiler_barrier();
  }
  return thread_cpu_ns() - begin_ns;
}

// Writes to the disk once more beforehand, untimed: a virtual machine that has to ask its host for
// page-cache memory spends more time on that than on encoding, and only sometimes.
Result<void> run_round(const Trace& trace, const std::string& folder, Target& target) {
  const size_t slices = trace.spans.size();
  const std::string path = folder + "/trace" + std::string(info_of(target.format).extension);
  if (target.file_bytes == 0) {
    GAPLESS_TRY(time_write(trace, target, path));
    target.file_bytes = take_folder(folder);
  }
  GAPLESS_TRY(time_plain_write(path, target.file_bytes));
  const int64_t plain_ns = GAPLESS_TRY(time_plain_write(path, target.file_bytes));
  target.writing.values.push_back(million_per_s(slices, plain_ns));

  reset_peak_memory();
  const uint64_t before_bytes = resident_bytes();
  const int64_t wall_begin_ns = wall_ns();
  const int64_t file_ns = GAPLESS_TRY(time_write(trace, target, path));
  target.wall_s = static_cast<double>(wall_ns() - wall_begin_ns) * 1e-9;
  target.growth.values.push_back(static_cast<double>(peak_memory_bytes() - before_bytes) /
                                 kMebibyte);
  target.model.values.push_back(static_cast<double>(memory_bytes(trace)) / kMebibyte);
  target.to_file.values.push_back(million_per_s(slices, file_ns));
  take_folder(folder);

  target.copying.values.push_back(million_per_s(slices, time_copy(target.file_bytes)));
  if (!can_be_discarded(target)) return {};
  const int64_t null_ns = GAPLESS_TRY(time_write(trace, target, "/dev/null"));
  target.to_null.values.push_back(million_per_s(slices, null_ns));
  return {};
}

Result<void> measure_small_growth(const std::string& folder, std::vector<Target>& targets) {
  const Trace trace = make_trace(kSpans / 4);
  for (Target& target : targets) {
    Target scratch = target;
    scratch.growth.values.clear();
    GAPLESS_TRY(run_round(trace, folder, scratch));
    target.small_growth = scratch.growth.values[0];
  }
  return {};
}

void add_rate_rows(const Target& target, size_t slices, std::vector<Row>& rows) {
  const double megabytes = static_cast<double>(target.file_bytes) * 1e-6;
  const double slice_bytes = static_cast<double>(target.file_bytes) / static_cast<double>(slices);
  Row file;
  file.group = "export";
  file.what = target.what + " to a file, slices";
  file.figure = target.to_file;
  file.note = fmt::format(
      "{:.0f} MB, {:.0f} B a slice, {:.0f} MB/s of CPU time, {:.2f} s of wall time", megabytes,
      slice_bytes, slice_bytes * median(target.to_file.values), target.wall_s);
  compare(file, "plain write", target.writing);
  if (target.goal > 0.0) expect_at_least(file, target.goal);
  rows.push_back(std::move(file));
  if (!can_be_discarded(target)) return;
  Row null;
  null.group = "export";
  null.what = target.what + " to /dev/null, slices";
  null.figure = target.to_null;
  compare(null, "memcpy", target.copying);
  rows.push_back(std::move(null));
}

Row make_memory_row(const Target& target) {
  Row row;
  row.group = "export memory";
  row.what = target.what + ", growth while writing";
  row.figure = target.growth;
  row.note = fmt::format("file {:.0f} MiB; a quarter of the spans: {:.1f} MiB",
                         static_cast<double>(target.file_bytes) / kMebibyte, target.small_growth);
  compare(row, "trace in memory", target.model);
  return row;
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  const std::string folder = options.folder + "/export";
  GAPLESS_TRY(make_directories(folder));
  pin_thread(0);
  std::vector<Target> targets = make_targets();
  GAPLESS_TRY(measure_small_growth(folder, targets));
  const Trace trace = make_trace(kSpans);
  fmt::print("export: {} spans on {} lanes, one core, slices by CPU time\n", trace.spans.size(),
             kLanes);
  const int round_count = options.quick ? 1 : 5;
  for (int round = 0; round < round_count; ++round) {
    for (Target& target : targets) GAPLESS_TRY(run_round(trace, folder, target));
  }
  std::filesystem::remove(folder);
  std::vector<Row> rows;
  for (const Target& target : targets) add_rate_rows(target, trace.spans.size(), rows);
  for (const Target& target : targets) rows.push_back(make_memory_row(target));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
