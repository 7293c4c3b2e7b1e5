// SPDX-License-Identifier: Apache-2.0
//
// The attention on a GPU, timed: time, bytes per second, and the share of the read ceiling that is
// measured in the same run. tools/cuda_attention_peer.py times PyTorch's dense attention the same
// way.
//
// cuda_bench_support.h says how figures are taken; the sets are of pages.

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/cuda_bench_support.h"
#include "cuda/attention.h"
#include "cuda/device.h"
#include "cuda/kv_pages.h"

namespace gapless {
namespace {

constexpr int kMaxSets = 512;

// 16 sequences of 4096 tokens, and how much longer a byte may take where lengths are ragged.
constexpr double kMaxUs = 66.0;
constexpr double kMaxUsBytes = 268435456.0;
constexpr double kMaxRaggedRatio = 1.1;

struct Case {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int32_t> lengths;
  int q_heads = 40;
  int kv_heads = 8;
  int head_dim = 128;
  int page_tokens = 128;
  int chunk_tokens = kDefaultChunkTokens;
  CudaAttentionTuning tuning;
  bool starts_early = false;
  double max_us_a_byte = 0.0;  // 0: there is no such goal
};

// ---- A case on the device.

struct CaseBuffers {
  DeviceBuffer pages;
  DeviceBuffer table;  // [sets][batch][stride]
  DeviceBuffer lengths;
  DeviceBuffer q;
  DeviceBuffer output;
  DeviceBuffer workspace;
};

template <typename T>
Result<DeviceBuffer> uploaded(const std::vector<T>& values, const char* what) {
  const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
  DeviceBuffer buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, what));
  GAPLESS_TRY(buffer.copy_from_host(values.data(), bytes));
  return buffer;
}

CudaAttentionShape shape_of(const Case& c) {
  CudaAttentionShape shape;
  shape.kv = {.dtype = c.dtype,
              .kv_heads = c.kv_heads,
              .head_dim = c.head_dim,
              .page_tokens = c.page_tokens};
  shape.q_heads = c.q_heads;
  shape.chunk_tokens = c.chunk_tokens;
  shape.output_dtype = c.dtype;
  shape.max_batch = static_cast<int>(c.lengths.size());
  shape.max_tokens = *std::max_element(c.lengths.begin(), c.lengths.end());
  return shape;
}

int64_t pages_of(const Case& c, int64_t tokens) {
  return (tokens + c.page_tokens - 1) / c.page_tokens;
}

// Every set has pages of its own; all are shuffled together.
std::vector<int32_t> make_table(const Case& c, int sets, int64_t set_pages, int64_t stride) {
  std::vector<int32_t> pages(static_cast<size_t>(set_pages * sets));
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  std::mt19937 random(1);
  std::shuffle(pages.begin(), pages.end(), random);
  const int64_t batch = static_cast<int64_t>(c.lengths.size());
  std::vector<int32_t> table(static_cast<size_t>(sets * batch * stride), -1);
  size_t next = 0;
  for (int64_t row = 0; row < sets * batch; ++row) {
    const int64_t count = pages_of(c, c.lengths[static_cast<size_t>(row % batch)]);
    for (int64_t i = 0; i < count; ++i) {
      table[static_cast<size_t>(row * stride + i)] = pages[next++];
    }
  }
  return table;
}

Result<CaseBuffers> make_buffers(const Case& c, const CudaAttentionShape& shape,
                                 const std::vector<int32_t>& table, int64_t page_count) {
  const bool is_bf16 = c.dtype == DType::kBf16;
  const int64_t page_bytes = cuda_kv_page_bytes(c.kv_heads, c.head_dim, c.page_tokens);
  const int64_t q_bytes = int64_t{shape.max_batch} * c.q_heads * c.head_dim * 2;
  const int64_t workspace_bytes = cuda_attention_workspace_bytes(shape, c.lengths);
  CaseBuffers buffers;
  buffers.pages = GAPLESS_TRY(random_elements(page_count * page_bytes, is_bf16, 3, "kv pages"));
  buffers.q = GAPLESS_TRY(random_elements(q_bytes, is_bf16, 5, "queries"));
  buffers.output = GAPLESS_TRY(DeviceBuffer::allocate(q_bytes, "outputs"));
  buffers.table = GAPLESS_TRY(uploaded(table, "page tables"));
  buffers.lengths = GAPLESS_TRY(uploaded(c.lengths, "lengths"));
  buffers.workspace = GAPLESS_TRY(DeviceBuffer::allocate(workspace_bytes, "workspaces"));
  return buffers;
}

