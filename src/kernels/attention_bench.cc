// SPDX-License-Identifier: Apache-2.0
//
// Paged attention of one layer of Qwen3-14B (40 query heads, 8 kv heads of 128, pages of 128
// tokens in random places) against what this machine can read, in the same rounds.
//
// One turn of a case is a pass of the read ceiling, the attention of as many batches as it takes to
// read a few hundred megabytes, and another pass; the ceiling of the turn is the mean of the two.
// Small batches take other pages each time, so that none lie in a cache.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/half.h"
#include "base/huge_buffer.h"
#include "bench/kernel_bench_support.h"
#include "bench/measurement.h"
#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/attention_reference.h"

namespace gapless {
namespace {

constexpr int kQHeads = 40;
constexpr int kKvHeads = 8;
constexpr int kHeadDim = 128;
constexpr int kPageTokens = 128;
constexpr int kBatch = 16;
constexpr int kTokens = 4096;
constexpr int kShortTokens = 512;
constexpr int kTablePages = kTokens / kPageTokens;  // of a sequence
constexpr int64_t kPageCount = int64_t{kBatch} * kTablePages;
constexpr int64_t kDistinctPages = 16;
constexpr const char* kMainShape = "b16 s4096";
constexpr double kGoal = 0.70;
constexpr DType kOutputDtype = DType::kBf16;

// Which pages a batch reads. A small one moves on to others at each run.
struct Shape {
  std::string name;
  std::vector<int32_t> lengths;
  int batches = 1;            // that can be had from all pages
  int64_t sequence_step = 0;  // from one batch to the next
  int64_t page_step = 0;
};

struct Case {
  Shape shape;
  KvPages pages;
  int thread_count = 1;
  AttentionPlan plan;
  std::vector<std::pair<int64_t, int>> combines;  // sequence and kv head
  HugeBuffer partials;
  std::vector<Bf16> output;
  int64_t next_batch = 0;
  // One value a round.
  Figure read{"GB/s", {}};
  Figure peak{"GFLOP/s", {}};
  std::vector<double> ns;  // of one batch
};

struct Bench {
  CpuLevel level = CpuLevel::kPortable;
  std::unique_ptr<PinnedThreads> threads;
  std::unique_ptr<ReadCeiling> ceiling;
  std::vector<HugeBuffer> memory;   // of the pages of each type
  std::vector<int32_t> page_table;  // [kBatch][kTablePages], shuffled
  std::vector<float> q;             // [kBatch][kQHeads][kHeadDim]
  std::vector<std::unique_ptr<Case>> cases;
};

std::vector<int32_t> ragged_lengths() {
  RandomBits random(3);
  std::vector<int32_t> lengths(kBatch);
  for (int32_t& length : lengths) length = 1 + static_cast<int32_t>(random.next() % kTokens);
  lengths[0] = 1;
  lengths[1] = kTokens;
  return lengths;
}

std::vector<Shape> all_shapes() {
  return {{kMainShape, std::vector<int32_t>(kBatch, kTokens), 1, 0, 0},
          {"b1 s4096", {kTokens}, kBatch, 1, 0},
          {"b16 s512", std::vector<int32_t>(kBatch, kShortTokens), kTokens / kShortTokens, 0,
           kShortTokens / kPageTokens},
          {"b16 ragged", ragged_lengths(), 1, 0, 0}};
}

// ---- Making the cases.

// Random keys and values in the first pages, copies of them in all others.
Result<KvPages> add_pages(Bench& bench, DType dtype) {
  KvPages pages = {{dtype, kKvHeads, kHeadDim, kPageTokens}, nullptr, kPageCount};
  GAPLESS_TRY(check_kv_shape(pages.shape));
  const int64_t page_bytes = kv_page_bytes(pages.shape);
  bench.memory.push_back(
      GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(kPageCount * page_bytes))));
  pages.data = bench.memory.back().data();
  const int thread_count = bench.threads->count();
  bench.threads->run_jobs(thread_count, kDistinctPages, [&pages](int64_t page) {
    RandomBits random(static_cast<uint64_t>(page));
    float token_values[2 * kHeadDim];
    for (int i = 0; i < kPageTokens * kKvHeads; ++i) {
      for (float& value : token_values) value = random.next_float();
      write_kv(pages, page, i / kKvHeads, i % kKvHeads, token_values, token_values + kHeadDim);
    }
  });
  bench.threads->run_jobs(thread_count, kPageCount, [&pages, page_bytes](int64_t page) {
    if (page < kDistinctPages) return;
    std::memcpy(pages.data + page * page_bytes, pages.data + page % kDistinctPages * page_bytes,
                static_cast<size_t>(page_bytes));
  });
  return pages;
}

