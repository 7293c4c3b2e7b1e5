// SPDX-License-Identifier: Apache-2.0
//
// What a core wrote down of a run, and what its scheduler did, are two rows of a swimlane file.
// They belong together by core and register id, and never by the task's token, which all runs of a
// task share.

#pragma once

#include "formats/swimlane_records.h"
#include "trace/trace_builder.h"

namespace gapless {

// Gives runs the dispatch and finish of the same core and register id. Where an id comes again on a
// core, the first goes with the first. Counts what has no partner.
void join_dispatches(SwimlaneRecords& records, TraceBuilder& builder);

}  // namespace gapless
