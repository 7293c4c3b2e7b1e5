// SPDX-License-Identifier: Apache-2.0

#include "cli/model_options.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

ModelOptions cuda_options() {
  ModelOptions options;
  options.model = "qwen3-0.6b";
  options.device = "cuda";
  return options;
}

TEST(DeviceOptions, OfTheCpuAreErrorsOnAGpu) {
  struct Case {
    void (*type)(ModelOptions&);
    std::string sentence;
  };
  const std::vector<Case> cases = {{[](ModelOptions& options) { options.threads = 4; },
                                    "--threads 4 is of the CPU; --device cuda uses all SMs"},
                                   {[](ModelOptions& options) { options.cpu_level = "avx2"; },
                                    "--cpu-level avx2 is of the CPU; --device cuda has none"},
                                   {[](ModelOptions& options) { options.kv_dtype = "s8"; },
                                    "--kv-dtype s8; --device cuda has bf16 and f16"},
                                   {[](ModelOptions& options) { options.kv_dtype = "f32"; },
                                    "--kv-dtype f32; --device cuda has bf16 and f16"},
                                   {[](ModelOptions& options) { options.dtype = "f16"; },
                                    "--dtype f16; --device cuda has bf16 and a8w8"},
                                   {[](ModelOptions& options) { options.dtype = "f32"; },
                                    "--dtype f32; --device cuda has bf16 and a8w8"}};
  for (const Case& one : cases) {
    ModelOptions options = cuda_options();
    one.type(options);
    const Result<void> checked = check_device_options(options);
    ASSERT_FALSE(checked) << one.sentence;
    EXPECT_EQ(checked.error().code, ErrorCode::kUsage);
    EXPECT_EQ(checked.error().message, one.sentence);
    options.device = "cpu";
    EXPECT_TRUE(check_device_options(options)) << one.sentence;
  }
}

TEST(DeviceOptions, OfBothAreTaken) {
  for (const char* dtype : {"", "bf16", "a8w8"}) {
    for (const char* kv_dtype : {"", "bf16", "f16"}) {
      ModelOptions options = cuda_options();
      options.dtype = dtype;
      options.kv_dtype = kv_dtype;
      options.dual_gate_up = "off";
      options.defer_norm = "on";
      EXPECT_TRUE(check_device_options(options)) << dtype << " " << kv_dtype;
    }
  }
}

// Nothing was typed, but the checkpoint is of a type that the GPU does not have.
TEST(DeviceOptions, ATypeOfTheCheckpointAloneIsRefusedWithAWayOut) {
  const Result<void> checked = check_device_dtype(cuda_options(), DType::kF32);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kUsage);
  EXPECT_EQ(checked.error().message,
            "qwen3-0.6b: is of f32; --device cuda has bf16 and a8w8: choose one with --dtype");
  EXPECT_TRUE(check_device_dtype(cuda_options(), DType::kBf16));
  EXPECT_TRUE(check_device_dtype(cuda_options(), DType::kS8));
}

TEST(Fusions, WhatWasTypedComesBeforeTheDefaults) {
  ModelOptions options;
  EXPECT_EQ(fusions_of(options, Fusions{.deferred_norm = false}), Fusions{.deferred_norm = false});
  options.defer_norm = "on";
  options.fuse_residual = "off";
  EXPECT_EQ(fusions_of(options, Fusions{.deferred_norm = false}), Fusions{.residual = false});
}

TEST(OpenDevice, SaysWhatTheCoresAre) {
  ModelOptions options;
  options.threads = 1;
  options.cpu_level = "portable";
  const Result<ModelDevice> device = open_device(options);
  ASSERT_TRUE(device) << device.error().message;
  ASSERT_NE(device->cpu, nullptr);
  EXPECT_EQ(device->text, "1 core, portable");
  EXPECT_EQ(device->level, "portable");
}

// With a GPU, without one, and in a build that has no CUDA at all.
TEST(OpenDevice, SaysWhatTheGpuIsOrWhyThereIsNone) {
  const Result<ModelDevice> device = open_device(cuda_options());
  if (device) {
    EXPECT_EQ(device->cpu, nullptr);
    EXPECT_TRUE(device->text.ends_with(" SMs")) << device->text;
    return;
  }
  const std::string& message = device.error().message;
  const bool is_other_build = message == "device 'cuda'; this build runs on: cpu";
  EXPECT_TRUE(is_other_build || message.starts_with("no CUDA device: ")) << message;
}

}  // namespace
}  // namespace gapless