Result<void> add_case(Bench& bench, const Shape& shape, const KvPages& pages, int thread_count) {
  std::unique_ptr<Case> one = std::make_unique<Case>();
  one->shape = shape;
  one->pages = pages;
  one->thread_count = thread_count;
  one->plan = GAPLESS_TRY(plan_attention({.kv = pages.shape,
                                          .q_heads = kQHeads,
                                          .core_count = thread_count,
                                          .output_dtype = kOutputDtype},
                                         shape.lengths));
  for (size_t sequence = 0; sequence < shape.lengths.size(); ++sequence) {
    if (chunk_count(shape.lengths[sequence], kDefaultChunkTokens) == 1) continue;
    for (int head = 0; head < kKvHeads; ++head) {
      one->combines.emplace_back(static_cast<int64_t>(sequence), head);
    }
  }
  one->partials = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(one->plan.workspace_bytes)));
  one->output.resize(shape.lengths.size() * kQHeads * kHeadDim);
  bench.cases.push_back(std::move(one));
  return {};
}

Result<Bench> make_bench(const BenchOptions& options) {
  Bench bench;
  bench.level = GAPLESS_TRY(choose_cpu_level());
  const int thread_count = static_cast<int>(std::min<size_t>(usable_cores().size(), 2));
  bench.threads = GAPLESS_TRY(PinnedThreads::start(thread_count));
  bench.ceiling = std::make_unique<ReadCeiling>(GAPLESS_TRY(ReadCeiling::create(
      *bench.threads, {.level = bench.level, .repeat_count = options.quick ? 1 : 5})));
  RandomBits random(5);
  for (int32_t page = 0; page < kPageCount; ++page) bench.page_table.push_back(page);
  for (size_t i = bench.page_table.size() - 1; i > 0; --i) {
    std::swap(bench.page_table[i], bench.page_table[random.next() % (i + 1)]);
  }
  bench.q.resize(size_t{kBatch} * kQHeads * kHeadDim);
  for (float& value : bench.q) value = 2.0f * random.next_float();
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
    const KvPages pages = GAPLESS_TRY(add_pages(bench, dtype));
    for (const Shape& shape : all_shapes()) {
      if (dtype == DType::kF32 && shape.name != kMainShape) continue;
      for (int threads = 1; threads <= thread_count; ++threads) {
        GAPLESS_TRY(add_case(bench, shape, pages, threads));
      }
    }
  }
  return bench;
}

// ---- One turn.

AttentionArgs args_of(const Bench& bench, Case& one, int64_t batch) {
  const int64_t first_page = batch * (one.shape.sequence_step * kTablePages + one.shape.page_step);
  AttentionArgs args;
  args.pages = one.pages;
  args.q_heads = kQHeads;
  args.batch = static_cast<int64_t>(one.shape.lengths.size());
  args.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  args.q = bench.q.data();
  args.lengths = one.shape.lengths.data();
  args.page_table = bench.page_table.data() + first_page;
  args.page_table_stride = kTablePages;
  args.first_partial = one.plan.first_partial.data();
  args.partials = reinterpret_cast<float*>(one.partials.data());
  args.output_dtype = kOutputDtype;
  args.output = one.output.data();
  return args;
}

// Items in the order of the plan, each to the thread that is free; a thread takes its next item
// before it begins one, as a worker of the runtime does. Then the partials are combined.
double run_batch(Bench& bench, Case& one, const AttentionArgs& args) {
  const std::vector<AttentionItem>& items = one.plan.items;
  std::atomic<size_t> next_item = 0;
  const double items_ns = bench.threads->run(one.thread_count, [&](int) {
    size_t index = next_item.fetch_add(1, std::memory_order_relaxed);
    while (index < items.size()) {
      const size_t next = next_item.fetch_add(1, std::memory_order_relaxed);
      attention_item(bench.level, args, items[index], next < items.size() ? &items[next] : nullptr);
      index = next;
    }
  });
  if (one.combines.empty()) return items_ns;
  const int64_t count = static_cast<int64_t>(one.combines.size());
  return items_ns + bench.threads->run_jobs(one.thread_count, count, [&](int64_t job) {
    const auto& [sequence, head] = one.combines[static_cast<size_t>(job)];
    attention_combine(bench.level, args, sequence, head);
  });
}

