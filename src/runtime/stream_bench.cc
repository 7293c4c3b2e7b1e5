// SPDX-License-Identifier: Apache-2.0
//
// What a stream costs: to submit a task, with 1 to 10,000 slices of one buffer in flight; to submit
// and run the decode shape through views; the time from submitting to starting on a worker that has
// nothing to do; and how memory grows over a million tasks.
//
// Submitting is CPU time of the thread, all else is wall time.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
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

constexpr int64_t kSliceRows = 16;
constexpr int64_t kSliceColumns = 256;
constexpr int64_t kSliceBytes = kSliceRows * kSliceColumns * 2;  // bf16

// Memory of the caller that tasks declare; no kernel here touches it unless it says so.
struct CallerBuffer {
  std::unique_ptr<std::byte[]> memory;
  BufferId id;
};

Result<CallerBuffer> add_caller_buffer(Stream& stream, int64_t bytes) {
  CallerBuffer buffer;
  buffer.memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  buffer.id = GAPLESS_TRY(stream.add_buffer({.name = "slices",
                                             .kind = BufferKind::kExternal,
                                             .bytes = bytes,
                                             .data = buffer.memory.get()}));
  return buffer;
}

// ---- Submitting: one worker, so that nothing runs meanwhile, and a window that is never full.

constexpr std::array<int64_t, 5> kSliceCounts = {1, 16, 224, 1024, 10000};
constexpr int64_t kTimedTasks = 10'000;
constexpr int64_t kThreeArgumentSlices = 224;
constexpr int kLapsInRound = 5;
constexpr double kSubmitGoalNs = 100.0;
constexpr double kFlatGoal = 1.5;
constexpr StreamOptions kSubmitOptions = {
    .ring_count = 1, .window_tasks = 32768, .window_edges = 65536, .window_bytes = 8 << 20};

enum class SliceShape { kOneDimension, kColumns };

View first_slice(BufferId buffer, SliceShape shape, int64_t count) {
  if (shape == SliceShape::kOneDimension) {
    const View whole = dense_view(buffer, DType::kBf16, {count * kSliceColumns});
    return slice(whole, 0, 0, kSliceColumns);
  }
  const View whole = dense_view(buffer, DType::kBf16, {kSliceRows, count * kSliceColumns});
  return slice(whole, 1, 0, kSliceColumns);
}

// The arguments of one task after the other: the same slice of each buffer. After a turn over all
// slices the buffers change places, so that in three turns each is written once and read twice.
class SliceWalk {
 public:
  SliceWalk(std::vector<Argument> first, int64_t count)
      : first_(std::move(first)), now_(first_), count_(count) {}

  std::span<const Argument> arguments() const { return now_; }
  void advance() {
    if (++index_ < count_) {
      for (Argument& argument : now_) argument.view.offset += kSliceColumns;
      return;
    }
    index_ = 0;
    const View view = first_[0].view;
    for (size_t i = 0; i + 1 < first_.size(); ++i) first_[i].view = first_[i + 1].view;
    first_.back().view = view;
    now_ = first_;
  }

 private:
  std::vector<Argument> first_;
  std::vector<Argument> now_;
  int64_t count_;
  int64_t index_ = 0;
};

struct SubmitCase {
  std::string what;
  int64_t slice_count = 1;
  std::vector<Argument> first;  // the arguments of the first task
  // Before the timed tasks every slice is in use by a task that has not ended.
  int64_t filling_tasks = 0;
  int64_t filling_edges = 0;
  int64_t edges_of_task = 0;  // of each timed one
  std::vector<CallerBuffer> buffers = {};
  Figure figure{"ns", {}};
};

Result<SubmitCase> make_update_case(Stream& stream, SliceShape shape, int64_t count) {
  SubmitCase one;
  const bool is_flat = shape == SliceShape::kOneDimension;
  one.what = fmt::format("{} live {}", count, is_flat ? "1-D slices" : "2-D columns");
  one.slice_count = count;
  one.buffers.push_back(GAPLESS_TRY(add_caller_buffer(stream, count * kSliceBytes)));
  one.first = {inout(first_slice(one.buffers[0].id, shape, count))};
  one.filling_tasks = count;
  one.edges_of_task = 1;  // to the one that updated the slice before
  return one;
}

Result<SubmitCase> make_three_argument_case(Stream& stream) {
  SubmitCase one;
  one.slice_count = kThreeArgumentSlices;
  one.what = fmt::format("{} live 2-D columns, in, in, out", one.slice_count);
  for (int i = 0; i < 3; ++i) {
    one.buffers.push_back(GAPLESS_TRY(add_caller_buffer(stream, one.slice_count * kSliceBytes)));
    const View view = first_slice(one.buffers.back().id, SliceShape::kColumns, one.slice_count);
    one.first.push_back(i < 2 ? in(view) : out(view));
  }
  // Three turns, of which the first finds none before it, the second one, and all later ones two.
  one.filling_tasks = 3 * one.slice_count;
  one.filling_edges = 3 * one.slice_count;
  one.edges_of_task = 2;
  return one;
}

