// SPDX-License-Identifier: Apache-2.0

#include "trace/capture_table.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"

namespace gapless {

std::string_view kernel_kind_name(KernelKind kind) {
  constexpr std::string_view kNames[kKernelKindCount] = {
      "compute", "ai-cpu", "collective", "fragment", "ai-cpu-collective", "copy"};
  return kNames[static_cast<size_t>(kind)];
}

void CaptureTable::append(const KernelRow& row) {
  start_ns.push_back(row.start_ns);
  duration_ns.push_back(row.duration_ns);
  device.push_back(row.device);
  stream.push_back(row.stream);
  task.push_back(row.task);
  name.push_back(row.name);
  type.push_back(row.type);
  core.push_back(row.core);
  input_shapes.push_back(row.input_shapes);
  output_shapes.push_back(row.output_shapes);
  step.push_back(row.step);
  kind.push_back(row.kind);
  source.push_back(row.source);
  if (row.launch_ns != kAbsent) launch_ns.resize(start_ns.size() - 1, kAbsent);
  if (row.launch_ns != kAbsent || !launch_ns.empty()) launch_ns.push_back(row.launch_ns);
}

void keep_rows(CaptureTable& table, const std::vector<uint32_t>& rows) {
  for_each_kernel_column(table, [&rows](auto& column) {
    if (column.empty()) return;
    std::remove_reference_t<decltype(column)> kept;
    kept.reserve(rows.size());
    for (const uint32_t row : rows) kept.push_back(column[row]);
    column = std::move(kept);
  });
}

std::vector<uint32_t> rows_in_order(const CaptureTable& table) {
  GAPLESS_CHECK(table.size() < kNoIndex);
  std::vector<uint32_t> rows(table.size());
  std::iota(rows.begin(), rows.end(), 0u);
  const auto is_before = [&table](uint32_t a, uint32_t b) {
    if (table.device[a] != table.device[b]) return table.device[a] < table.device[b];
    return table.start_ns[a] < table.start_ns[b];
  };
  if (!std::is_sorted(rows.begin(), rows.end(), is_before)) {
    std::stable_sort(rows.begin(), rows.end(), is_before);
  }
  return rows;
}

void leave_out_late_launches(CaptureTable& table) {
  uint64_t count = 0;
  for (size_t row = 0; row < table.launch_ns.size(); ++row) {
    if (table.launch_ns[row] == kAbsent || table.launch_ns[row] <= table.start_ns[row]) continue;
    table.launch_ns[row] = kAbsent;
    ++count;
  }
  if (count == 0) return;
  table.findings.push_back(
      {Severity::kInfo, "launches-after-start",
       fmt::format("{} rows start before the call that launched them, as the clocks of host and "
                   "device do not fit exactly; their launch is left out",
                   count),
       kNoIndex, count});
}

std::array<KernelSum, kKernelKindCount> kernel_sums(const CaptureTable& table) {
  std::array<KernelSum, kKernelKindCount> sums = {};
  for (size_t row = 0; row < table.size(); ++row) {
    KernelSum& sum = sums[static_cast<size_t>(table.kind[row])];
    ++sum.count;
    if (__builtin_add_overflow(sum.duration_ns, table.duration_ns[row], &sum.duration_ns)) {
      sum.duration_ns = std::numeric_limits<int64_t>::max();
    }
  }
  return sums;
}

KernelKind named_kernel_kind(std::string_view name) {
  constexpr std::string_view kCollectives[] = {"nccl", "rccl", "hcom", "hccl"};
  constexpr std::string_view kCopies[] = {"memcpy", "memset"};
  const auto begins_with = [name](std::string_view prefix) {
    if (name.size() < prefix.size()) return false;
    return std::equal(prefix.begin(), prefix.end(), name.begin(),
                      [](char lower, char c) { return (c | 0x20) == lower; });
  };
  if (std::any_of(std::begin(kCollectives), std::end(kCollectives), begins_with)) {
    return KernelKind::kCollective;
  }
  if (std::any_of(std::begin(kCopies), std::end(kCopies), begins_with)) return KernelKind::kCopy;
  return KernelKind::kCompute;
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

// Of the layouts, types and switches in "MatMulV2_NDNZ_ND_FP16_FP16_false_true_all_229955".
bool is_tiling_word(std::string_view word) {
  constexpr std::string_view kWords[] = {"ND",   "NZ",    "NDNZ",    "NZND", "NDND",  "NZNZ",
                                         "NCHW", "NHWC",  "NC1HWC0", "FP16", "FP32",  "BF16",
                                         "INT8", "INT32", "INT64",   "true", "false", "all"};
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

bool is_hash(std::string_view word) {
  constexpr size_t kHashDigits = 32;
  const auto is_hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); };
  return word.size() == kHashDigits && std::all_of(word.begin(), word.end(), is_hex);
}

// Cuts off what the compiler adds: hashes, numbers, and the tiling before a number. One word stays.
std::string_view without_tail(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {"_mix_aic", "_mix_aiv", "_high_performance"};
  bool has_number = false;
  while (true) {
    for (const std::string_view suffix : kSuffixes) {
      if (name.ends_with(suffix) && name.size() > suffix.size()) name.remove_suffix(suffix.size());
    }
    const size_t underscore = name.rfind('_');
    if (underscore == std::string_view::npos || underscore == 0) return name;
    const std::string_view word = name.substr(underscore + 1);
    const bool is_counted = is_number(word) || is_hash(word);
    if (!is_counted && !(has_number && is_tiling_word(word))) return name;
    has_number = true;
    name = name.substr(0, underscore);
  }
}

// "Conv2D17" is the seventeenth node of a graph; "MatMulV2" and "Relu6" are names of operators.
std::string_view without_node_number(std::string_view name) {
  constexpr std::string_view kOperators[] = {"Relu6", "Expm1", "Exp2", "Atan2", "Log2", "Log10"};
  if (name.find('_') != std::string_view::npos) return name;
  if (std::find(std::begin(kOperators), std::end(kOperators), name) != std::end(kOperators)) {
    return name;
  }
  size_t end = name.size();
  while (end > 0 && is_digit(name[end - 1])) --end;
  if (end == 0 || name[end - 1] == 'V') return name;
  return name.substr(0, end);
}

// What follows the second underscore of aclnn<Api>_<kernel>_<Type>.
std::string_view aclnn_type(std::string_view name) {
  const size_t first = name.find('_');
  if (first == std::string_view::npos) return name;
  const std::string_view rest = name.substr(first + 1);
  const size_t second = rest.find('_');
  if (second == std::string_view::npos || second + 1 == rest.size()) return rest;
  return rest.substr(second + 1);
}

}  // namespace

std::string derived_kernel_type(std::string_view name) {
  constexpr std::string_view kMemorySet = "_MemSet";
  constexpr std::string_view kAclnn = "aclnn";
  constexpr std::string_view kTransfer = "trans_";
  if (name.starts_with("hcom_")) {
    const size_t group = name.find("__");
    return std::string(group == std::string_view::npos ? name : name.substr(0, group + 1));
  }
  if (name.ends_with(kMemorySet)) return std::string(kMemorySet.substr(1));
  if (const size_t slash = name.rfind('/'); slash != std::string_view::npos) {
    if (slash + 1 < name.size()) name = name.substr(slash + 1);
  }
  if (name.starts_with(kAclnn) && name.size() > kAclnn.size()) {
    name = name.find('_') == std::string_view::npos ? name.substr(kAclnn.size()) : aclnn_type(name);
    return std::string(without_tail(name));
  }
  if (name.starts_with(kTransfer) && name.size() > kTransfer.size()) {
    name = name.substr(kTransfer.size());
  }
  const std::string_view cut = without_tail(name);
  return std::string(cut.size() == name.size() ? without_node_number(name) : cut);
}

}  // namespace gapless
