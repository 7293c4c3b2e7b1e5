// SPDX-License-Identifier: Apache-2.0
//
// From the rows of a swimlane file to the lanes, spans, tasks and edges of a trace.
//
// A run of a kernel is joined with its dispatch by core and register id; a task has one run, or one
// for each block and kind of core. Edges are between tasks: a task of several runs gets a row of
// its own, its join, after all of them, so that B runs before C runs are B + C edges. Costs two
// sorts of the runs, one of the edges.

#pragma once

#include "base/result.h"
#include "formats/swimlane_deps.h"
#include "formats/swimlane_records.h"
#include "trace/trace_builder.h"

namespace gapless {

struct SwimlaneParts {
  SwimlaneRecords records;
  SwimlaneGraph graph;  // empty without deps.json
  SwimlaneNames names;
  bool has_graph = false;
};

// All of the trace but its findings about files.
void add_swimlane(SwimlaneParts parts, TraceBuilder& builder);

}  // namespace gapless
