// SPDX-License-Identifier: Apache-2.0
//
// What lies beside a swimlane file: deps.json (the tasks of the graph, their kernels and edges,
// from a run of its own) and a name map (what the kernels are called).

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/input_stream.h"
#include "base/result.h"
#include "formats/swimlane_records.h"
#include "trace/trace_builder.h"

namespace gapless {

struct SwimlaneGraphTask {
  uint64_t token = 0;
  std::array<int64_t, 3> kernels = {-1, -1, -1};  // cube, first and second vector; -1: not used
  uint64_t block_count = 1;

  bool has_kernel() const { return kernels[0] >= 0 || kernels[1] >= 0 || kernels[2] >= 0; }
};

struct SwimlaneGraph {
  std::vector<SwimlaneGraphTask> tasks;  // by token, each once
  std::vector<SwimlaneEdge> edges;       // as in the file: a pair may come more than once
  // nullptr: not in the graph.
  const SwimlaneGraphTask* find(uint64_t token) const;
};

struct SwimlaneNames {
  int64_t level = 0;  // 2: kernels; 0: the file does not say
  std::string orchestrator;
  std::unordered_map<int64_t, std::string> kernels;  // by id
};

// Both keep what lies before the place where a file is cut short or damaged, with a finding. An
// error only when the file cannot be read.
Result<SwimlaneGraph> read_swimlane_deps(InputStream& input, TraceBuilder& builder);
Result<SwimlaneNames> read_swimlane_names(InputStream& input, TraceBuilder& builder);

}  // namespace gapless
