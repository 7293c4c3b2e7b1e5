// SPDX-License-Identifier: Apache-2.0
//
// Values that are made on the GPU from a seed, bit for bit those that the CPU makes: weights
// straight into their packed form, plain rows of an embedding, keys and values of a cache. A model
// of 14 billion weights takes 0.05 s on an H200.
//
// Numbers of weights (model/synthetic_values.h): row key = mix(key + row * step), and elements 4 i
// to 4 i + 3 of a row are table[16 bits modulo 4096] of mix(row key + i * step), lowest bits first.

#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "cuda/device.h"
#include "cuda/fill_launch.h"
#include "cuda/matmul_pack.h"
#include "kernels/kv_cache.h"

namespace gapless {

struct CudaFillNumbers {
  const void* table = nullptr;  // on the device: [kFillTableSize] of bf16
  FillHash hash;
};

struct CudaFillWeightsArgs {
  CudaWeightShape shape;
  int64_t columns = 0;  // numbers in a row; zeros from there to shape.k
  CudaFillNumbers numbers;
  // Rows of the matrix, one part below the other, at most kFillMaxParts; gated: gate and up.
  std::span<const FillPart> parts;
  void* weights = nullptr;  // cuda_weight_bytes(shape)
  // s8: [cuda_weight_rows(shape)]. A row is quantised as PackedMatrix does it: scale = amax / 127,
  // round to nearest even.
  float* scales = nullptr;
};
Result<void> launch_fill_weights(const CudaFillWeightsArgs& args, CudaStream stream);

// bf16 rows as they are.
struct CudaFillRowsArgs {
  int64_t columns = 0;  // a multiple of kFillRowUnit
  CudaFillNumbers numbers;
  FillPart part;
  void* rows = nullptr;  // [part.rows][columns], at 16 bytes
};
Result<void> launch_fill_rows(const CudaFillRowsArgs& args, CudaStream stream);

// Tokens of a sequence in one layer, with the values of CpuDecoder::fill_sequence: about normal,
// keys of deviation 1 and values of 1 / 2, a function of seed, layer, head and token.
struct CudaFillKvArgs {
  KvShape shape;          // bf16 or f16
  void* pages = nullptr;  // of the layer, as cuda/kv_pages.h says
  int64_t page_count = 0;
  // On the device, from token 0 on. A page that is not there stops the GPU with an error.
  const int32_t* sequence_pages = nullptr;
  int first_token = 0;
  int end_token = 0;
  int layer = 0;
  uint64_t seed = 0;
};
Result<void> launch_fill_kv(const CudaFillKvArgs& args, CudaStream stream);

}  // namespace gapless
