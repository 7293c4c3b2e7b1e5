// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by warp groups (wgmma): four warps that begin at a multiple of four multiply 64
// rows, 16 of each in its registers as mma.m16n8k16 (m16n8k32 for s8) has them, by tokens in shared
// memory. Sums lie in registers as with mma, too, for each 8 tokens four a lane. sm_90a only.

#pragma once

#include <cstdint>
#include <type_traits>

namespace gapless::device {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWarpGroups = true;
#else
inline constexpr bool kHasWarpGroups = false;
#endif
inline constexpr int kGroupWarps = 4;

// Nothing below compiles for devices without them: ask kHasWarpGroups first.

// Describes tokens that begin at this address of shared memory: rows of 64 bytes with the 64-byte
// swizzle, eight of them at a multiple of 512 bytes. `address` may be that of 32 bytes further on.
__device__ __forceinline__ uint64_t swizzled_64_bytes(uint32_t address) {
  constexpr uint64_t kUnit = 16;
  constexpr uint64_t kEightRows = 512;
  constexpr uint64_t kSwizzle64 = uint64_t{2} << 62;
  return kSwizzle64 | kEightRows / kUnit << 32 | uint64_t{1} << 16 | (address & 0x3ffff) / kUnit;
}

// The compiler sees neither that sums are written between here and the next call of this, nor when.
template <typename Sum, int kTiles>
__device__ __forceinline__ void hold_sums(Sum (&c)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<Sum, float>) {
        asm volatile("" : "+f"(c[tile][i])::"memory");
      } else {
        asm volatile("" : "+r"(c[tile][i])::"memory");
      }
    }
  }
}
// Around products, by all lanes of the group: ahead of the first one, behind whatever wrote the
// sums and the rows; and behind the last one, before anybody looks at sums or overwrites tokens.
template <typename Sum, int kTiles>
__device__ __forceinline__ void begin_group_products(Sum (&c)[kTiles][4]) {
  hold_sums(c);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <typename Sum, int kTiles>
__device__ __forceinline__ void end_group_products(Sum (&c)[kTiles][4]) {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  hold_sums(c);
}

// c += a x tokens, of 8 tokens a tile; the sums must not be looked at before end_group_products().
#define GAPLESS_SUMS(c, kind) kind(c[0]), kind(c[1]), kind(c[2]), kind(c[3])
template <int kTiles>
__device__ __forceinline__ void multiply_group(float (&c)[kTiles][4], const uint4& a,
                                               uint64_t tokens) {
  static_assert(kTiles == 4 || kTiles == 8);
  if constexpr (kTiles == 4) {
    asm volatile(
        "{\n .reg .pred adds;\n setp.eq.u32 adds, 0, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16\n"
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},\n"
        " {%16,%17,%18,%19}, %20, adds, 1, 1, 0;\n}"
        : GAPLESS_SUMS(c[0], "+f"), GAPLESS_SUMS(c[1], "+f"), GAPLESS_SUMS(c[2], "+f"),
          GAPLESS_SUMS(c[3], "+f")
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(tokens));
  } else {
    asm volatile(
        "{\n .reg .pred adds;\n setp.eq.u32 adds, 0, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16\n"
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "  %16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},\n"
        " {%32,%33,%34,%35}, %36, adds, 1, 1, 0;\n}"
        : GAPLESS_SUMS(c[0], "+f"), GAPLESS_SUMS(c[1], "+f"), GAPLESS_SUMS(c[2], "+f"),
          GAPLESS_SUMS(c[3], "+f"), GAPLESS_SUMS(c[4], "+f"), GAPLESS_SUMS(c[5], "+f"),
          GAPLESS_SUMS(c[6], "+f"), GAPLESS_SUMS(c[7], "+f")
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(tokens));
  }
}
template <int kTiles>
__device__ __forceinline__ void multiply_group(int32_t (&c)[kTiles][4], const uint4& a,
                                               uint64_t tokens) {
  static_assert(kTiles == 4 || kTiles == 8);
  if constexpr (kTiles == 4) {
    asm volatile(
        "{\n .reg .pred adds;\n setp.eq.u32 adds, 0, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8\n"
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},\n"
        " {%16,%17,%18,%19}, %20, adds;\n}"
        : GAPLESS_SUMS(c[0], "+r"), GAPLESS_SUMS(c[1], "+r"), GAPLESS_SUMS(c[2], "+r"),
          GAPLESS_SUMS(c[3], "+r")
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(tokens));
  } else {
    asm volatile(
        "{\n .reg .pred adds;\n setp.eq.u32 adds, 0, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8\n"
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "  %16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},\n"
        " {%32,%33,%34,%35}, %36, adds;\n}"
        : GAPLESS_SUMS(c[0], "+r"), GAPLESS_SUMS(c[1], "+r"), GAPLESS_SUMS(c[2], "+r"),
          GAPLESS_SUMS(c[3], "+r"), GAPLESS_SUMS(c[4], "+r"), GAPLESS_SUMS(c[5], "+r"),
          GAPLESS_SUMS(c[6], "+r"), GAPLESS_SUMS(c[7], "+r")
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(tokens));
  }
}
#undef GAPLESS_SUMS

}  // namespace gapless::device
