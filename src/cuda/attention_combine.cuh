// SPDX-License-Identifier: Apache-2.0
//
// From what the warps of a block hold at the end of a chunk to the output.
//
// The states of the tile lanes are merged in their order, and what comes out of the chunks of a
// pair (sequence, kv head) is folded in their order: rows of 8 chunks first, then the rows. A block
// that has all chunks of a pair does this in registers (PairFold). A pair of one row that is cut:
// the block with the front folds it and leaves it as one partial, the others leave one for each
// chunk and count it in. When the block with the last chunk finds that all others are counted in,
// it takes over what they left and goes on in registers; if it never does, the block that comes
// last folds them all. A pair of several rows that is cut: a block folds the rows that it has
// whole, and where it has some chunks of a row leaves each; who comes last for a row folds it, and
// who comes last with a row folds the rows. Who does it varies, what is computed does not: all ways
// fold alike.
//
// A partial is [group][head_dim] sums, then [group] maxima (of scores to the base 2), then [group]
// totals: as in kernels/attention.h.
//
// All this is done by warps of their own. They wait for memory, and under load that takes several
// microseconds a step: the warps that take tiles must not. (They did: 4 us a chunk.)

#pragma once

#include <cstdint>

#include "cuda/attention_launch.h"
#include "cuda/attention_schedule.cuh"
#include "cuda/attention_tiles.cuh"
#include "cuda/tensor_ops.cuh"
#include "cuda/waits.cuh"

namespace gapless::device {

inline constexpr int kVectorFloats = 4;
inline constexpr int kCombineBarrier = 1;

// What other blocks wrote, and this thread has been told of, comes before copies of it.
__device__ __forceinline__ void order_writes_before_global_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// What the combining warps of a block are to each other.
template <typename F>
struct CombineThreads {
  static constexpr int kVectors = F::kHeadDim / kVectorFloats;  // of a head
  // Vectors of a thread at most.
  static constexpr int kCount =
      (F::kQueryBlocks * 8 * kVectors + F::kCombineThreads - 1) / F::kCombineThreads;

  __device__ static void sync() { sync_threads(kCombineBarrier, F::kCombineThreads); }
  // Whether it is so in any of the threads; what they did before comes before what all do now.
  __device__ static bool sync_or(bool value) {
    uint32_t result;
    asm volatile(
        "{\n .reg .pred p, q;\n setp.ne.u32 p, %1, 0;\n bar.red.or.pred q, %2, %3, p;\n"
        " selp.u32 %0, 1, 0, q;\n}"
        : "=r"(result)
        : "r"(value ? 1 : 0), "r"(kCombineBarrier), "r"(F::kCombineThreads)
        : "memory");
    return result != 0;
  }
  // They are the last threads of the block.
  __device__ static int index() { return static_cast<int>(threadIdx.x) - F::kTileThreads; }

