// SPDX-License-Identifier: Apache-2.0

#include "analysis/passes.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

using Words = std::vector<std::string_view>;

// One kernel after the other, each a microsecond.
struct TableBuilder {
  CaptureTable table;
  int64_t now_ns = 1'000'000;
  int32_t device = 0;
  int32_t stream = 2;
  KernelKind kind = KernelKind::kCompute;

  TableBuilder& add(const Words& types, int times = 1) {
    for (int i = 0; i < times; ++i) {
      for (const std::string_view type : types) {
        KernelRow row;
        row.start_ns = now_ns;
        row.duration_ns = 1000;
        row.device = device;
        row.stream = stream;
        row.type = table.names.intern(type);
        row.name = row.type;
        row.kind = kind;
        table.append(row);
        now_ns += 1100;
      }
    }
    return *this;
  }
  TableBuilder& wait(int64_t gap_ns) {
    now_ns += gap_ns;
    return *this;
  }
  uint32_t size() const { return static_cast<uint32_t>(table.size()); }
};

const Words kLayer = {"AddRmsNormBias", "MatMulV2", "FusedInferAttentionScore",
                      "MatMulV2",       "SwiGlu",   "MatMulV2"};
const Words kHead = {"Range", "EmbeddingLookup"};
const Words kTail = {"LmHead", "ArgMaxV2"};
const Words kDraft = {
    "EmbeddingLookup", "ConcatD", "AddRmsNormBias", "MatMulV2", "FusedInferAttentionScore",
    "MatMulV2",        "SwiGlu",  "MatMulV2",       "ArgMaxV2"};
constexpr uint32_t kLayerRows = 6;

void add_pass(TableBuilder& builder, int layers) {
  builder.add(kHead).add(kLayer, layers).add(kTail);
}

FoundPasses found_in(const CaptureTable& table, const PassOptions& options = {}) {
  Result<FoundPasses> found = find_passes(table, options);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  return found ? std::move(found).value() : FoundPasses();
}

const Finding* finding(const FoundPasses& found, std::string_view code) {
  for (const Finding& one : found.findings) {
    if (one.code == code) return &one;
  }
  return nullptr;
}

std::vector<uint32_t> anchor_counts(const FoundPasses& found) {
  std::vector<uint32_t> counts;
  for (const ForwardPass& pass : found.passes) counts.push_back(pass.anchor_count);
  return counts;
}

using Counts = std::vector<uint32_t>;

TEST(FindPasses, CutsBetweenSamplingAndInputs) {
  TableBuilder builder;
  for (int pass = 0; pass < 3; ++pass) add_pass(builder, 4);
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{4, 4, 4}));
  const uint32_t rows = 4 + 4 * kLayerRows;
  for (uint32_t i = 0; i < 3; ++i) {
    const ForwardPass& pass = found.passes[i];
    EXPECT_EQ(pass.index, i);
    EXPECT_EQ(pass.first_row, i * rows);
    EXPECT_EQ(pass.end_row, (i + 1) * rows);
    EXPECT_EQ(pass.first_anchor, i * rows + 4);
    EXPECT_EQ(pass.last_anchor, i * rows + 4 + 3 * kLayerRows);
    EXPECT_TRUE(pass.is_whole());
  }
  EXPECT_EQ(found.anchors_per_pass, 4u);
  EXPECT_EQ(builder.table.names[found.anchor], "FusedInferAttentionScore");
  EXPECT_TRUE(found.findings.empty());
}

TEST(FindPasses, Row31PartialFirstAndLastPassAreFlagged) {
  TableBuilder builder;
  builder.add({"SwiGlu", "MatMulV2"}).add(kLayer, 2).add(kTail);
  add_pass(builder, 5);
  add_pass(builder, 5);
  builder.add(kHead).add(kLayer, 3);
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{2, 5, 5, 3}));
  EXPECT_TRUE(found.passes[0].is_cut_at_start);
  EXPECT_FALSE(found.passes[0].is_cut_at_end);
  EXPECT_TRUE(found.passes[1].is_whole());
  EXPECT_TRUE(found.passes[2].is_whole());
  EXPECT_FALSE(found.passes[3].is_cut_at_start);
  EXPECT_TRUE(found.passes[3].is_cut_at_end);
  EXPECT_EQ(found.anchors_per_pass, 5u);
  ASSERT_NE(finding(found, "cut-passes"), nullptr);
  EXPECT_EQ(finding(found, "cut-passes")->count, 2u);
}

