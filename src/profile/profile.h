// SPDX-License-Identifier: Apache-2.0
//
// A profile of decode steps: checked against the double-precision reference, timed without and with
// the recorder in turn, and held against what this machine could do at that moment. Here of CPU
// cores; profile/cuda_profile.h is of a GPU, with the same result.
//
// Every step is the same work: the sequences are taken back to their lengths before it.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/kernel_times.h"
#include "base/dtype.h"
#include "base/result.h"
#include "gapless/trace.h"
#include "machine/machine_limits.h"
#include "model/cpu_decoder.h"
#include "model/layer_reference.h"

namespace gapless {

struct ProfileOptions {
  std::vector<int32_t>
      lengths;          // of each sequence: tokens that it attends to, the new one included
  int step_count = 20;  // of each kind: without, with and again without the recorder
  int warmup_count = 3;
  bool validate = true;
  double tolerance = 3e-3;
  double max_outside_share = 0.02;
  bool measure_limits = true;
  std::string trace_path;  // empty: nothing is recorded
  // On the GPU: every phase of every role of a block, not only what makes it a task.
  bool records_phases = false;
  uint64_t seed = 1234;
  // Said before each part that takes a while.
  std::function<void(std::string_view part)> on_part = {};
};

// Times of steps, in seconds.
struct StepTimes {
  std::vector<double> seconds;
  double median() const;
  double min() const;
  double max() const;
};

// A kernel as it was planned: tasks of the CPU, or the blocks of a launch.
struct StepKernel {
  std::string name;
  std::string_view group;  // one of kLayerGroups
  std::string tile = {};   // what the largest task does; may be empty
  int64_t task_count = 0;
  int64_t bytes = 0;         // of all of them, read and written
  int64_t memory_bytes = 0;  // of those, weights or keys and values: what is not in a cache
  int64_t flops = 0;
  DType peak = DType::kF32;  // the type whose operations limit it: kS8, kBf16 or kF32
};

struct ProfilePlan {
  std::vector<StepKernel> kernels;  // of one layer, in the order of a token's way
  std::vector<StepKernel> outside;  // of no layer: the head
  // Of the layer.
  int64_t task_count = 0;
  int64_t bytes = 0;
  int64_t memory_bytes = 0;
  int64_t flops = 0;
};

struct ProfileResult {
  ProfilePlan plan;  // with the lengths
  int layers = 0;
  bool has_head = false;
  // The recorder is off. On the GPU these are the device's times, of steps back to back.
  StepTimes plain;
  StepTimes recorded;  // empty when nothing was recorded
  // On the GPU: a step at a time, from the call to its result. Empty on the CPU, whose times are
  // that already.
  StepTimes with_host;
  std::optional<Closeness> validation;  // of the first layer
  std::optional<MachineLimits> limits;  // the mean of before and behind the steps
  RecordingSummary recording;
  // Of the recorded step whose length is the median; nothing without a trace.
  std::optional<KernelTimes> kernels;
  std::vector<std::string> kernel_names;  // of kernels->kernels
  double average_busy_cores = 0.0;        // or SMs, over all recorded steps
  int64_t task_count = 0;                 // of that step: kernel calls

  int64_t step_bytes = 0;  // weights, keys and values that a step reads
  int64_t kv_bytes = 0;    // of them, keys and values
  int64_t step_flops = 0;
  // Kernel by kernel the larger of bytes at the read limit and operations at the peak, in seconds;
  // 0 without limits.
  double limit_seconds = 0.0;
  // Recorded over plain, minus one.
  double recorder_cost() const;
};

// The decoder has no sequences; they are added, filled and released. With a head in the weights the
// steps take tokens and end with the largest logit; else rows of N(0, 1). Error when more than
// max_outside_share of the first layer's values are outside the tolerance, or one is not finite.
Result<ProfileResult> profile_steps(CpuDecoder& decoder, int core_count,
                                    const ProfileOptions& options);

// Two decoders that do the same work in different ways, step by step in turn: what the machine does
// meanwhile happens to both.
struct PairedTimes {
  StepTimes first;
  StepTimes second;
  std::vector<double> ratios;  // second / first of each pair, sorted
  double ratio_at(double quantile) const;
};
Result<PairedTimes> compare_steps(CpuDecoder& first, CpuDecoder& second, int core_count,
                                  const ProfileOptions& options);

// "1000,2000", "512" for all, "1..4096": that many lengths spread from the first to the second in a
// shuffled order that is a function of the seed.
Result<std::vector<int32_t>> parse_lengths(std::string_view text, int batch, uint64_t seed);

}  // namespace gapless
