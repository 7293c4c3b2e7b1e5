// SPDX-License-Identifier: Apache-2.0
//
// The models of which captures can be made: the kernels of their forward passes as data, with their
// mean times, streams and shapes.
//
// Counts and times follow measured captures (Qwen3-32B and DeepSeek-V3 on A3, vLLM-Ascend 0.15);
// where only a list of kernels is known (GLM-5.1, Qwen3.8-27B) the times are plausible and not
// measured. synthetic_capture.h puts passes of these on streams.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/pass_phase.h"

namespace gapless {

// Where a kernel runs; a model gives each of them the number of a stream.
enum class KernelPlace : uint8_t {
  kGraph = 0,             // what a captured graph replays
  kEager = 1,             // what the host launches one by one
  kSampling = 2,          //
  kCollective = 3,        // the kernels of collectives
  kLogitsCollective = 4,  // the same, of a second communicator
  kAiCpu = 5              // the wrappers of collectives
};
inline constexpr int kKernelPlaceCount = 6;

struct KernelModel {
  std::string_view type;
  // '#' stands for the 32 digits of a hash. Of a collective: the number of its communicator.
  std::string_view name;
  std::string_view core;
  KernelPlace place = KernelPlace::kGraph;
  int64_t mean_ns = 0;
  int32_t spread_permille = 50;  // the standard deviation, as a share of the mean
  int64_t wait_ns = 0;           // the mean of what comes on top for other ranks; very uneven
  // T tokens, S tokens of a rank, B sequences, C tokens of context, P pages of the cache, L pages
  // of a sequence.
  std::string_view inputs = {};
  std::string_view outputs = {};
  bool is_anchor = false;
  // Of a collective: the name of its kernel ("AivKernel") or of its wrapper, and the wrapper's
  // time. Empty: the collective has neither.
  std::string_view companion = {};
  int64_t companion_ns = 0;

  bool is_collective() const { return core == "COMMUNICATION"; }
};

enum class PartRole : uint8_t { kMain = 0, kSampling = 1, kDraft = 2 };

// Kernels one after the other.
struct PassPart {
  std::span<const KernelModel> kernels;
  PartRole role = PartRole::kMain;
  int32_t draft = 0;  // 1 for the first draft sub-pass; 0: the main pass
  // In thousandths of the kernels' means, at the model's prefill_tokens and in proportion to them;
  // 0: the means, however many tokens there are.
  int32_t prefill_permille = 0;
};

struct PassShape {
  PassPhase phase = PassPhase::kDecode;
  int64_t tokens = 1;
  int64_t sequences = 1;
  int32_t draft_count = 0;
  int32_t context_chunks = 0;  // of chunked prefill: more attention in each layer
  bool is_dummy = false;       // an idle worker's pass: nothing is sampled

  bool operator==(const PassShape&) const = default;
};

struct CaptureModel {
  std::string_view name;
  std::string_view description;
  int32_t layer_count = 0;
  int32_t draft_count = 0;  // sub-passes after each pass, if the caller does not say
  int32_t tensor_parallel = 1;
  int64_t decode_sequences = 1;
  int64_t prefill_tokens = 4096;
  int64_t prefill_sequences = 1;
  bool has_mixed = false;
  bool has_context_chunks = false;  // in prefill: none or one for all layers of a pass
  std::array<int32_t, kKernelPlaceCount> streams;
  int64_t graph_gap_ns = 900;
  int64_t eager_gap_ns = 10'000;
  int64_t pass_gap_ns = 400'000;
  // Kernels of collectives beyond one each, in thousandths a pass: second ones of a collective, and
  // ones without a collective.
  int32_t split_permille = 0;
  int32_t lone_permille = 0;
  void (*add_parts)(const CaptureModel& model, const PassShape& shape,
                    std::vector<PassPart>& parts) = nullptr;
};

std::span<const CaptureModel> capture_models();
// Null: no such model.
const CaptureModel* find_capture_model(std::string_view name);

// The parts of a pass, in order. The phase must be one that the model has.
std::vector<PassPart> pass_parts(const CaptureModel& model, const PassShape& shape);

}  // namespace gapless
