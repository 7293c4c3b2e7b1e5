// SPDX-License-Identifier: Apache-2.0

#include "cuda/attention.h"

#include <algorithm>
#include <cmath>

#include <cuda_runtime.h>

#include "cuda/kv_pages.h"

namespace gapless {
namespace {

static_assert(kAttentionMaxGroup == kMaxGroupHeads);

constexpr int64_t kStatusBytes = 256;  // the status word has a line of its own
constexpr int64_t kPointerBytes = 16;
constexpr int kQueryBlock = 8;
// Of keys and values, on their way into an SM. Half of them keep the memory busy, and with more
// every other load waits longer. All are for the beginning, and for warps that are late.
constexpr int64_t kRingBytes = 128 << 10;
constexpr int64_t kCalmRingBytes = 64 << 10;
// Of a pair, into L2 before a block knows what it takes. Where that is kept from another layer, it
// is known as soon as these bytes would be asked for.
constexpr int64_t kFrontBytes = 96 << 10;
// A launch is to end when memory could have brought its bytes at this part of what its pins carry.
// About as much as can be read at best (87 to 95 % on H200s): the less time there is, the more
// warps hurry, and memory becomes slower when all do.
constexpr double kDueShare = 0.94;
// With fewer there would be less to do beside each other. One of each is enough where nothing else
// can be smaller.
constexpr int kGoodStaged = 2;
constexpr int kGoodQueryBuffers = 2;
// What a pair takes, however short it is, as tiles.
constexpr int kPairTiles = 1;
constexpr int kMaxPairTiles = 4096;  // of tunings: tiles of a launch are counted in 32 bits
constexpr float kLog2E = 1.44269504088896340736f;

int64_t partial_bytes(const CudaAttentionShape& shape) {
  return partial_floats(shape.q_heads, shape.kv) * int64_t{sizeof(float)};
}

int64_t workspace_bytes_of(const CudaAttentionShape& shape, int64_t partials) {
  return kStatusBytes + partials * (partial_bytes(shape) + int64_t{sizeof(uint32_t)});
}

int64_t partials_in(const CudaAttentionShape& shape, int64_t workspace_bytes) {
  if (workspace_bytes < kStatusBytes) return 0;
  return (workspace_bytes - kStatusBytes) / (partial_bytes(shape) + int64_t{sizeof(uint32_t)});
}

int64_t partial_count(const CudaAttentionShape& shape, int64_t length) {
  const int64_t chunks = chunk_count(length, shape.chunk_tokens);
  return chunks > 1 ? chunks * shape.kv.kv_heads : 0;
}

Result<void> check_shape(const CudaAttentionShape& shape) {
  const AttentionProblem problem = {.kv = shape.kv,
                                    .q_heads = shape.q_heads,
                                    .chunk_tokens = shape.chunk_tokens,
                                    .output_dtype = shape.output_dtype};
  const Result<AttentionPlan> possible = plan_attention(problem, {});
  if (!possible) return possible.error();
  if (shape.kv.dtype != DType::kBf16 && shape.kv.dtype != DType::kF16)
    return fail(ErrorCode::kInvalidInput, "pages of {}; the attention on a GPU takes bf16 and f16",
                dtype_name(shape.kv.dtype));
  if (shape.output_dtype != shape.kv.dtype && shape.output_dtype != DType::kF32)
    return fail(ErrorCode::kInvalidInput,
                "{} output of {} pages; the attention on a GPU stores the pages' type or f32",
                dtype_name(shape.output_dtype), dtype_name(shape.kv.dtype));
  if (shape.max_batch < 1 || shape.max_batch > kAttentionMaxBatch)
    return fail(ErrorCode::kInvalidInput,
                "a batch of {} sequences; the attention on a GPU takes 1 to {}", shape.max_batch,
                kAttentionMaxBatch);
  if (shape.max_tokens < 1 || shape.max_tokens > kMaxPlanTokens)
    return fail(ErrorCode::kInvalidInput,
                "sequences of up to {} tokens; the attention on a GPU takes 1 to {}",
                shape.max_tokens, kMaxPlanTokens);
  const int64_t tiles =
      chunk_count(shape.max_tokens, kAttentionTileTokens) * shape.max_batch * shape.kv.kv_heads;
  if (tiles > INT32_MAX)
    return fail(ErrorCode::kInvalidInput,
                "{} sequences of {} tokens and {} kv heads are {} tiles of {} tokens; at most {}",
                shape.max_batch, shape.max_tokens, shape.kv.kv_heads, tiles, kAttentionTileTokens,
                INT32_MAX);
  return {};
}

Result<void> check_chunk(const CudaAttentionShape& shape, const AttentionForm& form) {
  const int most_tokens = kAttentionWarpTiles * kAttentionTileTokens * form.warps();
  if (shape.chunk_tokens > most_tokens)
    return fail(ErrorCode::kInvalidInput,
                "chunks of {} tokens; the attention on a GPU takes at most {} with head_dim {}",
                shape.chunk_tokens, most_tokens, form.head_dim);
  return {};
}

// As much of what we would like as fits: fewer buffers first, then a shorter ring, at last one
// buffer of each.
bool fit_shared_memory(CudaAttentionConfig& config, const CudaAttentionShape& shape,
                       int64_t most_bytes) {
  AttentionBuffers& buffers = config.buffers;
  const int group = shape.q_heads / shape.kv.kv_heads;
  const int floats = static_cast<int>(partial_floats(shape.q_heads, shape.kv));
  while (true) {
    config.shared = attention_shared(config.form, group, floats, buffers);
    if (config.shared.bytes <= most_bytes) return true;
    if (buffers.state_buffers > 2) {
      --buffers.state_buffers;
    } else if (buffers.staged > kGoodStaged) {
      --buffers.staged;
    } else if (buffers.query_buffers > kGoodQueryBuffers) {
      --buffers.query_buffers;
    } else if (buffers.ring_slots > 1) {
      --buffers.ring_slots;
    } else if (buffers.state_buffers > 1) {
      --buffers.state_buffers;
    } else if (buffers.staged > 1) {
      --buffers.staged;
    } else if (buffers.query_buffers > 1) {
      --buffers.query_buffers;
    } else {
      return false;
    }
  }
}

Result<void> check_pointer(const void* pointer, int64_t alignment, const char* what) {
  if (pointer == nullptr) return fail(ErrorCode::kInvalidInput, "attention without {}", what);
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) != 0)
    return fail(ErrorCode::kInvalidInput,
                "{} of an attention do not begin at a multiple of {} bytes", what, alignment);
  return {};
}

