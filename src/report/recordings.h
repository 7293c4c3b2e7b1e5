// SPDX-License-Identifier: Apache-2.0
//
// Several processes of one program, recorded at the same time on one machine, as one trace.

#pragma once

#include <vector>

#include "trace/trace.h"

namespace gapless {

// merge_traces, and the properties that add up: "recorder.events", "recorder.writers", the mean
// "recorder.ns_per_event", "pid" lists all of them and "processes" says how many.
Trace merge_recordings(std::vector<Trace> traces);

}  // namespace gapless
