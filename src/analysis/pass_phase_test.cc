// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_phase.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "analysis/attention_shape.h"

namespace gapless {
namespace {

constexpr std::string_view kFused = "FusedInferAttentionScore";
constexpr std::string_view kDecodeShapes =
    "128,4,128;12307,128,128;12307,128,128;;2048,2048;128;128;;;;;;;;128,512;;;;;;;;;;;;;;;;";

AttentionShape shape_of(std::string_view type, std::string_view shapes) {
  const AttentionInputs* inputs = attention_inputs(type);
  EXPECT_NE(inputs, nullptr) << type;
  return attention_shape(*inputs, shapes);
}

void expect_shape(std::string_view type, std::string_view shapes, int64_t tokens,
                  int64_t sequences) {
  const AttentionShape shape = shape_of(type, shapes);
  EXPECT_EQ(shape.tokens, tokens) << type << " " << shapes;
  EXPECT_EQ(shape.sequences, sequences) << type << " " << shapes;
}

TEST(AttentionShape, ReadsPackedTokens) {
  expect_shape(kFused, kDecodeShapes, 128, 128);
  EXPECT_TRUE(shape_of(kFused, kDecodeShapes).has_block_table);
  expect_shape(kFused, "24624,4,128;24624,1,128;24624,1,128;;2048,2048;7;7;;;;;;;;", 24624, 7);
  EXPECT_FALSE(shape_of(kFused, "24624,4,128;24624,1,128;24624,1,128;;;7;7").has_block_table);
}

TEST(AttentionShape, ReadsLatentAttentionByHeads) {
  expect_shape(kFused,
               "4,16,1,512;1135,1,128,512;1135,1,128,512;;;;4;;;;;;;;4,1135;;;;;;;;;;4,16,1,64;"
               "1135,1,128,64;;;;;",
               4, 4);
  expect_shape(kFused, "4,16,3,512;1135,1,128,512;1135,1,128,512;;;;4", 12, 4);
  // Tokens before heads, as wide as it must be to be told from heads.
  expect_shape(kFused, "2,1,16,512;1135,1,128,512;1135,1,128,512;;;;2", 2, 2);
  expect_shape(kFused, "2,4096,16,128;2,4096,16,128;2,4096,16,128;;;;2", 8192, 2);
}

TEST(AttentionShape, ReadsTokensBySequence) {
  expect_shape(kFused, "8,1,5120;900,128,1024;900,128,1024;;;;8;;;;;;;;8,64", 8, 8);
  expect_shape(kFused, "2,512,5120;2,512,5120;2,512,5120;;2048,2048;2;2", 1024, 2);
  expect_shape("FlashAttentionScore", "1,4096,1024;1,4096,1024;1,4096,1024", 4096, 1);
  expect_shape("FlashAttentionScore", "4096,2,1024;4096,2,1024;4096,2,1024", 8192, 2);
  expect_shape("FlashAttentionScore", "2,16,4096,128;2,16,4096,128;2,16,4096,128", 8192, 2);
  expect_shape("FlashAttentionScore", "8192,16,128;8192,16,128;8192,16,128", 8192, -1);
}

TEST(AttentionShape, ReadsOtherKernels) {
  expect_shape("SparseFlashAttention",
               "3,64,512;900,128,1,512;900,128,1,512;3,1,2048;1,512;1;1;3,64,64;900,128,1,64", 3,
               1);
  expect_shape("LightningIndexer", "3,32,128;900,128,1,128;3,32;1;1;1,512", 3, 1);
  expect_shape("PagedAttentionMaskNdKernel", "16,8,128;900,128,1,128;900,128,1,128;16,512;16", 16,
               16);
  expect_shape("RINGMLAPrefillBF16Kernel",
               "4099,16,128;4099,16,64;8000,16,128;8000,16,64;8000,16,128;512,512;2,3;;", 4099, 3);
  expect_shape("IncreFlashAttention", "16,1,5120;16,4096,1024;16,4096,1024", 16, 16);
}

TEST(AttentionShape, IsUnknownWhenTheTextIsNoShape) {
  for (const std::string_view text :
       {"", "N/A", ";;;", "a,b,c", "4,,128", "4,-1,128", "99999999999999999999,4,128", "7"}) {
    expect_shape(kFused, text, -1, -1);
  }
  EXPECT_EQ(attention_inputs("MatMulV2"), nullptr);
  // Cut anywhere: no number that is not there.
  for (size_t length = 0; length <= kDecodeShapes.size(); ++length) {
    const AttentionShape shape = shape_of(kFused, kDecodeShapes.substr(0, length));
    EXPECT_LE(shape.tokens, 12307);
  }
}

// A pass of rows one after the other.
class PassPhaseGuess : public testing::Test {
 protected:
  void add(std::string_view type, std::string_view shapes = {},
           KernelKind kind = KernelKind::kCompute, std::string_view name = {}) {
    KernelRow row;
    row.start_ns = static_cast<int64_t>(rows_.size()) * 1'000;
    row.duration_ns = 900;
    row.device = 0;
    row.type = table_.names.intern(type);
    row.name = table_.names.intern(name.empty() ? type : name);
    if (!shapes.empty()) row.input_shapes = table_.names.intern(shapes);
    row.kind = kind;
    table_.append(row);
    rows_.push_back(static_cast<uint32_t>(rows_.size()));
  }
  void add_anchor(std::string_view type, std::string_view shapes = {}, std::string_view name = {}) {
    anchors_.push_back(static_cast<uint32_t>(rows_.size()));
    add(type, shapes, KernelKind::kCompute, name);
  }
  PhaseGuess guess(uint32_t draft_count = 0) const {
    return guess_phase(table_, rows_, anchors_, draft_count);
  }