CudaAttentionArgs args_of(const Case& c, const CaseBuffers& buffers, int64_t page_count,
                          int64_t stride) {
  return {.pages = buffers.pages.data(),
          .page_count = page_count,
          .batch = static_cast<int>(c.lengths.size()),
          .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
          .q = buffers.q.data(),
          .lengths = reinterpret_cast<const int32_t*>(buffers.lengths.data()),
          .page_table = reinterpret_cast<const int32_t*>(buffers.table.data()),
          .page_table_stride = stride,
          .workspace = buffers.workspace.data(),
          .workspace_bytes = buffers.workspace.bytes(),
          .output = buffers.output.data(),
          .starts_early = c.starts_early};
}

Result<TimedRow> time_case(const Case& c, int replays) {
  const CudaAttentionShape shape = shape_of(c);
  const CudaAttention attention = GAPLESS_TRY(CudaAttention::make(shape, c.tuning));
  const AttentionPlan plan = GAPLESS_TRY(plan_attention({.kv = shape.kv,
                                                         .q_heads = shape.q_heads,
                                                         .chunk_tokens = shape.chunk_tokens,
                                                         .output_dtype = shape.output_dtype},
                                                        c.lengths));
  const int64_t stride = pages_of(c, shape.max_tokens);
  int64_t set_pages = 0;
  for (const int32_t length : c.lengths) set_pages += pages_of(c, length);
  const int64_t set_bytes = set_pages * cuda_kv_page_bytes(c.kv_heads, c.head_dim, c.page_tokens);
  const int sets =
      static_cast<int>(std::clamp<int64_t>(kRotatedBytes / set_bytes + 1, 2, kMaxSets));
  const std::vector<int32_t> table = make_table(c, sets, set_pages, stride);
  const CaseBuffers buffers = GAPLESS_TRY(make_buffers(c, shape, table, set_pages * sets));
  const CudaAttentionArgs args = args_of(c, buffers, set_pages * sets, stride);
  GAPLESS_TRY(attention.prepare(args.workspace, args.workspace_bytes, nullptr));
  GAPLESS_TRY(synchronize(nullptr));
  const Launch launch = [&](int index, CudaStream stream) {
    CudaAttentionArgs set_args = args;
    set_args.page_table = args.page_table + index % sets * args.batch * stride;
    return attention.launch(set_args, stream);
  };
  TimedRow row = GAPLESS_TRY(time_graph(c.name, static_cast<double>(plan.kv_bytes),
                                        std::max(sets, kMinLaunches), replays, launch));
  row.goals.max_us = c.max_us_a_byte * row.bytes;
  GAPLESS_TRY(attention.check_launches(args, nullptr));
  return row;
}

// ---- What is measured.

std::vector<int32_t> ragged(int batch, int most, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> lengths;
  for (int i = 0; i < batch; ++i) {
    lengths.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(most)) + 1);
  }
  return lengths;
}

Case named(Case c, const std::string& lengths) {
  c.name = std::string(dtype_name(c.dtype)) + " b" + std::to_string(c.lengths.size()) + " " +
           lengths + " page " + std::to_string(c.page_tokens) + " chunk " +
           std::to_string(c.chunk_tokens) + (c.starts_early ? " early" : "");
  if (c.tuning.ring_slots > 0) c.name += " slots " + std::to_string(c.tuning.ring_slots);
  if (c.tuning.pair_tiles >= 0) c.name += " pair " + std::to_string(c.tuning.pair_tiles);
  if (c.tuning.due_share > 0) c.name += fmt::format(" due {:.2f}", c.tuning.due_share);
  return c;
}

Case uniform(DType dtype, int batch, int tokens) {
  Case c;
  c.dtype = dtype;
  c.lengths.assign(static_cast<size_t>(batch), tokens);
  return named(c, "ctx " + std::to_string(tokens));
}