  // Where a thread's vector i lies, and whether there is one.
  __device__ static int vector_of(int i) { return index() + i * F::kCombineThreads; }
  __device__ static bool has_vector(const AttentionLaunch& launch, int i) {
    return vector_of(i) < launch.group_heads * kVectors;
  }
  // A vector for every i: where there is none, another one is taken once more, and not stored. A
  // branch would let the vectors of a thread wait for each other, and at the end of a block all
  // wait for the thread that has most.
  __device__ static int some_vector(const AttentionLaunch& launch, int i) {
    return min(vector_of(i), launch.group_heads * kVectors - 1);
  }
  __device__ static int head_of(int vector) { return vector / kVectors; }
  __device__ static int dim_of(int vector) { return vector % kVectors * kVectorFloats; }
};

// What parts are weighed against: 2 to the minus infinity is 0, but infinity less infinity is not.
__device__ __forceinline__ float base_of(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

// A maximum, and sums relative to it; nothing at all has maximum minus infinity.
struct Merged {
  float maximum = -INFINITY;
  float total = 0.0f;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};

  // Roundings are spelled out: the same sums are made in several places, and a compiler that joins
  // a product and a sum in one of them only would change bits.
  __device__ void fold(const Merged& part) {
    const float new_maximum = fmaxf(maximum, part.maximum);
    const float base = base_of(new_maximum);
    const float weight = power_of_two(maximum - base);
    maximum = new_maximum;
    total = __fmul_rn(total, weight);
    sum.x = __fmul_rn(sum.x, weight);
    sum.y = __fmul_rn(sum.y, weight);
    sum.z = __fmul_rn(sum.z, weight);
    sum.w = __fmul_rn(sum.w, weight);
    add(power_of_two(part.maximum - base), part.total, part.sum);
  }
  __device__ void add(float weight, float part_total, const float4& part) {
    total = __fmaf_rn(weight, part_total, total);
    sum.x = __fmaf_rn(weight, part.x, sum.x);
    sum.y = __fmaf_rn(weight, part.y, sum.y);
    sum.z = __fmaf_rn(weight, part.z, sum.z);
    sum.w = __fmaf_rn(weight, part.w, sum.w);
  }
};

// `vector` is a number in all of the output. What is not stored, of a rehearsal or for a vector
// that is not there, is worked out all the same.
template <typename T>
__device__ __forceinline__ void store_output(const AttentionLaunch& launch, int64_t vector,
                                             const Merged& merged, bool is_stored) {
  const float scale = merged.maximum == -INFINITY ? 0.0f : reciprocal(merged.total);
  // Where parts of a sum are too small for it, whether it is 0 or -0 depends on where they were
  // folded. Here it becomes 0.
  const float4 v = {__fmaf_rn(merged.sum.x, scale, 0.0f), __fmaf_rn(merged.sum.y, scale, 0.0f),
                    __fmaf_rn(merged.sum.z, scale, 0.0f), __fmaf_rn(merged.sum.w, scale, 0.0f)};
  if (launch.output_is_f32) {
    if (is_stored) static_cast<float4*>(launch.output)[vector] = v;
  } else {
    const uint2 packed = {pack_pair<T>(v.x, v.y), pack_pair<T>(v.z, v.w)};
    if (is_stored) static_cast<uint2*>(launch.output)[vector] = packed;
  }
}

__device__ __forceinline__ float* partial_at(const AttentionLaunch& launch, int64_t number) {
  return launch.partials + number * launch.partial_floats;
}

template <int HeadDim>
__device__ __forceinline__ void store_partial(const AttentionLaunch& launch, int64_t number,
                                              int head, int dim, const Merged& merged) {
  float* partial = partial_at(launch, number);
  *reinterpret_cast<float4*>(partial + head * HeadDim + dim) = merged.sum;
  if (dim == 0) {
    partial[launch.group_heads * HeadDim + head] = merged.maximum;
    partial[launch.group_heads * (HeadDim + 1) + head] = merged.total;
  }
}

// Partials that are folded in this order: one, then those from `rest` on, one in every `stride`.
struct PartialRange {
  int64_t first = 0;
  int64_t rest = 0;
  int stride = 0;
  int count = 0;  // with the first

