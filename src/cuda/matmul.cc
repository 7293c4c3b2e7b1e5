// SPDX-License-Identifier: Apache-2.0

#include "cuda/matmul.h"

#include <algorithm>

#include <cuda_runtime.h>

#include "cuda/matmul_tokens.h"

namespace gapless {
namespace {

constexpr int64_t kPointerBytes = 16;
constexpr int64_t kBufferBytes = 256;
constexpr int64_t kArrivalBytes = 256;  // the counter has a line of its own
constexpr int kStageBytes = 32 << 10;   // of weights
constexpr int64_t kReadAheadStep = 8 << 10;
constexpr int64_t kMinReadAhead = 24 << 10;
constexpr int64_t kMaxReadAhead = 48 << 10;
// Fewer are not worth a block: the pieces it leaves cost more than it reads.
constexpr int64_t kMinBlockBricks = 4;
constexpr int kMinRingSlots = 3;
// Of tunings. No block has the memory for more, and no L2 has more.
constexpr int kMaxStageBricks = 64;
constexpr int kMaxReadAheadKib = 64 << 10;
// A block that has no more than that is done so soon that its end counts: tiles are small.
constexpr int64_t kMaxShortBricks = 80;

int form_index(int tokens) {
  int index = 0;
  while ((kMatmulTokenTile << index) < tokens) ++index;
  return index;
}

// What a block leaves for another: each sum with the number of the launch.
int64_t partial_bytes(const CudaMatmulConfig& config) {
  if (!config.cuts_tiles) return 0;
  return int64_t{config.blocks} * config.form.tile_rows * config.form.token_tiles *
         kMatmulTokenTile * int64_t{sizeof(uint64_t)};
}

Result<void> check_shape(const CudaMatmulShape& shape, int tokens) {
  GAPLESS_TRY(check_cuda_weights(shape.weights));
  if (shape.output_dtype != DType::kBf16 && shape.output_dtype != DType::kF32)
    return fail(ErrorCode::kInvalidInput, "{} output; the matmul on a GPU stores bf16 or f32",
                dtype_name(shape.output_dtype));
  if (tokens < 1 || tokens > kMatmulMaxTokens)
    return fail(ErrorCode::kInvalidInput, "{} tokens; the matmul on a GPU takes 1 to {}", tokens,
                kMatmulMaxTokens);
  return {};
}

Result<void> check_tuning(const CudaMatmulTuning& tuning) {
  if (tuning.stage_bricks < 0 || tuning.ring_slots < 0 || tuning.blocks < 0 ||
      tuning.stage_bricks > kMaxStageBricks || tuning.ring_slots > kMatmulMaxRingSlots)
    return fail(ErrorCode::kInvalidInput,
                "a matmul tuned to {} bricks a stage (at most {}), {} slots (at most {}) and {} "
                "blocks",
                tuning.stage_bricks, kMaxStageBricks, tuning.ring_slots, kMatmulMaxRingSlots,
                tuning.blocks);
  if (tuning.read_ahead_kib > kMaxReadAheadKib)
    return fail(ErrorCode::kInvalidInput, "a matmul tuned to read {} KiB ahead, at most {}",
                tuning.read_ahead_kib, kMaxReadAheadKib);
  return {};
}

Result<void> check_pointer(const void* pointer, int64_t alignment, const char* what) {
  if (pointer == nullptr) return fail(ErrorCode::kInvalidInput, "a matmul without {}", what);
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) != 0)
    return fail(ErrorCode::kInvalidInput, "{} of a matmul do not begin at a multiple of {} bytes",
                what, alignment);
  return {};
}

Result<void> check_stride(int64_t stride, int64_t least, int64_t step, const char* what) {
  if (stride < least || stride % step != 0)
    return fail(ErrorCode::kInvalidInput,
                "{} of a matmul are {} elements apart; a multiple of {} and at least {} is needed",
                what, stride, step, least);
  return {};
}

