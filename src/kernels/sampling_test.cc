// SPDX-License-Identifier: Apache-2.0

#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "kernels/kernel_test_support.h"

namespace gapless {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool same(const Candidate& a, const Candidate& b) {
  const bool both_nan = std::isnan(a.logit) && std::isnan(b.logit);
  return a.token == b.token && (both_nan || a.logit == b.logit);
}

testing::AssertionResult same_list(std::span<const Candidate> a, std::span<const Candidate> b) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < std::min(a.size(), b.size()) && same(a[i], b[i])) continue;
    return testing::AssertionFailure()
           << "the lists differ at " << i << ", sizes " << a.size() << " and " << b.size();
  }
  return testing::AssertionSuccess();
}

// All of them sorted, cut or filled up to `count`. The order is spelled out once more on purpose.
std::vector<Candidate> sorted_reference(std::span<const float> logits, int32_t first_token,
                                        size_t count) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    all.push_back({logits[i], first_token + static_cast<int32_t>(i)});
  }
  // By key, NaN above everything; a stable sort keeps equal ones by token.
  const auto key = [](const Candidate& candidate) {
    return std::isnan(candidate.logit) ? std::pair(1, 0.0f) : std::pair(0, candidate.logit);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Candidate& a, const Candidate& b) { return key(a) > key(b); });
  all.resize(count, {-kInfinity, -1});
  return all;
}

std::vector<Candidate> top_of(CpuLevel level, std::span<const float> logits, int32_t first_token,
                              size_t count) {
  std::vector<Candidate> top(count, {123.0f, 456});
  take_top(level, logits, first_token, top);
  return top;
}

TEST(TakeTop, GivesWhatAFullSortGives) {
  std::mt19937 random(20260407);
  for (uint32_t round = 0; round < test_effort(300); ++round) {
    const int64_t count = std::uniform_int_distribution<int64_t>(0, 700)(random);
    const GuardedArray<float> logits(count);
    fill_normal(logits.span(), round);
    // Many equal ones, and some of what is not a number of the usual kind.
    for (float& logit : logits.span()) {
      if (round % 3 == 0) logit = std::round(logit * 2);
      if (round % 4 == 0 && random() % 50 == 0) logit = kNan;
      if (round % 5 == 0 && random() % 20 == 0) logit = random() % 2 == 0 ? kInfinity : -kInfinity;
    }
    for (const size_t top_k : {size_t{1}, size_t{2}, size_t{5}, size_t{50}, size_t{1000}}) {
      const std::vector<Candidate> expected = sorted_reference(logits.span(), 77, top_k);
      for (const CpuLevel level : usable_cpu_levels()) {
        SCOPED_TRACE(level_trace(level));
        ASSERT_TRUE(same_list(top_of(level, logits.span(), 77, top_k), expected))
            << "round " << round << ", " << count << " logits, top " << top_k;
      }
    }
  }
}

TEST(TakeTop, FindsOneLogitWhereverItIs) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const float special : {1.0f, kInfinity, kNan}) {
      for (int64_t count = 1; count < 150; ++count) {
        const GuardedArray<float> logits(count);
        for (int64_t at = 0; at < count; ++at) {
          logits[at] = special;
          const Candidate best = top_of(level, logits.span(), 0, 1)[0];
          ASSERT_TRUE(same(best, {special, static_cast<int32_t>(at)})) << at << " of " << count;
          logits[at] = 0.0f;
        }
      }
    }
  }
}

TEST(TakeTop, GivesTiesToTheSmallerToken) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const float value : {0.0f, 3.5f, kInfinity, -kInfinity, kNan}) {
      const std::vector<float> logits(200, value);
      const std::vector<Candidate> top = top_of(level, logits, 10, 3);
      for (int32_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(same(top[static_cast<size_t>(i)], {value, 10 + i})) << value;
      }
    }
    // The two zeros are equal.
    EXPECT_EQ(top_of(level, std::vector<float>{-0.0f, 0.0f}, 0, 1)[0].token, 0);
  }
}

