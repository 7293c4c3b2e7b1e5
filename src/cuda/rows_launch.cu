// SPDX-License-Identifier: Apache-2.0
//
// From numbers to a row kernel (rows.h): which form, and its launch. The kernels are in rows_*.cuh.

#include "cuda/rows_launch.h"

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "cuda/kernel_start.cuh"
#include "cuda/rows_elements.cuh"
#include "cuda/rows_heads.cuh"
#include "cuda/rows_norm.cuh"
#include "cuda/rows_top.cuh"

namespace gapless {
namespace {

using namespace gapless::device;

template <typename Launch>
using Kernel = void (*)(Launch);

template <typename Launch>
int launch_kernel(Kernel<Launch> kernel, int threads, const Launch& launch,
                  const RowsStart& start) {
  return start_kernel(kernel, launch,
                      {.blocks = start.blocks,
                       .threads = threads,
                       .cluster_blocks = start.cluster_blocks,
                       .starts_early = start.starts_early,
                       .stream = start.stream});
}

// Calls `choose` with true or false as a type.
template <typename Choose>
auto with_flag(bool flag, const Choose& choose) {
  return flag ? choose(std::true_type()) : choose(std::false_type());
}

template <typename T>
Kernel<EmbedLaunch> embed_kernel_of(RecordLevel level) {
  return with_level(level, [](auto constant) -> Kernel<EmbedLaunch> {
    return embed_kernel<T, decltype(constant)::value>;
  });
}

template <int kVectors, int kParts>
Kernel<RowsLaunch> rows_kernel_of(const RowsForm& form, RecordLevel level) {
  return with_flag(form.has_norm, [&](auto norm) {
    return with_flag(form.is_s8, [&](auto s8) {
      return with_level(level, [&](auto constant) -> Kernel<RowsLaunch> {
        return rows_kernel<kVectors, kParts, decltype(norm)::value, decltype(s8)::value,
                           decltype(constant)::value>;
      });
    });
  });
}

Kernel<RowsLaunch> whole_rows_kernel_of(const RowsForm& form, RecordLevel level) {
  if (form.vectors == 1) return rows_kernel_of<1, 1>(form, level);
  if (form.vectors == 3) return rows_kernel_of<3, 1>(form, level);
  if (form.vectors == 9) return rows_kernel_of<9, 1>(form, level);
  if (form.vectors == kRowsMaxVectors) return rows_kernel_of<kRowsMaxVectors, 1>(form, level);
  return nullptr;
}

Kernel<RowsLaunch> parted_rows_kernel_of(const RowsForm& form, RecordLevel level) {
  if (form.parts == 4 && form.vectors == 1) return rows_kernel_of<1, 4>(form, level);
  if (form.parts == 8 && form.vectors == 1) return rows_kernel_of<1, 8>(form, level);
  if (form.parts == 8 && form.vectors == 2) return rows_kernel_of<2, 8>(form, level);
  if (form.parts == 8 && form.vectors == 4) return rows_kernel_of<4, 8>(form, level);
  return nullptr;
}

template <typename T, int kHeadDim>
Kernel<HeadsLaunch> heads_kernel_of(HeadSteps steps, RecordLevel level) {
  return with_level(level, [&](auto constant) -> Kernel<HeadsLaunch> {
    constexpr RecordLevel kLevel = decltype(constant)::value;
    if (steps == HeadSteps::kAll) return heads_kernel<T, kHeadDim, HeadSteps::kAll, kLevel>;
    if (steps == HeadSteps::kRope) return heads_kernel<T, kHeadDim, HeadSteps::kRope, kLevel>;
    // In place in f32: the pages' type is none of its business.
    return heads_kernel<__nv_bfloat16, kHeadDim, HeadSteps::kNorm, kLevel>;
  });
}

template <typename T>
Kernel<HeadsLaunch> heads_kernel_of(const HeadsForm& form, RecordLevel level) {
  if (form.head_dim == 64) return heads_kernel_of<T, 64>(form.steps, level);
  if (form.head_dim == 128) return heads_kernel_of<T, 128>(form.steps, level);
  if (form.head_dim == 256) return heads_kernel_of<T, 256>(form.steps, level);
  return nullptr;
}

template <PairOp kOp>
Kernel<PairLaunch> pair_kernel_of(RecordLevel level) {
  return with_level(level, [](auto constant) -> Kernel<PairLaunch> {
    return pair_kernel<kOp, decltype(constant)::value>;
  });
}

}  // namespace

int embed_launch_kernel(DType table_dtype, const EmbedLaunch& launch, const RowsStart& start) {
  const RecordLevel level = launch.recorder.level;
  Kernel<EmbedLaunch> kernel = nullptr;
  if (table_dtype == DType::kBf16) kernel = embed_kernel_of<__nv_bfloat16>(level);
  if (table_dtype == DType::kF16) kernel = embed_kernel_of<__half>(level);
  if (table_dtype == DType::kF32) kernel = embed_kernel_of<float>(level);
  return launch_kernel(kernel, kEmbedThreads, launch, start);
}

int rows_launch_kernel(const RowsForm& form, const RowsLaunch& launch, const RowsStart& start) {
  const RecordLevel level = launch.recorder.level;
  const Kernel<RowsLaunch> kernel =
      form.parts == 1 ? whole_rows_kernel_of(form, level) : parted_rows_kernel_of(form, level);
  return launch_kernel(kernel, form.threads, launch, start);
}

int heads_launch_kernel(const HeadsForm& form, const HeadsLaunch& launch, const RowsStart& start) {
  const RecordLevel level = launch.recorder.level;
  const Kernel<HeadsLaunch> kernel = form.dtype == DType::kF16
                                         ? heads_kernel_of<__half>(form, level)
                                         : heads_kernel_of<__nv_bfloat16>(form, level);
  return launch_kernel(kernel, kHeadsWarps * kWarpLanes, launch, start);
}

int pair_launch_kernel(PairOp op, const PairLaunch& launch, const RowsStart& start) {
  const RecordLevel level = launch.recorder.level;
  const Kernel<PairLaunch> kernel = op == PairOp::kAdd
                                        ? pair_kernel_of<PairOp::kAdd>(level)
                                        : pair_kernel_of<PairOp::kSiluMultiply>(level);
  return launch_kernel(kernel, kPairThreads, launch, start);
}

int top_launch_kernel(const TopLaunch& launch, const RowsStart& start) {
  const Kernel<TopLaunch> kernel = with_level(
      launch.recorder.level,
      [](auto constant) -> Kernel<TopLaunch> { return top_kernel<decltype(constant)::value>; });
  return launch_kernel(kernel, kTopThreads, launch, start);
}

}  // namespace gapless
