// SPDX-License-Identifier: Apache-2.0
//
// The longest calls of a thread that has just begun to record: 500,000 calls timed one by one, from
// the first, in a fresh thread of a fresh recording. A recorder that lets the thread meet new pages
// shows it here: one page fault every 256 events.
//
// Each time is that of two clock reads around the call, nothing subtracted; the row of the empty
// call says what of it is the clock.

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/lttng_peer.h"
#include "bench/measurement.h"
#include "gapless/trace.h"

namespace gapless {
namespace {

constexpr uint32_t kCalls = 500'000;
constexpr size_t kMappedBytes = kCalls * sizeof(Record);

// Memory as the system gives it: no page is there before it is touched.
class FreshMemory {
 public:
  explicit FreshMemory(bool touch)
      : memory_(::mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | (touch ? MAP_POPULATE : 0), -1, 0)) {
    // A huge page would be one fault for 131,072 events; file-backed memory has none of these.
    if (!touch && memory_ != MAP_FAILED) ::madvise(memory_, kMappedBytes, MADV_NOHUGEPAGE);
  }
  ~FreshMemory() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, kMappedBytes);
  }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
  Record* records() const { return static_cast<Record*>(memory_); }
  bool is_there() const { return memory_ != MAP_FAILED; }

 private:
  void* memory_;
};

using Ticks = std::vector<uint32_t>;

template <typename Call>
void time_calls(Ticks& ticks, Call call) {
  for (uint32_t i = 0; i < kCalls; ++i) {
    compiler_barrier();
    const uint64_t begin = read_ticks();
    compiler_barrier();
    call(i);
    compiler_barrier();
    const uint64_t end = read_ticks();
    compiler_barrier();
    ticks[i] = static_cast<uint32_t>(std::min<uint64_t>(end - begin, UINT32_MAX));
  }
}

void time_empty(Ticks& ticks, NameId) {
  time_calls(ticks, [](uint32_t) {});
}

void time_stores(Ticks& ticks, NameId name, bool touch) {
  const FreshMemory memory(touch);
  if (!memory.is_there()) return;
  Record* next = memory.records();
  time_calls(ticks, [&next, name](uint32_t i) {
    *next = {read_ticks(), i, name.id, 0};
    ++next;
  });
}

void time_touched(Ticks& ticks, NameId name) { time_stores(ticks, name, true); }
void time_untouched(Ticks& ticks, NameId name) { time_stores(ticks, name, false); }

void time_spans(Ticks& ticks, NameId name) {
  time_calls(ticks, [name](uint32_t i) { span_begin(name, i); });
}

void time_lttng(Ticks& ticks, NameId) {
  time_calls(ticks, [](uint32_t i) { LttngPeer::record_events(i, 1); });
}

constexpr double kShares[] = {0.5, 0.99, 0.999, 0.9999, 1.0};
constexpr size_t kShareCount = std::size(kShares);
constexpr size_t kMedian = 0;
constexpr size_t kTail = 2;

struct Variant {
  std::string what;
  void (*time)(Ticks&, NameId);
  int thread_count = 1;
  bool records = false;
  FullPolicy policy = FullPolicy::kGrow;
  int passes = 1;  // only the last is kept: 1 is cold, 2 is warm
  Figure figures[kShareCount] = {{"ns", {}}, {"ns", {}}, {"ns", {}}, {"ns", {}}, {"ns", {}}};
};

struct Bench {
  BenchOptions options;
  NameId name;
  double tick_ns = 0.0;
};

void note_shares(const Bench& bench, Variant& variant, std::vector<uint32_t>& all) {
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < kShareCount; ++i) {
    const size_t place = static_cast<size_t>(kShares[i] * static_cast<double>(all.size() - 1));
    variant.figures[i].values.push_back(all[place] * bench.tick_ns);
  }
}

