// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3: latent attention and mixture of experts, W8A8, the first 3 of 61 layers dense.
// Decode has 2306 rows a pass. Prefill has another attention kernel, once a layer and once more for
// each chunk of context: 61 or 122 a pass.

#include "analysis/capture_kernels.h"

namespace gapless {
namespace {

constexpr int kDenseLayers = 3;

// What the parts of one layer are built of, decode and prefill.
constexpr KernelModel kQuant =
    on_vector("AscendQuantV2", "aclnnAscendQuantV3_AscendQuantV2_AscendQuantV2", 10'100,
              {"T,7168;7168;7168", "T,7168"});
constexpr KernelModel kQuantOutput =
    on_vector("AscendQuantV2", "aclnnAscendQuantV3_AscendQuantV2_AscendQuantV2", 10'100,
              {"T,2048;2048;2048", "T,2048"});
constexpr KernelModel kDynamicQuant = on_vector(
    "DynamicQuant", "aclnnDynamicQuantV2_DynamicQuant_DynamicQuant", 3'500, {"T,7168", "T,7168;T"});
constexpr KernelModel kAddNorm =
    on_vector("AddRmsNormBias", "aclnnAddRmsNormBias_AddRmsNormBias_AddRmsNormBias", 3'900,
              {"T,7168;T,7168;7168;", "T,7168;T,1;T,7168"});
constexpr KernelModel kAdd =
    on_vector("Add", "aclnnAdd_AddAiCore_Add", 2'800, {"T,7168;T,7168;", "T,7168"});
constexpr KernelModel kSlice =
    on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 2'900, {"T,2112;2;2", "T,1536"});
constexpr KernelModel kCast =
    on_vector("Cast", "aclnnCast_CastAiCore_Cast", 2'400, {"T,1536", "T,1536"});
constexpr KernelModel kConcat =
    on_vector("ConcatD", "aclnnCat_ConcatD_ConcatD", 2'600, {"T,512;T,64", "T,576"});
constexpr KernelModel kMove =
    on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 2'200, {"T,576", "T,576"});
constexpr KernelModel kNormQ = on_vector("RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 3'600,
                                         {"T,1536;1536", "T,1536;T,1"});
constexpr KernelModel kFirstNorm = on_vector("RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 3'900,
                                             {"T,7168;7168", "T,7168;T,1"});

constexpr KernelModel quant_matmul(KernelShapes shapes, int64_t mean_ns = 23'700) {
  return spread(
      120, on_cube("QuantBatchMatmulV3", "aclnnQuantMatmulV4_QuantBatchMatmulV3_QuantBatchMatmulV3",
                   mean_ns, shapes));
}

constexpr KernelModel aiv(std::string_view type, int64_t mean_ns, int64_t wait_ns) {
  return in_aiv_mode(collective(type, "170", mean_ns, wait_ns));
}

// 685 ms a pass are collectives, most of it waiting for other ranks.
constexpr KernelModel kGather = aiv("hcom_allGather_", 180'000, 3'350'000);
constexpr KernelModel kScatter = aiv("hcom_reduceScatter_", 180'000, 3'550'000);
constexpr KernelModel kReduce = aiv("hcom_allReduce_", 180'000, 3'250'000);

// 19 rows behind the first norm.
constexpr KernelModel kAttention[] = {
    kQuant,
    quant_matmul({"T,7168;7168,2112;2112;;2112", "T,2112"}),
    kSlice,
    kNormQ,
    kQuant,
    quant_matmul({"T,1536;1536,3072;3072;;3072", "T,3072"}),
    kCast,
    on_vector("Transpose", "aclnnPermute_TransposeAiCore_Transpose", 17'100,
              {"T,16,192;3", "16,T,192"}),
    on_cube("BatchMatMulV2", "aclnnBatchMatMul_BatchMatMulV2_BatchMatMulV2", 8'600,
            {"16,T,128;16,128,512", "16,T,512"}),
    on_vector("InterleaveRope", "aclnnInterleaveRope_InterleaveRope_InterleaveRope", 8'300,
              {"T,16,1,64;T,1,1,64;T,1,1,64", "T,16,1,64"}),
    on_vector(
        "KvRmsNormRopeCache", "aclnnKvRmsNormRopeCache_KvRmsNormRopeCache_KvRmsNormRopeCache",
        4'600,
        {"T,1,1,576;512;T,1,1,64;T,1,1,64;T;P,128,1,64;P,128,1,512", "P,128,1,64;P,128,1,512"}),
    on_vector("TransData", "trans_TransData_6", 13'600, {"16,T,512", "16,T,512"}),
    on_vector("AsStrided", "aclnnAsStrided_AsStrided_AsStrided", 3'100,
              {"16,T,512;3;3;1", "T,16,512"}),
    kConcat,
    kMove,
    anchor(spread(80, on_both("FusedInferAttentionScore",
                              "aclnnFusedInferAttentionScoreV3_FusedInferAttentionScore_"
                              "FusedInferAttentionScore",
                              59'800,
                              {"B,16,Q,512;P,1,128,512;P,1,128,512;;;;B;;;;;;;;B,L;;;;;;;;;;"
                               "B,16,Q,64;P,1,128,64;;;;;",
                               "B,16,Q,512;"}))),
    on_cube("TransposeBatchMatMul", "aclnnTransposeBatchMatMul_TransposeBatchMatMul", 12'600,
            {"T,16,512;16,512,128;;", "T,16,128"}),
    kQuantOutput,
    quant_matmul({"T,2048;2048,7168;7168;;7168", "T,7168"}),
    kScatter,
    kGather,
};
// 5 rows.
constexpr KernelModel kDense[] = {
    on_vector("AddRmsNormDynamicQuant", "aclnnAddRmsNormDynamicQuant_AddRmsNormDynamicQuant", 4'400,
              {"T,7168;T,7168;7168;;", "T,7168;;T,7168;T;"}),
    kGather,
    quant_matmul({"T,7168;7168,4608;4608;;4608", "T,4608"}),
    on_vector("SwiGlu", "aclnnSwiGlu_SwiGlu_SwiGlu", 3'600, {"T,4608", "T,2304"}),
    kDynamicQuant,
    quant_matmul({"T,2304;2304,7168;7168;;7168", "T,7168"}),
    kScatter,
    kReduce,
    kGather,
};
// 11 rows.
constexpr KernelModel kMoe[] = {
    kAddNorm,
    on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 14'500, {"T,7168;7168,256", "T,256"}),
    on_vector("MoeGatingTopK", "aclnnMoeGatingTopK_MoeGatingTopK_MoeGatingTopK", 5'900,
              {"T,256;256", "T,8;T,8;T,256"}),
    kDynamicQuant,
    quant_matmul({"T,7168;7168,4096;4096;;4096", "T,4096"}),
    on_vector("SwiGlu", "aclnnSwiGlu_SwiGlu_SwiGlu", 3'600, {"T,4096", "T,2048"}),
    kDynamicQuant,
    quant_matmul({"T,2048;2048,7168;7168;;7168", "T,7168"}),
    kAdd,
    spread(250, on_both("DispatchFFNCombine", "aclnnDispatchFFNCombine_DispatchFFNCombine_mix_aic",
                        4'149'500,
                        {"T,7168;16,7168,4096;16,2048,7168;T,8;16,4096;16,7168;T,8", "T,7168"})),
    kAdd,
    kReduce,
};

constexpr KernelModel kFirstNormPart[] = {kFirstNorm};
constexpr KernelModel kNormPart[] = {kAddNorm};

// 10 rows; the first collective is that of the number of tokens of the other workers.
constexpr KernelModel kBegin[] = {
    in_aiv_mode(collective("hcom_allReduce_", "171", 60'000, 2'000'000)),
    on_vector("GreaterEqual", "aclnnGeScalar_GreaterEqual_GreaterEqual", 2'100, {"T;", "T"}),
    on_vector("Less", "aclnnLtScalar_Less_Less", 2'100, {"T;", "T"}),
    on_vector("Sub", "aclnnSubs_SubAiCore_Sub", 2'100, {"T;", "T"}),
    on_vector("Mul", "aclnnMul_MulAiCore_Mul", 2'100, {"T;T", "T"}),
    on_vector("GatherV2", "aclnnEmbedding_GatherV2AiCore_GatherV2", 4'100,
              {"16160,7168;T;", "T,7168"}),
    kReduce,
    on_vector("GatherV2", "aclnnIndexSelect_GatherV2AiCore_GatherV2", 2'900,
              {"163840,64;T;", "T,64"}),
    on_vector("GatherV2", "aclnnIndexSelect_GatherV2AiCore_GatherV2", 2'900,
              {"163840,64;T;", "T,64"}),
    on_vector("LogicalAnd", "aclnnLogicalAnd_LogicalAnd_LogicalAnd", 2'100, {"T;T", "T"}),
    on_vector("MaskedFill", "aclnnInplaceMaskedFillScalar_MaskedFill_MaskedFill", 2'600,
              {"T,7168;T,1;", "T,7168"}),
    kAdd,
};
// 11 rows.
constexpr KernelModel kEnd[] = {
    kAddNorm,
    kAdd,
    eager(on_vector("GatherV2", "aclnnIndex_GatherV2AiCore_GatherV2", 3'000,
                    {"T,7168;B;", "B,7168"})),
    eager(on_vector("Transpose", "aclnnPermute_TransposeAiCore_Transpose", 6'100,
                    {"B,7168;2", "B,7168"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 96'000,
                  {"B,7168;7168,16160", "B,16160"})),
    aiv("hcom_allGather_", 80'000, 400'000),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 4'200, {"B,129280", "B,129280"})),
    eager(on_vector("RealDiv", "aclnnDiv_RealDivAiCore_RealDiv", 4'200,
                    {"B,129280;B,1", "B,129280"})),
    eager(on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 3'000,
                    {"B,129280", "B,129280"})),
    eager(on_vector("Sub", "aclnnSubs_SubAiCore_Sub", 2'100, {"B;", "B"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 2'200, {"B", "B"})),
    eager(on_vector("Fill", "aclnnInplaceFillScalar_FillAiCore_Fill", 2'000, {"1;", "B"})),
};

// Prefill, at 4099 tokens. Collectives of the attention run on the AI CPU.
constexpr KernelModel kPrefillScatter =
    on_ai_cpu(collective("hcom_reduceScatter_", "170", 1'200'000, 900'000),
              "reduce_scatterAicpuKernel", 2'400'000);
constexpr KernelModel kPrefillGather = on_ai_cpu(
    collective("hcom_allGather_", "170", 1'200'000, 900'000), "allgatherAicpuKernel", 3'100'000);
constexpr KernelModel kPrefillReduce = aiv("hcom_allReduce_", 900'000, 700'000);
constexpr KernelModel kPrefillSlice =
    on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 21'000, {"T,16,192;3;3", "T,16,128"});
constexpr KernelModel kPrefillQuant =
    on_vector("AscendQuantV2", "aclnnAscendQuantV3_AscendQuantV2_AscendQuantV2", 96'000,
              {"T,7168;7168;7168", "T,7168"});

constexpr KernelModel ring_attention(std::string_view inputs, int64_t mean_ns) {
  return anchor(spread(80, on_both("RINGMLAPrefillBF16Kernel", "RINGMLAPrefillBF16Kernel_mix_aic",
                                   mean_ns, {inputs, "T,16,128;16,T"})));
}

// 21 rows behind the first norm, up to the attention to the context.
constexpr KernelModel kPrefillAttention[] = {
    kPrefillQuant,
    quant_matmul({"T,7168;7168,2112;2112;;2112", "T,2112"}, 410'000),
    kPrefillSlice,
    kPrefillSlice,
    on_vector("RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 41'000,
              {"T,1536;1536", "T,1536;T,1"}),
    kPrefillQuant,
    quant_matmul({"T,1536;1536,3072;3072;;3072", "T,3072"}, 180'000),
    kPrefillSlice,
    kPrefillSlice,
    on_vector("InterleaveRope", "aclnnInterleaveRope_InterleaveRope_InterleaveRope", 62'000,
              {"T,16,1,64;T,1,1,64;T,1,1,64", "T,16,1,64"}),
    on_vector(
        "KvRmsNormRopeCache", "aclnnKvRmsNormRopeCache_KvRmsNormRopeCache_KvRmsNormRopeCache",
        58'000,
        {"T,1,1,576;512;T,1,1,64;T,1,1,64;T;P,128,1,64;P,128,1,512", "P,128,1,64;P,128,1,512"}),
    on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 240'000, {"T,512;512,4096", "T,4096"}),
    kPrefillSlice,
    kPrefillSlice,
    kPrefillSlice,
    on_vector("Cast", "aclnnCast_CastAiCore_Cast", 33'000, {"T,16,128", "T,16,128"}),
    on_vector("BroadcastTo", "aclnnExpand_BroadcastTo_BroadcastTo", 28'000,
              {"T,1,64;3", "T,16,64"}),
    on_vector("ConcatD", "aclnnCat_ConcatD_ConcatD", 44'000, {"T,16,128;T,16,64", "T,16,192"}),
    on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 31'000, {"T,576", "T,576"}),
    on_vector("ZerosLike", "aclnnInplaceZero_ZerosLikeAiCore_ZerosLike", 18'000,
              {"T,16,128", "T,16,128"}),
    ring_attention("T,16,128;T,16,64;T,16,128;T,16,64;T,16,128;512,512;B;;", 1'450'000),
};
// 4 rows for each chunk.
constexpr KernelModel kContextAttention[] = {
    on_vector("PagedCacheLoad", "PagedCacheLoadKernel", 90'000,
              {"P,128,1,512;P,128,1,64;B,L;B;C,1,512;C,1,64", "C,1,512;C,1,64"}),
    on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 240'000, {"C,512;512,4096", "C,4096"}),
    on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 21'000, {"C,16,256;3;3", "C,16,128"}),
    ring_attention("T,16,128;T,16,64;C,16,128;C,16,64;C,16,128;512,512;2,B;T,16,128;16,T",
                   1'450'000),
};
// 4 rows.
constexpr KernelModel kPrefillOutput[] = {
    on_vector("Transpose", "aclnnPermute_TransposeAiCore_Transpose", 57'000,
              {"T,16,128;3", "T,16,128"}),
    on_vector("AscendQuantV2", "aclnnAscendQuantV3_AscendQuantV2_AscendQuantV2", 51'000,
              {"T,2048;2048;2048", "T,2048"}),
    quant_matmul({"T,2048;2048,7168;7168;;7168", "T,7168"}, 390'000),
    kPrefillScatter,
    kPrefillGather,
    on_vector("AsStrided", "aclnnAsStrided_AsStrided_AsStrided", 22'000,
              {"T,7168;2;2;1", "T,7168"}),
};
constexpr KernelModel kPrefillDense[] = {
    on_vector("AddRmsNormDynamicQuant", "aclnnAddRmsNormDynamicQuant_AddRmsNormDynamicQuant",
              71'000, {"T,7168;T,7168;7168;;", "T,7168;;T,7168;T;"}),
    kPrefillGather,
    quant_matmul({"T,7168;7168,4608;4608;;4608", "T,4608"}, 520'000),
    on_vector("SwiGlu", "aclnnSwiGlu_SwiGlu_SwiGlu", 48'000, {"T,4608", "T,2304"}),
    kDynamicQuant,
    quant_matmul({"T,2304;2304,7168;7168;;7168", "T,7168"}, 420'000),
    kPrefillScatter,
    kPrefillReduce,
    kPrefillGather,
};
constexpr KernelModel kPrefillMoe[] = {
    on_vector("AddRmsNormBias", "aclnnAddRmsNormBias_AddRmsNormBias_AddRmsNormBias", 66'000,
              {"T,7168;T,7168;7168;", "T,7168;T,1;T,7168"}),
    on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 160'000, {"T,7168;7168,256", "T,256"}),
    on_vector("MoeGatingTopK", "aclnnMoeGatingTopK_MoeGatingTopK_MoeGatingTopK", 39'000,
              {"T,256;256", "T,8;T,8;T,256"}),
    kDynamicQuant,
    quant_matmul({"T,7168;7168,4096;4096;;4096", "T,4096"}, 470'000),
    on_vector("SwiGlu", "aclnnSwiGlu_SwiGlu_SwiGlu", 44'000, {"T,4096", "T,2048"}),
    kDynamicQuant,
    quant_matmul({"T,2048;2048,7168;7168;;7168", "T,7168"}, 330'000),
    kAdd,
    spread(150, on_both("DispatchFFNCombine", "aclnnDispatchFFNCombine_DispatchFFNCombine_mix_aic",
                        10'840'000,
                        {"T,7168;16,7168,4096;16,2048,7168;T,8;16,4096;16,7168;T,8", "T,7168"})),
    kAdd,
    kPrefillReduce,
};

constexpr KernelModel kDraftBegin[] = {
    eager(on_vector("GatherV2", "aclnnEmbedding_GatherV2AiCore_GatherV2", 4'100,
                    {"16160,7168;T;", "T,7168"})),
    kReduce,
    eager(on_vector("ConcatD", "aclnnCat_ConcatD_ConcatD", 3'100, {"T,7168;T,7168", "T,14336"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 44'000,
                  {"T,14336;14336,7168", "T,7168"})),
};
constexpr KernelModel kDraftEnd[] = {
    eager(kAddNorm),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 96'000,
                  {"B,7168;7168,16160", "B,16160"})),
    aiv("hcom_allGather_", 80'000, 400'000),
    eager(on_vector("ArgMaxV2", "aclnnArgMax_ArgMaxV2_ArgMaxV2", 92'000, {"B,129280;1", "B"})),
};

void add_prefill_layer(bool is_dense, int context_chunks, std::vector<PassPart>& parts) {
  add_part(parts, {.kernels = kPrefillAttention, .prefill_permille = 1000});
  add_part(parts, {.kernels = kContextAttention, .prefill_permille = 1000}, context_chunks);
  add_part(parts, {.kernels = kPrefillOutput, .prefill_permille = 1000});
  add_part(parts, {.kernels = is_dense ? std::span<const KernelModel>(kPrefillDense)
                                       : std::span<const KernelModel>(kPrefillMoe),
                   .prefill_permille = 1000});
}

void add_decode_layer(bool is_dense, std::vector<PassPart>& parts) {
  add_part(parts, {.kernels = kAttention});
  add_part(parts, {.kernels = is_dense ? std::span<const KernelModel>(kDense)
                                       : std::span<const KernelModel>(kMoe)});
}

}  // namespace

void add_deepseek_v3_parts(const CaptureModel& model, const PassShape& shape,
                           std::vector<PassPart>& parts) {
  add_part(parts, {.kernels = input_kernels()});
  add_part(parts, {.kernels = kBegin});
  for (int layer = 0; layer < model.layer_count; ++layer) {
    const bool is_dense = layer < kDenseLayers;
    add_part(parts, {.kernels = layer == 0 ? std::span<const KernelModel>(kFirstNormPart)
                                           : std::span<const KernelModel>(kNormPart)});
    if (shape.phase == PassPhase::kPrefill) {
      add_prefill_layer(is_dense, shape.context_chunks, parts);
    } else {
      add_decode_layer(is_dense, parts);
    }
  }
  add_part(parts, {.kernels = kEnd, .role = PartRole::kSampling});
  add_part(parts, {.kernels = sampling_kernels(), .role = PartRole::kSampling});
  for (int32_t draft = 1; draft <= shape.draft_count; ++draft) {
    for (const std::span<const KernelModel> kernels :
         {std::span<const KernelModel>(kDraftBegin), std::span<const KernelModel>(kNormPart),
          std::span<const KernelModel>(kAttention), std::span<const KernelModel>(kMoe),
          std::span<const KernelModel>(kDraftEnd)}) {
      add_part(parts, {.kernels = kernels, .role = PartRole::kDraft, .draft = draft});
    }
  }
}

}  // namespace gapless