TEST(TakeTop, PutsNaNBeforeInfinityAndNobodyLast) {
  const std::vector<float> logits = {1.0f, kInfinity, kNan, -kInfinity, kNan};
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    const std::vector<Candidate> expected = {{kNan, 2},       {kNan, 4},       {kInfinity, 1},
                                             {1.0f, 0},       {-kInfinity, 3}, {-kInfinity, -1},
                                             {-kInfinity, -1}};
    EXPECT_TRUE(same_list(top_of(level, logits, 0, 7), expected));
    EXPECT_TRUE(same_list(top_of(level, {}, 0, 1), std::vector<Candidate>{{-kInfinity, -1}}));
    take_top(level, logits, 0, {});
  }
}

TEST(MergeTop, GivesTheSameWhateverTheTilesAndTheirOrder) {
  std::mt19937 random(20260408);
  for (uint32_t round = 0; round < test_effort(300); ++round) {
    std::vector<float> logits = normal_values(400, round);
    for (float& logit : logits) logit = std::round(logit * 3);
    if (round % 4 == 0) logits[random() % logits.size()] = kNan;
    const size_t top_k = 1 + random() % 60;
    std::vector<std::vector<Candidate>> tiles;
    for (size_t first = 0; first < logits.size();) {
      const size_t count = std::min<size_t>(1 + random() % 120, logits.size() - first);
      tiles.push_back(top_of(CpuLevel::kPortable, std::span(logits).subspan(first, count),
                             static_cast<int32_t>(first), top_k));
      first += count;
    }
    std::shuffle(tiles.begin(), tiles.end(), random);
    std::vector<Candidate> merged = tiles[0];
    for (size_t i = 1; i < tiles.size(); ++i) merge_top(merged, tiles[i]);
    ASSERT_TRUE(same_list(merged, sorted_reference(logits, 0, top_k))) << "round " << round;
  }
}

TEST(MergeTop, TakesListsOfAnySize) {
  std::vector<Candidate> into = {{5, 1}, {3, 2}};
  merge_top(into, {});
  EXPECT_EQ(into, (std::vector<Candidate>{{5, 1}, {3, 2}}));
  merge_top(into, std::vector<Candidate>{{9, 7}, {8, 8}, {7, 9}});
  EXPECT_EQ(into, (std::vector<Candidate>{{9, 7}, {8, 8}}));
  merge_top(into, std::vector<Candidate>{{8, 3}});
  EXPECT_EQ(into, (std::vector<Candidate>{{9, 7}, {8, 3}})) << "the smaller token";
  std::vector<Candidate> none;
  merge_top(none, into);
  EXPECT_TRUE(none.empty());
}

// The matmul of a small vocabulary: all its logits, and the arguments for tiles of it.
struct SmallHead {
  static constexpr int64_t kM = 5;
  static constexpr int64_t kK = 100;
  static constexpr int64_t kN = 1003;  // the last panel has 11 columns

  SmallHead(CpuLevel level, DType dtype) : rows_block(4096) {
    Result<PackedMatrix> created = PackedMatrix::create(dtype, kN, kK);
    GAPLESS_CHECK(created);
    weights = std::move(created).value();
    weights.set_rows(0, kN, DType::kF32, normal_values(kN * kK, 11).data());
    x = normal_values(kM * kK, 12);
    GAPLESS_CHECK(packed_rows_block_bytes(dtype, level, kM, kK) <= 4096);
    args.weights = &weights;
    args.rows = packed_rows_in(rows_block.data(), dtype, level, kM, kK);
    pack_rows(level, {.dtype = DType::kF32, .data = x.data(), .row_stride = kK}, 0, kM, args.rows);
  }

  std::vector<float> all_logits(CpuLevel level) const {
    std::vector<float> logits(kM * kN);
    MatmulArgs whole = args;
    whole.output = {.dtype = DType::kF32, .data = logits.data(), .row_stride = kN};
    matmul_tile(level, whole, 0, weights.panel_count());
    return logits;
  }

  PackedMatrix weights;
  std::vector<float> x;
  GuardedArray<std::byte> rows_block;
  MatmulArgs args;
};

