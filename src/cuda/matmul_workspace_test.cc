// SPDX-License-Identifier: Apache-2.0
//
// Matmuls on a GPU that share a workspace: each finds the sums of its own launch, and no older
// ones. Without a GPU the tests are skipped and say so.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/gpu_test_support.h"
#include "cuda/matmul.h"
#include "cuda/matmul_test_support.h"

namespace gapless {
namespace {

using Bytes = std::vector<std::byte>;

class CudaMatmulWorkspaceOnDevice : public GpuTest {};

// So many tokens of a matmul's, from the first one on.
struct SharedLaunch {
  size_t matmul = 0;
  int tokens = 0;
  int64_t first_token = 0;
};

CudaMatmulArgs args_of(const CudaMatmulRun& run, const SharedLaunch& launch,
                       const DeviceBuffer& workspace, void* output) {
  CudaMatmulArgs args = run.args();
  args.tokens = launch.tokens;
  args.x = static_cast<const std::byte*>(args.x) + launch.first_token * args.x_stride;  // s8
  args.token_scales += launch.first_token;
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  args.output = output;
  args.starts_early = true;
  return args;
}

void expect_tokens(const CudaMatmulRun& run, const SharedLaunch& launch, const Bytes& output,
                   int64_t columns) {
  for (int64_t token = 0; token < launch.tokens; ++token) {
    for (int64_t column = token % 7; column < columns; column += 7) {
      ASSERT_EQ(run.value_in(output, token, column),
                static_cast<float>(run.expected(launch.first_token + token, column)))
          << "matmul " << launch.matmul << ": token " << token << " of " << launch.tokens
          << " from " << launch.first_token << " on, column " << column;
    }
  }
}

// Goal: a block adds what others left in this launch, not in the one before, of whatever shape and
// however early.
// Method: two matmuls whose tiles are cut, one of 128 rows and one of 64, launched in turns in one
// workspace, each launch with other tokens and another number of them, none waited for; int8 sums
// are exact. Sums of an older launch lie where the new ones come.
TEST_F(CudaMatmulWorkspaceOnDevice, HoldsNoSumsOfOlderLaunches) {
  constexpr int64_t kColumns = 1040;
  constexpr std::array<SharedLaunch, 10> kLaunches = {{{0, 16, 0},
                                                       {0, 16, 16},
                                                       {1, 64, 0},
                                                       {0, 3, 40},
                                                       {1, 17, 20},
                                                       {0, 40, 9},
                                                       {1, 16, 30},
                                                       {1, 16, 14},
                                                       {0, 8, 50},
                                                       {0, 64, 0}}};
  std::vector<CudaMatmulRun> runs;
  int64_t bytes = 0;
  for (const int tile_rows : {128, 64}) {
    CudaMatmulCase c = case_of(DType::kS8, kColumns, tile_rows == 128 ? 5120 : 2560, false, 64);
    c.shape.weights.tile_rows = tile_rows;
    c.tuning.takes_sm = true;
    Result<CudaMatmulRun> run = CudaMatmulRun::make(c);
    ASSERT_TRUE(run) << run.error().message;
    ASSERT_TRUE(run->matmul().config(64).cuts_tiles);
    bytes = std::max(bytes, run->matmul().workspace_bytes());
    runs.push_back(std::move(*run));
  }
  Result<DeviceBuffer> workspace = DeviceBuffer::allocate(bytes, "workspaces");
  ASSERT_TRUE(workspace) << workspace.error().message;
  ASSERT_TRUE(workspace->fill(0xff));
  ASSERT_TRUE(runs[0].matmul().prepare(workspace->data(), bytes, nullptr));
  const int64_t output_bytes = runs[0].output().bytes();
  const Result<DeviceBuffer> outputs =
      DeviceBuffer::allocate(output_bytes * std::ssize(kLaunches), "outputs");
  ASSERT_TRUE(outputs) << outputs.error().message;
  ASSERT_TRUE(synchronize(nullptr));
  for (size_t i = 0; i < kLaunches.size(); ++i) {
    const CudaMatmulRun& run = runs[kLaunches[i].matmul];
    std::byte* const output = outputs->data() + static_cast<int64_t>(i) * output_bytes;
    const Result<void> launched =
        run.matmul().launch(args_of(run, kLaunches[i], *workspace, output), nullptr);
    ASSERT_TRUE(launched) << launched.error().message;
  }
  ASSERT_TRUE(synchronize(nullptr));
  for (size_t i = 0; i < kLaunches.size(); ++i) {
    Bytes output(static_cast<size_t>(output_bytes));
    ASSERT_TRUE(
        outputs->copy_to_host(output.data(), output_bytes, static_cast<int64_t>(i) * output_bytes));
    expect_tokens(runs[kLaunches[i].matmul], kLaunches[i], output, kColumns);
    if (HasFatalFailure()) return;
  }
}

// One has 132 blocks (on a large GPU), one 8, one a single block: whatever the order, each finds
// sums of its own launch only.
TEST_F(CudaMatmulWorkspaceOnDevice, IsSharedByMatmulsOfDifferentSizes) {
  std::vector<CudaMatmulRun> runs;
  std::vector<Bytes> expected;
  for (const auto& [columns, k] : {std::pair{1040, 5120}, {144, 1088}, {16, 64}}) {
    Result<CudaMatmulRun> run = CudaMatmulRun::make(case_of(DType::kS8, columns, k, false, 16));
    ASSERT_TRUE(run) << run.error().message;
    Result<Bytes> output = run->run();
    ASSERT_TRUE(output) << output.error().message;
    ASSERT_TRUE(run->has_values(*output));
    runs.push_back(std::move(*run));
    expected.push_back(std::move(*output));
  }
  const CudaMatmulArgs largest = runs[0].args();
  ASSERT_TRUE(runs[0].matmul().prepare(largest.workspace, largest.workspace_bytes, nullptr));
  for (const size_t index : {1u, 0u, 2u, 0u, 1u, 1u, 2u, 0u}) {
    CudaMatmulArgs args = runs[index].args();
    args.workspace = largest.workspace;
    args.workspace_bytes = largest.workspace_bytes;
    ASSERT_TRUE(runs[index].matmul().launch(args, nullptr));
    ASSERT_TRUE(synchronize(nullptr));
    Bytes output(expected[index].size());
    ASSERT_TRUE(
        runs[index].output().copy_to_host(output.data(), static_cast<int64_t>(output.size())));
    EXPECT_EQ(output, expected[index]) << "matmul " << index;
  }
}

}  // namespace
}  // namespace gapless
