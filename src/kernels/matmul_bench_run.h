// SPDX-License-Identifier: Apache-2.0
//
// MatmulRun: one matmul of the benchmark, with its weights, packed rows, plan and output, run tile
// by tile on pinned threads.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/huge_buffer.h"
#include "base/result.h"
#include "bench/kernel_bench_support.h"
#include "kernels/matmul.h"
#include "kernels/matmul_plan.h"
#include "kernels/packed_matrix.h"
#include "kernels/packed_rows.h"

namespace gapless {

// A projection of Qwen3-14B.
struct Projection {
  const char* name = "";
  int64_t k = 0;
  int64_t n = 0;  // of one of the two when interleaved
  Interleave interleave = Interleave::kNone;
  DType output_dtype = DType::kF32;
  bool has_residual = false;

  int64_t columns() const { return interleave == Interleave::kPairs ? 2 * n : n; }
};

// Random weights of one projection, in copies that are used in turn.
struct ProjectionWeights {
  Projection projection;
  DType dtype = DType::kS8;
  std::vector<PackedMatrix> copies;
};
Result<ProjectionWeights> make_weights(PinnedThreads& threads, const Projection& projection,
                                       DType dtype, int copy_count);

class MatmulRun {
 public:
  // `weights` and `threads` must live as long as this.
  static Result<std::unique_ptr<MatmulRun>> make(PinnedThreads& threads, CpuLevel level,
                                                 const ProjectionWeights& weights, int64_t m,
                                                 int thread_count);

  // Wall time of one run in nanoseconds, with the next copy of the weights: the tiles as planned
  // and what follows them, epilogue included.
  double run();
  // Wall time of packing (quantising) the rows, one job a row.
  double pack();

  double weight_bytes() const { return static_cast<double>(plan_.weight_bytes); }
  double flops() const { return plan_.flops; }
  const Projection& projection() const { return weights_->projection; }
  const float* output_f32() const { return reinterpret_cast<const float*>(output_.data()); }
  // Some elements of what the last run gave against sums in double. An error says which is wrong.
  Result<void> check() const;

 private:
  MatmulRun(PinnedThreads& threads, CpuLevel level, const ProjectionWeights& weights, int64_t m,
            int thread_count);
  Result<void> prepare();
  void place_sums();
  double combine(const MatmulArgs& args);
  double expected(int64_t row, int64_t column, double& error_bound) const;

  PinnedThreads* threads_;
  CpuLevel level_;
  const ProjectionWeights* weights_;
  int64_t m_;
  int thread_count_;
  size_t next_copy_ = 0;
  size_t last_copy_ = 0;
  MatmulPlan plan_;
  std::vector<float> x_;  // [m][k]
  std::vector<float> residual_;
  HugeBuffer packed_;
  HugeBuffer output_;
  MatmulArgs args_;
  // When k is sliced: the sums of each tile, and for each range of panels those of its slices.
  HugeBuffer sums_;
  std::vector<std::byte*> tile_sums_;
  struct Range {
    int64_t first_panel = 0;
    int64_t panel_count = 0;
    std::vector<const void*> slices;
  };
  std::vector<Range> ranges_;
};

}  // namespace gapless
