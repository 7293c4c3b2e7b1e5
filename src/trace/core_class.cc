// SPDX-License-Identifier: Apache-2.0

#include "trace/core_class.h"

namespace gapless {

std::string_view core_class_name(CoreClass core_class) {
  switch (core_class) {
    case CoreClass::kAny:
      return "any";
    case CoreClass::kCube:
      return "cube";
    case CoreClass::kVector:
      return "vector";
  }
  return "unknown";
}

CoreClass core_class_of(LaneKind kind) {
  if (kind == LaneKind::kCubeCore) return CoreClass::kCube;
  if (kind == LaneKind::kVectorCore) return CoreClass::kVector;
  return CoreClass::kAny;
}

}  // namespace gapless