void add_ragged(std::vector<Case>& cases, Case c) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    c.lengths = ragged(16, 4096, seed);
    cases.push_back(named(c, "ragged 1..4096 (" + std::to_string(seed) + ")"));
  }
}

void add_main(std::vector<Case>& cases) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const bool starts_early : {false, true}) {
      Case c = uniform(dtype, 16, 4096);
      c.starts_early = starts_early;
      c.max_us_a_byte = kMaxUs / kMaxUsBytes;
      cases.push_back(named(c, "ctx 4096"));
      c.max_us_a_byte *= kMaxRaggedRatio;
      add_ragged(cases, c);
    }
  }
}

// How the work may be cut: chunks, what a pair counts as, and bytes in flight.
void add_tuning(std::vector<Case>& cases) {
  for (const bool starts_early : {false, true}) {
    for (const double share : {0.90, 0.92, 0.94, 0.96, 0.98}) {
      Case c = uniform(DType::kBf16, 16, 4096);
      c.tuning = {.due_share = share};
      c.starts_early = starts_early;
      cases.push_back(named(c, "ctx 4096"));
      add_ragged(cases, c);
    }
  }
  for (const int chunk : {256, 512}) {
    for (const bool starts_early : {false, true}) {
      for (const int slots : {1, 2}) {
        Case c = uniform(DType::kBf16, 16, 4096);
        c.chunk_tokens = chunk;
        c.tuning = {.ring_slots = slots};
        c.starts_early = starts_early;
        cases.push_back(named(c, "ctx 4096"));
        add_ragged(cases, c);
      }
      Case c;
      c.chunk_tokens = chunk;
      c.starts_early = starts_early;
      for (const int pair : {0, 1, 3}) {
        c.tuning = {.pair_tiles = pair};
        add_ragged(cases, c);
      }
    }
  }
}

void add_sweep(std::vector<Case>& cases) {
  for (const int batch : {1, 4, 16, 64}) {
    for (const int tokens : {512, 1024, 2048, 4096, 8192, 16384, 32768})
      cases.push_back(uniform(DType::kBf16, batch, tokens));
  }
  cases.push_back(uniform(DType::kBf16, 1, 131072));
  cases.push_back(uniform(DType::kBf16, 256, 1024));
  const struct {
    int batch;
    int most;
  } mixtures[] = {{4, 4096}, {64, 4096}, {4, 32768}, {16, 32768}};
  for (const auto& [batch, most] : mixtures) {
    Case mixed;
    mixed.lengths = ragged(batch, most, 3);
    cases.push_back(named(mixed, "ragged 1.." + std::to_string(most) + " (3)"));
  }
  Case small_pages = uniform(DType::kBf16, 16, 4096);
  small_pages.page_tokens = 16;
  cases.push_back(named(small_pages, "ctx 4096"));
}

Result<void> measure(const CudaBenchOptions& options, const AddRow& add_row) {
  std::vector<Case> cases;
  add_main(cases);
  if (options.tunes) add_tuning(cases);
  if (!options.is_main_only) add_sweep(cases);
  for (const Case& c : cases) {
    const TimedRow row = GAPLESS_TRY(time_case(c, replays_of(options)));
    GAPLESS_TRY(add_row(row));
  }
  return {};
}

const CudaBenchProgram kProgram = {
    .about =
        "Paged attention of Qwen3-14B's heads on a GPU: 16 sequences of 4096 tokens and of ragged\n"
        "lengths, each launch alone and with early launches, and a sweep of batches and lengths.\n"
        "Shares are of the read rate that is measured first.\n",
    .flags = {{"--quick", kQuickHelp, &CudaBenchOptions::is_quick},
              {"--main", "Without the sweep", &CudaBenchOptions::is_main_only},
              {"--tune", "Other tunings of the main shapes, too", &CudaBenchOptions::tunes}},
};

int run(int argc, char** argv) {
  return run_cuda_bench(kProgram, argc, argv, [](const CudaBenchOptions& options) {
    return measure_launches(options, {256}, measure);
  });
}

}  // namespace
}  // namespace gapless

// NOLINTNEXTLINE(bugprone-exception-escape): no memory or no standard output, and that ends us.
int main(int argc, char** argv) { return gapless::run(argc, argv); }