Result<void> check_args(const CudaAttentionShape& shape, const CudaAttentionArgs& args) {
  if (args.batch < 0 || args.batch > shape.max_batch)
    return fail(ErrorCode::kInvalidInput, "a batch of {} sequences; made for at most {}",
                args.batch, shape.max_batch);
  if (!std::isfinite(args.scale) || args.scale == 0.0f)
    return fail(ErrorCode::kInvalidInput, "scores times {}; a number other than 0 is needed",
                args.scale);
  if (args.page_count < 1 || args.page_count > INT32_MAX)
    return fail(ErrorCode::kInvalidInput, "{} pages; 1 to {} are possible", args.page_count,
                INT32_MAX);
  if (args.page_table_stride < 1)
    return fail(ErrorCode::kInvalidInput, "a page table of {} entries a sequence",
                args.page_table_stride);
  if (args.workspace_bytes < workspace_bytes_of(shape, 0))
    return fail(ErrorCode::kInvalidInput, "a workspace of {} bytes; at least {} are needed",
                args.workspace_bytes, workspace_bytes_of(shape, 0));
  GAPLESS_TRY(check_pointer(args.pages, kPointerBytes, "kv pages"));
  GAPLESS_TRY(check_pointer(args.q, kPointerBytes, "queries"));
  GAPLESS_TRY(check_pointer(args.output, kPointerBytes, "outputs"));
  GAPLESS_TRY(check_pointer(args.workspace, kStatusBytes, "workspaces"));
  GAPLESS_TRY(check_pointer(args.lengths, sizeof(int32_t), "lengths"));
  GAPLESS_TRY(check_pointer(args.page_table, sizeof(int32_t), "page tables"));
  if (args.schedules == nullptr && !args.has_schedules) return {};
  return check_pointer(args.schedules, kPointerBytes, "schedules");
}

// The longest sequence that the shape and the page table allow.
int longest_of(const CudaAttentionShape& shape, const CudaAttentionArgs& args) {
  const int64_t table_tokens = args.page_table_stride * shape.kv.page_tokens;
  return static_cast<int>(std::min<int64_t>(table_tokens, shape.max_tokens));
}

int blocks_of(const CudaAttentionShape& shape, const CudaAttentionConfig& config,
              const CudaAttentionArgs& args) {
  const int64_t most_items =
      chunk_count(longest_of(shape, args), shape.chunk_tokens) * args.batch * shape.kv.kv_heads;
  return static_cast<int>(std::min<int64_t>(config.grid_limit, most_items));
}

