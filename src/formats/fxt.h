// SPDX-License-Identifier: Apache-2.0
//
// Writes a trace in the Fuchsia trace format: 64-bit words, one "duration complete" record of 24
// bytes a slice (8 more with a value). The smallest of the formats Perfetto reads and the one it
// loads fastest, but it knows no order of lanes.
//
// - One tick is a nanosecond and tick 0 the first time of the trace; the name of the provider says
//   which time that is.
// - A device is a process, a row of the layout a thread; numbers of threads follow the order of the
//   rows. The format has room for 255 threads by number; the rows after them are written out in
//   each record, 16 bytes more.
// - Texts are numbered when they are first used. Numbers end at 32767: then all but the fixed ones
//   are forgotten and given out again. Texts are cut after 32000 bytes.
// - Arguments: "value", "task" (the id) and "args" (JSON text). A counter is the record "lane name"
//   with the argument "counter name".
// - Points of arrows (formats/slice_arrows.h) stand right behind the record of their slice and at
//   its begin: readers tie them to the slice that began last on the thread.

#pragma once

#include <string>

#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

Result<void> write_fxt(const Trace& trace, const std::string& path, const WriteOptions& options);

}  // namespace gapless