TEST(FindPasses, TheLastPassOfAFileThatBreaksOffIsCut) {
  TableBuilder builder;
  for (int pass = 0; pass < 3; ++pass) add_pass(builder, 4);
  EXPECT_TRUE(found_in(builder.table).passes[2].is_whole());
  builder.table.findings.push_back({Severity::kWarning, "row-cut-short", "a row", kNoIndex, 1});
  const FoundPasses found = found_in(builder.table);
  EXPECT_TRUE(found.passes[1].is_whole());
  EXPECT_TRUE(found.passes[2].is_cut_at_end);
}

TEST(FindPasses, ATableWithoutPassesIsAnError) {
  TableBuilder builder;
  for (const int runs : {3, 7, 1, 12, 5}) {
    builder.add({"Conv2D", "ReLU"}, runs).add({"Cast", "Fill", "Slice", "Range", "Log"});
  }
  const Result<FoundPasses> found = find_passes(builder.table);
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("no attention kernel"), std::string::npos)
      << found.error().message;
}

TEST(FindPasses, FlagsPassesThatMissOnlyWhatIsOutsideTheirLayers) {
  TableBuilder builder;
  builder.add({"EmbeddingLookup"}).add(kLayer, 4).add({"LmHead", "Softmax", "ArgMaxV2"});
  for (int pass = 0; pass < 2; ++pass) {
    builder.add(kHead).add(kLayer, 4).add({"LmHead", "ApplyTopKTopP", "ArgMaxV2"});
  }
  builder.add(kHead).add(kLayer, 4).add({"LmHead", "ApplyTopKTopP"});
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{4, 4, 4, 4}));
  EXPECT_TRUE(found.passes[0].is_cut_at_start);  // no Range
  EXPECT_TRUE(found.passes[1].is_whole());
  EXPECT_TRUE(found.passes[2].is_whole());
  EXPECT_TRUE(found.passes[3].is_cut_at_end);  // no ArgMaxV2
}

TEST(FindPasses, Row32AnchorsThatAreNoMultipleAreReportedAndNotRegrouped) {
  TableBuilder builder;
  builder.add(kLayer, 2).add(kTail);
  for (int pass = 0; pass < 3; ++pass) {
    add_pass(builder, 5);
    builder.add(kDraft, 2);
  }
  const FoundPasses found = found_in(builder.table, {.layers = 5});
  ASSERT_EQ(anchor_counts(found), (Counts{2, 5, 5, 5}));
  EXPECT_EQ(found.passes[0].draft_count, 0u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(found.passes[i].draft_count, 2u);
    EXPECT_EQ(found.passes[i].draft_anchor_count, 2u);
  }
  ASSERT_NE(finding(found, "anchor-remainder"), nullptr);
  EXPECT_EQ(finding(found, "anchor-remainder")->text,
            "23 anchors are 4 times 5 and 3 more: 2 are in 1 cut passes, 6 in 6 drafts");
  EXPECT_EQ(finding(found, "layers-differ"), nullptr);

  // By count the same anchors shift from pass to pass, and the rest is said to be one.
  const FoundPasses counted = found_in(builder.table, {.layers = 5, .method = PassMethod::kCount});
  EXPECT_EQ(anchor_counts(counted), (Counts{5, 5, 5, 5, 3}));
  EXPECT_TRUE(counted.passes.back().is_cut_at_end);
  ASSERT_NE(finding(counted, "anchor-remainder"), nullptr);
  EXPECT_EQ(finding(counted, "anchor-remainder")->count, 3u);
}

TEST(FindPasses, Row33IdlePassesArePassesOfTheirOwn) {
  TableBuilder builder;
  const Words inputs = {"Range", "FloorMod", "FloorDiv", "GatherV2"};
  Counts begins;
  for (int pass = 0; pass < 6; ++pass) {
    begins.push_back(builder.size());
    builder.add(inputs).add(kLayer, 8);
    if (pass != 1 && pass != 2 && pass != 5) builder.add(kTail);
  }
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{8, 8, 8, 8, 8, 8}));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(found.passes[i].first_row, begins[i]);
    EXPECT_TRUE(found.passes[i].is_whole());
  }
}