Result<void> submit(Stream& stream, KernelId kernel, SliceWalk& walk, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    GAPLESS_TRY(stream.add_task({.kernel = kernel, .arguments = walk.arguments()}));
    walk.advance();
  }
  return {};
}

Result<double> time_lap(Stream& stream, KernelId kernel, const SubmitCase& one) {
  SliceWalk walk(one.first, one.slice_count);
  GAPLESS_TRY(submit(stream, kernel, walk, one.filling_tasks));
  const int64_t begin_ns = thread_cpu_ns();
  GAPLESS_TRY(submit(stream, kernel, walk, kTimedTasks));
  const double elapsed_ns = static_cast<double>(thread_cpu_ns() - begin_ns);
  const StreamSummary summary = GAPLESS_TRY(stream.wait());
  const int64_t expected = one.filling_edges + one.edges_of_task * kTimedTasks;
  if (static_cast<int64_t>(summary.edge_count) == expected && summary.waited_count == 0) {
    return elapsed_ns / kTimedTasks;
  }
  return fail(ErrorCode::kInvalidInput, "{}: {} edges instead of {}, waited {} times", one.what,
              summary.edge_count, expected, summary.waited_count);
}

void add_submit_rows(const std::vector<SubmitCase>& cases, std::vector<Row>& rows) {
  const SubmitCase* one_slice = nullptr;
  for (const SubmitCase& one : cases) {
    if (one.slice_count == 1) one_slice = &one;
    Row row = make_row("submit", one.what + ", a task", one.figure);
    if (one.slice_count != 1) compare(row, one_slice->what, one_slice->figure);
    row.note = fmt::format("finds {} before it", one.edges_of_task);
    rows.push_back(expect_at_most(row, kSubmitGoalNs));
    if (one.slice_count != kSliceCounts.back()) continue;
    Row flat = make_row("submit", one.what + ": how flat", one.figure);
    compare(flat, one_slice->what, one_slice->figure);
    rows.push_back(expect_ratio_at_most(flat, kFlatGoal));
  }
}

Result<void> measure_submit(const BenchOptions& options, std::vector<Row>& rows) {
  fmt::print("submit: CPU time of add_task, one worker, nothing runs meanwhile\n");
  const std::unique_ptr<CpuDevice> device = GAPLESS_TRY(CpuDevice::create({.worker_count = 1}));
  const std::unique_ptr<Stream> stream = GAPLESS_TRY(Stream::open(*device, kSubmitOptions));
  const KernelId kernel = GAPLESS_TRY(stream->add_kernel("empty", empty_kernel));
  std::vector<SubmitCase> cases;
  for (const SliceShape shape : {SliceShape::kOneDimension, SliceShape::kColumns}) {
    for (const int64_t count : kSliceCounts) {
      cases.push_back(GAPLESS_TRY(make_update_case(*stream, shape, count)));
    }
  }
  cases.push_back(GAPLESS_TRY(make_three_argument_case(*stream)));
  const PinnedCaller pinned;
  const int round_count = options.quick ? 1 : 11;
  for (int round = 0; round < round_count; ++round) {
    for (SubmitCase& one : cases) {
      GAPLESS_TRY(time_lap(*stream, kernel, one));
      std::vector<double> laps;
      for (int lap = 0; lap < kLapsInRound; ++lap) {
        laps.push_back(GAPLESS_TRY(time_lap(*stream, kernel, one)));
      }
      one.figure.values.push_back(median(laps));
    }
  }
  add_submit_rows(cases, rows);
  return {};
}

// ---- The decode shape, submitted and run.

constexpr int kDecodeLayers = 160;
constexpr int64_t kDecodeWidth = 241;
constexpr int kDecodeRunsInRound = 3;

// A layer: tasks that read what the join before has written and write a column each, and a join
// that reads all columns. The stream has to find the edges.
struct DecodeStream {
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<Stream> stream;
  KernelId kernel = {};
  std::vector<CallerBuffer> buffers = {};
  std::vector<std::array<Argument, 2>> tasks = {};  // of a layer, the join last

