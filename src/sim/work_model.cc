// SPDX-License-Identifier: Apache-2.0

#include "sim/work_model.h"

#include <algorithm>
#include <cstdlib>

#include "base/mix_bits.h"
#include "sim/fluid.h"

namespace gapless {
namespace {

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)

constexpr int64_t kMillion = 1'000'000;

// Thousandths of a standard deviation, -3464 to 3464: the sum of four uniform numbers, which is
// close to normal and whole on every machine.
int64_t normal_per_mille(uint64_t seed, uint32_t task, uint32_t block) {
  const uint64_t bits = mix_bits(mix_bits(seed ^ (uint64_t{task} << 32)) + block);
  int64_t sum = 0;
  for (int shift = 0; shift < 64; shift += 16) {
    sum += static_cast<int64_t>((bits >> shift) & 0xffff);
  }
  constexpr int64_t kMean = 2 * 65535;
  constexpr int64_t kPerSigma = 1732;  // 1000 x sqrt(12 / 4)
  return (sum - kMean) * kPerSigma / 65536;
}

constexpr int64_t kMaxComputeNs = int64_t{1} << 40;  // 18 minutes: sums of millions fit

int64_t scaled(int64_t value, int64_t millionths) {
  const Wide product = Wide{static_cast<uint64_t>(value)} * static_cast<uint64_t>(millionths);
  return static_cast<int64_t>(product / static_cast<uint64_t>(kMillion));
}

int64_t time_ns(int64_t amount, int64_t per_second) {
  const Wide numerator = Wide{static_cast<uint64_t>(amount)} * 1'000'000'000;
  const Wide divisor = static_cast<Wide>(per_second);
  const Wide time = (numerator + divisor - 1) / divisor;
  return static_cast<int64_t>(std::min(time, static_cast<Wide>(kMaxComputeNs)));
}

}  // namespace

WorkModel::WorkModel(const DeviceProfile& profile, const SimGraph& graph, uint64_t seed)
    : profile_(profile), graph_(graph), seed_(seed) {
  for (const std::string& kernel : graph.kernels()) {
    calibrations_.push_back(profile.find_kernel(kernel));
  }
}

BlockWork WorkModel::work(uint32_t task, uint32_t block, const SimCost& cost,
                          int64_t compute_ns) const {
  const KernelCalibration* measured = calibrations_[graph_.task(task).kernel];
  const bool is_given = measured != nullptr || cost.run_ns != kModelled;
  if (is_given) {
    const int64_t part = graph_.block_scale(task, block);
    const int64_t mean_ns = scaled(measured != nullptr ? measured->mean_ns : cost.run_ns, part);
    const int64_t sigma_ns = scaled(measured != nullptr ? measured->sigma_ns : cost.sigma_ns, part);
    if (sigma_ns == 0) return {.fixed_ns = mean_ns};
    const int64_t deviations = normal_per_mille(seed_, task, block);
    const int64_t size_ns = scaled(sigma_ns, std::abs(deviations) * 1000);
    const int64_t noise_ns = deviations < 0 ? -size_ns : size_ns;
    return {.fixed_ns = std::max(mean_ns + noise_ns, int64_t{0})};
  }
  int64_t scale = kMillion;
  if (profile_.variation_per_mille > 0) {
    scale += profile_.variation_per_mille * normal_per_mille(seed_, task, block);
  }
  const int64_t work_scale = scaled(graph_.block_scale(task, block), scale);
  return {.bytes = std::min(scaled(cost.bytes, work_scale), kMaxFlowBytes),
          .compute_ns = scaled(compute_ns, work_scale),
          .fixed_ns = scaled(profile_.block_fixed_ns, scale)};
}

BlockWork WorkModel::cube_work(uint32_t task, uint32_t block) const {
  const SimTask& facts = graph_.task(task);
  SimCost cost = facts.cube;
  const int64_t cube_rate =
      cost.dtype == DType::kS8 ? profile_.cube_int8_flops_per_s : profile_.cube_bf16_flops_per_s;
  int64_t compute_ns = time_ns(cost.flops, cube_rate);
  if (profile_.is_unified != 0 && facts.shape != SimShape::kCube) {
    if (facts.shape == SimShape::kVector) cost = facts.vector;
    const bool is_mix = facts.shape == SimShape::kMix;
    cost.bytes += is_mix ? facts.vector.bytes : 0;
    compute_ns =
        (is_mix ? compute_ns : 0) + time_ns(facts.vector.flops, profile_.vector_flops_per_s);
  }
  return work(task, block, cost, compute_ns);
}

BlockWork WorkModel::vector_work(uint32_t task, uint32_t block) const {
  const SimCost& cost = graph_.task(task).vector;
  return work(task, block, cost, time_ns(cost.flops, profile_.vector_flops_per_s));
}

}  // namespace gapless
