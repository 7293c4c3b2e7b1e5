// SPDX-License-Identifier: Apache-2.0
//
// From numbers to a row kernel (rows.h): which form, and its launch. The kernels are in rows_*.cuh.

#include "cuda/rows_launch.h"

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

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
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (start.starts_early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (start.cluster_blocks > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(start.cluster_blocks), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(start.blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(start.stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, launch);
}

// Calls `choose` with true or false as a type.
template <typename Choose>
auto with_flag(bool flag, const Choose& choose) {
  return flag ? choose(std::true_type()) : choose(std::false_type());
}

template <typename T>
Kernel<EmbedLaunch> embed_kernel_of(bool is_recorded) {
  return is_recorded ? embed_kernel<T, true> : embed_kernel<T, false>;
}

template <int kVectors, int kParts>
Kernel<RowsLaunch> rows_kernel_of(const RowsForm& form, bool is_recorded) {
  return with_flag(form.has_norm, [&](auto norm) {
    return with_flag(form.is_s8, [&](auto s8) {
      return with_flag(is_recorded, [&](auto recorded) -> Kernel<RowsLaunch> {
        return rows_kernel<kVectors, kParts, decltype(norm)::value, decltype(s8)::value,
                           decltype(recorded)::value>;
      });
    });
  });
}

Kernel<RowsLaunch> whole_rows_kernel_of(const RowsForm& form, bool is_recorded) {
  if (form.vectors == 1) return rows_kernel_of<1, 1>(form, is_recorded);
  if (form.vectors == 3) return rows_kernel_of<3, 1>(form, is_recorded);
  if (form.vectors == 9) return rows_kernel_of<9, 1>(form, is_recorded);
  if (form.vectors == kRowsMaxVectors) return rows_kernel_of<kRowsMaxVectors, 1>(form, is_recorded);
  return nullptr;
}

Kernel<RowsLaunch> parted_rows_kernel_of(const RowsForm& form, bool is_recorded) {
  if (form.parts == 4 && form.vectors == 1) return rows_kernel_of<1, 4>(form, is_recorded);
  if (form.parts == 8 && form.vectors == 1) return rows_kernel_of<1, 8>(form, is_recorded);
  if (form.parts == 8 && form.vectors == 2) return rows_kernel_of<2, 8>(form, is_recorded);
  if (form.parts == 8 && form.vectors == 4) return rows_kernel_of<4, 8>(form, is_recorded);
  return nullptr;
}

template <typename T, int kHeadDim>
Kernel<HeadsLaunch> heads_kernel_of(HeadSteps steps, bool is_recorded) {
  return with_flag(is_recorded, [&](auto recorded) -> Kernel<HeadsLaunch> {
    constexpr bool kIsRecorded = decltype(recorded)::value;
    if (steps == HeadSteps::kAll) return heads_kernel<T, kHeadDim, HeadSteps::kAll, kIsRecorded>;
    if (steps == HeadSteps::kRope) return heads_kernel<T, kHeadDim, HeadSteps::kRope, kIsRecorded>;
    // In place in f32: the pages' type is none of its business.
    return heads_kernel<__nv_bfloat16, kHeadDim, HeadSteps::kNorm, kIsRecorded>;
  });
}

template <typename T>
Kernel<HeadsLaunch> heads_kernel_of(const HeadsForm& form, bool is_recorded) {
  if (form.head_dim == 64) return heads_kernel_of<T, 64>(form.steps, is_recorded);
  if (form.head_dim == 128) return heads_kernel_of<T, 128>(form.steps, is_recorded);
  if (form.head_dim == 256) return heads_kernel_of<T, 256>(form.steps, is_recorded);
  return nullptr;
}

template <PairOp kOp>
Kernel<PairLaunch> pair_kernel_of(bool is_recorded) {
  return is_recorded ? pair_kernel<kOp, true> : pair_kernel<kOp, false>;
}

}  // namespace

int embed_launch_kernel(DType table_dtype, const EmbedLaunch& launch, const RowsStart& start) {
  const bool is_recorded = launch.recorder.buffer != nullptr;
  Kernel<EmbedLaunch> kernel = nullptr;
  if (table_dtype == DType::kBf16) kernel = embed_kernel_of<__nv_bfloat16>(is_recorded);
  if (table_dtype == DType::kF16) kernel = embed_kernel_of<__half>(is_recorded);
  if (table_dtype == DType::kF32) kernel = embed_kernel_of<float>(is_recorded);
  return launch_kernel(kernel, kEmbedThreads, launch, start);
}

bool rows_have_parts() {
  constexpr int kFirstWithClusters = 90;
  cudaFuncAttributes attributes = {};
  const Kernel<RowsLaunch> kernel = rows_kernel<1, 8, false, true, false>;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  if (status == cudaSuccess) return attributes.ptxVersion >= kFirstWithClusters;
  static_cast<void>(cudaGetLastError());  // no device: the launch will say so
  return false;
}

int rows_launch_kernel(const RowsForm& form, const RowsLaunch& launch, const RowsStart& start) {
  const bool is_recorded = launch.recorder.buffer != nullptr;
  const Kernel<RowsLaunch> kernel = form.parts == 1 ? whole_rows_kernel_of(form, is_recorded)
                                                    : parted_rows_kernel_of(form, is_recorded);
  return launch_kernel(kernel, form.threads, launch, start);
}

int heads_launch_kernel(const HeadsForm& form, const HeadsLaunch& launch, const RowsStart& start) {
  const bool is_recorded = launch.recorder.buffer != nullptr;
  const Kernel<HeadsLaunch> kernel = form.dtype == DType::kF16
                                         ? heads_kernel_of<__half>(form, is_recorded)
                                         : heads_kernel_of<__nv_bfloat16>(form, is_recorded);
  return launch_kernel(kernel, kHeadsWarps * kWarpLanes, launch, start);
}

int pair_launch_kernel(PairOp op, const PairLaunch& launch, const RowsStart& start) {
  const bool is_recorded = launch.recorder.buffer != nullptr;
  const Kernel<PairLaunch> kernel = op == PairOp::kAdd
                                        ? pair_kernel_of<PairOp::kAdd>(is_recorded)
                                        : pair_kernel_of<PairOp::kSiluMultiply>(is_recorded);
  return launch_kernel(kernel, kPairThreads, launch, start);
}

int top_launch_kernel(const TopLaunch& launch, const RowsStart& start) {
  const Kernel<TopLaunch> kernel =
      launch.recorder.buffer != nullptr ? top_kernel<true> : top_kernel<false>;
  return launch_kernel(kernel, kTopThreads, launch, start);
}

}  // namespace gapless
