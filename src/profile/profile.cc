// SPDX-License-Identifier: Apache-2.0

#include "profile/profile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/layer_plan.h"
#include "profile/profile_parts.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The attention multiplies in the cache's type (s8 pages in f32), matmuls in the weights' (f16 in
// f32).
DType peak_of(const KernelPlan& kernel, const StepModel& model) {
  const bool is_attention = kernel.kernel == LayerKernel::kAttention;
  const DType wanted = kernel.is_matmul ? model.weights->dtype : model.kv.dtype;
  if (kernel.is_matmul && wanted == DType::kS8) return DType::kS8;
  if ((kernel.is_matmul || is_attention) && wanted == DType::kBf16) return DType::kBf16;
  return DType::kF32;
}

StepKernel planned(const KernelPlan& kernel, const StepModel& model) {
  return {.name = kernel.name,
          .group = layer_group_name(kernel.kernel),
          .tile = kernel.tile,
          .task_count = kernel.task_count,
          .bytes = kernel.bytes,
          .memory_bytes = kernel.weight_bytes,
          .flops = kernel.flops,
          .peak = peak_of(kernel, model)};
}

StepKernel planned_head(const PackedMatrix& head, int64_t rows) {
  return {.name = "lm_head",
          .group = "other",
          .bytes = head.weight_bytes(),
          .memory_bytes = head.weight_bytes(),
          .flops = 2 * rows * head.n() * head.k(),
          .peak = head.dtype() == DType::kBf16 ? DType::kBf16 : DType::kF32};
}

class Profiler {
 public:
  Profiler(CpuDecoder& decoder, int core_count, const ProfileOptions& options)
      : decoder_(decoder), core_count_(core_count), options_(options), input_(decoder) {}

  // Everything before the first step that counts.
  Result<void> prepare() {
    GAPLESS_TRY(plan());
    say("filling the KV cache");
    GAPLESS_TRY(input_.add(options_, [this](int sequence, int new_length, uint64_t seed) {
      return decoder_.fill_sequence(sequence, new_length, seed);
    }));
    if (options_.validate) GAPLESS_TRY(validate());
    for (int i = 0; i < options_.warmup_count; ++i) GAPLESS_TRY(step());
    return {};
  }

  Result<void> time_step(StepTimes& times) {
    const SteadyClock::time_point begin = SteadyClock::now();
    GAPLESS_TRY(step());
    times.seconds.push_back(std::chrono::duration<double>(SteadyClock::now() - begin).count());
    return {};
  }

  Result<ProfileResult> run() {
    GAPLESS_TRY(prepare());
    if (options_.measure_limits) GAPLESS_TRY(measure_limits());
    say("running steps");
    GAPLESS_TRY(time_steps(result_.plain));
    if (!options_.trace_path.empty()) {
      GAPLESS_TRY(record_steps());
      GAPLESS_TRY(time_steps(result_.plain));
    }
    if (options_.measure_limits) GAPLESS_TRY(measure_limits());
    if (!options_.trace_path.empty()) GAPLESS_TRY(read_recording());
    count_step(result_);
    return std::move(result_);
  }

 private:
  void say(std::string_view part) const {
    if (options_.on_part) options_.on_part(part);
  }
  bool has_head() const { return decoder_.model().weights->has_head; }

  Result<void> plan() {
    const StepModel& model = decoder_.model();
    const LayerPlan layer =
        GAPLESS_TRY(plan_layer({.config = decoder_.config(),
                                .weights = model.weights->dtype,
                                .kv_dtype = model.kv.dtype,
                                .fusions = model.fusions,
                                .page_tokens = model.kv.page_tokens,
                                .chunk_tokens = model.chunk_tokens,
                                .rows = static_cast<int>(options_.lengths.size()),
                                .lengths = options_.lengths,
                                .core_count = core_count_,
                                .level = model.level}));
    for (const KernelPlan& kernel : layer.kernels)
      result_.plan.kernels.push_back(planned(kernel, model));
    add_up(result_.plan);
    if (has_head())
      result_.plan.outside.push_back(
          planned_head(model.weights->head, std::ssize(options_.lengths)));
    result_.layers = decoder_.config().layers;
    result_.has_head = has_head();
    return {};
  }

  Result<void> validate() {
    say("checking against the reference");
    input_.take_back();
    const std::span<const float> y =
        GAPLESS_TRY(decoder_.step_hidden(input_.sequences(), input_.x(), 1));
    result_.validation = GAPLESS_TRY(check_against_reference(first_layer_of(decoder_, input_),
                                                             input_, y, options_, core_count_));
    return {};
  }