  __device__ int64_t number(int index) const {
    return index == 0 ? first : rest + int64_t{stride} * (index - 1);
  }
};

// Shared memory that partials are copied to before they are folded: whole, and all at once.
struct PartialStage {
  float* memory;  // [capacity][partial_floats]
  uint32_t barrier;
  int capacity;
  uint32_t parity = 0;
};

// Where the query heads of the pair begin in q and in the output, in elements.
template <int HeadDim>
__device__ __forceinline__ int64_t first_element(const AttentionLaunch& launch,
                                                 const Cursor& cursor) {
  return (int64_t{cursor.sequence()} * launch.kv_heads + cursor.kv_head()) * launch.group_heads *
         HeadDim;
}

// What all tile lanes found, for four dims of a head.
template <typename F>
__device__ __forceinline__ Merged merge_lanes(const TileStates<F::kHeadDim>& states,
                                              int group_heads, int head, int dim) {
  float weights[F::kWarps];
  Merged merged;
#pragma unroll
  for (int lane = 0; lane < F::kWarps; ++lane) {
    weights[lane] = states.maxima[lane * kAttentionMaxGroup + head];
    merged.maximum = fmaxf(merged.maximum, weights[lane]);
  }
  const float base = base_of(merged.maximum);
#pragma unroll
  for (int lane = 0; lane < F::kWarps; ++lane) {
    weights[lane] = power_of_two(weights[lane] - base);
  }
#pragma unroll
  for (int lane = 0; lane < F::kWarps; ++lane) {
    const float4 sum = *reinterpret_cast<const float4*>(states.row(lane, group_heads, head) + dim);
    merged.add(weights[lane], states.totals[lane * kAttentionMaxGroup + head], sum);
  }
  return merged;
}

__device__ __forceinline__ bool is_one_row(const Cursor& cursor) {
  return cursor.chunk_count <= kAttentionRowChunks;
}
__device__ __forceinline__ bool ends_row_at(const Cursor& cursor) {
  return (cursor.chunk + 1) % kAttentionRowChunks == 0 || cursor.is_last_chunk();
}
__device__ __forceinline__ int row_begin_of(const Cursor& cursor) {
  return cursor.chunk / kAttentionRowChunks * kAttentionRowChunks;
}
__device__ __forceinline__ int row_end_of(const Cursor& cursor) {
  return min(row_begin_of(cursor) + kAttentionRowChunks, cursor.chunk_count);
}
__device__ __forceinline__ int rows_of(const Cursor& cursor) {
  return (cursor.chunk_count + kAttentionRowChunks - 1) / kAttentionRowChunks;
}
__device__ __forceinline__ int64_t first_partial(const Schedule& schedule, const Cursor& cursor) {
  return schedule.partial_begin[cursor.sequence()] + int64_t{cursor.kv_head()} * cursor.chunk_count;
}

// What a cut pair of one row has left when all chunks before `chunk_end` are there; `front` of them
// are in one partial.
__device__ __forceinline__ PartialRange partials_before(const Schedule& schedule,
                                                        const Cursor& cursor, int front,
                                                        int chunk_end) {
  const int64_t first = first_partial(schedule, cursor);
  return {first, first + front, 1, 1 + chunk_end - front};
}

// The chunks of the cursor's row, each left as a partial; and what became of all rows.
__device__ __forceinline__ PartialRange partials_of_row(const Schedule& schedule,
                                                        const Cursor& cursor) {
  const int begin = row_begin_of(cursor);
  const int64_t first = first_partial(schedule, cursor) + begin;
  return {first, first + 1, 1, row_end_of(cursor) - begin};
}
__device__ __forceinline__ PartialRange partials_of_rows(const Schedule& schedule,
                                                         const Cursor& cursor) {
  const int64_t first = first_partial(schedule, cursor);
  return {first, first + kAttentionRowChunks, kAttentionRowChunks, rows_of(cursor)};
}

// Counts `arrivals` in. True in the block with which they are `expected`; it then sees what the
// others wrote. The counter is 0 again for the next launch.
template <typename F>
__device__ __forceinline__ bool count_in(uint32_t* counter, int arrivals, int expected) {
  using Threads = CombineThreads<F>;
  Threads::sync();  // everything that this block wrote comes before the fence
  bool is_last = false;
  if (Threads::index() == 0) {
    // Releases what the block wrote, which the barrier ordered before, and acquires what others
    // did.
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(arrivals)
                 : "memory");
    is_last = before == static_cast<uint32_t>(expected - arrivals);
    if (is_last) *counter = 0;
  }
  return Threads::sync_or(is_last);
}

// Into the stage, and waits for them: partials `begin` to `begin + count` of the range.
template <typename F>
__device__ __forceinline__ void copy_partials(const AttentionLaunch& launch,
                                              const PartialRange& range, int begin, int count,
                                              PartialStage& stage) {
  if (CombineThreads<F>::index() < kWarpLanes) {
    order_writes_before_global_copies();
    start_copies(shared_address(stage.memory),
                 launch.partial_floats * static_cast<int>(sizeof(float)), count, stage.barrier,
                 [&](int piece) { return partial_at(launch, range.number(begin + piece)); });
  }
  wait_for_phase(stage.barrier, stage.parity, launch.wait_limit, DeviceWait::kAttentionPartials);
  stage.parity ^= 1;
}