// The tops of tiles of `tile_panels`, merged from the last to the first.
std::vector<Candidate> top_of_tiles(CpuLevel level, const SmallHead& head, int64_t tile_panels,
                                    int top_k) {
  const size_t count = static_cast<size_t>(SmallHead::kM * top_k);
  std::vector<Candidate> merged(count);
  std::vector<Candidate> tile(count);
  const GuardedArray<float> scratch(lm_head_scratch_floats(SmallHead::kM, tile_panels));
  const int64_t panel_count = head.weights.panel_count();
  for (int64_t first = (panel_count - 1) / tile_panels * tile_panels; first >= 0;
       first -= tile_panels) {
    lm_head_tile(level, head.args, first, std::min(tile_panels, panel_count - first), top_k,
                 scratch.data(), tile.data());
    for (size_t i = 0; i < count; i += static_cast<size_t>(top_k)) {
      merge_top(std::span(merged).subspan(i, static_cast<size_t>(top_k)),
                std::span(tile).subspan(i, static_cast<size_t>(top_k)));
    }
  }
  return merged;
}

TEST(LmHead, KeepsTheLargestLogitsOfTheWholeVocabulary) {
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    for (const DType dtype : {DType::kS8, DType::kBf16}) {
      const SmallHead head(level, dtype);
      const std::vector<float> logits = head.all_logits(level);
      for (const int64_t tile_panels : {1, 6, 7, 63}) {
        for (const int top_k : {1, 20}) {
          const std::vector<Candidate> top = top_of_tiles(level, head, tile_panels, top_k);
          for (size_t row = 0; row < SmallHead::kM; ++row) {
            const size_t k = static_cast<size_t>(top_k);
            const std::span<const float> row_logits =
                std::span(logits).subspan(row * SmallHead::kN, SmallHead::kN);
            EXPECT_TRUE(
                same_list(std::span(top).subspan(row * k, k), sorted_reference(row_logits, 0, k)))
                << dtype_name(dtype) << ", tiles of " << tile_panels << ", row " << row;
          }
        }
      }
    }
  }
}

TEST(UniformDraw, IsAFunctionOfItsArguments) {
  // Fixed for good: a recorded run must be repeatable with later builds.
  EXPECT_EQ(uniform_draw(0, 0, 0), 0x1.1c13ade1c7e5cp-3);
  EXPECT_EQ(uniform_draw(1, 2, 3), 0x1.ab94570702b1ep-2);
  EXPECT_EQ(uniform_draw(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}), 0x1.02a8e26e9f30cp-2);
}

double chi_square(std::span<const int> counts, std::span<const double> probabilities, int draws) {
  double sum = 0.0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * draws;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

// Neighbouring steps, sequences and seeds: each pair of draws falls evenly into 8 x 8 fields.
// 63 degrees of freedom: above 103 once in a thousand.
TEST(UniformDraw, IsEvenAndItsNeighboursAreIndependent) {
  using Draw = double (*)(uint64_t index);
  const Draw draws[] = {[](uint64_t i) { return uniform_draw(1, 5, i); },
                        [](uint64_t i) { return uniform_draw(1, i, 5); },
                        [](uint64_t i) { return uniform_draw(i, 1, 5); },
                        [](uint64_t i) { return uniform_draw(9, i % 16, i / 16); }};
  constexpr int kPairs = 64 * 500;
  const std::vector<double> even(64, 1.0 / 64);
  for (const Draw& draw : draws) {
    std::vector<int> counts(64, 0);
    for (uint64_t i = 0; i < kPairs; ++i) {
      const double a = draw(i);
      const double b = draw(i + 1);
      ASSERT_TRUE(a >= 0.0 && a < 1.0);
      ++counts[static_cast<size_t>(a * 8) * 8 + static_cast<size_t>(b * 8)];
    }
    EXPECT_LT(chi_square(counts, even, kPairs), 103.0) << "draw " << &draw - draws;
  }
}

int32_t drawn(std::span<const Candidate> candidates, const SamplingOptions& options,
              uint64_t sequence, uint64_t step) {
  const Result<int32_t> token = sample(candidates, options, sequence, step);
  if (!token) ADD_FAILURE() << token.error().message;
  return token ? *token : -2;
}

// Tokens 0, 1, 2, ... with these probabilities at temperature 1.
std::vector<Candidate> candidates_with(std::span<const double> probabilities) {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    candidates.push_back({static_cast<float>(std::log(probabilities[i])), static_cast<int32_t>(i)});
  }
  return candidates;
}