  Result<void> step() {
    input_.take_back();
    if (has_head()) {
      GAPLESS_TRY(decoder_.step(input_.request()));
    } else {
      GAPLESS_TRY(decoder_.step_hidden(input_.sequences(), input_.x()));
    }
    return {};
  }

  Result<void> time_steps(StepTimes& times) {
    for (int i = 0; i < options_.step_count; ++i) GAPLESS_TRY(time_step(times));
    return {};
  }

  Result<void> record_steps() {
    for (const Property& property : limit_properties(result_))
      set_property(property.key, property.value);
    RecorderOptions recorder;
    recorder.path = options_.trace_path;
    if (!start_recording(recorder))
      return fail(ErrorCode::kSystem, "cannot record: {}", recording_error());
    Result<void> timed = time_steps(result_.recorded);
    result_.recording = stop_recording();
    return timed;
  }

  // The workers of our device. Others of this process have lanes too, on which nothing ran; where
  // one of ours ran nothing either, one of those is as good.
  std::vector<uint32_t> worker_lanes(const Trace& trace) const {
    std::vector<bool> ran(trace.lanes.size(), false);
    for (const uint32_t lane : trace.tasks.lane)
      if (lane != kNoIndex) ran[lane] = true;
    std::vector<uint32_t> lanes = core_lanes(trace);
    std::stable_partition(lanes.begin(), lanes.end(), [&](uint32_t lane) { return ran[lane]; });
    if (std::ssize(lanes) > core_count_) lanes.resize(static_cast<size_t>(core_count_));
    return lanes;
  }

  Result<void> read_recording() {
    const Trace trace = GAPLESS_TRY(read_trace_file(options_.trace_path));
    return read_recorded_steps(trace, worker_lanes(trace), result_);
  }

  Result<void> measure_limits() {
    say("measuring this machine");
    take_limits(result_.limits,
                GAPLESS_TRY(measure_machine_limits(
                    {.thread_count = core_count_, .level = decoder_.model().level})));
    return {};
  }

  CpuDecoder& decoder_;
  const int core_count_;
  const ProfileOptions& options_;
  StepInput input_;
  ProfileResult result_;
};

}  // namespace

double StepTimes::median() const {
  if (seconds.empty()) return 0.0;
  std::vector<double> sorted = seconds;
  std::nth_element(sorted.begin(), sorted.begin() + std::ssize(sorted) / 2, sorted.end());
  return sorted[sorted.size() / 2];
}

double StepTimes::min() const {
  return seconds.empty() ? 0.0 : *std::min_element(seconds.begin(), seconds.end());
}

double StepTimes::max() const {
  return seconds.empty() ? 0.0 : *std::max_element(seconds.begin(), seconds.end());
}

double ProfileResult::recorder_cost() const {
  return recorded.seconds.empty() ? 0.0 : recorded.median() / plain.median() - 1.0;
}

Result<ProfileResult> profile_steps(CpuDecoder& decoder, int core_count,
                                    const ProfileOptions& options) {
  GAPLESS_TRY(check_profile_options(options, decoder));
  return Profiler(decoder, core_count, options).run();
}

double PairedTimes::ratio_at(double quantile) const {
  if (ratios.empty()) return 0.0;
  return ratios[static_cast<size_t>(quantile * static_cast<double>(ratios.size() - 1))];
}

Result<PairedTimes> compare_steps(CpuDecoder& first, CpuDecoder& second, int core_count,
                                  const ProfileOptions& options) {
  GAPLESS_TRY(check_profile_options(options, first));
  GAPLESS_TRY(check_profile_options(options, second));
  Profiler first_steps(first, core_count, options);
  Profiler second_steps(second, core_count, options);
  GAPLESS_TRY(first_steps.prepare());
  GAPLESS_TRY(second_steps.prepare());
  PairedTimes times;
  for (int i = 0; i < options.step_count; ++i) {
    const bool first_begins = i % 2 == 0;
    if (first_begins) GAPLESS_TRY(first_steps.time_step(times.first));
    GAPLESS_TRY(second_steps.time_step(times.second));
    if (!first_begins) GAPLESS_TRY(first_steps.time_step(times.first));
    times.ratios.push_back(times.second.seconds.back() / times.first.seconds.back());
  }
  std::sort(times.ratios.begin(), times.ratios.end());
  return times;
}

}  // namespace gapless
