// SPDX-License-Identifier: Apache-2.0
//
// How long it takes until a worker that has nothing to do starts a task: one that is submitted to a
// stream, and one that becomes ready inside a step of a replay. Against the machine's own limit, a
// store that a thread on the next core waits for, and against a condition variable and oneTBB.
//
// Both ends are read from the same clock, the first just before the work is handed over, the second
// by the first instruction of the kernel.

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "gapless/trace.h"
#include "graph/graph_builder.h"
#include "runtime/bench_support.h"
#include "runtime/cpu_device.h"
#include "runtime/replay.h"
#include "runtime/spin.h"
#include "runtime/stream.h"

namespace gapless {
namespace {

constexpr int kLatencySamples = 3000;
constexpr double kLatencyGoalNs = 250.0;
constexpr int64_t kNeverParkNs = 1'000'000'000'000;
constexpr int64_t kBufferBytes = 4096;

// Where a kernel leaves the time of its first instruction. Its address travels as a scalar.
struct alignas(128) StartTime {
  std::atomic<uint64_t> ticks = 0;
  std::atomic<int> worker_index = 0;
};
template <typename T>
Scalar pointer_to(T& object) {
  return Scalar::fixed(std::bit_cast<int64_t>(&object));
}

void note_start_kernel(TaskContext& context) {
  const uint64_t ticks = read_ticks();
  std::bit_cast<StartTime*>(context.scalar(0))->ticks.store(ticks, std::memory_order_release);
}

void spin_until(uint64_t ticks) {
  while (read_ticks() < ticks) compiler_barrier();
}

// Samples are as far apart as those of the peers. `submit` must lead to start.ticks being set.
template <typename Submit>
Result<std::vector<double>> time_starts(double tick_ns, StartTime& start, Submit submit) {
  const uint64_t interval_ticks = static_cast<uint64_t>(kLatencyIntervalNs / tick_ns);
  std::vector<double> latencies_ns;
  for (int i = 0; i < kLatencySamples; ++i) {
    start.ticks.store(0, std::memory_order_relaxed);
    const uint64_t begin_ticks = read_ticks();
    GAPLESS_TRY(submit());
    uint64_t start_ticks = 0;
    while (start_ticks == 0) start_ticks = start.ticks.load(std::memory_order_acquire);
    latencies_ns.push_back(static_cast<double>(static_cast<int64_t>(start_ticks - begin_ticks)) *
                           tick_ns);
    spin_until(begin_ticks + interval_ticks);
  }
  return latencies_ns;
}

// From just before add_task, of a task with one argument, to the kernel on the other worker.
Result<std::vector<double>> time_stream_starts(double tick_ns) {
  const std::unique_ptr<CpuDevice> device =
      GAPLESS_TRY(CpuDevice::create({.worker_count = 2, .park_after_ns = kNeverParkNs}));
  const std::unique_ptr<Stream> stream = GAPLESS_TRY(Stream::open(*device));
  const KernelId kernel = GAPLESS_TRY(stream->add_kernel("start", note_start_kernel));
  std::array<std::byte, kBufferBytes> memory = {};
  const BufferId buffer = GAPLESS_TRY(stream->add_buffer({.name = "argument",
                                                          .kind = BufferKind::kExternal,
                                                          .bytes = kBufferBytes,
                                                          .data = memory.data()}));
  const Argument argument = inout(dense_view(buffer, DType::kU8, {kBufferBytes}));
  StartTime start;
  const Scalar scalar = pointer_to(start);
  const TaskSpec spec = {.kernel = kernel, .arguments = {&argument, 1}, .scalars = {&scalar, 1}};
  const PinnedCaller pinned;
  std::vector<double> latencies_ns =
      GAPLESS_TRY(time_starts(tick_ns, start, [&stream, &spec] { return stream->add_task(spec); }));
  const StreamSummary summary = GAPLESS_TRY(stream->wait());
  if (summary.run_count == kLatencySamples) return latencies_ns;
  return fail(ErrorCode::kInvalidInput, "the stream ran {} tasks of {}", summary.run_count,
              kLatencySamples);
}

// The limit of the machine: a store that a thread on the next core waits for.
Result<std::vector<double>> time_flag(double tick_ns) {
  StartTime start;
  alignas(128) std::atomic<int> flag = 0;  // 1: go; 2: the end
  const int core = allowed_cores()[1];
  std::thread waiting([&start, &flag, core] {
    pin_thread(core);
    for (int seen = 0; seen != 2;) {
      while ((seen = flag.load(std::memory_order_acquire)) == 0) pause_core();
      const uint64_t ticks = read_ticks();
      flag.store(0, std::memory_order_relaxed);
      start.ticks.store(ticks, std::memory_order_release);
    }
  });
  const PinnedCaller pinned;
  Result<std::vector<double>> latencies_ns = time_starts(tick_ns, start, [&flag]() -> Result<void> {
    flag.store(1, std::memory_order_release);
    return {};
  });
  flag.store(2, std::memory_order_release);
  waiting.join();
  return latencies_ns;
}

// ---- The same inside a step of a replay. Pairs of tasks and joins in turn: when a join has ended
// ---- after 30 us, the worker that ran it keeps one task of the next pair and the other worker,
// ---- which had nothing to do meanwhile, takes the second.

struct StepTimes {
  uint64_t join_ticks = 0;  // how long a join takes
  uint64_t pair_ticks = 0;  // long enough for the other worker to come
  std::vector<StartTime> starts;
  std::vector<uint64_t> join_ends;
  std::vector<int> join_workers;
};
StepTimes& times_of(const TaskContext& context) {
  return *std::bit_cast<StepTimes*>(context.scalar(0));
}

void pair_kernel(TaskContext& context) {
  const uint64_t ticks = read_ticks();
  StepTimes& times = times_of(context);
  StartTime& start = times.starts[static_cast<size_t>(context.scalar(1))];
  start.ticks.store(ticks, std::memory_order_relaxed);
  start.worker_index.store(context.worker_index(), std::memory_order_relaxed);
  spin_until(ticks + times.pair_ticks);
}

void join_kernel(TaskContext& context) {
  StepTimes& times = times_of(context);
  const size_t index = static_cast<size_t>(context.scalar(1));
  spin_until(read_ticks() + times.join_ticks);
  times.join_workers[index] = context.worker_index();
  times.join_ends[index] = read_ticks();
}

// Join, pair, join, pair, ...
Result<Graph> make_pair_graph(StepTimes& times) {
  GraphBuilder builder;
  const KernelId join = GAPLESS_TRY(builder.add_kernel("join", join_kernel));
  const KernelId pair = GAPLESS_TRY(builder.add_kernel("pair", pair_kernel));
  std::vector<TaskId> before;
  for (int64_t i = 0; i < kLatencySamples; ++i) {
    const std::array<Scalar, 2> of_join = {pointer_to(times), Scalar::fixed(i)};
    const TaskId joined =
        GAPLESS_TRY(builder.add_task({.kernel = join, .scalars = of_join, .after = before}));
    before.clear();
    for (int64_t k = 0; k < 2; ++k) {
      const std::array<Scalar, 2> of_pair = {pointer_to(times), Scalar::fixed(2 * i + k)};
      before.push_back(GAPLESS_TRY(
          builder.add_task({.kernel = pair, .scalars = of_pair, .after = {&joined, 1}})));
    }
  }
  return builder.finish();
}

Result<std::vector<double>> time_step_dispatch(double tick_ns) {
  StepTimes times;
  times.join_ticks = static_cast<uint64_t>(kLatencyIntervalNs / tick_ns);
  times.pair_ticks = times.join_ticks / 10;
  times.starts = std::vector<StartTime>(2 * kLatencySamples);
  times.join_ends.resize(kLatencySamples);
  times.join_workers.resize(kLatencySamples);
  const std::unique_ptr<CpuDevice> device = GAPLESS_TRY(CpuDevice::create({.worker_count = 2}));
  Graph graph = GAPLESS_TRY(make_pair_graph(times));
  Replay replay = GAPLESS_TRY(Replay::prepare(*device, std::move(graph)));
  {
    const PinnedCaller pinned;
    GAPLESS_TRY(replay.run());
  }
  std::vector<double> latencies_ns;
  for (size_t i = 0; i < 2 * size_t{kLatencySamples}; ++i) {
    const StartTime& start = times.starts[i];
    if (start.worker_index.load() == times.join_workers[i / 2]) continue;
    const int64_t ticks = static_cast<int64_t>(start.ticks.load() - times.join_ends[i / 2]);
    latencies_ns.push_back(static_cast<double>(ticks) * tick_ns);
  }
  // Where the other worker was put aside, its task was run by the first one.
  if (latencies_ns.size() >= kLatencySamples / 2) return latencies_ns;
  return fail(ErrorCode::kSystem, "only {} of {} tasks went to the other worker",
              latencies_ns.size(), kLatencySamples);
}

struct Latency {
  std::string what;
  Figure median_ns{"ns", {}};
  Figure p99_ns{"ns", {}};