std::vector<int> count_draws(std::span<const Candidate> candidates, const SamplingOptions& options,
                             int draws) {
  std::vector<int> counts(candidates.size(), 0);
  for (int i = 0; i < draws; ++i) {
    const int32_t token = drawn(candidates, options, 3, static_cast<uint64_t>(i));
    if (token >= 0) ++counts[static_cast<size_t>(token)];
  }
  return counts;
}

// Five tokens: 4 degrees of freedom, above 18.5 once in a thousand.
TEST(Sample, DrawsWithTheProbabilitiesOfTheLogits) {
  const std::vector<double> probabilities = {0.5, 0.25, 0.15, 0.08, 0.02};
  const std::vector<Candidate> candidates = candidates_with(probabilities);
  constexpr int kDraws = 20000;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const std::vector<int> counts = count_draws(candidates, {.seed = seed}, kDraws);
    EXPECT_LT(chi_square(counts, probabilities, kDraws), 18.5);
  }
  // At temperature 2 the probabilities go with their square roots.
  std::vector<double> flatter;
  double sum = 0.0;
  for (const double p : probabilities) sum += std::sqrt(p);
  for (const double p : probabilities) flatter.push_back(std::sqrt(p) / sum);
  const std::vector<int> counts = count_draws(candidates, {.temperature = 2.0, .seed = 4}, kDraws);
  EXPECT_LT(chi_square(counts, flatter, kDraws), 18.5);
  EXPECT_GT(chi_square(counts, probabilities, kDraws), 1000) << "the test can tell the difference";
}

TEST(Sample, LeavesOutWhatTopKAndTopPLeaveOut) {
  const std::vector<double> probabilities = {0.5, 0.25, 0.15, 0.08, 0.02};
  const std::vector<Candidate> candidates = candidates_with(probabilities);
  constexpr int kDraws = 20000;
  const std::vector<double> three = {0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9};
  // 0.8 is within the third token; of top-k 3, 0.9 is within the third as well.
  const SamplingOptions options[] = {
      {.top_k = 3, .seed = 5}, {.top_p = 0.8, .seed = 6}, {.top_k = 3, .top_p = 0.9, .seed = 7}};
  for (const SamplingOptions& option : options) {
    const std::vector<int> counts = count_draws(candidates, option, kDraws);
    EXPECT_EQ(counts[3] + counts[4], 0);
    // 2 degrees of freedom: above 13.8 once in a thousand.
    EXPECT_LT(chi_square(std::span(counts).first(3), three, kDraws), 13.8);
  }
}

// How many different tokens come up.
int distinct(std::span<const Candidate> candidates, const SamplingOptions& options) {
  const std::vector<int> counts = count_draws(candidates, options, 2000);
  return static_cast<int>(std::count_if(counts.begin(), counts.end(), [](int n) { return n > 0; }));
}

TEST(Sample, TakesTheFewestTokensThatReachTopP) {
  const std::vector<Candidate> equal = {{1, 0}, {1, 1}, {1, 2}, {1, 3}};
  EXPECT_EQ(distinct(equal, {.top_p = 0.0}), 1) << "never nobody";
  EXPECT_EQ(distinct(equal, {.top_p = 0.25}), 1) << "exactly at a boundary";
  EXPECT_EQ(distinct(equal, {.top_p = std::nextafter(0.25, 1.0)}), 2);
  EXPECT_EQ(distinct(equal, {.top_p = 0.5}), 2) << "exactly at a boundary";
  EXPECT_EQ(distinct(equal, {.top_p = 0.75}), 3);
  EXPECT_EQ(distinct(equal, {.top_p = 0.76}), 4);
  EXPECT_EQ(distinct(equal, {.top_p = 1.0}), 4);
  EXPECT_EQ(distinct(equal, {.top_k = 1}), 1);
  EXPECT_EQ(distinct(equal, {.top_k = 100}), 4) << "more than there are";
  EXPECT_EQ(distinct(equal, {.top_k = 2, .top_p = 0.5}), 1) << "of what top-k left";
}

