// SPDX-License-Identifier: Apache-2.0

#include "cuda/fill.h"

#include <algorithm>

#include "base/mix_bits.h"
#include "cuda/matmul_launch.h"

namespace gapless {
namespace {

constexpr float kValueScale = 0.5f;
constexpr int kHeadPlaceBits = 32;  // a head's tokens are places of their own
constexpr uintptr_t kStoreBytes = 16;

Result<void> check_place(const void* target, const char* what) {
  if (reinterpret_cast<uintptr_t>(target) % kStoreBytes == 0) return {};
  return fail(ErrorCode::kInvalidInput,
              "{} to make on a GPU do not begin at a multiple of {} bytes", what, kStoreBytes);
}

Result<void> check_numbers(const CudaFillNumbers& numbers, const void* target) {
  if (numbers.table == nullptr || target == nullptr)
    return fail(ErrorCode::kInvalidInput, "numbers to make on a GPU without {}",
                target == nullptr ? "a place for them" : "their table");
  return check_place(target, "numbers");
}

Result<void> check_parts(const CudaFillWeightsArgs& args) {
  const CudaWeightShape& shape = args.shape;
  const int64_t part_count = std::ssize(args.parts);
  if (shape.is_gated ? part_count != 2 : part_count < 1 || part_count > kFillMaxParts)
    return fail(ErrorCode::kInvalidInput, "{} weights in {} parts; {} can be made",
                shape.is_gated ? "gated" : "plain", part_count,
                shape.is_gated ? "two" : "one to three");
  int64_t rows = 0;
  for (const FillPart& part : args.parts) {
    if (part.rows < 1 || (shape.is_gated && part.rows != shape.columns))
      return fail(ErrorCode::kInvalidInput, "a part of {} rows in weights of {} columns", part.rows,
                  shape.columns);
    rows += part.rows;
  }
  if (!shape.is_gated && rows != shape.columns)
    return fail(ErrorCode::kInvalidInput, "parts of {} rows in all for weights of {} columns", rows,
                shape.columns);
  return {};
}

}  // namespace

Result<void> launch_fill_weights(const CudaFillWeightsArgs& args, CudaStream stream) {
  const CudaWeightShape& shape = args.shape;
  GAPLESS_TRY(check_cuda_weights(shape));
  GAPLESS_TRY(check_numbers(args.numbers, args.weights));
  GAPLESS_TRY(check_parts(args));
  if (args.columns < 1 || args.columns > shape.k)
    return fail(ErrorCode::kInvalidInput, "rows of {} numbers in weights with a k of {}",
                args.columns, shape.k);
  const bool is_s8 = shape.dtype == DType::kS8;
  if (is_s8 != (args.scales != nullptr))
    return fail(ErrorCode::kInvalidInput, "{} weights to make {} scales", dtype_name(shape.dtype),
                is_s8 ? "without" : "with");
  FillWeightsLaunch launch = {
      .table = static_cast<const uint16_t*>(args.numbers.table),
      .hash = args.numbers.hash,
      .parts = {},
      .part_count = static_cast<int>(args.parts.size()),
      .columns = static_cast<int>(args.columns),
      .weights = static_cast<std::byte*>(args.weights),
      .scales = args.scales,
      .groups = static_cast<int>(cuda_weight_rows(shape) / kFillGroupRows),
      .tile_groups = static_cast<uint32_t>(shape.tile_rows / kFillGroupRows),
      .bricks_per_tile = static_cast<int>(cuda_weight_bricks_per_tile(shape)),
      .is_gated = shape.is_gated,
      .is_s8 = is_s8};
  std::copy(args.parts.begin(), args.parts.end(), launch.parts);
  return check_cuda(fill_weights_launch_kernel(launch, stream), "making weights");
}

Result<void> launch_fill_rows(const CudaFillRowsArgs& args, CudaStream stream) {
  GAPLESS_TRY(check_numbers(args.numbers, args.rows));
  if (args.part.rows < 1 || args.columns < 1 || args.columns % kFillRowUnit != 0 ||
      args.columns > INT32_MAX)
    return fail(ErrorCode::kInvalidInput,
                "{} rows of {} numbers to make on a GPU; rows have a multiple of {}",
                args.part.rows, args.columns, kFillRowUnit);
  const FillRowsLaunch launch = {.table = static_cast<const uint16_t*>(args.numbers.table),
                                 .hash = args.numbers.hash,
                                 .part = args.part,
                                 .columns = static_cast<int>(args.columns),
                                 .rows = static_cast<uint16_t*>(args.rows)};
  return check_cuda(fill_rows_launch_kernel(launch, stream), "making an embedding");
}

Result<void> launch_fill_kv(const CudaFillKvArgs& args, CudaStream stream) {
  GAPLESS_TRY(check_kv_shape(args.shape));
  if (args.shape.dtype != DType::kBf16 && args.shape.dtype != DType::kF16)
    return fail(ErrorCode::kInvalidInput, "keys and values of {}; on a GPU they are bf16 or f16",
                dtype_name(args.shape.dtype));
  if (args.pages == nullptr || args.sequence_pages == nullptr || args.page_count < 1)
    return fail(ErrorCode::kInvalidInput, "keys and values to make without pages");
  GAPLESS_TRY(check_place(args.pages, "keys and values"));
  if (args.first_token < 0 || args.end_token < args.first_token || args.layer < 0)
    return fail(ErrorCode::kInvalidInput, "tokens {} to {} of layer {} cannot be filled",
                args.first_token, args.end_token, args.layer);
  if (args.first_token == args.end_token) return {};
  const FillKvLaunch launch = {
      .pages = static_cast<std::byte*>(args.pages),
      .page_count = args.page_count,
      .sequence_pages = args.sequence_pages,
      .seed_bits = mix_bits(args.seed),
      .place = static_cast<uint64_t>(args.layer) * kMaxKvHeads << kHeadPlaceBits,
      .head_step = uint64_t{1} << kHeadPlaceBits,
      .first_token = args.first_token,
      .end_token = args.end_token,
      .kv_heads = args.shape.kv_heads,
      .head_dim = args.shape.head_dim,
      .page_tokens = args.shape.page_tokens,
      .value_scale = kValueScale,
      .is_bf16 = args.shape.dtype == DType::kBf16};
  return check_cuda(fill_kv_launch_kernel(launch, stream), "making keys and values");
}

}  // namespace gapless
