// SPDX-License-Identifier: Apache-2.0
//
// Uses the installed recorder as a stranger would: three spans with a counter in each, one file.

#include <cstdio>

#include <gapless/trace.h>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: consumer TRACE\n");
    return 2;
  }
  if (!gapless::start_recording({.path = argv[1]})) {
    std::fprintf(stderr, "consumer: %s\n", gapless::recording_error().c_str());
    return 1;
  }
  for (int round = 0; round < 3; ++round) {
    GAPLESS_TRACE_SCOPE("round");
    GAPLESS_TRACE_COUNTER("rounds done", round);
  }
  const gapless::RecordingSummary summary = gapless::stop_recording();
  if (summary.event_count == 0 || summary.dropped_count != 0) {
    std::fprintf(stderr, "consumer: recorded %llu events, dropped %llu\n",
                 static_cast<unsigned long long>(summary.event_count),
                 static_cast<unsigned long long>(summary.dropped_count));
    return 1;
  }
  return 0;
}