Result<void> check_residual(const CudaMatmulArgs& args, const CudaMatmulShape& shape) {
  if (args.residual == nullptr) return {};
  if (args.residual_dtype != DType::kBf16 && args.residual_dtype != DType::kF32)
    return fail(ErrorCode::kInvalidInput, "a residual of {}; the matmul on a GPU adds bf16 or f32",
                dtype_name(args.residual_dtype));
  GAPLESS_TRY(check_pointer(args.residual, dtype_bytes(args.residual_dtype), "residuals"));
  GAPLESS_TRY(check_stride(args.residual_stride, shape.weights.columns, 1, "residuals"));
  // In place each value has to lie where its residual does: whoever adds it stores there.
  const bool is_in_place = args.residual == args.output;
  if (is_in_place &&
      (args.residual_dtype != shape.output_dtype || args.residual_stride != args.output_stride))
    return fail(ErrorCode::kInvalidInput,
                "residuals in place of the outputs are {}, {} elements apart, and the outputs {}, "
                "{} apart",
                dtype_name(args.residual_dtype), args.residual_stride,
                dtype_name(shape.output_dtype), args.output_stride);
  return {};
}

MatmulLaunch launch_of(const CudaMatmulShape& shape, const CudaMatmulConfig& config,
                       const CudaMatmulArgs& args) {
  std::byte* workspace = static_cast<std::byte*>(args.workspace);
  const int tiles = static_cast<int>(cuda_weight_tiles(shape.weights));
  const int bricks_per_tile = static_cast<int>(cuda_weight_bricks_per_tile(shape.weights));
  const int block_bricks = tiles * bricks_per_tile / config.blocks;
  return {.token_map = {},
          .weights = static_cast<const std::byte*>(args.weights),
          .row_scales = args.weight_scales,
          .x = static_cast<const std::byte*>(args.x),
          .token_scales = args.token_scales,
          .output = args.output,
          .residual = args.residual,
          .partials = workspace + kArrivalBytes,
          .arrivals = reinterpret_cast<unsigned long long*>(workspace),
          .x_stride = args.x_stride * dtype_bytes(shape.weights.dtype),
          .output_stride = args.output_stride,
          .residual_stride = args.residual_stride,
          .tokens = args.tokens,
          .columns = static_cast<int>(shape.weights.columns),
          .blocks = config.blocks,
          .tile_bricks = matmul_divisor(bricks_per_tile),
          .block_bricks = matmul_divisor(block_bricks),
          .large_block_bricks = matmul_divisor(block_bricks + 1),
          .extra_bricks = tiles * bricks_per_tile % config.blocks,
          .stage_bricks = config.stage_bricks,
          .ring_slots = config.ring_slots,
          .stage_bytes = matmul_stage_bytes(config.form, config.stage_bricks),
          .read_ahead_bytes = config.read_ahead_bytes,
          .cuts_tiles = config.cuts_tiles,
          .is_gated = shape.weights.is_gated,
          .output_is_f32 = shape.output_dtype == DType::kF32,
          .residual_is_f32 = args.residual_dtype == DType::kF32,
          .holds_next = args.holds_next,
          .recorder = args.recorder};
}

// How many blocks there are where tiles are small: as many for every 128 rows as there are SMs for.
// If that is two, each has a tile, so that no block needs sums of another; if it is three, two have
// two thirds of a tile and one what they leave. With another number too many SMs would be idle or
// sums exchanged anyway, and long blocks gain nothing: 0.
int64_t small_tile_blocks(const CudaWeightShape& weights, int sm_count) {
  const int64_t pairs = cuda_weight_rows(weights) / kMatmulTileRows;
  if (pairs < 1) return 0;  // weights that check_cuda_weights() refuses
  const int64_t pair_blocks = sm_count / pairs;
  const bool is_good = (pair_blocks == 2 || pair_blocks == 3) &&
                       pair_blocks * pairs * 5 >= int64_t{sm_count} * 4 &&
                       cuda_weight_bricks_per_tile(weights) <= pair_blocks * kMaxShortBricks;
  return is_good ? pair_blocks * pairs : 0;
}

