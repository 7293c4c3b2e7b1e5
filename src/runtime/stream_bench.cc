// SPDX-License-Identifier: Apache-2.0
//
// What a stream costs: to submit a task, with 1 to 10,000 slices of one buffer in flight; to submit
// and run the decode shape through views; and how memory grows over a million tasks.
//
// Submitting is CPU time of the thread; submitting and running is wall time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "runtime/bench_support.h"
#include "runtime/cpu_device.h"
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
  one.what = fmt::format("{} live {}{}", count, is_flat ? "1-D slice" : "2-D column",
                         count == 1 ? "" : "s");
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
    // The goal is for one argument, as in the figures it is compared with.
    rows.push_back(one.first.size() == 1 ? expect_at_most(row, kSubmitGoalNs) : row);
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
  GAPLESS_TRY(measure_memory(options, rows));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
