// SPDX-License-Identifier: Apache-2.0
//
// What holds whatever the shape: same bits in any batch and order, NaN and infinity, extremes,
// messages. Accuracy is in attention_accuracy_test.cc.

#include "kernels/attention.h"

#include <atomic>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/attention_test_support.h"

namespace gapless {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBf16, DType::kS8};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool all_nan(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

// Rewrites one element of a token's key.
void set_key(AttentionBatch& batch, int sequence, int token, int kv_head, int dim, float value) {
  const KvPages pages = batch.pages();
  const size_t head_dim = static_cast<size_t>(pages.shape.head_dim);
  std::vector<float> keys(head_dim);
  std::vector<float> values(head_dim);
  const int64_t page =
      batch.table()[sequence * batch.table_stride() + token / pages.shape.page_tokens];
  const int in_page = token % pages.shape.page_tokens;
  read_kv(pages, page, in_page, kv_head, keys.data(), values.data());
  keys[static_cast<size_t>(dim)] = value;
  write_kv(pages, page, in_page, kv_head, keys.data(), values.data());
}

TEST(AttentionReference, IsTheFormula) {
  // Two tokens with scores 0 and ln 3, so probabilities 1/4 and 3/4; values 0 and 8.
  const float q = std::log(3.0f) * 2.0f;
  const float keys[] = {0.0f, 1.0f};
  const float values[] = {0.0f, 8.0f};
  double output = 0.0;
  AttentionReferenceArgs args{.group_heads = 1,
                              .head_dim = 1,
                              .length = 2,
                              .scale = 0.5f,
                              .q = &q,
                              .keys = keys,
                              .values = values,
                              .output = &output};
  attention_reference(args);
  EXPECT_NEAR(output, 6.0, 1e-6);
  args.length = 1;
  attention_reference(args);
  EXPECT_EQ(output, 0.0);
  // With bf16 pages q = 1.001 is 1, and so is the probability of the largest score.
  const float above_one = 1.001f;
  args.kv_dtype = DType::kBf16;
  args.length = 2;
  args.scale = 1.0f;
  args.q = &above_one;
  attention_reference(args);
  const double other = cast_through(DType::kBf16, std::exp(-1.0f));
  EXPECT_NE(other, std::exp(-1.0));
  EXPECT_DOUBLE_EQ(output, 8.0 / (1.0 + other));
}

// A sequence of a batch alone: same pages and query, other place.
TEST(Attention, GivesASequenceTheSameBitsInAnyBatch) {
  for (const DType dtype : kDTypes) {
    const KvShape shape{dtype, 2, 64, 48};
    AttentionBatch many(
        {.shape = shape, .q_heads = 10, .chunk_tokens = 128, .lengths = {5, 333, 1000, 0, 128}});
    AttentionBatch one({.shape = shape, .q_heads = 10, .chunk_tokens = 128, .lengths = {333}});
    AttentionArgs alone = one.args();
    AttentionArgs all = many.args();
    alone.pages = all.pages;
    alone.q = all.q + 1 * 10 * 64;
    alone.page_table = all.page_table + 1 * all.page_table_stride;
    for (const CpuLevel level : usable_cpu_levels()) {
      SCOPED_TRACE(level_trace(level));
      many.run_all(level);
      one.forget_results();
      for (const AttentionItem& item : one.items()) attention_item(level, alone, item);
      for (int head = 0; head < 2; ++head) {
        attention_combine(level, alone, 0, head);
        EXPECT_TRUE(same_bits(one.output_of(0, head), many.output_of(1, head)));
        EXPECT_FALSE(all_nan(one.output_of(0, head)));
      }
    }
  }
}

TEST(Attention, GivesTheSameBitsInAnyOrderAndByTwoThreads) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    AttentionBatch batch({.shape = {dtype, 4, 128, 128},
                          .q_heads = 20,
                          .chunk_tokens = 256,
                          .lengths = {700, 128, 0, 513}});
    for (const CpuLevel level : usable_cpu_levels()) {
      SCOPED_TRACE(level_trace(level));
      batch.run_all(level);
      std::vector<std::vector<float>> expected;
      for (int i = 0; i < 16; ++i) expected.push_back(batch.output_of(i / 4, i % 4));
      std::vector<AttentionItem> items = batch.items();
      std::mt19937 random(3);
      std::shuffle(items.begin(), items.end(), random);
      batch.forget_results();
      std::atomic<size_t> next = 0;
      const AttentionArgs args = batch.args();
      const auto work = [&] {
        for (size_t i = next++; i < items.size(); i = next++) attention_item(level, args, items[i]);
      };
      std::thread other(work);
      work();
      other.join();
      batch.combine_all(level);
      for (int i = 0; i < 16; ++i) {
        EXPECT_TRUE(same_bits(batch.output_of(i / 4, i % 4), expected[static_cast<size_t>(i)]));
      }
    }
  }
}

