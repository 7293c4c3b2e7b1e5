// SPDX-License-Identifier: Apache-2.0
//
// Qwen3-32B over 16 ranks: decode as one captured graph (951 rows a pass), prefill launched kernel
// by kernel with its collectives on the AI CPU (1272 rows a pass).

#include "analysis/capture_kernels.h"

namespace gapless {
namespace {

constexpr std::string_view kAttentionInputs =
    "T,4,128;P,128,128;P,128,128;;2048,2048;B;B;;;;;;;;B,L;;;;;;;;;;;;;;;;";
constexpr std::string_view kPrefillAttentionInputs =
    "T,4,128;T,1,128;T,1,128;;2048,2048;B;B;;;;;;;;;;;;;;;;;;;;;;;;";

constexpr KernelModel kAllReduce =
    in_aiv_mode(collective("hcom_allReduce_", "503", 25'000, 16'000));
constexpr KernelModel kLogitsGather =
    at(KernelPlace::kLogitsCollective,
       in_aiv_mode(collective("hcom_allGather_", "718", 40'000, 20'000)));

constexpr KernelModel kQkv = spread(60, on_cube("MatMulV2", "MatMulV2_#_high_performance_20",
                                                20'600, {"T,5120;5120,768", "T,768"}));
constexpr KernelModel kReshapeAndCache =
    on_vector("reshape_and_cache", "reshape_and_cache_200000000", 4'200,
              {"T,1,128;T,1,128;P,128,1,128;P,128,1,128;T", "P,128,1,128;P,128,1,128"});
constexpr KernelModel kAttention = anchor(
    spread(80, on_both("FusedInferAttentionScore",
                       "FusedInferAttentionScore_#_high_performance_10000000000222331_mix_aic",
                       61'200, {kAttentionInputs, "T,4,128;"})));
constexpr KernelModel kOutput =
    on_cube("MatMulV2", "MatMulV2_NDNZ_ND_FP16_FP16_false_true_all_229955", 8'600,
            {"T,512;512,5120", "T,5120"});
constexpr KernelModel kAddNorm = on_vector("AddRmsNormBias", "AddRmsNormBias_#_high_performance_30",
                                           5'300, {"T,5120;T,5120;5120;", "T,5120;T,1;T,5120"});
constexpr KernelModel kNorm =
    on_vector("RmsNorm", "RmsNorm_#_high_performance_30", 4'800, {"T,5120;5120", "T,5120;T,1"});
constexpr KernelModel kHeadNorm =
    on_vector("RmsNorm", "RmsNorm_#_high_performance_31", 3'900, {"T,4,128;128", "T,4,128;T,4,1"});
constexpr KernelModel kRope =
    on_vector("_triton_rope", "_triton_rope_1", 6'200, {"T,4,128;T,1,128;T,128;T,128", "T,4,128"});
constexpr KernelModel kSplit =
    on_vector("split_qkv_rmsnorm_rope_kernel", "split_qkv_rmsnorm_rope_kernel_0", 13'800,
              {"T,768;T,512;T,128;T,128;128;128;T,128;T,128", "T,512"});
constexpr KernelModel kGateUp = spread(60, on_cube("MatMulV2", "MatMulV2_#_high_performance_20",
                                                   20'600, {"T,5120;5120,3200", "T,3200"}));
constexpr KernelModel kSwiGlu =
    on_vector("SwiGlu", "SwiGlu_#_high_performance_2", 5'200, {"T,3200", "T,1600"});
constexpr KernelModel kDown = spread(60, on_cube("MatMulV2", "MatMulV2_#_high_performance_20",
                                                 20'600, {"T,1600;1600,5120", "T,5120"}));

// 14 rows on the graph's stream, and the collective that waits for the slowest rank.
constexpr KernelModel kGraphHead[] = {
    on_vector("GreaterEqual", "GreaterEqual_#_high_performance_101", 1'900, {"T;", "T"}),
    on_vector("Less", "Less_#_high_performance_101", 1'900, {"T;", "T"}),
    on_vector("LogicalAnd", "LogicalAnd_#_high_performance_101", 1'900, {"T;T", "T"}),
    on_vector("Sub", "Sub_#_high_performance_101", 1'900, {"T;", "T"}),
    on_vector("Mul", "Mul_#_high_performance_101", 1'900, {"T;T", "T"}),
    on_vector("GatherV2", "GatherV2_#_high_performance_330", 3'600, {"9496,5120;T;", "T,5120"}),
    on_vector("MaskedFill", "MaskedFill_#_high_performance_101", 2'400, {"T,5120;T,1;", "T,5120"}),
    in_aiv_mode(collective("hcom_allReduce_", "503", 40'000, 5'500'000)),
    on_vector("GatherV2", "GatherV2_#_high_performance_331", 2'700, {"40960,128;T;", "T,128"}),
    on_vector("GatherV2", "GatherV2_#_high_performance_331", 2'700, {"40960,128;T;", "T,128"}),
    on_vector("Slice", "Slice_#_high_performance_3", 2'200, {"T,128;2;2", "T,64"}),
    on_vector("Slice", "Slice_#_high_performance_3", 2'200, {"T,128;2;2", "T,64"}),
    on_vector("Cast", "Cast_#_high_performance_2", 1'900, {"T,64", "T,64"}),
    on_vector("Cast", "Cast_#_high_performance_2", 1'900, {"T,64", "T,64"}),
    on_vector("ConcatD", "ConcatD_#_high_performance_4", 2'300, {"T,64;T,64", "T,128"}),
};

// 12 rows: the first layer is not fused.
constexpr KernelModel kFirstLayer[] = {
    kNorm,      kQkv,     kHeadNorm, kHeadNorm, kRope, kReshapeAndCache, kAttention, kOutput,
    kAllReduce, kAddNorm, kGateUp,   kSwiGlu,   kDown, kAllReduce};
// 10 rows.
constexpr KernelModel kLayer[] = {kAddNorm,   kQkv,    kSplit,     kReshapeAndCache,
                                  kAttention, kOutput, kAllReduce, kAddNorm,
                                  kGateUp,    kSwiGlu, kDown,      kAllReduce};
// 4 rows.
constexpr KernelModel kGraphTail[] = {
    kAddNorm,
    on_vector("Slice", "Slice_#_high_performance_3", 2'200, {"T,5120;2;2", "B,5120"}),
    on_vector("Cast", "Cast_#_high_performance_2", 1'900, {"B,5120", "B,5120"}),
    on_vector("TensorMove", "TensorMove_#_high_performance_1", 1'900, {"B,5120", "B,5120"}),
};
// 7 rows.
constexpr KernelModel kHead[] = {
    eager(on_vector("GatherV2", "aclnnIndex_GatherV2AiCore_GatherV2", 3'000,
                    {"T,5120;B;", "B,5120"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 86'600,
                  {"B,5120;5120,9496", "B,9496"})),
    kLogitsGather,
    eager(on_vector("Transpose", "aclnnPermute_TransposeAiCore_Transpose", 5'900,
                    {"16,B,9496;3", "B,16,9496"})),
    eager(on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 4'400, {"B,151936;2;2", "B,151936"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 4'200, {"B,151936", "B,151936"})),
    eager(on_vector("RealDiv", "aclnnDiv_RealDivAiCore_RealDiv", 4'200,
                    {"B,151936;B,1", "B,151936"})),
    eager(on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 3'000,
                    {"B,151936", "B,151936"})),
};

constexpr KernelModel kDraftHead[] = {
    eager(on_vector("GatherV2", "aclnnEmbedding_GatherV2AiCore_GatherV2", 3'600,
                    {"9496,5120;T;", "T,5120"})),
    kAllReduce,
    eager(on_vector("ConcatD", "aclnnCat_ConcatD_ConcatD", 3'100, {"T,5120;T,5120", "T,10240"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 31'000,
                  {"T,10240;10240,5120", "T,5120"})),
};
constexpr KernelModel kDraftTail[] = {
    eager(on_vector("AddRmsNormBias", "aclnnAddRmsNormBias_AddRmsNormBias_AddRmsNormBias", 5'300,
                    {"T,5120;T,5120;5120;", "T,5120;T,1;T,5120"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 86'600,
                  {"B,5120;5120,9496", "B,9496"})),
    kLogitsGather,
    eager(on_vector("ArgMaxV2", "aclnnArgMax_ArgMaxV2_ArgMaxV2", 92'000, {"B,151936;1", "B"})),
};

// Prefill: on the host's stream, at 4112 tokens. A wrapper ends where the next begins, which leaves
// 6.6 and 2.0 ms of these in the mean.
constexpr KernelModel kGather = on_ai_cpu(collective("hcom_allGather_", "503", 1'500'000, 420'000),
                                          "allgatherAicpuKernel", 7'400'000);
constexpr KernelModel kScatter =
    on_ai_cpu(collective("hcom_reduceScatter_", "503", 1'500'000, 420'000),
              "reduce_scatterAicpuKernel", 2'800'000);
constexpr KernelModel kPrefillNorm =
    eager(on_vector("AddRmsNormBias", "aclnnAddRmsNormBias_AddRmsNormBias_AddRmsNormBias", 108'500,
                    {"S,5120;S,5120;5120;", "S,5120;S,1;S,5120"}));
constexpr KernelModel kPrefillFirstNorm = eager(on_vector(
    "RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 98'000, {"S,5120;5120", "S,5120;S,1"}));
constexpr KernelModel kPrefillHeadNorm = eager(on_vector(
    "RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 240'000, {"T,4,128;128", "T,4,128;T,4,1"}));
constexpr KernelModel kPrefillQkv = eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2",
                                                  838'000, {"T,5120;5120,768", "T,768"}));
constexpr KernelModel kPrefillRope = eager(on_vector("_triton_rope", "_triton_rope_1", 420'000,
                                                     {"T,4,128;T,1,128;T,128;T,128", "T,4,128"}));
constexpr KernelModel kPrefillSplit =
    eager(on_vector("split_qkv_rmsnorm_rope_kernel", "split_qkv_rmsnorm_rope_kernel_0", 983'500,
                    {"T,768;T,512;T,128;T,128;128;128;T,128;T,128", "T,512"}));
constexpr KernelModel kPrefillCache =
    eager(on_vector("ReshapeAndCacheNdKernel", "ReshapeAndCacheNdKernel", 151'500,
                    {"T,1,128;T,1,128;P,128,1,128;P,128,1,128;T", "P,128,1,128;P,128,1,128"}));
constexpr KernelModel kPrefillMove = eager(
    on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 21'000, {"T,512", "T,512"}));
constexpr KernelModel kPrefillAttention =
    anchor(eager(spread(80, on_both("FusedInferAttentionScore",
                                    "aclnnFusedInferAttentionScoreV3_FusedInferAttentionScore_"
                                    "FusedInferAttentionScore",
                                    1'083'600, {kPrefillAttentionInputs, "T,4,128;"}))));
// Tokens of a sequence in decode need the cache: the attention has a block table.
constexpr KernelModel kMixedAttention =
    anchor(eager(spread(80, on_both("FusedInferAttentionScore",
                                    "aclnnFusedInferAttentionScoreV3_FusedInferAttentionScore_"
                                    "FusedInferAttentionScore",
                                    1'083'600, {kAttentionInputs, "T,4,128;"}))));
constexpr KernelModel kPrefillOutput = eager(on_cube(
    "MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 838'000, {"T,512;512,5120", "T,5120"}));
constexpr KernelModel kPrefillGateUp = eager(on_cube(
    "MatMulV3", "aclnnMatmul_MatMulV3Common_MatMulV3", 3'500'000, {"T,5120;5120,3200", "T,3200"}));
constexpr KernelModel kPrefillSwiGlu =
    eager(on_vector("SwiGlu", "aclnnSwiGlu_SwiGlu_SwiGlu", 281'000, {"T,3200", "T,1600"}));
constexpr KernelModel kPrefillDown = eager(on_cube(
    "MatMulV3", "aclnnMatmul_MatMulV3Common_MatMulV3", 2'151'200, {"T,1600;1600,5120", "T,5120"}));

// 14 rows of masks, embedding and rotary tables.
constexpr KernelModel kPrefillHead[] = {
    eager(on_vector("GreaterEqual", "aclnnGeScalar_GreaterEqual_GreaterEqual", 3'400, {"T;", "T"})),
    eager(on_vector("Less", "aclnnLtScalar_Less_Less", 3'400, {"T;", "T"})),
    eager(on_vector("LogicalAnd", "aclnnLogicalAnd_LogicalAnd_LogicalAnd", 3'400, {"T;T", "T"})),
    eager(on_vector("Sub", "aclnnSubs_SubAiCore_Sub", 3'400, {"T;", "T"})),
    eager(on_vector("Mul", "aclnnMul_MulAiCore_Mul", 3'400, {"T;T", "T"})),
    eager(on_vector("GatherV2", "aclnnEmbedding_GatherV2AiCore_GatherV2", 61'000,
                    {"9496,5120;T;", "T,5120"})),
    eager(on_vector("MaskedFill", "aclnnInplaceMaskedFillScalar_MaskedFill_MaskedFill", 48'000,
                    {"T,5120;T,1;", "T,5120"})),
    kScatter,
    eager(on_vector("GatherV2", "aclnnIndexSelect_GatherV2AiCore_GatherV2", 12'000,
                    {"40960,128;T;", "T,128"})),
    eager(on_vector("GatherV2", "aclnnIndexSelect_GatherV2AiCore_GatherV2", 12'000,
                    {"40960,128;T;", "T,128"})),
    eager(on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 8'000, {"T,128;2;2", "T,64"})),
    eager(on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 8'000, {"T,128;2;2", "T,64"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 7'000, {"T,64", "T,64"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 7'000, {"T,64", "T,64"})),
    eager(on_vector("ConcatD", "aclnnCat_ConcatD_ConcatD", 9'000, {"T,64;T,64", "T,128"})),
};
// 13 and 11 rows.
constexpr KernelModel kPrefillFirstLayer[] = {
    kPrefillFirstNorm, kGather,       kPrefillQkv,  kPrefillHeadNorm,  kPrefillHeadNorm,
    kPrefillRope,      kPrefillCache, kPrefillMove, kPrefillAttention, kPrefillOutput,
    kScatter,          kPrefillNorm,  kGather,      kPrefillGateUp,    kPrefillSwiGlu,
    kPrefillDown,      kScatter};
constexpr KernelModel kPrefillLayer[] = {
    kPrefillNorm, kGather,           kPrefillQkv,    kPrefillSplit, kPrefillCache,
    kPrefillMove, kPrefillAttention, kPrefillOutput, kScatter,      kPrefillNorm,
    kGather,      kPrefillGateUp,    kPrefillSwiGlu, kPrefillDown,  kScatter};
constexpr KernelModel kMixedFirstLayer[] = {
    kPrefillFirstNorm, kGather,       kPrefillQkv,  kPrefillHeadNorm, kPrefillHeadNorm,
    kPrefillRope,      kPrefillCache, kPrefillMove, kMixedAttention,  kPrefillOutput,
    kScatter,          kPrefillNorm,  kGather,      kPrefillGateUp,   kPrefillSwiGlu,
    kPrefillDown,      kScatter};
constexpr KernelModel kMixedLayer[] = {
    kPrefillNorm, kGather,         kPrefillQkv,    kPrefillSplit, kPrefillCache,
    kPrefillMove, kMixedAttention, kPrefillOutput, kScatter,      kPrefillNorm,
    kGather,      kPrefillGateUp,  kPrefillSwiGlu, kPrefillDown,  kScatter};
// 6 rows, and the gathering of all tokens.
constexpr KernelModel kPrefillTail[] = {
    kPrefillNorm,
    kGather,
    eager(on_vector("TensorMove", "aclnnInplaceCopy_TensorMove_TensorMove", 21'000,
                    {"T,5120", "T,5120"})),
    eager(on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 9'000, {"T,5120;2;2", "T,5120"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 9'000, {"T,5120", "T,5120"})),
    eager(on_vector("Sub", "aclnnSubs_SubAiCore_Sub", 3'000, {"B;", "B"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 3'000, {"B", "B"})),
};
// The same 7 rows as after decode, but nothing beside the summary of the logits' collective.
constexpr KernelModel kPrefillLogitsHead[] = {
    kHead[0],
    kHead[1],
    collective("hcom_allGather_", "718", 60'000, 40'000),
    kHead[3],
    kHead[4],
    kHead[5],
    kHead[6],
    eager(on_vector("Fill", "aclnnInplaceFillScalar_FillAiCore_Fill", 2'000, {"1;", "B"})),
};

}  // namespace

void add_qwen3_32b_parts(const CaptureModel& model, const PassShape& shape,
                         std::vector<PassPart>& parts) {
  const bool is_prefill = shape.phase == PassPhase::kPrefill || shape.phase == PassPhase::kMixed;
  const bool is_mixed = shape.phase == PassPhase::kMixed;
  add_part(parts, {.kernels = input_kernels()});
  if (is_prefill) {
    add_part(parts, {.kernels = kPrefillHead});
    add_part(parts, {.kernels = is_mixed ? std::span<const KernelModel>(kMixedFirstLayer)
                                         : std::span<const KernelModel>(kPrefillFirstLayer),
                     .prefill_permille = 1000});
    add_part(parts,
             {.kernels = is_mixed ? std::span<const KernelModel>(kMixedLayer)
                                  : std::span<const KernelModel>(kPrefillLayer),
              .prefill_permille = 1000},
             model.layer_count - 1);
    add_part(parts, {.kernels = kPrefillTail});
    add_part(parts, {.kernels = kPrefillLogitsHead, .role = PartRole::kSampling});
  } else {
    add_part(parts, {.kernels = kGraphHead});
    add_part(parts, {.kernels = kFirstLayer});
    add_part(parts, {.kernels = kLayer}, model.layer_count - 1);
    add_part(parts, {.kernels = kGraphTail});
    add_part(parts, {.kernels = kHead, .role = PartRole::kSampling});
  }
  add_part(parts, {.kernels = sampling_kernels(), .role = PartRole::kSampling});
  for (int32_t draft = 1; draft <= shape.draft_count; ++draft) {
    add_part(parts, {.kernels = kDraftHead, .role = PartRole::kDraft, .draft = draft});
    add_part(parts, {.kernels = kLayer, .role = PartRole::kDraft, .draft = draft});
    add_part(parts, {.kernels = kDraftTail, .role = PartRole::kDraft, .draft = draft});
  }
}

}  // namespace gapless