// How the weights go over the blocks.
void set_cut(CudaMatmulConfig& config, const CudaWeightShape& weights, const CudaLimits& limits,
             const CudaMatmulTuning& tuning) {
  const int64_t bricks_per_tile = cuda_weight_bricks_per_tile(weights);
  const int64_t bricks = cuda_weight_tiles(weights) * bricks_per_tile;
  int64_t blocks = tuning.blocks;
  if (blocks == 0 && weights.tile_rows == kMatmulSmallTileRows)
    blocks = small_tile_blocks(weights, limits.sm_count);
  if (blocks == 0) blocks = std::max(limits.sm_count, 1);
  config.blocks = static_cast<int>(std::clamp<int64_t>(bricks / kMinBlockBricks, 1, blocks));
  config.cuts_tiles = bricks % (config.blocks * bricks_per_tile) != 0;
}

// Stages in flight, and what they take.
void set_ring(CudaMatmulConfig& config, const CudaLimits& limits, const CudaMatmulTuning& tuning) {
  // With up to 16 tokens two blocks fit an SM: the next launch fills its ring while this one ends.
  const int64_t half_sm = limits.shared_sm_bytes / 2 - limits.shared_reserved_bytes;
  // So that there cannot be two of them. More would only wait longer in memory's queue. Small tiles
  // leave SMs idle, which would get two of them.
  const int64_t most_of_sm = limits.shared_sm_bytes * 3 / 4;
  const bool takes_sm = tuning.takes_sm || config.form.tile_rows < kMatmulTileRows;
  const int64_t room = std::min(takes_sm ? most_of_sm : half_sm, limits.shared_block_bytes) -
                       matmul_shared_bytes(config.form, 1, 0);
  const int64_t slots = room / matmul_slot_bytes(config.form, config.stage_bricks);
  config.ring_slots =
      tuning.ring_slots > 0
          ? tuning.ring_slots
          : static_cast<int>(std::clamp<int64_t>(slots, kMinRingSlots, kMatmulMaxRingSlots));
  config.shared_bytes = matmul_shared_bytes(config.form, config.stage_bricks, config.ring_slots);
}

// Stages are halved until enough of them fit: blocks have 227 KiB on an H200, 163 on an A100 and 99
// on many other devices.
void set_stages(CudaMatmulConfig& config, const CudaLimits& limits,
                const CudaMatmulTuning& tuning) {
  const bool is_tuned = tuning.stage_bricks > 0;
  config.stage_bricks =
      is_tuned ? tuning.stage_bricks : kStageBytes / matmul_brick_bytes(config.form.tile_rows);
  set_ring(config, limits, tuning);
  while (!is_tuned && config.stage_bricks > 1 && config.shared_bytes > limits.shared_block_bytes) {
    config.stage_bricks /= 2;
    set_ring(config, limits, tuning);
  }
}

}  // namespace

int best_tile_rows(const CudaWeightShape& weights, const CudaLimits& limits) {
  return small_tile_blocks(weights, limits.sm_count) > 0 ? kMatmulSmallTileRows : kMatmulTileRows;
}

Result<CudaMatmulConfig> configure_cuda_matmul(const CudaMatmulShape& shape, int tokens,
                                               const CudaLimits& limits,
                                               const CudaMatmulTuning& tuning) {
  GAPLESS_TRY(check_shape(shape, tokens));
  GAPLESS_TRY(check_tuning(tuning));
  CudaMatmulConfig config;
  config.form.is_s8 = shape.weights.dtype == DType::kS8;
  config.form.token_tiles = 1 << form_index(tokens);
  config.form.tile_rows = shape.weights.tile_rows;
  set_cut(config, shape.weights, limits, tuning);
  set_stages(config, limits, tuning);
  const int64_t sixteenth = cuda_weight_bytes(shape.weights) / config.blocks / 16;
  const int64_t read_ahead = std::clamp(sixteenth, kMinReadAhead, kMaxReadAhead);
  config.read_ahead_bytes = tuning.read_ahead_kib == 0
                                ? static_cast<int>(read_ahead / kReadAheadStep * kReadAheadStep)
                                : std::max(tuning.read_ahead_kib, 0) << 10;
  if (config.shared_bytes > limits.shared_block_bytes)
    return fail(ErrorCode::kInvalidInput,
                "a matmul of {} tokens with {} stages of {} bricks needs {} bytes of shared memory "
                "a block; {} has {}",
                tokens, config.ring_slots, config.stage_bricks, config.shared_bytes, limits.name,
                limits.shared_block_bytes);
  return config;
}