TEST(FindPasses, SeesTwoMicroBatchesWhereThirtyEightRowsStandForThirtyOne) {
  // 31 rows a layer, and once 38: rotary tables are made for the next micro-batch. Then comes the
  // backward pass, with attention kernels that are no anchors.
  Words layer = {"FlashAttentionScore",
                 "MatMulV3",
                 "Add",
                 "RmsNorm",
                 "MatMulV3",
                 "SwiGlu",
                 "MatMulV3",
                 "Add",
                 "RmsNorm",
                 "MatMulV3",
                 "Slice",
                 "RmsNorm",
                 "Slice",
                 "RmsNorm"};
  for (int i = 0; i < 2; ++i) {
    for (const std::string_view type :
         {"Cos", "Mul", "Cast", "Sin", "Mul", "Cast", "RotaryPositionEmbedding", "TensorMove"}) {
      layer.push_back(type);
    }
  }
  layer.push_back("Slice");
  ASSERT_EQ(layer.size(), 31u);
  TableBuilder builder;
  builder.add({"Transpose", "GatherV2", "RmsNorm"}).add(layer, 14);
  const uint32_t second = builder.size();
  builder.wait(6'000'000).add({"Transpose", "GatherV2", "Mul", "Mul", "Cast", "RmsNorm", "Slice"});
  builder.add(layer, 14).wait(6'000'000).add({"FlashAttentionScoreGrad", "MatMulV3"}, 14);
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{14, 14}));
  EXPECT_EQ(builder.table.names[found.anchor], "FlashAttentionScore");
  EXPECT_EQ(found.passes[1].first_row, second);
  ASSERT_NE(finding(found, "split-by-gap"), nullptr);
  EXPECT_EQ(finding(found, "split-by-gap")->count, 1u);
}

TEST(FindPasses, AnOddLayerIsNoBoundary) {
  Words odd = kLayer;
  odd[1] = "RmsNorm";
  odd.insert(odd.begin() + 1, {"RmsNorm", "_triton_rope"});
  const Words dense = {"AddRmsNormBias", "QuantMatmul", "FusedInferAttentionScore", "DenseFfn"};
  for (const Words& other : {odd, dense}) {
    for (const int passes : {1, 2, 5}) {
      for (const bool has_names : {true, false}) {
        TableBuilder builder;
        Counts begins;
        for (int pass = 0; pass < passes; ++pass) {
          begins.push_back(builder.size());
          const Words head = {"w1", "w2", "w3", "w4"};
          const Words tail = {"w5", "w6", "w7", "w8"};
          builder.add(has_names ? kHead : head).add(kLayer, 9).add(other).add(kLayer, 6);
          builder.add(has_names ? kTail : tail).wait(has_names ? 0 : 9000);
        }
        const FoundPasses found = found_in(builder.table);
        ASSERT_EQ(found.passes.size(), begins.size()) << passes << has_names;
        for (size_t i = 0; i < begins.size(); ++i) {
          EXPECT_EQ(found.passes[i].first_row, begins[i]);
          EXPECT_EQ(found.passes[i].anchor_count, 16u);
          EXPECT_TRUE(found.passes[i].is_whole());
        }
      }
    }
  }
}

TEST(FindPasses, KindsOfLayersThatAlternateAreNoBoundaries) {
  const Words linear = {"RmsNorm", "Conv", "recurrent_gated_delta_rule", "MatMulV2", "SwiGlu"};
  const Words chunk = {"PagedCacheLoad", "Slice", "FusedInferAttentionScore"};
  TableBuilder hybrid;
  TableBuilder chunked;
  for (int pass = 0; pass < 4; ++pass) {
    hybrid.add(kHead);
    chunked.add(kHead);
    for (int layer = 0; layer < 12; ++layer) {
      hybrid.add(linear, 3).add(kLayer);
      chunked.add({"AddRmsNormBias", "MatMulV2", "FusedInferAttentionScore"}).add(chunk);
      chunked.add({"MatMulV2", "SwiGlu", "MatMulV2"});
    }
    hybrid.add(kTail);
    chunked.add(kTail);
  }
  EXPECT_EQ(anchor_counts(found_in(hybrid.table)), (Counts{12, 12, 12, 12}));
  EXPECT_EQ(anchor_counts(found_in(hybrid.table, {.anchor = "recurrent_gated_delta_rule"})),
            (Counts{36, 36, 36, 36}));
  EXPECT_EQ(anchor_counts(found_in(chunked.table)), (Counts{24, 24, 24, 24}));
}

