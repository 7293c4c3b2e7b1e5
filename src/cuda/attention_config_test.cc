// SPDX-License-Identifier: Apache-2.0
//
// What of the attention on a GPU needs no GPU: shapes and their errors, shared memory, workspace,
// the layout of pages.

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/attention.h"
#include "cuda/device_test_support.h"
#include "cuda/kv_pages.h"

namespace gapless {
namespace {

CudaAttentionShape qwen_shape() {
  return {.kv = {.dtype = DType::kBf16, .kv_heads = 8, .head_dim = 128, .page_tokens = 128},
          .q_heads = 40,
          .max_batch = 16,
          .max_tokens = 4096};
}

CudaLimits h200_limits() { return all_test_devices().front(); }

std::string refusal(const CudaAttentionShape& shape) {
  const Result<CudaAttentionConfig> config = configure_cuda_attention(shape, h200_limits());
  return config ? "" : config.error().message;
}

TEST(CudaAttentionConfig, FillsSharedMemoryWithTheRing) {
  for (const int head_dim : {64, 128, 256}) {
    for (const int group : {1, 5, 8, 9, 16}) {
      CudaAttentionShape shape = qwen_shape();
      shape.kv.head_dim = head_dim;
      shape.q_heads = 8 * group;
      const Result<CudaAttentionConfig> config = configure_cuda_attention(shape, h200_limits());
      ASSERT_TRUE(config) << config.error().message;
      EXPECT_LE(config->shared.bytes, 232448);
      EXPECT_GE(config->buffers.ring_slots, group > 8 ? 1 : 2) << head_dim << " group " << group;
      EXPECT_EQ(config->form.query_blocks, group > 8 ? 2 : 1);
      EXPECT_EQ(config->grid_limit, 132);
    }
  }
}

// Every number of query heads a kv head with every head_dim.
std::vector<CudaAttentionShape> all_shapes() {
  std::vector<CudaAttentionShape> shapes;
  for (const int head_dim : {64, 128, 256}) {
    for (int group = 1; group <= 16; ++group) {
      CudaAttentionShape shape = qwen_shape();
      shape.kv.head_dim = head_dim;
      shape.q_heads = 8 * group;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

TEST(CudaAttentionConfig, FitsEveryDevice) {
  for (const CudaLimits& limits : all_test_devices()) {
    for (const CudaAttentionShape& shape : all_shapes()) {
      const Result<CudaAttentionConfig> config = configure_cuda_attention(shape, limits);
      ASSERT_TRUE(config) << "head_dim " << shape.kv.head_dim << ", " << shape.q_heads
                          << " query heads: " << config.error().message;
      EXPECT_LE(config->shared.bytes, limits.shared_block_bytes);
      EXPECT_EQ(config->form.is_sm90, limits.compute_capability == 90);
      EXPECT_GE(config->form.threads(), 256) << "a thread for every sequence";
    }
  }
}

// Goal: parts of shared memory follow each other without a gap or an overlap, where they may lie:
// copies and vectors need 16 bytes, barriers 8.
TEST(CudaAttentionConfig, LaysPartsOfSharedMemorySideBySide) {
  for (const CudaLimits& limits : all_test_devices()) {
    for (const CudaAttentionShape& shape : all_shapes()) {
      const Result<CudaAttentionConfig> config = configure_cuda_attention(shape, limits);
      ASSERT_TRUE(config) << config.error().message;
      const AttentionShared& shared = config->shared;
      const AttentionBuffers& buffers = config->buffers;
      const int warps = config->form.warps();
      const int head_dim = shape.kv.head_dim;
      const int group = shape.q_heads / shape.kv.kv_heads;
      const int64_t partial_bytes = 4 * partial_floats(shape.q_heads, shape.kv);
      EXPECT_EQ(shared.ring_bytes, buffers.ring_slots * 2 * 16 * 2 * head_dim);
      EXPECT_EQ(shared.queries, warps * shared.ring_bytes);
      EXPECT_EQ(shared.staged, shared.queries + buffers.query_buffers * 2 * group * head_dim);
      EXPECT_EQ(shared.states, shared.staged + buffers.staged * partial_bytes);
      EXPECT_EQ(shared.state_bytes, shared.sum_bytes + 2 * 4 * warps * kAttentionMaxGroup);
      EXPECT_EQ(shared.barriers, shared.states + buffers.state_buffers * shared.state_bytes);
      EXPECT_EQ(shared.ring_barrier_bytes, 16 * warps * buffers.ring_slots);
      const int other_barriers = kAttentionMaxQueryBuffers + 2 * kAttentionMaxStateBuffers + 1;
      EXPECT_GE(shared.schedule, shared.barriers + shared.ring_barrier_bytes + 8 * other_barriers);
      EXPECT_EQ(shared.bytes, shared.schedule + kAttentionScheduleBytes);
      for (const int vectors : {shared.queries, shared.query_bytes, shared.staged, shared.states,
                                shared.state_bytes, shared.sum_bytes, shared.schedule}) {
        EXPECT_EQ(vectors % 16, 0) << "head_dim " << head_dim << ", group " << group;
      }
      EXPECT_EQ(shared.barriers % 8, 0);
    }
  }
}

TEST(CudaAttentionConfig, KeepsHalfOfTheRingForThoseInAHurry) {
  const Result<CudaAttentionConfig> config = configure_cuda_attention(qwen_shape(), h200_limits());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->buffers.ring_slots, 2);
  EXPECT_EQ(config->calm_slots, 1);
  const Result<CudaAttentionConfig> tuned =
      configure_cuda_attention(qwen_shape(), h200_limits(), {.ring_slots = 1});
  ASSERT_TRUE(tuned) << tuned.error().message;
  EXPECT_EQ(tuned->buffers.ring_slots, 1);
  EXPECT_EQ(tuned->calm_slots, 1);
}

TEST(CudaAttentionConfig, CountsNoMoreTilesForAPairThanCanBeAddedUp) {
  EXPECT_TRUE(configure_cuda_attention(qwen_shape(), h200_limits(), {.pair_tiles = 4096}));
  const Result<CudaAttentionConfig> refused =
      configure_cuda_attention(qwen_shape(), h200_limits(), {.pair_tiles = 4097});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "pairs that count 4097 tiles beside those they have; at most 4096");
}

TEST(CudaAttentionConfig, TakesNoMoreSlotsThanFit) {
  for (const int slots : {4, 1000, 1 << 15, 1 << 16, 1 << 30}) {
    const Result<CudaAttentionConfig> config =
        configure_cuda_attention(qwen_shape(), h200_limits(), {.ring_slots = slots});
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->buffers.ring_slots, 2) << slots;
    EXPECT_GT(config->shared.bytes, 128 << 10);
    EXPECT_LE(config->shared.bytes, 232448);
  }
}

// Goal: at the share of the pins' bandwidth that is asked for, a tile of 8 KiB takes as long as so
// many bytes do; without knowing the bandwidth everything is late.
TEST(CudaAttentionConfig, SaysWhenTilesAreDue) {
  CudaLimits limits = h200_limits();
  limits.pin_bytes_per_s = 4e12;
  const Result<CudaAttentionConfig> config =
      configure_cuda_attention(qwen_shape(), limits, {.due_share = 0.5});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FLOAT_EQ(config->tile_ns, 8192.0f / 2000.0f);
  limits.pin_bytes_per_s = 0;
  const Result<CudaAttentionConfig> unknown = configure_cuda_attention(qwen_shape(), limits);
  ASSERT_TRUE(unknown) << unknown.error().message;
  EXPECT_EQ(unknown->tile_ns, 0.0f);
}

// Goal: the multiplication that stands for a division is right for every number that occurs.
TEST(CudaAttentionConfig, DividesByMultiplying) {
  for (int divisor = 16; divisor <= 4096; divisor += 16) {
    const uint64_t factor = attention_factor(divisor);
    for (uint64_t quotient = 0; quotient * static_cast<uint64_t>(divisor) <= (1u << 20) + 4096;
         ++quotient) {
      const uint64_t first = quotient * static_cast<uint64_t>(divisor);
      ASSERT_EQ(first * factor >> 32, quotient) << first << " / " << divisor;
      if (first > 0) {
        ASSERT_EQ((first - 1) * factor >> 32, quotient - 1) << divisor;
      }
    }
  }
}

TEST(CudaAttentionConfig, DividesByTheNumberOfBlocks) {
  for (int blocks = 1; blocks <= 300; ++blocks) {
    const AttentionDivider divider = attention_divider(blocks);
    const uint64_t divisor = static_cast<uint64_t>(blocks);
    for (const uint64_t end : {600u, 17450u, 1u << 24, 1u << 31}) {
      for (uint64_t n = end - 600; n < end; ++n) {
        ASSERT_EQ(n * divider.factor >> divider.shift, n / divisor) << n << " / " << blocks;
      }
    }
  }
}

TEST(CudaAttentionConfig, RefusesShapesWithTheirNumbers) {
  CudaAttentionShape shape = qwen_shape();
  shape.kv.dtype = DType::kS8;
  EXPECT_EQ(refusal(shape), "pages of s8; the attention on a GPU takes bf16 and f16");
  shape = qwen_shape();
  shape.output_dtype = DType::kF16;
  EXPECT_EQ(refusal(shape),
            "f16 output of bf16 pages; the attention on a GPU stores the pages' type or f32");
  shape = qwen_shape();
  shape.max_batch = 257;
  EXPECT_EQ(refusal(shape), "a batch of 257 sequences; the attention on a GPU takes 1 to 256");
  shape = qwen_shape();
  shape.max_tokens = 0;
  EXPECT_EQ(refusal(shape),
            "sequences of up to 0 tokens; the attention on a GPU takes 1 to 1048576");
  shape = qwen_shape();
  shape.q_heads = 41;
  EXPECT_NE(refusal(shape).find("41 query heads"), std::string::npos);
  shape = qwen_shape();
  shape.q_heads = 8 * 17;
  EXPECT_NE(refusal(shape).find("17 to one"), std::string::npos);
  shape = qwen_shape();
  shape.kv.head_dim = 96;
  EXPECT_NE(refusal(shape).find("96"), std::string::npos);
  shape = qwen_shape();
  shape.chunk_tokens = 4112;
  EXPECT_EQ(refusal(shape),
            "chunks of 4112 tokens; the attention on a GPU takes at most 4096 with head_dim 128");
}

TEST(CudaAttentionConfig, SaysWhenSharedMemoryIsTooSmall) {
  CudaLimits limits = h200_limits();
  limits.shared_block_bytes = 48 << 10;
  const Result<CudaAttentionConfig> config = configure_cuda_attention(qwen_shape(), limits);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("H200 has 49152"), std::string::npos);
}

TEST(CudaAttentionWorkspace, HoldsWhatThePlannerCounts) {
  const CudaAttentionShape shape = qwen_shape();
  const std::vector<int32_t> lengths = {0, 1, 512, 513, 4096, 2000};
  const AttentionProblem problem = {
      .kv = shape.kv, .q_heads = shape.q_heads, .chunk_tokens = shape.chunk_tokens};
  const Result<AttentionPlan> plan = plan_attention(problem, lengths);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(cuda_attention_workspace_bytes(shape, lengths),
            256 + plan->workspace_bytes + 4 * plan->partial_count);
  const std::vector<int32_t> longest(16, 4096);
  EXPECT_EQ(cuda_attention_workspace_bytes(shape), cuda_attention_workspace_bytes(shape, longest));
  EXPECT_EQ(cuda_attention_workspace_bytes(shape, std::vector<int32_t>{512, 1}), 256);
}

TEST(CudaKvPages, GiveEveryElementAPlaceOfItsOwn) {
  for (const int head_dim : {64, 128, 256}) {
    std::set<int> places;
    for (int token = 0; token < 32; ++token) {
      for (int dim = 0; dim < head_dim; ++dim) {
        const int place = cuda_kv_element(head_dim, token, dim);
        EXPECT_EQ(place / head_dim, token) << "a row stays together";
        EXPECT_EQ(place % 8, dim % 8) << "a unit stays together";
        places.insert(place);
      }
    }
    EXPECT_EQ(places.size(), static_cast<size_t>(32 * head_dim));
  }
}

// Eight rows at one unit must lie in eight different sixteenths of the 128 bytes of all banks.
TEST(CudaKvPages, SpreadTheRowsOfAUnitOverAllBanks) {
  for (const int head_dim : {64, 128, 256}) {
    for (int dim = 0; dim < head_dim; dim += 8) {
      std::set<int> banks;
      for (int token = 8; token < 16; ++token) {
        banks.insert(cuda_kv_element(head_dim, token, dim) * 2 % 128);
      }
      EXPECT_EQ(banks.size(), 8u);
    }
  }
}

}  // namespace
}  // namespace gapless
