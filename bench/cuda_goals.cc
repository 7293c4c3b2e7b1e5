// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_goals.h"

#include <algorithm>
#include <string_view>

#include <fmt/core.h>

namespace gapless {
namespace {

// As its driver names it. Times say nothing about another one, not even about a part of it, which
// is named after the whole.
constexpr std::string_view kMeasuredGpu = "NVIDIA H200";

}  // namespace

std::vector<CudaVerdict> judge(const CudaGoals& goals, const CudaFigures& figures,
                               const std::string& gpu) {
  std::vector<CudaVerdict> verdicts;
  if (goals.max_us > 0.0 && gpu == kMeasuredGpu) {
    verdicts.push_back(
        {fmt::format("<= {:.2f} us", goals.max_us), figures.median_us <= goals.max_us});
  }
  if (goals.min_share > 0.0) {
    verdicts.push_back({fmt::format(">= {:.0f} % of the ceiling", 100.0 * goals.min_share),
                        figures.share >= goals.min_share});
  }
  if (goals.max_tasks_cost > 0.0) {
    verdicts.push_back({fmt::format("tasks recorded for < {:.0f} %", 100.0 * goals.max_tasks_cost),
                        figures.tasks_cost < goals.max_tasks_cost});
  }
  return verdicts;
}

std::string verdict_text(const std::vector<CudaVerdict>& verdicts) {
  std::string text;
  for (const CudaVerdict& verdict : verdicts)
    text += fmt::format("  goal {}: {}", verdict.goal, verdict.met ? "met" : "MISSED");
  return text;
}

nlohmann::ordered_json verdict_json(const std::vector<CudaVerdict>& verdicts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CudaVerdict& verdict : verdicts)
    list.push_back({{"goal", verdict.goal}, {"met", verdict.met}});
  return list;
}

std::string goal_count_text(const std::vector<CudaVerdict>& verdicts) {
  if (verdicts.empty()) return "";
  const auto met = std::count_if(verdicts.begin(), verdicts.end(),
                                 [](const CudaVerdict& verdict) { return verdict.met; });
  return fmt::format("{} of {} goals met", met, verdicts.size());
}

}  // namespace gapless