TEST(FindPasses, OrderBetweenStreamsAndKernelsOfCollectivesDoNotMatter) {
  TableBuilder builder;
  for (int pass = 0; pass < 3; ++pass) {
    builder.add(kHead);
    for (int layer = 0; layer < 8; ++layer) {
      const bool is_swapped = (layer + pass) % 3 == 0;
      builder.add({"FusedInferAttentionScore", is_swapped ? "SwiGlu" : "Shared",
                   is_swapped ? "Shared" : "SwiGlu"});
      builder.kind = KernelKind::kFragment;
      builder.add({"hcom_allReduce_"}, 1 + (layer * 7 + pass) % 3);
      builder.kind = KernelKind::kCompute;
    }
    builder.add(kTail);
  }
  EXPECT_EQ(anchor_counts(found_in(builder.table)), (Counts{8, 8, 8}));
}

TEST(FindPasses, DraftsBelongToThePassBefore) {
  TableBuilder builder;
  for (int pass = 0; pass < 3; ++pass) {
    add_pass(builder, 6);
    builder.add(kDraft, 3);
  }
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{6, 6, 6}));
  const uint32_t main_rows = 4 + 6 * kLayerRows;
  const uint32_t draft_rows = static_cast<uint32_t>(kDraft.size());
  for (uint32_t row = 0; row < builder.size(); ++row) {
    const uint32_t at = row % (main_rows + 3 * draft_rows);
    const uint32_t draft = at < main_rows ? 0 : 1 + (at - main_rows) / draft_rows;
    ASSERT_EQ(found.draft_of_row[row], draft) << row;
    const bool is_anchor =
        builder.table.names[builder.table.type[row]] == "FusedInferAttentionScore";
    ASSERT_EQ(found.is_anchor[row], !is_anchor ? 0 : draft == 0 ? 1 : 2) << row;
  }
}

TEST(FindPasses, ACaptureCanBeginInDraftsAndEndBeforeThem) {
  TableBuilder builder;
  builder.add(kDraft, 1);
  for (int pass = 0; pass < 4; ++pass) {
    add_pass(builder, 6);
    if (pass < 3) builder.add(kDraft, 2);
  }
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{0, 6, 6, 6, 6}));
  EXPECT_TRUE(found.passes[0].is_cut_at_start);
  EXPECT_EQ(found.passes[0].draft_count, 1u);
  EXPECT_EQ(found.passes[3].draft_count, 2u);
  EXPECT_TRUE(found.passes[4].is_cut_at_end);
}

TEST(FindPasses, PhasesCanHaveAnchorsOfTheirOwn) {
  Words prefill = kLayer;
  prefill[2] = "RINGMLAPrefillBF16Kernel";
  TableBuilder builder;
  for (int pass = 0; pass < 4; ++pass) {
    builder.add(kHead).add(pass == 1 ? prefill : kLayer, 10).add(kTail);
  }
  const FoundPasses found = found_in(builder.table);
  EXPECT_EQ(anchor_counts(found), (Counts{10, 10, 10, 10}));
  EXPECT_EQ(found.anchor_types.size(), 2u);
  ASSERT_NE(finding(found, "anchor-family"), nullptr);
  // One that was asked for stays alone: the other pass has none.
  const FoundPasses alone = found_in(builder.table, {.anchor = "RINGMLAPrefillBF16Kernel"});
  EXPECT_EQ(anchor_counts(alone), (Counts{10}));
}

