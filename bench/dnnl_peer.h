// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's matmul as a peer: the same shapes, weights in the layout that it chooses itself, nothing
// of the epilogue (no scales, no SiLU), which is less work than ours.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/huge_buffer.h"
#include "base/result.h"

namespace gapless {

// One matmul y = x W^T, ready to run.
class DnnlMatmul {
 public:
  virtual ~DnnlMatmul() = default;
  // "oneDNN 2.6.3 u8s8 brg:avx512_core_vnni".
  virtual std::string name() const = 0;
  // As the library stores them.
  virtual int64_t weight_bytes() const = 0;
  // Its threads and their cores, for runs that follow. They are threads of OpenMP, which the
  // library shares with all its primitives.
  virtual void prepare() = 0;
  // The wall time of one run in nanoseconds.
  virtual double run() = 0;
  // Overwrites x and the weights with small whole numbers, runs, and returns how many elements of y
  // differ from the exact sum.
  virtual int64_t count_errors() = 0;
};

// Weights of all matmuls: ones, in whatever layout. Each run takes the memory behind that of the
// run before, whichever matmul that was, so that none finds its weights in a cache.
struct DnnlWeights {
  HugeBuffer buffer;
  size_t next_offset = 0;
};
Result<DnnlWeights> make_dnnl_weights(size_t bytes);

struct DnnlMatmulArgs {
  DType weights = DType::kS8;  // kS8: u8 x s8 to s32. kBf16: bf16 x bf16 to f32
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  std::vector<int> cores;         // one thread on each; the caller is on the first
  DnnlWeights* memory = nullptr;  // must live as long as the matmul
};

// Nothing when the library was not there at build time. Error when it has no such matmul.
Result<std::unique_ptr<DnnlMatmul>> make_dnnl_matmul(const DnnlMatmulArgs& args);

}  // namespace gapless