int front_tokens_of(int head_dim) {
  return static_cast<int>(kFrontBytes / (2 * cuda_kv_row_bytes(head_dim)));
}

// Where the pins are not known, all is late.
float tile_ns_of(int64_t tile_bytes, const CudaLimits& limits, double due_share) {
  if (limits.pin_bytes_per_s <= 0) return 0.0f;
  return static_cast<float>(1e9 * static_cast<double>(tile_bytes) /
                            (due_share * limits.pin_bytes_per_s));
}

AttentionLaunch launch_of(const CudaAttentionShape& shape, const CudaAttentionConfig& config,
                          const CudaAttentionArgs& args) {
  const KvShape& kv = shape.kv;
  const int64_t partials = partials_in(shape, args.workspace_bytes);
  std::byte* workspace = static_cast<std::byte*>(args.workspace);
  std::byte* first_partial = workspace + kStatusBytes;
  return {.lengths = args.lengths,
          .batch = args.batch,
          .kv_heads = kv.kv_heads,
          .page_table = args.page_table,
          .page_table_stride = args.page_table_stride,
          .schedules = static_cast<std::byte*>(args.schedules),
          .has_schedules = args.has_schedules,
          .max_length = longest_of(shape, args),
          .buffers = config.buffers,
          .shared = config.shared,
          .front_tokens = args.has_schedules ? 0 : front_tokens_of(kv.head_dim),
          .pair_tiles = config.pair_tiles,
          .block_divider = attention_divider(blocks_of(shape, config, args)),
          .head_divider = attention_divider(kv.kv_heads),
          .chunk_tokens = shape.chunk_tokens,
          .chunk_factor = attention_factor(shape.chunk_tokens),
          .tile_ns = config.tile_ns,
          .page_tokens = kv.page_tokens,
          .page_factor = attention_factor(kv.page_tokens),
          .page_count = static_cast<int32_t>(args.page_count),
          .pages = static_cast<const std::byte*>(args.pages),
          .page_bytes = cuda_kv_page_bytes(kv.kv_heads, kv.head_dim, kv.page_tokens),
          .block_bytes = cuda_kv_block_bytes(kv.head_dim, kv.page_tokens),
          .q = args.q,
          .partials = reinterpret_cast<float*>(first_partial),
          .counters = reinterpret_cast<uint32_t*>(first_partial + partials * partial_bytes(shape)),
          .status = reinterpret_cast<uint32_t*>(workspace),
          .output = args.output,
          .partial_capacity = partials,
          .partial_floats = static_cast<int>(partial_floats(shape.q_heads, kv)),
          .group_heads = shape.q_heads / kv.kv_heads,
          .calm_slots = config.calm_slots,
          .score_scale = args.scale * kLog2E,
          .output_is_f32 = shape.output_dtype == DType::kF32,
          .recorder = args.recorder};
}

}  // namespace

Result<CudaAttentionConfig> configure_cuda_attention(const CudaAttentionShape& shape,
                                                     const CudaLimits& limits,
                                                     const CudaAttentionTuning& tuning) {
  GAPLESS_TRY(check_shape(shape));
  const int group = shape.q_heads / shape.kv.kv_heads;
  CudaAttentionConfig config;
  config.form.is_bf16 = shape.kv.dtype == DType::kBf16;
  config.form.head_dim = shape.kv.head_dim;
  config.form.query_blocks = (group + kQueryBlock - 1) / kQueryBlock;
  config.form.is_sm90 = limits.has_sm90_code;
  GAPLESS_TRY(check_chunk(shape, config.form));

  const int64_t tile_bytes = 2 * kAttentionTileTokens * cuda_kv_row_bytes(shape.kv.head_dim);
  const int64_t slot_bytes = tile_bytes * config.form.warps();
  config.buffers = {.ring_slots = static_cast<int>(kRingBytes / slot_bytes),
                    .state_buffers = kAttentionMaxStateBuffers,
                    .query_buffers = kAttentionMaxQueryBuffers,
                    .staged = kAttentionMaxStaged};
  if (tuning.ring_slots > 0) {
    const int64_t most_slots = std::max<int64_t>(limits.shared_block_bytes / slot_bytes, 1);
    config.buffers.ring_slots = static_cast<int>(std::min<int64_t>(tuning.ring_slots, most_slots));
  }
  if (tuning.pair_tiles > kMaxPairTiles)
    return fail(ErrorCode::kInvalidInput,
                "pairs that count {} tiles beside those they have; at "
                "most {}",
                tuning.pair_tiles, kMaxPairTiles);
  config.pair_tiles = tuning.pair_tiles >= 0 ? tuning.pair_tiles : kPairTiles;
  config.grid_limit = limits.sm_count;
  if (!fit_shared_memory(config, shape, limits.shared_block_bytes))
    return fail(ErrorCode::kInvalidInput,
                "an attention of {} query heads a kv head and head_dim {} needs {} bytes of shared "
                "memory a block; {} has {}",
                group, shape.kv.head_dim, config.shared.bytes, limits.name,
                limits.shared_block_bytes);
  const int slots = config.buffers.ring_slots;
  config.calm_slots = std::clamp(static_cast<int>(kCalmRingBytes / slot_bytes), 1, slots);
  const double due_share = tuning.due_share > 0 ? tuning.due_share : kDueShare;
  config.tile_ns = tile_ns_of(tile_bytes, limits, due_share);
  return config;
}

