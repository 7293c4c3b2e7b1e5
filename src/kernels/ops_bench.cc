// SPDX-License-Identifier: Apache-2.0
//
// Every operation of a decode step that is neither a matmul nor attention, at the sizes of
// Qwen3-14B, on every CpuLevel that this machine has: ops_bench --benchmark_filter=rms_norm.
//
// One thread, data that stays in the L2 cache: rows are taken in turn from a working set that L1
// cannot hold. bytes_per_second counts what is read and written, weights included.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include "base/dtype.h"
#include "base/half.h"
#include "base/huge_buffer.h"
#include "bench/kernel_bench_support.h"
#include "kernels/cpu_level.h"
#include "kernels/elementwise.h"
#include "kernels/kv_cache.h"
#include "kernels/norm.h"
#include "kernels/packed_rows.h"
#include "kernels/sampling.h"

namespace gapless {
namespace {

constexpr int64_t kHidden = 5120;
constexpr int64_t kIntermediate = 17408;
constexpr int kQHeads = 40;
constexpr int kKvHeads = 8;
constexpr int kHeadDim = 128;
constexpr int kPageTokens = 128;
constexpr int64_t kVocabulary = 151936;
constexpr float kEps = 1e-6f;
constexpr int64_t kWorkingSetBytes = 256 << 10;

// All inputs and outputs. The largest are the logits, 600 KB; each operation uses little of the
// rest.
struct Data {
  std::vector<float> x;      // also gates, logits and heads
  std::vector<float> other;  // ups, residuals, gammas
  std::vector<Bf16> x_bf16;
  std::vector<float> y;
  std::vector<Bf16> y_bf16;
  RopeTable rope{1e6, kHeadDim, 64};
  std::vector<Candidate> top = std::vector<Candidate>(64);
  HugeBuffer packed;
  HugeBuffer pages;
};

std::shared_ptr<Data> make_data() {
  std::shared_ptr<Data> data = std::make_shared<Data>();
  RandomBits random(1);
  data->x.resize(static_cast<size_t>(kVocabulary));
  for (float& value : data->x) value = random.next_float();
  data->other = data->x;
  data->y.resize(data->x.size());
  data->y_bf16.resize(data->x.size());
  for (const float value : data->x) data->x_bf16.push_back(to_bf16(value));
  return data;
}

// A row that is not the one of the call before, out of as many as the working set has.
int64_t row_offset(int64_t call, int64_t row_elements, int64_t row_bytes) {
  const int64_t row_count = std::max<int64_t>(kWorkingSetBytes / row_bytes, 1);
  const int64_t fit_count = kVocabulary / row_elements;
  return call % std::min(row_count, fit_count) * row_elements;
}

struct Operation {
  std::string name;   // "rms_norm/avx512/5120"
  int64_t bytes = 0;  // read and written by one call
  std::function<void(int64_t call)> run;
};

void add(Operation operation) {
  benchmark::RegisterBenchmark(operation.name.c_str(), [operation](benchmark::State& state) {
    int64_t call = 0;
    for (auto _ : state) {
      operation.run(call++);
      benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * operation.bytes);
  });
}

std::string name_of(const char* operation, CpuLevel level, int64_t size) {
  return fmt::format("{}/{}/{}", operation, cpu_level_name(level), size);
}

void add_norms(CpuLevel level, const std::shared_ptr<Data>& data) {
  add({name_of("rms_norm", level, kHidden), kHidden * 10, [level, data](int64_t call) {
         const int64_t at = row_offset(call, kHidden, kHidden * 6);
         rms_norm(level, data->x.data() + at, data->other.data(), kHidden, kEps, DType::kBf16,
                  data->y_bf16.data() + at);
       }});
  constexpr int kHeads = kQHeads + kKvHeads;
  constexpr int64_t kRow = int64_t{kHeads} * kHeadDim;
  add({name_of("rope", level, kRow), kRow * 8, [level, data](int64_t call) {
         const int64_t at = row_offset(call, kRow, kRow * 8);
         const int64_t position = call % data->rope.position_count();
         rope(level, data->x.data() + at, kHeads, kHeadDim, kHeadDim, data->rope.cos(position),
              data->rope.sin(position), data->y.data() + at);
       }});
  add({name_of("norm_heads", level, kRow), kRow * 8, [level, data](int64_t call) {
         const int64_t at = row_offset(call, kRow, kRow * 8);
         const int64_t position = call % data->rope.position_count();
         norm_heads(level,
                    {.head_count = kHeads,
                     .head_dim = kHeadDim,
                     .stride = kHeadDim,
                     .gamma = data->other.data(),
                     .eps = kEps,
                     .factor = 1.0f,
                     .cos = data->rope.cos(position),
                     .sin = data->rope.sin(position)},
                    data->x.data() + at, data->y.data() + at);
       }});
}

void add_elementwise(CpuLevel level, const std::shared_ptr<Data>& data) {
  add({name_of("silu_multiply", level, kIntermediate), kIntermediate * 10,
       [level, data](int64_t call) {
         const int64_t at = row_offset(call, kIntermediate, kIntermediate * 10);
         silu_multiply(level, data->x.data() + at, data->other.data() + at, 1.0f, kIntermediate,
                       DType::kBf16, data->y_bf16.data() + at);
       }});
  add({name_of("add_rows", level, kHidden), kHidden * 12, [level, data](int64_t call) {
         const int64_t at = row_offset(call, kHidden, kHidden * 12);
         add_rows(level, data->x.data() + at, data->other.data() + at, kHidden,
                  data->y.data() + at);
       }});
  add({name_of("cast_f32_bf16", level, kHidden), kHidden * 6, [level, data](int64_t call) {
         const int64_t at = row_offset(call, kHidden, kHidden * 6);
         cast_row(level, DType::kF32, data->x.data() + at, kHidden, DType::kBf16,
                  data->y_bf16.data() + at);
       }});
  add({name_of("cast_bf16_f32", level, kHidden), kHidden * 6, [level, data](int64_t call) {
         const int64_t at = row_offset(call, kHidden, kHidden * 6);
         cast_row(level, DType::kBf16, data->x_bf16.data() + at, kHidden, DType::kF32,
                  data->y.data() + at);
       }});
  add({name_of("gather_embedding", level, kHidden), kHidden * 6, [level, data](int64_t call) {
         const int64_t at = row_offset(call, kHidden, kHidden * 6);
         gather_embedding(level, DType::kBf16, data->x_bf16.data(), at / kHidden, kHidden,
                          data->y.data() + at);
       }});
}

// Rows of the two widths of a layer, packed one at a time into places of 16.
void add_packing(CpuLevel level, const std::shared_ptr<Data>& data) {
  constexpr int64_t kRows = 16;
  for (const DType weights : {DType::kS8, DType::kBf16}) {
    for (const int64_t k : {kHidden, kIntermediate}) {
      const PackedRows rows = packed_rows_in(data->packed.data(), weights, level, kRows, k);
      const int64_t bytes = 4 * k + packed_rows_bytes(weights, level, kRows, k) / kRows;
      const std::string operation = fmt::format("pack_rows_{}", dtype_name(weights));
      add({name_of(operation.c_str(), level, k), bytes, [level, data, rows, k](int64_t call) {
             const int64_t row = call % kRows;
             const int64_t fit_count = kVocabulary / k;
             // pack_rows takes row `row` of the source; all of them are one of the few here.
             const RowSource source = {DType::kF32, data->x.data() + call % fit_count * k, 0,
                                       nullptr};
             pack_rows(level, source, row, 1, rows);
           }});
    }
  }
}

void add_sampling(CpuLevel level, const std::shared_ptr<Data>& data) {
  for (const size_t top_count : {size_t{1}, size_t{50}}) {
    const std::string operation = fmt::format("take_top_{}", top_count);
    add({name_of(operation.c_str(), level, kVocabulary), kVocabulary * 4,
         [level, data, top_count](int64_t) {
           take_top(level, data->x, 0, std::span<Candidate>(data->top).first(top_count));
         }});
  }
}

// It has one form for all levels.
void add_kv_write(const std::shared_ptr<Data>& data) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kS8}) {
    const KvPages pages = {{dtype, kKvHeads, kHeadDim, kPageTokens}, data->pages.data(), 1};
    const int64_t bytes = 2 * kHeadDim * (4 + dtype_bytes(dtype));
    add({fmt::format("write_kv/{}/{}", dtype_name(dtype), kHeadDim), bytes,
         [data, pages](int64_t call) {
           const int token = static_cast<int>(call % kPageTokens);
           write_kv(pages, 0, token, 0, data->x.data(), data->other.data());
         }});
  }
}

Result<void> add_all() {
  const std::shared_ptr<Data> data = make_data();
  int64_t packed_bytes = 0;
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const DType weights : {DType::kS8, DType::kBf16}) {
      packed_bytes =
          std::max(packed_bytes, packed_rows_block_bytes(weights, level, 16, kIntermediate));
    }
  }
  data->packed = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(packed_bytes)));
  const KvShape largest = {DType::kF32, kKvHeads, kHeadDim, kPageTokens};
  data->pages = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(kv_page_bytes(largest))));
  for (const CpuLevel level : usable_cpu_levels()) {
    add_norms(level, data);
    add_elementwise(level, data);
    add_packing(level, data);
    add_sampling(level, data);
  }
  add_kv_write(data);
  return {};
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const gapless::Result<void> added = gapless::add_all();
  if (!added) {
    fmt::print(stderr, "ops_bench: {}\n", added.error().message);
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
