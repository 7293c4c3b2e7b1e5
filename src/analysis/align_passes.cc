// SPDX-License-Identifier: Apache-2.0

#include "analysis/align_passes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"

namespace gapless {
namespace {

// Passes that may be averaged. A pass of an idle worker is not what a model describes.
using PassGroup = std::tuple<int, bool, uint32_t>;  // phase or -1, dummy, anchors

PassGroup group_of(const ForwardPass& pass, const PassSummary& summary) {
  const int phase = summary.phase.phase ? static_cast<int>(*summary.phase.phase) : -1;
  return {phase, summary.phase.is_dummy, pass.anchor_count};
}

std::string group_text(const CaptureTable& table, const FoundPasses& found,
                       const PassGroup& group) {
  const auto [phase, is_dummy, anchor_count] = group;
  std::string text = phase < 0 ? "" : fmt::format("{}, ", pass_phase_name(PassPhase(phase)));
  if (is_dummy) text += "of an idle worker, ";
  const std::string_view anchor =
      found.anchor == kNoIndex ? std::string_view("anchors") : table.names[found.anchor];
  return fmt::format("{}{} {}", text, anchor_count, anchor);
}

std::string passes_text(size_t count) {
  return count == 1 ? "1 pass" : fmt::format("{} passes", count);
}

size_t device_count_of(const FoundPasses& found) {
  std::set<int32_t> devices;
  for (const ForwardPass& pass : found.passes) devices.insert(pass.device);
  return devices.size();
}

Result<PassChoice> choose_number(const CaptureTable& table, const FoundPasses& found,
                                 std::span<const PassSummary> summaries, uint32_t number) {
  PassChoice choice;
  uint32_t last = 0;
  size_t cut_count = 0;
  for (uint32_t i = 0; i < found.passes.size(); ++i) {
    const ForwardPass& pass = found.passes[i];
    last = std::max(last, pass.index);
    if (pass.index != number) continue;
    choice.passes.push_back(i);
    if (!pass.is_whole()) ++cut_count;
  }
  if (choice.passes.empty())
    return fail(ErrorCode::kUsage, "no pass {}; passes 0 to {} were found", number, last);
  const uint32_t first = choice.passes.front();
  choice.text =
      fmt::format("pass {}: {}", number,
                  group_text(table, found, group_of(found.passes[first], summaries[first])));
  if (choice.passes.size() > 1)
    choice.text = fmt::format("{}; mean of {} devices", choice.text, choice.passes.size());
  if (cut_count > 0)
    choice.warnings.push_back(fmt::format(
        "the capture begins or ends within pass {}: its counts are not those of a whole pass",
        number));
  return choice;
}

// What makes the mean of the passes less than it seems.
void add_warnings(std::span<const PassSummary> summaries, PassChoice& choice) {
  size_t outlier_count = 0;
  int64_t least = -1;
  int64_t most = -1;
  for (const uint32_t pass : choice.passes) {
    const PassSummary& summary = summaries[pass];
    if (!summary.outlier.empty()) ++outlier_count;
    const int64_t tokens = summary.phase.tokens;
    if (tokens < 0) continue;
    least = least < 0 ? tokens : std::min(least, tokens);
    most = std::max(most, tokens);
  }
  if (outlier_count > 0)
    choice.warnings.push_back(fmt::format(
        "{} of the {} passes {} unlike the others; `gapless passes` lists them, --pass chooses one",
        outlier_count, choice.passes.size(), outlier_count == 1 ? "is" : "are"));
  if (least != most)
    choice.warnings.push_back(
        fmt::format("the passes have {} to {} tokens: a mean of different work; --pass chooses one",
                    least, most));
}

}  // namespace

uint32_t device_count_of(const CaptureTable& table) {
  const std::set<int32_t> devices(table.device.begin(), table.device.end());
  return std::max<uint32_t>(1, static_cast<uint32_t>(devices.size()));
}

Result<PassChoice> choose_passes(const CaptureTable& table, const FoundPasses& found,
                                 std::span<const PassSummary> summaries,
                                 const std::optional<uint32_t>& pass) {
  if (pass) return choose_number(table, found, summaries, *pass);
  std::map<PassGroup, std::vector<uint32_t>> groups;
  for (uint32_t i = 0; i < found.passes.size(); ++i) {
    if (found.passes[i].is_whole()) groups[group_of(found.passes[i], summaries[i])].push_back(i);
  }
  // Of equals the one that comes first in the capture.
  const auto is_smaller = [](const auto& a, const auto& b) {
    if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
    return a.second.front() > b.second.front();
  };
  PassChoice choice;
  const auto most = std::max_element(groups.begin(), groups.end(), is_smaller);
  if (most == groups.end()) return choice;
  choice.passes = most->second;
  choice.text =
      fmt::format("{} of {}: {}{}", choice.passes.size(), passes_text(found.passes.size()),
                  group_text(table, found, most->first), choice.passes.size() > 1 ? " each" : "");
  const size_t device_count = device_count_of(found);
  if (device_count > 1) choice.text += fmt::format(", of {} devices", device_count);
  add_warnings(summaries, choice);
  return choice;
}

}  // namespace gapless
