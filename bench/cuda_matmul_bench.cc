// SPDX-License-Identifier: Apache-2.0
//
// The matmuls of a decode layer on a GPU, timed: time, bytes of weights per second, and the share
// of the read ceiling that is measured in the same run. tools/cuda_matmul_peer.py times PyTorch's
// the same way.
//
// cuda_bench_support.h says how figures are taken; the sets are of weights. "early" launches may
// start before the launch before has ended, and all wait for it before they read their tokens.

#include <algorithm>
#include <string>
#include <vector>

#include "bench/cuda_bench_support.h"
#include "cuda/device.h"
#include "cuda/matmul.h"

namespace gapless {
namespace {

struct Projection {
  const char* name;
  int64_t columns;
  int64_t k;
  bool is_gated;
  double min_share = 0.0;  // of the read ceiling, in A8W8 with 16 tokens: the goal
};
constexpr Projection kGateUp = {"gate/up", 17408, 5120, true, 0.85};
constexpr Projection kDown = {"down", 5120, 17408, false, 0.75};
constexpr Projection kQkv = {"qkv", 7168, 5120, false, 0.75};
constexpr Projection kAttentionOutput = {"o", 5120, 5120, false};
constexpr Projection kHead = {"lm_head", 151936, 5120, false};

struct Case {
  Projection projection;
  DType dtype = DType::kS8;
  int tokens = 16;
  bool starts_early = false;
  bool has_residual = false;
  CudaMatmulTuning tuning = {};
  int tile_rows = 0;  // 0: the best
  bool has_goal = false;
};

// ---- A case on the device.

struct CaseBuffers {
  DeviceBuffer weights;  // of all sets
  DeviceBuffer scales;
  DeviceBuffer x;
  DeviceBuffer token_scales;
  DeviceBuffer output;
  DeviceBuffer workspace;
};

Result<CudaMatmulShape> shape_of(const Case& c) {
  CudaWeightShape weights = {.dtype = c.dtype,
                             .columns = c.projection.columns,
                             .k = c.projection.k,
                             .is_gated = c.projection.is_gated};
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  weights.tile_rows = c.tile_rows > 0 ? c.tile_rows : best_tile_rows(weights, limits);
  return CudaMatmulShape{.weights = weights, .output_dtype = DType::kBf16, .max_tokens = c.tokens};
}

std::string name_of(const Case& c) {
  std::string name = std::string(dtype_name(c.dtype)) + " " + c.projection.name + " m" +
                     std::to_string(c.tokens) + (c.starts_early ? " early" : "") +
                     (c.has_residual ? " residual" : "");
  if (c.tile_rows > 0) name += " rows " + std::to_string(c.tile_rows);
  if (c.tuning.stage_bricks > 0) name += " stage " + std::to_string(c.tuning.stage_bricks);
  if (c.tuning.ring_slots > 0) name += " slots " + std::to_string(c.tuning.ring_slots);
  if (c.tuning.blocks > 0) name += " blocks " + std::to_string(c.tuning.blocks);
  if (c.tuning.read_ahead_kib != 0) name += " ahead " + std::to_string(c.tuning.read_ahead_kib);
  return name;
}

Result<CaseBuffers> make_buffers(const Case& c, const CudaMatmul& matmul, int sets) {
  const CudaWeightShape& shape = matmul.shape().weights;
  CaseBuffers buffers;
  buffers.weights =
      GAPLESS_TRY(random_elements(sets * cuda_weight_bytes(shape), true, 3, "weights"));
  buffers.scales =
      GAPLESS_TRY(random_elements(cuda_weight_rows(shape) * 4, true, 4, "weight scales"));
  buffers.x =
      GAPLESS_TRY(random_elements(c.tokens * shape.k * dtype_bytes(c.dtype), true, 5, "tokens"));
  buffers.token_scales = GAPLESS_TRY(random_elements(c.tokens * 4, true, 6, "token scales"));
  buffers.output = GAPLESS_TRY(DeviceBuffer::allocate(c.tokens * shape.columns * 2, "outputs"));
  buffers.workspace = GAPLESS_TRY(DeviceBuffer::allocate(matmul.workspace_bytes(), "workspaces"));
  GAPLESS_TRY(matmul.prepare(buffers.workspace.data(), buffers.workspace.bytes(), nullptr));
  return buffers;
}

Result<TimedRow> time_case(const Case& c, int replays) {
  const CudaMatmulShape shape = GAPLESS_TRY(shape_of(c));
  const CudaMatmul matmul = GAPLESS_TRY(CudaMatmul::make(shape, c.tuning));
  const int64_t bytes = cuda_weight_bytes(matmul.shape().weights);
  const int sets = static_cast<int>(std::max<int64_t>(kRotatedBytes / bytes + 1, 2));
  const CaseBuffers buffers = GAPLESS_TRY(make_buffers(c, matmul, sets));
  const CudaMatmulArgs args = {
      .weights = buffers.weights.data(),
      .weight_scales = reinterpret_cast<const float*>(buffers.scales.data()),
      .tokens = c.tokens,
      .x = buffers.x.data(),
      .x_stride = c.projection.k,
      .token_scales = reinterpret_cast<const float*>(buffers.token_scales.data()),
      .residual = c.has_residual ? buffers.output.data() : nullptr,
      .residual_stride = c.projection.columns,
      .output = buffers.output.data(),
      .output_stride = c.projection.columns,
      .workspace = buffers.workspace.data(),
      .workspace_bytes = buffers.workspace.bytes(),
      .starts_early = c.starts_early};
  GAPLESS_TRY(synchronize(nullptr));
  const Launch launch = [&](int index, CudaStream stream) {
    CudaMatmulArgs set_args = args;
    set_args.weights = buffers.weights.data() + index % sets * bytes;
    return matmul.launch(set_args, stream);
  };
  TimedRow row = GAPLESS_TRY(time_graph(name_of(c), static_cast<double>(bytes),
                                        std::max(sets, kMinLaunches), replays, launch));
  if (c.has_goal) row.goals.min_share = c.projection.min_share;
  return row;
}

// ---- What is measured.

void add_main(std::vector<Case>& cases) {
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Projection& projection : {kGateUp, kDown, kQkv, kAttentionOutput}) {
      for (const bool starts_early : {false, true}) {
        cases.push_back({.projection = projection,
                         .dtype = dtype,
                         .starts_early = starts_early,
                         .has_goal = dtype == DType::kS8 && starts_early});
      }
    }
  }
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Projection& projection : {kDown, kAttentionOutput}) {
      cases.push_back(
          {.projection = projection, .dtype = dtype, .starts_early = true, .has_residual = true});
    }
  }
  cases.push_back({.projection = kHead, .dtype = DType::kBf16});
}

