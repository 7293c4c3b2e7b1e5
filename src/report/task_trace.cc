// SPDX-License-Identifier: Apache-2.0

#include "report/task_trace.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "analysis/passes.h"
#include "base/input_stream.h"
#include "base/quantity.h"
#include "formats/capture.h"
#include "formats/json_kernels.h"
#include "trace/capture_trace.h"

namespace gapless {
namespace {

std::string device_text(const CaptureTable& table, int32_t device) {
  return device == CaptureTable::kNoDevice
             ? fmt::format("the {} without a number", table.device_word)
             : fmt::format("{} {}", table.device_word, device);
}

// Keeps the rows of one device.
Result<void> choose_device(CaptureTable& table, const std::string& path,
                           const std::optional<int32_t>& wanted) {
  std::vector<int32_t> devices = table.device;
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  const int32_t device = wanted.value_or(devices.front());
  std::string names;
  for (const int32_t known : devices) {
    names += (names.empty() ? "" : ", ") + device_text(table, known);
  }
  if (!std::binary_search(devices.begin(), devices.end(), device)) {
    return fail(ErrorCode::kUsage, "--device {}; {} has {}", device, path, names);
  }
  if (devices.size() == 1) return {};
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < table.size(); ++row) {
    if (table.device[row] == device) rows.push_back(row);
  }
  const uint64_t left_out = table.size() - rows.size();
  keep_rows(table, rows);
  table.findings.push_back(
      {Severity::kWarning, "other-devices",
       fmt::format("{} are in this capture ({}); this is {}, and {} of the others are left out",
                   counted(devices.size(), "device"), names, device_text(table, device),
                   counted(left_out, "row")),
       kNoIndex, left_out});
  return {};
}

void add_step(CaptureTable& table, CaptureStep step) {
  // What a step still runs when the next begins is the next one's beginning.
  if (!table.steps.empty()) {
    table.steps.back().end_ns = std::min(table.steps.back().end_ns, step.begin_ns);
  }
  table.steps.push_back(step);
}

void add_passes(CaptureTable& table, const FoundPasses& found) {
  for (const ForwardPass& pass : found.passes) {
    if (!pass.is_whole()) continue;
    CaptureStep step = {table.start_ns[pass.first_row], 0, pass.index};
    for (uint32_t row = pass.first_row; row < pass.end_row; ++row) {
      step.end_ns = std::max(step.end_ns, table.end_ns(row));
    }
    add_step(table, step);
  }
}

// The steps that the profiler counted, from their first start to their last end.
void add_profiler_steps(CaptureTable& table) {
  std::map<uint32_t, CaptureStep> steps;
  for (size_t row = 0; row < table.size(); ++row) {
    if (table.step[row] == kNoIndex) continue;
    const auto [entry, is_new] =
        steps.try_emplace(table.step[row], CaptureStep{table.start_ns[row], table.end_ns(row), 0});
    entry->second.begin_ns = std::min(entry->second.begin_ns, table.start_ns[row]);
    entry->second.end_ns = std::max(entry->second.end_ns, table.end_ns(row));
  }
  std::vector<CaptureStep> in_order;
  for (const auto& [name, step] : steps) in_order.push_back(step);
  std::sort(in_order.begin(), in_order.end(),
            [](const CaptureStep& a, const CaptureStep& b) { return a.begin_ns < b.begin_ns; });
  for (CaptureStep& step : in_order) {
    step.number = static_cast<uint32_t>(table.steps.size());
    add_step(table, step);
  }
}

void add_steps(CaptureTable& table) {
  Result<FoundPasses> found = find_passes(table);
  if (found) {
    add_passes(table, *found);
    for (Finding& finding : found->findings) table.findings.push_back(std::move(finding));
  }
  if (!table.steps.empty()) return;
  add_profiler_steps(table);
  const std::string_view instead =
      table.steps.empty() ? "the whole capture is one step" : "steps are those of the profiler";
  const std::string reason = found ? "none is whole" : found.error().message;
  table.findings.push_back({Severity::kInfo, "no-passes",
                            fmt::format("no forward passes were found, so {}: {}", instead, reason),
                            kNoIndex, 0});
}

}  // namespace

Result<Trace> read_task_trace(const std::string& path, const ReadOptions& options,
                              std::optional<int32_t> device) {
  const Format format = GAPLESS_TRY(detect_format(path));
  const CaptureReadOptions capture_options = {.keep_host = true, .progress = options.progress};
  CaptureTable table;
  if (is_capture(format)) {
    table = GAPLESS_TRY(read_capture({&path, 1}, capture_options));
  } else if (format == Format::kChromeJson) {
    InputStream input = GAPLESS_TRY(InputStream::open_file(path));
    table = GAPLESS_TRY(read_json_kernels(std::move(input), capture_options));
  }
  if (table.size() == 0) {
    if (device) {
      return fail(ErrorCode::kUsage, "--device {}; {} is no profiler's capture", *device, path);
    }
    return read_trace(path, options);
  }
  GAPLESS_TRY(choose_device(table, path, device));
  add_steps(table);
  return trace_of(table);
}

}  // namespace gapless
