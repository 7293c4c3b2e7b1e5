// SPDX-License-Identifier: Apache-2.0

#include "profile/profile_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "kernels/packed_matrix.h"
#include "model/random_values.h"

namespace gapless {
namespace {

constexpr uint64_t kInputPlace = uint64_t{1} << 60;        // beside all places of the caches
constexpr std::string_view kAttentionGroup = "attention";  // what reads keys and values

double limit_of(const StepKernel& kernel, const MachineLimits& limits) {
  return std::max(static_cast<double>(kernel.memory_bytes) / limits.read_bytes_per_s,
                  static_cast<double>(kernel.flops) / limits.ops_per_s(kernel.peak));
}

}  // namespace

Result<void> check_profile_options(const ProfileOptions& options, const Decoder& decoder) {
  if (options.lengths.empty())
    return fail(ErrorCode::kInvalidInput, "a profile needs at least one sequence");
  if (options.step_count < 1)
    return fail(ErrorCode::kInvalidInput, "a profile of {} steps; must be at least 1",
                options.step_count);
  for (const int32_t length : options.lengths)
    if (length < 1)
      return fail(ErrorCode::kInvalidInput, "a length of {}; must be at least 1", length);
  const int32_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  if (longest > decoder.max_length())
    return fail(ErrorCode::kInvalidInput,
                "a length of {}; model '{}' has {} positions, the cache was made for {}", longest,
                decoder.config().name, decoder.config().max_positions, decoder.max_length());
  return {};
}

StepInput::~StepInput() {
  for (const int sequence : sequences_) decoder_.release(sequence);
}

Result<void> StepInput::add(const ProfileOptions& options, const Fill& fill) {
  uint64_t number = 0;
  for (const int32_t length : options.lengths) {
    sequences_.push_back(GAPLESS_TRY(decoder_.add_sequence()));
    lengths_.push_back(length);
    GAPLESS_TRY(fill(sequences_.back(), length - 1, mix_bits(options.seed) + number));
    rows_.push_back({.sequence = sequences_.back(),
                     .token = static_cast<int32_t>(mix_bits(options.seed + number) %
                                                   uint64_t(decoder_.config().vocabulary))});
    head_rows_.push_back(static_cast<int>(number));
    ++number;
  }
  x_.resize(options.lengths.size() * static_cast<size_t>(decoder_.config().hidden));
  fill_normal(options.seed, kInputPlace, x_);
  return {};
}

void StepInput::take_back() {
  for (size_t i = 0; i < sequences_.size(); ++i) decoder_.truncate(sequences_[i], lengths_[i] - 1);
}

PastCache::PastCache(const KvShape& shape, std::span<const int32_t> lengths, ReadToken read)
    : shape_(shape), lengths_(lengths), read_(std::move(read)) {
  own_.resize(lengths.size() * static_cast<size_t>(kv_page_bytes(shape)) + kLineBytes);
}

KvPages PastCache::own_pages() const {
  const uintptr_t address = reinterpret_cast<uintptr_t>(own_.data());
  const size_t skip = (kLineBytes - address % kLineBytes) % kLineBytes;
  return {.shape = shape_, .data = own_.data() + skip, .page_count = std::ssize(lengths_)};
}

void PastCache::store(int /*layer*/, int row, int kv_head, const float* key, const float* value) {
  write_kv(own_pages(), row, 0, kv_head, key, value);
}

void PastCache::load(int layer, int row, int kv_head, float* keys, float* values) const {
  const int32_t last = lengths_[static_cast<size_t>(row)] - 1;
  for (int32_t token = 0; token < last; ++token) {
    const int64_t place = int64_t{token} * shape_.head_dim;
    read_(layer, row, token, kv_head, keys + place, values + place);
  }
  const int64_t place = int64_t{last} * shape_.head_dim;
  read_kv(own_pages(), row, 0, kv_head, keys + place, values + place);
}

Result<Closeness> check_first_layer(std::span<const float> values, std::span<const double> expected,
                                    const ProfileOptions& options) {
  const Closeness closeness = compare_closely(values, expected, options.tolerance);
  const int64_t not_finite_count = std::count_if(values.begin(), values.end(),
                                                 [](float value) { return !std::isfinite(value); });
  if (not_finite_count > 0)
    return fail(ErrorCode::kInvalidInput, "{} of {} values of the first layer are not finite",
                not_finite_count, closeness.count);
  if (closeness.outside_share() > options.max_outside_share)
    return fail(ErrorCode::kInvalidInput,
                "{} of {} values of the first layer are further than {} from the reference (the "
                "furthest {:.3g}); at most {} may be",
                closeness.outside_count, closeness.count, options.tolerance,
                closeness.largest_difference,
                std::floor(options.max_outside_share * static_cast<double>(closeness.count)));
  return closeness;
}

FirstLayer first_layer_of(const CpuDecoder& decoder, const StepInput& input) {
  const StepModel& model = decoder.model();
  return {.config = &decoder.config(),
          .weights = &model.weights->layers.front(),
          .kv = model.kv,
          .chunk_tokens = model.chunk_tokens,
          .deferred_norm = model.fusions.deferred_norm,
          .read = [&decoder, &input](int layer, int row, int32_t token, int kv_head, float* key,
                                     float* value) {
            const int sequence = input.sequences()[static_cast<size_t>(row)];
            decoder.read_token(layer, sequence, token, kv_head, key, value);
          }};
}

Result<Closeness> check_against_reference(const FirstLayer& layer, const StepInput& input,
                                          std::span<const float> values,
                                          const ProfileOptions& options, int thread_count) {
  PastCache cache(layer.kv, options.lengths, layer.read);
  const std::vector<double> expected = layer_reference({.config = layer.config,
                                                        .weights = layer.weights,
                                                        .layer = 0,
                                                        .kv_dtype = layer.kv.dtype,
                                                        .chunk_tokens = layer.chunk_tokens,
                                                        .deferred_norm = layer.deferred_norm,
                                                        .lengths = options.lengths,
                                                        .x = input.x().data(),
                                                        .cache = &cache,
                                                        .thread_count = thread_count});
  return check_first_layer(values, expected, options);
}

void add_up(ProfilePlan& plan) {
  plan.task_count = plan.bytes = plan.memory_bytes = plan.flops = 0;
  for (const StepKernel& kernel : plan.kernels) {
    plan.task_count += kernel.task_count;
    plan.bytes += kernel.bytes;
    plan.memory_bytes += kernel.memory_bytes;
    plan.flops += kernel.flops;
  }
}

void count_step(ProfileResult& result) {
  const ProfilePlan& plan = result.plan;
  result.step_bytes = plan.memory_bytes * result.layers;
  result.step_flops = plan.flops * result.layers;
  result.kv_bytes = 0;
  for (const StepKernel& kernel : plan.kernels)
    if (kernel.group == kAttentionGroup) result.kv_bytes += kernel.memory_bytes * result.layers;
  for (const StepKernel& kernel : plan.outside) {
    result.step_bytes += kernel.memory_bytes;
    result.step_flops += kernel.flops;
  }
  if (!result.limits) return;
  result.limit_seconds = 0.0;
  for (const StepKernel& kernel : plan.kernels)
    result.limit_seconds += limit_of(kernel, *result.limits) * result.layers;
  for (const StepKernel& kernel : plan.outside)
    result.limit_seconds += limit_of(kernel, *result.limits);
}

void take_limits(std::optional<MachineLimits>& limits, const MachineLimits& now) {
  if (!limits) {
    limits = now;
    return;
  }
  const auto mean = [](double& a, double b) { a = (a + b) / 2.0; };
  mean(limits->read_bytes_per_s, now.read_bytes_per_s);
  mean(limits->s8_ops_per_s, now.s8_ops_per_s);
  mean(limits->bf16_ops_per_s, now.bf16_ops_per_s);
  mean(limits->f32_ops_per_s, now.f32_ops_per_s);
}

std::vector<Property> limit_properties(const ProfileResult& result) {
  if (!result.limits) return {};
  const MachineLimits& limits = *result.limits;
  const auto number = [](double value) { return fmt::format("{:.6e}", value); };
  std::vector<Property> properties = {{"limit.bytes_per_second", number(limits.read_bytes_per_s)},
                                      {"limit.flops_per_second", number(limits.f32_ops_per_s)}};
  const auto add = [&](const StepKernel& kernel) {
    properties.push_back({fmt::format("limit.flops_per_second.{}", kernel.name),
                          number(limits.ops_per_s(kernel.peak))});
  };
  for (const StepKernel& kernel : result.plan.kernels) add(kernel);
  for (const StepKernel& kernel : result.plan.outside) add(kernel);
  return properties;
}

Result<void> read_recorded_steps(const Trace& trace, const std::vector<uint32_t>& lanes,
                                 ProfileResult& result) {
  std::vector<StepWindow> steps = step_windows(trace);
  if (steps.empty()) return fail(ErrorCode::kInvalidInput, "the recording has no step");
  double busy = 0.0;
  double wall = 0.0;
  for (const StepWindow& window : steps) {
    const KernelTimes times =
        GAPLESS_TRY(kernel_times(trace, {.window = window.window, .lanes = lanes}));
    busy += static_cast<double>(times.busy_ns);
    wall += static_cast<double>(times.window_ns());
  }
  result.average_busy_cores = busy / wall;
  const auto length = [](const StepWindow& window) {
    return window.window.end_ns - window.window.begin_ns;
  };
  std::nth_element(steps.begin(), steps.begin() + std::ssize(steps) / 2, steps.end(),
                   [&](const StepWindow& a, const StepWindow& b) { return length(a) < length(b); });
  const StepWindow& middle = steps[steps.size() / 2];
  result.kernels = GAPLESS_TRY(kernel_times(trace, {.window = middle.window, .lanes = lanes}));
  for (const KernelTime& kernel : result.kernels->kernels) {
    result.kernel_names.emplace_back(kernel_name(trace, kernel));
    result.task_count += kernel.run_count;
  }
  return {};
}

}  // namespace gapless