// What a thread of the combining warps holds of the pair that the block is at: some vectors of four
// dims, and for each what the present row and the rows before it gave.
template <typename F>
class PairFold {
 public:
  using Threads = CombineThreads<F>;

  __device__ void add_chunk(const AttentionLaunch& launch, const TileStates<F::kHeadDim>& states) {
#pragma unroll
    for (int i = 0; i < Threads::kCount; ++i) {
      const int vector = Threads::some_vector(launch, i);
      row_[i].fold(merge_lanes<F>(states, launch.group_heads, Threads::head_of(vector),
                                  Threads::dim_of(vector)));
    }
  }
  // Goes on with what was left of a row, or of all rows; so far there is nothing of it here. All
  // combining threads have met since the stage was last used.
  __device__ void take_over(const AttentionLaunch& launch, const PartialRange& range,
                            PartialStage& stage) {
#pragma unroll 1
    for (int begin = 0; begin < range.count; begin += stage.capacity) {
      const int count = min(stage.capacity, range.count - begin);
      if (begin > 0) Threads::sync();  // the partials before are folded
      copy_partials<F>(launch, range, begin, count, stage);
#pragma unroll 1
      for (int part = 0; part < count; ++part) {
        const float* partial = stage.memory + part * launch.partial_floats;
        const float* maxima = partial + launch.group_heads * F::kHeadDim;
#pragma unroll
        for (int i = 0; i < Threads::kCount; ++i) {
          const int vector = Threads::some_vector(launch, i);
          const int head = Threads::head_of(vector);
          const float* sum = partial + vector * kVectorFloats;
          row_[i].fold({maxima[head], maxima[launch.group_heads + head],
                        *reinterpret_cast<const float4*>(sum)});
        }
      }
    }
  }
  // Of the present row, for another block to go on with, or for this one.
  __device__ void leave(const AttentionLaunch& launch, int64_t partial) {
#pragma unroll
    for (int i = 0; i < Threads::kCount; ++i) {
      const int vector = Threads::vector_of(i);
      if (Threads::has_vector(launch, i))
        store_partial<F::kHeadDim>(launch, partial, Threads::head_of(vector),
                                   Threads::dim_of(vector), row_[i]);
      row_[i] = Merged();
    }
  }
  // The row is complete.
  __device__ void end_row() {
#pragma unroll
    for (int i = 0; i < Threads::kCount; ++i) {
      rows_[i].fold(row_[i]);
      row_[i] = Merged();
    }
  }
  // All rows are.
  __device__ void store(const AttentionLaunch& launch, const Cursor& cursor, bool is_rehearsal) {
    const int64_t first = first_element<F::kHeadDim>(launch, cursor) / kVectorFloats;
#pragma unroll
    for (int i = 0; i < Threads::kCount; ++i) {
      store_output<typename F::T>(launch, first + Threads::vector_of(i), rows_[i],
                                  !is_rehearsal && Threads::has_vector(launch, i));
      rows_[i] = Merged();
    }
  }

 private:
  Merged row_[Threads::kCount];
  Merged rows_[Threads::kCount];
};

// Whether all chunks of the pair that this block does not have are counted in, asked again and
// again until the block's own chunk is there, which ends the phase. If so, it sees them, and nobody
// uses the counter any more: it is 0 again.
template <typename F>
__device__ inline bool others_are_done(const AttentionLaunch& launch, const Schedule& schedule,
                                       const Cursor& cursor, uint32_t barrier, uint32_t parity) {
  bool is_done = false;
  if (CombineThreads<F>::index() == 0) {
    uint32_t* counter = launch.counters + first_partial(schedule, cursor);
    const uint32_t expected = static_cast<uint32_t>(schedule.piece.begin.chunk);
    bool has_chunk = false;
    while (!is_done && !has_chunk) {  // the warps that take tiles wait for nobody
      has_chunk = is_phase_done(barrier, parity);
      uint32_t arrived;
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
      is_done = arrived == expected;
    }
    if (is_done) *counter = 0;
  }
  return CombineThreads<F>::sync_or(is_done);
}

}  // namespace gapless::device