int64_t cuda_attention_workspace_bytes(const CudaAttentionShape& shape,
                                       std::span<const int32_t> lengths) {
  int64_t partials = 0;
  for (const int32_t length : lengths) partials += partial_count(shape, length);
  return workspace_bytes_of(shape, partials);
}

int64_t cuda_attention_workspace_bytes(const CudaAttentionShape& shape) {
  return workspace_bytes_of(shape, shape.max_batch * partial_count(shape, shape.max_tokens));
}

namespace {

// Forms that record have as many threads, and registers for a block an SM, too.
Result<void> check_form(const CudaAttentionConfig& config, const CudaLimits& limits) {
  int blocks = 0;
  GAPLESS_TRY(check_cuda(attention_blocks_per_sm(config.form, config.shared.bytes, &blocks),
                         "asking how many attention blocks an SM holds"));
  if (blocks < 1)
    return fail(ErrorCode::kInvalidInput,
                "an SM of {} does not hold an attention block with {} bytes of shared memory",
                limits.name, config.shared.bytes);
  return {};
}

}  // namespace

Result<CudaAttention> CudaAttention::make(const CudaAttentionShape& shape,
                                          const CudaAttentionTuning& tuning) {
  const CudaLimits limits = GAPLESS_TRY(cuda_limits());
  const CudaAttentionConfig config = GAPLESS_TRY(configure_cuda_attention(shape, limits, tuning));
  GAPLESS_TRY(check_form(config, limits));
  return CudaAttention(shape, config);
}

Result<void> CudaAttention::prepare(void* workspace, int64_t bytes, CudaStream stream) const {
  GAPLESS_TRY(check_pointer(workspace, kStatusBytes, "workspaces"));
  if (bytes < kStatusBytes)
    return fail(ErrorCode::kInvalidInput, "a workspace of {} bytes; at least {} are needed", bytes,
                kStatusBytes);
  return check_cuda(
      cudaMemsetAsync(workspace, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)),
      "clearing the workspace of the attention");
}

int CudaAttention::blocks(const CudaAttentionArgs& args) const {
  return blocks_of(shape_, config_, args);
}

Result<void> CudaAttention::launch(const CudaAttentionArgs& args, CudaStream stream) const {
  if (args.batch == 0) return {};
  GAPLESS_TRY(check_args(shape_, args));
  AttentionForm form = config_.form;
  form.level = args.recorder.level;
  return check_cuda(attention_launch_kernel(form, launch_of(shape_, config_, args), blocks(args),
                                            config_.shared.bytes, args.starts_early, stream),
                    "launching the attention");
}

int64_t CudaAttention::schedule_bytes() const {
  return int64_t{config_.grid_limit} * kAttentionScheduleBytes;
}

Result<void> CudaAttention::check_launches(const CudaAttentionArgs& args, CudaStream stream) const {
  uint32_t status = 0;
  GAPLESS_TRY(check_cuda(cudaMemcpyAsync(&status, args.workspace, sizeof(status),
                                         cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream)),
                         "reading the status of the attention"));
  GAPLESS_TRY(synchronize(stream));
  if ((status & kAttentionNoWorkspace) != 0)
    return fail(ErrorCode::kInvalidInput,
                "the lengths need more partials than the {} that a workspace of {} bytes holds",
                partials_in(shape_, args.workspace_bytes), args.workspace_bytes);
  if ((status & kAttentionBadLength) != 0)
    return fail(
        ErrorCode::kInvalidInput,
        "a length is below 0, above the {} tokens of the shape, or above the {} of a row of "
        "the page table",
        shape_.max_tokens, args.page_table_stride * shape_.kv.page_tokens);
  if ((status & kAttentionBadPage) != 0)
    return fail(ErrorCode::kInvalidInput, "the page table names a page that is none of the {}",
                args.page_count);
  return {};
}

}  // namespace gapless
