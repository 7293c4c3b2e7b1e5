// SPDX-License-Identifier: Apache-2.0

#include "analysis/capture_models.h"

#include "analysis/capture_kernels.h"

namespace gapless {
namespace {

// 15 on the host's stream: positions, slots and tables of the next pass.
constexpr KernelModel kInputs[] = {
    eager(on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 2'100, {"B", "B"})),
    eager(on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 2'100, {"B", "B"})),
    eager(on_vector("Range", "aclnnArange_RangeAiCore_Range", 2'400, {";;", "T"})),
    eager(on_vector("GatherV2", "aclnnIndexSelect_GatherV2AiCore_GatherV2", 2'700, {"B;T;", "T"})),
    eager(on_vector("Add", "aclnnAdd_AddAiCore_Add", 2'200, {"T;T;", "T"})),
    eager(on_vector("Muls", "aclnnMuls_MulsAiCore_Muls", 2'300, {"T", "T"})),
    eager(on_vector("Add", "aclnnInplaceAdd_AddAiCore_Add", 2'200, {"T;T;", "T"})),
    eager(on_vector("GatherV2", "aclnnIndexSelect_GatherV2AiCore_GatherV2", 2'700, {"P;T;", "T"})),
    eager(on_vector("FloorMod", "aclnnRemainder_FloorMod_FloorMod", 2'600, {"T;", "T"})),
    eager(on_vector("FloorDiv", "aclnnFloorDivides_FloorDiv_FloorDiv", 2'600, {"T;", "T"})),
    eager(on_vector("GatherV2", "aclnnIndex_GatherV2AiCore_GatherV2", 2'900, {"B,L;T;", "T"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 2'000, {"T", "T"})),
    eager(on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 2'300, {"B,L;2;2", "B,L"})),
    eager(on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 2'100, {"B,L", "B,L"})),
    eager(on_vector("Fill", "aclnnInplaceFillScalar_FillAiCore_Fill", 2'000, {"1;", "T"})),
};

// 7 on the sampling stream.
constexpr KernelModel kSampling[] = {
    sampling(spread(80, on_both("ApplyTopKTopPCustom", "ApplyTopKTopPCustom_Sort_#_mix_aic",
                                234'500, {"B,151936;B;B", "B,151936"}))),
    sampling(on_vector("SoftmaxV2", "aclnnSoftmax_SoftmaxV2_SoftmaxV2", 52'700,
                       {"B,151936", "B,151936"})),
    sampling(kernel_on("DSA_SQE", "DSARandomUniform", "aclnnInplaceUniform_DSARandomUniform",
                       233'700, {"1;;;;", "B,151936"})),
    sampling(on_vector("Log", "aclnnLog_LogAiCore_Log", 3'000, {"B,151936", "B,151936"})),
    sampling(on_vector("Neg", "aclnnNeg_NegAiCore_Neg", 3'000, {"B,151936", "B,151936"})),
    sampling(on_vector("RealDiv", "aclnnDiv_RealDivAiCore_RealDiv", 3'000,
                       {"B,151936;B,151936", "B,151936"})),
    sampling(on_vector("ArgMaxV2", "aclnnArgMax_ArgMaxV2_ArgMaxV2", 139'600, {"B,151936;1", "B"})),
};

constexpr CaptureModel kModels[] = {
    {.name = "qwen3-32b",
     .description = "dense, 64 layers, BF16, TP16; decode as a graph, prefill with FlashComm",
     .layer_count = 64,
     .tensor_parallel = 16,
     .decode_sequences = 16,
     .prefill_tokens = 4112,
     .prefill_sequences = 1,
     .has_mixed = true,
     .streams = {148, 62, 71, 149, 67, 99},
     .split_permille = 1000,
     .lone_permille = 1000,
     .add_parts = add_qwen3_32b_parts},
    {.name = "deepseek-v3",
     .description = "MLA and mixture of experts, 61 layers, W8A8, TP8 DP2 EP16",
     .layer_count = 61,
     .tensor_parallel = 8,
     .decode_sequences = 4,
     .prefill_tokens = 4099,
     .prefill_sequences = 1,
     .has_context_chunks = true,
     .streams = {2, 2, 40, 37, 37, 69},
     .graph_gap_ns = 15'000,
     .eager_gap_ns = 15'000,
     .pass_gap_ns = 2'000'000,
     .lone_permille = 400,
     .add_parts = add_deepseek_v3_parts},
    {.name = "glm-5.1",
     .description = "sparse attention, 78 layers and 2 drafts: 80 anchors a pass",
     .layer_count = 78,
     .draft_count = 2,
     .tensor_parallel = 16,
     .decode_sequences = 1,
     .prefill_tokens = 2500,
     .prefill_sequences = 1,
     .streams = {148, 62, 71, 149, 67, 99},
     .split_permille = 500,
     .lone_permille = 500,
     .add_parts = add_glm_parts},
    {.name = "qwen3.8-27b",
     .description = "hybrid: 48 linear and 16 full attention layers, W8A8, TP2, 3 drafts",
     .layer_count = 64,
     .draft_count = 3,
     .tensor_parallel = 2,
     .decode_sequences = 8,
     .prefill_tokens = 2048,
     .prefill_sequences = 2,
     .has_mixed = true,
     .streams = {6, 62, 71, 149, 67, 99},
     .graph_gap_ns = 1'500,
     .add_parts = add_qwen_hybrid_parts},
};

}  // namespace

std::span<const KernelModel> input_kernels() { return kInputs; }
std::span<const KernelModel> sampling_kernels() { return kSampling; }

std::span<const CaptureModel> capture_models() { return kModels; }

const CaptureModel* find_capture_model(std::string_view name) {
  for (const CaptureModel& model : kModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::vector<PassPart> pass_parts(const CaptureModel& model, const PassShape& shape) {
  std::vector<PassPart> parts;
  model.add_parts(model, shape, parts);
  if (shape.is_dummy) {
    std::erase_if(parts, [](const PassPart& part) { return part.role == PartRole::kSampling; });
  }
  return parts;
}

}  // namespace gapless