  Result<void> run() {
    for (int layer = 0; layer < kDecodeLayers; ++layer) {
      for (const std::array<Argument, 2>& arguments : tasks) {
        GAPLESS_TRY(stream->add_task({.kernel = kernel, .arguments = arguments}));
      }
    }
    const StreamSummary summary = GAPLESS_TRY(stream->wait());
    const uint64_t expected = kDecodeLayers * tasks.size();
    if (summary.run_count == expected) return {};
    return fail(ErrorCode::kInvalidInput, "the stream ran {} tasks of {}", summary.run_count,
                expected);
  }
};

Result<std::shared_ptr<DecodeStream>> open_decode_stream(int worker_count) {
  const std::shared_ptr<DecodeStream> decode = std::make_shared<DecodeStream>();
  decode->device = GAPLESS_TRY(CpuDevice::create({.worker_count = worker_count}));
  decode->stream = GAPLESS_TRY(Stream::open(*decode->device));
  decode->kernel = GAPLESS_TRY(decode->stream->add_kernel("empty", empty_kernel));
  for (const int64_t columns : {int64_t{1}, kDecodeWidth}) {
    decode->buffers.push_back(
        GAPLESS_TRY(add_caller_buffer(*decode->stream, columns * kSliceBytes)));
  }
  const View joined = dense_view(decode->buffers[0].id, DType::kBf16, {kSliceRows, kSliceColumns});
  const View columns =
      dense_view(decode->buffers[1].id, DType::kBf16, {kSliceRows, kDecodeWidth * kSliceColumns});
  for (int64_t i = 0; i < kDecodeWidth; ++i) {
    decode->tasks.push_back({in(joined), out(slice(columns, 1, i * kSliceColumns, kSliceColumns))});
  }
  decode->tasks.push_back({in(columns), out(joined)});
  return decode;
}

Result<void> measure_decode(const BenchOptions& options, std::vector<Row>& rows) {
  fmt::print("decode 38720 as a stream: submitted and run, wall time a task\n");
  const TaskShape shape = decode_shape();
  std::vector<Contestant> contestants;
  for (const int workers : {1, 2}) {
    const std::shared_ptr<DecodeStream> decode = GAPLESS_TRY(open_decode_stream(workers));
    contestants.push_back({.name = "stream",
                           .worker_count = workers,
                           .task_count = shape.task_count,
                           .run = [decode] { return decode->run(); }});
    const TaskPeerArgs args = {&shape, workers, empty_task_body()};
    std::unique_ptr<TaskPeer> peer = make_openmp_peer(args);
    if (peer != nullptr) contestants.push_back(contestant_of(std::move(peer), args));
  }
  for (Contestant& one : contestants) GAPLESS_TRY(one.run());
  const PinnedCaller pinned;
  const int round_count = options.quick ? 1 : 9;
  for (int round = 0; round < round_count; ++round) {
    GAPLESS_TRY(run_round(contestants, kDecodeRunsInRound));
  }
  const Contestant* ours = nullptr;
  for (const Contestant& one : contestants) {
    const bool is_ours = one.name == "stream";
    if (is_ours) ours = &one;
    Row row = make_row(
        "stream decode 38720",
        fmt::format("{}, submit and run, a task, {}", one.name, workers_text(one.worker_count)),
        one.figure);
    if (!is_ours) compare(row, "ours", ours->figure);
    rows.push_back(std::move(row));
  }
  return {};
}

// ---- From submitting to starting, on a worker that spins.

constexpr int kLatencySamples = 3000;
constexpr double kLatencyGoalNs = 250.0;
constexpr int64_t kNeverParkNs = 1'000'000'000'000;

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
  const CallerBuffer buffer = GAPLESS_TRY(add_caller_buffer(*stream, kSliceBytes));
  const Argument argument = inout(dense_view(buffer.id, DType::kBf16, {kSliceRows, kSliceColumns}));
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
      flag.store(0, std::memory_order_relaxed);
      start.ticks.store(read_ticks(), std::memory_order_release);
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
  Replay replay = GAPLESS_TRY(Replay::prepare(*device, GAPLESS_TRY(make_pair_graph(times))));
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

