// SPDX-License-Identifier: Apache-2.0
//
// Writes a trace for Paraver: X.prv with the records, X.pcf with their names and X.row with the
// names of the lanes. The .prv comes last: it is never there without the others.
//
// - One application; a device is a task, a row of the layout (a lane or one of its sub-lanes) is a
//   thread on a CPU of its own. Devices without lanes are left out. Time 0 is the first time of the
//   trace; the .pcf says which time that is.
// - Paraver shows one value a thread at a time and has no nesting. Event 90, the type that TraCR's
//   converter uses, is the innermost slice: its value changes where a slice begins or ends, to the
//   number of the name that is innermost from there on, 0 for none. Event 91 is the slice's value
//   and 92 the id of its task, at the begin of slices that have them.
// - State records say only "Running", from begin to end of each outermost slice.
// - Event 93 is an instant (its name), 1001 and above are counters, rounded to whole numbers.
// - An arrow (formats/slice_arrows.h) is a communication of no bytes with the arrow's number as
//   tag. It leaves the earlier slice when that ends or, if sooner, when the later one begins.
// - Records are in order of time, as Paraver wants them.

#pragma once

#include <string>

#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

// `path` is that of the .prv file.
Result<void> write_paraver(const Trace& trace, const std::string& path,
                           const WriteOptions& options);

}  // namespace gapless
