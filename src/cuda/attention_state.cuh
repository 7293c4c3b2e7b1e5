// SPDX-License-Identifier: Apache-2.0
//
// What a warp knows while it goes through its tiles of a chunk: scores, softmax and weighted
// values, all in registers.
//
// K and V are the wide operands: scores are K[16 tokens][dims] x q[dims][8 heads], results V'[16
// dims][16 tokens] x p[16 tokens][8 heads], and five query heads pad to 8. A lane has the same two
// heads in scores and sums, so that maxima and weights stay where they are.

#pragma once

#include <cstdint>

#include "cuda/attention_tiles.cuh"
#include "cuda/tensor_ops.cuh"

namespace gapless::device {

inline constexpr int kUnitBytes = 16;
inline constexpr int kSwizzleRows = 8;
inline constexpr int kQueryBlock = 8;

template <typename F>
struct WarpState {
  using T = typename F::T;
  uint32_t q[F::kQueryBlocks][F::kSteps][2];  // the right operand of the scores
  float sums[F::kQueryBlocks][F::kSteps][4];  // [dims][heads], relative to the maxima
  float maxima[F::kQueryBlocks][2];           // of heads 2t and 2t + 1
  float totals[F::kQueryBlocks][2];           // of this lane's tokens only

  __device__ void load_queries(uint32_t queries, int group_heads);
  __device__ void clear();
  __device__ void add_keys(float (&scores)[F::kQueryBlocks][4], uint32_t keys) const;
  __device__ void add_values(const uint32_t (&probabilities)[F::kQueryBlocks][2], uint32_t values);
  __device__ void softmax(float (&scores)[F::kQueryBlocks][4],
                          uint32_t (&probabilities)[F::kQueryBlocks][2], float score_scale,
                          int valid_tokens);
  __device__ void store(const TileStates<F::kHeadDim>& states, int tile_lane, int group_heads);
};

// `queries` are [group][head_dim] in shared memory. Heads beyond the group get q = 0, and nobody
// looks at what they give.
template <typename F>
__device__ void WarpState<F>::load_queries(uint32_t queries, int group_heads) {
  const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (int block = 0; block < F::kQueryBlocks; ++block) {
    const int head = block * kQueryBlock + lane / 4;
    const uint32_t row = queries + head * F::kRowBytes + lane % 4 * 4;
#pragma unroll
    for (int step = 0; step < F::kSteps; ++step) {
      q[block][step][0] = head < group_heads ? load_shared(row + step * 32) : 0u;
      q[block][step][1] = head < group_heads ? load_shared(row + step * 32 + 16) : 0u;
    }
  }
}

template <typename F>
__device__ void WarpState<F>::clear() {
#pragma unroll
  for (int block = 0; block < F::kQueryBlocks; ++block) {
#pragma unroll
    for (int step = 0; step < F::kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[block][step][i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maxima[block][i] = -INFINITY;
      totals[block][i] = 0.0f;
    }
  }
}

template <typename F>
__device__ void WarpState<F>::add_keys(float (&scores)[F::kQueryBlocks][4], uint32_t keys) const {
  const int lane = threadIdx.x % kWarpLanes;
  const int row = lane % 16;
  const int swizzle = lane % kSwizzleRows;
  const uint32_t row_address = keys + row * F::kRowBytes;
  float even[F::kQueryBlocks][4] = {};  // two chains: products of one wait for each other
  float odd[F::kQueryBlocks][4] = {};
#pragma unroll
  for (int step = 0; step < F::kSteps; ++step) {
    const int unit = (2 * step + lane / 16) ^ swizzle;
    uint32_t a[4];
    load_matrices(a, row_address + unit * kUnitBytes);
#pragma unroll
    for (int block = 0; block < F::kQueryBlocks; ++block) {
      multiply_add<T>(step % 2 == 0 ? even[block] : odd[block], a, q[block][step][0],
                      q[block][step][1]);
    }
  }
#pragma unroll
  for (int block = 0; block < F::kQueryBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[block][i] = even[block][i] + odd[block][i];
  }
}

template <typename F>
__device__ void WarpState<F>::softmax(float (&scores)[F::kQueryBlocks][4],
                                      uint32_t (&probabilities)[F::kQueryBlocks][2],
                                      float score_scale, int valid_tokens) {
  const int token = threadIdx.x % kWarpLanes / 4;
#pragma unroll
  for (int block = 0; block < F::kQueryBlocks; ++block) {
    float(&s)[4] = scores[block];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_valid = token + i / 2 * 8 < valid_tokens;
      s[i] = is_valid ? s[i] * score_scale : -INFINITY;
    }
    float weights[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = fmaxf(s[i], s[i + 2]);
#pragma unroll
      for (int step = 4; step < kWarpLanes; step *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
      }
      largest = fmaxf(largest, maxima[block][i]);
      const float base = largest == -INFINITY ? 0.0f : largest;
      weights[i] = power_of_two(maxima[block][i] - base);
      maxima[block][i] = largest;
      s[i] = power_of_two(s[i] - base);
      s[i + 2] = power_of_two(s[i + 2] - base);
    }
    // The totals are of what is multiplied: of the probabilities after their cast.
    const uint32_t upper = pack_pair<T>(s[0], s[1]);
    const uint32_t lower = pack_pair<T>(s[2], s[3]);
    const float2 upper_cast = unpack_pair<T>(upper);
    const float2 lower_cast = unpack_pair<T>(lower);
    totals[block][0] = totals[block][0] * weights[0] + (upper_cast.x + lower_cast.x);
    totals[block][1] = totals[block][1] * weights[1] + (upper_cast.y + lower_cast.y);
    probabilities[block][0] = transpose(upper);
    probabilities[block][1] = transpose(lower);
#pragma unroll
    for (int step = 0; step < F::kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[block][step][i] *= weights[i % 2];
    }
  }
}

template <typename F>
__device__ void WarpState<F>::add_values(const uint32_t (&probabilities)[F::kQueryBlocks][2],
                                         uint32_t values) {
  const int lane = threadIdx.x % kWarpLanes;
  const int row = lane % 8 + lane / 16 * 8;
  const int swizzle = lane % kSwizzleRows;
  const uint32_t row_address = values + row * F::kRowBytes;
#pragma unroll
  for (int step = 0; step < F::kSteps; ++step) {
    const int unit = (2 * step + lane / 8 % 2) ^ swizzle;
    uint32_t a[4];
    load_matrices_transposed(a, row_address + unit * kUnitBytes);
#pragma unroll
    for (int block = 0; block < F::kQueryBlocks; ++block) {
      multiply_add<T>(sums[block][step], a, probabilities[block][0], probabilities[block][1]);
    }
  }
}

template <typename F>
__device__ void WarpState<F>::store(const TileStates<F::kHeadDim>& states, int tile_lane,
                                    int group_heads) {
  const int lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (int block = 0; block < F::kQueryBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = block * kQueryBlock + lane % 4 * 2 + i;
      float total = totals[block][i];
#pragma unroll
      for (int step = 4; step < kWarpLanes; step *= 2) {
        total += __shfl_xor_sync(~0u, total, step);
      }
      if (head >= group_heads) continue;
      if (lane < 4) {
        states.maxima[tile_lane * kAttentionMaxGroup + head] = maxima[block][i];
        states.totals[tile_lane * kAttentionMaxGroup + head] = total;
      }
      float* row = states.row(tile_lane, group_heads, head) + lane / 4;
#pragma unroll
      for (int step = 0; step < F::kSteps; ++step) {
        row[step * 16] = sums[block][step][i];
        row[step * 16 + 8] = sums[block][step][i + 2];
      }
    }
  }
}

// Values of tokens that are not there may be anything, and 0 times that need not be 0.
template <typename F>
__device__ void clear_rows(uint32_t values, int first_row) {
  const int lane = threadIdx.x % kWarpLanes;
  for (int at = first_row * F::kRowBytes + lane * 16; at < F::kTileBytes; at += 16 * kWarpLanes) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(values + at), "r"(0) : "memory");
  }
  order_writes_before_copies();
  __syncwarp();
}

}  // namespace gapless::device