TEST(Attention, GivesZerosForAnEmptySequence) {
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const DType output : {DType::kF32, DType::kBf16, DType::kF16}) {
      AttentionBatch batch({.shape = {DType::kF16, 1, 64, 16},
                            .q_heads = 4,
                            .output_dtype = output,
                            .lengths = {0, 3}});
      batch.run_all(level);
      for (const float value : batch.output_of(0, 0)) EXPECT_EQ(value, 0.0f);
      for (const float value : batch.output_of(1, 0)) EXPECT_NE(value, 0.0f);
    }
  }
}

TEST(Attention, GivesTheValueItselfForOneToken) {
  for (const DType dtype : kDTypes) {
    AttentionBatch batch({.shape = {dtype, 1, 128, 16}, .q_heads = 3, .lengths = {1}});
    std::vector<float> key(128);
    std::vector<float> value(128);
    read_kv(batch.pages(), batch.table()[0], 0, 0, key.data(), value.data());
    for (const CpuLevel level : usable_cpu_levels()) {
      SCOPED_TRACE(level_trace(level));
      batch.run_all(level);
      const std::vector<float> output = batch.output_of(0, 0);
      for (size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], value[i % 128]);
    }
  }
}

TEST(Attention, SeesATokenThatWasWrittenBeforeTheItem) {
  for (const DType dtype : kDTypes) {
    AttentionBatch batch({.shape = {dtype, 2, 64, 16}, .q_heads = 8, .lengths = {33}});
    for (const CpuLevel level : usable_cpu_levels()) {
      SCOPED_TRACE(level_trace(level));
      batch.lengths()[0] = 32;
      batch.run_all(level);
      const std::vector<float> before = batch.output_of(0, 1);
      const std::vector<float> key = normal_values(64, 50 + static_cast<uint32_t>(level), 3.0f);
      const std::vector<float> value = normal_values(64, 90 + static_cast<uint32_t>(level));
      write_kv(batch.pages(), batch.table()[2], 0, 1, key.data(), value.data());
      batch.lengths()[0] = 33;
      batch.run_all(level);
      EXPECT_FALSE(same_bits(batch.output_of(0, 1), before));
      EXPECT_TRUE(all_near(batch.output_of(0, 1), batch.reference(0, 1), {.absolute = 2e-5}));
    }
  }
}

// Scores up to +-1e4: the largest takes nearly all. f32 scores of that size are known to 1e-3 or
// so, and so are the ratios of the probabilities.
TEST(Attention, DoesNotOverflowWithLargeScores) {
  for (const DType dtype : kDTypes) {
    AttentionBatch batch({.shape = {dtype, 2, 128, 128},
                          .q_heads = 10,
                          .chunk_tokens = 256,
                          .lengths = {1, 100, 700},
                          .q_deviation = 4000.0f});
    for (const CpuLevel level : usable_cpu_levels()) {
      SCOPED_TRACE(level_trace(level));
      batch.run_all(level);
      for (int i = 0; i < 6; ++i) {
        EXPECT_TRUE(all_near(batch.output_of(i / 2, i % 2), batch.reference(i / 2, i % 2),
                             {.absolute = 2e-2}));
      }
    }
  }
}

