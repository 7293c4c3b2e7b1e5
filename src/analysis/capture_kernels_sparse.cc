// SPDX-License-Identifier: Apache-2.0
//
// GLM-5.1: sparse attention with an indexer, mixture of experts, 78 layers of which 3 are dense,
// and a draft layer that runs twice a pass: 80 SparseFlashAttention rows in all, about 2800 rows.
// Which kernels there are is known; their order and times are not measured.

#include "analysis/capture_kernels.h"

namespace gapless {
namespace {

constexpr int kDenseLayers = 3;
// What a pass of 2500 tokens takes, against decode.
constexpr int32_t kPrefillPermille = 12'000;

constexpr KernelModel kAddNorm = on_vector("AddRmsNormBias", "AddRmsNormBias_#_high_performance_30",
                                           4'100, {"T,6144;T,6144;6144;", "T,6144;T,1;T,6144"});
constexpr KernelModel kDynamicQuant =
    on_vector("DynamicQuant", "DynamicQuant_#_high_performance_2", 3'600, {"T,6144", "T,6144;T"});
constexpr KernelModel kAdd =
    on_vector("Add", "Add_#_high_performance_101", 2'500, {"T,6144;T,6144;", "T,6144"});
constexpr KernelModel kSlice =
    on_vector("Slice", "Slice_#_high_performance_3", 2'300, {"T,2624;2;2", "T,2048"});
constexpr KernelModel kCast =
    on_vector("Cast", "Cast_#_high_performance_2", 2'000, {"T,128", "T,128"});

constexpr KernelModel quant_matmul(KernelShapes shapes) {
  return spread(100, on_cube("QuantBatchMatmulV3", "QuantBatchMatmulV3_#_high_performance_17",
                             18'900, shapes));
}

constexpr KernelModel aiv(std::string_view type, int64_t mean_ns, int64_t wait_ns) {
  return in_aiv_mode(collective(type, "364", mean_ns, wait_ns));
}

constexpr KernelModel kReduce = aiv("hcom_allReduce_", 28'000, 16'000);
constexpr KernelModel kScatter = aiv("hcom_reduceScatter_", 22'000, 12'000);
constexpr KernelModel kGather = aiv("hcom_allGather_", 20'000, 10'000);

// The prolog of the latent attention: one kernel in decode, several in prefill.
constexpr KernelModel kProlog[] = {
    on_both(
        "mla_preprocess", "mla_preprocess_0_mix_aic", 42'000,
        {"T,6144;6144;6144;6144,2624;2048;T,64;T,64;P,128,1,512;P,128,1,64;T", "T,64,512;T,64,64"}),
};
constexpr KernelModel kPrefillProlog[] = {
    on_vector("AscendQuantV2", "aclnnAscendQuantV3_AscendQuantV2_AscendQuantV2", 52'000,
              {"T,6144;6144;6144", "T,6144"}),
    quant_matmul({"T,6144;6144,2624;2624;;2624", "T,2624"}),
    kSlice,
    on_vector("RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 30'000,
              {"T,2048;2048", "T,2048;T,1"}),
    quant_matmul({"T,2048;2048,16384;16384;;16384", "T,16384"}),
    on_cube("BatchMatMulV2", "aclnnBatchMatMul_BatchMatMulV2_BatchMatMulV2", 160'000,
            {"64,T,192;64,192,512", "64,T,512"}),
    on_vector("InterleaveRope", "aclnnInterleaveRope_InterleaveRope_InterleaveRope", 40'000,
              {"T,64,1,64;T,1,1,64;T,1,1,64", "T,64,1,64"}),
    on_vector(
        "KvRmsNormRopeCache", "aclnnKvRmsNormRopeCache_KvRmsNormRopeCache_KvRmsNormRopeCache",
        41'000,
        {"T,1,1,576;512;T,1,1,64;T,1,1,64;T;P,128,1,64;P,128,1,512", "P,128,1,64;P,128,1,512"}),
};
// The indexer, the attention and its output: 17 rows.
constexpr KernelModel kAttention[] = {
    on_cube("MatMulV2", "MatMulV2_#_high_performance_20", 11'200, {"T,2048;2048,4096", "T,4096"}),
    on_cube("MatMulV2", "MatMulV2_#_high_performance_20", 9'100, {"T,6144;6144,128", "T,128"}),
    on_vector("LayerNormV3", "LayerNormV3_#_high_performance_400", 4'300,
              {"T,128;128;128", "T,128;T,1;T,1"}),
    kCast,
    kSlice,
    on_vector("InterleaveRope", "InterleaveRope_#_high_performance_1", 5'600,
              {"T,32,1,64;T,1,1,64;T,1,1,64", "T,32,1,64"}),
    on_vector("InterleaveRope", "InterleaveRope_#_high_performance_1", 4'400,
              {"T,1,1,64;T,1,1,64;T,1,1,64", "T,1,1,64"}),
    on_vector("ConcatD", "ConcatD_#_high_performance_4", 2'600, {"T,32,64;T,32,64", "T,32,128"}),
    on_vector("ConcatD", "ConcatD_#_high_performance_4", 2'300, {"T,64;T,64", "T,128"}),
    on_vector("ScatterNdUpdate", "ScatterNdUpdate_#_high_performance_103", 3'900,
              {"P,128,128;T,2;T,128", "P,128,128"}),
    on_cube("MatMulV2", "MatMulV2_#_high_performance_20", 7'900, {"T,6144;6144,32", "T,32"}),
    kCast,
    on_both("LightningIndexer", "LightningIndexer_#_high_performance_0_mix_aic", 21'500,
            {"T,32,128;P,128,1,128;T,32;B;B;B,L", "T,1,2048"}),
    anchor(spread(
        90,
        on_both(
            "SparseFlashAttention", "SparseFlashAttention_#_high_performance_0_mix_aic", 54'000,
            {"T,64,512;P,128,1,512;P,128,1,512;T,1,2048;B,L;B;B;T,64,64;P,128,1,64", "T,64,512"}))),
    on_cube("TransposeBatchMatMul", "TransposeBatchMatMul_#_high_performance_1", 11'700,
            {"T,64,512;64,512,256;;", "T,64,256"}),
    on_vector("AscendQuantV2", "AscendQuantV2_#_high_performance_1", 4'200,
              {"T,16384;16384;16384", "T,16384"}),
    quant_matmul({"T,16384;16384,6144;6144;;6144", "T,6144"}),
    kScatter,
    kGather,
};
constexpr KernelModel kDense[] = {
    kAddNorm,
    kDynamicQuant,
    quant_matmul({"T,6144;6144,1536;1536;;1536", "T,1536"}),
    on_vector("SwiGlu", "SwiGlu_#_high_performance_2", 3'500, {"T,1536", "T,768"}),
    kDynamicQuant,
    quant_matmul({"T,768;768,6144;6144;;6144", "T,6144"}),
    kReduce,
};
// 11 rows.
constexpr KernelModel kMoe[] = {
    kAddNorm,
    kCast,
    on_cube("MatMulV2", "MatMulV2_#_high_performance_20", 9'600, {"T,6144;6144,256", "T,256"}),
    on_vector("MoeGatingTopK", "MoeGatingTopK_#_high_performance_0", 5'700,
              {"T,256;256", "T,8;T,8;T,256"}),
    kDynamicQuant,
    quant_matmul({"T,6144;6144,4096;4096;;4096", "T,4096"}),
    on_vector("SwiGlu", "SwiGlu_#_high_performance_2", 3'500, {"T,4096", "T,2048"}),
    kDynamicQuant,
    quant_matmul({"T,2048;2048,6144;6144;;6144", "T,6144"}),
    spread(200, on_both("DispatchFFNCombine", "DispatchFFNCombine_#_mix_aic", 172'000,
                        {"T,6144;16,6144,4096;16,2048,6144;T,8;16,4096;16,6144;T,8", "T,6144"})),
    kAdd,
};
constexpr KernelModel kPrefillMoeTail[] = {
    in_aiv_mode(collective("hcom_alltoall_", "365", 60'000, 30'000)),
    on_vector("Transpose", "aclnnPermute_TransposeAiCore_Transpose", 26'000,
              {"T,6144;2", "T,6144"}),
};

constexpr KernelModel kNormPart[] = {kAddNorm};
constexpr KernelModel kFirstNormPart[] = {
    on_vector("RmsNorm", "RmsNorm_#_high_performance_30", 4'000, {"T,6144;6144", "T,6144;T,1"})};
constexpr KernelModel kBegin[] = {
    on_vector("GreaterEqual", "GreaterEqual_#_high_performance_101", 1'900, {"T;", "T"}),
    on_vector("Less", "Less_#_high_performance_101", 1'900, {"T;", "T"}),
    on_vector("Sub", "Sub_#_high_performance_101", 1'900, {"T;", "T"}),
    on_vector("GatherV2", "GatherV2_#_high_performance_330", 3'800, {"9680,6144;T;", "T,6144"}),
    aiv("hcom_allReduce_", 30'000, 2'400'000),
    on_vector("GatherV2", "GatherV2_#_high_performance_331", 2'700, {"202752,64;T;", "T,64"}),
    on_vector("GatherV2", "GatherV2_#_high_performance_331", 2'700, {"202752,64;T;", "T,64"}),
};
constexpr KernelModel kEnd[] = {
    kAddNorm,
    eager(on_vector("GatherV2", "aclnnIndex_GatherV2AiCore_GatherV2", 3'000,
                    {"T,6144;T;", "T,6144"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 71'000,
                  {"T,6144;6144,9680", "T,9680"})),
    at(KernelPlace::kLogitsCollective,
       in_aiv_mode(collective("hcom_allGather_", "718", 40'000, 20'000))),
    eager(on_vector("Slice", "aclnnSlice_SliceAiCore_Slice", 4'400, {"T,154880;2;2", "T,154880"})),
    eager(on_vector("Cast", "aclnnCast_CastAiCore_Cast", 4'200, {"T,154880", "T,154880"})),
};
// Greedy sampling and the check of what the drafts said.
constexpr KernelModel kVerify[] = {
    sampling(on_vector("ArgMaxV2", "aclnnArgMax_ArgMaxV2_ArgMaxV2", 96'000, {"T,154880;1", "T"})),
    sampling(on_vector("Equal", "aclnnEqTensor_Equal_Equal", 2'400, {"T;T", "T"})),
    sampling(on_vector("rejection_greedy_sample_kernel", "rejection_greedy_sample_kernel_0", 6'200,
                       {"B,3;B;T;T;B", "B,3"})),
    sampling(on_vector("Cumsum", "aclnnCumsum_Cumsum_Cumsum", 3'800, {"B;", "B"})),
    sampling(on_vector("Sub", "aclnnSub_SubAiCore_Sub", 2'200, {"B;B;", "B"})),
};
constexpr KernelModel kDraftBegin[] = {
    eager(on_vector("GatherV2", "aclnnEmbedding_GatherV2AiCore_GatherV2", 3'800,
                    {"9680,6144;T;", "T,6144"})),
    kReduce,
    eager(on_vector("RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 4'000,
                    {"T,6144;6144", "T,6144;T,1"})),
    eager(on_vector("RmsNorm", "aclnnRmsNorm_RmsNormAiCore_RmsNorm", 4'000,
                    {"T,6144;6144", "T,6144;T,1"})),
    eager(on_vector("ConcatD", "aclnnCat_ConcatD_ConcatD", 3'000, {"T,6144;T,6144", "T,12288"})),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 38'000,
                  {"T,12288;12288,6144", "T,6144"})),
};
constexpr KernelModel kDraftEnd[] = {
    eager(kAddNorm),
    eager(on_cube("MatMulV2", "aclnnMatmul_MatMulCommon_MatMulV2", 71'000,
                  {"B,6144;6144,9680", "B,9680"})),
    at(KernelPlace::kLogitsCollective,
       in_aiv_mode(collective("hcom_allGather_", "718", 40'000, 20'000))),
    eager(on_vector("ArgMaxV2", "aclnnArgMax_ArgMaxV2_ArgMaxV2", 88'000, {"B,154880;1", "B"})),
};

void add_layer(bool is_dense, bool is_prefill, PassPart part, std::vector<PassPart>& parts) {
  part.prefill_permille = is_prefill ? kPrefillPermille : 0;
  part.kernels = is_prefill ? std::span<const KernelModel>(kPrefillProlog) : kProlog;
  add_part(parts, part);
  part.kernels = kAttention;
  add_part(parts, part);
  part.kernels = is_dense ? std::span<const KernelModel>(kDense) : kMoe;
  add_part(parts, part);
  if (is_dense || !is_prefill) return;
  part.kernels = kPrefillMoeTail;
  add_part(parts, part);
}

}  // namespace

void add_glm_parts(const CaptureModel& model, const PassShape& shape,
                   std::vector<PassPart>& parts) {
  const bool is_prefill = shape.phase == PassPhase::kPrefill;
  add_part(parts, {.kernels = input_kernels()});
  add_part(parts, {.kernels = kBegin});
  for (int layer = 0; layer < model.layer_count; ++layer) {
    add_part(parts,
             {.kernels = layer == 0 ? std::span<const KernelModel>(kFirstNormPart) : kNormPart});
    add_layer(layer < kDenseLayers, is_prefill, {}, parts);
  }
  add_part(parts, {.kernels = kEnd, .role = PartRole::kSampling});
  add_part(parts, {.kernels = kVerify, .role = PartRole::kSampling});
  for (int32_t draft = 1; draft <= shape.draft_count; ++draft) {
    add_part(parts, {.kernels = kDraftBegin, .role = PartRole::kDraft, .draft = draft});
    add_part(parts, {.kernels = kNormPart, .role = PartRole::kDraft, .draft = draft});
    add_layer(false, false, {.kernels = {}, .role = PartRole::kDraft, .draft = draft}, parts);
    add_part(parts, {.kernels = kDraftEnd, .role = PartRole::kDraft, .draft = draft});
  }
}

}  // namespace gapless
