// SPDX-License-Identifier: Apache-2.0

#include "model/quality.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/fake_decoder.h"

namespace gapless {
namespace {

using Tokens = std::vector<int32_t>;
using Prompts = std::vector<Tokens>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Logits of these probabilities; `shift` must not matter.
std::vector<float> logits_of(const std::vector<double>& probabilities, double shift = 0.0) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + shift));
  return logits;
}

TEST(Divergence, IsWhatTheFormulaSays) {
  const std::vector<float> even = logits_of({0.5, 0.5});
  const std::vector<float> uneven = logits_of({0.25, 0.75}, 3.0);
  EXPECT_NEAR(divergence(even, uneven), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0), 1e-6);
  EXPECT_NEAR(divergence(uneven, even), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-6);
  EXPECT_NEAR(divergence(logits_of({0.1, 0.2, 0.7}), logits_of({0.7, 0.2, 0.1})),
              0.6 * std::log(7.0), 1e-6);
}

TEST(Divergence, IsZeroForTheSameDistribution) {
  const std::vector<float> logits = {1.0f, -3.0f, 8.0f, 0.5f};
  std::vector<float> shifted = logits;
  for (float& logit : shifted) logit += 64.0f;
  EXPECT_EQ(divergence(logits, logits), 0.0);
  EXPECT_NEAR(divergence(logits, shifted), 0.0, 1e-12);
  EXPECT_EQ(divergence(std::vector<float>{1e30f, -1e30f}, std::vector<float>{1e30f, -1e30f}), 0.0);
}

TEST(Divergence, KnowsWhatIsImpossible) {
  const std::vector<float> first_only = {0.0f, -kInfinity};
  const std::vector<float> both = {0.0f, 0.0f};
  EXPECT_NEAR(divergence(first_only, both), std::log(2.0), 1e-12);
  EXPECT_EQ(divergence(both, first_only), std::numeric_limits<double>::infinity());
}

TEST(Divergence, DoesNotHideNan) {
  const std::vector<float> good = {0.0f, -kInfinity, 1.0f};
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<float> bad = good;
    bad[i] = kNan;
    EXPECT_TRUE(std::isnan(divergence(good, bad))) << i;
    EXPECT_TRUE(std::isnan(divergence(bad, good))) << i;
  }
}

TEST(FindRepetition, FindsTheLoopAtTheEnd) {
  struct Case {
    Tokens tokens;
    double share;
    int period;
  };
  const Case cases[] = {
      {{}, 0.0, 0},
      {{5, 5}, 0.0, 0},
      {{5, 5, 5}, 1.0, 1},
      {{1, 2, 1, 2, 1, 2}, 1.0, 2},
      {{1, 2, 1, 2}, 0.0, 0},
      {{1, 2, 3, 4, 5, 6, 7, 8}, 0.0, 0},
      {{9, 5, 5, 5}, 0.75, 1},
      {{5, 5, 5, 9}, 0.0, 0},                                  // it got out again
      {{2, 1, 2, 1, 2, 1, 2}, 1.0, 2},                         // three and a half times
      {{7, 8, 9, 6, 1, 2, 3, 1, 2, 3, 1, 2, 3}, 9.0 / 13, 3},  // behind a prefix
      {{1, 1, 2, 1, 1, 2, 1, 1, 2}, 1.0, 3},
      {{1, 4, 4, 4, 1, 4, 4, 4, 1, 4, 4, 4}, 1.0, 4},  // the larger share, not the shorter loop
      {{5, 5, 5, 5, 5, 5, 5, 5}, 1.0, 1},              // and the shortest of those that say as much
  };
  for (const Case& one : cases) {
    const Repetition found = find_repetition(one.tokens);
    EXPECT_DOUBLE_EQ(found.share, one.share) << testing::PrintToString(one.tokens);
    EXPECT_EQ(found.period, one.period) << testing::PrintToString(one.tokens);
  }
}

