// SPDX-License-Identifier: Apache-2.0
//
// How quickly traces are read, and in how much memory: ten million spans as the recorder leaves
// them (recorded here, 320 MB) and as columns, and two million slices of Chrome JSON. All files are
// in the page cache. The limit is a pass over the bytes of the file; the peer for JSON is
// nlohmann-json, which only parses.

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "bench/measurement.h"
#include "formats/format.h"
#include "gapless/trace.h"
#include "trace/synthetic.h"
#include "trace/trace.h"

namespace gapless {
namespace {

constexpr uint32_t kThreads = 2;
constexpr uint32_t kLanesPerThread = 38;
constexpr uint32_t kSpans = 10'000'000;
constexpr uint32_t kJsonSpans = 2'000'000;
constexpr uint32_t kPeerSpans = 200'000;  // as a tree of objects these take 200 MB
constexpr double kMebibyte = 1 << 20;
// "Load in seconds" and "fit in 1 GiB", of ten million spans.
constexpr double kLoadGoalS = 5.0;
constexpr double kMemoryGoalMib = 1024.0;

struct Source {
  std::string what;
  std::string path;
  uint64_t spans;
  bool is_goal = false;  // the goals above are for it
  Figure seconds{"s", {}};
  Figure rate{"M/s", {}};  // spans by CPU time
  Figure bytes_rate{"MB/s", {}};
  Figure pass{"M/s", {}};  // the limit: spans a second if a pass over the bytes were enough
  Figure peak{"MiB", {}};
  Figure model{"MiB", {}};
  uint64_t file_bytes = 0;
};

void record_spans(uint32_t thread, const std::vector<LaneId>& lanes, NameId name) {
  for (uint32_t i = 0; i < kSpans / kThreads; ++i) {
    const LaneId lane = lanes[thread * kLanesPerThread + i % kLanesPerThread];
    span_begin(lane, name, i);
    span_end(lane);
  }
}

Result<void> record_file(const std::string& path) {
  const NameId name = intern_name("work");
  std::vector<LaneId> lanes;
  for (uint32_t i = 0; i < kThreads * kLanesPerThread; ++i) {
    lanes.push_back(add_lane({fmt::format("core {}", i), LaneKind::kWorker, i, "chip"}));
  }
  if (!start_recording({.path = path})) return fail(ErrorCode::kSystem, "{}", recording_error());
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&lanes, name, i] { record_spans(i, lanes, name); });
  }
  for (std::thread& thread : threads) thread.join();
  const RecordingSummary summary = stop_recording();
  if (summary.event_count == 2 * uint64_t{kSpans}) return {};
  return fail(ErrorCode::kSystem, "{}: {} records of {} were kept", path, summary.event_count,
              2 * uint64_t{kSpans});
}

Result<void> write_json_file(const std::string& path, uint32_t spans) {
  SyntheticOptions options;
  options.lane_count = kThreads * kLanesPerThread;
  options.spans_per_lane = spans / options.lane_count;
  options.values = true;
  return write_trace(make_synthetic_trace(options), path, Format::kChromeJson);
}

Result<std::vector<Source>> make_sources(const std::string& folder) {
  const std::string recorded = folder + "/recorded.gapless";
  const std::string columns = folder + "/columns.gapless";
  const std::string packed = folder + "/columns_zstd.gapless";
  const std::string json = folder + "/trace.json";
  GAPLESS_TRY(record_file(recorded));
  {
    const Trace trace = GAPLESS_TRY(read_trace(recorded));
    if (trace.spans.size() != kSpans) {
      return fail(ErrorCode::kInvalidInput, "{}: {} spans of {}", recorded, trace.spans.size(),
                  kSpans);
    }
    GAPLESS_TRY(write_trace(trace, columns, Format::kGapless));
    GAPLESS_TRY(write_trace(trace, packed, Format::kGapless, {.compress = true}));
  }
  GAPLESS_TRY(write_json_file(json, kJsonSpans));
  const uint32_t lanes = kThreads * kLanesPerThread;
  std::vector<Source> sources = {
      {"recorder's file", recorded, kSpans, true},
      {"native columns", columns, kSpans, true},
      {"native columns, zstd", packed, kSpans, true},
      {"Chrome JSON", json, kJsonSpans / lanes * lanes},
  };
  for (Source& source : sources) source.file_bytes = std::filesystem::file_size(source.path);
  return sources;
}

