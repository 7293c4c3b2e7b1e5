// SPDX-License-Identifier: Apache-2.0

#include "profile/profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "kernels/kv_cache.h"
#include "model/random_values.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr uint64_t kInputPlace = uint64_t{1} << 60;  // beside all places of the caches

// The decoder's cache as the reference sees it: history from the pages, the step's own tokens from
// the reference, cast as the pages would.
class DecoderCache final : public ReferenceCache {
 public:
  DecoderCache(const CpuDecoder& decoder, std::span<const int> sequences,
               std::span<const int32_t> lengths)
      : decoder_(decoder), sequences_(sequences), lengths_(lengths) {
    shape_ = decoder.model().kv;
    page_count_ = std::ssize(sequences);
    const size_t bytes = static_cast<size_t>(page_count_ * kv_page_bytes(shape_));
    own_.resize(bytes + kLineBytes);
  }

  void store(int, int row, int kv_head, const float* key, const float* value) override {
    write_kv(own_pages(), row, 0, kv_head, key, value);
  }
  void load(int layer, int row, int kv_head, float* keys, float* values) const override {
    const int head_dim = shape_.head_dim;
    const int32_t last = lengths_[static_cast<size_t>(row)] - 1;
    for (int32_t token = 0; token < last; ++token)
      decoder_.read_token(layer, sequences_[static_cast<size_t>(row)], token, kv_head,
                          keys + int64_t{token} * head_dim, values + int64_t{token} * head_dim);
    read_kv(own_pages(), row, 0, kv_head, keys + int64_t{last} * head_dim,
            values + int64_t{last} * head_dim);
  }

 private:
  // A page a row, of which one token is used.
  KvPages own_pages() const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(own_.data());
    const size_t skip = (kLineBytes - address % kLineBytes) % kLineBytes;
    return {.shape = shape_, .data = own_.data() + skip, .page_count = page_count_};
  }

  const CpuDecoder& decoder_;
  std::span<const int> sequences_;
  std::span<const int32_t> lengths_;
  KvShape shape_;
  int64_t page_count_ = 0;
  mutable std::vector<std::byte> own_;
};