TEST(FindRepetition, LooksForLoopsOfUpToSixteen) {
  for (const int period : {1, 5, 16, 17}) {
    Tokens tokens(100);
    std::iota(tokens.begin(), tokens.end(), 1000);  // a long prefix without one
    for (int i = 0; i < 3 * period; ++i) tokens.push_back(i % period);
    const Repetition found = find_repetition(tokens);
    EXPECT_EQ(found.period, period <= 16 ? period : 0);
    const double share = 3.0 * period / static_cast<double>(tokens.size());
    EXPECT_DOUBLE_EQ(found.share, period <= 16 ? share : 0.0);
    tokens.pop_back();
    tokens.erase(tokens.begin() + 100);
    EXPECT_EQ(find_repetition(tokens).period, 0) << "less than three times";
  }
}

std::vector<PromptQuality> compare_or_die(FakeDecoder& reference, FakeDecoder& candidate,
                                          const Prompts& prompts, int count) {
  Result<std::vector<PromptQuality>> result = compare_quality(reference, candidate, prompts, count);
  EXPECT_TRUE(result) << result.error().message;
  EXPECT_EQ(reference.live_count(), 0);
  EXPECT_EQ(candidate.live_count(), 0);
  return std::move(result).value();
}

// More prompts than rows, prompts longer than a step and shorter.
const Prompts kPrompts = {{1}, {2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {12, 13}, {14}, {15, 16, 17}};

TEST(CompareQuality, FindsNoDifferenceBetweenEquals) {
  FakeDecoder reference({.max_rows = 4});
  FakeDecoder candidate({.max_rows = 3});
  for (const PromptQuality& quality : compare_or_die(reference, candidate, kPrompts, 12)) {
    EXPECT_EQ(quality.reference_tokens.size(), 12u);
    EXPECT_EQ(quality.reference_tokens, quality.candidate_tokens);
    EXPECT_EQ(quality.agreed_count, 12);
    EXPECT_EQ(quality.same_choice, 1.0);
    EXPECT_EQ(quality.mean_divergence, 0.0);
    EXPECT_EQ(quality.largest_divergence, 0.0);
  }
}

// chain_model gives -i / 2 to the i-th best token. The candidate says the same at twice the
// temperature: the same choices, and at every position the same divergence.
TEST(CompareQuality, MeasuresTheDivergenceOfEveryPosition) {
  FakeDecoder reference({.max_rows = 4});
  FakeDecoder candidate({.model = [](std::span<const int32_t> tokens, std::span<float> logits) {
    chain_model(tokens, logits);
    for (float& logit : logits) logit *= 0.5f;
  }});
  double p_sum = 0.0;
  double q_sum = 0.0;
  for (int i = 0; i < 50; ++i) p_sum += std::exp(-0.5 * i);
  for (int i = 0; i < 50; ++i) q_sum += std::exp(-0.25 * i);
  double expected = 0.0;
  for (int i = 0; i < 50; ++i) {
    const double p = std::exp(-0.5 * i) / p_sum;
    expected += p * std::log(p / (std::exp(-0.25 * i) / q_sum));
  }
  for (const PromptQuality& quality : compare_or_die(reference, candidate, kPrompts, 9)) {
    EXPECT_EQ(quality.same_choice, 1.0);
    EXPECT_EQ(quality.agreed_count, 9);
    EXPECT_NEAR(quality.mean_divergence, expected, 1e-9);
    EXPECT_NEAR(quality.largest_divergence, expected, 1e-9);
  }
}

// The candidate differs where a text has six tokens: at the third position of the prompt with four
// of them and nowhere else, although it goes its own way from there when it is left alone.
TEST(CompareQuality, FeedsBothWhatTheReferenceSaid) {
  FakeDecoder reference({});
  FakeDecoder candidate({.model = [](std::span<const int32_t> tokens, std::span<float> logits) {
    chain_model(tokens, logits);
    if (tokens.size() == 6) std::fill(logits.begin(), logits.end(), 0.0f);
  }});
  const Prompts prompts = {{3, 1, 4, 1}, {3, 1, 4, 1, 5, 9, 2}};
  const std::vector<PromptQuality> qualities = compare_or_die(reference, candidate, prompts, 8);
  EXPECT_EQ(qualities[0].agreed_count, 2);
  EXPECT_NE(qualities[0].reference_tokens[3], qualities[0].candidate_tokens[3]);
  EXPECT_DOUBLE_EQ(qualities[0].same_choice, 7.0 / 8);
  EXPECT_GT(qualities[0].largest_divergence, 1.0);
  EXPECT_NEAR(qualities[0].mean_divergence, qualities[0].largest_divergence / 8, 1e-12);
  EXPECT_EQ(qualities[1].agreed_count, 8);
  EXPECT_EQ(qualities[1].largest_divergence, 0.0);
}

TEST(CompareQuality, SeesTheLoopOfTheCandidate) {
  FakeDecoder reference({});
  FakeDecoder candidate({.model = [](std::span<const int32_t> tokens, std::span<float> logits) {
    chain_model(tokens, logits);
    if (tokens.size() >= 6) logits[7] = 100.0f;
  }});
  const PromptQuality quality = compare_or_die(reference, candidate, {{1, 2}}, 16)[0];
  EXPECT_EQ(quality.reference_repetition.period, 0);
  EXPECT_EQ(quality.candidate_repetition.period, 1);
  EXPECT_DOUBLE_EQ(quality.candidate_repetition.share, 12.0 / 16);
  const std::vector<std::string> broken = broken_limits(
      std::vector<PromptQuality>{quality}, {.min_same_choice = 0.0, .max_mean_divergence = 1e9});
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_EQ(broken[0],
            "loops are 75.0 % of the texts and 0.0 % of the reference's; at most 30.0 points more "
            "may be");
}

TEST(CompareQuality, KeepsAnInfiniteDivergenceForTheLimits) {
  FakeDecoder reference({});
  FakeDecoder candidate({.model = [](std::span<const int32_t> tokens, std::span<float> logits) {
    chain_model(tokens, logits);
    if (tokens.size() == 3) logits[0] = -kInfinity;
  }});
  const PromptQuality quality = compare_or_die(reference, candidate, {{1, 2}}, 4)[0];
  EXPECT_TRUE(std::isinf(quality.largest_divergence));
  EXPECT_EQ(broken_limits(std::vector<PromptQuality>{quality}, {}).size(), 1u);
}

TEST(CompareQuality, CountsEachTokenThreeTimes) {
  FakeDecoder reference({.max_rows = 4});
  FakeDecoder candidate({.max_rows = 3});
  std::vector<uint64_t> done;
  ASSERT_TRUE(
      compare_quality(reference, candidate, kPrompts, 6, [&done](uint64_t so_far, uint64_t total) {
        EXPECT_EQ(total, 90u);  // of 5 prompts
        done.push_back(so_far);
      }));
  EXPECT_EQ(done.front(), 1u);
  EXPECT_EQ(done.back(), 90u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

std::string comparison_error(FakeDecoder& reference, FakeDecoder& candidate, const Prompts& prompts,
                             int count) {
  const Result<std::vector<PromptQuality>> result =
      compare_quality(reference, candidate, prompts, count);
  EXPECT_EQ(reference.live_count(), 0);
  EXPECT_EQ(candidate.live_count(), 0);
  return result ? "" : result.error().message;
}

TEST(CompareQuality, RefusesWhatCannotBe) {
  FakeDecoder good({});
  FakeDecoder other_vocabulary({.vocabulary = 51});
  FakeDecoder small_cache({.max_length = 10});
  EXPECT_EQ(comparison_error(good, other_vocabulary, {{1}}, 4),
            "the models have vocabularies of 50 and 51 tokens and cannot be compared");
  EXPECT_EQ(comparison_error(good, good, {}, 4), "there is no prompt to compare with");
  EXPECT_EQ(comparison_error(good, good, {{1}, {}}, 4), "prompt 1 has no token");
  EXPECT_EQ(comparison_error(good, good, {{1}}, 0), "0 tokens to compare; must be 1 or more");
  EXPECT_EQ(comparison_error(good, small_cache, {{1}, {1, 2, 3}}, 8),
            "prompt 1 has 3 tokens and 8 are to follow; the cache holds 10");
  for (const int failing_step : {0, 3, 4, 5}) {
    FakeDecoder failing({.failing_step = failing_step});
    EXPECT_EQ(comparison_error(good, failing, {{1}, {2}}, 4),
              "step " + std::to_string(failing_step) + " fails, as the test wants");
  }
}

PromptQuality plain_quality() {
  return {.reference_tokens = {1, 2, 3, 4},
          .candidate_tokens = {1, 2, 3, 4},
          .agreed_count = 4,
          .same_choice = 1.0,
          .mean_divergence = 0.01,
          .largest_divergence = 0.02,
          .reference_repetition = {},
          .candidate_repetition = {}};
}

constexpr QualityLimits kLimits = {
    .min_same_choice = 0.9, .max_mean_divergence = 0.05, .max_extra_repetition = 0.25};

TEST(BrokenLimits, IsEmptyWhenAllIsWell) {
  std::vector<PromptQuality> prompts(3, plain_quality());
  EXPECT_TRUE(broken_limits(prompts, kLimits).empty());
  prompts[1].same_choice = 0.71;      // 0.903 in the mean
  prompts[1].mean_divergence = 0.12;  // 0.047 in the mean
  prompts[2].reference_repetition = {.share = 0.7, .period = 2};
  prompts[2].candidate_repetition = {.share = 0.9, .period = 1};  // 0.067 in the mean
  EXPECT_TRUE(broken_limits(prompts, kLimits).empty());
}

TEST(BrokenLimits, NamesEachLimitThatIsBroken) {
  std::vector<PromptQuality> prompts(3, plain_quality());
  prompts[1].same_choice = 0.4;
  ASSERT_EQ(
      broken_limits(prompts, kLimits),
      std::vector<std::string>{"the same choice in 80.0 % of positions; at least 90.0 % must be"});

  prompts = std::vector<PromptQuality>(3, plain_quality());
  prompts[2].mean_divergence = 0.22;
  ASSERT_EQ(broken_limits(prompts, kLimits),
            std::vector<std::string>{"a mean KL of 0.0800 nats; at most 0.0500 may be"});

  prompts = std::vector<PromptQuality>(3, plain_quality());
  prompts[1].reference_repetition = {.share = 0.5, .period = 2};
  prompts[1].candidate_repetition = {.share = 0.8, .period = 3};
  prompts[2].candidate_repetition = {.share = 0.6, .period = 3};
  ASSERT_EQ(broken_limits(prompts, kLimits),
            std::vector<std::string>{"loops are 46.7 % of the texts and 16.7 % of the reference's; "
                                     "at most 25.0 points more may be"});
  prompts[0].mean_divergence = 5.0;
  prompts[0].same_choice = 0.0;
  EXPECT_EQ(broken_limits(prompts, kLimits).size(), 3u);
}

TEST(MeanQuality, AddsUpPrompts) {
  std::vector<PromptQuality> prompts(2, plain_quality());
  prompts[1] = {.reference_tokens = {},
                .candidate_tokens = {},
                .agreed_count = 1,
                .same_choice = 0.5,
                .mean_divergence = 0.03,
                .largest_divergence = 0.7,
                .reference_repetition = {.share = 0.5, .period = 1},
                .candidate_repetition = {.share = 0.25, .period = 2}};
  QualityMeans means = mean_quality(prompts);
  EXPECT_DOUBLE_EQ(means.agreed_count, 2.5);
  EXPECT_DOUBLE_EQ(means.same_choice, 0.75);
  EXPECT_DOUBLE_EQ(means.divergence, 0.02);
  EXPECT_DOUBLE_EQ(means.largest_divergence, 0.7);
  EXPECT_DOUBLE_EQ(means.reference_repetition, 0.25);
  EXPECT_DOUBLE_EQ(means.candidate_repetition, 0.125);
  prompts[0].largest_divergence = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(mean_quality(prompts).largest_divergence)) << "no later number hides it";
}

TEST(BrokenLimits, DoesNotTakeNanOrNothingForWell) {
  EXPECT_EQ(broken_limits({}, kLimits), std::vector<std::string>{"no prompt was compared"});
  std::vector<PromptQuality> prompts(2, plain_quality());
  prompts[0].mean_divergence = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(broken_limits(prompts, kLimits).size(), 1u);
  prompts[0].same_choice = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(broken_limits(prompts, kLimits).size(), 2u);
}

void uniform_model(std::span<const int32_t> /*tokens*/, std::span<float> logits) {
  std::fill(logits.begin(), logits.end(), 3.5f);
}

TEST(Perplexity, OfAUniformModelIsItsVocabulary) {
  Tokens text;
  for (int i = 0; i < 100; ++i) text.push_back(i * 7 % 50);
  for (const int max_length : {1, 7, 32, 99, 100, 4096}) {
    FakeDecoder decoder({.max_length = max_length, .model = uniform_model});
    std::vector<int64_t> progress;
    const Result<Perplexity> perplexity =
        measure_perplexity(decoder, text, [&progress](int64_t done) { progress.push_back(done); });
    ASSERT_TRUE(perplexity) << perplexity.error().message;
    EXPECT_EQ(perplexity->token_count, 99);
    EXPECT_NEAR(perplexity->value(), 50.0, 1e-9);
    EXPECT_EQ(progress.back(), 99);
    EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
    EXPECT_EQ(decoder.live_count(), 0);
  }
}

// Token 0 has the weight of the length of its context, three others have 1: with a cache of three
// tokens the contexts of eight zeros have 1, 2, 3, 1, 2, 3 and 1 tokens.
TEST(Perplexity, PredictsEachTokenOnceFromItsWindow) {
  for (const int max_rows : {1, 2, 8}) {
    FakeDecoder decoder({.vocabulary = 4,
                         .max_rows = max_rows,
                         .max_length = 3,
                         .model = [](std::span<const int32_t> tokens, std::span<float> logits) {
                           std::fill(logits.begin(), logits.end(), 0.0f);
                           logits[0] = std::log(static_cast<float>(tokens.size()));
                         }});
    const Perplexity perplexity = measure_perplexity(decoder, Tokens(8, 0)).value();
    EXPECT_EQ(perplexity.token_count, 7);
    const double nats =
        3.0 * std::log(4.0 / 1.0) + 2.0 * std::log(5.0 / 2.0) + 2.0 * std::log(6.0 / 3.0);
    EXPECT_NEAR(perplexity.nats, nats, 1e-6);
    EXPECT_NEAR(perplexity.value(), std::exp(nats / 7.0), 1e-6);
  }
}

TEST(Perplexity, IsOneForAModelThatKnowsTheText) {
  FakeDecoder decoder({.model = [](std::span<const int32_t> tokens, std::span<float> logits) {
    chain_model(tokens, logits);
    for (float& logit : logits) logit *= 100.0f;
  }});
  Tokens text = {4, 13};  // the second is what the model says behind the first
  while (text.size() < 20) text.push_back((3 * text.back() + text[text.size() - 2] + 1) % 50);
  EXPECT_NEAR(measure_perplexity(decoder, text).value().value(), 1.0, 1e-12);
}

TEST(Perplexity, RefusesWhatCannotBe) {
  FakeDecoder decoder({});
  EXPECT_EQ(measure_perplexity(decoder, Tokens{1}).error().message,
            "a text of 1 tokens; perplexity takes 2 or more");
  EXPECT_EQ(measure_perplexity(decoder, Tokens{1, 50}).error().message,
            "token 50 is outside the vocabulary of 50");
  FakeDecoder failing({.failing_step = 1});
  EXPECT_FALSE(measure_perplexity(failing, Tokens(20, 1)));
  EXPECT_EQ(failing.live_count(), 0);
  FakeDecoder broken({.model = [](std::span<const int32_t> tokens, std::span<float> logits) {
    chain_model(tokens, logits);
    if (tokens.size() == 5) logits[30] = kNan;
  }});
  EXPECT_EQ(measure_perplexity(broken, Tokens(20, 1)).error().message,
            "a logit before token 5 of the text is not finite");
  EXPECT_TRUE(std::isnan(Perplexity{}.value()));
}

}  // namespace
}  // namespace gapless
