// SPDX-License-Identifier: Apache-2.0

#include "sim/matmul_staging.h"

#include <algorithm>
#include <string_view>

#include <fmt/core.h>

#include "base/quantity.h"

namespace gapless {
namespace {

constexpr int64_t kBlockSide = 16;        // rows of A and columns of B
constexpr int64_t kBlockDepthBytes = 32;  // of k
constexpr int64_t kSumBytes = 4;
constexpr int64_t kVectorBytes = 32;  // what the vector core's buffer is read in

int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int64_t round_up(int64_t value, int64_t step) { return ceil_div(value, step) * step; }

int64_t element_bytes(const StagingProblem& problem) { return problem.is_int8 ? 1 : 2; }

int64_t block_depth(const StagingProblem& problem) {
  return kBlockDepthBytes / element_bytes(problem);
}

int64_t result_count(const StagingProblem& problem) { return problem.is_dual ? 2 : 1; }

// The largest block_depth x 2^i that is at most `most`; block_depth where none is.
int64_t largest_step(int64_t most, const StagingProblem& problem) {
  int64_t step = block_depth(problem);
  while (step * 2 <= most) step *= 2;
  return step;
}

StagedBuffer mat_buffer(const DeviceProfile& profile, const StagingProblem& problem,
                        const MatmulStaging& plan) {
  const int64_t buffer_count = std::min<int64_t>(2, plan.tile_count) * result_count(problem);
  const int64_t tile_bytes = plan.tile_k * plan.padded_n * element_bytes(problem);
  return {.name = "Mat",
          .content = fmt::format("{} of A and {} of {} of B", plan.a_bytes,
                                 counted(static_cast<uint64_t>(buffer_count), "tile"), tile_bytes),
          .used_bytes = plan.a_bytes + buffer_count * tile_bytes,
          .size_bytes = profile.mat_bytes};
}

StagedBuffer l0a_buffer(const DeviceProfile& profile, const StagingProblem& problem,
                        const MatmulStaging& plan) {
  const int64_t piece_bytes = plan.padded_m * plan.l0_k * element_bytes(problem);
  StagedBuffer buffer = {.name = "L0A",
                         .content = "all of A",
                         .used_bytes = plan.a_bytes,
                         .size_bytes = profile.l0a_bytes};
  if (plan.is_a_in_l0a) return buffer;
  buffer.content = fmt::format("2 pieces of {} of A", piece_bytes);
  buffer.used_bytes = 2 * piece_bytes;
  return buffer;
}

StagedBuffer l0b_buffer(const DeviceProfile& profile, const StagingProblem& problem,
                        const MatmulStaging& plan) {
  const int64_t piece_bytes = plan.l0_k * plan.padded_n * element_bytes(problem);
  return {.name = "L0B",
          .content = fmt::format("2 pieces of {} of B", piece_bytes),
          .used_bytes = 2 * piece_bytes,
          .size_bytes = profile.l0b_bytes};
}

StagedBuffer l0c_buffer(const DeviceProfile& profile, const StagingProblem& problem,
                        const MatmulStaging& plan) {
  const int64_t sums_bytes = plan.padded_m * plan.padded_n * kSumBytes;
  return {.name = "L0C",
          .content = fmt::format(
              "{} of {}", counted(static_cast<uint64_t>(result_count(problem)), "accumulator"),
              sums_bytes),
          .used_bytes = result_count(problem) * sums_bytes,
          .size_bytes = profile.l0c_bytes};
}

// Sums of bf16 go from L0C to memory by the fixpipe. Those of int8 are scaled by column and row,
// which the vector cores do, each its share of the rows.
StagedBuffer ub_buffer(const DeviceProfile& profile, const StagingProblem& problem,
                       const MatmulStaging& plan) {
  StagedBuffer buffer = {.name = "UB",
                         .content = "nothing: the fixpipe stores the sums",
                         .used_bytes = 0,
                         .size_bytes = profile.ub_bytes};
  if (plan.vector_rows == 0) return buffer;
  const int64_t sums_bytes = result_count(problem) * plan.vector_rows * plan.padded_n * kSumBytes;
  const int64_t scale_bytes = result_count(problem) * plan.padded_n * kSumBytes +
                              round_up(plan.vector_rows * kSumBytes, kVectorBytes);
  buffer.content =
      fmt::format("{} of sums of {} and {} of scales", sums_bytes,
                  counted(static_cast<uint64_t>(plan.vector_rows), "row"), scale_bytes);
  buffer.used_bytes = sums_bytes + scale_bytes;
  return buffer;
}

// The plan for a given tile_k, whether it fits or not.
MatmulStaging stage(const DeviceProfile& profile, const StagingProblem& problem, int64_t tile_k) {
  MatmulStaging plan;
  plan.padded_m = round_up(problem.m, kBlockSide);
  plan.padded_k = round_up(problem.k, block_depth(problem));
  plan.padded_n = round_up(problem.n, kBlockSide);
  plan.tile_k = std::min(round_up(tile_k, block_depth(problem)), plan.padded_k);
  plan.tile_count = ceil_div(plan.padded_k, plan.tile_k);
  plan.a_bytes = plan.padded_m * plan.padded_k * element_bytes(problem);
  plan.b_bytes = result_count(problem) * plan.padded_k * plan.padded_n * element_bytes(problem);
  plan.store_bytes = result_count(problem) * problem.m * problem.n * kSumBytes;
  plan.is_a_in_l0a = plan.a_bytes <= profile.l0a_bytes;
  // Two pieces of B, and two of A where it does not lie there whole.
  const int64_t b_depth = profile.l0b_bytes / (2 * plan.padded_n * element_bytes(problem));
  const int64_t a_depth = profile.l0a_bytes / (2 * plan.padded_m * element_bytes(problem));
  plan.l0_k = largest_step(
      std::min(plan.tile_k, plan.is_a_in_l0a ? b_depth : std::min(a_depth, b_depth)), problem);
  if (problem.is_int8)
    plan.vector_rows = ceil_div(problem.m, std::max<int64_t>(1, profile.vector_cores));
  plan.buffers = {mat_buffer(profile, problem, plan), l0a_buffer(profile, problem, plan),
                  l0b_buffer(profile, problem, plan), l0c_buffer(profile, problem, plan),
                  ub_buffer(profile, problem, plan)};
  const int64_t last_tile = plan.padded_k - (plan.tile_count - 1) * plan.tile_k;
  const int64_t pieces =
      (plan.tile_count - 1) * ceil_div(plan.tile_k, plan.l0_k) + ceil_div(last_tile, plan.l0_k);
  plan.load_count = 1 + result_count(problem) * plan.tile_count;
  plan.multiply_count = result_count(problem) * pieces;
  plan.move_count = (plan.is_a_in_l0a ? 1 : pieces) + plan.multiply_count;
  plan.store_count = result_count(problem);
  return plan;
}

const StagedBuffer* find_overflow(const MatmulStaging& plan) {
  for (const StagedBuffer& buffer : plan.buffers) {
    if (!buffer.fits()) return &buffer;
  }
  return nullptr;
}

// With the tile_k that is given, or the largest that fits and leaves two tiles, or the smallest.
MatmulStaging stage_best(const DeviceProfile& profile, const StagingProblem& problem) {
  if (problem.tile_k != 0) return stage(profile, problem, problem.tile_k);
  int64_t tile_k = largest_step(problem.k / 2, problem);
  while (true) {
    MatmulStaging plan = stage(profile, problem, tile_k);
    if (find_overflow(plan) == nullptr || tile_k == block_depth(problem)) return plan;
    tile_k /= 2;
  }
}

// In blocks of 16 columns; 0 where not even one fits.
int64_t most_column_blocks(const DeviceProfile& profile, StagingProblem problem) {
  int64_t fitting = 0;
  int64_t too_many = ceil_div(problem.n, kBlockSide);
  while (too_many - fitting > 1) {
    const int64_t middle = fitting + (too_many - fitting) / 2;
    problem.n = middle * kBlockSide;
    if (find_overflow(stage_best(profile, problem)) == nullptr) {
      fitting = middle;
    } else {
      too_many = middle;
    }
  }
  return fitting;
}

Result<void> check_problem(const DeviceProfile& profile, const StagingProblem& problem) {
  struct Bound {
    std::string_view name;
    int64_t value;
    int64_t most;
  };
  for (const Bound& bound :
       {Bound{"m", problem.m, kMaxStagedRows}, Bound{"k", problem.k, kMaxStagedDepth},
        Bound{"n", problem.n, kMaxStagedColumns}}) {
    if (bound.value < 1 || bound.value > bound.most)
      return fail(ErrorCode::kInvalidInput, "{} = {}; a staged matmul takes 1 to {}", bound.name,
                  bound.value, bound.most);
  }
  if (problem.tile_k != 0 && (problem.tile_k < 0 || problem.tile_k % block_depth(problem) != 0))
    return fail(ErrorCode::kInvalidInput,
                "tiles of {} along k: a multiple of {} is needed, {} bytes of it", problem.tile_k,
                block_depth(problem), kBlockDepthBytes);
  if (profile.mat_bytes == 0 || profile.l0a_bytes == 0 || profile.l0b_bytes == 0 ||
      profile.l0c_bytes == 0)
    return fail(ErrorCode::kInvalidInput,
                "{} has no buffers to plan for: buffer.mat_bytes is {}, l0a {}, l0b {}, l0c {}",
                profile.name, profile.mat_bytes, profile.l0a_bytes, profile.l0b_bytes,
                profile.l0c_bytes);
  return {};
}

}  // namespace

// pypto-lib #665 reports 655360 > 524288 bytes of Mat for gate and up with tiles of 512 columns,
// and not what was staged. With A once and two buffers a weight matrix, as here, it is 64 rows of
// 1024 in bf16 (131072) and four tiles of 128 x 512 (524288). bf16, two matrices and a k of 1024
// are the kernel's of that time; 64 rows are not, it has 16, which make 557056. With 16 rows of
// 512, 1024 or 5120 no tiles whose k is a power of two give the number. Weight tiles in bf16 alone
// give it as ten of 64 x 512 or five of 128 x 512. In each reading 512 columns are too many.
Result<MatmulStaging> plan_matmul_staging(const DeviceProfile& profile,
                                          const StagingProblem& problem) {
  GAPLESS_TRY(check_problem(profile, problem));
  MatmulStaging plan = stage_best(profile, problem);
  const StagedBuffer* overflow = find_overflow(plan);
  if (overflow == nullptr) return plan;
  const int64_t blocks = most_column_blocks(profile, problem);
  const std::string advice =
      blocks == 0 ? std::string("not even 16 columns fit")
                  : fmt::format("the largest tile that fits has {} columns", blocks * kBlockSide);
  return fail(ErrorCode::kInvalidInput, "{} of {}: {} > {} bytes ({}); {}", overflow->name,
              profile.name, overflow->used_bytes, overflow->size_bytes, overflow->content, advice);
}

}  // namespace gapless
