// SPDX-License-Identifier: Apache-2.0
//
// Between tables of kernels and traces: a capture as a trace that analyses and viewers understand,
// and a trace as a table in which forward passes can be found.

#pragma once

#include <cstdint>
#include <vector>

#include "trace/capture_table.h"
#include "trace/collective_rows.h"
#include "trace/trace.h"

namespace gapless {

// Streams as lanes ("Stream 148"), and for each device one for collectives ("Communication") and
// one for rows that name no stream ("Kernels"). Row i of the table is row i of the tasks, with a
// start, an end, the launch as its submission and the type (or else the name) as its kernel; names
// have the same numbers. There are no edges: a capture does not say which kernel waited for one of
// another stream, and the order on a stream alone would make those waits look like overhead.
//
// Tasks of a lane do not overlap: where rows do, the later ones are on further lanes ("Stream 148
// (2)"). What tells of time that other rows count for already (see collective_rows.h), and wrappers
// on the AI CPU, is on lanes of the kind kOther, which stand for no core. The host's spans are on
// lanes of its threads, and steps on one of an orchestrator ("Forward passes"), as in our own
// traces.
Trace trace_of(const CaptureTable& table, DedupRule rule = DedupRule::kInterval);

// Which kernels of a trace are collectives and copies: as trace_of says in properties of the trace,
// or else by their names.
class KernelKinds {
 public:
  explicit KernelKinds(const Trace& trace);
  KernelKind of(uint32_t kernel) const {
    return kernel == kNoIndex ? KernelKind::kCompute : kinds_[kernel];
  }

 private:
  std::vector<KernelKind> kinds_;  // by number of the name
};

// Tasks with a start and an end as rows, their lanes as streams, their kernels as types. For traces
// of formats that are no tables of kernels. What trace_of has made comes back with its kinds and
// streams; shapes, and what else a trace does not hold, are gone.
CaptureTable capture_of(const Trace& trace);

}  // namespace gapless
