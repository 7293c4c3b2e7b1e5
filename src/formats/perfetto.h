// SPDX-License-Identifier: Apache-2.0
//
// Writes a trace as Perfetto's own protobuf (TrackEvent packets), encoded by hand: every slice is
// two packets, 34 bytes together (42 with a value), at more than 12 million slices a second.
//
// - One packet sequence with absolute times: smaller encodings exist and load more slowly. Time 0
//   is the first time of the trace; the ClockSnapshot says which wall-clock time that is, if known,
//   and the description of the first process gives the trace's own number.
// - A device is a process with one group "lanes" in it: viewers keep an explicit order of tracks
//   only below a group. Lanes, and sub-lanes where slices overlap, are its tracks; a counter is a
//   track below its lane.
// - Packets of a track come in order of time; where times are equal, the order in the file counts:
//   what ends comes before what begins, an outer slice begins first.
// - A span's value is the debug annotation "value", its arguments are "args" (JSON text), the id of
//   a task is "task". Flows and task edges are arrows (formats/slice_arrows.h).

#pragma once

#include <string>

#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

Result<void> write_perfetto(const Trace& trace, const std::string& path,
                            const WriteOptions& options);

}  // namespace gapless
