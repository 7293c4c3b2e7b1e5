// SPDX-License-Identifier: Apache-2.0

#include "model/generate.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/fake_decoder.h"

namespace gapless {
namespace {

using Tokens = std::vector<int32_t>;
using Prompts = std::vector<Tokens>;

// What chain_model says, written out again.
Tokens chain(const Tokens& prompt, int count, int vocabulary = 50) {
  Tokens tokens = prompt;
  for (int i = 0; i < count; ++i) {
    const int32_t before = tokens.size() > 1 ? tokens[tokens.size() - 2] : 0;
    tokens.push_back((3 * tokens.back() + before + 1) % vocabulary);
  }
  return {tokens.begin() + std::ssize(prompt), tokens.end()};
}

GenerationResult generate_or_die(FakeDecoder& decoder, const Prompts& prompts,
                                 const GenerateOptions& options,
                                 const TokenCallback& on_token = {}) {
  Result<GenerationResult> result = generate(decoder, prompts, options, on_token);
  EXPECT_TRUE(result) << result.error().message;
  EXPECT_EQ(decoder.live_count(), 0) << "sequences are released";
  return std::move(result).value();
}

std::string error_of(FakeDecoder& decoder, const Prompts& prompts,
                     const GenerateOptions& options = {}) {
  const Result<GenerationResult> result = generate(decoder, prompts, options);
  EXPECT_EQ(decoder.live_count(), 0) << "sequences are released";
  return result ? "" : result.error().message;
}

const Prompts kThreePrompts = {{7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {40, 41, 42}};

TEST(Generate, FollowsTheModelGreedily) {
  FakeDecoder decoder({});
  const GenerationResult result = generate_or_die(decoder, {{3, 4}}, {.max_tokens = 6});
  ASSERT_EQ(result.sequences.size(), 1u);
  EXPECT_EQ(result.sequences[0].tokens, (Tokens{16, 3, 26, 32, 23, 2}));
  EXPECT_EQ(result.sequences[0].reason, FinishReason::kMaxTokens);
}

TEST(Generate, GivesEachSequenceWhatItGetsAlone) {
  FakeDecoder together({});
  const GenerationResult all = generate_or_die(together, kThreePrompts, {.max_tokens = 9});
  for (size_t i = 0; i < kThreePrompts.size(); ++i) {
    FakeDecoder alone({});
    const GenerationResult one = generate_or_die(alone, {kThreePrompts[i]}, {.max_tokens = 9});
    EXPECT_EQ(all.sequences[i].tokens, one.sequences[0].tokens) << "prompt " << i;
    EXPECT_EQ(all.sequences[i].tokens, chain(kThreePrompts[i], 9)) << "prompt " << i;
  }
}

TEST(Generate, EndsASequenceAtAnEndTokenWhileOthersGoOn) {
  const Tokens whole = chain({7}, 9);
  FakeDecoder decoder({});
  const GenerationResult result =
      generate_or_die(decoder, kThreePrompts, {.max_tokens = 9, .end_tokens = {-5, whole[1]}});
  EXPECT_EQ(result.sequences[0].tokens, Tokens(whole.begin(), whole.begin() + 2));
  EXPECT_EQ(result.sequences[0].reason, FinishReason::kEndToken);
  for (const size_t other : {1u, 2u}) {
    const Tokens expected = chain(kThreePrompts[other], 9);
    ASSERT_EQ(std::count(expected.begin(), expected.end(), whole[1]), 0);
    EXPECT_EQ(result.sequences[other].tokens, expected);
    EXPECT_EQ(result.sequences[other].reason, FinishReason::kMaxTokens);
  }
  EXPECT_EQ(decoder.steps().back().row_sequences.size(), 2u) << "what has ended takes no row";
}

TEST(Generate, EndsAtTheFirstTokenWhenThatIsAnEndToken) {
  FakeDecoder decoder({});
  const GenerationResult result =
      generate_or_die(decoder, {{7}}, {.max_tokens = 9, .end_tokens = chain({7}, 1)});
  EXPECT_EQ(result.sequences[0].tokens, chain({7}, 1));
  EXPECT_EQ(result.sequences[0].reason, FinishReason::kEndToken);
  EXPECT_EQ(decoder.steps().size(), 1u);
  EXPECT_TRUE(result.times.step_s.empty());
}

TEST(Generate, CountsMaxTokensForEachSequence) {
  for (const int max_tokens : {1, 2, 5}) {
    FakeDecoder decoder({});
    const GenerationResult result =
        generate_or_die(decoder, kThreePrompts, {.max_tokens = max_tokens});
    for (const Generation& made : result.sequences) {
      EXPECT_EQ(static_cast<int>(made.tokens.size()), max_tokens);
    }
    EXPECT_EQ(result.times.generated_tokens, 3 * max_tokens);
    EXPECT_EQ(result.times.prompt_tokens, 15);
  }
}

// A cache of 12 tokens: prompt and generated tokens without the last, which need not be stored.
TEST(Generate, StopsWhenTheCacheHoldsNoMore) {
  for (const size_t prompt_size : {1u, 7u, 11u, 12u}) {
    FakeDecoder decoder({.max_length = 12});
    const Tokens prompt(prompt_size, 5);
    const GenerationResult result = generate_or_die(decoder, {prompt}, {.max_tokens = 100});
    EXPECT_EQ(result.sequences[0].tokens, chain(prompt, static_cast<int>(13 - prompt_size)));
    EXPECT_EQ(result.sequences[0].reason, FinishReason::kFullContext);
  }
}

TEST(Generate, PrefersMaxTokensToAFullCacheWhenBothComeTogether) {
  FakeDecoder decoder({.max_length = 12});
  const GenerationResult result = generate_or_die(decoder, {Tokens(8, 5)}, {.max_tokens = 5});
  EXPECT_EQ(result.sequences[0].tokens.size(), 5u);
  EXPECT_EQ(result.sequences[0].reason, FinishReason::kMaxTokens);
}

TEST(Generate, TellsEachTokenAndStopsWhereTheCallbackSays) {
  FakeDecoder decoder({});
  std::vector<Tokens> told(3);
  const GenerationResult result =
      generate_or_die(decoder, kThreePrompts, {.max_tokens = 6}, [&](int sequence, int32_t token) {
        told[static_cast<size_t>(sequence)].push_back(token);
        return sequence != 1 || told[1].size() < 3;
      });
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told[i], result.sequences[i].tokens);
    EXPECT_EQ(told[i], chain(kThreePrompts[i], i == 1 ? 3 : 6));
  }
  EXPECT_EQ(result.sequences[1].reason, FinishReason::kStopped);
  EXPECT_EQ(result.sequences[0].reason, FinishReason::kMaxTokens);
}

TEST(Generate, GivesTheSameForEveryPrefillChunk) {
  for (int prefill_rows = 0; prefill_rows <= 12; ++prefill_rows) {
    FakeDecoder decoder({});
    const GenerationResult result =
        generate_or_die(decoder, kThreePrompts, {.max_tokens = 4, .prefill_rows = prefill_rows});
    for (size_t i = 0; i < kThreePrompts.size(); ++i) {
      EXPECT_EQ(result.sequences[i].tokens, chain(kThreePrompts[i], 4)) << prefill_rows;
    }
    for (const FakeStep& step : decoder.steps()) {
      const std::set<int> sequences(step.row_sequences.begin(), step.row_sequences.end());
      for (const int sequence : sequences) {
        const std::ptrdiff_t rows =
            std::count(step.row_sequences.begin(), step.row_sequences.end(), sequence);
        EXPECT_LE(rows, prefill_rows == 0 ? 8 : prefill_rows);
      }
    }
  }
}

TEST(Generate, RunsTheHeadForTheLastTokenOfEachPromptOnly) {
  FakeDecoder decoder({.max_rows = 4});
  generate_or_die(decoder, kThreePrompts, {.max_tokens = 1});
  // 1 + 11 + 3 tokens in steps of 4.
  ASSERT_EQ(decoder.steps().size(), 4u);
  EXPECT_EQ(decoder.steps()[0].row_sequences, (std::vector<int>{0, 1, 1, 1}));
  EXPECT_EQ(decoder.steps()[0].head_rows, (std::vector<int>{0}));
  EXPECT_EQ(decoder.steps()[1].head_rows, (std::vector<int>{}));
  EXPECT_EQ(decoder.steps()[2].row_sequences, (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(decoder.steps()[2].head_rows, (std::vector<int>{3}));
  EXPECT_EQ(decoder.steps()[3].head_rows, (std::vector<int>{2}));
}

TEST(Generate, AsksTheHeadForNoMoreThanItNeeds) {
  struct Case {
    SamplingOptions sampling;
    HeadOutput head;
    int top_k;
  };
  const Case cases[] = {
      {{.temperature = 0.0, .top_k = 20}, HeadOutput::kTop, 1},
      {{.temperature = 0.7, .top_k = 20}, HeadOutput::kTop, 20},
      {{.temperature = 0.7, .top_k = 200}, HeadOutput::kTop, 50},
      {{.temperature = 0.7, .top_k = 2000}, HeadOutput::kLogits, 1},
      {{.temperature = 0.7, .top_k = 0}, HeadOutput::kLogits, 1},
  };
  for (const Case& one : cases) {
    FakeDecoder decoder({});
    generate_or_die(decoder, {{1}}, {.sampling = one.sampling, .max_tokens = 2});
    EXPECT_EQ(decoder.steps()[1].head, one.head) << one.sampling.top_k;
    EXPECT_EQ(decoder.steps()[1].top_k, one.top_k) << one.sampling.top_k;
  }
}

TEST(Generate, DrawsTheSameForTheSameSeedWhateverTheOthersAre) {
  const GenerateOptions options{.sampling = {.temperature = 2.0, .seed = 11}, .max_tokens = 20};
  FakeDecoder first({});
  const GenerationResult a = generate_or_die(first, {{1}, {2}, {3}}, options);
  FakeDecoder second({});
  const GenerationResult b = generate_or_die(second, {{1, 9}, {2}}, options);
  EXPECT_EQ(a.sequences[1].tokens, b.sequences[1].tokens);
  EXPECT_NE(a.sequences[0].tokens, b.sequences[0].tokens);
  EXPECT_NE(a.sequences[1].tokens, chain({2}, 20)) << "drawn, not the best";

  GenerateOptions other_seed = options;
  other_seed.sampling.seed = 12;
  FakeDecoder third({});
  EXPECT_NE(generate_or_die(third, {{1}, {2}, {3}}, other_seed).sequences[1].tokens,
            a.sequences[1].tokens);
}

// A top-k of the whole vocabulary is a different path (kTop) to the same distribution (kLogits).
TEST(Generate, DrawsTheSameFromAllLogitsAsFromATopKOfAll) {
  for (const double top_p : {1.0, 0.8}) {
    GenerateOptions options{.sampling = {.temperature = 3.0, .top_p = top_p, .seed = 5},
                            .max_tokens = 25};
    FakeDecoder from_logits({});
    const GenerationResult a = generate_or_die(from_logits, kThreePrompts, options);
    options.sampling.top_k = 50;
    FakeDecoder from_top({});
    const GenerationResult b = generate_or_die(from_top, kThreePrompts, options);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(a.sequences[i].tokens, b.sequences[i].tokens);
  }
}

TEST(Generate, TakesATimeForEachStep) {
  FakeDecoder decoder({});
  const GenerationTimes times = generate_or_die(decoder, kThreePrompts, {.max_tokens = 7}).times;
  EXPECT_EQ(times.step_s.size(), 6u);
  EXPECT_GT(times.first_token_s, 0.0);
  EXPECT_GE(times.prefill_s, times.first_token_s);
  for (const double step_s : times.step_s) EXPECT_GE(step_s, 0.0);
}

TEST(Generate, RefusesWhatCannotBe) {
  FakeDecoder decoder({.max_rows = 4, .max_length = 12});
  EXPECT_EQ(error_of(decoder, {}), "there is no prompt");
  EXPECT_EQ(error_of(decoder, {{1}, {}}), "prompt 1 has no token");
  EXPECT_EQ(error_of(decoder, {{1}, Tokens(13, 1)}), "prompt 1 has 13 tokens; the cache holds 12");
  EXPECT_EQ(error_of(decoder, Prompts(5, {1})), "5 prompts; a step has room for 4");
  EXPECT_EQ(error_of(decoder, {{1}}, {.max_tokens = 0}),
            "at most 0 tokens to generate; must be 1 or more");
  EXPECT_EQ(error_of(decoder, {{1}}, {.prefill_rows = -1}),
            "-1 prompt tokens in a step; must be 0 (all) or more");
  EXPECT_EQ(error_of(decoder, {{1}}, {.sampling = {.temperature = -1.0}}),
            "a temperature of -1; must be 0 or more and finite");
  EXPECT_TRUE(decoder.steps().empty()) << "nothing has run";
}

TEST(Generate, ReleasesAllSequencesOnAnError) {
  FakeDecoder outside({});
  EXPECT_EQ(error_of(outside, {{1}, {2, 50}}), "token 50 is outside the vocabulary of 50");
  FakeDecoder failing_prefill({.failing_step = 0});
  EXPECT_EQ(error_of(failing_prefill, kThreePrompts), "step 0 fails, as the test wants");
  FakeDecoder failing_decode({.failing_step = 5});
  EXPECT_EQ(error_of(failing_decode, kThreePrompts), "step 5 fails, as the test wants");
  FakeDecoder few_sequences({.max_sequences = 2});
  EXPECT_EQ(error_of(few_sequences, kThreePrompts), "all 2 sequences are in use");
  FakeDecoder small_cache({.max_total_tokens = 20});
  EXPECT_EQ(error_of(small_cache, kThreePrompts), "the cache is full");
}

TEST(Generate, RefusesToDrawFromNan) {
  FakeDecoder decoder({.model = [](std::span<const int32_t> tokens, std::span<float> logits) {
    chain_model(tokens, logits);
    if (tokens.size() == 4) logits[13] = std::numeric_limits<float>::quiet_NaN();
  }});
  for (const SamplingOptions& sampling :
       {SamplingOptions{.temperature = 0.0}, SamplingOptions{.temperature = 1.0}}) {
    EXPECT_EQ(error_of(decoder, {{1, 2}}, {.sampling = sampling}),
              "sequence 0, step 2: the logit of token 13 is NaN");
  }
}

TEST(FinishReason, HasANameEach) {
  std::set<std::string_view> names;
  for (const FinishReason reason : {FinishReason::kEndToken, FinishReason::kMaxTokens,
                                    FinishReason::kFullContext, FinishReason::kStopped}) {
    names.insert(finish_reason_name(reason));
  }
  EXPECT_EQ(names.size(), 4u);
}

TEST(Prefill, GivesTheLastTokensHeadForEveryChunk) {
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  for (int chunk_rows = 0; chunk_rows <= 12; ++chunk_rows) {
    FakeDecoder decoder({});
    const int sequence = decoder.add_sequence().value();
    const Result<StepResult> step =
        prefill(decoder, sequence, tokens, chunk_rows, HeadOutput::kTop, 2);
    ASSERT_TRUE(step) << step.error().message;
    ASSERT_EQ(step->top.size(), 2u);
    EXPECT_EQ(step->top[0].token, chain(tokens, 1)[0]);
    EXPECT_EQ(decoder.length(sequence), 11);
    size_t head_rows = 0;
    for (const FakeStep& one : decoder.steps()) head_rows += one.head_rows.size();
    EXPECT_EQ(head_rows, 1u);
    decoder.release(sequence);
  }
}

TEST(Prefill, LeavesTheSequenceAsItWasOnAnError) {
  FakeDecoder decoder({});
  const int sequence = decoder.add_sequence().value();
  ASSERT_TRUE(prefill(decoder, sequence, Tokens{1, 2, 3}, 0, HeadOutput::kTop, 1));
  const Result<StepResult> broken =
      prefill(decoder, sequence, Tokens{4, 5, 6, 7, 99}, 2, HeadOutput::kTop, 1);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().message, "token 99 is outside the vocabulary of 50");
  EXPECT_EQ(decoder.length(sequence), 3);
  const Result<StepResult> none = prefill(decoder, sequence, {}, 2, HeadOutput::kTop, 1);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "there is no token to prefill");
}

}  // namespace
}  // namespace gapless
