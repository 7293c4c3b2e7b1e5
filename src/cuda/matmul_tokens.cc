// SPDX-License-Identifier: Apache-2.0

#include "cuda/matmul_tokens.h"

#include <atomic>
#include <cstring>

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/device.h"

namespace gapless {
namespace {

static_assert(sizeof(CUtensorMap) == kMatmulTokenMapBytes);

// cuTensorMapEncodeTiled(). The driver is not linked: where nothing runs on a GPU, there is none.
Result<void*> find_encode() {
  constexpr unsigned kFirstVersion = 12000;
  static std::atomic<void*> known = nullptr;  // a failure is not kept
  void* function = known.load(std::memory_order_relaxed);
  if (function != nullptr) return function;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  GAPLESS_TRY(check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                          kFirstVersion, cudaEnableDefault, &found),
                         "asking the driver for tensor maps"));
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    return fail(ErrorCode::kSystem, "the driver knows no tensor maps: version 12.0 is needed");
  known.store(function, std::memory_order_relaxed);
  return function;
}

}  // namespace

Result<void> describe_matmul_tokens(const MatmulTokens& tokens, std::byte* token_map) {
  const auto encode =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(GAPLESS_TRY(find_encode()));
  constexpr int kDimensions = 3;  // bytes of a unit, tokens, units
  const cuuint64_t extents[kDimensions] = {kMatmulUnitBytes, static_cast<cuuint64_t>(tokens.tokens),
                                           static_cast<cuuint64_t>(tokens.units)};
  const cuuint64_t strides[kDimensions - 1] = {static_cast<cuuint64_t>(tokens.stride_bytes),
                                               kMatmulUnitBytes};
  const cuuint32_t box[kDimensions] = {kMatmulUnitBytes,
                                       static_cast<cuuint32_t>(tokens.copied_tokens),
                                       static_cast<cuuint32_t>(tokens.copied_units)};
  const cuuint32_t steps[kDimensions] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, kDimensions, const_cast<void*>(tokens.x), extents,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    return fail(ErrorCode::kSystem,
                "the driver makes no tensor map (error {}) of {} tokens, {} bytes apart, in copies "
                "of {} tokens and {} units of {} bytes",
                static_cast<int>(status), tokens.tokens, tokens.stride_bytes, tokens.copied_tokens,
                tokens.copied_units, kMatmulUnitBytes);
  std::memcpy(token_map, &map, sizeof(map));
  return {};
}

}  // namespace gapless