TEST(Sample, IsGreedyAtTemperatureZero) {
  const std::vector<Candidate> candidates = {{2, 7}, {2, 9}, {1, 3}};
  for (uint64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(drawn(candidates, {.temperature = 0.0}, 1, step), 7);
    EXPECT_EQ(drawn(std::span(candidates).subspan(1), {.temperature = 1e-300}, 1, step), 9)
        << "and nearly so just above";
  }
}

TEST(Sample, TakesInfinitiesForWhatTheyAre) {
  const std::vector<Candidate> up = {{kInfinity, 0}, {kInfinity, 1}, {5, 2}, {-kInfinity, 3}};
  const std::vector<int> counts = count_draws(up, {}, 2000);
  EXPECT_EQ(counts[2] + counts[3], 0);
  EXPECT_NEAR(counts[0], 1000, 120);
  const std::vector<Candidate> down = {{5, 0}, {-kInfinity, 1}};
  EXPECT_EQ(distinct(down, {}), 1) << "what cannot be is not drawn";
}

TEST(Sample, DependsOnSeedSequenceAndStepOnly) {
  const std::vector<Candidate> candidates = candidates_with(std::vector<double>(16, 1.0 / 16));
  const SamplingOptions options = {.seed = 42};
  int seeds_differ = 0;
  int sequences_differ = 0;
  int steps_differ = 0;
  for (uint64_t step = 0; step < 200; ++step) {
    const int32_t token = drawn(candidates, options, 1, step);
    EXPECT_EQ(drawn(candidates, options, 1, step), token);
    seeds_differ += drawn(candidates, {.seed = 43}, 1, step) != token ? 1 : 0;
    sequences_differ += drawn(candidates, options, 2, step) != token ? 1 : 0;
    steps_differ += drawn(candidates, options, 1, step + 1) != token ? 1 : 0;
  }
  // 15 of 16 draws differ by chance.
  EXPECT_GT(seeds_differ, 170);
  EXPECT_GT(sequences_differ, 170);
  EXPECT_GT(steps_differ, 170);
}

std::string error_of(std::span<const Candidate> candidates, const SamplingOptions& options = {}) {
  const Result<int32_t> token = sample(candidates, options, 4, 17);
  return token ? "none" : token.error().message;
}

TEST(Sample, RefusesWhatCannotBeDrawn) {
  using List = std::vector<Candidate>;
  EXPECT_EQ(error_of(List{{kNan, 5}, {1, 2}}), "sequence 4, step 17: the logit of token 5 is NaN");
  EXPECT_EQ(error_of(List{{kNan, 5}}, {.temperature = 0.0}),
            "sequence 4, step 17: the logit of token 5 is NaN");
  EXPECT_EQ(error_of(List{{-kInfinity, 0}, {-kInfinity, 1}}),
            "sequence 4, step 17: all logits are -infinity");
  EXPECT_EQ(error_of({}), "sequence 4, step 17: no token to draw");
  EXPECT_EQ(error_of(List{{-kInfinity, -1}}), "sequence 4, step 17: no token to draw");
}

TEST(Sample, RefusesOptionsWithTheirNumber) {
  const std::vector<Candidate> one = {{1, 1}};
  EXPECT_EQ(error_of(one, {.temperature = -0.5}),
            "a temperature of -0.5; must be 0 or more and finite");
  EXPECT_EQ(error_of(one, {.temperature = std::nan("")}),
            "a temperature of nan; must be 0 or more and finite");
  EXPECT_EQ(error_of(one, {.temperature = HUGE_VAL}),
            "a temperature of inf; must be 0 or more and finite");
  EXPECT_EQ(error_of(one, {.top_k = -1}), "top-k of -1; must be 0 (all) or more");
  EXPECT_EQ(error_of(one, {.top_p = -0.1}), "top-p of -0.1; must be 0 to 1");
  EXPECT_EQ(error_of(one, {.top_p = 1.5}), "top-p of 1.5; must be 0 to 1");
  EXPECT_EQ(error_of(one, {.top_p = std::nan("")}), "top-p of nan; must be 0 to 1");
}

}  // namespace
}  // namespace gapless
