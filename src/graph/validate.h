// SPDX-License-Identifier: Apache-2.0
//
// validate: whether a device can run a graph at all, before it is tried.
//
// What is refused here would be a hang later: a cycle, a gang with more blocks than there are
// cores, a scope that holds more tasks than the window, a buffer that no arena can hold.

#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace gapless {

// What a device has. 0 of a kind: tasks of that kind run on any core.
struct DeviceLimits {
  std::string name = "device";
  int any_cores = 0;  // cores that run every kind
  int cube_cores = 0;
  int vector_cores = 0;
  int clusters = 0;         // of 1 cube + 2 vector cores
  int64_t scope_tasks = 0;  // tasks a scope may hold until it ends; 0: no limit
  int64_t arena_bytes = 0;  // for intermediates; 0: no limit
};

// Cores that can run blocks of this kind at the same time.
int cores_for(const DeviceLimits& limits, CoreKind kind);

Result<void> validate(const Graph& graph, const DeviceLimits& limits);

}  // namespace gapless
