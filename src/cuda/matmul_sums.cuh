// SPDX-License-Identifier: Apache-2.0
//
// A warp's sums: 16 rows of weights by all tokens, in registers, and what becomes of them.
//
// Where a tile has 64 rows, two warps have the same ones and take turns with the bricks, by their
// place in k. When a piece ends, the first of them adds what the other has and goes on alone.
//
// A lane (g = lane / 4, t = lane % 4) has, for each tile of 8 tokens, packed rows g and g + 8 of
// tokens 2t and 2t + 1: {row g, 2t}, {row g, 2t + 1}, {row g + 8, 2t}, {row g + 8, 2t + 1}. Packing
// makes the two rows neighbours of the output, or gate and up of one column.
//
// Up to 16 tokens each warp multiplies on its own (mma). From 17 on four warps do so together where
// the hardware can (wgmma, sm_90a): otherwise each of them reads all tokens from shared memory, and
// that takes longer than memory takes for the weights. Both add in the same order, and give the
// same bits (on an H200; no manual says so, ATokenDoesNotSeeTheOthers does).
//
// When a tile is cut over blocks, the block in which it begins adds the others' sums to its own, in
// the order of k. That piece is the last one of its block, and the others' are their first ones:
// when blocks have a tile and more each, they are there long before. A sum travels as 8 bytes with
// the number of the launch, which says that it is there: no fence, no count, and nobody but the one
// who needs it waits. (With fences and a counter a matmul took 1 us longer.)

#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/matmul_stages.cuh"
#include "cuda/tensor_ops.cuh"
#include "cuda/waits.cuh"
#include "cuda/warp_group_ops.cuh"

namespace gapless::device {

__device__ __forceinline__ uint4 load_shared_vector(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_shared_vector(uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

__device__ __forceinline__ void multiply_step(float (&c)[4], const uint4& a, uint32_t b0,
                                              uint32_t b1) {
  const uint32_t rows[4] = {a.x, a.y, a.z, a.w};
  multiply_add<__nv_bfloat16>(c, rows, b0, b1);
}
__device__ __forceinline__ void multiply_step(int32_t (&c)[4], const uint4& a, uint32_t b0,
                                              uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// It stays where it stands among the waits.
__device__ __forceinline__ float load_constant(const float* source) {
  float value;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(source));
  return value;
}

// Two sums and the launch they are of, each pair in one access.
struct MarkedSums {
  uint64_t first;
  uint64_t second;
};
__device__ __forceinline__ uint64_t marked(uint32_t sum, uint32_t epoch) {
  return uint64_t{epoch} << 32 | sum;
}
__device__ __forceinline__ void store_marked(MarkedSums* target, const MarkedSums& sums) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(target), "l"(sums.first),
               "l"(sums.second)
               : "memory");
}
__device__ __forceinline__ MarkedSums load_marked(const MarkedSums* source) {
  MarkedSums sums;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(sums.first), "=l"(sums.second)
               : "l"(source)
               : "memory");
  return sums;
}
__device__ __forceinline__ bool is_of(const MarkedSums& sums, uint32_t epoch) {
  return sums.first >> 32 == epoch && sums.second >> 32 == epoch;
}
__device__ __forceinline__ uint32_t bits_of(int32_t sum) { return static_cast<uint32_t>(sum); }
__device__ __forceinline__ uint32_t bits_of(float sum) { return __float_as_uint(sum); }

// SiLU(gate) x up.
__device__ __forceinline__ float gated(float gate, float up) {
  return __fmul_rn(__fdividef(gate, 1.0f + __expf(-gate)), up);
}

template <bool kIsS8, int kTokenTiles, int kTileRows>
class WarpSums {
 public:
  using Sum = std::conditional_t<kIsS8, int32_t, float>;

  __device__ WarpSums(const StageRing& ring, int warp, int lane)
      : warp_(warp % kRowWarps), turn_(warp / kRowWarps), lane_(lane) {
    clear();
    lane_weights_ = ring.stages + warp_ * kBrickBytes<kMatmulWarpRows> + lane_ * 16;
    tokens_ = ring.stages + ring.weight_bytes;
    if (!kAreGroups) tokens_ += token_piece(lane_ % 8, lane_ / 8);
    compute_here(static_cast<int>(lane_weights_ | tokens_) >= 0);
  }

