// SPDX-License-Identifier: Apache-2.0

#include "sim/matmul_staging.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "sim/sim_test_support.h"

namespace gapless {
namespace {

DeviceProfile ascend() { return changed_profile("ascend-910b", {}); }

MatmulStaging staging_of(const StagingProblem& problem) {
  const Result<MatmulStaging> plan = plan_matmul_staging(ascend(), problem);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  return plan ? *plan : MatmulStaging();
}

std::string error_of(const StagingProblem& problem, const DeviceProfile& profile = ascend()) {
  const Result<MatmulStaging> plan = plan_matmul_staging(profile, problem);
  return plan ? "" : plan.error().message;
}

int64_t used_bytes(const MatmulStaging& plan, const std::string& name) {
  for (const StagedBuffer& buffer : plan.buffers) {
    if (buffer.name == name) return buffer.used_bytes;
  }
  ADD_FAILURE() << "no buffer " << name;
  return 0;
}

TEST(MatmulStaging, StagesTheDualMicrobenchmark) {
  const MatmulStaging plan =
      staging_of({.m = 16, .k = 512, .n = 256, .is_dual = true, .is_int8 = true});
  EXPECT_EQ(plan.tile_k, 256);
  EXPECT_EQ(plan.tile_count, 2);
  EXPECT_EQ(plan.l0_k, 128);
  EXPECT_TRUE(plan.is_a_in_l0a);
  EXPECT_EQ(used_bytes(plan, "Mat"), 16 * 512 + 2 * 2 * 256 * 256);
  EXPECT_EQ(used_bytes(plan, "L0A"), 16 * 512);
  EXPECT_EQ(used_bytes(plan, "L0B"), 65536);
  EXPECT_EQ(used_bytes(plan, "L0C"), 2 * 16 * 256 * 4);
  EXPECT_EQ(used_bytes(plan, "UB"), 2 * 8 * 256 * 4 + 2 * 256 * 4 + 32);
  EXPECT_EQ(plan.load_count, 1 + 2 * 2);
  EXPECT_EQ(plan.multiply_count, 2 * 512 / 128);
  EXPECT_EQ(plan.move_count, 1 + 8);
  EXPECT_EQ(plan.store_count, 2);
  EXPECT_EQ(plan.b_bytes, 2 * 512 * 256);
  EXPECT_EQ(plan.store_bytes, 2 * 16 * 256 * 4);
}

TEST(MatmulStaging, LoadsRowsOnceForBothResults) {
  const StagingProblem single = {.m = 16, .k = 5120, .n = 256};
  StagingProblem dual = single;
  dual.is_dual = true;
  const MatmulStaging one = staging_of(single);
  const MatmulStaging two = staging_of(dual);
  EXPECT_EQ(one.a_bytes, 16 * 5120 * 2);
  EXPECT_EQ(two.a_bytes, one.a_bytes);
  EXPECT_EQ(two.b_bytes, 2 * one.b_bytes);
  EXPECT_FALSE(two.is_a_in_l0a) << "163840 bytes";
  EXPECT_EQ(two.multiply_count, 2 * 5120 / two.l0_k);
  EXPECT_EQ(two.move_count, 3 * 5120 / two.l0_k) << "a piece of A and two of B";
  EXPECT_EQ(used_bytes(two, "UB"), 0) << "the fixpipe stores f32 sums";
}

// pypto-lib #665, see matmul_staging.cc for what may have been staged.
TEST(MatmulStaging, RefusesThePublishedTileWithItsSum) {
  StagingProblem problem = {.m = 64, .k = 1024, .n = 512, .is_dual = true, .tile_k = 128};
  EXPECT_EQ(error_of(problem),
            "Mat of ascend-910b: 655360 > 524288 bytes (131072 of A and 4 tiles of 131072 of B); "
            "the largest tile that fits has 256 columns");
  problem.m = 16;
  EXPECT_EQ(error_of(problem),
            "Mat of ascend-910b: 557056 > 524288 bytes (32768 of A and 4 tiles of 131072 of B); "
            "the largest tile that fits has 480 columns");
  problem.n = 480;
  EXPECT_EQ(used_bytes(staging_of(problem), "Mat"), 524288);
}

TEST(MatmulStaging, SaysTheMostColumnsThatFit) {
  for (const bool is_dual : {false, true}) {
    for (const bool is_int8 : {false, true}) {
      for (const int64_t m : {1, 16, 48, 128}) {
        StagingProblem problem = {
            .m = m, .k = 5120, .n = 17408, .is_dual = is_dual, .is_int8 = is_int8};
        const std::string error = error_of(problem);
        const size_t at = error.find("has ");
        if (at == std::string::npos) {
          EXPECT_NE(error.find("not even 16 columns fit"), std::string::npos) << error;
          problem.n = 16;
          EXPECT_NE(error_of(problem), "");
          continue;
        }
        problem.n = std::stoll(error.substr(at + 4));
        EXPECT_EQ(problem.n % 16, 0);
        EXPECT_EQ(error_of(problem), "") << problem.n;
        problem.n += 16;
        EXPECT_NE(error_of(problem), "") << problem.n;
      }
    }
  }
}

TEST(MatmulStaging, NeverUsesMoreThanThereIs) {
  for (const int64_t k : {1, 31, 32, 33, 500, 512, 1000, 5120}) {
    for (const int64_t n : {1, 16, 17, 200, 256}) {
      for (const bool is_int8 : {false, true}) {
        const MatmulStaging plan =
            staging_of({.m = 7, .k = k, .n = n, .is_dual = true, .is_int8 = is_int8});
        for (const StagedBuffer& buffer : plan.buffers)
          EXPECT_LE(buffer.used_bytes, buffer.size_bytes) << buffer.name;
        EXPECT_GE(plan.tile_k * plan.tile_count, k);
        EXPECT_LT(plan.tile_k * (plan.tile_count - 1), plan.padded_k);
        EXPECT_GE(plan.multiply_count * plan.l0_k, 2 * k);
      }
    }
  }
}

TEST(MatmulStaging, RefusesWhatCannotBePlanned) {
  EXPECT_EQ(error_of({.m = 0, .k = 1, .n = 1}), "m = 0; a staged matmul takes 1 to 65536");
  EXPECT_EQ(error_of({.m = 1, .k = 65537, .n = 1}), "k = 65537; a staged matmul takes 1 to 65536");
  EXPECT_EQ(error_of({.m = 1, .k = 1, .n = -4}), "n = -4; a staged matmul takes 1 to 2147483648");
  EXPECT_EQ(error_of({.m = 1, .k = 64, .n = 16, .is_int8 = true, .tile_k = 48}),
            "tiles of 48 along k: a multiple of 32 is needed, 32 bytes of it");
  EXPECT_EQ(error_of({.m = 1, .k = 64, .n = 16}, changed_profile("cpu-like", {})),
            "cpu-like has no buffers to plan for: buffer.mat_bytes is 0, l0a 0, l0b 0, l0c 0");
  EXPECT_EQ(error_of({.m = 2048, .k = 5120, .n = 256, .is_dual = true}),
            "Mat of ascend-910b: 21004288 > 524288 bytes (20971520 of A and 4 tiles of 8192 of B); "
            "not even 16 columns fit");
}

}  // namespace
}  // namespace gapless
