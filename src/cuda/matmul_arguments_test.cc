// SPDX-License-Identifier: Apache-2.0
//
// What a matmul on a GPU refuses to launch, and in which words. Without a GPU the tests are skipped
// and say so.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "cuda/gpu_test_support.h"
#include "cuda/matmul.h"
#include "cuda/matmul_test_support.h"

namespace gapless {
namespace {

std::string error_of(const Result<void>& result) { return result ? "" : result.error().message; }

using Args = CudaMatmulArgs;

// So many bytes further on; nobody reads what is there.
template <typename Pointer>
Pointer moved(Pointer pointer, uintptr_t bytes) {
  return reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) + bytes);
}

// What a launch with these arguments but for one change says.
std::string refusal(const CudaMatmulRun& run, const std::function<void(Args&)>& change) {
  Args args = run.args();
  change(args);
  return error_of(run.matmul().launch(args, nullptr));
}

class CudaMatmulArgumentsOnDevice : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    for (std::optional<CudaMatmulRun>* run : {&s8_, &bf16_}) {
      Result<CudaMatmulRun> made =
          CudaMatmulRun::make(case_of(run == &s8_ ? DType::kS8 : DType::kBf16, 128, 128, false, 4));
      ASSERT_TRUE(made) << made.error().message;
      run->emplace(std::move(*made));
    }
  }

  std::optional<CudaMatmulRun> s8_;
  std::optional<CudaMatmulRun> bf16_;
};

TEST_F(CudaMatmulArgumentsOnDevice, AreRefusedWithTheirNumbers) {
  for (const CudaMatmulRun* run : {&*s8_, &*bf16_}) {
    EXPECT_EQ(refusal(*run, [](Args& args) { args.tokens = 5; }),
              "5 tokens; the matmul was made for at most 4");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.tokens = -1; }),
              "-1 tokens; the matmul was made for at most 4");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.workspace_bytes = 255; }),
              "a workspace of 255 bytes; the matmul needs 256");
    EXPECT_EQ(error_of(run->matmul().prepare(nullptr, 256, nullptr)),
              "a matmul without workspaces");
    EXPECT_EQ(error_of(run->matmul().prepare(run->args().workspace, 255, nullptr)),
              "a workspace of 255 bytes; a matmul needs 256");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.tokens = 0; }), "") << "nothing to do is done";
  }
}

TEST_F(CudaMatmulArgumentsOnDevice, AreRefusedWhereTheyAreMissing) {
  for (const CudaMatmulRun* run : {&*s8_, &*bf16_}) {
    EXPECT_EQ(refusal(*run, [](Args& args) { args.weights = nullptr; }),
              "a matmul without weights");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.x = nullptr; }), "a matmul without tokens");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.output = nullptr; }), "a matmul without outputs");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.workspace = nullptr; }),
              "a matmul without workspaces");
  }
  EXPECT_EQ(refusal(*s8_, [](Args& args) { args.weight_scales = nullptr; }),
            "a matmul without weight scales");
  EXPECT_EQ(refusal(*s8_, [](Args& args) { args.token_scales = nullptr; }),
            "a matmul without token scales");
  EXPECT_EQ(refusal(*bf16_, [](Args& args) { args.token_scales = nullptr; }), "")
      << "bf16 needs no scales";
  EXPECT_EQ(error_of(synchronize(nullptr)), "");
}

TEST_F(CudaMatmulArgumentsOnDevice, AreRefusedWhereTheyLieBadly) {
  for (const CudaMatmulRun* run : {&*s8_, &*bf16_}) {
    EXPECT_EQ(refusal(*run, [](Args& args) { args.weights = moved(args.weights, 128); }),
              "weights of a matmul do not begin at a multiple of 256 bytes");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.x = moved(args.x, 8); }),
              "tokens of a matmul do not begin at a multiple of 16 bytes");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.output = moved(args.output, 4); }),
              "outputs of a matmul do not begin at a multiple of 16 bytes");
    EXPECT_EQ(refusal(*run, [](Args& args) { args.workspace = moved(args.workspace, 64); }),
              "workspaces of a matmul do not begin at a multiple of 256 bytes");
  }
  EXPECT_EQ(refusal(*s8_, [](Args& args) { args.weight_scales = moved(args.weight_scales, 2); }),
            "weight scales of a matmul do not begin at a multiple of 4 bytes");
  EXPECT_EQ(refusal(*s8_, [](Args& args) { args.token_scales = moved(args.token_scales, 1); }),
            "token scales of a matmul do not begin at a multiple of 4 bytes");
  EXPECT_EQ(refusal(*bf16_, [](Args& args) { args.token_scales = moved(args.token_scales, 2); }),
            "token scales of a matmul do not begin at a multiple of 4 bytes")
      << "nor where they may be missing";
}

TEST_F(CudaMatmulArgumentsOnDevice, AreRefusedWhereRowsAreTooClose) {
  for (const int64_t stride : {112, 136}) {  // too small; no multiple of 16 bytes
    EXPECT_EQ(refusal(*s8_, [stride](Args& args) { args.x_stride = stride; }),
              "tokens of a matmul are " + std::to_string(stride) +
                  " elements apart; a multiple of 16 and at least 128 is needed");
  }
  for (const int64_t stride : {120, 132}) {
    EXPECT_EQ(refusal(*bf16_, [stride](Args& args) { args.x_stride = stride; }),
              "tokens of a matmul are " + std::to_string(stride) +
                  " elements apart; a multiple of 8 and at least 128 is needed");
  }
  for (const int64_t stride : {126, 129}) {
    EXPECT_EQ(refusal(*bf16_, [stride](Args& args) { args.output_stride = stride; }),
              "outputs of a matmul are " + std::to_string(stride) +
                  " elements apart; a multiple of 2 and at least 128 is needed");
  }
}

TEST_F(CudaMatmulArgumentsOnDevice, AreRefusedWhereTheResidualIsNotOne) {
  const auto refused = [this](DType dtype, uintptr_t bytes, int64_t stride) {
    return refusal(*s8_, [&](Args& args) {
      args.residual = moved(args.output, bytes);
      args.residual_dtype = dtype;
      args.residual_stride = stride;
    });
  };
  EXPECT_EQ(refused(DType::kF16, 0, 128),
            "a residual of f16; the matmul on a GPU adds bf16 or f32");
  EXPECT_EQ(refused(DType::kF32, 2, 128),
            "residuals of a matmul do not begin at a multiple of 4 bytes");
  EXPECT_EQ(refused(DType::kBf16, 1, 128),
            "residuals of a matmul do not begin at a multiple of 2 bytes");
  EXPECT_EQ(refused(DType::kBf16, 2, 127),
            "residuals of a matmul are 127 elements apart; a multiple of 1 and at least 128 is "
            "needed");
  const int64_t stride = s8_->output_stride();
  EXPECT_EQ(refused(DType::kBf16, 0, stride),
            "residuals in place of the outputs are bf16, 134 elements apart, and the outputs f32, "
            "134 apart");
  EXPECT_EQ(refused(DType::kF32, 0, stride + 2),
            "residuals in place of the outputs are f32, 136 elements apart, and the outputs f32, "
            "134 apart");
}

}  // namespace
}  // namespace gapless