TEST(Attention, TakesANanInAKeyToItsHeadGroupOnly) {
  for (const DType dtype : kDTypes) {
    const AttentionBatchOptions options{
        .shape = {dtype, 3, 64, 32}, .q_heads = 15, .chunk_tokens = 64, .lengths = {50, 200}};
    for (const int token : {0, 63, 150, 199}) {
      AttentionBatch clean(options);
      AttentionBatch spoiled(options);
      set_key(spoiled, 1, token, 1, 17, kNan);
      for (const CpuLevel level : usable_cpu_levels()) {
        SCOPED_TRACE(level_trace(level));
        clean.run_all(level);
        spoiled.run_all(level);
        for (int i = 0; i < 6; ++i) {
          const std::vector<float> output = spoiled.output_of(i / 3, i % 3);
          if (i == 4) {
            EXPECT_TRUE(all_nan(output));
          } else {
            EXPECT_TRUE(same_bits(output, clean.output_of(i / 3, i % 3)));
          }
        }
      }
    }
  }
}

// A key that is infinite in one dim has a score of +infinity with some heads (NaN, as the formula
// says) and of -infinity with the others (no part in the result).
TEST(Attention, DoesWithInfiniteScoresWhatTheFormulaDoes) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int token : {0, 130, 299}) {
      AttentionBatch batch(
          {.shape = {dtype, 1, 64, 64}, .q_heads = 8, .chunk_tokens = 256, .lengths = {300}});
      set_key(batch, 0, token, 0, 9, kInfinity);
      const std::vector<double> expected = batch.reference(0, 0);
      const auto nans = std::count_if(expected.begin(), expected.end(),
                                      [](double value) { return std::isnan(value); });
      ASSERT_GT(nans, 0);
      ASSERT_LT(nans, static_cast<int64_t>(expected.size()));
      for (const CpuLevel level : usable_cpu_levels()) {
        SCOPED_TRACE(level_trace(level));
        batch.run_all(level);
        EXPECT_TRUE(all_near(batch.output_of(0, 0), expected, {.absolute = 5e-3}));
      }
    }
  }
}

// The first `count` tokens have a score of -infinity: whole blocks and whole chunks of them take no
// part, and when there is nothing else the result is NaN.
TEST(Attention, SkipsBlocksAndChunksOfScoresOfMinusInfinity) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int count : {1, 128, 256, 299, 300}) {
      AttentionBatch batch(
          {.shape = {dtype, 1, 64, 64}, .q_heads = 2, .chunk_tokens = 256, .lengths = {300}});
      for (const int head : {0, 1}) batch.q()[static_cast<size_t>(head * 64 + 9)] = 1.0f;
      for (int token = 0; token < count; ++token) set_key(batch, 0, token, 0, 9, -kInfinity);
      for (const CpuLevel level : usable_cpu_levels()) {
        SCOPED_TRACE(level_trace(level));
        batch.run_all(level);
        EXPECT_TRUE(all_near(batch.output_of(0, 0), batch.reference(0, 0), {.absolute = 5e-3}));
        EXPECT_EQ(all_nan(batch.output_of(0, 0)), count == 300);
      }
    }
  }
}

TEST(Attention, KeepsDenormalF16Values) {
  AttentionBatch batch({.shape = {DType::kF16, 1, 64, 16}, .q_heads = 1, .lengths = {40}});
  const std::vector<float> key(64, 0.25f);
  const std::vector<float> value(64, 0x1p-22f);  // the smallest f16 is 2^-24
  for (int token = 0; token < 40; ++token) {
    write_kv(batch.pages(), batch.table()[token / 16], token % 16, 0, key.data(), value.data());
  }
  for (const CpuLevel level : usable_cpu_levels()) {
    SCOPED_TRACE(level_trace(level));
    batch.run_all(level);
    EXPECT_TRUE(all_near(batch.output_of(0, 0), batch.reference(0, 0), {.relative = 1e-6}));
  }
}

TEST(Attention, CountsChunksAndPartials) {
  EXPECT_EQ(chunk_count(0, 512), 0);
  EXPECT_EQ(chunk_count(1, 512), 1);
  EXPECT_EQ(chunk_count(512, 512), 1);
  EXPECT_EQ(chunk_count(513, 512), 2);
  EXPECT_EQ(partial_floats(40, {DType::kF16, 8, 128, 128}), 656);  // 5 x 130 = 650
  EXPECT_EQ(partial_floats(8, {DType::kF16, 8, 64, 16}), 80);      // 66
}