  CaptureTable table_;
  std::vector<uint32_t> rows_;
  std::vector<uint32_t> anchors_;
};

TEST_F(PassPhaseGuess, IsDecodeWithOneTokenASequence) {
  add_anchor(kFused, kDecodeShapes);
  add("ArgMaxV2");
  const PhaseGuess decode = guess();
  EXPECT_EQ(decode.phase, PassPhase::kDecode);
  EXPECT_EQ(decode.confidence, 1.0);
  EXPECT_EQ(decode.evidence, "128 tokens of 128 sequences in FusedInferAttentionScore");
  EXPECT_FALSE(decode.is_dummy);
}

TEST_F(PassPhaseGuess, IsPrefillWithManyTokensAndNoCache) {
  add_anchor(kFused, "24624,4,128;24624,1,128;24624,1,128;;2048,2048;7;7");
  EXPECT_EQ(guess().phase, PassPhase::kPrefill);
  EXPECT_EQ(guess().tokens, 24624);
  EXPECT_EQ(guess().sequences, 7);
}

TEST_F(PassPhaseGuess, IsSpeculativeWithTokensForTheDrafts) {
  add_anchor(kFused, "32,12,256;900,128,512;900,128,512;;;8;8;;;;;;;;8,512");
  EXPECT_EQ(guess(3).phase, PassPhase::kSpeculative);
  EXPECT_EQ(guess(3).confidence, 1.0);
  EXPECT_EQ(guess(1).phase, PassPhase::kSpeculative);
  EXPECT_LT(guess(1).confidence, 1.0);
  EXPECT_EQ(guess(0).phase, PassPhase::kSpeculative);
  EXPECT_LT(guess(0).confidence, guess(1).confidence);
}

TEST_F(PassPhaseGuess, IsPrefillOfShortPromptsWithoutACache) {
  add_anchor(kFused, "12,4,128;12,1,128;12,1,128;;2048,2048;2;2");
  EXPECT_EQ(guess(0).phase, PassPhase::kPrefill);
  EXPECT_LT(guess(0).confidence, 1.0);
}

TEST_F(PassPhaseGuess, IsMixedWithAFewTokensMore) {
  add_anchor(kFused, "150,4,128;900,128,128;900,128,128;;;128;128;;;;;;;;128,512");
  EXPECT_EQ(guess().phase, PassPhase::kMixed);
  EXPECT_LT(guess().confidence, 1.0);
}

TEST_F(PassPhaseGuess, IsMixedWithAttentionOfBothKinds) {
  for (int layer = 0; layer < 3; ++layer) {
    add("RINGMLAPrefillBF16Kernel", "4000,16,128;;;;;;2");
    add_anchor(kFused, "4,16,1,512;1135,1,128,512;1135,1,128,512;;;;4;;;;;;;;4,1135");
  }
  const PhaseGuess mixed = guess();
  EXPECT_EQ(mixed.phase, PassPhase::kMixed);
  EXPECT_EQ(mixed.tokens, 4004);
  EXPECT_EQ(mixed.sequences, 6);
  EXPECT_EQ(mixed.evidence,
            "4000 tokens of 2 sequences in RINGMLAPrefillBF16Kernel and 4 of 4 in "
            "FusedInferAttentionScore");
}

TEST_F(PassPhaseGuess, IsNotMixedByTheShapesOfItsDrafts) {
  add_anchor(kFused, "2048,4,128;2048,1,128;2048,1,128;;;2;2");
  add("ArgMaxV2");
  add(kFused, kDecodeShapes);
  EXPECT_EQ(guess(1).phase, PassPhase::kPrefill);
}

TEST_F(PassPhaseGuess, IsADummyWithOneTokenAndNothingSampled) {
  const std::string_view shapes = "1,4,128;900,128,128;900,128,128;;;1;1;;;;;;;;1,512";
  add_anchor(kFused, shapes);
  add("MatMulV2");
  EXPECT_TRUE(guess().is_dummy);
  EXPECT_EQ(guess().phase, PassPhase::kDecode);
  // What a draft samples is its own.
  add(kFused, shapes);
  add("ArgMaxV2");
  EXPECT_TRUE(guess(1).is_dummy);
}

TEST_F(PassPhaseGuess, IsNoDummyWhenItsTokenIsSampled) {
  add_anchor(kFused, "1,4,128;900,128,128;900,128,128;;;1;1;;;;;;;;1,512");
  add("MatMulV2");
  add("ArgMaxV2");
  EXPECT_FALSE(guess().is_dummy);
}

TEST_F(PassPhaseGuess, IsToldByLinearAttentionWithoutShapes) {
  add("ChunkGatedDeltaRuleFwdH");
  add_anchor(kFused);
  EXPECT_EQ(guess().phase, PassPhase::kPrefill);
  add("fused_recurrent_gated_delta_rule_fwd_kernel");
  add_anchor(kFused);
  EXPECT_EQ(guess().phase, PassPhase::kMixed);
  EXPECT_LT(guess().confidence, 1.0);
  EXPECT_EQ(guess().evidence, "1 chunked and 1 recurrent kernels of linear attention");
}

TEST_F(PassPhaseGuess, IsToldByHabitsOfTheEngineWithoutShapes) {
  const std::string name = "FusedInferAttentionScore_0123456789abcdef0123456789abcdef_mix_aic";
  for (int layer = 0; layer < 4; ++layer) {
    add("hcom_allReduce_", {}, KernelKind::kCollective);
    add_anchor(kFused, {}, name);
  }
  const PhaseGuess decode = guess();
  EXPECT_EQ(decode.phase, PassPhase::kDecode);
  EXPECT_EQ(decode.evidence, "no shapes; 4 all-reduces, 4 anchors of a captured graph");
  EXPECT_LT(decode.confidence, 0.8);
  EXPECT_EQ(guess(1).phase, PassPhase::kSpeculative);
}

TEST_F(PassPhaseGuess, IsPrefillByWrappersAndLargeMatricesWithoutShapes) {
  for (int layer = 0; layer < 4; ++layer) {
    add("MatMulV3");
    add("allgatherAicpuKernel", {}, KernelKind::kAiCpuCollective);
    add_anchor(kFused);
  }
  EXPECT_EQ(guess().phase, PassPhase::kPrefill);
  EXPECT_EQ(guess().evidence, "no shapes; 4 MatMulV3, 4 collectives on the AI CPU");
}

TEST_F(PassPhaseGuess, IsNothingWithoutEvidence) {
  add("QuantBatchMatmulV3");
  add_anchor("flash_fwd_kernel");
  EXPECT_FALSE(guess().phase.has_value());
  EXPECT_EQ(guess().confidence, 0.0);
  EXPECT_EQ(guess().tokens, -1);
  EXPECT_FALSE(guess_phase(CaptureTable(), {}, {}, 0).phase.has_value());
}

TEST(AttentionShape, TakesTheQueryOfPyTorchAttention) {
  const AttentionInputs* inputs =
      attention_inputs("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7");
  ASSERT_NE(inputs, nullptr);
  const AttentionShape decode = attention_shape(*inputs, "4,16,1,128;4,8,131,128;4,8,131,128;;");
  EXPECT_EQ(decode.tokens, 4);
  EXPECT_EQ(decode.sequences, 4);
  const AttentionShape prefill = attention_shape(*inputs, "4,16,128,128;4,8,128,128;4,8,128,128");
  EXPECT_EQ(prefill.tokens, 512);
  EXPECT_EQ(prefill.sequences, 4);
}

}  // namespace
}  // namespace gapless