double megabytes_per_s(uint64_t bytes, int64_t elapsed_ns) {
  return static_cast<double>(bytes) * 1e3 / static_cast<double>(elapsed_ns);
}

Result<int64_t> time_pass(const std::string& path) {
  const int64_t begin_ns = thread_cpu_ns();
  GAPLESS_TRY(pass_over_file(path));
  return thread_cpu_ns() - begin_ns;
}

double million_per_s(uint64_t spans, int64_t elapsed_ns) {
  return static_cast<double>(spans) * 1e3 / static_cast<double>(elapsed_ns);
}

Result<void> run_round(Source& source) {
  const int64_t pass_ns = GAPLESS_TRY(time_pass(source.path));
  source.pass.values.push_back(million_per_s(source.spans, pass_ns));
  reset_peak_memory();
  const int64_t wall_begin_ns = wall_ns();
  const int64_t begin_ns = thread_cpu_ns();
  const Trace trace = GAPLESS_TRY(read_trace(source.path));
  const int64_t elapsed_ns = thread_cpu_ns() - begin_ns;
  source.seconds.values.push_back(static_cast<double>(wall_ns() - wall_begin_ns) * 1e-9);
  source.peak.values.push_back(static_cast<double>(peak_memory_bytes()) / kMebibyte);
  source.model.values.push_back(static_cast<double>(memory_bytes(trace)) / kMebibyte);
  source.rate.values.push_back(million_per_s(source.spans, elapsed_ns));
  source.bytes_rate.values.push_back(megabytes_per_s(source.file_bytes, elapsed_ns));
  if (trace.spans.size() == source.spans) return {};
  return fail(ErrorCode::kInvalidInput, "{}: read {} spans of {}", source.path, trace.spans.size(),
              source.spans);
}

// MB/s of the peer, over a smaller file of the same kind.
Result<double> time_peer(const std::string& path) {
  const std::string text = GAPLESS_TRY(read_text_file(path));
  const int64_t begin_ns = thread_cpu_ns();
  const nlohmann::json tree = nlohmann::json::parse(text, nullptr, false);
  const int64_t elapsed_ns = thread_cpu_ns() - begin_ns;
  if (tree.is_discarded()) return fail(ErrorCode::kInvalidInput, "{}: not JSON", path);
  return megabytes_per_s(text.size(), elapsed_ns);
}

void add_rows(const Source& source, std::vector<Row>& rows) {
  Row seconds{"load", source.what + ", wall time", source.seconds, "", {}, "", {}, ""};
  seconds.note = fmt::format("{} spans, {:.0f} MB", source.spans,
                             static_cast<double>(source.file_bytes) * 1e-6);
  if (source.is_goal) expect_at_most(seconds, kLoadGoalS);
  rows.push_back(std::move(seconds));
  Row rate{"load", source.what + ", spans", source.rate, "", {}, "", {}, ""};
  compare(rate, "pass over bytes", source.pass);
  rate.note = fmt::format("{:.0f} MB/s of CPU time", median(source.bytes_rate.values));
  rows.push_back(std::move(rate));
  Row peak{"load", source.what + ", peak memory", source.peak, "", {}, "", {}, ""};
  compare(peak, "trace in memory", source.model);
  if (source.is_goal) expect_at_most(peak, kMemoryGoalMib);
  rows.push_back(std::move(peak));
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  const std::string folder = options.folder + "/load";
  GAPLESS_TRY(make_directories(folder));
  fmt::print("load: {} spans recorded by {} threads on {} lanes\n", kSpans, kThreads,
             kThreads * kLanesPerThread);
  std::vector<Source> sources = GAPLESS_TRY(make_sources(folder));
  const std::string peer_path = folder + "/peer.json";
  GAPLESS_TRY(write_json_file(peer_path, kPeerSpans));
  Figure peer{"MB/s", {}};
  const int round_count = options.quick ? 1 : 3;
  for (int round = 0; round < round_count; ++round) {
    for (Source& source : sources) GAPLESS_TRY(run_round(source));
    peer.values.push_back(GAPLESS_TRY(time_peer(peer_path)));
  }
  std::filesystem::remove_all(folder);
  std::vector<Row> rows;
  for (const Source& source : sources) add_rows(source, rows);
  Row json{"load", "Chrome JSON, bytes", sources.back().bytes_rate, "", {}, "", {}, ""};
  compare(json, "nlohmann-json parse", peer);
  rows.push_back(std::move(json));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
