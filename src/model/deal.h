// SPDX-License-Identifier: Apache-2.0
//
// deal: jobs that do not depend on each other, dealt to a few threads for as long as it takes. For
// the long work before a model runs (packing, quantising), where a thread costs nothing to start.

#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"

namespace gapless {

struct DealOptions {
  int64_t count = 0;     // jobs 0 .. count - 1, begun in this order
  int thread_count = 0;  // the caller is one of them; 0: one for each CPU we may use
  // Called by the caller's thread after each job that it did and at the end: jobs done by all.
  std::function<void(int64_t done)> on_progress = {};
};

// After the first error no further job is begun. Of several errors, that of the smallest job: which
// one it is does not depend on the threads. Where the system gives fewer threads, fewer work.
Result<void> deal(const DealOptions& options, const std::function<Result<void>(int64_t job)>& work);

// CPUs that this thread may run on; at least 1.
int usable_cpu_count();

}  // namespace gapless