class Profiler {
 public:
  Profiler(CpuDecoder& decoder, int core_count, const ProfileOptions& options)
      : decoder_(decoder), core_count_(core_count), options_(options) {}
  ~Profiler() {
    for (const int sequence : sequences_) decoder_.release(sequence);
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Everything before the first step that counts.
  Result<void> prepare() {
    GAPLESS_TRY(plan());
    GAPLESS_TRY(fill());
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
    count_limits();
    return std::move(result_);
  }

 private:
  void say(std::string_view part) const {
    if (options_.on_part) options_.on_part(part);
  }
  int hidden() const { return decoder_.config().hidden; }
  bool has_head() const { return decoder_.model().weights->has_head; }

  Result<void> plan() {
    const StepModel& model = decoder_.model();
    result_.plan = GAPLESS_TRY(plan_layer({.config = decoder_.config(),
                                           .weights = model.weights->dtype,
                                           .kv_dtype = model.kv.dtype,
                                           .fusions = model.fusions,
                                           .page_tokens = model.kv.page_tokens,
                                           .chunk_tokens = model.chunk_tokens,
                                           .rows = static_cast<int>(options_.lengths.size()),
                                           .lengths = options_.lengths,
                                           .core_count = core_count_,
                                           .level = model.level}));
    for (const int32_t length : options_.lengths)
      if (length < 1)
        return fail(ErrorCode::kInvalidInput, "a length of {}; must be at least 1", length);
    const int32_t longest = *std::max_element(options_.lengths.begin(), options_.lengths.end());
    if (longest > decoder_.max_length())
      return fail(ErrorCode::kInvalidInput,
                  "a length of {}; model '{}' has {} positions, the cache was made for {}", longest,
                  decoder_.config().name, decoder_.config().max_positions, decoder_.max_length());
    result_.layers = decoder_.config().layers;
    result_.has_head = has_head();
    return {};
  }

  Result<void> fill() {
    say("filling the KV cache");
    uint64_t number = 0;
    for (const int32_t length : options_.lengths) {
      sequences_.push_back(GAPLESS_TRY(decoder_.add_sequence()));
      GAPLESS_TRY(
          decoder_.fill_sequence(sequences_.back(), length - 1, mix_bits(options_.seed) + number));
      rows_.push_back({.sequence = sequences_.back(),
                       .token = static_cast<int32_t>(mix_bits(options_.seed + number) %
                                                     uint64_t(decoder_.config().vocabulary))});
      head_rows_.push_back(static_cast<int>(number));
      ++number;
    }
    x_.resize(options_.lengths.size() * static_cast<size_t>(hidden()));
    fill_normal(options_.seed, kInputPlace, x_);
    return {};
  }

  void take_back() {
    for (size_t i = 0; i < sequences_.size(); ++i)
      decoder_.truncate(sequences_[i], options_.lengths[i] - 1);
  }

  Result<void> validate() {
    say("checking against the reference");
    take_back();
    const std::span<const float> y = GAPLESS_TRY(decoder_.step_hidden(sequences_, x_, 1));
    const StepModel& model = decoder_.model();
    DecoderCache cache(decoder_, sequences_, options_.lengths);
    const std::vector<double> expected =
        layer_reference({.config = &decoder_.config(),
                         .weights = &model.weights->layers.front(),
                         .layer = 0,
                         .kv_dtype = model.kv.dtype,
                         .chunk_tokens = model.chunk_tokens,
                         .deferred_norm = model.fusions.deferred_norm,
                         .lengths = options_.lengths,
                         .x = x_.data(),
                         .cache = &cache,
                         .thread_count = core_count_});
    const Closeness closeness = compare_closely(y, expected, options_.tolerance);
    result_.validation = closeness;
    const int64_t not_finite_count =
        std::count_if(y.begin(), y.end(), [](float value) { return !std::isfinite(value); });
    if (not_finite_count > 0)
      return fail(ErrorCode::kInvalidInput, "{} of {} values of the first layer are not finite",
                  not_finite_count, closeness.count);
    if (closeness.outside_share() > options_.max_outside_share)
      return fail(ErrorCode::kInvalidInput,
                  "{} of {} values of the first layer are further than {} from the reference (the "
                  "furthest {:.3g}); at most {} may be",
                  closeness.outside_count, closeness.count, options_.tolerance,
                  closeness.largest_difference,
                  std::floor(options_.max_outside_share * static_cast<double>(closeness.count)));
    return {};
  }

  Result<void> step() {
    take_back();
    if (has_head()) {
      GAPLESS_TRY(decoder_.step({.rows = rows_, .head_rows = head_rows_}));
    } else {
      GAPLESS_TRY(decoder_.step_hidden(sequences_, x_));
    }
    return {};
  }

  Result<void> time_steps(StepTimes& times) {
    for (int i = 0; i < options_.step_count; ++i) GAPLESS_TRY(time_step(times));
    return {};
  }

  // What this machine can do, for the roofline of whoever reads the trace.
  void record_limits() const {
    if (!result_.limits) return;
    const MachineLimits& limits = *result_.limits;
    set_property("limit.bytes_per_second", fmt::format("{:.6e}", limits.read_bytes_per_s));
    set_property("limit.flops_per_second", fmt::format("{:.6e}", limits.f32_ops_per_s));
    const auto set_flops = [](std::string_view kernel, double per_second) {
      set_property(fmt::format("limit.flops_per_second.{}", kernel),
                   fmt::format("{:.6e}", per_second));
    };
    for (const KernelPlan& kernel : result_.plan.kernels)
      set_flops(kernel.name, operations_limit(kernel));
    if (has_head()) set_flops("lm_head", limits.ops_per_s(decoder_.model().weights->head.dtype()));
  }

  Result<void> record_steps() {
    record_limits();
    RecorderOptions recorder;
    recorder.path = options_.trace_path;
    if (!start_recording(recorder))
      return fail(ErrorCode::kSystem, "cannot record: {}", recording_error());
    const Result<void> timed = time_steps(result_.recorded);
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
    std::vector<StepWindow> steps = step_windows(trace);
    if (steps.empty()) return fail(ErrorCode::kInvalidInput, "the recording has no step");
    const std::vector<uint32_t> lanes = worker_lanes(trace);
    double busy = 0.0;
    double wall = 0.0;
    for (const StepWindow& window : steps) {
      const KernelTimes times =
          GAPLESS_TRY(kernel_times(trace, {.window = window.window, .lanes = lanes}));
      busy += static_cast<double>(times.busy_ns);
      wall += static_cast<double>(times.window_ns());
    }
    result_.average_busy_cores = busy / wall;
    const auto length = [](const StepWindow& window) {
      return window.window.end_ns - window.window.begin_ns;
    };
    std::nth_element(
        steps.begin(), steps.begin() + std::ssize(steps) / 2, steps.end(),
        [&](const StepWindow& a, const StepWindow& b) { return length(a) < length(b); });
    const StepWindow& middle = steps[steps.size() / 2];
    result_.kernels = GAPLESS_TRY(kernel_times(trace, {.window = middle.window, .lanes = lanes}));
    for (const KernelTime& kernel : result_.kernels->kernels) {
      result_.kernel_names.emplace_back(kernel_name(trace, kernel));
      result_.task_count += kernel.run_count;
    }
    return {};
  }

  Result<void> measure_limits() {
    say("measuring this machine");
    const MachineLimits now = GAPLESS_TRY(
        measure_machine_limits({.thread_count = core_count_, .level = decoder_.model().level}));
    if (!result_.limits) {
      result_.limits = now;
      return {};
    }
    MachineLimits& limits = *result_.limits;
    const auto mean = [](double& a, double b) { a = (a + b) / 2.0; };
    mean(limits.read_bytes_per_s, now.read_bytes_per_s);
    mean(limits.s8_ops_per_s, now.s8_ops_per_s);
    mean(limits.bf16_ops_per_s, now.bf16_ops_per_s);
    mean(limits.f32_ops_per_s, now.f32_ops_per_s);
    return {};
  }

  // The attention multiplies in the cache's type (s8 pages in f32), matmuls in the weights'.
  double operations_limit(const KernelPlan& kernel) const {
    const MachineLimits& limits = *result_.limits;
    const StepModel& model = decoder_.model();
    if (kernel.is_matmul) return limits.ops_per_s(model.weights->dtype);
    const bool is_attention = kernel.kernel == LayerKernel::kAttention;
    const bool is_bf16_attention = is_attention && model.kv.dtype == DType::kBf16;
    return is_bf16_attention ? limits.bf16_ops_per_s : limits.f32_ops_per_s;
  }

  double limit_of(const KernelPlan& kernel) const {
    return std::max(static_cast<double>(kernel.weight_bytes) / result_.limits->read_bytes_per_s,
                    static_cast<double>(kernel.flops) / operations_limit(kernel));
  }

  void count_limits() {
    result_.step_bytes = result_.plan.weight_bytes * result_.layers;
    result_.step_flops = result_.plan.flops * result_.layers;
    const double rows = static_cast<double>(options_.lengths.size());
    const PackedMatrix& head = decoder_.model().weights->head;
    const double head_flops =
        has_head() ? 2.0 * rows * static_cast<double>(head.n() * head.k()) : 0.0;
    if (has_head()) {
      result_.head_bytes = head.weight_bytes();
      result_.step_bytes += result_.head_bytes;
      result_.step_flops += static_cast<int64_t>(head_flops);
    }
    if (!result_.limits) return;
    for (const KernelPlan& kernel : result_.plan.kernels)
      result_.limit_seconds += limit_of(kernel) * result_.layers;
    if (has_head())
      result_.limit_seconds +=
          std::max(static_cast<double>(result_.head_bytes) / result_.limits->read_bytes_per_s,
                   head_flops / result_.limits->ops_per_s(head.dtype()));
  }

  CpuDecoder& decoder_;
  const int core_count_;
  const ProfileOptions& options_;
  std::vector<int> sequences_;
  std::vector<StepRow> rows_;
  std::vector<int> head_rows_;
  std::vector<float> x_;
  ProfileResult result_;
};

Result<void> check_options(const ProfileOptions& options) {
  if (options.lengths.empty())
    return fail(ErrorCode::kInvalidInput, "a profile needs at least one sequence");
  if (options.step_count < 1)
    return fail(ErrorCode::kInvalidInput, "a profile of {} steps; must be at least 1",
                options.step_count);
  return {};
}

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
  GAPLESS_TRY(check_options(options));
  return Profiler(decoder, core_count, options).run();
}

double PairedTimes::ratio_at(double quantile) const {
  if (ratios.empty()) return 0.0;
  return ratios[static_cast<size_t>(quantile * static_cast<double>(ratios.size() - 1))];
}

Result<PairedTimes> compare_steps(CpuDecoder& first, CpuDecoder& second, int core_count,
                                  const ProfileOptions& options) {
  GAPLESS_TRY(check_options(options));
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
