// SPDX-License-Identifier: Apache-2.0

#include "graph/task.h"

#include <array>
#include <cstddef>
#include <utility>

namespace gapless {
namespace {

constexpr std::array<std::string_view, kCoreKindCount> kCoreKindNames = {"any", "cube", "vector",
                                                                         "mixed"};
constexpr std::array<std::string_view, 3> kAccessNames = {"in", "out", "inout"};
constexpr std::array<std::string_view, 3> kBufferKindNames = {"external", "constant",
                                                              "intermediate"};
constexpr std::array<std::string_view, 6> kComparisonTexts = {"<", "<=", "==", "!=", ">=", ">"};
// The largest number stands for no kernel.
constexpr size_t kMaxKernels = 0xffff;

}  // namespace

std::string_view core_kind_name(CoreKind kind) { return kCoreKindNames[static_cast<size_t>(kind)]; }

std::string_view access_name(Access access) { return kAccessNames[static_cast<size_t>(access)]; }

std::string_view buffer_kind_name(BufferKind kind) {
  return kBufferKindNames[static_cast<size_t>(kind)];
}

std::string_view comparison_text(Comparison comparison) {
  return kComparisonTexts[static_cast<size_t>(comparison)];
}

bool Predicate::holds() const {
  if (value == nullptr) return true;
  switch (comparison) {
    case Comparison::kLess:
      return *value < operand;
    case Comparison::kLessEqual:
      return *value <= operand;
    case Comparison::kEqual:
      return *value == operand;
    case Comparison::kNotEqual:
      return *value != operand;
    case Comparison::kGreaterEqual:
      return *value >= operand;
    case Comparison::kGreater:
      return *value > operand;
  }
  return true;
}

Result<KernelId> KernelTable::add(std::string name, KernelFunction run) {
  if (name.empty()) return fail(ErrorCode::kInvalidInput, "a kernel needs a name");
  if (kernels_.size() == kMaxKernels) {
    return fail(ErrorCode::kInvalidInput, "kernel {}: there are {} kernels, no more are possible",
                name, kMaxKernels);
  }
  if (!names_.insert(name).second) {
    return fail(ErrorCode::kInvalidInput, "kernel {} is there already", name);
  }
  kernels_.push_back({std::move(name), run});
  return KernelId{static_cast<uint16_t>(kernels_.size() - 1)};
}

}  // namespace gapless
