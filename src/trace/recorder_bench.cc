// SPDX-License-Identifier: Apache-2.0
//
// What one event costs: the recorder under every policy against the floor (a clock read and a
// 16-byte store into memory that is there) and against LTTng-UST, in turn within one run.
//
// A lap is 32,760 events, two chunks, so that no lap is without the recorder's own work. Time is
// the thread's CPU time. A round gives one value for each variant: the median of its laps.

#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "bench/lttng_peer.h"
#include "bench/measurement.h"
#include "gapless/trace.h"
#include "trace/chunk_file.h"

namespace gapless {
namespace {

constexpr uint32_t kLapEvents = 2 * ChunkFile::kRecordsPerChunk;
constexpr uint64_t kMemoryBytes = 16 << 20;
constexpr size_t kMemoryRecords = kMemoryBytes / sizeof(Record);

// What a thread works with.
struct Lane {
  std::vector<Record> memory;  // the floor's, touched
  size_t position = 0;
  NameId name;
  LaneId core;
};

// ---- The loops. Each does a lap and returns how many events that were. The barriers keep the
// ---- compiler from merging events, as the program's own work would.

uint32_t run_empty(Lane&) {
  for (uint32_t i = 0; i < kLapEvents; ++i) compiler_barrier();
  return kLapEvents;
}

uint32_t run_clock(Lane&) {
  for (uint32_t i = 0; i < kLapEvents; ++i) {
    const uint64_t ticks = read_ticks();
    asm volatile("" ::"r"(ticks) : "memory");
  }
  return kLapEvents;
}

uint32_t run_floor(Lane& lane) {
  if (lane.position + kLapEvents > lane.memory.size()) lane.position = 0;
  Record* next = lane.memory.data() + lane.position;
  const uint16_t name = lane.name.id;
  for (uint32_t i = 0; i < kLapEvents; ++i) {
    *next = {read_ticks(), i, name, 0};
    ++next;
    compiler_barrier();
  }
  lane.position += kLapEvents;
  return kLapEvents;
}

uint32_t run_spans(Lane& lane) {
  const NameId name = lane.name;
  for (uint32_t i = 0; i < kLapEvents / 2; ++i) {
    span_begin(name, i);
    compiler_barrier();
    span_end();
    compiler_barrier();
  }
  return kLapEvents;
}

uint32_t run_writer(Lane& lane) {
  const NameId name = lane.name;
  Writer* const writer = thread_writer();
  if (writer == nullptr) return 1;
  for (uint32_t i = 0; i < kLapEvents / 2; ++i) {
    writer->write(RecordKind::kSpanBegin, writer->lane(), name, i);
    compiler_barrier();
    writer->write(RecordKind::kSpanEnd, writer->lane(), {}, kNoValue);
    compiler_barrier();
  }
  return kLapEvents;
}

uint32_t run_scopes(Lane&) {
  for (uint32_t i = 0; i < kLapEvents / 2; ++i) {
    {
      GAPLESS_TRACE_SCOPE("scope");
      compiler_barrier();
    }
    compiler_barrier();
  }
  return kLapEvents;
}

uint32_t run_switches(Lane& lane) {
  const NameId name = lane.name;
  for (uint32_t i = 0; i < kLapEvents; ++i) {
    switch_to(name, i);
    compiler_barrier();
  }
  return kLapEvents;
}

uint32_t run_instants(Lane& lane) {
  const NameId name = lane.name;
  for (uint32_t i = 0; i < kLapEvents; ++i) {
    instant(name, i);
    compiler_barrier();
  }
  return kLapEvents;
}

uint32_t run_task_events(Lane& lane) {
  const NameId name = lane.name;
  const LaneId core = lane.core;
  for (uint32_t i = 0; i < kLapEvents; ++i) {
    task_event(TaskTime::kStart, core, i, name);
    compiler_barrier();
  }
  return kLapEvents;
}

uint32_t run_counters(Lane& lane) {
  const NameId name = lane.name;
  for (uint32_t i = 0; i < kLapEvents / 2; ++i) {
    counter(name, static_cast<double>(i));
    compiler_barrier();
  }
  return kLapEvents / 2;
}

uint32_t run_lttng(Lane& lane) {
  LttngPeer::record_events(lane.position, kLapEvents);
  return kLapEvents;
}

// ---- Variants.

enum class State { kNone, kRecording, kPaused };

struct Variant {
  std::string what;
  uint32_t (*loop)(Lane&);
  State state = State::kRecording;
  FullPolicy policy = FullPolicy::kGrow;
  int thread_count = 1;
  // Between laps, as a program would do other work. Outside the time that is taken.
  std::chrono::microseconds rest{0};
  std::string folder = {};  // empty: that of the options
  int warm_laps = 2;
  Figure medians{"ns", {}};
  Figure means{"ns", {}};
};

struct Bench {
  BenchOptions options;
  NameId name;
  std::vector<LaneId> cores;
  int laps = 40;
};

Result<void> begin_recording(const Bench& bench, const Variant& variant, const std::string& path) {
  if (variant.state == State::kNone) return {};
  if (!start_recording({path, variant.policy, kMemoryBytes})) {
    return fail(ErrorCode::kSystem, "{}: {}", variant.what, recording_error());
  }
  if (variant.state == State::kPaused) {
    instant(bench.name);  // this thread is attached, as it would be
    pause_recording();
  }
  return {};
}

// The laps of one thread, in ns an event.
std::vector<double> time_laps(const Bench& bench, const Variant& variant, int index,
                              std::barrier<>& start) {
  pin_thread(index);
  Lane lane;
  lane.name = bench.name;
  lane.core = bench.cores[static_cast<size_t>(index)];
  lane.memory.assign(kMemoryRecords, Record{});
  for (int i = 0; i < variant.warm_laps; ++i) variant.loop(lane);
  start.arrive_and_wait();
  std::vector<double> laps;
  for (int i = 0; i < bench.laps; ++i) {
    if (variant.rest.count() > 0) std::this_thread::sleep_for(variant.rest);
    const int64_t begin_ns = thread_cpu_ns();
    const uint32_t events = variant.loop(lane);
    laps.push_back(static_cast<double>(thread_cpu_ns() - begin_ns) / events);
  }
  return laps;
}

// A benchmark that did not do what it timed says nothing.
Result<void> check_summary(const Bench& bench, const Variant& variant,
                           const RecordingSummary& summary) {
  if (variant.state != State::kRecording) return {};
  const uint64_t laps = static_cast<uint64_t>(variant.thread_count) *
                        static_cast<uint64_t>(variant.warm_laps + bench.laps);
  const uint64_t expected = laps * kLapEvents;
  const bool may_drop = variant.policy != FullPolicy::kGrow;
  if (summary.event_count + summary.dropped_count == expected &&
      (may_drop || summary.dropped_count == 0)) {
    return {};
  }
  return fail(ErrorCode::kInvalidInput, "{}: {} records kept and {} dropped of {}", variant.what,
              summary.event_count, summary.dropped_count, expected);
}

Result<void> run_round(const Bench& bench, Variant& variant) {
  const std::string folder = variant.folder.empty() ? bench.options.folder : variant.folder;
  const std::string path = fmt::format("{}/recorder_bench.{}.gapless", folder, ::getpid());
  GAPLESS_TRY(begin_recording(bench, variant, path));
  std::barrier start(variant.thread_count);
  std::vector<std::vector<double>> laps(static_cast<size_t>(variant.thread_count));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(variant.thread_count));
  for (int i = 0; i < variant.thread_count; ++i) {
    threads.emplace_back(
        [&, i] { laps[static_cast<size_t>(i)] = time_laps(bench, variant, i, start); });
  }
  for (std::thread& thread : threads) thread.join();
  const RecordingSummary summary = stop_recording();
  ::unlink(path.c_str());
  GAPLESS_TRY(check_summary(bench, variant, summary));
  std::vector<double> all;
  for (const std::vector<double>& of_thread : laps) {
    all.insert(all.end(), of_thread.begin(), of_thread.end());
  }
  variant.medians.values.push_back(median(all));
  variant.means.values.push_back(std::accumulate(all.begin(), all.end(), 0.0) /
                                 static_cast<double>(all.size()));
  return {};
}

// Laps that fill the bounded memory, so that what is timed is the steady state.
constexpr int kFillLaps = static_cast<int>(kMemoryRecords / kLapEvents) + 2;
// Long enough for the keeper to be ahead again; a program that records 32,760 events in 2 ms still
// records 16 million a second.
constexpr std::chrono::microseconds kRest{2000};

std::vector<Variant> make_variants(bool has_lttng) {
  constexpr State kNone = State::kNone;
  constexpr State kOn = State::kRecording;
  constexpr FullPolicy kGrow = FullPolicy::kGrow;
  constexpr FullPolicy kNewest = FullPolicy::kKeepNewest;
  constexpr FullPolicy kOldest = FullPolicy::kKeepOldest;
  std::vector<Variant> variants = {
      {"loop without an event", run_empty, kNone},
      {"clock read (rdtsc) alone", run_clock, kNone},
      {"floor: clock read + 16-byte store", run_floor, kNone, kGrow, 1, {}, "", kFillLaps},
      {"span begin/end, grow, bursts", run_spans, kOn, kGrow, 1, kRest},
      {"span begin/end, grow, without rest", run_spans, kOn, kGrow, 1},
      {"span begin/end, grow, file in /dev/shm, bursts", run_spans, kOn, kGrow, 1, kRest,
       "/dev/shm"},
      {"span begin/end, keep newest, bursts", run_spans, kOn, kNewest, 1, kRest, "", kFillLaps},
      {"span begin/end, keep newest, without rest", run_spans, kOn, kNewest, 1, {}, "", kFillLaps},
      {"span begin/end, keep oldest, full: all dropped",
       run_spans,
       kOn,
       kOldest,
       1,
       {},
       "",
       kFillLaps},
      {"span begin/end through a kept Writer*", run_writer, kOn, kGrow, 1, kRest},
      {"GAPLESS_TRACE_SCOPE", run_scopes, kOn, kGrow, 1, kRest},
      {"switch_to", run_switches, kOn, kGrow, 1, kRest},
      {"task_event", run_task_events, kOn, kGrow, 1, kRest},
      {"instant", run_instants, kOn, kGrow, 1, kRest},
      {"counter (two records)", run_counters, kOn, kGrow, 1, kRest},
      {"span begin/end, paused", run_spans, State::kPaused},
      {"span begin/end, no recording in the process", run_spans, kNone},
      {"floor, 2 threads", run_floor, kNone, kGrow, 2, {}, "", kFillLaps},
      {"span begin/end, grow, bursts, 2 threads", run_spans, kOn, kGrow, 2, kRest},
      {"span begin/end, keep newest, without rest, 2 threads",
       run_spans,
       kOn,
       kNewest,
       2,
       {},
       "",
       kFillLaps},
  };
  if (has_lttng) {
    variants.push_back({"LTTng-UST tracepoint", run_lttng, kNone});
    variants.push_back({"LTTng-UST tracepoint, 2 threads", run_lttng, kNone, kGrow, 2});
  }
  return variants;
}

// ---- Rows.

const Variant& find(const std::vector<Variant>& variants, std::string_view what) {
  for (const Variant& variant : variants) {
    if (variant.what == what) return variant;
  }
  fmt::print(stderr, "recorder_bench: no variant '{}'\n", what);
  std::abort();
}

Row make_row(const Variant& variant) {
  Row row;
  row.group = "record";
  row.what = variant.what + ", an event";
  row.figure = variant.medians;
  row.note = fmt::format("mean {:.1f}", median(variant.means.values));
  return row;
}

std::vector<Row> make_rows(const std::vector<Variant>& variants) {
  const Figure& floor = find(variants, "floor: clock read + 16-byte store").medians;
  const Figure& floor_2 = find(variants, "floor, 2 threads").medians;
  const Figure& empty = find(variants, "loop without an event").medians;
  const Figure& spans = find(variants, "span begin/end, grow, bursts").medians;
  const Figure& spans_2 = find(variants, "span begin/end, grow, bursts, 2 threads").medians;
  std::vector<Row> rows;
  for (const Variant& variant : variants) {
    Row row = make_row(variant);
    const bool is_floor = variant.loop == run_floor || variant.loop == run_clock;
    if (variant.loop == run_lttng) {
      compare(row, "ours", variant.thread_count == 2 ? spans_2 : spans);
    } else if (variant.loop == run_spans && variant.state != State::kRecording) {
      expect_at_most(compare(row, "empty loop", empty), 1.0);
    } else if (!is_floor && variant.loop != run_empty) {
      compare(row, "floor", variant.thread_count == 2 ? floor_2 : floor);
    }
    if (variant.state == State::kRecording && variant.loop == run_spans &&
        variant.policy != FullPolicy::kKeepOldest) {
      expect_ratio_at_most(row, 1.1);
    }
    if (variant.loop == run_switches) expect_at_most(row, 12.0);
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  Bench bench;
  bench.options = options;
  bench.name = intern_name("work");
  for (int i = 0; i < 2; ++i) {
    bench.cores.push_back(add_lane({fmt::format("core {}", i), LaneKind::kWorker, i, ""}));
  }
  fmt::print("record cost: thread CPU time, {} events a lap, threads pinned\n", kLapEvents);
  const Result<LttngPeer> peer = LttngPeer::start(options.folder);
  if (!peer) fmt::print("  no LTTng-UST peer: {}\n", peer.error().message);
  std::vector<Variant> variants = make_variants(peer.has_value());
  const int round_count = options.quick ? 1 : 9;
  for (int round = 0; round < round_count; ++round) {
    for (Variant& variant : variants) {
      GAPLESS_TRY(run_round(bench, variant));
    }
  }
  return make_rows(variants);
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
