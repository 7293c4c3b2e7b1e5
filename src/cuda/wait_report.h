// SPDX-License-Identifier: Apache-2.0
//
// The host's side of waits that did not end in time (wait_limit.h): how long they may take, the
// memory that the device writes a report to, and the sentence that it becomes.

#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cuda/wait_limit.h"

namespace gapless {

// "block 7 of a matmul waited more than 20 s for sums of another block (warp 3)"; nothing of kNone.
std::string describe(const WaitReport& report, uint32_t limit_ms);

// The limit that a text of whole seconds asks for; null or an empty one leaves it as it is.
Result<uint32_t> wait_limit_ms_of(const char* seconds_text);

// Makes present_wait_limit() what GAPLESS_CUDA_WAIT_S in the environment asks for, with memory for
// a report. Once for a process; cuda_limits() calls it.
Result<void> prepare_wait_limit();

// What describe() says of the wait that has expired in this process, or nothing.
std::string expired_wait();

}  // namespace gapless
