// SPDX-License-Identifier: Apache-2.0
//
// Qwen3.8-27B: of four layers three have linear attention (gated delta rule) and one has full
// attention, and a draft layer runs three times a pass. 19 FusedInferAttentionScore, 67 SwiGlu and
// 220 QuantBatchMatmulV3 a pass, as measured; times are not.

#include "analysis/capture_kernels.h"

namespace gapless {
namespace {

constexpr int kLinearLayers = 3;  // before each with full attention
// What a pass of 2048 tokens takes, against decode.
constexpr int32_t kPrefillPermille = 8'000;

constexpr KernelModel kAddNorm =
    on_vector("AddRmsNormBias", "aclnnAddRmsNormBias_AddRmsNormBias_AddRmsNormBias", 4'600,
              {"T,5120;T,5120;5120;", "T,5120;T,1;T,5120"});
constexpr KernelModel kQuant =
    on_vector("AscendQuantV2", "aclnnAscendQuantV3_AscendQuantV2_AscendQuantV2", 4'900,
              {"T,5120;5120;5120", "T,5120"});
constexpr KernelModel kReduce = in_aiv_mode(collective("hcom_allReduce_", "812", 34'000, 21'000));

constexpr KernelModel quant_matmul(KernelShapes shapes) {
  return spread(
      100, on_cube("QuantBatchMatmulV3", "aclnnQuantMatmulV4_QuantBatchMatmulV3_QuantBatchMatmulV3",
                   61'000, shapes));
}

constexpr KernelModel kLinearBegin[] = {
    kAddNorm,
    on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 58'000,
            {"T,5120;5120,8192", "T,8192"}),
    on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 9'400, {"T,5120;5120,48", "T,48"}),
    on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 3'800, {"T,8192;2;2", "T,5120"}),
};
constexpr KernelModel kRecurrent[] = {
    on_vector("_causal_conv1d_update_kernel", "_causal_conv1d_update_kernel_0", 12'000,
              {"T,5120;5120,4;5120;P,5120,3;B", "T,5120"}),
    on_vector("fused_gdn_gating_kernel", "fused_gdn_gating_kernel_0", 4'300,
              {"24;T,24;T,24;24", "T,24"}),
    on_vector("fused_recurrent_gated_delta_rule_fwd_kernel",
              "fused_recurrent_gated_delta_rule_fwd_kernel_0", 31'000,
              {"1,T,8,128;1,T,8,128;1,T,24,128;1,T,24;1,T,24;P,24,128,128;B", "1,T,24,128"}),
};
constexpr KernelModel kChunked[] = {
    on_vector("_causal_conv1d_fwd_kernel", "_causal_conv1d_fwd_kernel_0", 90'000,
              {"5120,T;5120,4;5120;P,5120,3;B", "5120,T"}),
    on_vector("fused_gdn_gating_kernel", "fused_gdn_gating_kernel_0", 9'300,
              {"24;T,24;T,24;24", "T,24"}),
    on_vector("chunk_local_cumsum_scalar_kernel", "chunk_local_cumsum_scalar_kernel_0", 8'800,
              {"1,T,24", "1,T,24"}),
    on_both("chunk_scaled_dot_kkt_fwd_kernel", "chunk_scaled_dot_kkt_fwd_kernel_0", 66'000,
            {"1,T,8,128;1,T,24;1,T,24", "1,T,24,64"}),
    on_both("solve_tril_16x16_kernel", "solve_tril_16x16_kernel_0", 71'000,
            {"1,T,24,64", "1,T,24,64"}),
    on_both("recompute_w_u_fwd_kernel", "recompute_w_u_fwd_kernel_0", 83'000,
            {"1,T,8,128;1,T,24,128;1,T,24;1,T,24,64;1,T,24", "1,T,24,128;1,T,24,128"}),
    on_both("ChunkGatedDeltaRuleFwdH", "ChunkGatedDeltaRuleFwdH_mix_aic", 210'000,
            {"1,T,8,128;1,T,24,128;1,T,24,128;1,T,24;B,24,128,128", "1,B,24,128,128;1,T,24,128"}),
    on_both("ChunkFwdO", "ChunkFwdO_mix_aic", 120'000,
            {"1,T,8,128;1,T,8,128;1,T,24,128;1,B,24,128,128;1,T,24", "1,T,24,128"}),
};
constexpr KernelModel kLinearEnd[] = {
    on_vector("layer_norm_fwd_kernel", "layer_norm_fwd_kernel_0", 6'900,
              {"T,128;T,128;128", "T,128"}),
    kQuant,
    quant_matmul({"T,3072;3072,5120;5120;;5120", "T,5120"}),
    kReduce,
};
constexpr KernelModel kFull[] = {
    kAddNorm,
    kQuant,
    quant_matmul({"T,5120;5120,7168;7168;;7168", "T,7168"}),
    on_vector("split_qkv_rmsnorm_rope_kernel", "split_qkv_rmsnorm_rope_kernel_0", 15'000,
              {"T,7168;T,3072;T,512;T,512;256;256;T,64;T,64", "T,3072"}),
    on_vector("reshape_and_cache", "reshape_and_cache_200000000", 4'500,
              {"T,2,256;T,2,256;P,128,2,256;P,128,2,256;T", "P,128,2,256;P,128,2,256"}),
    anchor(spread(100, on_both("FusedInferAttentionScore",
                               "aclnnFusedInferAttentionScoreV3_FusedInferAttentionScore_"
                               "FusedInferAttentionScore",
                               74'000,
                               {"T,12,256;P,128,512;P,128,512;;2048,2048;B;B;;;;;;;;B,L"
                                ";;;;;;;;;;;;;;;;",
                                "T,12,256;"}))),
    on_vector("Sigmoid", "aclnnSigmoid_SigmoidAiCore_Sigmoid", 4'200, {"T,3072", "T,3072"}),
    on_vector("Mul", "aclnnMul_MulAiCore_Mul", 4'300, {"T,3072;T,3072", "T,3072"}),
    kQuant,
    quant_matmul({"T,3072;3072,5120;5120;;5120", "T,5120"}),
    kReduce,
};
constexpr KernelModel kMlp[] = {
    kAddNorm,
    kQuant,
    quant_matmul({"T,5120;5120,17408;17408;;17408", "T,17408"}),
    on_vector("SwiGlu", "aclnnSwiGlu_SwiGlu_SwiGlu", 6'100, {"T,17408", "T,8704"}),
    kQuant,
    quant_matmul({"T,8704;8704,5120;5120;;5120", "T,5120"}),
    kReduce,
};
constexpr KernelModel kBegin[] = {
    on_vector("GreaterEqual", "aclnnGeScalar_GreaterEqual_GreaterEqual", 2'100, {"T;", "T"}),
    on_vector("Less", "aclnnLtScalar_Less_Less", 2'100, {"T;", "T"}),
    on_vector("Sub", "aclnnSubs_SubAiCore_Sub", 2'100, {"T;", "T"}),
    on_vector("GatherV2", "aclnnEmbedding_GatherV2AiCore_GatherV2", 4'700,
              {"124160,5120;T;", "T,5120"}),
    in_aiv_mode(collective("hcom_allReduce_", "812", 40'000, 900'000)),
};
constexpr KernelModel kEnd[] = {
    kAddNorm,
    eager(on_vector("GatherV2", "aclnnIndex_GatherV2AiCore_GatherV2", 3'000,
                    {"T,5120;B;", "B,5120"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 390'000,
                  {"B,5120;5120,124160", "B,124160"})),
    at(KernelPlace::kLogitsCollective,
       in_aiv_mode(collective("hcom_allGather_", "813", 60'000, 30'000))),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 6'200, {"B,248320", "B,248320"})),
};
constexpr KernelModel kDraftBegin[] = {
    eager(on_vector("GatherV2", "aclnnEmbedding_GatherV2AiCore_GatherV2", 4'700,
                    {"124160,5120;T;", "T,5120"})),
    kReduce,
    eager(on_vector("ConcatD", "aclnnCat_ConcatD_ConcatD", 3'300, {"T,5120;T,5120", "T,10240"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 71'000,
                  {"T,10240;10240,5120", "T,5120"})),
};
constexpr KernelModel kDraftEnd[] = {
    kEnd[0],
    kEnd[1],
    kEnd[2],
    kEnd[3],
    eager(on_vector("ArgMaxV2", "aclnnArgMax_ArgMaxV2_ArgMaxV2", 110'000, {"B,248320;1", "B"})),
};

void add_layer(int layer, PassPhase phase, std::vector<PassPart>& parts) {
  const bool has_prefill = phase == PassPhase::kPrefill || phase == PassPhase::kMixed;
  const int32_t permille = has_prefill ? kPrefillPermille : 0;
  if (layer % (kLinearLayers + 1) == kLinearLayers) {
    add_part(parts, {.kernels = kFull, .prefill_permille = permille});
  } else {
    add_part(parts, {.kernels = kLinearBegin, .prefill_permille = permille});
    if (phase != PassPhase::kPrefill) add_part(parts, {.kernels = kRecurrent});
    if (has_prefill) add_part(parts, {.kernels = kChunked, .prefill_permille = 1000});
    add_part(parts, {.kernels = kLinearEnd, .prefill_permille = permille});
  }
  add_part(parts, {.kernels = kMlp, .prefill_permille = permille});
}

}  // namespace

void add_qwen_hybrid_parts(const CaptureModel& model, const PassShape& shape,
                           std::vector<PassPart>& parts) {
  add_part(parts, {.kernels = input_kernels()});
  add_part(parts, {.kernels = kBegin});
  for (int layer = 0; layer < model.layer_count; ++layer) add_layer(layer, shape.phase, parts);
  add_part(parts, {.kernels = kEnd, .role = PartRole::kSampling});
  add_part(parts, {.kernels = sampling_kernels(), .role = PartRole::kSampling});
  for (int32_t draft = 1; draft <= shape.draft_count; ++draft) {
    for (const std::span<const KernelModel> kernels :
         {std::span<const KernelModel>(kDraftBegin), std::span<const KernelModel>(kFull),
          std::span<const KernelModel>(kMlp), std::span<const KernelModel>(kDraftEnd)}) {
      add_part(parts, {.kernels = kernels, .role = PartRole::kDraft, .draft = draft});
    }
  }
}

}  // namespace gapless