TEST(FindPasses, TwoAttentionKernelsOfOneLayerAreOneAnchor) {
  TableBuilder builder;
  for (int pass = 0; pass < 3; ++pass) {
    builder.add({"embedding_kernel"});
    builder.add({"flash_fwd_splitkv_kernel", "flash_fwd_splitkv_combine_kernel", "gemm",
                 "sliding_attention", "gemm"},
                6);
    builder.add({"gemm", "argmax"});
  }
  const FoundPasses found = found_in(builder.table);
  EXPECT_EQ(anchor_counts(found), (Counts{6, 6, 6}));
  EXPECT_EQ(found.anchor_types.size(), 1u);
}

TEST(FindPasses, PrefersAttentionAndNeverTheIndexer) {
  const std::pair<Words, std::string_view> cases[] = {
      {{"LightningIndexer", "SparseFlashAttention", "SwiGlu"}, "SparseFlashAttention"},
      {{"LightningIndexer", "ChunkGatedDeltaRuleFwdH", "SwiGlu"}, "ChunkGatedDeltaRuleFwdH"},
      {{"LightningIndexer", "SwiGlu", "AddRmsNormBias"}, "SwiGlu"},
      {{"LightningIndexer", "MoeGatingTopK", "AddRmsNormBias"}, "MoeGatingTopK"},
      {{"gemm", "void flash::flash_fwd_kernel<traits>", "silu_and_mul"},
       "void flash::flash_fwd_kernel<traits>"},
      {{"gemm", "cutlass::device_kernel<flash::FlashAttnFwdSm90>", "merge_attn_states"},
       "cutlass::device_kernel<flash::FlashAttnFwdSm90>"},
      {{"gemm", "vllm::paged_attention_v2_kernel", "vllm::paged_attention_v2_reduce_kernel"},
       "vllm::paged_attention_v2_kernel"},
      {{"gemm", "flashinfer::BatchDecodeWithPagedKVCacheKernel", "flashinfer::norm::RMSNorm"},
       "flashinfer::BatchDecodeWithPagedKVCacheKernel"},
      {{"gemm", "fmha_v2_flash_attention", "add"}, "fmha_v2_flash_attention"},
      {{"gemm", "kernel_unified_attention_2d", "reshape_and_cache_flash"},
       "kernel_unified_attention_2d"},
      {{"gemm", "fa_fused", "add"}, "fa_fused"},
      {{"gemm", "attention", "add"}, "attention"},
  };
  for (const auto& [layer, anchor] : cases) {
    TableBuilder builder;
    for (int pass = 0; pass < 3; ++pass) builder.add(kHead).add(layer, 6).add(kTail);
    const FoundPasses found = found_in(builder.table);
    ASSERT_NE(found.anchor, kNoIndex);
    EXPECT_EQ(builder.table.names[found.anchor], anchor);
    EXPECT_EQ(anchor_counts(found), (Counts{6, 6, 6})) << anchor;
    ASSERT_FALSE(found.candidates.empty());
    EXPECT_EQ(found.candidates[0].count, 18u);
    EXPECT_NE(found.candidates[0].reason.find("18 rows"), std::string::npos);
  }
}

TEST(FindPasses, WithoutAKnownKernelTakesOneThatRecursEvenly) {
  TableBuilder builder;
  for (int pass = 0; pass < 4; ++pass) builder.add(kHead).add({"a", "b", "c"}, 9).add(kTail);
  EXPECT_EQ(anchor_counts(found_in(builder.table)), (Counts{9, 9, 9, 9}));
}

TEST(FindPasses, TheAnchorCanBeGivenByTypeOrNameInAnyCase) {
  TableBuilder builder;
  for (int pass = 0; pass < 3; ++pass) add_pass(builder, 4);
  for (const std::string wanted : {"SwiGlu", "swiglu", "swi_glu"}) {
    const FoundPasses found = found_in(builder.table, {.anchor = wanted});
    EXPECT_EQ(anchor_counts(found), (Counts{4, 4, 4})) << wanted;
    EXPECT_EQ(builder.table.names[found.anchor], "SwiGlu");
  }
  const uint32_t name = builder.table.names.intern("aclnnSwiGlu_SwiGlu_0");
  for (size_t row = 0; row < builder.table.size(); ++row) {
    if (builder.table.names[builder.table.type[row]] == "SwiGlu") builder.table.name[row] = name;
  }
  const FoundPasses found = found_in(builder.table, {.anchor = "aclnnSwiGlu_SwiGlu_0"});
  EXPECT_EQ(anchor_counts(found), (Counts{4, 4, 4}));
}