Result<void> run_round(const Bench& bench, Variant& variant) {
  const std::string path =
      fmt::format("{}/recorder_tail_bench.{}.gapless", bench.options.folder, ::getpid());
  std::vector<Ticks> ticks(static_cast<size_t>(variant.thread_count), Ticks(kCalls, 0));
  if (variant.records && !start_recording({path, variant.policy, uint64_t{16} << 20})) {
    return fail(ErrorCode::kSystem, "{}", recording_error());
  }
  std::barrier start(variant.thread_count);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(variant.thread_count));
  for (int i = 0; i < variant.thread_count; ++i) {
    threads.emplace_back([&, i] {
      pin_thread(i);
      start.arrive_and_wait();
      for (int pass = 0; pass < variant.passes; ++pass) {
        variant.time(ticks[static_cast<size_t>(i)], bench.name);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RecordingSummary summary = stop_recording();
  ::unlink(path.c_str());
  const uint64_t expected =
      uint64_t{kCalls} * static_cast<uint64_t>(variant.thread_count * variant.passes);
  if (variant.records && summary.event_count + summary.dropped_count != expected) {
    return fail(ErrorCode::kInvalidInput, "{}: {} of {} events", variant.what,
                summary.event_count + summary.dropped_count, expected);
  }
  Ticks all;
  for (const Ticks& of_thread : ticks) all.insert(all.end(), of_thread.begin(), of_thread.end());
  note_shares(bench, variant, all);
  return {};
}

std::vector<Variant> make_variants(bool has_lttng) {
  std::vector<Variant> variants;
  for (const int threads : {1, 2}) {
    const std::string suffix = threads == 1 ? "" : ", 2 threads";
    variants.push_back({"no call" + suffix, time_empty, threads});
    variants.push_back({"store, memory touched before" + suffix, time_touched, threads});
    variants.push_back({"store, first touch" + suffix, time_untouched, threads});
    variants.push_back({"span_begin, grow" + suffix, time_spans, threads, true});
    variants.push_back(
        {"span_begin, keep newest" + suffix, time_spans, threads, true, FullPolicy::kKeepNewest});
    variants.push_back(
        {"span_begin, grow" + suffix, time_spans, threads, true, FullPolicy::kGrow, 2});
    if (has_lttng) variants.push_back({"LTTng-UST tracepoint" + suffix, time_lttng, threads});
  }
  return variants;
}

Row make_row(const Variant& variant, size_t share, const Variant& floor) {
  Row row;
  row.group = "cold tail";
  row.what = fmt::format("{}, {} call {}", variant.what, variant.passes == 1 ? "cold" : "warm",
                         share == kTail ? "p99.9" : "p50");
  row.figure = variant.figures[share];
  if (share == kTail) {
    row.note =
        fmt::format("p99 {:.0f}, p99.99 {:.0f}, max {:.0f}", median(variant.figures[1].values),
                    median(variant.figures[3].values), median(variant.figures[4].values));
  }
  if (variant.time == time_spans || variant.time == time_lttng) {
    compare(row, "touched memory", floor.figures[share]);
  }
  if (variant.records && share == kTail) expect_at_most(row, 100.0);
  return row;
}

std::vector<Row> make_rows(const std::vector<Variant>& variants) {
  std::vector<Row> rows;
  const Variant* floor = nullptr;
  for (const Variant& variant : variants) {
    if (variant.time == time_touched) floor = &variant;
    const Variant& against = floor == nullptr ? variant : *floor;
    if (variant.time != time_empty) rows.push_back(make_row(variant, kTail, against));
    rows.push_back(make_row(variant, kMedian, against));
  }
  return rows;
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  const Bench bench{options, intern_name("work"), measure_tick_ns()};
  fmt::print("cold tail: {} calls timed one by one, 1 tick = {:.4f} ns\n", kCalls, bench.tick_ns);
  const Result<LttngPeer> peer = LttngPeer::start(options.folder);
  if (!peer) fmt::print("  no LTTng-UST peer: {}\n", peer.error().message);
  std::vector<Variant> variants = make_variants(peer.has_value());
  const int round_count = options.quick ? 1 : 11;
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
