// SPDX-License-Identifier: Apache-2.0

#include "profile/cuda_profile.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "cuda/ceiling.h"
#include "cuda/kv_pages.h"
#include "cuda/recorder.h"
#include "cuda/recorder_places.h"
#include "model/deal.h"
#include "model/layer_plan.h"
#include "profile/profile_parts.h"
#include "trace/trace_file_writer.h"

namespace gapless {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Of one trace. A step of a whole model has some fifty thousand blocks; more than these make files
// that no viewer opens in a second.
constexpr int64_t kMaxTraceBlocks = 100'000;
constexpr double kWarmSeconds = 0.03;

// A layer's pages as the device had them.
class PagesCopy {
 public:
  PagesCopy(const KvShape& shape, std::vector<std::byte> pages)
      : shape_(shape), pages_(std::move(pages)) {}

  void read(int32_t page, int token, int kv_head, float* key, float* value) const {
    const int64_t page_bytes =
        cuda_kv_page_bytes(shape_.kv_heads, shape_.head_dim, shape_.page_tokens);
    const int64_t block_bytes = cuda_kv_block_bytes(shape_.head_dim, shape_.page_tokens);
    const std::byte* keys = pages_.data() + page * page_bytes + kv_head * 2 * block_bytes;
    for (int dim = 0; dim < shape_.head_dim; ++dim) {
      const int64_t place =
          int64_t{cuda_kv_element(shape_.head_dim, token, dim)} * kCudaKvElementBytes;
      key[dim] = element(keys + place);
      value[dim] = element(keys + block_bytes + place);
    }
  }

 private:
  float element(const std::byte* place) const {
    if (shape_.dtype == DType::kF16) {
      F16 value;
      std::memcpy(&value, place, sizeof(value));
      return to_float(value);
    }
    Bf16 value;
    std::memcpy(&value, place, sizeof(value));
    return to_float(value);
  }

  KvShape shape_;
  std::vector<std::byte> pages_;
};

// Tensor cores multiply f16 as they do bf16.
DType peak_of(const CudaNode& node, DType weights) {
  if (node.is_matmul) return node.layer >= 0 ? weights : DType::kBf16;
  return node.name == layer_kernel_name(LayerKernel::kAttention, weights) ? DType::kBf16
                                                                          : DType::kF32;
}

StepKernel planned(const CudaNode& node, DType weights) {
  return {.name = node.name,
          .group = cuda_group_name(node.name, weights),
          .task_count = node.blocks,
          .bytes = node.bytes,
          .memory_bytes = node.weight_bytes,
          .flops = node.flops,
          .peak = peak_of(node, weights)};
}

MachineLimits machine_limits(const CudaMachineLimits& measured, int sm_count) {
  return {.thread_count = sm_count,
          .read_bytes_per_s = measured.read_bytes_per_s,
          .s8_ops_per_s = measured.s8_ops_per_s,
          .bf16_ops_per_s = measured.bf16_ops_per_s,
          .f32_ops_per_s = measured.f32_ops_per_s};
}

RecordingSummary summarise(const DeviceRecording& recording) {
  RecordingSummary summary;
  const RecordedPlaces places(recording);
  for (size_t place = 0; place < places.count(); ++place) {
    if (!places.header(place).is_there) continue;  // its block did not run
    for (int role = 0; role < kDeviceRoleCount; ++role) {
      summary.event_count += places.records(place, role).size();
      summary.dropped_count += places.dropped(place, role);
    }
  }
  return summary;
}

std::vector<uint32_t> sm_lanes(const Trace& trace) {
  std::vector<uint32_t> lanes;
  for (uint32_t lane = 0; lane < trace.lanes.size(); ++lane)
    if (trace.lanes[lane].kind == LaneKind::kSm) lanes.push_back(lane);
  return lanes;
}

class CudaProfiler {
 public:
  CudaProfiler(CudaDecoder& decoder, const LayerWeights* first_layer, const ProfileOptions& options)
      : decoder_(decoder), first_layer_(first_layer), options_(options), input_(decoder) {}

  Result<ProfileResult> run() {
    GAPLESS_TRY(prepare());
    if (options_.measure_limits) GAPLESS_TRY(measure_limits());
    say("running steps");
    for (int i = 0; i < options_.step_count; ++i) GAPLESS_TRY(time_step(result_.with_host));
    GAPLESS_TRY(repeat(result_.plain));
    if (!options_.trace_path.empty()) {
      GAPLESS_TRY(record_steps());
      GAPLESS_TRY(repeat(result_.plain));
    }
    if (options_.measure_limits) GAPLESS_TRY(measure_limits());
    count_step(result_);
    if (!options_.trace_path.empty()) GAPLESS_TRY(write_recording());
    return std::move(result_);
  }

 private:
  void say(std::string_view part) const {
    if (options_.on_part) options_.on_part(part);
  }
  bool has_head() const { return decoder_.weights().has_head; }

  // Everything before the first step that counts.
  Result<void> prepare() {
    result_.layers = decoder_.config().layers;
    result_.has_head = has_head();
    say("filling the KV cache");
    GAPLESS_TRY(input_.add(options_, [this](int sequence, int new_length, uint64_t seed) {
      return decoder_.fill_sequence(sequence, new_length, seed);
    }));
    if (options_.validate) GAPLESS_TRY(validate());
    // At least one: the plan is of the last step, which was the check's.
    for (int i = 0; i < std::max(options_.warmup_count, 1); ++i) GAPLESS_TRY(step());
    plan();
    return {};
  }

