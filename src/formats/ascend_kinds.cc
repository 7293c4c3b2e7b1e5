// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_kinds.h"

#include <algorithm>
#include <string>

namespace gapless {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equals_ignoring_case(std::string_view text, std::string_view lower_case) {
  return text.size() == lower_case.size() &&
         std::equal(text.begin(), text.end(), lower_case.begin(),
                    [](char a, char b) { return lower(a) == b; });
}

// "COMMUNICATION", older files "HCCL"; CCU is the unit of newer chips that does nothing else.
bool is_communication_core(std::string_view core) {
  return equals_ignoring_case(core, "communication") || equals_ignoring_case(core, "hccl") ||
         equals_ignoring_case(core, "ccu");
}

bool is_ai_cpu_core(std::string_view core) {
  return equals_ignoring_case(core, "ai_cpu") || equals_ignoring_case(core, "aicpu") ||
         equals_ignoring_case(core, "ai cpu");
}

// "hcom_allReduce_" and the names made of it, "HcomAllReduce" of graphs, "hccl_allReduce".
bool names_collective(std::string_view text) {
  if (text.starts_with("hcom_") || text.starts_with("hccl_")) return true;
  return text.size() > 4 && text.starts_with("Hcom") && text[4] >= 'A' && text[4] <= 'Z';
}

}  // namespace

KernelKind ascend_kernel_kind(const AscendRowText& row) {
  if (row.name.ends_with("AicpuKernel")) return KernelKind::kAiCpuCollective;
  if (row.name.ends_with("AivKernel")) return KernelKind::kFragment;
  if (names_collective(row.name)) return KernelKind::kCollective;
  if (is_communication_core(row.core) || names_collective(row.type)) {
    return row.has_stream ? KernelKind::kFragment : KernelKind::kCollective;
  }
  return is_ai_cpu_core(row.core) ? KernelKind::kAiCpu : KernelKind::kCompute;
}

bool is_missing_cell(std::string_view cell) {
  if (cell.empty()) return true;
  if (cell.size() > 4) return false;
  if (cell.front() == '-' || cell.front() == '+') cell.remove_prefix(1);
  if (cell.empty()) return true;
  for (const std::string_view word : {"n/a", "na", "nan", "inf", "null", "none"}) {
    if (equals_ignoring_case(cell, word)) return true;
  }
  return false;
}

std::string_view plain_shapes(std::string_view shapes, std::string& buffer) {
  if (shapes.find('[') == std::string_view::npos) return shapes;
  buffer.clear();
  int depth = 0;
  for (const char c : shapes) {
    if (c == ' ') continue;
    if (c == '[') {
      ++depth;
    } else if (c == ']') {
      --depth;
    } else {
      buffer += c == ',' && depth <= 1 && shapes.starts_with("[[") ? ';' : c;
    }
  }
  return buffer;
}

}  // namespace gapless