// How the kernel may be cut, bytes in flight, and what a launch that starts early does meanwhile.
void add_tuning(std::vector<Case>& cases) {
  std::vector<CudaMatmulTuning> tunings = {{.stage_bricks = 2, .ring_slots = 6},
                                           {.stage_bricks = 3, .ring_slots = 4},
                                           {.stage_bricks = 4, .ring_slots = 2}};
  for (const int kib : {-1, 16, 32, 48, 64, 128}) tunings.push_back({.read_ahead_kib = kib});
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Projection& projection : {kGateUp, kDown, kQkv, kAttentionOutput}) {
      for (const int tile_rows : {kMatmulTileRows, kMatmulSmallTileRows}) {
        cases.push_back({.projection = projection,
                         .dtype = dtype,
                         .starts_early = true,
                         .tile_rows = tile_rows});
      }
      for (const CudaMatmulTuning& tuning : tunings) {
        cases.push_back(
            {.projection = projection, .dtype = dtype, .starts_early = true, .tuning = tuning});
      }
    }
  }
}

// What is in flight where there are more tokens; without tunings whose stages do not fit a block.
Result<void> add_token_tuning(std::vector<Case>& cases) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  constexpr CudaMatmulTuning kTunings[] = {
      {.ring_slots = 3}, {.ring_slots = 4}, {.stage_bricks = 4, .ring_slots = 6}};
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Projection& projection : {kGateUp, kDown, kQkv, kAttentionOutput}) {
      for (const int tokens : {32, 64}) {
        for (const CudaMatmulTuning& tuning : kTunings) {
          const Case tuned = {.projection = projection,
                              .dtype = dtype,
                              .tokens = tokens,
                              .starts_early = true,
                              .tuning = tuning};
          const CudaMatmulShape shape = GAPLESS_TRY(shape_of(tuned));
          if (configure_cuda_matmul(shape, tokens, limits, tuning)) cases.push_back(tuned);
        }
      }
    }
  }
  return {};
}

void add_sweep(std::vector<Case>& cases) {
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    for (const Projection& projection : {kGateUp, kDown, kQkv, kAttentionOutput}) {
      for (const int tokens : {1, 4, 8, 9, 16, 17, 32, 64}) {
        cases.push_back({.projection = projection, .dtype = dtype, .tokens = tokens});
      }
    }
  }
}

Result<void> measure(const CudaBenchOptions& options, const AddRow& add_row) {
  std::vector<Case> cases;
  add_main(cases);
  if (options.tunes) {
    add_tuning(cases);
    GAPLESS_TRY(add_token_tuning(cases));
  }
  if (!options.is_main_only) add_sweep(cases);
  for (const Case& c : cases) {
    const TimedRow row = GAPLESS_TRY(time_case(c, replays_of(options)));
    GAPLESS_TRY(add_row(row));
  }
  return {};
}

const CudaBenchProgram kProgram = {
    .about =
        "Matmuls of Qwen3-14B on a GPU, A8W8 and bf16: 16 tokens, each launch alone and with "
        "early\n"
        "launches, and a sweep from 1 to 64 tokens. Shares are of the read rate that is measured\n"
        "first.\n",
    .flags = {{"--quick", kQuickHelp, &CudaBenchOptions::is_quick},
              {"--main", "Without the sweep", &CudaBenchOptions::is_main_only},
              {"--tune", "Other tunings of the main shapes, too", &CudaBenchOptions::tunes}},
};

int run(int argc, char** argv) {
  return run_cuda_bench(kProgram, argc, argv, [](const CudaBenchOptions& options) {
    return measure_launches(options, {170, 85, 35}, measure);
  });
}

}  // namespace
}  // namespace gapless

// NOLINTNEXTLINE(bugprone-exception-escape): no memory or no standard output, and that ends us.
int main(int argc, char** argv) { return gapless::run(argc, argv); }