TEST(FindPasses, AnAnchorThatIsNotThereIsAnErrorThatNamesOthers) {
  TableBuilder builder;
  add_pass(builder, 4);
  const Result<FoundPasses> found = find_passes(builder.table, {.anchor = "PagedAttention"});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message,
            "no kernel of type or name PagedAttention among 28 rows; there is "
            "FusedInferAttentionScore (4 rows)");
}

TEST(FindPasses, NothingThatRecursIsAnError) {
  TableBuilder builder;
  EXPECT_FALSE(find_passes(builder.table).has_value());
  builder.add({"a", "b"});
  const Result<FoundPasses> found = find_passes(builder.table);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message, "no kernel among 2 rows comes more than once");
}

TEST(FindPasses, CountingNeedsANumberOfLayers) {
  TableBuilder builder;
  add_pass(builder, 4);
  const Result<FoundPasses> found = find_passes(builder.table, {.method = PassMethod::kCount});
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("it is 0"), std::string::npos);
}

TEST(FindPasses, ABeliefThatDoesNotHoldIsReportedWithBothNumbers) {
  TableBuilder builder;
  for (int pass = 0; pass < 3; ++pass) add_pass(builder, 4);
  const FoundPasses found = found_in(builder.table, {.layers = 6});
  EXPECT_EQ(anchor_counts(found), (Counts{4, 4, 4}));
  ASSERT_NE(finding(found, "layers-differ"), nullptr);
  EXPECT_EQ(finding(found, "layers-differ")->text,
            "6 layers were expected and passes have 4 anchors");
  EXPECT_EQ(finding(found_in(builder.table, {.layers = 4}), "layers-differ"), nullptr);
}

TEST(FindPasses, DevicesAreEachForItself) {
  TableBuilder builder;
  add_pass(builder, 4);
  add_pass(builder, 4);
  builder.device = 1;
  builder.now_ns = 0;
  builder.add({"MemSet"}, 3);
  builder.device = 2;
  add_pass(builder, 5);
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{4, 4, 5}));
  EXPECT_EQ(found.passes[1].end_row, 56u);
  EXPECT_EQ(found.passes[2].first_row, 59u);
  EXPECT_EQ(found.passes[2].device, 2);
  EXPECT_EQ(found.passes[2].index, 0u);
  ASSERT_NE(finding(found, "no-anchor"), nullptr);
  EXPECT_EQ(finding(found, "no-anchor")->count, 3u);
}

