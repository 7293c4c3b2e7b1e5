// SPDX-License-Identifier: Apache-2.0
//
// What a CpuDecoder refuses, in which words, and that nothing has changed then: lengths are what
// they were, and the next step gives the bits of a decoder that was never asked.

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "model/decoder_test_support.h"

namespace gapless {
namespace {

constexpr int kVocabulary = 250;

const ModelWeights& test_weights() {
  static const ModelWeights weights = tiny_weights(DType::kS8);
  return weights;
}

// Two decoders with the same past: sequences 0 (20 tokens), 1 (a fork of its first 10) and 2
// (158 of 160 tokens). Only the first one gets what must be refused.
class CpuDecoderFailure : public testing::Test {
 protected:
  CpuDecoderFailure() : device_(make_device()) {
    for (std::unique_ptr<CpuDecoder>* decoder : {&decoder_, &untouched_}) {
      CpuDecoderOptions options = tiny_options(test_weights());
      options.max_sequences = 3;
      *decoder = must(CpuDecoder::create(*device_, test_weights(), options));
      must((*decoder)->add_sequence());
      append_tokens(**decoder, 0, random_tokens(1, 20, kVocabulary), 64);
      must((*decoder)->fork(0, 10));
      must((*decoder)->add_sequence());
      append_tokens(**decoder, 2, random_tokens(2, 158, kVocabulary), 64);
    }
  }

