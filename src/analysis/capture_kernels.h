// SPDX-License-Identifier: Apache-2.0
//
// What the tables of capture_models.h are written with. For those tables only.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/capture_models.h"

namespace gapless {

struct KernelShapes {
  std::string_view inputs;
  std::string_view outputs;
};

constexpr KernelModel kernel_on(std::string_view core, std::string_view type, std::string_view name,
                                int64_t mean_ns, KernelShapes shapes) {
  return {.type = type,
          .name = name,
          .core = core,
          .mean_ns = mean_ns,
          .inputs = shapes.inputs,
          .outputs = shapes.outputs};
}

constexpr KernelModel on_cube(std::string_view type, std::string_view name, int64_t mean_ns,
                              KernelShapes shapes) {
  return kernel_on("AI_CORE", type, name, mean_ns, shapes);
}

constexpr KernelModel on_vector(std::string_view type, std::string_view name, int64_t mean_ns,
                                KernelShapes shapes) {
  return kernel_on("AI_VECTOR_CORE", type, name, mean_ns, shapes);
}

// On cube and vector cores together.
constexpr KernelModel on_both(std::string_view type, std::string_view name, int64_t mean_ns,
                              KernelShapes shapes) {
  return kernel_on("MIX_AIC", type, name, mean_ns, shapes);
}

constexpr KernelModel at(KernelPlace place, KernelModel kernel) {
  kernel.place = place;
  return kernel;
}

constexpr KernelModel eager(const KernelModel& kernel) { return at(KernelPlace::kEager, kernel); }

constexpr KernelModel sampling(const KernelModel& kernel) {
  return at(KernelPlace::kSampling, kernel);
}

constexpr KernelModel anchor(KernelModel kernel) {
  kernel.is_anchor = true;
  return kernel;
}

constexpr KernelModel spread(int32_t permille, KernelModel kernel) {
  kernel.spread_permille = permille;
  return kernel;
}

// `group` is the number of the communicator as names of collectives have it. The time is what
// moving data takes; `wait_ns` is for ranks that come late.
constexpr KernelModel collective(std::string_view type, std::string_view group, int64_t mean_ns,
                                 int64_t wait_ns) {
  return {.type = type,
          .name = group,
          .core = "COMMUNICATION",
          .place = KernelPlace::kCollective,
          .mean_ns = mean_ns,
          .spread_permille = 100,
          .wait_ns = wait_ns};
}

// In AIV mode: a kernel on a stream does the work, and is listed beside the summary.
constexpr KernelModel in_aiv_mode(KernelModel kernel, std::string_view name = "AivKernel") {
  kernel.companion = name;
  return kernel;
}

// On the AI CPU: a wrapper is listed beside the summary.
constexpr KernelModel on_ai_cpu(KernelModel kernel, std::string_view name, int64_t wrapper_ns) {
  kernel.companion = name;
  kernel.companion_ns = wrapper_ns;
  return kernel;
}

inline void add_part(std::vector<PassPart>& parts, const PassPart& part, int count = 1) {
  parts.insert(parts.end(), static_cast<size_t>(count), part);
}

// What every serving engine launches before a pass and after it (capture_models.cc).
std::span<const KernelModel> input_kernels();
std::span<const KernelModel> sampling_kernels();

// One each a file: capture_kernels_dense.cc, capture_kernels_moe.cc, capture_kernels_sparse.cc,
// capture_kernels_hybrid.cc.
void add_qwen3_32b_parts(const CaptureModel& model, const PassShape& shape,
                         std::vector<PassPart>& parts);
void add_deepseek_v3_parts(const CaptureModel& model, const PassShape& shape,
                           std::vector<PassPart>& parts);
void add_glm_parts(const CaptureModel& model, const PassShape& shape, std::vector<PassPart>& parts);
void add_qwen_hybrid_parts(const CaptureModel& model, const PassShape& shape,
                           std::vector<PassPart>& parts);

}  // namespace gapless
