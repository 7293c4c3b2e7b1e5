// SPDX-License-Identifier: Apache-2.0
//
// Whether two traces say the same: for tests of writers and readers.

#pragma once

#include <string>

#include "trace/trace.h"

namespace gapless {

// The first thing in which they differ, in words; empty when there is none. Compares everything but
// `format` and `findings`, numbers bit by bit.
std::string first_difference(const Trace& a, const Trace& b);

// Whether a reader of `trace` is told something that a reader of `original` is not.
bool has_more_findings(const Trace& trace, const Trace& original);

}  // namespace gapless