  void add(const std::vector<double>& samples) {
    if (samples.empty()) return;  // the peer was not there at build time
    median_ns.values.push_back(median(samples));
    p99_ns.values.push_back(quantile(samples, 0.99));
  }
};

void add_latency_rows(const std::vector<Latency>& latencies, std::vector<Row>& rows) {
  const Latency& flag = latencies.front();
  for (const Latency& one : latencies) {
    if (one.median_ns.values.empty()) continue;
    const bool is_flag = &one == &flag;
    Row middle = make_row("latency", one.what + ", median", one.median_ns);
    Row tail = make_row("latency", one.what + ", 99th percentile", one.p99_ns);
    if (!is_flag) {
      compare(middle, flag.what, flag.median_ns);
      compare(tail, flag.what, flag.p99_ns);
    }
    if (one.what.starts_with("stream") || one.what.starts_with("replay")) {
      expect_at_most(middle, kLatencyGoalNs);
    }
    rows.push_back(std::move(middle));
    rows.push_back(std::move(tail));
  }
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  fmt::print("latency: {} starts on an idle worker a round, {} us apart\n", kLatencySamples,
             kLatencyIntervalNs / 1000);
  if (allowed_cores().size() < 2) {
    fmt::print("  left out: it needs two cores\n");
    return std::vector<Row>{};
  }
  const double tick_ns = measure_tick_ns();
  std::vector<Latency> latencies = {{"store to a spinning thread"},
                                    {"stream, submit to start"},
                                    {"replay, end of one task to start of the next"},
                                    {"condition variable"},
                                    {"oneTBB enqueue"}};
  const int round_count = options.quick ? 1 : 9;
  for (int round = 0; round < round_count; ++round) {
    latencies[0].add(GAPLESS_TRY(time_flag(tick_ns)));
    latencies[1].add(GAPLESS_TRY(time_stream_starts(tick_ns)));
    latencies[2].add(GAPLESS_TRY(time_step_dispatch(tick_ns)));
    // These start threads of their own and are not pinned.
    latencies[3].add(measure_condition_variable_latency_ns(kLatencySamples));
    latencies[4].add(measure_tbb_latency_ns(kLatencySamples));
  }
  std::vector<Row> rows;
  add_latency_rows(latencies, rows);
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