TEST(FindPasses, WhatItsStreamDoesAfterSamplingBelongsToThePass) {
  TableBuilder builder;
  Counts begins;
  for (int pass = 0; pass < 3; ++pass) {
    begins.push_back(builder.size());
    builder.add(kHead).add(kLayer, 4).add({"LmHead"});
    builder.stream = 71;
    builder.add({"ArgMaxV2", "Equal", "Cumsum"});
    builder.kind = KernelKind::kCopy;
    builder.add({"Memcpy DtoH (Device -> Pinned)"});
    builder.kind = KernelKind::kCompute;
    builder.stream = 2;
  }
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(found.passes.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(found.passes[i].first_row, begins[i]);
}

TEST(FindPasses, WithoutNamesThePassBeginsAtTheGapOfMostPasses) {
  TableBuilder builder;
  Counts begins;
  for (int pass = 0; pass < 5; ++pass) {
    // Once the host is late elsewhere.
    builder.wait(pass == 2 ? 100 : 50'000);
    begins.push_back(builder.size());
    builder.add({"a", "b"}).wait(pass == 2 ? 90'000 : 0).add({"c"}).add(kLayer, 8).add({"d", "e"});
  }
  CaptureTable table = builder.table;
  std::vector<uint32_t> rows;  // begins in a layer: nothing is to be learnt from the first kernels
  for (uint32_t row = 7; row < table.size(); ++row) rows.push_back(row);
  keep_rows(table, rows);
  const FoundPasses found = found_in(table);
  ASSERT_EQ(anchor_counts(found), (Counts{7, 8, 8, 8, 8}));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(found.passes[i].first_row, begins[i] - 7);
  EXPECT_TRUE(found.passes[0].is_cut_at_start);
}

// The rows of stream 71 in the order of time among the others.
void merge_streams(CaptureTable& table, int64_t delay_ns) {
  for (size_t row = 0; row < table.size(); ++row) {
    if (table.stream[row] == 71) table.start_ns[row] += delay_ns;
  }
  keep_rows(table, rows_in_order(table));
}

TEST(FindPasses, SamplingOfAnotherStreamCutsNoLayers) {
  // A layer takes 6600 ns: the sampling of a pass lies 2, 5 and 9 layers into the next one.
  for (const int64_t delay_ns : {15'000, 35'000, 61'000}) {
    TableBuilder builder;
    for (int pass = 0; pass < 4; ++pass) {
      builder.add({"Range", "Slice", "GatherV2", "Cast"}).add(kLayer, 16).add({"Norm", "LmHead"});
      builder.stream = 71;
      builder.add({"ArgMaxV2"});
      builder.stream = 2;
    }
    merge_streams(builder.table, delay_ns);
    const FoundPasses found = found_in(builder.table);
    EXPECT_EQ(anchor_counts(found), (Counts{16, 16, 16, 16})) << delay_ns;
    for (const ForwardPass& pass : found.passes) EXPECT_EQ(pass.draft_count, 0u);
    ASSERT_NE(finding(found, "passes-overlap"), nullptr);
    EXPECT_EQ(finding(found, "passes-overlap")->count, 3u);
    EXPECT_EQ(finding(found, "streams-overlap"), nullptr);
  }
}

TEST(FindPasses, SamplingOfAnotherStreamTellsWhereTheAnchorsStreamDoesNot) {
  // Nothing but layers on the anchors' stream: what is beside them is all there is to go by.
  TableBuilder builder;
  for (int pass = 0; pass < 4; ++pass) {
    builder.add(kLayer, 16);
    builder.stream = 71;
    builder.add({"ArgMaxV2"});
    builder.stream = 2;
  }
  const FoundPasses found = found_in(builder.table);
  EXPECT_EQ(anchor_counts(found), (Counts{16, 16, 16, 16}));
  EXPECT_EQ(finding(found, "passes-overlap"), nullptr);
}

TEST(FindPasses, RowsThatOverlapOnTheirStreamAreReportedWhenMany) {
  for (const int every : {1, 5, 20}) {
    TableBuilder builder;
    add_pass(builder, 20);
    for (size_t row = 0; row + 1 < builder.table.size(); ++row) {
      if (row % static_cast<size_t>(every) == 0) builder.table.duration_ns[row] = 1500;
    }
    const FoundPasses found = found_in(builder.table);
    const Finding* overlap = finding(found, "streams-overlap");
    ASSERT_EQ(overlap != nullptr, every < 10) << every;
    if (overlap == nullptr) continue;
    EXPECT_EQ(overlap->severity, Severity::kWarning);
    EXPECT_EQ(overlap->count, every == 1 ? 123u : 25u);
    if (every != 1) continue;
    EXPECT_EQ(overlap->text,
              "123 of 124 rows begin before another one on their stream has ended; rows of "
              "several devices or ranks may be mixed");
  }
}

TEST(FindPasses, ASinglePassHasNoBoundary) {
  TableBuilder builder;
  add_pass(builder, 20);
  const FoundPasses found = found_in(builder.table);
  ASSERT_EQ(anchor_counts(found), (Counts{20}));
  EXPECT_TRUE(found.passes[0].is_whole());
  TableBuilder layers;
  layers.add(kLayer, 20);
  const FoundPasses cut = found_in(layers.table);
  ASSERT_EQ(anchor_counts(cut), (Counts{20}));
  EXPECT_TRUE(cut.passes[0].is_cut_at_start);
  EXPECT_TRUE(cut.passes[0].is_cut_at_end);
  EXPECT_EQ(cut.anchors_per_pass, 0u);
}

}  // namespace
}  // namespace gapless