  // The message, or "no error"; then everything is as it was.
  template <typename T>
  std::string refusal(const Result<T>& result) {
    for (int sequence = 0; sequence < 3; ++sequence)
      EXPECT_EQ(decoder_->length(sequence), untouched_->length(sequence)) << sequence;
    const std::vector<StepRow> rows = {{1, 5}, {0, 6}, {1, 7}, {2, 8}};
    EXPECT_EQ(step_logits(*decoder_, rows), step_logits(*untouched_, rows));
    for (CpuDecoder* decoder : {decoder_.get(), untouched_.get()}) {
      decoder->truncate(0, decoder->length(0) - 1);
      decoder->truncate(1, 10);
      decoder->truncate(2, 158);
    }
    return result ? "no error" : result.error().message;
  }
  std::string refusal_of(const std::vector<StepRow>& rows) {
    return refusal(decoder_->step({.rows = rows}));
  }
  std::string refusal_of_head(const std::vector<int>& head_rows, int top_k = 1) {
    const std::vector<StepRow> rows = {{0, 1}, {1, 2}};
    return refusal(decoder_->step({.rows = rows, .head_rows = head_rows, .top_k = top_k}));
  }

  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<CpuDecoder> decoder_;
  std::unique_ptr<CpuDecoder> untouched_;
};

TEST_F(CpuDecoderFailure, NamesATokenOutsideTheVocabulary) {
  EXPECT_EQ(refusal_of({{0, 1}, {1, 250}}),
            "token 250 of sequence 1; model 'tiny' has tokens 0 to 249");
  EXPECT_EQ(refusal_of({{0, -1}}), "token -1 of sequence 0; model 'tiny' has tokens 0 to 249");
}

TEST_F(CpuDecoderFailure, NamesASequenceThatIsNotThere) {
  // The rows before it had their places already.
  EXPECT_EQ(refusal_of({{0, 1}, {1, 1}, {0, 2}, {3, 1}}), "there is no sequence 3");
  EXPECT_EQ(refusal_of({{0, 1}, {-1, 1}}), "there is no sequence -1");
  EXPECT_EQ(refusal(decoder_->fork(7, 0)), "there is no sequence 7 to fork");
  EXPECT_EQ(refusal(decoder_->fill_sequence(7, 3, 1)), "there is no sequence 7 to fill");
  EXPECT_EQ(refusal(decoder_->fork(1, 11)), "a fork of 11 tokens of sequence 1, which has 10");
  EXPECT_EQ(refusal(decoder_->fork(1, -1)), "a fork of -1 tokens of sequence 1, which has 10");
}

TEST_F(CpuDecoderFailure, CountsTheRows) {
  EXPECT_EQ(refusal_of({}), "a step of 0 rows; must be 1 to 64");
  EXPECT_EQ(refusal_of(std::vector<StepRow>(65)), "a step of 65 rows; must be 1 to 64");
}

TEST_F(CpuDecoderFailure, WantsHeadRowsInOrder) {
  EXPECT_EQ(refusal_of_head({1, 0}), "head rows must rise and be less than 2; found 0 after 1");
  EXPECT_EQ(refusal_of_head({1, 1}), "head rows must rise and be less than 2; found 1 after 1");
  EXPECT_EQ(refusal_of_head({0, 2}), "head rows must rise and be less than 2; found 2 after 0");
  EXPECT_EQ(refusal_of_head({-1}), "head rows must rise and be less than 2; found -1 after -1");
  EXPECT_EQ(refusal_of_head({0}, 0), "the 0 largest logits of a row; must be 1 to 1024");
  EXPECT_EQ(refusal_of_head({0}, 1025), "the 1025 largest logits of a row; must be 1 to 1024");
}

// Of three more tokens only two have room: none is taken.
TEST_F(CpuDecoderFailure, StopsAtTheLongestLength) {
  EXPECT_EQ(refusal_of({{2, 1}, {0, 1}, {2, 2}, {2, 3}}),
            "sequence 2 has 160 tokens, as many as the cache was made for");
  EXPECT_EQ(refusal(decoder_->fill_sequence(2, 161, 1)),
            "sequence 2 has 160 tokens, as many as the cache was made for");
  step_logits(*decoder_, std::vector<StepRow>{{2, 1}, {2, 2}});
  EXPECT_EQ(decoder_->length(2), 160);
}

TEST_F(CpuDecoderFailure, HasAsManySequencesAsItWasMadeFor) {
  EXPECT_EQ(refusal(decoder_->add_sequence()),
            "kv cache: all 3 sequences are in use; release one, or make the cache for more");
  EXPECT_EQ(refusal(decoder_->fork(0, 5)),
            "kv cache: all 3 sequences are in use; release one, or make the cache for more");
}

TEST_F(CpuDecoderFailure, WantsARowForEachSequence) {
  const std::vector<int> sequences = {0, 1};
  const std::vector<float> x(72);
  EXPECT_EQ(refusal(decoder_->step_hidden(sequences, x)),
            "2 rows of 72 values need 144 values, found 72");
  EXPECT_EQ(refusal(decoder_->step_hidden(std::vector<int>(65), std::vector<float>(65 * 72))),
            "a step of 65 rows; must be 1 to 64");
  EXPECT_EQ(refusal(decoder_->step_hidden({}, {})), "a step of 0 rows; must be 1 to 64");
}

// A run that fails for a reason of the device's takes its tokens back as well.
TEST_F(CpuDecoderFailure, TakesTokensBackWhenTheDeviceIsInUse) {
  ASSERT_TRUE(device_->enter().has_value());
  const std::vector<StepRow> rows = {{1, 1}, {0, 2}};
  const Result<StepResult> refused = decoder_->step({.rows = rows});
  device_->leave();
  EXPECT_NE(refusal(refused).find("in use"), std::string::npos);
}

// ---- A cache with few pages.

// Goal: when the pool is empty in the middle of a step, the whole step is refused.
TEST(CpuDecoderPages, AreAllOrNothing) {
  const std::unique_ptr<CpuDevice> device = make_device();
  CpuDecoderOptions options = tiny_options(test_weights());
  options.page_count = 4;
  const std::unique_ptr<CpuDecoder> decoder =
      must(CpuDecoder::create(*device, test_weights(), options));
  const std::vector<int32_t> tokens = random_tokens(3, 40, kVocabulary);
  const std::vector<float> expected = logits_alone(*decoder, tokens);
  const int first = must(decoder->add_sequence());
  append_tokens(*decoder, first, std::span(tokens).first(32), 64);
  const int fork = must(decoder->fork(first, 24));
  const int third = must(decoder->add_sequence());
  // A page for the fork's copy, one for the third; none is left for the first.
  const std::vector<StepRow> rows = {{fork, 1}, {third, 1}, {first, 1}};
  const Result<std::vector<float>> refused = try_step(*decoder, rows);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "kv cache: no page is left for token 32 of sequence 0: 4 pages of 16 tokens are in use "
            "by 3 sequences; release one, or make the cache larger");
  EXPECT_EQ(decoder->length(first), 32);
  EXPECT_EQ(decoder->length(fork), 24);
  EXPECT_EQ(decoder->length(third), 0);
  const auto rows_from = [&](size_t row, size_t count) {
    const auto begin = expected.begin() + static_cast<int64_t>(row) * kVocabulary;
    return std::vector<float>(begin, begin + static_cast<int64_t>(count) * kVocabulary);
  };
  EXPECT_EQ(append_tokens(*decoder, fork, std::span(tokens).subspan(24, 8), 3), rows_from(24, 8));
  EXPECT_EQ(append_tokens(*decoder, first, std::span(tokens).subspan(32, 8), 3), rows_from(32, 8));
  EXPECT_FALSE(try_step(*decoder, std::vector<StepRow>{{third, 1}}).has_value());
  EXPECT_FALSE(decoder->fill_sequence(third, 1, 1).has_value());
  EXPECT_EQ(decoder->length(third), 0);
  decoder->release(fork);
  EXPECT_EQ(append_tokens(*decoder, third, std::span(tokens).first(16), 5), rows_from(0, 16));
  // It takes what there is, finds that it is not enough, and gives it back.
  decoder->truncate(third, 0);
  EXPECT_FALSE(decoder->fill_sequence(third, 17, 1).has_value());
  EXPECT_EQ(decoder->length(third), 0);
  EXPECT_EQ(append_tokens(*decoder, third, std::span(tokens).first(16), 5), rows_from(0, 16));
}

// ---- Decoders that cannot be made.

std::string creation_error(const ModelWeights& weights,
                           const std::function<void(CpuDecoderOptions&)>& change) {
  const std::unique_ptr<CpuDevice> device = make_device();
  CpuDecoderOptions options = tiny_options(weights);
  change(options);
  const Result<std::unique_ptr<CpuDecoder>> decoder = CpuDecoder::create(*device, weights, options);
  return decoder ? "no error" : decoder.error().message;
}
std::string creation_error(const std::function<void(CpuDecoderOptions&)>& change) {
  return creation_error(test_weights(), change);
}

TEST(CpuDecoderOptions, MustFitTheWeights) {
  using Options = CpuDecoderOptions;
  EXPECT_EQ(creation_error([](Options& options) { options.fusions.dual_gate_up = false; }),
            "the weights were packed for gate and up in one, the decoder wants them apart");
  EXPECT_EQ(creation_error(tiny_weights(DType::kBf16, false),
                           [](Options& options) { options.fusions.dual_gate_up = true; }),
            "the weights were packed for gate and up apart, the decoder wants them in one");
  EXPECT_EQ(creation_error([](Options& options) { options.max_length = 513; }),
            "a context of 513 tokens; model 'tiny' has positions for 1 to 512");
  EXPECT_EQ(creation_error([](Options& options) { options.max_length = 0; }),
            "a context of 0 tokens; model 'tiny' has positions for 1 to 512");
  EXPECT_EQ(creation_error([](Options& options) { options.max_length = 512; }), "no error");
}

TEST(CpuDecoderOptions, MustBePossible) {
  using Options = CpuDecoderOptions;
  EXPECT_EQ(creation_error([](Options& options) { options.max_sequences = 0; }),
            "a cache for 0 sequences; must be at least 1");
  EXPECT_EQ(creation_error([](Options& options) { options.page_count = -1; }),
            "a cache of -1 pages; must be at least 1, or 0 for all");
  EXPECT_NE(creation_error([](Options& options) { options.max_sequences = 2'000'000'000; }),
            "no error");
  EXPECT_NE(creation_error([](Options& options) { options.page_tokens = 17; }).find("17"),
            std::string::npos);
  EXPECT_NE(creation_error([](Options& options) { options.page_tokens = 0; }).find("page"),
            std::string::npos);
  for (const int chunk_tokens : {0, -16, 24}) {
    EXPECT_EQ(creation_error([=](Options& options) { options.chunk_tokens = chunk_tokens; }),
              "a chunk of " + std::to_string(chunk_tokens) + " tokens is not a multiple of 16");
  }
  EXPECT_NE(creation_error([](Options& options) { options.kv_dtype = DType::kS32; }).find("s32"),
            std::string::npos);
}

TEST(CpuDecoderOptions, LetAModelWithoutHeadTakeRowsOnly) {
  const ModelWeights weights = must(make_synthetic_weights(
      tiny_config(), 7, {.dtype = DType::kS8, .with_head = false, .thread_count = 1}));
  const std::unique_ptr<CpuDevice> device = make_device();
  const std::unique_ptr<CpuDecoder> decoder =
      must(CpuDecoder::create(*device, weights, tiny_options(weights)));
  const int sequence = must(decoder->add_sequence());
  const StepRow row = {.sequence = sequence, .token = 1};
  const Result<StepResult> refused = decoder->step({.rows = {&row, 1}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "model 'tiny' was made without embedding and head, so it takes no tokens");
  EXPECT_EQ(decoder->length(sequence), 0);
  std::vector<float> x(72);
  fill_normal(1, 2, x);
  EXPECT_EQ(must(decoder->step_hidden({&sequence, 1}, x)).size(), 72u);
  EXPECT_EQ(decoder->length(sequence), 1);
}

}  // namespace
}  // namespace gapless