Result<void> measure_latency(const BenchOptions& options, std::vector<Row>& rows) {
  fmt::print("latency: {} starts on an idle worker a round, {} us apart\n", kLatencySamples,
             kLatencyIntervalNs / 1000);
  if (allowed_cores().size() < 2) {
    fmt::print("  left out: it needs two cores\n");
    return {};
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
  add_latency_rows(latencies, rows);
  return {};
}

// ---- Memory over a million tasks.

constexpr int64_t kMemoryTasks = 1'000'000;
constexpr int64_t kWarmTasks = 100'000;
constexpr int64_t kScopeTasks = 10;
constexpr int64_t kPartCount = 8;
constexpr int64_t kPartBytes = 8 << 10;
constexpr int64_t kInnerBytes = 16 << 10;
constexpr int64_t kPageBytes = 4096;
constexpr double kMebibyte = 1 << 20;
constexpr double kGrowthGoalMib = 4.0;

// Touches every page that the task may write.
void touch_kernel(TaskContext& context) {
  for (int i = 0; i < context.argument_count(); ++i) {
    const Argument& argument = context.argument(i);
    if (!writes(argument.access)) continue;
    uint8_t* const data = context.data<uint8_t>(i);
    for (int64_t at = 0; at < element_count(argument.view); at += kPageBytes) data[at] = 1;
  }
}

// Eight tasks fill a fresh buffer in parts; in a scope inside, one gathers it into another fresh
// buffer and one reads that.
Result<void> submit_scope(Stream& stream, KernelId kernel) {
  stream.begin_scope();
  const BufferId outer =
      GAPLESS_TRY(stream.add_buffer({.name = "outer", .bytes = kPartCount * kPartBytes}));
  const View parts = dense_view(outer, DType::kU8, {kPartCount * kPartBytes});
  for (int64_t i = 0; i < kPartCount; ++i) {
    const Argument part = out(slice(parts, 0, i * kPartBytes, kPartBytes));
    GAPLESS_TRY(stream.add_task({.kernel = kernel, .arguments = {&part, 1}}));
  }
  stream.begin_scope();
  const BufferId inner = GAPLESS_TRY(stream.add_buffer({.name = "inner", .bytes = kInnerBytes}));
  const View gathered = dense_view(inner, DType::kU8, {kInnerBytes});
  const std::array<Argument, 2> of_gather = {in(parts), out(gathered)};
  const Argument of_reader = in(gathered);
  GAPLESS_TRY(stream.add_task({.kernel = kernel, .arguments = of_gather}));
  GAPLESS_TRY(stream.add_task({.kernel = kernel, .arguments = {&of_reader, 1}}));
  GAPLESS_TRY(stream.end_scope());
  return stream.end_scope();
}

struct MemoryFigures {
  Figure growth{"MiB", {}};
  double warm_mib = 0.0;  // resident, of the last round
  double end_mib = 0.0;
  double heap_mib = 0.0;  // most of the heap rings in use
};

Result<void> run_memory_round(MemoryFigures& figures) {
  const std::unique_ptr<CpuDevice> device = GAPLESS_TRY(CpuDevice::create({.worker_count = 2}));
  const std::unique_ptr<Stream> stream = GAPLESS_TRY(Stream::open(*device));
  const KernelId kernel = GAPLESS_TRY(stream->add_kernel("touch", touch_kernel));
  const PinnedCaller pinned;
  for (int64_t tasks = 0; tasks < kMemoryTasks; tasks += kScopeTasks) {
    if (tasks == kWarmTasks) figures.warm_mib = static_cast<double>(resident_bytes()) / kMebibyte;
    GAPLESS_TRY(submit_scope(*stream, kernel));
  }
  figures.end_mib = static_cast<double>(resident_bytes()) / kMebibyte;
  figures.growth.values.push_back(figures.end_mib - figures.warm_mib);
  const StreamSummary summary = GAPLESS_TRY(stream->wait());
  figures.heap_mib = static_cast<double>(summary.heap_peak_bytes) / kMebibyte;
  if (summary.run_count == kMemoryTasks) return {};
  return fail(ErrorCode::kInvalidInput, "the stream ran {} tasks of {}", summary.run_count,
              kMemoryTasks);
}

Result<void> measure_memory(const BenchOptions& options, std::vector<Row>& rows) {
  fmt::print("memory: {} tasks in scopes with fresh buffers\n", kMemoryTasks);
  MemoryFigures figures;
  const int round_count = options.quick ? 1 : 3;
  for (int round = 0; round < round_count; ++round) GAPLESS_TRY(run_memory_round(figures));
  Row row = make_row("memory", "growth from 100,000 to 1,000,000 tasks", figures.growth);
  const int64_t total_bytes = kMemoryTasks / kScopeTasks * (kPartCount * kPartBytes + kInnerBytes);
  row.note = fmt::format(
      "resident {:.0f} and {:.0f} MiB; buffers of {:.1f} GiB in all, {:.0f} MiB at a time",
      figures.warm_mib, figures.end_mib, static_cast<double>(total_bytes) / kMebibyte / 1024.0,
      figures.heap_mib);
  rows.push_back(expect_at_most(row, kGrowthGoalMib));
  return {};
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  std::vector<Row> rows;
  GAPLESS_TRY(measure_submit(options, rows));
  GAPLESS_TRY(measure_decode(options, rows));
  GAPLESS_TRY(measure_latency(options, rows));
  GAPLESS_TRY(measure_memory(options, rows));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