  __device__ void clear() {
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[tile][i] = 0;
    }
  }

  // Ahead of a piece of this tile.
  __device__ void begin_piece(const MatmulLaunch& launch, int tile) {
    const int begin = tile * tile_bricks(launch);
    first_block_ = block_of_brick(launch, begin);
    last_block_ = block_of_brick(launch, begin + tile_bricks(launch) - 1);
    scales_begin_ = tile * kTileRows + warp_ * kMatmulWarpRows + lane_ / 4;
  }
  // Behind the wait for the launch before, and long before the sums are complete. (Ahead of it
  // matmuls take 0.1 us longer, behind their first stage 0.7: it takes long when all memory is
  // busy.)
  __device__ void load_row_scales(const MatmulLaunch& launch) {
    if constexpr (kIsS8) {
      row_scales_[0] = load_constant(launch.row_scales + scales_begin_);
      row_scales_[1] = load_constant(launch.row_scales + scales_begin_ + 8);
    }
  }
  // Likewise, where there are registers to keep them.
  __device__ void load_token_scales_ahead(const MatmulLaunch& launch) {
    if (kKeepsScales) load_token_scales(launch);
  }

  // Once, before anything else is asked of memory: the lines in which this block will look for
  // others' pieces. Whoever looks for them when they are not in L2 waits for memory, behind all
  // that the next launch reads ahead by then: up to 5 us.
  __device__ void bring_pieces(const MatmulLaunch& launch) const {
    const int last_brick = first_brick(launch, block_index(launch) + 1) - 1;
    const int tile = tile_of_brick(launch, last_brick);
    const int tile_begin = tile * tile_bricks(launch);
    if (turn_ != 0 || block_of_brick(launch, tile_begin) != block_index(launch)) return;
    const int last = block_of_brick(launch, tile_begin + tile_bricks(launch) - 1);
#pragma unroll 1
    for (int block = block_index(launch) + 1; block <= last; ++block) {
#pragma unroll 1
      for (int i = 0; i < kPieceVectors; ++i) {
        bring_line_into_l2(piece(launch, block) + i * kWarpLanes);
      }
    }
  }

  // This warp's bricks of a stage: those whose place in k is its turn.
  __device__ __forceinline__ void add_stage(const StageRing& ring, int slot, int k_brick,
                                            int bricks) {
    const int first = (turn_ - k_brick) & (kTurns - 1);
    int left = (bricks - first + kTurns - 1) / kTurns;
    uint32_t weights = lane_weights_ + slot * ring.stage_bytes + first * kBrickBytes<kTileRows>;
    uint32_t tokens = tokens_ + slot * ring.stage_bytes + first * kUnitBytes<kTokenTiles>;
    asm volatile("" : "+r"(left));  // once, and not in another way for each loop
#pragma unroll 1
    for (; left >= kBricksTogether; left -= kBricksTogether) {
      add_bricks<kBricksTogether>(weights, tokens);
      weights += kBricksTogether * kBrickStep;
      tokens += kBricksTogether * kUnitStep;
    }
#pragma unroll 1
    for (; left > 0; --left) {
      add_bricks<1>(weights, tokens);
      weights += kBrickStep;
      tokens += kUnitStep;
    }
  }

  // Ahead of the last stage of a piece.
  __device__ void prepare_to_finish(const MatmulLaunch& launch, int tile) {
    if (turn_ != 0 || block_index(launch) != first_block_) return;
    if (!kKeepsScales) load_token_scales(launch);
    load_residuals(launch, tile);
  }
  // The sums of this block's piece of a tile become output, or go to the block that does that.
  template <typename Recorder>
  __device__ void finish(const MatmulLaunch& launch, const StageRing& ring, int tile,
                         Recorder& recorder) {
    if constexpr (kTurns > 1) fold(ring);
    if (turn_ != 0) return;
    if (first_block_ != last_block_) {
      recorder.phase(DevicePhase::kWaitBlock, tile);
      wait_for_phase(ring.epoch_barrier(), 0, launch.wait_limit, DeviceWait::kMatmulEpoch);
      const uint32_t epoch = load_shared(ring.epoch());
      if (block_index(launch) != first_block_) {
        recorder.phase(DevicePhase::kStore, tile);
        return send(launch, epoch);
      }
      add_all_pieces(launch, epoch);
    }
    recorder.phase(DevicePhase::kStore, tile);
    store(launch, tile);
  }
  // Between pieces: what the warps handed over was read.
  __device__ static void release_fold() {
    if constexpr (kTurns > 1) sync_threads(kFoldBarrier, kMatmulWarps * kWarpLanes);
  }

 private:
  static constexpr int kRowWarps = kTileRows / kMatmulWarpRows;
  static constexpr int kTurns = kMatmulWarps / kRowWarps;
  // wgmma sees what the copy engine brought; of what lanes copied it would need to be told.
  static constexpr bool kAreGroups = kHasWarpGroups && !kLanesCopyTokens<kTokenTiles>;
  static_assert(!kAreGroups || kRowWarps % kGroupWarps == 0, "a group's warps have the same turn");
  static constexpr int kBricksTogether = kAreGroups || kTokenTiles < 4 ? 4 : 8 / kTokenTiles;
  static constexpr int kBrickStep = kTurns * kBrickBytes<kTileRows>;
  static constexpr int kUnitStep = kTurns * kUnitBytes<kTokenTiles>;
  static constexpr int kSteps = 2;  // of a brick
  static constexpr int kStepBytes = 16 * kWarpLanes;
  static constexpr int kFoldBarrier = 1;
  // What is read together, so that its latency is waited for once: some pieces, or part of one.
  static constexpr int kPieceVectors = 2 * kTokenTiles;
  static constexpr int kPartVectors = kPieceVectors < 8 ? kPieceVectors : 8;
  static constexpr int kPieceParts = kPieceVectors / kPartVectors;
  static constexpr int kPieceBatch = 8 / kPartVectors;
  // From the begin of the block to its end; otherwise they are loaded for each tile.
  static constexpr bool kKeepsScales = kTokenTiles < 8;

  __device__ int first_token(int tile) const { return tile * kMatmulTokenTile + lane_ % 4 * 2; }

  template <int kBricks>
  __device__ __forceinline__ void add_bricks(uint32_t weights, uint32_t tokens) {
    if constexpr (kAreGroups) {
      add_bricks_as_group<kBricks>(weights, tokens);
    } else {
#pragma unroll
      for (int i = 0; i < kBricks; ++i) add_brick(weights + i * kBrickStep, tokens + i * kUnitStep);
    }
  }
  // One brick: two steps of 32 bytes of k. A token's 64 bytes are loaded at once for both.
  __device__ __forceinline__ void add_brick(uint32_t weights, uint32_t tokens) {
    const uint4 first = load_shared_vector(weights);
    const uint4 second = load_shared_vector(weights + kStepBytes);
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
      uint32_t x[4];
      load_matrices(x, tokens + tile * kUnitBytes<1>);
      multiply_step(sums_[tile], first, x[0], x[1]);
      multiply_step(sums_[tile], second, x[2], x[3]);
    }
  }
  // The same by four warps: 64 rows.
  template <int kBricks>
  __device__ __forceinline__ void add_bricks_as_group(uint32_t weights, uint32_t tokens) {
    uint4 rows[kBricks][kSteps];
#pragma unroll
    for (int i = 0; i < kBricks; ++i) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        rows[i][step] = load_shared_vector(weights + i * kBrickStep + step * kStepBytes);
    }
    begin_group_products(sums_);
