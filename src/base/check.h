// SPDX-License-Identifier: Apache-2.0
//
// GAPLESS_CHECK: for our own bugs. Prints the condition and its place, then aborts. One condition
// a check. GAPLESS_DCHECK is for hot paths and is there in debug builds only.

#pragma once

#include <cstdio>
#include <cstdlib>

#define GAPLESS_CHECK(condition)                                                         \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#ifdef NDEBUG
#define GAPLESS_DCHECK(condition) static_cast<void>(sizeof((condition) ? 1 : 0))
#else
#define GAPLESS_DCHECK(condition) GAPLESS_CHECK(condition)
#endif
