// SPDX-License-Identifier: Apache-2.0

#include "cuda/rows.h"

#include <algorithm>
#include <limits>

#include "cuda/code_version.h"
#include "cuda/kv_pages.h"
#include "cuda/rows_launch.h"
#include "kernels/sampling.h"

namespace gapless {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int64_t kWorkspaceBytes = 256;
constexpr int64_t kMaxColumns = int64_t{1} << 30;  // tokens are int32

static_assert(sizeof(TopResult) == sizeof(Candidate));

int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

bool lies_at(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

// ---- Checks. `op` is "an embedding": whose argument it is.

Result<void> check_pointer(const void* pointer, int64_t alignment, const char* op,
                           const char* what) {
  if (pointer == nullptr) return fail(ErrorCode::kInvalidInput, "{} without {}", op, what);
  if (!lies_at(pointer, alignment))
    return fail(ErrorCode::kInvalidInput, "{} of {} does not begin at a multiple of {} bytes", what,
                op, alignment);
  return {};
}

Result<void> check_floats(const float* pointer, const char* op, const char* what) {
  return check_pointer(pointer, sizeof(float), op, what);
}

Result<void> check_extent(int64_t value, int64_t most, const char* op, const char* what) {
  if (value < 1 || value > most)
    return fail(ErrorCode::kInvalidInput, "{} of {} {}; 1 to {} can be done", op, value, what,
                most);
  return {};
}

Result<void> check_stride(int64_t stride, int64_t least, int64_t step, const char* op,
                          const char* what) {
  if (stride < least || stride % step != 0)
    return fail(ErrorCode::kInvalidInput,
                "{} of {} is {} elements; a multiple of {} and at least {} is needed", what, op,
                stride, step, least);
  return {};
}

// All blocks of a launch are numbered by an int.
Result<void> check_rows(int rows, int64_t row_blocks, const char* op) {
  const int64_t most = std::numeric_limits<int>::max() / row_blocks;
  if (rows < 0 || rows > most)
    return fail(ErrorCode::kInvalidInput, "{} of {} rows; 0 to {} can be done", op, rows, most);
  return {};
}

RowsStart start_of(int blocks, const CudaRowsLaunch& launch) {
  return {.blocks = blocks, .starts_early = launch.starts_early, .stream = launch.stream};
}

// ---- Embedding.

constexpr const char* kEmbed = "an embedding";

int embed_row_blocks(const CudaEmbedArgs& args) {
  return static_cast<int>(pieces(args.hidden, kEmbedBlockElements));
}

Result<void> check_embed(const CudaEmbedArgs& args) {
  if (args.table_dtype != DType::kBf16 && args.table_dtype != DType::kF16 &&
      args.table_dtype != DType::kF32)
    return fail(ErrorCode::kInvalidInput, "an embedding of {}; bf16, f16 and f32 can be done",
                dtype_name(args.table_dtype));
  GAPLESS_TRY(check_extent(args.hidden, kMaxColumns, kEmbed, "columns"));
  GAPLESS_TRY(check_rows(args.rows, embed_row_blocks(args), kEmbed));
  GAPLESS_TRY(check_pointer(args.table, dtype_bytes(args.table_dtype), kEmbed, "table"));
  GAPLESS_TRY(check_pointer(args.tokens, sizeof(int32_t), kEmbed, "tokens"));
  return check_floats(args.x, kEmbed, "x");
}

// ---- Rows for a matmul.

constexpr const char* kRows = "rows for a matmul";

// How a row lies in threads. Depends on k and the device only, as sums do.
RowsForm whole_form_of(int64_t k) {
  for (const int vectors : {1, 3, 9}) {
    if (k <= int64_t{vectors} * kRowsThreads * kRowsVectorElements) return {.vectors = vectors};
  }
  return {.vectors = kRowsMaxVectors};
}
RowsForm parted_form_of(int64_t k) {
  RowsForm form = {.parts = 8, .vectors = 4};
  for (const RowsForm& smaller :
       {RowsForm{.parts = 4, .vectors = 1}, RowsForm{.parts = 8, .vectors = 1},
        RowsForm{.parts = 8, .vectors = 2}}) {
    const int thread_elements = smaller.parts * smaller.vectors * kRowsVectorElements;
    if (k > int64_t{kPartMaxThreads} * thread_elements) continue;
    form = smaller;
    break;
  }
  constexpr int kLanes = 32;
  const int64_t warps = pieces(k, kLanes * form.parts * form.vectors * kRowsVectorElements);
  form.threads = static_cast<int>(warps) * kLanes;
  return form;
}
static_assert(kRowsMaxK <= kPartMaxThreads * 8 * 4 * kRowsVectorElements);

RowsForm form_of(const CudaRowsArgs& args) {
  const bool has_parts = args.k >= kPartMinK && !args.is_whole && runs_sm90_code();
  RowsForm form = has_parts ? parted_form_of(args.k) : whole_form_of(args.k);
  form.has_norm = args.gamma != nullptr;
  form.is_s8 = args.dtype == DType::kS8;
  return form;
}

Result<void> check_rows_args(const CudaRowsArgs& args) {
  if (args.dtype != DType::kBf16 && args.dtype != DType::kS8)
    return fail(ErrorCode::kInvalidInput, "rows of {} for a matmul; bf16 and s8 can be done",
                dtype_name(args.dtype));
  const bool is_deferred = args.is_deferred && args.gamma != nullptr;
  GAPLESS_TRY(check_extent(args.k, kRowsMaxK, kRows, "columns"));
  GAPLESS_TRY(check_rows(args.rows, form_of(args).parts, kRows));
  GAPLESS_TRY(check_floats(args.x, kRows, "x"));
  GAPLESS_TRY(check_stride(args.x_stride, args.k, 1, kRows, "the stride of x"));
  GAPLESS_TRY(check_pointer(args.y, kVectorBytes, kRows, "y"));
  GAPLESS_TRY(check_stride(args.k_stride, args.k, kVectorBytes / dtype_bytes(args.dtype), kRows,
                           "the stride of y"));
  GAPLESS_TRY(check_extent(args.k_stride, kMaxColumns, kRows, "elements with their stride"));
  if (!lies_at(args.row_of, sizeof(int32_t)) || !lies_at(args.gamma, sizeof(float)))
    return fail(ErrorCode::kInvalidInput, "row_of or gamma of {} does not begin at 4 bytes", kRows);
  if (args.dtype == DType::kS8 || is_deferred)
    GAPLESS_TRY(check_floats(args.factors, kRows, "factors"));
  return {};
}

// ---- Heads.

constexpr const char* kHeads = "the heads of a row";

int heads_of(const CudaHeadsArgs& args, HeadSteps steps) {
  return args.q_heads + (steps == HeadSteps::kNorm ? 1 : 2) * args.kv.kv_heads;
}
int heads_row_blocks(const CudaHeadsArgs& args, HeadSteps steps) {
  return static_cast<int>(pieces(heads_of(args, steps), kHeadsWarps));
}
int heads_blocks_of(const CudaHeadsArgs& args, HeadSteps steps) {
  return args.rows * heads_row_blocks(args, steps);
}

// What both halves need.
Result<void> check_heads(const CudaHeadsArgs& args) {
  GAPLESS_TRY(check_kv_shape(args.kv));
  if (args.kv.dtype != DType::kBf16 && args.kv.dtype != DType::kF16)
    return fail(ErrorCode::kInvalidInput, "heads of {}; pages on a GPU are bf16 or f16",
                dtype_name(args.kv.dtype));
  GAPLESS_TRY(check_extent(args.q_heads, kMaxColumns, kHeads, "query heads"));
  GAPLESS_TRY(check_rows(args.rows, heads_row_blocks(args, HeadSteps::kAll), kHeads));
  GAPLESS_TRY(check_pointer(args.qkv, kVectorBytes, kHeads, "qkv"));
  const int64_t columns = int64_t{heads_of(args, HeadSteps::kAll)} * args.kv.head_dim;
  return check_stride(args.qkv_stride, columns, kRowsVectorElements, kHeads, "the stride of qkv");
}

Result<void> check_head_norm(const CudaHeadsArgs& args) {
  GAPLESS_TRY(check_pointer(args.q_gamma, kVectorBytes, kHeads, "q_gamma"));
  return check_pointer(args.k_gamma, kVectorBytes, kHeads, "k_gamma");
}

Result<void> check_head_rope(const CudaHeadsArgs& args) {
  GAPLESS_TRY(check_pointer(args.rope, kVectorBytes, kHeads, "rope"));
  GAPLESS_TRY(check_pointer(args.lengths, sizeof(int32_t), kHeads, "lengths"));
  GAPLESS_TRY(check_pointer(args.page_table, sizeof(int32_t), kHeads, "page_table"));
  GAPLESS_TRY(check_pointer(args.pages, kVectorBytes, kHeads, "pages"));
  GAPLESS_TRY(check_pointer(args.q, kVectorBytes, kHeads, "q"));
  GAPLESS_TRY(check_stride(args.page_table_stride, 1, 1, kHeads, "the stride of page_table"));
  if (args.page_count < 0 || args.rope_positions < 0)
    return fail(ErrorCode::kInvalidInput, "{} with {} pages and {} positions", kHeads,
                args.page_count, args.rope_positions);
  return {};
}

Result<void> launch_head_steps(const CudaHeadsArgs& args, HeadSteps steps,
                               const CudaRowsLaunch& launch) {
  if (args.rows == 0) return {};
  const int64_t places = args.page_table_stride * args.kv.page_tokens;
  const HeadsLaunch kernel_launch = {
      .qkv = const_cast<float*>(args.qkv),  // written by launch_head_norm, as rows.h says
      .q_gamma = args.q_gamma,
      .k_gamma = args.k_gamma,
      .rope = args.rope,
      .lengths = args.lengths,
      .page_table = args.page_table,
      .pages = static_cast<std::byte*>(args.pages),
      .q = static_cast<std::byte*>(args.q),
      .qkv_stride = args.qkv_stride,
      .positions = args.rope_positions > 0 ? args.rope_positions : places,
      .page_table_stride = args.page_table_stride,
      .page_count = args.page_count,
      .page_bytes = cuda_kv_page_bytes(args.kv.kv_heads, args.kv.head_dim, args.kv.page_tokens),
      .kv_block_bytes = cuda_kv_block_bytes(args.kv.head_dim, args.kv.page_tokens),
      .page_tokens = args.kv.page_tokens,
      .q_heads = args.q_heads,
      .kv_heads = args.kv.kv_heads,
      .head_count = heads_of(args, steps),
      .row_blocks = heads_row_blocks(args, steps),
      .eps = args.eps,
      .lets_next_start = launch.lets_next_start,
      .recorder = launch.recorder};
  const HeadsForm form = {.dtype = args.kv.dtype, .head_dim = args.kv.head_dim, .steps = steps};
  return check_cuda(
      heads_launch_kernel(form, kernel_launch, start_of(heads_blocks_of(args, steps), launch)),
      "launching the norm, rope and cache write of heads");
}

// ---- Pairs.

int pair_row_blocks(const CudaPairArgs& args) {
  return static_cast<int>(pieces(args.columns, kPairBlockElements));
}

Result<void> launch_pair(PairOp op, const char* name, const CudaPairArgs& args,
                         const CudaRowsLaunch& launch) {
  GAPLESS_TRY(check_extent(args.columns, kMaxColumns, name, "columns"));
  GAPLESS_TRY(check_rows(args.rows, pair_row_blocks(args), name));
  GAPLESS_TRY(check_stride(args.stride, args.columns, 1, name, "the stride"));
  GAPLESS_TRY(check_floats(args.a, name, "a"));
  GAPLESS_TRY(check_floats(args.b, name, "b"));
  GAPLESS_TRY(check_floats(args.y, name, "y"));
  if (args.rows == 0) return {};
  const bool is_aligned = lies_at(args.a, kVectorBytes) && lies_at(args.b, kVectorBytes) &&
                          lies_at(args.y, kVectorBytes) && args.stride % kRowsVectorElements == 0;
  const PairLaunch kernel_launch = {.a = args.a,
                                    .b = args.b,
                                    .y = args.y,
                                    .columns = args.columns,
                                    .stride = args.stride,
                                    .row_blocks = pair_row_blocks(args),
                                    .is_aligned = is_aligned,
                                    .recorder = launch.recorder};
  return check_cuda(pair_launch_kernel(op, kernel_launch, start_of(pair_blocks(args), launch)),
                    "launching an op of two rows");
}

// ---- The first logit.

constexpr const char* kTop = "the first logit";

// The columns of a part: a multiple of the vectors', so that all parts begin as the row does.
int64_t part_columns_of(const CudaTopArgs& args) {
  const int64_t columns = pieces(args.columns, kTopMaxParts);
  const int64_t whole = pieces(columns, kRowsVectorElements) * kRowsVectorElements;
  return std::max<int64_t>(whole, kTopPartColumns);
}
int parts_of(const CudaTopArgs& args) {
  return static_cast<int>(pieces(args.columns, part_columns_of(args)));
}

Result<void> check_top(const CudaTopArgs& args) {
  GAPLESS_TRY(check_extent(args.columns, kMaxColumns, kTop, "columns"));
  GAPLESS_TRY(check_rows(args.rows, parts_of(args), kTop));
  GAPLESS_TRY(check_floats(args.logits, kTop, "logits"));
  GAPLESS_TRY(check_stride(args.stride, args.columns, 1, kTop, "the stride"));
  GAPLESS_TRY(check_pointer(args.top, alignof(TopResult), kTop, "top"));
  return check_pointer(args.workspace, kWorkspaceBytes, kTop, "workspace");
}

}  // namespace

int embed_blocks(const CudaEmbedArgs& args) { return args.rows * embed_row_blocks(args); }
int rows_blocks(const CudaRowsArgs& args) { return args.rows * form_of(args).parts; }
int heads_blocks(const CudaHeadsArgs& args) { return heads_blocks_of(args, HeadSteps::kAll); }
int head_norm_blocks(const CudaHeadsArgs& args) { return heads_blocks_of(args, HeadSteps::kNorm); }
int pair_blocks(const CudaPairArgs& args) { return args.rows * pair_row_blocks(args); }
int top_blocks(const CudaTopArgs& args) { return args.rows * parts_of(args); }

int64_t max_rows_k() { return kRowsMaxK; }
int64_t top_workspace_bytes(int rows) { return rows * int64_t{sizeof(TopSlot)}; }

Result<void> launch_embed(const CudaEmbedArgs& args, const CudaRowsLaunch& launch) {
  GAPLESS_TRY(check_embed(args));
  if (args.rows == 0) return {};
  constexpr int kElements = kEmbedBlockElements / kEmbedThreads;
  const EmbedLaunch kernel_launch = {.table = args.table,
                                     .tokens = args.tokens,
                                     .x = args.x,
                                     .hidden = args.hidden,
                                     .row_blocks = embed_row_blocks(args),
                                     .is_aligned = lies_at(args.table, kVectorBytes) &&
                                                   lies_at(args.x, kVectorBytes) &&
                                                   args.hidden % kElements == 0,
                                     .recorder = launch.recorder};
  return check_cuda(
      embed_launch_kernel(args.table_dtype, kernel_launch, start_of(embed_blocks(args), launch)),
      "launching an embedding");
}

Result<void> launch_rows(const CudaRowsArgs& args, const CudaRowsLaunch& launch) {
  GAPLESS_TRY(check_rows_args(args));
  if (args.rows == 0) return {};
  const RowsForm form = form_of(args);
  const bool is_aligned = lies_at(args.x, kVectorBytes) && lies_at(args.gamma, kVectorBytes) &&
                          args.x_stride % kRowsVectorElements == 0 &&
                          args.k % kRowsVectorElements == 0;
  const RowsLaunch kernel_launch = {.x = args.x,
                                    .row_of = args.row_of,
                                    .gamma = args.gamma,
                                    .y = args.y,
                                    .factors = args.factors,
                                    .x_stride = args.x_stride,
                                    .k_stride = args.k_stride,
                                    .k = static_cast<int>(args.k),
                                    .eps = args.eps,
                                    .is_deferred = form.has_norm && args.is_deferred,
                                    .is_aligned = is_aligned,
                                    .lets_next_start = launch.lets_next_start,
                                    .recorder = launch.recorder};
  RowsStart start = start_of(rows_blocks(args), launch);
  // Parts that have nothing to tell each other need not be near.
  if (form.has_norm || form.is_s8) start.cluster_blocks = form.parts;
  return check_cuda(rows_launch_kernel(form, kernel_launch, start), "launching rows for a matmul");
}

Result<void> launch_heads(const CudaHeadsArgs& args, const CudaRowsLaunch& launch) {
  GAPLESS_TRY(check_heads(args));
  GAPLESS_TRY(check_head_norm(args));
  GAPLESS_TRY(check_head_rope(args));
  return launch_head_steps(args, HeadSteps::kAll, launch);
}

Result<void> launch_head_norm(const CudaHeadsArgs& args, const CudaRowsLaunch& launch) {
  GAPLESS_TRY(check_heads(args));
  GAPLESS_TRY(check_head_norm(args));
  return launch_head_steps(args, HeadSteps::kNorm, launch);
}

Result<void> launch_head_rope(const CudaHeadsArgs& args, const CudaRowsLaunch& launch) {
  GAPLESS_TRY(check_heads(args));
  GAPLESS_TRY(check_head_rope(args));
  return launch_head_steps(args, HeadSteps::kRope, launch);
}

Result<void> launch_silu_multiply(const CudaPairArgs& args, const CudaRowsLaunch& launch) {
  return launch_pair(PairOp::kSiluMultiply, "a product with SiLU", args, launch);
}

Result<void> launch_add(const CudaPairArgs& args, const CudaRowsLaunch& launch) {
  return launch_pair(PairOp::kAdd, "a sum", args, launch);
}

Result<void> launch_top(const CudaTopArgs& args, const CudaRowsLaunch& launch) {
  GAPLESS_TRY(check_top(args));
  if (args.rows == 0) return {};
  const TopLaunch kernel_launch = {
      .logits = args.logits,
      .top = static_cast<TopResult*>(args.top),
      .slots = static_cast<TopSlot*>(args.workspace),
      .stride = args.stride,
      .columns = args.columns,
      .part_columns = part_columns_of(args),
      .parts = parts_of(args),
      .is_aligned = lies_at(args.logits, kVectorBytes) && args.stride % kRowsVectorElements == 0,
      .recorder = launch.recorder};
  return check_cuda(top_launch_kernel(kernel_launch, start_of(top_blocks(args), launch)),
                    "launching the search for the first logit");
}

}  // namespace gapless