class AttentionCheck : public testing::Test {
 protected:
  AttentionCheck()
      : batch_({.shape = {DType::kBf16, 2, 64, 16}, .q_heads = 4, .lengths = {20, 600}}),
        args_(batch_.args()) {}

  std::string message() const {
    const Result<void> result = check_attention(args_);
    return result ? "" : result.error().message;
  }

  AttentionBatch batch_;
  AttentionArgs args_;
};

TEST_F(AttentionCheck, TakesAGoodBatch) { EXPECT_EQ(message(), ""); }

TEST_F(AttentionCheck, RefusesAKvShapeThatIsNotKnown) {
  args_.pages.shape.head_dim = 80;
  EXPECT_EQ(message(), "head_dim 80: 64, 128 and 256 are known");
}

TEST_F(AttentionCheck, RefusesHeadsThatDoNotFit) {
  args_.q_heads = 5;
  EXPECT_EQ(message(), "5 query heads are not a multiple of 2 kv heads");
  args_.q_heads = 0;
  EXPECT_EQ(message(), "0 query heads are not a multiple of 2 kv heads");
  args_.q_heads = 34;
  EXPECT_EQ(message(), "17 query heads share a kv head (34 over 2): at most 16 can");
}

TEST_F(AttentionCheck, RefusesChunksThatAreNoMultipleOf16) {
  args_.chunk_tokens = 40;
  EXPECT_EQ(message(), "chunks of 40 tokens: a multiple of 16 is needed");
  args_.chunk_tokens = 0;
  EXPECT_EQ(message(), "chunks of 0 tokens: a multiple of 16 is needed");
}

TEST_F(AttentionCheck, RefusesBatchesAndOutputsThatCannotBe) {
  args_.batch = -1;
  EXPECT_EQ(message(), "a batch of -1 sequences");
  args_ = batch_.args();
  args_.output_dtype = DType::kS8;
  EXPECT_EQ(message(), "attention output of s8: f32, bf16 and f16 are known");
  args_ = batch_.args();
  args_.output = nullptr;
  EXPECT_EQ(message(), "attention without q, lengths or output");
}

TEST_F(AttentionCheck, RefusesArraysThatAreNotAligned) {
  args_.pages.data += 32;
  EXPECT_EQ(message(), "kv pages do not begin at a multiple of 64 bytes");
  args_ = batch_.args();
  args_.partials += 1;
  EXPECT_EQ(message(), "attention partials do not begin at a multiple of 64 bytes");
}

TEST_F(AttentionCheck, RefusesLengthsThatDoNotFit) {
  batch_.lengths()[0] = -3;
  EXPECT_EQ(message(), "sequence 0 has -3 tokens");
  batch_.lengths()[0] = 39 * 16 + 1;
  EXPECT_EQ(message(), "sequence 0 has 625 tokens in 40 pages, but its page table has room for 39");
}

TEST_F(AttentionCheck, RefusesPagesThatAreNotThere) {
  batch_.table()[batch_.table_stride() + 4] = 78;
  EXPECT_EQ(message(), "page 4 of sequence 1 is number 78 of 78 pages");
  batch_.table()[batch_.table_stride() + 4] = -1;
  EXPECT_EQ(message(), "page 4 of sequence 1 is number -1 of 78 pages");
  batch_.table()[batch_.table_stride() + 4] = 0;
  batch_.table()[batch_.table_stride() + 38] = 99;  // behind the last token's page
  EXPECT_EQ(message(), "");
  args_.page_table = nullptr;
  EXPECT_EQ(message(),
            "sequence 0 has 20 tokens, but there is no page table or there are no pages");
}

TEST_F(AttentionCheck, RefusesLongSequencesWithoutPartials) {
  args_.partials = nullptr;
  EXPECT_EQ(message(),
            "sequence 1 has 600 tokens, more than a chunk of 512, but there are no partials");
}

}  // namespace
}  // namespace gapless