#pragma unroll
    for (int i = 0; i < kBricks; ++i) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const uint32_t begin = tokens + i * kUnitStep + step * (kMatmulUnitBytes / kSteps);
        multiply_group(sums_, rows[i][step], swizzled_64_bytes(begin));
      }
    }
    end_group_products(sums_);
  }

  // The warps of the first turn add what the others have.
  __device__ void fold(const StageRing& ring) {
    if (turn_ != 0) {
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; ++tile) {
        const Sum(&s)[4] = sums_[tile];
        store_shared_vector(folded(ring, turn_, tile),
                            {bits_of(s[0]), bits_of(s[1]), bits_of(s[2]), bits_of(s[3])});
      }
    }
    sync_threads(kFoldBarrier, kMatmulWarps * kWarpLanes);
    if (turn_ != 0) return;
#pragma unroll
    for (int turn = 1; turn < kTurns; ++turn) {
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; ++tile) {
        const uint4 other = load_shared_vector(folded(ring, turn, tile));
        add(sums_[tile][0], other.x);
        add(sums_[tile][1], other.y);
        add(sums_[tile][2], other.z);
        add(sums_[tile][3], other.w);
      }
    }
  }
  __device__ uint32_t folded(const StageRing& ring, int turn, int tile) const {
    const int warp = (turn - 1) * kRowWarps + warp_;
    return ring.fold() + ((warp * kTokenTiles + tile) * kWarpLanes + lane_) * 16;
  }

  // Where a block leaves its piece. It has one at most: that with its first bricks.
  __device__ MarkedSums* piece(const MatmulLaunch& launch, int block) const {
    return static_cast<MarkedSums*>(launch.partials) +
           (int64_t{block} * kRowWarps + warp_) * kPieceVectors * kWarpLanes + lane_;
  }

  __device__ void send(const MatmulLaunch& launch, uint32_t epoch) const {
    MarkedSums* target = piece(launch, block_index(launch));
#pragma unroll
    for (int i = 0; i < kPieceVectors; ++i) {
      const Sum* pair = sums_[i / 2] + i % 2 * 2;
      store_marked(target + i * kWarpLanes,
                   {marked(bits_of(pair[0]), epoch), marked(bits_of(pair[1]), epoch)});
    }
  }

  // Adds the pieces of all other blocks of the tile. Their bricks come after this block's, and they
  // have a lower blockIdx: they started before it.
  __device__ void add_all_pieces(const MatmulLaunch& launch, uint32_t epoch) {
    for (int block = first_block_ + 1; block <= last_block_; block += kPieceBatch) {
#pragma unroll
      for (int part = 0; part < kPieceParts; ++part) add_pieces(launch, block, part, epoch);
    }
  }
  __device__ __forceinline__ void add_pieces(const MatmulLaunch& launch, int block, int part,
                                             uint32_t epoch) {
    MarkedSums pieces[kPieceBatch][kPartVectors];
    Patience patience;
    for (bool are_there = false; !are_there;) {
      are_there = true;
#pragma unroll
      for (int p = 0; p < kPieceBatch; ++p) {
        const MarkedSums* source = piece(launch, min(block + p, last_block_));
#pragma unroll
        for (int i = 0; i < kPartVectors; ++i) {
          pieces[p][i] = load_marked(source + (part * kPartVectors + i) * kWarpLanes);
        }
      }
#pragma unroll
      for (int p = 0; p < kPieceBatch; ++p) {
#pragma unroll
        for (int i = 0; i < kPartVectors; ++i) are_there &= is_of(pieces[p][i], epoch);
      }
      if (!are_there) patience.spend(launch.wait_limit, DeviceWait::kMatmulSums);
    }
#pragma unroll
    for (int p = 0; p < kPieceBatch; ++p) {
      if (block + p > last_block_) break;
#pragma unroll
      for (int i = 0; i < kPartVectors; ++i) {
        Sum* pair = sums_[(part * kPartVectors + i) / 2] + i % 2 * 2;
        add(pair[0], static_cast<uint32_t>(pieces[p][i].first));
        add(pair[1], static_cast<uint32_t>(pieces[p][i].second));
      }
    }
  }

  __device__ static void add(int32_t& sum, uint32_t bits) { sum += static_cast<int32_t>(bits); }
  __device__ static void add(float& sum, uint32_t bits) { sum += __uint_as_float(bits); }

  __device__ void load_token_scales(const MatmulLaunch& launch) {
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = first_token(tile) + i;
        token_scales_[tile][i] = 1.0f;
        if (launch.token_scales != nullptr && token < launch.tokens)
          token_scales_[tile][i] = __ldcg(launch.token_scales + token);
      }
    }
  }

  // Of the output: the lane's first one.
  __device__ int column_of(const MatmulLaunch& launch, int tile) const {
    return launch.is_gated ? tile * (kTileRows / 2) + warp_ * 8 + lane_ / 4
                           : tile * kTileRows + warp_ * kMatmulWarpRows + lane_ / 4 * 2;
  }

  // f(i, j, row) for the lane's tokens j of tiles i; `row` is that of its first one, and rows of
  // tokens lie `stride` apart.
  template <typename T, typename F>
  __device__ void for_tokens(const MatmulLaunch& launch, T* row, int64_t stride, const F& f) const {
    const int left = launch.tokens - first_token(0);
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (i * kMatmulTokenTile + j < left) f(i, j, j == 0 ? row : row + stride);
      }
      row += kMatmulTokenTile * stride;
    }
  }

  // As they lie in memory: whoever made floats of them here would wait for them. Before the first
  // store, which the compiler must take for one of them.
  __device__ void load_residuals(const MatmulLaunch& launch, int tile) {
    const int column = column_of(launch, tile);
    if (launch.residual == nullptr || column >= launch.columns) return;
    const int64_t begin = first_token(0) * launch.residual_stride + column;
    if (launch.residual_is_f32) {
      load_residuals_as(launch, static_cast<const uint32_t*>(launch.residual) + begin);
    } else {
      load_residuals_as(launch, static_cast<const uint16_t*>(launch.residual) + begin);
    }
  }
  template <typename Bits>
  __device__ void load_residuals_as(const MatmulLaunch& launch, const Bits* first) {
    for_tokens(launch, first, launch.residual_stride, [&](int i, int j, const Bits* row) {
      residuals_[i][j][0] = __ldcg(row);
      if (!launch.is_gated) residuals_[i][j][1] = __ldcg(row + 1);
    });
  }

  // Two rows of a token, which are neighbours of the output or gate and up of one column.
  struct Pair {
    float low;
    float high;
  };
  // f(pair, i, j) for all pairs that the lane has. What is the same for all of them is asked once,
  // outside: with a branch for each, a block's end took twice as long.
  template <typename F>
  __device__ static void for_pairs(Pair (&pairs)[kTokenTiles][2], const F& f) {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) f(pairs[i][j], i, j);
    }
  }
  __device__ float scaled(int tile, int row, int token) const {
    float result = static_cast<float>(sums_[tile][2 * row + token]);
    if constexpr (kIsS8) result = __fmul_rn(result, row_scales_[row]);
    return __fmul_rn(result, token_scales_[tile][token]);
  }

  __device__ void store(const MatmulLaunch& launch, int tile) const {
    const int column = column_of(launch, tile);
    if (column >= launch.columns) return;
    Pair pairs[kTokenTiles][2];
    for_pairs(pairs, [&](Pair& pair, int i, int j) { pair = {scaled(i, 0, j), scaled(i, 1, j)}; });
    if (launch.is_gated) {
      for_pairs(pairs, [&](Pair& pair, int, int) { pair.low = gated(pair.low, pair.high); });
    }
    if (launch.residual != nullptr) {
      const int shift = launch.residual_is_f32 ? 0 : 16;
      for_pairs(pairs, [&](Pair& pair, int i, int j) {
        pair.low += __uint_as_float(residuals_[i][j][0] << shift);
        pair.high += __uint_as_float(residuals_[i][j][1] << shift);
      });
    }
    const int64_t begin = first_token(0) * launch.output_stride + column;
    if (launch.output_is_f32) {
      store_as(launch, static_cast<float*>(launch.output) + begin, pairs);
    } else {
      store_as(launch, static_cast<__nv_bfloat16*>(launch.output) + begin, pairs);
    }
  }
  template <typename T>
  __device__ void store_as(const MatmulLaunch& launch, T* first,
                           const Pair (&pairs)[kTokenTiles][2]) const {
    if (launch.is_gated) {
      for_tokens(launch, first, launch.output_stride,
                 [&](int i, int j, T* row) { store_one(row, pairs[i][j]); });
    } else {
      for_tokens(launch, first, launch.output_stride,
                 [&](int i, int j, T* row) { store_both(row, pairs[i][j]); });
    }
  }
  __device__ static void store_one(float* output, const Pair& pair) { *output = pair.low; }
  __device__ static void store_one(__nv_bfloat16* output, const Pair& pair) {
    *output = __float2bfloat16_rn(pair.low);
  }
  __device__ static void store_both(float* output, const Pair& pair) {
    *reinterpret_cast<float2*>(output) = make_float2(pair.low, pair.high);
  }
  __device__ static void store_both(__nv_bfloat16* output, const Pair& pair) {
    *reinterpret_cast<uint32_t*>(output) = pack_pair<__nv_bfloat16>(pair.low, pair.high);
  }

  int warp_;  // of the tile: 16 rows each
  int turn_;  // among those with the same rows
  int lane_;
  uint32_t lane_weights_;  // where the lane's 16 bytes of the first slot begin
  uint32_t tokens_;        // of the first slot: what the lane gives ldmatrix; for wgmma their begin
  int first_block_ = 0;    // of those that have pieces of the present tile
  int last_block_ = 0;
  Sum sums_[kTokenTiles][4];
  float token_scales_[kTokenTiles][2];
  int scales_begin_ = 0;
  float row_scales_[2] = {1.0f, 1.0f};
  uint32_t residuals_[kTokenTiles][2][2] = {};  // [tile][token][row], bits
};

}  // namespace gapless::device