void run_turn(Bench& bench, Case& one) {
  std::optional<double> peak;
  if (one.pages.shape.dtype == DType::kBf16) {
    peak = measure_compute(*bench.threads, one.thread_count, bench.level, Arithmetic::kBf16);
  }
  if (!peak) {
    peak = measure_compute(*bench.threads, one.thread_count, bench.level, Arithmetic::kF32);
  }
  one.peak.values.push_back(peak.value());
  const double before = bench.ceiling->measure(one.thread_count);
  double sum_ns = 0.0;
  for (int i = 0; i < one.shape.batches; ++i) {
    one.next_batch = (one.next_batch + 1) % one.shape.batches;
    sum_ns += run_batch(bench, one, args_of(bench, one, one.next_batch));
  }
  const double after = bench.ceiling->measure(one.thread_count);
  one.read.values.push_back(mean_of(before, after));
  one.ns.push_back(sum_ns / one.shape.batches);
}

// The last sequence and kv head of the batch that ran last, against the reference in double.
Result<void> check_case(const Bench& bench, Case& one) {
  constexpr int kGroup = kQHeads / kKvHeads;
  constexpr int kHead = kKvHeads - 1;
  const AttentionArgs args = args_of(bench, one, one.next_batch);
  GAPLESS_TRY(check_attention(args));
  const int64_t sequence = args.batch - 1;
  const int64_t length = one.shape.lengths.back();
  std::vector<float> keys(static_cast<size_t>(length * kHeadDim));
  std::vector<float> values(keys.size());
  for (int64_t token = 0; token < length; ++token) {
    const int64_t entry = sequence * args.page_table_stride + token / kPageTokens;
    read_kv(args.pages, args.page_table[entry], static_cast<int>(token % kPageTokens), kHead,
            keys.data() + token * kHeadDim, values.data() + token * kHeadDim);
  }
  const int64_t first = (sequence * kQHeads + kHead * kGroup) * kHeadDim;
  std::vector<double> right(size_t{kGroup} * kHeadDim);
  attention_reference({.kv_dtype = args.pages.shape.dtype,
                       .group_heads = kGroup,
                       .head_dim = kHeadDim,
                       .length = length,
                       .scale = args.scale,
                       .q = args.q + first,
                       .keys = keys.data(),
                       .values = values.data(),
                       .output = right.data()});
  // A bf16 output, bf16 weights, and a hundredth of what such outputs are for elements near 0.
  constexpr double kRelativeError = 0x1p-7;
  double mean = 0.0;
  for (const double value : right) mean += std::abs(value) / static_cast<double>(right.size());
  for (size_t i = 0; i < right.size(); ++i) {
    const double ours = static_cast<double>(to_float(one.output[static_cast<size_t>(first) + i]));
    if (std::abs(ours - right[i]) <= kRelativeError * std::abs(right[i]) + 0.01 * mean) continue;
    return fail(ErrorCode::kInvalidInput, "attention {} {}: element {} is {}, not {}",
                one.shape.name, dtype_name(args.pages.shape.dtype), i, ours, right[i]);
  }
  return {};
}

Row row_of(const Case& one) {
  const DType dtype = one.pages.shape.dtype;
  const double bytes = static_cast<double>(one.plan.kv_bytes);
  Row row;
  row.group = "attention";
  row.what =
      fmt::format("{} {}, {}", one.shape.name, dtype_name(dtype), threads_text(one.thread_count));
  row.figure.unit = "GB/s";
  Figure roofline{"GB/s", {}};
  for (size_t i = 0; i < one.ns.size(); ++i) {
    row.figure.values.push_back(bytes / one.ns[i]);
    const double compute = one.peak.values[i] * bytes / one.plan.flops;
    roofline.values.push_back(std::min(one.read.values[i], compute));
  }
  compare(row, "read ceiling", one.read);
  row.note = fmt::format("{:.3f} ms; {:.2f} of the roofline, {}", median(one.ns) * 1e-6,
                         ratio(row.figure, roofline), figure_text(roofline));
  const bool has_goal = dtype != DType::kF32 && one.shape.name == kMainShape;
  return has_goal ? expect_ratio_at_least(row, kGoal) : row;
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  Bench bench = GAPLESS_TRY(make_bench(options));
  fmt::print("attention at level {}\n", cpu_level_name(bench.level));
  const int round_count = options.quick ? 1 : 11;
  for (int round = 0; round < round_count; ++round) {
    for (const std::unique_ptr<Case>& one : bench.cases) {
      run_turn(bench, *one);
      if (round == 0) GAPLESS_TRY(check_case(bench, *one));
    }
  }
  print_core_share(*bench.threads);
  std::vector<Row> rows;
  for (const std::unique_ptr<Case>& one : bench.cases) rows.push_back(row_of(*one));
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