Result<CudaMatmul> CudaMatmul::make(const CudaMatmulShape& shape, const CudaMatmulTuning& tuning) {
  GAPLESS_TRY(check_shape(shape, shape.max_tokens));
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  CudaMatmul matmul(shape);
  matmul.has_copy_engine_ = limits.has_sm90_code;
  for (int i = 0; i <= form_index(shape.max_tokens); ++i) {
    const int tokens = std::min(kMatmulTokenTile << i, shape.max_tokens);
    matmul.configs_[static_cast<size_t>(i)] =
        GAPLESS_TRY(configure_cuda_matmul(shape, tokens, limits, tuning));
  }
  return matmul;
}

const CudaMatmulConfig& CudaMatmul::config(int tokens) const {
  return configs_[static_cast<size_t>(form_index(tokens))];
}

int64_t CudaMatmul::workspace_bytes() const {
  return kArrivalBytes + partial_bytes(config(shape_.max_tokens));
}

Result<void> CudaMatmul::prepare(void* workspace, int64_t bytes, CudaStream stream) const {
  GAPLESS_TRY(check_pointer(workspace, kBufferBytes, "workspaces"));
  if (bytes < workspace_bytes())
    return fail(ErrorCode::kInvalidInput, "a workspace of {} bytes; a matmul needs {}", bytes,
                workspace_bytes());
  return check_cuda(
      cudaMemsetAsync(workspace, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)),
      "clearing the workspace of a matmul");
}

Result<void> CudaMatmul::check_args(const CudaMatmulArgs& args) const {
  const bool is_s8 = shape_.weights.dtype == DType::kS8;
  if (args.tokens < 0 || args.tokens > shape_.max_tokens)
    return fail(ErrorCode::kInvalidInput, "{} tokens; the matmul was made for at most {}",
                args.tokens, shape_.max_tokens);
  if (args.workspace_bytes < workspace_bytes())
    return fail(ErrorCode::kInvalidInput, "a workspace of {} bytes; the matmul needs {}",
                args.workspace_bytes, workspace_bytes());
  GAPLESS_TRY(check_pointer(args.weights, kBufferBytes, "weights"));
  GAPLESS_TRY(check_pointer(args.x, kPointerBytes, "tokens"));
  GAPLESS_TRY(check_pointer(args.output, kPointerBytes, "outputs"));
  GAPLESS_TRY(check_pointer(args.workspace, kBufferBytes, "workspaces"));
  if (is_s8) GAPLESS_TRY(check_pointer(args.weight_scales, sizeof(float), "weight scales"));
  if (is_s8 || args.token_scales != nullptr)
    GAPLESS_TRY(check_pointer(args.token_scales, sizeof(float), "token scales"));
  GAPLESS_TRY(check_stride(args.x_stride, shape_.weights.k,
                           kPointerBytes / dtype_bytes(shape_.weights.dtype), "tokens"));
  GAPLESS_TRY(check_stride(args.output_stride, shape_.weights.columns, 2, "outputs"));
  return check_residual(args, shape_);
}

Result<void> CudaMatmul::launch(const CudaMatmulArgs& args, CudaStream stream) const {
  GAPLESS_TRY(check_args(args));
  if (args.tokens == 0) return {};
  const CudaMatmulConfig& used = config(args.tokens);
  MatmulLaunch launch = launch_of(shape_, used, args);
  if (has_copy_engine_ && used.form.token_tiles >= kMatmulEngineTokenTiles)
    GAPLESS_TRY(describe_matmul_tokens({.x = launch.x,
                                        .stride_bytes = launch.x_stride,
                                        .tokens = launch.tokens,
                                        .units = static_cast<int>(launch.tile_bricks.divisor),
                                        .copied_tokens = used.form.token_tiles * kMatmulTokenTile,
                                        .copied_units = launch.stage_bricks},
                                       launch.token_map));
  return check_cuda(
      matmul_launch_kernel(used.form, launch, used.shared_bytes, args.starts_early, stream),
      "launching a matmul");
}

}  // namespace gapless