  Result<void> validate() {
    say("checking against the reference");
    input_.take_back();
    const std::span<const float> y =
        GAPLESS_TRY(decoder_.step_hidden(input_.sequences(), input_.x(), 1));
    const KvShape& kv = decoder_.kv_shape();
    const PagesCopy pages(kv, GAPLESS_TRY(decoder_.copy_layer_pages(0)));
    const FirstLayer layer = {
        .config = &decoder_.config(),
        .weights = first_layer_,
        .kv = kv,
        .chunk_tokens = decoder_.options().chunk_tokens,
        .deferred_norm = decoder_.options().fusions.deferred_norm,
        .read = [&](int /*layer*/, int row, int32_t token, int kv_head, float* key, float* value) {
          const int sequence = input_.sequences()[static_cast<size_t>(row)];
          const std::span<const int32_t> own = decoder_.sequence_pages(sequence);
          pages.read(own[static_cast<size_t>(token / kv.page_tokens)], token % kv.page_tokens,
                     kv_head, key, value);
        }};
    result_.validation =
        GAPLESS_TRY(check_against_reference(layer, input_, y, options_, usable_cpu_count()));
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

  // All layers have the launches of the first.
  void plan() {
    const DType weights = decoder_.weights().dtype;
    for (const CudaNode& node : decoder_.last_nodes()) {
      step_blocks_ += node.blocks;
      if (node.layer == 0) result_.plan.kernels.push_back(planned(node, weights));
      if (node.layer < 0) result_.plan.outside.push_back(planned(node, weights));
    }
    add_up(result_.plan);
  }

  Result<void> time_step(StepTimes& times) {
    const SteadyClock::time_point begin = SteadyClock::now();
    GAPLESS_TRY(step());
    times.seconds.push_back(std::chrono::duration<double>(SteadyClock::now() - begin).count());
    return {};
  }

  // Clocks take that long to rise after a pause.
  Result<int> warm_count() {
    const double seconds = GAPLESS_TRY(decoder_.repeat_step(1)).back();
    return static_cast<int>(std::clamp(kWarmSeconds / seconds, 1.0, 1000.0));
  }

  Result<void> repeat(StepTimes& times) {
    const int warm = GAPLESS_TRY(warm_count());
    const std::vector<double> seconds =
        GAPLESS_TRY(decoder_.repeat_step(options_.step_count, warm));
    times.seconds.insert(times.seconds.end(), seconds.begin(), seconds.end());
    return {};
  }

  // Rounds of equally many steps, at most so many as a trace is to have; the last round is the
  // trace.
  Result<void> record_steps() {
    const int64_t most = std::max<int64_t>(1, kMaxTraceBlocks / std::max<int64_t>(step_blocks_, 1));
    const int64_t rounds = (options_.step_count + most - 1) / most;
    const int64_t round_steps = (options_.step_count + rounds - 1) / rounds;
    const RecordLevel level = options_.records_phases ? RecordLevel::kPhases : RecordLevel::kTasks;
    std::vector<double>& times = result_.recorded.seconds;
    const int warm = GAPLESS_TRY(warm_count());
    while (std::ssize(times) < options_.step_count) {
      const std::vector<double> seconds =
          GAPLESS_TRY(decoder_.repeat_step_recorded(static_cast<int>(round_steps), level, warm));
      times.insert(times.end(), seconds.begin(), seconds.end());
    }
    recording_ = GAPLESS_TRY(decoder_.take_recording());
    return {};
  }

  Result<void> write_recording() {
    say("writing the trace");
    result_.recording = summarise(recording_);
    Trace trace = device_trace(recording_);
    for (Property& property : limit_properties(result_))
      trace.properties.push_back(std::move(property));
    GAPLESS_TRY(write_trace_file(trace, options_.trace_path));
    return read_recorded_steps(trace, sm_lanes(trace), result_);
  }

  Result<void> measure_limits() {
    say("measuring this GPU");
    const CudaLimits device = GAPLESS_TRY(cuda_limits());
    take_limits(result_.limits,
                machine_limits(GAPLESS_TRY(measure_cuda_limits()), device.sm_count));
    return {};
  }

  CudaDecoder& decoder_;
  const LayerWeights* first_layer_;
  const ProfileOptions& options_;
  StepInput input_;
  int64_t step_blocks_ = 0;
  DeviceRecording recording_;
  ProfileResult result_;
};

}  // namespace

std::string_view cuda_group_name(std::string_view launch, DType weights) {
  if (launch == "qkv_proj") return layer_group_name(LayerKernel::kQProj);
  for (int i = 0; i < kLayerKernelCount; ++i) {
    const LayerKernel kernel = static_cast<LayerKernel>(i);
    if (launch == layer_kernel_name(kernel, weights)) return layer_group_name(kernel);
  }
  return kLayerGroups[std::size(kLayerGroups) - 1];
}

Result<ProfileResult> profile_cuda_steps(CudaDecoder& decoder, const LayerWeights* first_layer,
                                         const ProfileOptions& options) {
  GAPLESS_CHECK(first_layer != nullptr || !options.validate);
  GAPLESS_TRY(check_profile_options(options, decoder));
  return CudaProfiler(decoder, first_layer, options).run();
}

}  // namespace gapless
